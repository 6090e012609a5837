"""Crisscrossed Captions: graded similarity of captions and images, within and across modalities (parekh2021cxc)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from crossmatch.benchmarks.coco import caption_id, collection, image_id, table, without_invalid
from crossmatch.core.arrays import FloatArray, IdArray
from crossmatch.core.benchmark import Benchmark, Count, Retrieval
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements
from crossmatch.core.pairs import Similarity
from crossmatch.core.places import data_folder

LICENCE = "free for any purpose; acknowledge Google LLC"

# For each task: its columns, how their names become ids, the kind of its pairs, and the grade from which a pair is a positive
# (parekh2021cxc, sec. 3).
TASKS = {
    "sts": (("caption1", "caption2"), (caption_id, caption_id), "caption-caption", 3.0),
    "sis": (("image1", "image2"), (image_id, image_id), "image-image", 2.5),
    "sits": (("caption", "image"), (caption_id, image_id), "image-caption", 3.0),
}


@cache
def ratings(task: str, split: str, root: Path) -> tuple[IdArray, IdArray, FloatArray]:
    """The two ids and the mean rating, 0 to 5, of every rated pair."""
    if split not in ("val", "test"):
        raise WrongWords(f"CxC has no split {split!r}; take val or test.")
    columns, names, *_ = TASKS[task]
    rows = list(table(f"cxc/{task}_{split}.csv", (*columns, "agg_score", "sampling_method")))
    try:
        grades = np.asarray([row[2] for row in rows], dtype=np.float64)
    except ValueError as error:
        raise CrossmatchError(
            f"cxc/{task}_{split}.csv holds a rating that is no number ({error}). Run `crossmatch data verify cxc`."
        ) from None
    first, second = (np.asarray([name(row[n]) for row in rows]) for n, name in enumerate(names))
    return first, second, grades


def judged(held: Collection, task: str, split: str) -> Judgements:
    """The ratings of a task: captions or images as rows and columns; of a caption and an image, the image is the row."""
    *_, kind, positive = TASKS[task]
    first, second, grades = ratings(task, split, data_folder())
    if kind == "image-caption":
        first, second = second, first
    sides = {"image": held.image_positions, "caption": held.caption_positions}
    a, b = kind.split("-")
    shape = len(held.ids(a)), len(held.ids(b))
    return Judgements(task, sides[a](first), sides[b](second), grades, shape, positive, kind=kind)


def both_ways(said: Judgements) -> Judgements:
    """Every pair from either side: its rating, or the mean of the two where both orders were rated."""
    a, b = np.minimum(said.rows, said.columns), np.maximum(said.rows, said.columns)
    key, member = np.unique(a * said.shape[0] + b, return_inverse=True)
    grades = np.round(np.bincount(member.ravel(), said.grades) / np.bincount(member.ravel()), 3)  # ratings have two decimals
    low, high = np.divmod(key, said.shape[0])
    return Judgements(
        said.source, np.concatenate([low, high]), np.concatenate([high, low]), np.tile(grades, 2), said.shape, said.positive,
        kind=said.kind,
    )  # fmt: skip


def with_co_captions(held: Collection, said: Judgements) -> Judgements:
    """The same, and every two captions of one image as positives, however they were rated."""
    owner = held.owners()
    by_image = np.argsort(owner, kind="stable")
    start = np.searchsorted(owner[by_image], np.arange(held.shape[0] + 1))
    pairs = [
        (a, b) for n in range(held.shape[0]) for a in by_image[start[n] : start[n + 1]] for b in by_image[start[n] : start[n + 1]]
    ]
    rows, columns = np.asarray([pair for pair in pairs if pair[0] != pair[1]]).T
    rest = owner[said.rows] != owner[said.columns]
    return Judgements(
        said.source, np.concatenate([rows, said.rows[rest]]), np.concatenate([columns, said.columns[rest]]),
        np.concatenate([np.full(len(rows), 5.0), said.grades[rest]]), said.shape, said.positive, kind=said.kind,
    )  # fmt: skip


def load(split: str, invalid: str, cocaptions: str) -> Retrieval:
    """Positives are the pairs rated at least 3 (sits, sts) or 2.5 (sis); on request captions of one image too."""
    if cocaptions not in ("rated", "all"):
        raise WrongWords(f"cocaptions is {cocaptions!r}; rated (if rated at least 3) or all was expected.")
    held = collection(split)
    sts = both_ways(judged(held, "sts", split))
    found = {
        "sits": judged(held, "sits", split),
        "sts": sts if cocaptions == "rated" else with_co_captions(held, sts),
        "sis": both_ways(judged(held, "sis", split)),
    }
    return Retrieval(held, {name: without_invalid(held, said, invalid) for name, said in found.items()})


def similarity(task: str, query: dict[str, str]):  # type: ignore[no-untyped-def]
    """The loader of a task; `query` maps what a user may call the query to the direction of its pairs."""

    def load_pairs(split: str, **options: str) -> Similarity:
        held = collection(split)
        said, chosen = judged(held, task, split), options["query"]
        if chosen not in query:
            raise WrongWords(f"query is {chosen!r}; one of {', '.join(query)} was expected.")
        if chosen == "second":
            said = Judgements(
                said.source, said.columns, said.rows, said.grades, said.shape, said.positive, kind=said.kind
            )  # fmt: skip
        return Similarity(held, said, query[chosen])

    return load_pairs


CXC = Benchmark(
    name="cxc",
    about="Crisscrossed Captions: retrieval in four directions by people's ratings",
    load=load,
    metrics=("hit@1", "hit@5", "hit@10", "median-rank"),
    directions=("i2t", "t2i", "t2t", "i2i"),
    options={"split": "test", "invalid": "keep", "cocaptions": "rated"},
    expect={"t2i/sits": Count(24_972, 35_585)},
    licence=LICENCE,
    cite="parekh2021cxc",
)

CORRELATION = ("bootstrap-spearman",)

CXC_STS = Benchmark(
    name="cxc-sts",
    about="CxC, similarity of two captions, 0 to 5: correlation with people",
    load=similarity("sts", {"first": "t2t", "second": "t2t"}),
    metrics=CORRELATION,
    directions=("t2t",),
    options={"split": "test", "query": "first"},
    expect={"": Count(25_000, 44_045)},
    licence=LICENCE,
    cite="parekh2021cxc",
)

CXC_SIS = Benchmark(
    name="cxc-sis",
    about="CxC, similarity of two images, 0 to 5: correlation with people",
    load=similarity("sis", {"first": "i2i", "second": "i2i"}),
    metrics=CORRELATION,
    directions=("i2i",),
    options={"split": "test", "query": "first"},
    expect={"": Count(4_989, 46_719)},
    licence=LICENCE,
    cite="parekh2021cxc",
)

CXC_SITS = Benchmark(
    name="cxc-sits",
    about="CxC, fit of an image and a caption, 0 to 5: correlation with people",
    load=similarity("sits", {"image": "i2t", "caption": "t2i"}),
    metrics=CORRELATION,
    directions=("i2t",),
    options={"split": "test", "query": "image"},
    expect={"": Count(5_000, 44_833)},
    licence=LICENCE,
    cite="parekh2021cxc",
)
