"""Crisscrossed Captions (CxC): graded similarity of captions and images, within and across modalities (parekh2021cxc)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np

from crossmatch.benchmarks.coco import coco_collection, drop_invalid, parse_caption_id, parse_image_id, read_official_table
from crossmatch.data.arrays import FloatArray, IdArray
from crossmatch.data.benchmark import Benchmark, ExpectedCount
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.paths import data_folder
from crossmatch.data.judgements import KINDS, Judgements
from crossmatch.data.loaded_data import Retrieval
from crossmatch.data.rated_pairs import QUERIES, PairRatings, RatedCollection, Similarity

LICENCE = "free for any purpose; acknowledge Google LLC"

# For each task: its columns, the parsers of their ids, the kind of its pairs, and the lowest grade of a positive
# (parekh2021cxc, sec. 3).
TASKS = {
    "sts": (("caption1", "caption2"), (parse_caption_id, parse_caption_id), "caption-caption", 3.0),
    "sis": (("image1", "image2"), (parse_image_id, parse_image_id), "image-image", 2.5),
    "sits": (("caption", "image"), (parse_caption_id, parse_image_id), "image-caption", 3.0),
}


@dataclass(frozen=True, eq=False)
class RatingsTable:
    """A file of ratings: the two ids of each pair, its mean rating from 0 to 5, and how it was sampled."""

    first: IdArray
    second: IdArray
    grades: FloatArray
    methods: IdArray


@cache
def read_ratings(task: str, split: str, root: Path) -> RatingsTable:
    """Read the ratings of a task, in the order of the file. In image-caption pairs the image is first."""
    if split not in ("val", "test"):
        raise UsageError(f"CxC has no split {split!r}. Choose val or test.")
    columns, id_parsers, kind, _ = TASKS[task]
    rows = list(read_official_table(f"cxc/{task}_{split}.csv", (*columns, "agg_score", "sampling_method")))
    try:
        grades = np.asarray([row[2] for row in rows], dtype=np.float64)
    except ValueError as error:
        raise CrossmatchError(
            f"cxc/{task}_{split}.csv holds a rating that is not a number ({error}). Run `crossmatch data verify cxc`."
        ) from None
    first, second = (np.asarray([parse(row[n]) for row in rows]) for n, parse in enumerate(id_parsers))
    if kind == "image-caption":
        first, second = second, first
    return RatingsTable(first, second, grades, np.asarray([row[3] for row in rows], dtype=np.str_))


def cxc_ratings(collection: Collection, task: str, split: str) -> PairRatings:
    """Return the rated pairs of a task with their sampling methods. The released files have no deviations."""
    *_, kind, positive = TASKS[task]
    table = read_ratings(task, split, data_folder())
    positions = {"image": collection.image_positions, "caption": collection.caption_positions}
    first_side, second_side = KINDS[kind][0]
    return PairRatings(
        task, kind, positions[first_side](table.first), positions[second_side](table.second), table.grades,
        np.full(len(table.grades), np.nan), table.methods,
        (len(collection.ids(first_side)), len(collection.ids(second_side))), positive,
    )  # fmt: skip


def load_ratings(split: str, tasks: Sequence[str] = tuple(TASKS), **other_options: str) -> RatedCollection:
    """Load the collection with the ratings of the tasks; the other options of the benchmarks do not change them."""
    collection = coco_collection(split)
    return RatedCollection(collection, {task: cxc_ratings(collection, task, split) for task in tasks})


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
    sts = symmetrise(cxc_ratings(collection, "sts", split).judgements())
    judgements = {
        "sits": cxc_ratings(collection, "sits", split).judgements(),
        "sts": sts if cocaptions == "rated" else add_co_captions(collection, sts),
        "sis": symmetrise(cxc_ratings(collection, "sis", split).judgements()),
    }
    return Retrieval(collection, {name: drop_invalid(collection, judged, invalid) for name, judged in judgements.items()})


def load_similarity(task: str, split: str, query: str) -> Similarity:
    """Load the rated pairs of a task; `query` says which item of a pair is the query."""
    collection = coco_collection(split)
    return cxc_ratings(collection, task, split).similarity(collection, query)


CXC = Benchmark(
    name="cxc",
    description="Crisscrossed Captions: retrieval in four directions by people's ratings",
    loader=load,
    metrics=("hit@1", "hit@5", "hit@10", "median-rank"),
    directions=("i2t", "t2i", "t2t", "i2i"),
    options={"split": "test", "invalid": "keep", "cocaptions": "rated"},
    expected_counts={"t2i/sits": ExpectedCount(24_972, 35_585)},
    ratings_loader=load_ratings,
    licence=LICENCE,
    cite="parekh2021cxc",
)

CXC_STS, CXC_SIS, CXC_SITS = (
    Benchmark(
        name=f"cxc-{task}",
        description=f"CxC, {subject}, 0 to 5: correlation with people",
        loader=partial(load_similarity, task),
        metrics=("bootstrap-spearman",),
        directions=(next(iter(QUERIES[kind].values())),),
        options={"split": "test", "query": next(iter(QUERIES[kind]))},
        ratings_loader=partial(load_ratings, tasks=(task,)),
        expected_counts={"": expected},
        licence=LICENCE,
        cite="parekh2021cxc",
    )
    for task, subject, kind, expected in (
        ("sts", "similarity of two captions", "caption-caption", ExpectedCount(25_000, 44_045)),
        ("sis", "similarity of two images", "image-image", ExpectedCount(4_989, 46_719)),
        ("sits", "fit of an image and a caption", "image-caption", ExpectedCount(5_000, 44_833)),
    )
)
