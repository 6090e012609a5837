"""Items of a study from a file: jsonl, csv or tsv, one item on each line.

| key | what it is |
| :-- | :-- |
| `id` | its name in files; without one, the ids of its image and its caption, or the number of its line |
| `images`, or `image`, or `image_0`, `image_1`, … | files beside the item file or in its `images/`, or ids of the collection |
| `captions`, or `caption`, or `caption_0`, … | texts |
| `image_ids`, `caption_ids`, or `image_id`, `caption_id`, … | their names in results; ids of a collection may stand alone |
| `block`, `group` | when it is asked, and with which others |
| `kind` | `candidate` (to be judged, like nothing at all), `positive` or `negative` (gold), `example` |
| `gold` | the right answer to the main question, or several, or an object of them by question |
| `why` | what an example shows |
| `fits` | whether each image fits each caption, where that is known: artificial people go by it, and nobody is shown it |

All else is kept with the item for exports. Gold that is positive or negative without saying more accepts the options of the main
question whose grade is above zero, or is zero. In a design with blocks an item without a block is a trial, in which image n and
caption n belong together; it becomes one item for each choice (a caption for each image, an image for each caption). Images or
captions that a design does not show may stand in the file all the same.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossmatch.benchmarks.formats.table import DELIMITERS, NEAR
from crossmatch.benchmarks.formats.trials import is_jsonl, read_records
from crossmatch.core.declared import nearest, shown
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.files import sha256_of
from crossmatch.study.begin import EXAMPLE, GOLD, NewItem, create_study, require_item, require_items
from crossmatch.study.design import ONE, Design, Question
from crossmatch.study.pictures import store_pictures
from crossmatch.study.promise import require_result
from crossmatch.study.said import studies
from crossmatch.study.sources import Source, opener_of

if TYPE_CHECKING:
    from PIL.Image import Image

    from crossmatch.study.store import Campaign

SIDES = ("image", "caption")
CANDIDATE = "candidate"
KINDS = (CANDIDATE, *GOLD, EXAMPLE)
NAMES = ("id", "item", "trial_id")  # of an item, the first that is there
PLAIN = ("block", "group", "kind", "gold", "why")
STEMS = tuple(stem for side in SIDES for stem in (side, f"{side}_id"))
KNOWN = (*NAMES, *PLAIN, *(name for stem in STEMS for name in (stem, f"{stem}s", f"{stem}_0", f"negative_{stem}")), "category")
SEVERAL = ";"  # between values in a cell of a table
LONGEST_PAIR = 300  # signs of a name that is made of ids


@dataclass(frozen=True, eq=False)
class Material:
    """Items whose images are names still, who opens them, and where all of it came from."""

    items: tuple[NewItem, ...]
    open_image: Callable[[str], Image] | None
    origin: Mapping[str, Any]


def begin_study(
    campaign: Campaign, design: Design, material: Material, *, name: str = "", seed: str = "", excludes: Sequence[str] = ()
) -> int:
    """A study of this material: items are checked, then pictures stored, then all is written. Its number.

    People of studies that the recipe or the words exclude may not take part, and vice versa.
    """
    require_items(design, [replace(one, images=("unseen",) * len(one.images)) for one in material.items])  # before hours of work
    require_result(design, material.items)
    apart = [*excludes, *(one.name for one in studies(campaign) if one.design.name in design.recipe.excludes)]
    return create_study(
        campaign, design, placed(campaign.pictures, material), name=name, seed=seed, excludes=apart, origin=material.origin
    )


def placed(folder: Path, material: Material) -> list[NewItem]:
    """The items with the files of their pictures in this folder."""
    names = [image for one in material.items for image in one.images]
    if names and material.open_image is None:
        raise CrossmatchError("the images of these items are known by name alone. Name a collection that has the pictures: --data")
    files = store_pictures(folder, names, material.open_image) if material.open_image else {}
    return [replace(one, images=tuple(files[image] for image in one.images)) for one in material.items]


def read_items(path: Path, design: Design, source: Source | None = None) -> Material:
    """The items of a file for a design; every mistake names the file, the line and the remedy."""
    source = source or Source()
    path = _existing(path)
    try:
        records = list(read_records(path))
        _require_known({key for record, _ in records for key in record}, path)
        made = [one for number, (record, where) in enumerate(records) for one in _made(record, where, number, design, source)]
        _require_unique(made)
        named: dict[str, str] = {}
        for one, where in made:
            for image in one.images:
                named.setdefault(image, f"{where}: item {one.key!r}")
        opener = opener_of(named, path.parent, source)
        origin = {"items": path.name, "sha256": sha256_of(path), **source.origin}
    except OSError as error:
        raise CrossmatchError(f"{error.filename or path} cannot be read ({error.strerror or error}). Check the path.") from None
    return Material(tuple(one for one, _ in made), opener, origin)


def read_pool(path: Path, design: Design, source: Source | None = None) -> Material:
    """Pairs of an image and a caption that are to be judged, with gold ones among them (`kind`): a file of items of that shape."""
    wanted = (design.shows.images, design.shows.captions)
    if wanted != (1, 1):
        raise WrongWords(f"{design.name} does not show one image and one caption, so it has no pool. Give its items with --items.")
    return read_items(path, design, source)


def _existing(path: Path) -> Path:
    if not path.is_file():
        seen = "is a folder; name a file in it" if path.is_dir() else "is not there. Check the path"
        raise WrongWords(f"{path} {seen}.")
    if path.suffix.lower() not in DELIMITERS and not is_jsonl(path):
        raise WrongWords(f"{path} ends in {path.suffix or 'nothing'!r}; items are read from .jsonl, .csv and .tsv. Save it as one.")
    return path


# -- one record


Placed = tuple[NewItem, str]  # an item, and the place where it stands


def _made(record: Mapping[str, Any], where: str, number: int, design: Design, source: Source) -> Iterator[Placed]:
    """The item of a record, or the items of a trial."""
    _require_text(record, where)
    images, image_ids = _side(record, "image", where, lambda name: _image(name, source))
    captions, caption_ids = _side(record, "caption", where, source.texts.get)
    ids = image_ids or images, caption_ids or tuple(_caption_id(text, where, source) for text in captions)
    name = next((_word(record, key, where) for key in NAMES if record.get(key) not in (None, "")), "")
    pair = f"{ids[0][0]}~{ids[1][0]}" if len(ids[0]) == len(ids[1]) == 1 else ""
    name = name or (pair if len(pair) <= LONGEST_PAIR else "") or str(number)
    kind = _kind(record, where)
    _require_fits(record.get("fits"), len(images) * len(captions), where)
    block, group = (_word(record, key, where) for key in ("block", "group"))
    used = {*NAMES, "block", "group", "kind", "gold", *(key for stem in STEMS for key in _keys(tuple(record), stem))}
    rest = {key: value for key, value in record.items() if key not in used and value not in (None, "")}
    one = NewItem(
        name, images if design.shows.images else (), captions if design.shows.captions else (), block, None, kind, group,
        body_of(*ids, captions, **rest),
    )  # fmt: skip
    if design.shows.blocks and not block and len(images) == len(captions) > 1:
        made = list(choices_of(one, design))
    else:
        gold = _gold(record.get("gold"), kind, design.main_in(block), where, name)
        made = [replace(one, gold=gold)]
    for each in made:
        require_item(design, each, f"{where}: item {each.key!r}")
        yield each, where


def body_of(images: Sequence[str], captions: Sequence[str], texts: Sequence[str], **rest: Any) -> dict[str, Any]:
    """What exports need: the ids of all images and captions, also where they are not shown; of a single one by its own name too.

    >>> body_of(["cat.jpg"], ["cat.jpg#0"], ["A cat."])["caption_id"]
    'cat.jpg#0'
    """
    body: dict[str, Any] = {**rest, "image_ids": list(images), "caption_ids": list(captions)}
    if len(images) == 1:
        body["image_id"] = images[0]
    if len(captions) == 1:
        body |= {"caption_id": captions[0], "caption": texts[0]}
    return body


def choices_of(trial: NewItem, design: Design) -> Iterator[NewItem]:
    """A trial as its choices, block after block: image n and caption n belong together.

    Each tells its `trial`, and its `query`: first the images are numbered, then the captions.
    """
    n = len(trial.images)
    for block in design.shows.blocks:
        question = next((q for q in design.asked(block) if q.among in ("images", "captions")), None)
        if question is None:
            raise CrossmatchError(f"item {trial.key!r} is a trial, but the block {block!r} of {design.name} has no choice.")
        by_image = question.among == "captions"
        for place in range(n):
            some, all_ = slice(place, place + 1), slice(n)
            images, captions = (some, all_) if by_image else (all_, some)
            body = {
                **trial.body, "trial": trial.key, "query": place if by_image else n + place,
                "image_ids": trial.body["image_ids"][images], "caption_ids": trial.body["caption_ids"][captions],
            }  # fmt: skip
            if "fits" in trial.body:
                body["fits"] = [trial.body["fits"][i * n + c] for i in range(n)[images] for c in range(n)[captions]]
            right = f"{ONE[question.among]}-{place}"
            yield replace(
                trial, key=f"{trial.key}/{block}-{place}", images=trial.images[images], captions=trial.captions[captions],
                block=block, group=trial.group or trial.key, gold={question.name: (right,)} if trial.kind else None, body=body,
            )  # fmt: skip


# -- images and captions of a record


@lru_cache(maxsize=256)
def _keys(names: tuple[str, ...], stem: str) -> tuple[str, ...]:
    """The keys of a record that give one side: a list, or one alone with its negative, or numbered ones."""
    numbered = sorted((len(key), key) for key in names if re.fullmatch(rf"{stem}_\d{{1,3}}", key))
    return (*(key for key in (f"{stem}s", stem, f"negative_{stem}") if key in names), *(key for _, key in numbered))


def _values(record: Mapping[str, Any], stem: str, where: str) -> tuple[str, ...]:
    """What a record gives for one side; empty cells at the end of a row stand for nothing."""
    keys = [key for key in _keys(tuple(record), stem) if record[key] not in (None, "", [])]
    numbered = [key for key in keys if key[-1].isdigit()]
    if numbered != [f"{stem}_{n}" for n in range(len(numbered))]:
        raise CrossmatchError(f"{where} has {numbered[-1]}, but not all before it. Number them from 0 without a gap.")
    ways = {"numbered" if key in numbered else key.removeprefix("negative_") for key in keys}
    if len(ways) > 1:
        raise CrossmatchError(f"{where} has both {keys[0]!r} and {keys[-1]!r}. Keep one way to give {stem}s.")
    listed = record[keys[0]] if keys == [f"{stem}s"] else [record[key] for key in keys]
    if isinstance(listed, str):  # the cell of a table
        listed = [part.strip() for part in listed.split(SEVERAL)] if stem != "caption" else [listed]
    if not isinstance(listed, list):
        raise CrossmatchError(f"{where} has {shown(listed):.40} for {stem}s; a list was expected.")
    odd = [v for v in listed if isinstance(v, bool) or not isinstance(v, str | int)]
    if odd:
        raise CrossmatchError(f"{where} has {shown(odd[0]):.40} among its {stem}s; a text was expected.")
    return tuple(" ".join(str(value).split()) if stem == "caption" else str(value) for value in listed)


def _side(
    record: Mapping[str, Any], side: str, where: str, found: Callable[[str], str | None]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The images or captions of a record, and their ids if it gives them. Ids may stand alone where a collection knows them."""
    given, ids = _values(record, side, where), _values(record, f"{side}_id", where)
    if not ids:
        return given, ids
    if not given:
        known = [found(name) for name in ids]
        if None in known:
            name = ids[known.index(None)]
            raise CrossmatchError(
                f"{where}: {side}_id {name!r:.60} stands alone, and no collection has it. Name one that does (--data), or give the "
                f"{side} itself."
            )
        return tuple(str(each) for each in known), ids
    if len(ids) != len(given):
        raise CrossmatchError(f"{where} has {len(given)} {side}s and {len(ids)} ids of them. Give one id for each.")
    if side == "caption":
        there = [(name, found(name), text) for name, text in zip(ids, given, strict=True)]
        other = next((one for one in there if one[1] is not None and " ".join(one[1].split()) != one[2]), None)
        if other is not None:
            raise CrossmatchError(
                f"{where}: caption_id {other[0]!r:.60} is {other[1]!r:.60} in the collection. Keep one of the two."
            )
    return given, ids


