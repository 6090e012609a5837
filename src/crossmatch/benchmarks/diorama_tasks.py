"""Diorama as benchmarks: retrieval by links and by truth, Crisscrossed Captions, BISON, BiVLC and SugarCrepe.

Every pair has a judgement or a grade: the truth about a scene and a caption, or their similarity (`diorama.similarity`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from crossmatch.data.benchmark import Benchmark, ExpectedCount
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval
from crossmatch.data.rated_pairs import QUERIES, PairRatings, RatedCollection, Similarity
from crossmatch.diorama.edits import CATEGORIES
from crossmatch.diorama.graded_similarity import Matrix, caption_similarity, scene_caption_similarity, scene_similarity
from crossmatch.diorama.trials import bison, bivlc, sugarcrepe
from crossmatch.diorama.world import Diorama

DEFAULT_WORLD = {"split": "test", "size": "default"}
STS_POSITIVE, SIS_POSITIVE = 3.0, 2.5  # the lowest grades of positives: parekh2021cxc, sec. 3
SIMILAR_PER_QUERY, RANDOM_PER_QUERY = 5, 5  # partners of each query: some of the most similar items, and some of the others
SIMILAR_SHARE = 0.01  # this share of all items counts as the most similar
CORRELATION = ("bootstrap-spearman",)


def load_retrieval(split: str, size: str) -> Retrieval:
    """Load the collection with two sets of judgements: `links`, as in COCO, and `truth`."""
    world = Diorama.make(split, size=size)
    return Retrieval(
        world.collection,
        {"links": Judgements.from_links(world.collection), "truth": Judgements.from_matrix("truth", world.truth)},
    )


DIORAMA_RETRIEVAL = Benchmark(
    name="diorama/retrieval",
    description="drawn scenes with five captions each; original links, and the truth about every pair",
    loader=load_retrieval,
    metrics=("hit@1", "hit@5", "hit@10", "median-rank", "mrr", "recall@10", "r-precision", "map@r", "ndcg@10"),
    options=DEFAULT_WORLD,
    licence="MIT",
    cite="chun2022eccv",
)


def load_cxc(split: str, size: str) -> Retrieval:
    """Load judgements for image-caption, caption-caption and image-image pairs; no pair is unjudged."""
    world = Diorama.make(split, size=size)
    return Retrieval(
        world.collection,
        {
            "sits": Judgements.from_matrix("sits", world.truth),
            "sts": _positives_above("sts", caption_similarity(world.captions, world.captions), STS_POSITIVE, "caption-caption"),
            "sis": _positives_above("sis", scene_similarity(world.scenes, world.scenes), SIS_POSITIVE, "image-image"),
        },
    )


def _positives_above(source: str, grades: Matrix, positive: float, kind: str) -> Judgements:
    rows, columns = np.nonzero((grades >= positive) & ~np.eye(len(grades), dtype=bool))
    positives = grades[rows, columns].astype(np.float64)
    return Judgements(source, rows, columns, positives, grades.shape, positive, complete=True, kind=kind)


def sample_pairs(grades: Matrix, exclude_self: bool, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sample pairs of rows and columns to correlate: each row with some of its most similar columns, and with some others.

    Random pairs have low grades almost always. CxC selects pairs by the similarity of their counterparts in the other modality
    (parekh2021cxc, sec. 3.1), so that all grades occur; here the grades themselves are available.

    With `exclude_self` a row is never paired with the column of the same number.
    """
    rng = np.random.default_rng(seed)
    n, m = grades.shape
    similar_count = max(SIMILAR_PER_QUERY, round(SIMILAR_SHARE * m))
    shuffled = grades.astype(np.float64) + rng.random(grades.shape) * 1e-6  # breaks ties between equal grades at random
    if exclude_self:
        np.fill_diagonal(shuffled, -1.0)
    nearest = np.argpartition(-shuffled, similar_count, axis=1)[:, :similar_count]
    rows, columns = [], []
    for row in range(n):
        others = np.setdiff1d(np.arange(m), nearest[row])
        partners = np.concatenate(
            [rng.choice(nearest[row], SIMILAR_PER_QUERY, replace=False), rng.choice(others, RANDOM_PER_QUERY, replace=False)]
        )
        partners = partners[partners != row] if exclude_self else partners
        rows.append(np.full(len(partners), row))
        columns.append(partners)
    return np.concatenate(rows), np.concatenate(columns)


