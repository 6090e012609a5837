"""`images/` beside `captions.csv` or `captions.tsv`: one row for each pair of an image and a caption."""

from __future__ import annotations

from pathlib import Path

from crossmatch.benchmarks.formats.gathered import Caption, Gathered, Span
from crossmatch.benchmarks.formats.images import ImageFolder, is_image
from crossmatch.benchmarks.formats.table import Row, read_table
from crossmatch.core.errors import CrossmatchError

NEEDS = (("image", "image_id"), ("caption",))
MAY = ("caption_id",)


def read_captions_csv(path: Path) -> Gathered:
    """The columns `image` (a file in `images/`) and `caption`; `image_id` and `caption_id` give them ids of their own.

    Rows of one image are its captions; one `caption_id` in several rows is one caption of several images. Images that
    no row names stay in the collection: they are distractors.
    """
    rows = read_table(path, NEEDS, MAY)
    folder = ImageFolder.at(path.parent / "images")
    files = _files(folder, rows)
    ids = _ids(folder, rows, files)
    captions = tuple(
        Caption(ids[file], row.cells["caption"], row.where, _filled(row, "caption_id") if "caption_id" in row.cells else None)
        for row, file in zip(rows, files, strict=True)
    )
    images = {ids[file]: Span(at) for file, at in folder.files.items() if file in ids}
    return Gathered(
        images, captions, {name: ids[meant[0]] for name, meant in folder.names.items() if len(meant) == 1 and meant[0] in ids}
    )


def _files(folder: ImageFolder, rows: list[Row]) -> list[str]:
    """The image file that each row is about."""
    named = [(_filled(row, "image" if "image" in row.cells else "image_id"), row.where) for row in rows]
    found: dict[str, str | None] = {}
    absent = {}
    for name, where in named:
        if name not in found:
            found[name] = folder.find(name, where)
            if found[name] is None:
                absent[name] = where
    if absent:
        raise folder.absent(*next(iter(absent.items())), len(absent))
    return [str(found[name]) for name, _ in named]


def _ids(folder: ImageFolder, rows: list[Row], files: list[str]) -> dict[str, str]:
    """The id of every image file: what the column `image_id` says, else its name."""
    ids: dict[str, str] = {}
    owner: dict[str, str] = {}
    if "image_id" in rows[0].cells:
        for row, file in zip(rows, files, strict=True):
            name = _filled(row, "image_id")
            if ids.setdefault(file, name) != name:
                raise CrossmatchError(
                    f"{row.where}: image {file!r} has the id {name!r}, but was {ids[file]!r} before. Give it one id."
                )
            if owner.setdefault(name, file) != file:
                raise CrossmatchError(
                    f"{row.where}: image id {name!r} is {file!r}, but was {owner[name]!r} before. Give each image an id of its own."
                )
    for file in [*files, *filter(is_image, folder.files)]:
        name = ids.setdefault(file, folder.ids[file])
        if owner.setdefault(name, file) != file:
            raise CrossmatchError(
                f"the id {name!r} that a row gives to {owner[name]!r} is the name of another image, {file!r}. Rename one."
            )
    return ids


def _filled(row: Row, column: str) -> str:
    if not row.cells[column]:
        raise CrossmatchError(f"{row.where}: the cell {column!r} is empty. Fill it in, or remove the row.")
    return row.cells[column]
