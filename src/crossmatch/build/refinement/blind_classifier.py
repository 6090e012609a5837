"""A blind classifier: whether hard negatives can be told from captions without seeing the image.

It is a logistic regression without intercept on pairs, cross-validated over images.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from scipy import optimize, sparse, special

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError
from crossmatch.metrics.proportions import Proportion, clustered_proportion
from crossmatch.models.baselines.ngram_language_model import tokenize

FOLDS = 5
MIN_WORD_PAIRS = 3  # a word that differs in fewer pairs does not generalise
PENALTY = 1.0  # on the squared weights


@dataclass(frozen=True, eq=False)
class BlindPairs:
    """Captions and their negatives as a blind classifier sees them."""

    gaps: FloatArray  # score of the caption minus score of its negative, pairs x scorers
    clusters: Sequence[str]  # image of each pair
    captions: Sequence[str] = ()  # empty if words are not used, as are the negatives
    negatives: Sequence[str] = ()

    def __post_init__(self) -> None:
        gaps = np.asarray(self.gaps, dtype=np.float64)
        if gaps.ndim != 2 or len(gaps) != len(self.clusters) or not np.isfinite(gaps).all():
            raise CrossmatchError(
                f"Expected one row of finite gaps for each of {len(self.clusters):,} pairs, got shape {gaps.shape}."
            )
        object.__setattr__(self, "gaps", gaps)


def blind_accuracy(judged: BlindPairs, training: BlindPairs | None = None, folds: int = FOLDS) -> Proportion:
    """How often a classifier that sees only texts finds the caption of a pair; chance is one half.

        P(the first text is the caption | x) = 1 / (1 + e^{-w·x}),      x = f(first) - f(second)

    f are the scores whose gaps are given, their odd cubic terms (g³, g²h, gh², h³, which a balance of signs alone does not fool),
    and, if texts are given, word counts. There is no intercept, because the order of a pair carries no information. Pairs of one
    cluster are in one fold; each fold is judged by a model fitted on the others. A tie counts one half, and the interval accounts
    for clusters.

    Pairs that were balanced cannot train their own classifier well: leaving pairs out of a balanced sum tips the rest to the other
    side, and the accuracy falls below one half. Pairs from before the balancing, or parts that were balanced separately (`refine`),
    do not have this problem.

    >>> random = np.random.default_rng(0)
    >>> accuracy = blind_accuracy(BlindPairs(random.normal(1.0, 1.0, (400, 2)), [str(n) for n in range(400)]))
    >>> accuracy.low > 0.5
    True
    """
    training = judged if training is None else training
    if len({*judged.clusters, *training.clusters}) < 2:
        raise CrossmatchError("All pairs belong to one image; cross-validation needs at least two. Add pairs of more images.")
    train_features, features = _features(training, judged)
    train_fold, fold_of = assign_folds(training.clusters, folds), assign_folds(judged.clusters, folds)
    correct = np.full(len(judged.gaps), 0.5)
    for fold in range(folds):
        test, train = np.flatnonzero(fold_of == fold), np.flatnonzero(train_fold != fold)
        if len(test) and len(train):
            correct[test] = 0.5 + 0.5 * np.sign(np.asarray(features[test] @ fit_logistic(train_features[train])).ravel())
    numbers = np.unique(np.asarray(judged.clusters, dtype=np.str_), return_inverse=True)[1].ravel()
    return clustered_proportion(correct, np.asarray(numbers, dtype=np.int64))


def assign_folds(groups: Sequence[str], folds: int) -> IntArray:
    """Fold of each group, by a hash of its name, so that it does not depend on order.

    >>> assign_folds(["a", "b", "a"], 5)[[0, 2]].tolist() == [int(assign_folds(["a"], 5)[0])] * 2
    True
    """
    fold = {name: int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") % folds for name in set(groups)}
    return np.asarray([fold[name] for name in groups], dtype=np.int64)


def fit_logistic(features: Any) -> FloatArray:
    """Weights of a logistic regression in which every row is positive: the minimum of Σ log(1 + e^{-w·x}) + λ/2 |w|².

    >>> bool(fit_logistic(np.array([[1.0, 0.0], [1.0, 0.1]]))[0] > 0)
    True
    """

    def loss(w: FloatArray) -> tuple[float, FloatArray]:
        logits = np.asarray(features @ w).ravel()
        value = float(np.logaddexp(0.0, -logits).sum() + PENALTY / 2 * (w @ w))
        gradient = np.asarray(features.T @ -special.expit(-logits)).ravel() + PENALTY * w
        return value, gradient

    fit = optimize.minimize(loss, np.zeros(features.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return np.asarray(fit.x, dtype=np.float64)


def _features(training: BlindPairs, judged: BlindPairs) -> tuple[Any, Any]:
    """Features of both sets of pairs, in the same columns and on the same scale."""
    cubic = [_odd_terms(pairs.gaps) for pairs in (training, judged)]
    scale = np.sqrt((cubic[0] ** 2).mean(axis=0)) if len(cubic[0]) else np.ones(cubic[0].shape[1])
    scale[scale == 0] = 1.0
    of_scores = [sparse.csr_matrix(terms / scale) for terms in cubic]
    if not judged.captions:
        return of_scores[0], of_scores[1]
    vocabulary = _vocabulary(training)
    of_words = [word_differences(pairs.captions, pairs.negatives, vocabulary) for pairs in (training, judged)]
    train_features, features = (sparse.hstack(parts, format="csr") for parts in zip(of_scores, of_words, strict=True))
    return train_features, features


def _odd_terms(gaps: FloatArray) -> FloatArray:
    """The gaps and all their products of three, which change sign with the gaps."""
    cubes = [gaps[:, i] * gaps[:, j] * gaps[:, k] for i, j, k in combinations_with_replacement(range(gaps.shape[1]), 3)]
    return np.stack([*gaps.T, *cubes], axis=1)


def word_differences(captions: Sequence[str], negatives: Sequence[str], vocabulary: Mapping[str, int] | None = None) -> Any:
    """Count of each word in a caption minus its count in the negative, as a sparse matrix, pairs x words.

    By default the vocabulary has all words that differ in some pair.

    >>> word_differences(["A cat sits.", "A dog."], ["A dog sits.", "A dog."]).toarray().tolist()      # cat, dog
    [[1.0, -1.0], [0.0, 0.0]]
    """
    differences = list(_count_differences(captions, negatives))
    if vocabulary is None:
        vocabulary = {word: n for n, word in enumerate(sorted({word for counts in differences for word in counts}))}
    entries = [
        (row, vocabulary[word], count)
        for row, counts in enumerate(differences)
        for word, count in counts.items()
        if word in vocabulary
    ]
    rows, columns, values = zip(*entries, strict=True) if entries else ((), (), ())
    shape = (len(differences), max(1, len(vocabulary)))
    return sparse.csr_matrix((np.asarray(values, dtype=np.float64), (rows, columns)), shape=shape)


def _count_differences(captions: Sequence[str], negatives: Sequence[str]) -> Iterator[dict[str, int]]:
    for caption, negative in zip(captions, negatives, strict=True):
        counts = Counter(tokenize(caption))
        counts.subtract(tokenize(negative))
        yield {word: count for word, count in counts.items() if count}


def _vocabulary(training: BlindPairs) -> dict[str, int]:
    """Words that differ in at least three pairs, numbered."""
    pairs = Counter(word for counts in _count_differences(training.captions, training.negatives) for word in counts)
    return {word: n for n, word in enumerate(sorted(word for word, count in pairs.items() if count >= MIN_WORD_PAIRS))}