# For each task: how its pairs are graded, and their kind.
GRADED_TASKS: dict[str, tuple[Callable[[Diorama], Matrix], str]] = {
    "sts": (lambda world: caption_similarity(world.captions, world.captions), "caption-caption"),
    "sis": (lambda world: scene_similarity(world.scenes, world.scenes), "image-image"),
    "sits": (lambda world: scene_caption_similarity(world.scenes, world.captions), "image-caption"),
}
POSITIVE = {"sts": STS_POSITIVE, "sis": SIS_POSITIVE, "sits": STS_POSITIVE}


def graded_pairs(world: Diorama, task: str) -> PairRatings:
    """The sampled pairs of a task with their grades, as people would rate them."""
    grade, kind = GRADED_TASKS[task]
    grades = grade(world)
    rows, columns = sample_pairs(grades, kind != "image-caption", world.seed)
    unknown = np.full(len(rows), np.nan)
    methods = np.full(len(rows), "", dtype=np.str_)
    return PairRatings(task, kind, rows, columns, grades[rows, columns], unknown, methods, grades.shape, POSITIVE[task])


def load_similarity(task: str, split: str, size: str) -> Similarity:
    """Load the graded pairs of a task."""
    world = Diorama.make(split, size=size)
    return graded_pairs(world, task).similarity(world.collection)


def load_ratings(split: str, size: str, tasks: Sequence[str] = tuple(GRADED_TASKS)) -> RatedCollection:
    """Load the graded pairs of several tasks."""
    world = Diorama.make(split, size=size)
    return RatedCollection(world.collection, {task: graded_pairs(world, task) for task in tasks})


DIORAMA_CXC = Benchmark(
    name="diorama/cxc",
    description="drawn scenes and captions: retrieval in four directions, by the truth and by shared content",
    loader=load_cxc,
    metrics=("hit@1", "hit@5", "hit@10", "median-rank"),
    directions=("i2t", "t2i", "t2t", "i2i"),
    options=DEFAULT_WORLD,
    ratings_loader=load_ratings,
    licence="MIT",
    cite="parekh2021cxc",
)

DIORAMA_STS, DIORAMA_SIS, DIORAMA_SITS = (
    Benchmark(
        name=f"diorama/{task}",
        description=f"{items}, graded 0 to 5 by shared content: correlation with the grades",
        loader=partial(load_similarity, task),
        metrics=CORRELATION,
        directions=(next(iter(QUERIES[GRADED_TASKS[task][1]].values())),),
        options=DEFAULT_WORLD,
        ratings_loader=partial(load_ratings, tasks=(task,)),
        licence="MIT",
        cite="parekh2021cxc",
    )
    for task, items in (("sts", "two captions"), ("sis", "two drawn scenes"), ("sits", "a drawn scene and a caption"))
)

DIORAMA_BISON = Benchmark(
    name="diorama/bison",
    description="two drawn scenes with similar captions, and a caption that is true of the first scene only",
    loader=bison,
    metrics=("accuracy",),
    directions=("t2i",),
    options={**DEFAULT_WORLD, "caption": "chosen"},
    expected_counts={"trials": ExpectedCount(1000, 1000)},
    licence="MIT",
    cite="hu2019bison",
)

DIORAMA_BIVLC = Benchmark(
    name="diorama/bivlc",
    description="a drawn scene and its caption against an edited scene, in another drawing style, and the edited caption",
    loader=bivlc,
    metrics=("i2t", "t2i", "group", "ipos2t", "ineg2t", "tpos2i", "tneg2i"),
    options=DEFAULT_WORLD,
    expected_counts={"trials": ExpectedCount(1400, 1400)},
    licence="MIT",
    cite="miranda2024bivlc",
    categories=CATEGORIES,
)

DIORAMA_SUGARCREPE = Benchmark(
    name="diorama/sugarcrepe",
    description="a drawn scene, one of its captions, and an edited caption that is false of the scene",
    loader=sugarcrepe,
    metrics=("accuracy",),
    directions=("i2t",),
    options=DEFAULT_WORLD,
    expected_counts={"trials": ExpectedCount(1750, 1750)},
    licence="MIT",
    cite="hsieh2023sugarcrepe",
    categories=CATEGORIES,
)