def _image(name: str, source: Source) -> str | None:
    return name if name in source.images or not source.words else None  # without a collection it is a file's name


def _caption_id(text: str, where: str, source: Source) -> str:
    """What a caption is called in results: its id in the collection, or else one made of its text, the same for equal texts."""
    known = source.ids.get(text, ())
    if len(known) > 1:
        raise CrossmatchError(
            f"{where}: the caption {text!r:.60} stands {len(known)} times in the collection. Say which one is meant: caption_id"
        )
    return known[0] if known else "text-" + hashlib.sha256(text.encode()).hexdigest()[:12]


# -- gold


def _kind(record: Mapping[str, Any], where: str) -> str:
    kind = _word(record, "kind", where)
    if kind and kind not in KINDS:
        raise CrossmatchError(f"{where} has the kind {kind!r:.40}; one of {', '.join(KINDS)} was expected. {nearest(kind, KINDS)}")
    return "" if kind == CANDIDATE else kind


def _gold(given: Any, kind: str, question: Question, where: str, name: str) -> dict[str, tuple[Any, ...]] | None:
    """The accepted answers by question; nothing for an item that is to be judged."""
    if given in (None, "", []):
        if kind == EXAMPLE:
            return {}
        return {question.name: by_grade(question, kind, f"{where}: item {name!r}")} if kind else None
    if not kind:
        raise CrossmatchError(
            f"{where}: item {name!r} has gold but no kind. Say which: positive or negative, or example for one that is only shown."
        )
    if isinstance(given, Mapping):
        return {str(key): _accepted(value) for key, value in given.items()}
    return {question.name: _accepted(given)}


