"""A user's own hard negatives: a file with an image, a caption of it, a caption that is false of it, and perhaps an image of that.

    image, caption, negative_caption[, negative_image]          csv, tsv or json lines; image_id or filename for image, as TROHN has
    filepath, title, neg_caption                                NegCLIP's tsv, in which neg_caption is a list: a row for each

NegCLIP's `neg_image` numbers other rows with similar images, which are no images of the negative captions: it is not read.
Sources: miranda2024bivlc, app. E.2; yuksekgonul2023when, sec. 4, and its released code.
"""

from __future__ import annotations

import ast
import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from crossmatch.benchmarks.formats.gathered import Pictures, Span, decoded
from crossmatch.benchmarks.formats.images import refuse_escape
from crossmatch.benchmarks.formats.table import DELIMITERS
from crossmatch.benchmarks.formats.trials import ENDINGS, is_jsonl, read_records
from crossmatch.core.errors import CrossmatchError, WrongWords

# What a column may be called, the more telling name first.
IMAGE = ("image", "image_id", "filename", "filepath")
CAPTION = ("caption", "title")
NEGATIVE_CAPTION = ("negative_caption", "neg_caption")
NEGATIVE_IMAGE = "negative_image"


class HardRow(NamedTuple):
    """One pair with its negative as a file has it, and the place, for messages."""

    image: str
    caption: str
    negative: str
    negative_image: str  # empty where there is none
    where: str


@dataclass(frozen=True, eq=False)
class NegativeFile:
    """The rows of a file of hard negatives."""

    path: Path
    rows: tuple[HardRow, ...]
    digest: str  # of the file

    @classmethod
    def read(cls, path: Path, pairs: bool) -> NegativeFile:
        """All rows, checked; `pairs` asks for a negative image in each."""
        path = path.expanduser()
        if not path.is_file():
            seen = "is a folder; name a file in it" if path.is_dir() else "is not there. Check the path"
            raise WrongWords(f"--negatives: {path} {seen}.")
        if path.suffix.lower() not in DELIMITERS and not is_jsonl(path):
            raise WrongWords(
                f"--negatives: {path} ends in {path.suffix or 'nothing'!r}; .csv, .tsv and .jsonl are read. Save it as one."
            )
        try:
            rows = tuple(row for record, where in read_records(path) for row in _rows(record, where, pairs))
            return cls(path, rows, hashlib.sha256(path.read_bytes()).hexdigest())
        except OSError as error:
            raise CrossmatchError(f"{path} cannot be read ({error.strerror or error}). Check who may read it.") from None

    def of(self, ids: Iterable[str]) -> list[tuple[str, HardRow]]:
        """The rows of these images, each with the image's id: exactly as written, or the bare name of its file."""
        names = _names(ids)
        found = ((names.get(row.image, names.get(_bare(row.image), "")), row) for row in self.rows)
        return [(name, row) for name, row in found if name]

    def require_known(self, ids: Sequence[str]) -> None:
        """Refuse a row whose image is in none of the collections."""
        names = _names(ids)
        strange = [row for row in self.rows if row.image not in names and _bare(row.image) not in names]
        if strange:
            self._require_one(strange[0], ids)
            close = get_close_matches(strange[0].image, list(ids)[:10_000], n=1, cutoff=0.8)
            more = f" ({len(strange):,} of {len(self.rows):,} rows are of unknown images)" if len(strange) > 1 else ""
            near = f"the nearest is {close[0]!r}" if close else f"its ids are like {next(iter(ids), '')!r}"
            raise CrossmatchError(
                f"{strange[0].where}: image {strange[0].image!r} is not in the collection{more}; {near}. Mend the name, or remove "
                "the row."
            )

    def _require_one(self, row: HardRow, ids: Sequence[str]) -> None:
        """Refuse a name without an ending that several files could have."""
        some = sorted({name for name in map(str, ids) if _stem(name) in (row.image, _bare(row.image))})
        if some:
            raise CrossmatchError(f"{row.where}: image {row.image!r} may be {' or '.join(map(repr, some))}. Write the whole name.")


