"""Reads the items of a study from a jsonl, csv or tsv file, one item per line, or from a file of generated captions.

| key | meaning |
| :-- | :-- |
| `id` | the item's id; default: the ids of its image and its caption, or the line number |
| `images`, or `image`, or `image_0`, `image_1`, … | files beside the item file or in its `images/`, or ids of the collection |
| `captions`, or `caption`, or `caption_0`, … | texts |
| `image_ids`, `caption_ids`, or `image_id`, `caption_id`, … | the ids in results; ids alone are enough if the collection has them |
| `block`, `group` | the block of questions; items of one group stay in one HIT |
| `kind` | `candidate` (to be judged; the default), `positive` or `negative` (gold), `example` |
| `gold` | the correct answer to the main question, or several, or an object with answers by question |
| `why` | the explanation of an example |
| `fits` | whether each image fits each caption, if known: artificial annotators use it, and it is not displayed |

A .json file contains a caption for each image, as `crossmatch captions generate` writes it; each caption is an item.

Other keys are stored with the item and exported. Positive gold without `gold` accepts the options of the main question with a grade
above zero, negative gold those with grade zero. In a design with blocks, an item without a block is a trial in which image n and
caption n belong together; it becomes one item for each choice (a caption for each image, an image for each caption). The file may
contain images or captions that the design does not show.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from crossmatch.benchmarks.formats.caption_scoring_files import read_candidates
from crossmatch.benchmarks.formats.csv_tables import DELIMITERS, TYPO_SIMILARITY
from crossmatch.benchmarks.formats.trial_files import is_jsonl, read_records
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.file_contents import file_sha256
from crossmatch.data.settings import format_value, suggest_name
from crossmatch.study.design.data_source import Source, find_item_images
from crossmatch.study.design.declaration import Design, Question
from crossmatch.study.design.new_items import EXAMPLE, GOLD, NewItem, StudyItems, require_item
from crossmatch.study.design.places import Place

SIDES = ("image", "caption")
CANDIDATE = "candidate"
KINDS = (CANDIDATE, *GOLD, EXAMPLE)
ID_KEYS = ("id", "item", "trial_id")  # the first one with a value is the id
PLAIN_KEYS = ("block", "group", "kind", "gold", "why", "category")
STEMS = tuple(stem for side in SIDES for stem in (side, f"{side}_id"))
STEM_KEYS = tuple(key for stem in STEMS for key in (stem, f"{stem}s", f"{stem}_0", f"negative_{stem}"))
KNOWN_KEYS = (*ID_KEYS, *PLAIN_KEYS, *STEM_KEYS)
CAPTIONS_SUFFIX = ".json"
SEPARATOR = ";"  # between values in a cell of a table
MAX_PAIR_LENGTH = 300  # of an id that is made of two ids


def read_items(path: Path, design: Design, source: Source | None = None) -> StudyItems:
    """Read the items of a file for a design. Errors name the file and the line.

    Args:
        path: A .jsonl, .csv or .tsv file with one item per row, or a .json file with a caption for each image.
        design: The design, which says how many images and captions an item has.
        source: Where to look up images and captions by id; `crossmatch.study.design.data_source.source_of` makes it of
            `collection:FOLDER` or `diorama:SIZE`. By default images are files beside `path`, and captions are texts.

    Raises:
        UsageError: The file does not exist, or has another ending.
        CrossmatchError: A row cannot be used.

    >>> from crossmatch.study import load_design, read_items
    >>> count = (folder / "items.jsonl").write_text('{"id": "pets", "captions": ["A cat.", "A kitten."]}')
    >>> [(item.key, item.captions) for item in read_items(folder / "items.jsonl", load_design("sts")).items]
    [('pets', ('A cat.', 'A kitten.'))]
    """
    source = source or Source()
    _require_item_file(path)
    try:
        records = list(_read_captions(path) if _has_captions(path) else read_records(path))
        _require_known({key for record, _ in records for key in record}, path)
        located_items = [
            item
            for number, (record, where) in enumerate(records)
            for item in _items_of_record(record, where, number, design, source)
        ]
        _require_unique(located_items)
        where_by_image: dict[str, str] = {}
        for item, where in located_items:
            for image in item.images:
                where_by_image.setdefault(image, f"{where}: item {item.key!r}")
        open_image = find_item_images(where_by_image, path.parent, source)
        origin = {"items": path.name, "sha256": file_sha256(path), **source.origin}
    except OSError as error:
        raise CrossmatchError(f"Cannot read {error.filename or path} ({error.strerror or error}). Check the path.") from None
    return StudyItems(tuple(item for item, _ in located_items), open_image, origin)


def read_pool(path: Path, design: Design, source: Source | None = None) -> StudyItems:
    """Read a pool: items of one image and one caption, some of them gold (`kind`).

    Args:
        path: The rows.jsonl of `crossmatch.build.build_pool`, or another file of items.
        design: A design that displays one image and one caption.
        source: Where to look up images and captions by id; see `read_items`.

    Raises:
        UsageError: The design displays something else, or the file does not exist.

    >>> from crossmatch import Diorama
    >>> from crossmatch.build import PoolOptions, build_pool
    >>> from crossmatch.study import load_design, read_pool
    >>> from crossmatch.study.design.data_source import source_of
    >>> data = Diorama.make("test", size="tiny").collection
    >>> manifest = build_pool(data, ["oracle"], folder / "pool", options=PoolOptions(top=1, gold=2, directions=("i2t",)))
    >>> pool = read_pool(folder / "pool" / "rows.jsonl", load_design("eccv-hit"), source_of("diorama:tiny"))
    >>> len(pool.items), sum(item.gold is not None for item in pool.items)
    (54, 4)
    """
    if (design.shows.images, design.shows.captions) != (1, 1):
        raise UsageError(f"{design.name} does not show one image and one caption, so it has no pool. Use --items.")
    return read_items(path, design, source)


def _require_item_file(path: Path) -> None:
    if not path.is_file():
        problem = "is a folder. Choose a file in it" if path.is_dir() else "does not exist. Check the path"
        raise UsageError(f"{path} {problem}.")
    if path.suffix.lower() not in DELIMITERS and not is_jsonl(path) and not _has_captions(path):
        raise UsageError(f"{path} has the ending {path.suffix!r}. Save the items as .jsonl, .csv, .tsv, or captions as .json.")


def _has_captions(path: Path) -> bool:
    return path.suffix.lower() == CAPTIONS_SUFFIX


def _read_captions(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """A record for each generated caption. Its id follows from its text, which the collection may contain several times."""
    for image_id, text in read_candidates(path).items():
        yield {"image_id": image_id, "caption": text, "caption_id": _text_id(text)}, f"{path}, image {image_id!r}"


# -- records


LocatedItem = tuple[NewItem, str]  # an item, and its file and line


def _items_of_record(record: Mapping[str, Any], where: str, number: int, design: Design, source: Source) -> Iterator[LocatedItem]:
    """The item of a record, or the choices of a trial."""
    _require_text(record, where)
    images, image_ids = _read_side(record, "image", where, lambda name: _find_image(name, source))
    captions, caption_ids = _read_side(record, "caption", where, source.texts.get)
    image_ids = image_ids or images
    caption_ids = caption_ids or tuple(_caption_id(text, where, source) for text in captions)
    key = next((_read_text(record, key, where) for key in ID_KEYS if record.get(key) not in (None, "")), "")
    pair = f"{image_ids[0]}~{caption_ids[0]}" if len(image_ids) == len(caption_ids) == 1 else ""
    key = key or (pair if len(pair) <= MAX_PAIR_LENGTH else "") or str(number)
    kind = _read_kind(record, where)
    _require_fits(record.get("fits"), len(images) * len(captions), where)
    block, group = (_read_text(record, key, where) for key in ("block", "group"))
    used_keys = {*ID_KEYS, "block", "group", "kind", "gold", *(name for stem in STEMS for name in _side_keys(tuple(record), stem))}
    rest = {name: value for name, value in record.items() if name not in used_keys and value not in (None, "")}
    record_item = NewItem(
        key,
        images if design.shows.images else (),
        captions if design.shows.captions else (),
        block,
        kind=kind,
        group=group,
        details=item_details(image_ids, caption_ids, captions, **rest),
    )
    if design.shows.blocks and not block and len(images) == len(captions) > 1:
        items = list(choices_of(record_item, design))
    else:
        items = [replace(record_item, gold=_read_gold(record, kind, design.main_question_for(block), f"{where}: item {key!r}"))]
    for item in items:
        require_item(design, item, f"{where}: item {item.key!r}")
        yield item, where


def item_details(image_ids: Sequence[str], caption_ids: Sequence[str], texts: Sequence[str], **rest: Any) -> dict[str, Any]:
    """The details that exports need: the ids of all images and captions, also of those that are not displayed.

    >>> item_details(["cat.jpg"], ["cat.jpg#0"], ["A cat."])["caption_id"]
    'cat.jpg#0'
    """
    details: dict[str, Any] = {**rest, "image_ids": list(image_ids), "caption_ids": list(caption_ids)}
    if len(image_ids) == 1:
        details["image_id"] = image_ids[0]
    if len(caption_ids) == 1:
        details |= {"caption_id": caption_ids[0], "caption": texts[0]}
    return details


def choices_of(trial: NewItem, design: Design) -> Iterator[NewItem]:
    """The choices of a trial, block by block; image n and caption n belong together.

    Each choice names its `trial` and its `query`: 0 to n - 1 are the images, n to 2n - 1 the captions.
    """
    n = len(trial.images)
    for block in design.shows.blocks:
        question = next((q for q in design.questions_for(block) if q.among in ("images", "captions")), None)
        if question is None:
            raise CrossmatchError(
                f"item {trial.key!r} is a trial, but block {block!r} of {design.name} has no choice among images or captions. "
                "Add such a question, or give the item a block."
            )
        by_image = question.among == "captions"
        for place in range(n):
            query, candidates = slice(place, place + 1), slice(n)
            images, captions = (query, candidates) if by_image else (candidates, query)
            details = {
                **trial.details, "trial": trial.key, "query": place if by_image else n + place,
                "image_ids": trial.details["image_ids"][images], "caption_ids": trial.details["caption_ids"][captions],
            }  # fmt: skip
            if "fits" in trial.details:
                details["fits"] = [trial.details["fits"][i * n + c] for i in range(n)[images] for c in range(n)[captions]]
            correct = Place(question.among, place).value
            yield replace(
                trial, key=f"{trial.key}/{block}-{place}", images=trial.images[images], captions=trial.captions[captions],
                block=block, group=trial.group or trial.key, gold={question.name: (correct,)} if trial.kind else None,
                details=details,
            )  # fmt: skip


# -- images and captions of a record


@lru_cache(maxsize=256)
def _side_keys(names: tuple[str, ...], stem: str) -> tuple[str, ...]:
    """The keys of a record for one side: a list, a single value with its negative, or numbered values."""
    numbered = sorted((len(key), key) for key in names if re.fullmatch(rf"{stem}_\d{{1,3}}", key))
    return (*(key for key in (f"{stem}s", stem, f"negative_{stem}") if key in names), *(key for _, key in numbered))


def _read_values(record: Mapping[str, Any], stem: str, where: str) -> tuple[str, ...]:
    """The values of a record for one side; empty cells at the end of a row are ignored."""
    keys = [key for key in _side_keys(tuple(record), stem) if record[key] not in (None, "", [])]
    numbered = [key for key in keys if key[-1].isdigit()]
    if numbered != [f"{stem}_{n}" for n in range(len(numbered))]:
        raise CrossmatchError(f"{where} has {numbered[-1]}, but an earlier number is missing. Number {stem}s from 0 without a gap.")
    forms = {"numbered" if key in numbered else key.removeprefix("negative_") for key in keys}
    if len(forms) > 1:
        raise CrossmatchError(f"{where} has both {keys[0]!r} and {keys[-1]!r}. Keep one of them.")
    values = record[keys[0]] if keys == [f"{stem}s"] else [record[key] for key in keys]
    if isinstance(values, str):  # the cell of a table
        values = [part.strip() for part in values.split(SEPARATOR)] if stem != "caption" else [values]
    if not isinstance(values, list):
        raise CrossmatchError(f"{where}: expected a list of {stem}s, got {format_value(values):.40}.")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise CrossmatchError(f"{where}: expected a text among {stem}s, got {format_value(value):.40}.")
    return tuple(" ".join(str(value).split()) if stem == "caption" else str(value) for value in values)


def _read_side(
    record: Mapping[str, Any], side: str, where: str, look_up: Callable[[str], str | None]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The images or captions of a record, and their ids if it has them. Ids alone are enough if the collection has them."""
    values, ids = _read_values(record, side, where), _read_values(record, f"{side}_id", where)
    if not ids:
        return values, ids
    if not values:
        matches = [look_up(name) for name in ids]
        if None in matches:
            name = ids[matches.index(None)]
            raise CrossmatchError(
                f"{where}: {side}_id {name!r:.60} is not in the collection. Choose another collection (--data), or add the {side}."
            )
        return tuple(str(value) for value in matches), ids
    if len(ids) != len(values):
        raise CrossmatchError(f"{where} has {len(values)} {side}s but {len(ids)} ids. Give one id for each.")
    for name, text in zip(ids, values, strict=True) if side == "caption" else ():
        stored = look_up(name)
        if stored is not None and " ".join(stored.split()) != text:
            raise CrossmatchError(
                f"{where}: caption_id {name!r:.60} is {stored!r:.60} in the collection, but {text!r:.60} here. Remove the id or the text."
            )
    return values, ids