def _accepted(value: Any) -> tuple[Any, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(SEVERAL))
    return tuple(value) if isinstance(value, list) else (value,)


def by_grade(question: Question, kind: str, where: str) -> tuple[str, ...]:
    """The options that gold of a kind accepts: of a grade above zero if it is positive, of grade zero if it is negative.

    >>> from crossmatch.study.design import load_design
    >>> by_grade(load_design("eccv-hit").main, "positive", "item 'a'")
    ('yes', 'weak-yes')
    """
    graded = [(option.value, option.grade) for option in question.options if option.grade is not None]
    told = question.kind == "choice" and any(grade == 0 for _, grade in graded)
    accepted = tuple(value for value, grade in graded if (grade > 0) == (kind == "positive")) if told else ()
    if not accepted:
        raise CrossmatchError(
            f"{where} is {kind} gold, but {question.name!r} does not tell which answers are {kind}. Give its gold."
        )
    return accepted


# -- texts and names


def _word(record: Mapping[str, Any], key: str, where: str) -> str:
    value = record.get(key)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise CrossmatchError(f"{where} has {key} = {shown(value):.40}; a text was expected.")
    return str(value).strip()


def _require_text(record: Mapping[str, Any], where: str) -> None:
    """Nothing that a database or a page could not hold: no half characters, no NUL, no endless numbers."""
    try:
        whole = json.dumps(record, ensure_ascii=False, allow_nan=False)
        whole.encode()
    except (ValueError, RecursionError) as error:
        said = "a character that is not Unicode" if isinstance(error, UnicodeEncodeError) else "NaN, Infinity or a deep nesting"
        raise CrossmatchError(f"{where} holds {said}. Write it as UTF-8 text and plain numbers.") from None
    if "\\u0000" in whole and any("\0" in text for text in _texts(record)):
        raise CrossmatchError(f"{where} holds a NUL character. Remove it.")


