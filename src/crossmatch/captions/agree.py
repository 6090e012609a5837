"""How well caption metrics agree with people: correlation with ratings, and accuracy on preferences."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from crossmatch.captions.candidates import Candidates, preferred, rated, scored
from crossmatch.captions.levels import answered, settled
from crossmatch.captions.table import CaptionResult
from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.ratings import Preferences, Ratings
from crossmatch.core.signature import protocol
from crossmatch.metrics.concordance import COEFFICIENTS, correlations
from crossmatch.metrics.dependent import FEWEST, williams
from crossmatch.metrics.jackknife import LeftOut, jackknife
from crossmatch.metrics.proportion import SIGNS, paired, share_of
from crossmatch.metrics.significance import SAMPLES, Difference, holm

COUNTED = ("each", "mean")
TIES = {"wrong": 0.0, "half": 0.5, "right": 1.0}  # what a pair with equal scores counts
EVERY = "mean"  # the name of the mean over groups
JACKKNIFE = "Student's t from the jackknife over images"


@dataclass(frozen=True, eq=False)
class Gaps:
    """The first metric of each pair less the second: value, interval, and p corrected by Holm for all pairs."""

    value: FloatArray
    low: FloatArray
    high: FloatArray
    p: FloatArray
    test: str  # what gave p, in words
    floor: float = 0.0  # the smallest p, before Holm's correction, that so many images can tell


@dataclass(frozen=True, eq=False)
class RatingAgreement:
    """Correlations of metrics with ratings; the axes of all arrays are metrics, coefficients, pairs of metrics and levels.

    `gaps` come from the jackknife over images, and hold for every coefficient. `t` and `t_p` are Williams' test, which is made for
    Pearson's r alone and takes captions as independent: it is what papers quote, and is too sure where captions share an image.
    Its r are `williams_r`, with the mean rating of each caption, and not those in `values` unless ratings are counted so.
    """

    said: Ratings  # the candidates that were compared
    rating: str
    metrics: tuple[str, ...]
    coefficients: tuple[str, ...]
    values: FloatArray  # (metrics, coefficients), as the next two
    low: FloatArray
    high: FloatArray
    pairs: IntArray  # (pairs, 2), positions of metrics
    gaps: Gaps  # of arrays (pairs, coefficients)
    williams_r: FloatArray  # (metrics,): Pearson's r with the mean rating; NaN where all captions have the same one
    t: FloatArray  # (pairs,)
    t_p: FloatArray  # (pairs,), corrected by Holm
    freedom: int
    scores: FloatArray  # (metrics, candidates)
    levels: FloatArray  # the different ratings
    level_counts: IntArray  # (levels,), of single ratings
    level_means: FloatArray  # (metrics, levels): the mean score of captions with this rating
    excluded: int
    left_out: int
    signatures: tuple[str, ...]  # of the metrics
    signature: str

    def as_json(self) -> dict[str, Any]:
        """Plain numbers for `--json`."""
        return {
            "signature": self.signature,
            "candidates": len(self.said),
            "ratings": len(self.said.values),
            "images": len(set(self.said.images.tolist())),
            "excluded": self.excluded,
            "left_out": self.left_out,
            "unreferenced": self.said.unreferenced,
            "test": self.gaps.test,
            "metrics": {
                metric: {name: _told(*numbers) for name, *numbers in zip(self.coefficients, *rows, strict=True)}
                | {"signature": signature}
                for metric, signature, *rows in zip(self.metrics, self.signatures, self.values, self.low, self.high, strict=True)
            },
            "differences": [
                {
                    "first": self.metrics[a],
                    "second": self.metrics[b],
                    "williams": {
                        "r": [_number(self.williams_r[a]), _number(self.williams_r[b])],
                        "t": _number(self.t[n]),
                        "freedom": self.freedom,
                        "p": float(self.t_p[n]),
                    },
                    **{name: _gap_told(self.gaps, (n, c)) for c, name in enumerate(self.coefficients)},
                }
                for n, (a, b) in enumerate(self.pairs.tolist())
            ],
        }


@dataclass(frozen=True, eq=False)
class PreferenceAgreement:
    """Shares of pairs in which a metric prefers what people prefer; the last group is the mean over all of them."""

    said: Preferences
    ties: str
    metrics: tuple[str, ...]
    groups: tuple[str, ...]
    values: FloatArray  # (metrics, groups), as the next three
    low: FloatArray
    high: FloatArray
    tied: IntArray  # pairs with equal scores
    counts: IntArray  # (groups,), of pairs
    pairs: IntArray  # (pairs of metrics, 2)
    gaps: Gaps  # of arrays (pairs of metrics,), in the mean over groups
    scores: FloatArray  # (metrics, pairs, 2)
    signatures: tuple[str, ...]
    signature: str

    def as_json(self) -> dict[str, Any]:
        """Plain numbers for `--json`."""
        return {
            "signature": self.signature,
            "pairs": len(self.said),
            "test": self.gaps.test,
            "metrics": {
                metric: {
                    group: _told(*numbers) | {"ties": int(tied)}
                    for group, *numbers, tied in zip(self.groups, *rows, strict=True)
                }
                | {"signature": signature}
                for metric, signature, *rows in zip(
                    self.metrics, self.signatures, self.values, self.low, self.high, self.tied, strict=True
                )
            },
            "differences": [
                {"first": self.metrics[a], "second": self.metrics[b], EVERY: _gap_told(self.gaps, n)}
                for n, (a, b) in enumerate(self.pairs.tolist())
            ],
        }  # fmt: skip


def agree(
    said: Ratings | Preferences,
    names: Iterable[str],
    *,
    rating: str = "each",
    ties: str = "wrong",
    documents: str = "images",
    samples: int = SAMPLES,
    seed: int = 0,
    images: Callable[[str], Any] | None = None,
    **given: Any,
) -> RatingAgreement | PreferenceAgreement:
    """How well the metrics of these names agree with what people said; `correlated` or `accurate`, by the kind of study."""
    if isinstance(said, Ratings):
        return correlated(said, names, rating=rating, documents=documents, samples=samples, seed=seed, images=images, **given)
    return accurate(said, names, ties=ties, documents=documents, images=images, **given)


def correlated(
    said: Ratings,
    names: Iterable[str],
    *,
    rating: str = "each",
    documents: str = "images",
    samples: int = SAMPLES,
    seed: int = 0,
    images: Callable[[str], Any] | None = None,
    **given: Any,
) -> RatingAgreement:
    """Kendall's tau-b and tau-c, Spearman's and Pearson's r of each metric with the ratings, caption by caption.

    With `rating="each"` every single rating is an observation, so that a caption with three ratings counts three times, as in the
    literature; with `"mean"` a caption is one observation with its mean rating, which takes people's disagreement out and gives
    higher numbers. Intervals, and the p of the difference of two metrics, are from the jackknife over images with Student's t: each
    image is left out in turn, or, of more images than `samples`, as many groups of them, dealt by the seed. Of a single image, or
    where the captions without some image have no correlation, the interval is all there is. In simulations of 3 to 40 images it
    held the truth in 91 % of cases or more, where percentiles of the bootstrap did in 57 % (tau-c, 3 images) to 95 %. Williams'
    test is on the mean rating of each caption in either case, since it asks for independent observations. Scores that differ by
    rounding alone are equal.
    Source: anderson2016spice; jiang2019tiger, sec. 4.3 and 4.4; graham2014testing; kott2001delete.

    >>> captions = [("7", "a dog runs", [4, 3]), ("7", "two cats", [1, 1]), ("8", "a red car", [4, 4]), ("8", "a dog", [2, 1])]
    >>> said = Ratings.gathered("mine", captions, {"7": ["the dog runs", "a dog"], "8": ["a car", "the red car"]}, scale=(1, 4))
    >>> found = correlated(said, ["bleu-1", "rouge-l"])
    >>> [round(float(tau), 3) for tau in found.values[:, 0]], found.level_counts
    ([0.858, 0.858], array([3, 1, 1, 3]))
    """
    if rating not in COUNTED:
        raise WrongWords(f"ratings are counted as {rating!r}; there are {' and '.join(COUNTED)}. Choose one.")
    if samples < 2:
        raise WrongWords(f"{samples} groups of images give no interval; take at least 2 ({SAMPLES} is usual).")
    said, candidates = rated(said)
    results = scored(candidates, names, documents, images, **given)
    metrics, coefficients = tuple(results), COEFFICIENTS
    scores = _settled(results)
    for metric, values in zip(metrics, scores, strict=True):
        _require_spread(metric, values)
    each = said.of if rating == "each" else np.arange(len(said))
    human = said.values if rating == "each" else said.mean
    _require_spread("people", human)
    cluster = np.unique(said.images, return_inverse=True)[1].ravel()
    left = LeftOut.of(cluster[each], samples, seed)
    found = [correlations(human, values[each], left, coefficients) for values in scores]
    values, without = (np.stack([one[part] for one in found]) for part in (0, 1))
    spans = [[jackknife(float(v), w) for v, w in zip(*row, strict=True)] for row in zip(values, without, strict=True)]
    low, high = (np.array([[getattr(span, end) for span in row] for row in spans]) for end in ("low", "high"))
    pairs = np.array(list(combinations(range(len(metrics)), 2)), dtype=np.int64).reshape(-1, 2)
    r, t, t_p, freedom = _williams(said.mean, scores, pairs)
    levels, level = np.unique(said.values, return_inverse=True)
    counts = np.bincount(level.ravel())
    means = np.stack([np.bincount(level.ravel(), row[said.of]) / counts for row in scores])
    facts = {"data": said.digest, "ratings": rating, "equal": said.equal, "df": _documents(documents, given)}
    return RatingAgreement(
        said, rating, metrics, coefficients, values, low, high, pairs, _tau_gaps(values, without, pairs), r,
        t, t_p, freedom, scores, levels, counts, means, candidates.excluded, candidates.left_out,
        _signatures(results), protocol("agreement", said.name, "", **facts, interval=f"jackknife/images/{left.groups}", seed=seed),
    )  # fmt: skip


def accurate(
    said: Preferences,
    names: Iterable[str],
    *,
    ties: str = "wrong",
    documents: str = "images",
    images: Callable[[str], Any] | None = None,
    **given: Any,
) -> PreferenceAgreement:
    """The share of pairs in which a metric scores higher what people preferred, in each group, and the mean over groups.

    A pair with equal scores is `wrong` (jiang2019tiger, sec. 4.3), `right` (anderson2016spice) or `half` right, which is what a
    coin would get. Scores that differ by rounding alone are equal. Intervals are Wilson's, with pairs of one image taken together.
    Two metrics are compared by McNemar's exact test where there is one group, no two pairs share an image and no pair is half
    right; else the signs of all differences of an image are turned around together (`gaps.test` says which).

    >>> pairs = [("a dog runs", "a cat"), ("a cat", "a red car")]
    >>> said = Preferences("mine", ["0", "1"], ["7", "8"], pairs, [["the dog runs"], ["a car"]], [0, 0], ["HI", "MM"])
    >>> found = accurate(said, ["bleu-1"])
    >>> found.groups, found.values, found.tied
    (('HI', 'MM', 'mean'), array([[1. , 0. , 0.5]]), array([[0, 0, 0]]))
    """
    if ties not in TIES:
        raise WrongWords(f"pairs with equal scores are {ties!r}; there are {', '.join(TIES)}. Choose one.")
    found: Candidates = preferred(said)
    results = scored(found, names, documents, images, **given)
    metrics = tuple(results)
    scores = np.stack([result.scores.values.reshape(-1, 2) for result in results.values()])
    right, level = answered(scores, said.preferred, TIES[ties])
    cluster = np.unique(said.images, return_inverse=True)[1].ravel()
    groups, group = np.unique(said.groups, return_inverse=True)
    parts = [np.flatnonzero(group.ravel() == g) for g in range(len(groups))]
    shares = [[*(share_of(row[part], cluster[part]) for part in parts), share_of(row, cluster, group.ravel())] for row in right]
    numbers = np.array([[(share.value, share.low, share.high) for share in row] for row in shares])
    tied = np.array([[*(int(row[part].sum()) for part in parts), int(row.sum())] for row in level])
    pairs = np.array(list(combinations(range(len(metrics)), 2)), dtype=np.int64).reshape(-1, 2)
    apart = [paired(right[b], right[a], cluster, group.ravel()) for a, b in pairs]
    facts = {"data": said.digest, "ties": ties, "df": _documents(documents, given)}
    return PreferenceAgreement(
        said, ties, metrics, (*groups.tolist(), EVERY), numbers[..., 0], numbers[..., 1], numbers[..., 2], tied,
        np.array([*(len(part) for part in parts), len(said)]), pairs, _gaps(apart),
        scores, _signatures(results), protocol("accuracy", said.name, "", **facts, interval="wilson/images"),
    )  # fmt: skip


def _settled(results: dict[str, CaptionResult]) -> FloatArray:
    """The scores of each metric (metrics, candidates), those that differ by rounding alone made equal."""
    return np.stack([settled(result.scores.values) for result in results.values()])


def _require_spread(whose: str, values: FloatArray) -> None:
    if len(values) and values.min() == values.max():
        raise CrossmatchError(
            f"all {len(values):,} scores by {whose} are {values[0]:g}; scores that never differ have no correlation with anything. "
            "Leave them out, or give more captions."
        )


def _tau_gaps(values: FloatArray, without: FloatArray, pairs: IntArray) -> Gaps:
    """By coefficient: both metrics without the same images."""
    by_coefficient = [
        _gaps([jackknife(float(values[a, c] - values[b, c]), without[a, c] - without[b, c], 2.0) for a, b in pairs], JACKKNIFE)
        for c in range(values.shape[1])
    ]
    value, low, high, p = (
        np.stack([getattr(one, name) for one in by_coefficient], axis=1) for name in ("value", "low", "high", "p")
    )
    return Gaps(value, low, high, p, JACKKNIFE, max(one.floor for one in by_coefficient))


def _gaps(apart: list[Difference], test: str = "") -> Gaps:
    """With the test over clusters where there is one: only that does not take the pairs of an image as independent."""
    value, low, high = np.array([(one.value, one.low, one.high) for one in apart]).reshape(-1, 3).T
    p = holm([one.p if one.clustered is None else one.clustered for one in apart])
    made = dict.fromkeys(one.test if one.clustered is None else SIGNS for one in apart)
    return Gaps(value, low, high, np.array(p), test or "; ".join(made), max((one.floor for one in apart), default=0.0))


def _williams(mean: FloatArray, scores: FloatArray, pairs: IntArray) -> tuple[FloatArray, FloatArray, FloatArray, int]:
    """Pearson's r of each metric with the mean rating of each caption; t and Holm's p for each pair of metrics.

    So few captions tell nothing: t = 0 and p = 1.
    """
    n = len(mean)
    if mean.min() == mean.max():
        return np.full(len(scores), np.nan), np.zeros(len(pairs)), np.ones(len(pairs)), max(0, n - 3)
    r = np.clip(np.corrcoef(np.vstack([mean, scores])), -1.0, 1.0)
    if n < FEWEST:
        return r[0, 1:], np.zeros(len(pairs)), np.ones(len(pairs)), max(0, n - 3)
    found = [williams(float(r[0, 1 + a]), float(r[0, 1 + b]), float(r[1 + a, 1 + b]), n) for a, b in pairs]
    return r[0, 1:], np.array([one.t for one in found]), np.array(holm([one.p for one in found])), n - 3


def _documents(documents: str, given: dict[str, Any]) -> str:
    return documents if given.get("frequencies") is None else f"{given['frequencies'].digest}/{given['frequencies'].images}"


def _signatures(results: dict[str, CaptionResult]) -> tuple[str, ...]:
    return tuple(result.signature for result in results.values())


def _gap_told(gaps: Gaps, at: int | tuple[int, int]) -> dict[str, float]:
    return _told(float(gaps.value[at]), float(gaps.low[at]), float(gaps.high[at])) | {"p": float(gaps.p[at])}


def _told(value: float, low: float, high: float) -> dict[str, float]:
    return {"value": round(float(value), 6), "low": round(float(low), 6), "high": round(float(high), 6)}


def _number(value: float) -> float | None:
    """Rounded; JSON has no infinity and no NaN."""
    return round(float(value), 6) if np.isfinite(value) else None
