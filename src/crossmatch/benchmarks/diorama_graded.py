"""The embedded world as Crisscrossed Captions: four retrieval tasks and three correlations, graded by what items share.

The grades are those of `diorama.similarity`, 0 to 5. People rated a chosen part of COCO's pairs; here every pair has its grade.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crossmatch.core.benchmark import Benchmark, Retrieval
from crossmatch.core.judgements import Judgements
from crossmatch.core.pairs import Similarity
from crossmatch.diorama.similarity import Matrix, caption_similarity, scene_caption_similarity, scene_similarity
from crossmatch.diorama.world import Diorama

WORLD = {"split": "test", "size": "default"}
STS, SIS = 3.0, 2.5  # from here on two captions, or two images, are positives: parekh2021cxc, sec. 3
LIKE, ANY = 5, 5  # items that each query is paired with: some of the most similar, and some of all
NEAREST = 0.01  # the share of items that are the most similar
CORRELATION = ("bootstrap-spearman",)


def load(split: str, size: str) -> Retrieval:
    """Captions that are true of an image, captions and images that are alike; nothing is unjudged."""
    world = Diorama.make(split, size=size)
    return Retrieval(
        world.collection,
        {
            "sits": Judgements.from_matrix("sits", world.truth),
            "sts": _alike("sts", caption_similarity(world.captions, world.captions), STS, "caption-caption"),
            "sis": _alike("sis", scene_similarity(world.scenes, world.scenes), SIS, "image-image"),
        },
    )


def _alike(source: str, grades: Matrix, positive: float, kind: str) -> Judgements:
    rows, columns = np.nonzero((grades >= positive) & ~np.eye(len(grades), dtype=bool))
    told = grades[rows, columns].astype(np.float64)
    return Judgements(source, rows, columns, told, grades.shape, positive, complete=True, kind=kind)


def drawn(grades: Matrix, alone: bool, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs to be correlated: each row with a few of its most similar columns, and with as many of all. `alone`: never with itself.

    Pairs at random are nearly all unlike. The paper finds its pairs by how alike their counterparts in the other modality are
    (parekh2021cxc, sec. 3.1), so that all grades occur; here the grades are known.
    """
    rng = np.random.default_rng(seed)
    n, m = grades.shape
    near = max(LIKE, round(NEAREST * m))
    told = grades.astype(np.float64) + rng.random(grades.shape) * 1e-6  # equal grades in any order
    if alone:
        np.fill_diagonal(told, -1.0)
    nearest = np.argpartition(-told, near, axis=1)[:, :near]
    rows, columns = [], []
    for row in range(n):
        others = np.setdiff1d(np.arange(m), nearest[row])
        some = np.concatenate([rng.choice(nearest[row], LIKE, replace=False), rng.choice(others, ANY, replace=False)])
        some = some[some != row] if alone else some
        rows.append(np.full(len(some), row))
        columns.append(some)
    return np.concatenate(rows), np.concatenate(columns)


def _similarity(source: str, grade: Callable[[Diorama], Matrix], kind: str, direction: str) -> Callable[..., Similarity]:
    def load_pairs(split: str, size: str) -> Similarity:
        world = Diorama.make(split, size=size)
        grades = grade(world)
        rows, columns = drawn(grades, kind != "image-caption", world.seed)
        said = Judgements(source, rows, columns, grades[rows, columns], grades.shape, kind=kind)
        return Similarity(world.collection, said, direction)

    return load_pairs


DIORAMA_CXC = Benchmark(
    name="diorama/cxc",
    about="drawn scenes and captions: retrieval in four directions, by what is true of a scene and by what two of a kind share",
    load=load,
    metrics=("hit@1", "hit@5", "hit@10", "median-rank"),
    directions=("i2t", "t2i", "t2t", "i2i"),
    options=WORLD,
    licence="MIT",
    cite="parekh2021cxc",
)

DIORAMA_STS, DIORAMA_SIS, DIORAMA_SITS = (
    Benchmark(
        name=f"diorama/{source}",
        about=f"{about}, graded 0 to 5 by what they share: correlation with the grades",
        load=_similarity(source, grade, kind, direction),
        metrics=CORRELATION,
        directions=(direction,),
        options=WORLD,
        licence="MIT",
        cite="parekh2021cxc",
    )
    for source, about, grade, kind, direction in (
        ("sts", "two captions", lambda w: caption_similarity(w.captions, w.captions), "caption-caption", "t2t"),
        ("sis", "two drawn scenes", lambda w: scene_similarity(w.scenes, w.scenes), "image-image", "i2i"),
        ("sits", "a drawn scene and a caption", lambda w: scene_caption_similarity(w.scenes, w.captions), "image-caption", "i2t"),
    )
)
