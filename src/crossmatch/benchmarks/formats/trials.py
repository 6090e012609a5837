"""Forced choices as they stand in files, and the one way they become `Trials`; every mistake is named with the trial's id."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from crossmatch.benchmarks.formats.coco import as_id
from crossmatch.benchmarks.formats.gathered import Pictures, Span, decoded
from crossmatch.benchmarks.formats.images import refuse_escape
from crossmatch.benchmarks.formats.table import NEAR, read_table, text_of
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.skipped import Skipped
from crossmatch.core.trials import Trials

if TYPE_CHECKING:
    from PIL.Image import Image

Shape = tuple[int, int]  # images and captions of a trial, as in 2x1

# Long names of BiVLC's and SugarCrepe's subtypes, as their papers write them.
SHORT = {"object": "obj", "attribute": "att", "relation": "rel"}


@dataclass(frozen=True)
class Offer:
    """One trial as a file has it: what it offers (image n and caption n belong together) and the place, for messages."""

    id: str
    images: tuple[str, ...]
    captions: tuple[str, ...]
    category: str
    where: str


@dataclass(frozen=True)
class NoPictures:
    """In the place of an opener where only the names of the images are known: says how to get them."""

    how: str

    def __call__(self, image: str) -> NoReturn:
        raise CrossmatchError(f"image {str(image)!r} cannot be opened: {self.how}")


def as_trials(
    offers: Sequence[Offer],
    shape: Shape | None = None,
    open_image: Callable[[str], Image] | None = None,
    references: Mapping[str, tuple[str, ...]] | None = None,
    rows: Sequence[int] | None = None,
    notes: tuple[str, ...] = (),
) -> Trials:
    """Trials in the order of the file, all of one shape: the given one, or that of the first. `rows` are their official places.

    A trial that offers the same caption or the same image twice cannot be won, and is an error. In a caption every run of white
    space is one space, as in the tables of COCO.

    >>> as_trials([Offer("a", ("1.jpg", "2.jpg"), ("A  cat. ",), "", "line 2")]).captions
    array([['A cat.']], dtype='<U6')
    """
    if not offers:
        raise CrossmatchError("there is no trial. Give at least one.")
    expected = shape or (len(offers[0].images), len(offers[0].captions))
    said = "of the first trial" if shape is None else "that was asked for"
    seen: dict[str, str] = {}
    captions = []
    for offer in offers:
        found = len(offer.images), len(offer.captions)
        if found != expected:
            raise _bad(
                offer,
                f"has {_counted(found)}, but the shape {said} is {expected[0]}x{expected[1]}, {_counted(expected)}. "
                "Mend it, or put trials of another shape into a file of their own.",
            )
        if offer.id in seen:
            raise _bad(offer, f"was in {seen[offer.id]} already. Give each trial an id of its own.")
        seen[offer.id] = offer.where
        texts = tuple(" ".join(text.split()) for text in offer.captions)
        captions.append(texts)
        _check(offer, texts)
    return Trials(
        [offer.id for offer in offers],  # type: ignore[arg-type]
        [offer.images for offer in offers],  # type: ignore[arg-type]
        captions,  # type: ignore[arg-type]
        [offer.category for offer in offers],  # type: ignore[arg-type]
        open_image,
        references,
        None if rows is None else np.asarray(rows, dtype=np.int64),
        notes,
    )


def usable_rows(offers: Sequence[Offer]) -> tuple[list[int], tuple[Skipped, ...]]:
    """The places of the trials without an empty caption, and the other trials."""
    good = [all(text.strip() for text in offer.captions) for offer in offers]
    left = [offer for offer, fine in zip(offers, good, strict=True) if not fine]
    skipped = tuple(Skipped("trial", offer.id, f"{offer.where}: a caption is empty") for offer in left)
    return [n for n, fine in enumerate(good) if fine], skipped


def _check(offer: Offer, texts: tuple[str, ...]) -> None:
    if "" in texts:
        raise _bad(offer, f"has an empty caption_{texts.index('')}. Write it, or remove the trial.")
    if "" in offer.images:
        raise _bad(offer, f"has an empty image_{offer.images.index('')}. Name the image, or remove the trial.")
    for what, given in (("caption", texts), ("image", offer.images)):
        twice = next((item for n, item in enumerate(given) if item in given[:n]), None)
        if twice is not None:
            raise _bad(
                offer, f"offers the {what} {twice!r:.80} twice, so that it cannot be won. Give another, or remove the trial."
            )
    whole = "\n".join((offer.id, offer.category, *offer.images, *texts))
    if "\0" in whole or any("\ud800" <= letter <= "\udfff" for letter in ("" if whole.isascii() else whole)):
        raise CrossmatchError(f"{offer.where}: trial {offer.id!a} holds a character that is not Unicode text. Write it as UTF-8.")


def _bad(offer: Offer, why: str) -> CrossmatchError:
    return CrossmatchError(f"{offer.where}: trial {offer.id!r} {why}")


def _counted(shape: Shape) -> str:
    return " and ".join(f"{n} {what}{'s' * (n != 1)}" for n, what in zip(shape, ("image", "caption"), strict=True))


# Records: a row of a table or a line of jsonl

NUMBERED = re.compile(r"(caption|image)_(0|[1-9]\d*)")
KNOWN = ("trial_id", "id", "category", "type", "subtype", "caption", "negative_caption", "image", "negative_image")


@dataclass(frozen=True)
class Columns:
    """Which columns of a file hold what; `id` is None where trials go by the number of their row."""

    id: str | None
    images: tuple[str, ...]
    captions: tuple[str, ...]
    category: tuple[str, ...]


def columns_of(names: tuple[str, ...], where: str, lists: bool = False) -> Columns:
    """What the columns of a file mean; in json (`lists`) a list of `captions` and one of `images` may stand for the single ones.

    Columns that are not known are left alone, unless one looks like a slip of the pen.

    >>> columns_of(("caption_0", "image_0", "image_1", "note"), "a.csv")
    Columns(id=None, images=('image_0', 'image_1'), captions=('caption_0',), category=())
    >>> columns_of(("image", "caption", "negative_caption", "type", "subtype"), "a.csv").captions
    ('caption', 'negative_caption')
    """
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CrossmatchError(f"{where} has two columns {twice!r}. Rename or remove one.")
    listed = ("captions", "images") if lists else ()
    sides = [_side(side, names, where, lists) for side in ("image", "caption")]
    known = {*KNOWN, *listed, *(f"{side}_0" for side in ("image", "caption") if not any(_numbers(side, names)))}
    for name in names:
        close = [] if name in known or NUMBERED.fullmatch(name) else get_close_matches(name, known - set(names), n=1, cutoff=NEAR)
        if close:
            raise CrossmatchError(f"{where} has a column {name!r}. Did you mean {close[0]!r}? Rename it.")
    category = [key for key in (("category",) if "category" in names else ("type", "subtype")) if key in names]
    return Columns(next((key for key in ("trial_id", "id") if key in names), None), sides[0], sides[1], tuple(category))


def _side(side: str, names: tuple[str, ...], where: str, lists: bool) -> tuple[str, ...]:
    """The columns of the images or of the captions: numbered from zero, or alone, or with a negative, or one list."""
    plain = side if side == "caption" or "image" in names or "filename" not in names else "filename"
    numbers = _numbers(side, names)
    ways = {
        "numbered": tuple(f"{side}_{n}" for n in numbers),
        "plain": tuple(name for name in (plain, f"negative_{side}") if name in names) if plain in names else (),
        "list": (f"{side}s",) if lists and f"{side}s" in names else (),
    }
    used = [columns for columns in ways.values() if columns]
    if len(used) > 1:
        raise CrossmatchError(f"{where} has both {used[0][0]!r} and {used[1][0]!r}. Keep one way to give {side}s.")
    if not used:
        close = get_close_matches(side, [name for name in names if name not in KNOWN], n=1, cutoff=0.6)
        hint = f"Is it {close[0]!r}? Rename it." if close else f"Give {side}_0, {side}_1, …, or {side} alone."
        if len(names) == 1 and re.search("[;\t,]", names[0]):
            hint = "Save it with commas between the columns (.csv), or with tabs (.tsv)."
        raise CrossmatchError(f"{where} has the columns {', '.join(map(repr, names))}, none of them {side}s. {hint}")
    if numbers and numbers != list(range(len(numbers))):
        absent = next(n for n in range(len(numbers)) if n not in numbers)
        raise CrossmatchError(f"{where} has {side}_{numbers[-1]}, but no {side}_{absent}. Number them from 0 without a gap.")
    return used[0]


def _numbers(side: str, names: Sequence[str]) -> list[int]:
    return sorted(int(match[2]) for name in names if (match := NUMBERED.fullmatch(name)) and match[1] == side)


def offer_of(record: Mapping[str, Any], columns: Columns, number: int, where: str) -> Offer:
    """One trial; without a column of ids its id is the number of its record, counted from zero."""
    name = str(number) if columns.id is None else as_id(record[columns.id], where, columns.id).strip()
    if not name:
        raise CrossmatchError(f"{where}: the trial has an empty {columns.id}. Fill it in.")
    captions, images = (_items(record, keys, f"{where}: trial {name!r}") for keys in (columns.captions, columns.images))
    unsaid = next((n for n, text in enumerate(captions) if not isinstance(text, str)), None)
    if unsaid is not None:
        raise CrossmatchError(f"{where}: trial {name!r} has {captions[unsaid]!r:.40} for caption_{unsaid}; a text was expected.")
    files = tuple("" if image in ("", None) else as_id(image, f"{where}: trial {name!r}", "image") for image in images)
    return Offer(name, files, captions, category_of([record[key] for key in columns.category], f"{where}: trial {name!r}"), where)


def _items(record: Mapping[str, Any], keys: tuple[str, ...], where: str) -> tuple[Any, ...]:
    if keys[0] in ("captions", "images"):
        listed = record[keys[0]]
        if not isinstance(listed, list):
            raise CrossmatchError(f"{where} has {listed!r:.40} for {keys[0]}; a list was expected.")
        return tuple(listed)
    return tuple(record[key] for key in keys)


def category_of(parts: Sequence[object], where: str) -> str:
    """A category as it stands, or a type and a subtype as a path in lower case, by their short names.

    >>> category_of(["Replace", "Attribute"], "line 2"), category_of(["Cats and dogs"], "line 2"), category_of([None], "line 2")
    ('replace/att', 'Cats and dogs', '')
    """
    odd = next((part for part in parts if part is not None and not isinstance(part, str)), None)
    if odd is not None:
        raise CrossmatchError(f"{where} has the category {odd!r:.40}; a text was expected.")
    names = [part.strip() for part in parts if isinstance(part, str)]
    if len(parts) == 1:
        return names[0] if names else ""
    return "/".join(SHORT.get(name.lower(), name.lower()) for name in names if name)


# Files


def read_records(path: Path) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The records of a csv, a tsv or a jsonl with the place of each; names of columns in lower case."""
    text = text_of(path.read_bytes(), str(path))
    if not text.strip():
        raise CrossmatchError(f"{path} is empty. Write one {'line' if is_jsonl(path) else 'row'} per trial.")
    if not is_jsonl(path):
        yield from ((row.cells, row.where) for row in read_table(path, (), each="trial"))
        return
    for number, line in enumerate(text.split("\n"), 1):  # not splitlines: a caption may hold other separators
        if line.strip():
            yield record_of(line, f"{path} line {number}"), f"{path} line {number}"