def opener(rows: Iterable[HardRow], places: Sequence[Path]) -> Pictures:
    """Opens the negative images, files in any of these folders or in its `images/`; all must be there."""
    found: dict[str, Path] = {}
    for row in rows:
        name = row.negative_image
        if name in found:
            continue
        refuse_escape(name, row.where, places[0])
        files = (place / inside / f"{name}{ending}" for place in places for inside in ("", "images") for ending in ENDINGS)
        file = next((file for file in files if file.is_file()), None)
        if file is None:
            raise CrossmatchError(
                f"{row.where}: there is no image {name!r} in {' or '.join(map(str, places))} or images/ there. Put it there, or "
                "mend the name."
            )
        found[name] = file
    return Pictures({name: Span(file) for name, file in found.items()}, decoded)


def _rows(record: Mapping[str, Any], where: str, pairs: bool) -> Iterator[HardRow]:
    image, caption = (_text(record, names, where) for names in (IMAGE, CAPTION))
    other = ""
    if pairs:
        if not record.get(NEGATIVE_IMAGE):
            raise CrossmatchError(
                f"{where} has no {NEGATIVE_IMAGE}, which the recipe asks for. Add it, or train with texts alone: clip-hard-texts"
            )
        other = _text(record, (NEGATIVE_IMAGE,), where)
    for negative in _negatives(record, where):
        text = " ".join(negative.split())
        if not text:
            raise CrossmatchError(f"{where} has an empty negative caption. Write one, or remove the row.")
        if not plain(text):
            raise CrossmatchError(
                f"{where} has {text!r:.80} as negative caption, which holds no word. Write one, or remove the row."
            )
        if plain(text) == plain(caption):
            raise CrossmatchError(
                f"{where} has {text!r:.80} as negative, which reads as its caption but for case and signs. "
                "Change one, or remove the row."
            )
        yield HardRow(image, caption, text, other, where)


def plain(text: str) -> list[str]:
    """The words of a text without case and signs.

    >>> plain("A cat, black.") == plain("a cat black")
    True
    """
    marks = ("Mn", "Mc")
    return "".join(sign if sign.isalnum() or unicodedata.category(sign) in marks else " " for sign in text.casefold()).split()


def _negatives(record: Mapping[str, Any], where: str) -> list[str]:
    """The negative captions of a record: one, or a list of them, which a table writes as Python does."""
    name = next((name for name in NEGATIVE_CAPTION if name in record), None)
    if name is None:
        _text(record, NEGATIVE_CAPTION, where)  # says what is missing
    value = record[name] if name is not None else ""
    if name == "neg_caption" and isinstance(value, str) and value.startswith("["):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise CrossmatchError(f"{where} has {value!r:.40} for {name}; a list of texts was expected. Mend it.") from None
    listed = value if isinstance(value, list) else [value]
    if not listed or not all(isinstance(text, str) for text in listed):
        raise CrossmatchError(f"{where} has {value!r:.40} for {name}; a text was expected. Mend it, or remove the row.")
    return listed


def _text(record: Mapping[str, Any], names: Sequence[str], where: str) -> str:
    name = next((name for name in names if name in record), None)
    if name is None:
        raise CrossmatchError(
            f"{where} has {', '.join(map(repr, record))}; one called {' or '.join(map(repr, names))} is missing. Add it."
        )
    value = record[name]
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise CrossmatchError(f"{where} has {value!r:.40} for {name}; a text was expected. Fill it in.")
    return " ".join(str(value).split())


def _bare(name: str) -> str:
    return PurePosixPath(name.replace("\\", "/")).name


def _stem(name: str) -> str:
    return PurePosixPath(name).stem


def _names(ids: Iterable[str]) -> dict[str, str]:
    """What each image may be called: its id, or the id without the ending of a file, where that is no other's.

    >>> _names(["a.jpg", "b.jpg", "b.png"])
    {'a': 'a.jpg', 'a.jpg': 'a.jpg', 'b.jpg': 'b.jpg', 'b.png': 'b.png'}
    """
    known = list(dict.fromkeys(map(str, ids)))
    shared = Counter(map(_stem, known))
    return {_stem(name): name for name in known if shared[_stem(name)] == 1} | {name: name for name in known}
