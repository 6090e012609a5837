"""Files of hard negatives: rows with an image, its caption, a false caption, and perhaps an image of the false caption.

    image, caption, negative_caption[, negative_image]          csv, tsv or json lines; image_id or filename for image, as TROHN has
    filepath, title, neg_caption                                NegCLIP's tsv, in which neg_caption is a list: a row for each

NegCLIP's `neg_image` refers to other rows with similar images, not to images of the negative captions, so it is not read.
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

from crossmatch.benchmarks.formats.csv_tables import DELIMITERS
from crossmatch.benchmarks.formats.image_caption_records import FileSlice, ImageOpener
from crossmatch.benchmarks.formats.image_decoding import decode_image
from crossmatch.benchmarks.formats.image_folder import require_inside
from crossmatch.benchmarks.formats.trial_files import IMAGE_ENDINGS, is_jsonl, read_records
from crossmatch.data.errors import CrossmatchError, UsageError

# Accepted column names; the first one that a file has is used.
IMAGE = ("image", "image_id", "filename", "filepath")
CAPTION = ("caption", "title")
NEGATIVE_CAPTION = ("negative_caption", "neg_caption")
NEGATIVE_IMAGE = "negative_image"


class NegativeRow(NamedTuple):
    """A pair with its negative, and the row of the file, for messages."""

    image: str
    caption: str
    negative: str
    negative_image: str  # empty if there is none
    where: str


@dataclass(frozen=True, eq=False)
class NegativeFile:
    """The rows of a file of hard negatives."""

    path: Path
    rows: tuple[NegativeRow, ...]
    digest: str  # of the file

    @classmethod
    def read(cls, path: Path, pairs: bool) -> NegativeFile:
        """Read and check all rows; with `pairs`, each must have a negative image."""
        path = path.expanduser()
        if not path.is_file():
            problem = "is a folder; name a file in it" if path.is_dir() else "does not exist. Check the path"
            raise UsageError(f"--negatives: {path} {problem}.")
        if path.suffix.lower() not in DELIMITERS and not is_jsonl(path):
            raise UsageError(f"--negatives: {path} has the ending {path.suffix!r}; expected .csv, .tsv or .jsonl.")
        try:
            rows = tuple(row for record, where in read_records(path) for row in _parse_record(record, where, pairs))
            return cls(path, rows, hashlib.sha256(path.read_bytes()).hexdigest())
        except OSError as error:
            raise CrossmatchError(f"{path} cannot be read ({error.strerror or error}). Check its permissions.") from None

    def rows_of(self, ids: Iterable[str]) -> list[tuple[str, NegativeRow]]:
        """Return the rows of these images with the image's id. A row names the id, or the bare name of its file."""
        names = _image_names(ids)
        matches = ((names.get(row.image, names.get(_file_name(row.image), "")), row) for row in self.rows)
        return [(image_id, row) for image_id, row in matches if image_id]

    def require_known_images(self, ids: Sequence[str]) -> None:
        """Refuse a row whose image is not in the collection."""
        names = _image_names(ids)
        unknown = [row for row in self.rows if row.image not in names and _file_name(row.image) not in names]
        if unknown:
            self._require_unambiguous(unknown[0], ids)
            similar = get_close_matches(unknown[0].image, list(ids)[:10_000], n=1, cutoff=0.8)
            count = f" ({len(unknown):,} of {len(self.rows):,} rows have unknown images)" if len(unknown) > 1 else ""
            hint = f"the most similar id is {similar[0]!r}" if similar else f"an id looks like {next(iter(ids), '')!r}"
            raise CrossmatchError(
                f"{unknown[0].where}: image {unknown[0].image!r} is not in the collection{count}; {hint}. Correct the name, or "
                "remove the row."
            )

    def _require_unambiguous(self, row: NegativeRow, ids: Sequence[str]) -> None:
        """Refuse a name without ending that matches several files."""
        matches = sorted({name for name in map(str, ids) if _stem(name) in (row.image, _file_name(row.image))})
        if matches:
            raise CrossmatchError(
                f"{row.where}: image {row.image!r} is ambiguous: {' or '.join(map(repr, matches))}. Write the name with its ending."
            )