def record_of(line: str, where: str) -> Mapping[str, Any]:
    """
    >>> record_of('{"id": 3,', "a.jsonl line 2")
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.CrossmatchError: a.jsonl line 2 is not json (Expecting property name ... at column 10). Mend the line.
    """
    try:
        held = json.loads(line)
    except json.JSONDecodeError as error:
        raise CrossmatchError(f"{where} is not json ({error.msg} at column {error.colno}). Mend the line.") from None
    except RecursionError:
        raise CrossmatchError(f"{where} is nested too deeply. Mend the line.") from None
    if not isinstance(held, dict):
        raise CrossmatchError(f'{where} is {held!r:.40}; an object such as {{"captions": […], "images": […]}} was expected.')
    return {key.strip().lower(): value for key, value in held.items()}


def is_jsonl(path: Path) -> bool:
    return path.suffix.lower() in (".jsonl", ".ndjson")


def read_offers(path: Path) -> list[Offer]:
    """The trials of a csv, a tsv or a jsonl; the lines of a jsonl may have different keys."""
    lists, known, offers = is_jsonl(path), dict[tuple[str, ...], Columns](), list[Offer]()
    for number, (record, where) in enumerate(read_records(path)):
        names = tuple(record)
        if names not in known:
            known[names] = columns_of(names, where if lists else str(path), lists)
        offers.append(offer_of(record, known[names], number, where))
    return offers


