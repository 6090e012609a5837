"""Whether hard negatives can be told from captions without seeing a picture: a logistic classifier on pairs, cross-validated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from crossmatch.build.logistic import parts, weights
from crossmatch.core.arrays import FloatArray
from crossmatch.core.errors import CrossmatchError
from crossmatch.metrics.proportion import Share, share_of
from crossmatch.models.ngram import tokens

FOLDS = 5
SELDOM = 3  # a word that is seen in fewer pairs tells nothing that holds elsewhere


@dataclass(frozen=True, eq=False)
class Pairs:
    """Captions and their negatives, to learn from or to judge: gaps of scores, the image of each, and texts where words count."""

    gaps: FloatArray
    clusters: Sequence[str]
    captions: Sequence[str] = ()
    negatives: Sequence[str] = ()

    def __post_init__(self) -> None:
        found = np.asarray(self.gaps, dtype=np.float64)
        if found.ndim != 2 or len(found) != len(self.clusters) or not np.isfinite(found).all():
            raise CrossmatchError(
                f"gaps have shape {found.shape} for {len(self.clusters):,} pairs; finite numbers, one row for each, were expected."
            )
        object.__setattr__(self, "gaps", found)


def blind_accuracy(judged: Pairs, learnt: Pairs | None = None, folds: int = FOLDS) -> Share:
    """How often a classifier that sees texts alone finds the caption of a pair, with an interval; a half is chance.

        P(the first is the caption | x) = 1 / (1 + e^{-w·x}),      x = f(first) - f(second)

    f are the scores whose gaps are given, their odd cubic terms (g³, g²h, gh², h³: a cut that balances signs alone would not fool
    those), and, where texts are given, the counts of their words. There is no constant: the order of a pair says nothing. Pairs of
    one cluster (an image) are in one part; each part is judged by what the others taught, a tie counts half, and the interval takes
    pairs of a cluster as alike (`metrics.proportion.share`).

    `learnt` are other pairs to learn from, those of other clusters in each case. Pairs that were cut to be balanced cannot well be
    their own lesson: what is left out of a sum of nought tips the rest the other way, and the classifier is wrong more often than
    right. What was learnt before the cut has no such twist, nor has what was cut in as many parts (`refine`).

    >>> random = np.random.default_rng(0)
    >>> found = blind_accuracy(Pairs(random.normal(1.0, 1.0, (400, 2)), [str(n) for n in range(400)]))
    >>> found.low > 0.5
    True
    """
    clusters, lesson = judged.clusters, judged if learnt is None else learnt
    if len({*clusters, *lesson.clusters}) < 2:
        raise CrossmatchError(
            "all pairs belong to one image, so that nothing is left to judge by what was learnt. Give more images."
        )
    taught, asked = _features(lesson, judged)
    member, other = parts(clusters, folds), parts(lesson.clusters, folds)
    right = np.full(len(judged.gaps), 0.5)
    for fold in range(folds):
        mine, theirs = np.flatnonzero(member == fold), np.flatnonzero(other != fold)
        if len(mine) and len(theirs):
            right[mine] = 0.5 + 0.5 * np.sign(np.asarray(asked[mine] @ weights(taught[theirs])).ravel())
    numbers = np.unique(np.asarray(clusters, dtype=np.str_), return_inverse=True)[1].ravel()
    return share_of(right, np.asarray(numbers, dtype=np.int64))


def _features(lesson: Pairs, judged: Pairs) -> tuple[Any, Any]:
    """What the classifier sees of the pairs to learn from and of those to judge, in the same columns and on the same scale."""
    cubed = [_odd(pairs.gaps) for pairs in (lesson, judged)]
    scale = np.sqrt((cubed[0] ** 2).mean(axis=0)) if len(cubed[0]) else np.ones(cubed[0].shape[1])
    scale[scale == 0] = 1.0
    out = [sparse.csr_matrix(features / scale) for features in cubed]
    if not judged.captions:
        return out[0], out[1]
    known = _vocabulary(lesson)
    words = [word_differences(pairs.captions, pairs.negatives, known) for pairs in (lesson, judged)]
    taught, asked = (sparse.hstack([gap, bag], format="csr") for gap, bag in zip(out, words, strict=True))
    return taught, asked


def _odd(gaps: FloatArray) -> FloatArray:
    """The gaps and their products of three: what changes sign with them."""
    columns = [*gaps.T]
    cubes = [
        gaps[:, i] * gaps[:, j] * gaps[:, k]
        for i in range(gaps.shape[1])
        for j in range(i, gaps.shape[1])
        for k in range(j, gaps.shape[1])
    ]
    return np.stack([*columns, *cubes], axis=1)


def word_differences(captions: Sequence[str], negatives: Sequence[str], known: Mapping[str, int] | None = None) -> Any:
    """How often each word stands in a caption more than in its negative: pairs x words, by default all that differ anywhere.

    >>> word_differences(["A cat sits.", "A dog."], ["A dog sits.", "A dog."]).toarray().tolist()      # cat, dog
    [[1.0, -1.0], [0.0, 0.0]]
    """
    every = list(_differences(captions, negatives))
    column = {word: n for n, word in enumerate(sorted({word for one in every for word in one}))} if known is None else known
    found = [(row, column[word], count) for row, one in enumerate(every) for word, count in one.items() if word in column]
    rows, columns, values = zip(*found, strict=True) if found else ((), (), ())
    return sparse.csr_matrix((np.asarray(values, dtype=np.float64), (rows, columns)), shape=(len(every), max(1, len(column))))


def _differences(captions: Sequence[str], negatives: Sequence[str]) -> Iterator[dict[str, int]]:
    for caption, negative in zip(captions, negatives, strict=True):
        found = Counter(tokens(caption))
        found.subtract(tokens(negative))
        yield {word: count for word, count in found.items() if count}


def _vocabulary(lesson: Pairs) -> dict[str, int]:
    """The words that differ in at least three pairs, numbered."""
    often = Counter(word for difference in _differences(lesson.captions, lesson.negatives) for word in difference)
    return {word: n for n, word in enumerate(sorted(word for word, count in often.items() if count >= SELDOM))}
