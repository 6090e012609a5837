"""Reads `captions.csv` or `captions.tsv`, one row per image-caption pair, with images in `images/`."""

from __future__ import annotations

from pathlib import Path

from crossmatch.benchmarks.formats.csv_tables import TableRow, read_table
from crossmatch.benchmarks.formats.image_caption_records import CaptionRecord, FileSlice, FolderContents
from crossmatch.benchmarks.formats.image_folder import ImageFolder, is_image
from crossmatch.data.errors import CrossmatchError

REQUIRED_COLUMNS = (("image", "image_id"), ("caption",))
OPTIONAL_COLUMNS = ("caption_id",)


def read_captions_csv(path: Path) -> FolderContents:
    """Read the columns `image` (a file in `images/`) and `caption`, and ids from `image_id` and `caption_id` if they exist.

    Rows of one image are its captions. One `caption_id` in several rows is one caption of several images. Images without a row
    stay in the collection as distractors.
    """
    rows = read_table(path, REQUIRED_COLUMNS, OPTIONAL_COLUMNS)
    folder = ImageFolder.scan(path.parent / "images")
    files = _find_files(folder, rows)
    ids = _assign_ids(folder, rows, files)
    captions = tuple(
        CaptionRecord(
            ids[file], row.cells["caption"], row.where, _require_cell(row, "caption_id") if "caption_id" in row.cells else None
        )
        for row, file in zip(rows, files, strict=True)
    )
    images = {ids[file]: FileSlice(path_on_disk) for file, path_on_disk in folder.files.items() if file in ids}
    return FolderContents(
        images, captions, {name: ids[paths[0]] for name, paths in folder.names.items() if len(paths) == 1 and paths[0] in ids}
    )


def _find_files(folder: ImageFolder, rows: list[TableRow]) -> list[str]:
    """Return the image file of each row."""
    named = [(_require_cell(row, "image" if "image" in row.cells else "image_id"), row.where) for row in rows]
    file_by_name: dict[str, str | None] = {}
    missing = {}
    for name, where in named:
        if name not in file_by_name:
            file_by_name[name] = folder.find(name, where)
            if file_by_name[name] is None:
                missing[name] = where
    if missing:
        raise folder.missing_image_error(*next(iter(missing.items())), len(missing))
    return [str(file_by_name[name]) for name, _ in named]


def _assign_ids(folder: ImageFolder, rows: list[TableRow], files: list[str]) -> dict[str, str]:
    """Return the id of every image file: the value of the column `image_id`, or the file name."""
    ids: dict[str, str] = {}
    owner: dict[str, str] = {}
    if "image_id" in rows[0].cells:
        for row, file in zip(rows, files, strict=True):
            name = _require_cell(row, "image_id")
            if ids.setdefault(file, name) != name:
                raise CrossmatchError(
                    f"{row.where}: image {file!r} has the id {name!r}, but has the id {ids[file]!r} above. Give it one id."
                )
            if owner.setdefault(name, file) != file:
                raise CrossmatchError(
                    f"{row.where}: image id {name!r} is {file!r}, but is {owner[name]!r} above. Give each image its own id."
                )
    for file in [*files, *filter(is_image, folder.files)]:
        name = ids.setdefault(file, folder.ids[file])
        if owner.setdefault(name, file) != file:
            raise CrossmatchError(f"the id {name!r} of {owner[name]!r} is also the name of another image, {file!r}. Rename one.")
    return ids


def _require_cell(row: TableRow, column: str) -> str:
    if not row.cells[column]:
        raise CrossmatchError(f"{row.where}: column {column!r} is empty. Fill it in, or remove the row.")
    return row.cells[column]
