"""Crisscrossed Captions (CxC): graded similarity of captions and images, within and across modalities (parekh2021cxc)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from crossmatch.benchmarks.coco import coco_collection, drop_invalid, parse_caption_id, parse_image_id, read_official_table
from crossmatch.data.arrays import FloatArray, IdArray
from crossmatch.data.benchmark import Benchmark, ExpectedCount
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.paths import data_folder
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval
from crossmatch.data.rated_pairs import Similarity

LICENCE = "free for any purpose; acknowledge Google LLC"

# For each task: its columns, the parsers of their ids, the kind of its pairs, and the lowest grade of a positive
# (parekh2021cxc, sec. 3).
TASKS = {
    "sts": (("caption1", "caption2"), (parse_caption_id, parse_caption_id), "caption-caption", 3.0),
    "sis": (("image1", "image2"), (parse_image_id, parse_image_id), "image-image", 2.5),
    "sits": (("caption", "image"), (parse_caption_id, parse_image_id), "image-caption", 3.0),
}


@cache
def read_ratings(task: str, split: str, root: Path) -> tuple[IdArray, IdArray, FloatArray]:
    """Read the two ids and the mean rating, 0 to 5, of every rated pair."""
    if split not in ("val", "test"):
        raise UsageError(f"CxC has no split {split!r}. Choose val or test.")
    columns, id_parsers, *_ = TASKS[task]
    rows = list(read_official_table(f"cxc/{task}_{split}.csv", (*columns, "agg_score", "sampling_method")))
    try:
        grades = np.asarray([row[2] for row in rows], dtype=np.float64)
    except ValueError as error:
        raise CrossmatchError(
            f"cxc/{task}_{split}.csv holds a rating that is not a number ({error}). Run `crossmatch data verify cxc`."
        ) from None
    first, second = (np.asarray([parse(row[n]) for row in rows]) for n, parse in enumerate(id_parsers))
    return first, second, grades


def cxc_judgements(collection: Collection, task: str, split: str) -> Judgements:
    """Return the ratings of a task as judgements. In image-caption pairs the image is the row."""
    *_, kind, positive = TASKS[task]
    first, second, grades = read_ratings(task, split, data_folder())
    if kind == "image-caption":
        first, second = second, first
    positions = {"image": collection.image_positions, "caption": collection.caption_positions}
    row_side, column_side = kind.split("-")
    shape = len(collection.ids(row_side)), len(collection.ids(column_side))
    return Judgements(task, positions[row_side](first), positions[column_side](second), grades, shape, positive, kind=kind)


def symmetrise(judgements: Judgements) -> Judgements:
    """List every pair in both orders, with its rating, or with the mean of two where both orders were rated."""
    a, b = np.minimum(judgements.rows, judgements.columns), np.maximum(judgements.rows, judgements.columns)
    key, member = np.unique(a * judgements.shape[0] + b, return_inverse=True)
    grades = np.round(np.bincount(member.ravel(), judgements.grades) / np.bincount(member.ravel()), 3)  # ratings have two decimals
    low, high = np.divmod(key, judgements.shape[0])
    return replace(
        judgements, rows=np.concatenate([low, high]), columns=np.concatenate([high, low]), grades=np.tile(grades, 2)
    )  # fmt: skip


def add_co_captions(collection: Collection, judgements: Judgements) -> Judgements:
    """Add all pairs of captions of one image as positives, whatever their rating."""
    owner = collection.caption_owners()
    by_image = np.argsort(owner, kind="stable")
    start = np.searchsorted(owner[by_image], np.arange(collection.shape[0] + 1))
    pairs = [
        (a, b)
        for n in range(collection.shape[0])
        for a in by_image[start[n] : start[n + 1]]
        for b in by_image[start[n] : start[n + 1]]
    ]
    rows, columns = np.asarray([pair for pair in pairs if pair[0] != pair[1]]).T
    different_image = owner[judgements.rows] != owner[judgements.columns]
    return replace(
        judgements,
        rows=np.concatenate([rows, judgements.rows[different_image]]),
        columns=np.concatenate([columns, judgements.columns[different_image]]),
        grades=np.concatenate([np.full(len(rows), 5.0), judgements.grades[different_image]]),
    )


def load(split: str, invalid: str, cocaptions: str) -> Retrieval:
    """Load the retrieval tasks. Positives are pairs rated at least 3 (sits, sts) or 2.5 (sis).

    `cocaptions`: "rated" treats two captions of one image like other pairs; "all" makes all of them positives.
    """
    if cocaptions not in ("rated", "all"):
        raise UsageError(f"cocaptions must be rated or all (got {cocaptions!r}).")
    collection = coco_collection(split)
    sts = symmetrise(cxc_judgements(collection, "sts", split))
    judgements = {
        "sits": cxc_judgements(collection, "sits", split),
        "sts": sts if cocaptions == "rated" else add_co_captions(collection, sts),
        "sis": symmetrise(cxc_judgements(collection, "sis", split)),
    }
    return Retrieval(collection, {name: drop_invalid(collection, judged, invalid) for name, judged in judgements.items()})


def similarity_loader(task: str, directions: dict[str, str]) -> Callable[..., Similarity]:
    """Return the loader of a similarity task; `directions` maps each value of the option `query` to a direction."""

    def load_pairs(split: str, **options: str) -> Similarity:
        collection = coco_collection(split)
        judgements, query_side = cxc_judgements(collection, task, split), options["query"]
        if query_side not in directions:
            raise UsageError(f"query must be one of {', '.join(directions)} (got {query_side!r}).")
        if query_side == "second":
            judgements = replace(judgements, rows=judgements.columns, columns=judgements.rows)
        return Similarity(collection, judgements, directions[query_side])

    return load_pairs


CXC = Benchmark(
    name="cxc",
    description="Crisscrossed Captions: retrieval in four directions by people's ratings",
    loader=load,
    metrics=("hit@1", "hit@5", "hit@10", "median-rank"),
    directions=("i2t", "t2i", "t2t", "i2i"),
    options={"split": "test", "invalid": "keep", "cocaptions": "rated"},
    expected_counts={"t2i/sits": ExpectedCount(24_972, 35_585)},
    licence=LICENCE,
    cite="parekh2021cxc",
)

CXC_STS, CXC_SIS, CXC_SITS = (
    Benchmark(
        name=f"cxc-{task}",
        description=f"CxC, {subject}, 0 to 5: correlation with people",
        loader=similarity_loader(task, directions),
        metrics=("bootstrap-spearman",),
        directions=(next(iter(directions.values())),),
        options={"split": "test", "query": next(iter(directions))},
        expected_counts={"": expected},
        licence=LICENCE,
        cite="parekh2021cxc",
    )
    for task, subject, directions, expected in (
        ("sts", "similarity of two captions", {"first": "t2t", "second": "t2t"}, ExpectedCount(25_000, 44_045)),
        ("sis", "similarity of two images", {"first": "i2i", "second": "i2i"}, ExpectedCount(4_989, 46_719)),
        ("sits", "fit of an image and a caption", {"image": "i2t", "caption": "t2i"}, ExpectedCount(5_000, 44_833)),
    )
)