def _find_image(name: str, source: Source) -> str | None:
    return name if name in source.images or not source.data_name else None  # without a collection it is a file name


def _caption_id(text: str, where: str, source: Source) -> str:
    """The id of a caption in the collection, or else one made of its text."""
    caption_ids = source.ids.get(text, ())
    if len(caption_ids) > 1:
        raise CrossmatchError(
            f"{where}: the collection has the caption {text!r:.60} {len(caption_ids)} times. Add the caption_id of one of them."
        )
    return caption_ids[0] if caption_ids else _text_id(text)


def _text_id(text: str) -> str:
    return "text-" + hashlib.sha256(text.encode()).hexdigest()[:12]


# -- gold


def _read_kind(record: Mapping[str, Any], where: str) -> str:
    kind = _read_text(record, "kind", where)
    if kind and kind not in KINDS:
        raise CrossmatchError(f"{where}: expected the kind {', '.join(KINDS)}, got {kind!r:.40}. {suggest_name(kind, KINDS)}")
    return "" if kind == CANDIDATE else kind


def _read_gold(record: Mapping[str, Any], kind: str, question: Question, where: str) -> dict[str, tuple[Any, ...]] | None:
    """The accepted answers by question; None for an item to be judged."""
    gold = record.get("gold")
    if gold in (None, "", []):
        if kind == EXAMPLE:
            return {}
        return {question.name: accepted_by_grade(question, kind, where)} if kind else None
    if not kind:
        raise CrossmatchError(f"{where} has gold but no kind. Set its kind to positive, negative or example.")
    if isinstance(gold, Mapping):
        return {str(name): _accepted_values(value) for name, value in gold.items()}
    return {question.name: _accepted_values(gold)}