def open_negative_images(rows: Iterable[NegativeRow], folders: Sequence[Path]) -> ImageOpener:
    """Return an opener of the negative images: files in these folders or in their `images/`; all must exist."""
    paths: dict[str, Path] = {}
    for row in rows:
        name = row.negative_image
        if name in paths:
            continue
        require_inside(name, row.where, folders[0])
        files = (
            place / subfolder / f"{name}{ending}" for place in folders for subfolder in ("", "images") for ending in IMAGE_ENDINGS
        )
        file = next((file for file in files if file.is_file()), None)
        if file is None:
            raise CrossmatchError(
                f"{row.where}: there is no image {name!r} in {' or '.join(map(str, folders))}, or in images/ there. Add it, or correct "
                "the name."
            )
        paths[name] = file
    return ImageOpener({name: FileSlice(file) for name, file in paths.items()}, decode_image)


def _parse_record(record: Mapping[str, Any], where: str, pairs: bool) -> Iterator[NegativeRow]:
    image, caption = (_text(record, names, where) for names in (IMAGE, CAPTION))
    negative_image = ""
    if pairs:
        if not record.get(NEGATIVE_IMAGE):
            raise CrossmatchError(
                f"{where} has no {NEGATIVE_IMAGE}, which the recipe needs. Add it, or train with texts only: clip-hard-texts"
            )
        negative_image = _text(record, (NEGATIVE_IMAGE,), where)
    for negative in _negative_captions(record, where):
        text = " ".join(negative.split())
        if not text:
            raise CrossmatchError(f"{where} has an empty negative caption. Write one, or remove the row.")
        if not normalised_words(text):
            raise CrossmatchError(
                f"{where} has the negative caption {text!r:.80}, which has no words. Write one, or remove the row."
            )
        if normalised_words(text) == normalised_words(caption):
            raise CrossmatchError(
                f"{where} has the negative caption {text!r:.80}, which equals the caption up to case and punctuation. "
                "Change one, or remove the row."
            )
        yield NegativeRow(image, caption, text, negative_image, where)


def normalised_words(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation.

    >>> normalised_words("A cat, black.") == normalised_words("a cat black")
    True
    """
    marks = ("Mn", "Mc")
    return "".join(sign if sign.isalnum() or unicodedata.category(sign) in marks else " " for sign in text.casefold()).split()


def _negative_captions(record: Mapping[str, Any], where: str) -> list[str]:
    """The negative captions of a record: one, or a list, which tables write in Python syntax."""
    name = next((name for name in NEGATIVE_CAPTION if name in record), None)
    if name is None:
        _text(record, NEGATIVE_CAPTION, where)  # raises an error that says what is missing
    value = record[name] if name is not None else ""
    if name == "neg_caption" and isinstance(value, str) and value.startswith("["):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise CrossmatchError(
                f"{where} has {name} = {value!r:.40}; expected a list of texts. Correct it, or remove the row."
            ) from None
    captions = value if isinstance(value, list) else [value]
    if not captions or not all(isinstance(text, str) for text in captions):
        raise CrossmatchError(f"{where} has {name} = {value!r:.40}; expected a text. Correct it, or remove the row.")
    return captions


def _text(record: Mapping[str, Any], names: Sequence[str], where: str) -> str:
    name = next((name for name in names if name in record), None)
    if name is None:
        raise CrossmatchError(
            f"{where} has the columns {', '.join(map(repr, record))}; {' or '.join(map(repr, names))} is missing. Add it."
        )
    value = record[name]
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise CrossmatchError(f"{where} has {name} = {value!r:.40}; expected a text. Correct it, or remove the row.")
    return " ".join(str(value).split())


def _file_name(name: str) -> str:
    return PurePosixPath(name.replace("\\", "/")).name


def _stem(name: str) -> str:
    return PurePosixPath(name).stem


def _image_names(ids: Iterable[str]) -> dict[str, str]:
    """Accepted names of each image: its id, or the id without the file ending if that is unique.

    >>> _image_names(["a.jpg", "b.jpg", "b.png"])
    {'a': 'a.jpg', 'a.jpg': 'a.jpg', 'b.jpg': 'b.jpg', 'b.png': 'b.png'}
    """
    distinct = list(dict.fromkeys(map(str, ids)))
    count = Counter(map(_stem, distinct))
    return {_stem(name): name for name in distinct if count[_stem(name)] == 1} | {name: name for name in distinct}
