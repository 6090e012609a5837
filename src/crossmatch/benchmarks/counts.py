"""Numbers that must come out of the files of data sets: each function takes the path of a file, or of two."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.core.files import read_json


def rows(path: Path) -> int:
    """Records of a csv file under its head."""
    with path.open(encoding="utf-8", newline="") as file:
        return sum(1 for _ in csv.reader(file)) - 1


def keys(path: Path) -> int:
    """Queries of a json file of matches."""
    return len(_matches(path))


def values(path: Path) -> int:
    """Pairs of a json file of matches."""
    return sum(len(matches) for matches in _matches(path).values())


def ids(path: Path) -> int:
    """Distinct numbers of an array file."""
    return len(np.unique(np.load(path, allow_pickle=False)))


def lines(path: Path) -> int:
    """Rows of a tab-separated table."""
    return sum(1 for _ in _cells(path))


def images(path: Path) -> int:
    """Distinct images of a tab-separated table."""
    return len({row["image_id"] for row in _cells(path)})


def classes(path: Path) -> int:
    """Distinct classes of the table of labels."""
    return len({name for row in _cells(path) for name in row["labels"].split(",")})


def unlabelled(captions: Path, labels: Path) -> int:
    """Images of the caption table that the table of labels lacks."""
    return len({row["image_id"] for row in _cells(captions)} - {row["image_id"] for row in _cells(labels)})


def json_images(path: Path) -> int:
    """Images of a COCO json file."""
    return len(_object(path)["images"])


def json_captions(path: Path) -> int:
    """Annotations of a COCO json file."""
    return len(_object(path)["annotations"])


def entries(path: Path) -> int:
    """Records of a json object."""
    return len(_object(path))


def bison_trials(path: Path) -> int:
    """Examples of BISON's annotations."""
    return len(_object(path)["data"])


def bison_images(path: Path) -> int:
    """Distinct images of BISON's annotations."""
    return len({image["image_id"] for trial in _object(path)["data"] for image in trial["image_candidates"]})


def bison_captions(path: Path) -> int:
    """Distinct captions of BISON's annotations."""
    return len({trial["caption"] for trial in _object(path)["data"]})


def json_lines(path: Path) -> int:
    """Lines of a jsonl that are not blank."""
    with path.open(encoding="utf-8") as file:
        return sum(1 for line in file if line.strip())


def _cells(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        head = next(file).rstrip("\n").split("\t")
        for line in file:
            yield dict(zip(head, line.rstrip("\n").split("\t"), strict=True))


def _object(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError("it holds no json object")
    return content


def _matches(path: Path) -> dict[str, list[int]]:
    return _object(path)