ENDINGS = ("", ".png", ".jpg", ".jpeg", ".webp")  # an image may be named without its ending, as Winoground does


def pictures_of(offers: Sequence[Offer], folder: Path, how: str) -> Pictures | NoPictures:
    """An opener of the images that the trials name, files in the folder or in its `images/`.

    Where no file is there at all, trials are of use still, with scores from a file: `how` then says what a model would need.
    """
    named = {name: offer for offer in offers for name in offer.images}
    places = {name: place for name in named if (place := place_of(name, folder)) is not None}
    if not places:
        return NoPictures(how)
    absent = [(name, offer) for name, offer in named.items() if name not in places]
    if absent:
        name, offer = absent[0]
        refuse_escape(name, f"{offer.where}: trial {offer.id!r}", folder)
        more = f" ({len(absent):,} of {len(named):,} images are missing)" if len(absent) > 1 else ""
        raise _bad(offer, f"has the image {name!r}, which is not in {folder} or its images/{more}. Put it there, or mend the name.")
    for offer in offers:
        if len({places[name] for name in offer.images}) < len(offer.images):
            raise _bad(offer, "offers one image file under two names, so that it cannot be won. Give another, or remove the trial.")
    return Pictures({name: Span(place) for name, place in places.items()}, decoded)


def place_of(name: str, folder: Path) -> Path | None:
    """The file of this name in a folder or in its `images/`; nothing where there is none, or where the name leads out of it."""
    try:
        refuse_escape(name, "", folder)
    except CrossmatchError:
        return None
    places = (folder / inside / f"{name}{ending}" for inside in ("", "images") for ending in ENDINGS)
    return next((place for place in places if place.is_file()), None)