def _texts(held: Any) -> Iterator[str]:
    if isinstance(held, str):
        yield held
    elif isinstance(held, Mapping):
        for key, value in held.items():
            yield from (*_texts(key), *_texts(value))
    elif isinstance(held, list):
        for value in held:
            yield from _texts(value)


def _require_fits(given: Any, pairs: int, where: str) -> None:
    """What an item tells of itself is a list: the first image with each caption, then the second, and so on."""
    told = given is None or (isinstance(given, list) and len(given) == pairs and all(isinstance(one, bool) for one in given))
    if not told:
        raise CrossmatchError(
            f"{where} has fits = {shown(given):.40}; a list of {pairs} times true or false was expected, one for each image and "
            "caption. Mend it, or leave it out."
        )


def _require_known(keys: set[str], path: Path) -> None:
    """Keys that are not known are the user's own, unless one looks like a slip of the pen."""
    for key in sorted(keys):
        stem = re.sub(r"_\d+$", "_0", key)
        close = [] if stem in KNOWN else get_close_matches(key, [k for k in KNOWN if k not in keys], n=1, cutoff=NEAR)
        if close:
            raise CrossmatchError(f"{path} has {key!r}. Did you mean {close[0]!r}? Rename it.")


def _require_unique(made: Sequence[Placed]) -> None:
    seen: dict[str, str] = {}
    for one, where in made:
        if one.key in seen:
            raise CrossmatchError(
                f"{where}: item {one.key!r} was in {seen[one.key]} already. Give each item an id of its own, or remove one."
            )
        seen[one.key] = where
