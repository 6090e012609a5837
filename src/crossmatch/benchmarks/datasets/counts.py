"""Counts of items in the files of data sets, which are compared with the declared counts."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.data.io.file_contents import UndecodableFileError, check_record, read_json


def count_csv_rows(path: Path) -> int:
    """Count the rows without the header."""
    with path.open(encoding="utf-8", newline="") as file:
        return sum(1 for _ in csv.reader(file)) - 1


def count_json_records(path: Path) -> int:
    return len(_read_object(path))


def count_listed_items(path: Path) -> int:
    """Count the items of all lists in a json object `{key: [items]}`."""
    lists = _read_object(path)
    return sum(len(check_record(lists, "the file", {key: list})[key]) for key in lists)


def count_single_ratings(path: Path) -> int:
    """Count the single ratings of Flickr8k-Expert."""
    entries = _read_object(path).items()
    return sum(
        len(check_record(entry, f"image {image!r}", {"human_judgement": list})["human_judgement"]) for image, entry in entries
    )


def count_distinct_ids(path: Path) -> int:
    try:
        ids = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise UndecodableFileError(str(error)) from None
    return len(np.unique(ids))


def count_tsv_rows(path: Path) -> int:
    return sum(1 for _ in _read_tsv(path, ()))


def count_tsv_images(path: Path) -> int:
    return len({row["image_id"] for row in _read_tsv(path, ("image_id",))})


def count_classes(path: Path) -> int:
    return len({name for row in _read_tsv(path, ("labels",)) for name in row["labels"].split(",")})


def count_unlabelled_images(captions: Path, labels: Path) -> int:
    """Count the images of the caption table that are not in the label table."""
    in_captions, in_labels = ({row["image_id"] for row in _read_tsv(path, ("image_id",))} for path in (captions, labels))
    return len(in_captions - in_labels)


def count_coco_images(path: Path) -> int:
    return len(_read_list(path, "images"))


def count_coco_captions(path: Path) -> int:
    return len(_read_list(path, "annotations"))


def count_bison_trials(path: Path) -> int:
    return len(_read_list(path, "data"))


def count_bison_images(path: Path) -> int:
    trials = [check_record(trial, "a trial", {"image_candidates": list}) for trial in _read_list(path, "data")]
    images = (check_record(image, "an image", {"image_id": (int, str)}) for trial in trials for image in trial["image_candidates"])
    return len({image["image_id"] for image in images})


def count_bison_captions(path: Path) -> int:
    return len({check_record(trial, "a trial", {"caption": str})["caption"] for trial in _read_list(path, "data")})


def count_jsonl_lines(path: Path) -> int:
    with path.open(encoding="utf-8") as file:
        return sum(1 for line in file if line.strip())


def _read_tsv(path: Path, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        head = file.readline().rstrip("\n").split("\t")
        missing = next((name for name in columns if name not in head), None)
        if missing is not None:
            raise UndecodableFileError(f"the column {missing} is missing")
        for number, line in enumerate(file, 2):
            cells = line.rstrip("\n").split("\t")
            if len(cells) != len(head):
                raise UndecodableFileError(f"line {number} has {len(cells)} cells, expected {len(head)}")
            yield dict(zip(head, cells, strict=True))


def _read_object(path: Path) -> dict[str, Any]:
    return check_record(read_json(path), "the file", {})


def _read_list(path: Path, key: str) -> list[Any]:
    entries: list[Any] = check_record(read_json(path), "the file", {key: list})[key]
    return entries
