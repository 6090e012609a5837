"""Counts of items in the files of data sets, which are compared with the declared counts."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.data.io.file_contents import read_json


def count_csv_rows(path: Path) -> int:
    """Count the rows without the header."""
    with path.open(encoding="utf-8", newline="") as file:
        return sum(1 for _ in csv.reader(file)) - 1


def count_json_records(path: Path) -> int:
    return len(_read_object(path))


def count_listed_items(path: Path) -> int:
    """Count the items of all lists in a json object `{key: [items]}`."""
    return sum(len(items) for items in _read_object(path).values())


def count_single_ratings(path: Path) -> int:
    """Count the single ratings of Flickr8k-Expert."""
    return sum(len(entry["human_judgement"]) for entry in _read_object(path).values())


def count_distinct_ids(path: Path) -> int:
    return len(np.unique(np.load(path, allow_pickle=False)))


def count_tsv_rows(path: Path) -> int:
    return sum(1 for _ in _read_tsv(path))


def count_tsv_images(path: Path) -> int:
    return len({row["image_id"] for row in _read_tsv(path)})


def count_classes(path: Path) -> int:
    return len({name for row in _read_tsv(path) for name in row["labels"].split(",")})


def count_unlabelled_images(captions: Path, labels: Path) -> int:
    """Count the images of the caption table that are not in the label table."""
    return len({row["image_id"] for row in _read_tsv(captions)} - {row["image_id"] for row in _read_tsv(labels)})


def count_coco_images(path: Path) -> int:
    return len(_read_object(path)["images"])


def count_coco_captions(path: Path) -> int:
    return len(_read_object(path)["annotations"])


def count_bison_trials(path: Path) -> int:
    return len(_read_object(path)["data"])


def count_bison_images(path: Path) -> int:
    return len({image["image_id"] for trial in _read_object(path)["data"] for image in trial["image_candidates"]})


def count_bison_captions(path: Path) -> int:
    return len({trial["caption"] for trial in _read_object(path)["data"]})


def count_jsonl_lines(path: Path) -> int:
    with path.open(encoding="utf-8") as file:
        return sum(1 for line in file if line.strip())


def _read_tsv(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        head = next(file).rstrip("\n").split("\t")
        for line in file:
            yield dict(zip(head, line.rstrip("\n").split("\t"), strict=True))


def _read_object(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError("the file is not a json object")
    return content