def _accepted_values(value: Any) -> tuple[Any, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(SEPARATOR))
    return tuple(value) if isinstance(value, list) else (value,)


def accepted_by_grade(question: Question, kind: str, where: str) -> tuple[str, ...]:
    """The options that gold of a kind accepts: those with a grade above zero (positive), or with grade zero (negative).

    >>> from crossmatch.study.design.declaration import load_design
    >>> accepted_by_grade(load_design("eccv-hit").main_question, "positive", "item 'a'")
    ('yes', 'weak-yes')
    """
    graded = [(option.value, option.grade) for option in question.options if option.grade is not None]
    has_negative = question.kind == "choice" and any(grade == 0 for _, grade in graded)
    accepted = tuple(value for value, grade in graded if (grade > 0) == (kind == "positive")) if has_negative else ()
    if not accepted:
        raise CrossmatchError(
            f"{where} is {kind} gold, but no option of {question.name!r} has a grade that is {kind}. Add its gold."
        )
    return accepted


# -- texts and keys


def _read_text(record: Mapping[str, Any], key: str, where: str) -> str:
    value = record.get(key)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise CrossmatchError(f"{where}: expected a text for {key}, got {format_value(value):.40}.")
    return str(value).strip()


def _require_text(record: Mapping[str, Any], where: str) -> None:
    """Raise if a record has characters or numbers that a database or a page cannot represent."""
    try:
        text = json.dumps(record, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (ValueError, RecursionError) as error:
        problem = "a character that is not Unicode" if isinstance(error, UnicodeEncodeError) else "NaN, Infinity or a deep nesting"
        raise CrossmatchError(f"{where} contains {problem}. Write it as UTF-8 text and finite numbers.") from None
    if "\\u0000" in text and any("\0" in part for part in _texts(record)):
        raise CrossmatchError(f"{where} contains a NUL character. Remove it.")


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from (*_texts(key), *_texts(value))
    elif isinstance(data, list):
        for value in data:
            yield from _texts(value)


def _require_fits(fits: Any, pairs: int, where: str) -> None:
    """`fits` is a list: the first image with each caption, then the second, and so on."""
    is_valid = fits is None or (isinstance(fits, list) and len(fits) == pairs and all(isinstance(value, bool) for value in fits))
    if not is_valid:
        raise CrossmatchError(
            f"{where}: expected `fits` as a list of {pairs} booleans, one for each pair of an image and a caption, "
            f"got {format_value(fits):.40}."
        )


def _require_known(keys: set[str], path: Path) -> None:
    """Raise if a key looks like a typing error. Other unknown keys are the user's own."""
    for key in sorted(keys):
        unused = [] if re.sub(r"_\d+$", "_0", key) in KNOWN_KEYS else [name for name in KNOWN_KEYS if name not in keys]
        close = get_close_matches(key, unused, n=1, cutoff=TYPO_SIMILARITY)
        if close:
            raise CrossmatchError(f"{path} has the key {key!r}. Did you mean {close[0]!r}? Rename it.")


def _require_unique(located_items: Sequence[LocatedItem]) -> None:
    place_by_key: dict[str, str] = {}
    for item, where in located_items:
        if item.key in place_by_key:
            raise CrossmatchError(
                f"{where}: item {item.key!r} is also in {place_by_key[item.key]}. Give each item its own id, or remove one."
            )
        place_by_key[item.key] = where
