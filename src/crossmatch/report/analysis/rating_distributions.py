"""How people rated pairs: distributions by sampling method, positives per item, and disagreement (parekh2021cxc, sec. 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from crossmatch.data.arrays import BoolArray, IntArray
from crossmatch.data.judgements import KINDS
from crossmatch.data.rated_pairs import QUERIES, PairRatings
from crossmatch.report.tables import EMPTY_CELL, Table

ALL = "all"
# What the sampling methods of Crisscrossed Captions mean. Other methods keep their own name.
METHOD_LABELS = {
    "c2c_isim": "captions of similar images",
    "c2c_cocaption": "captions of one image",
    "i2i_csim": "images with similar captions",
    "c2i_intrasim": "selected by ratings",
    "c2i_original": "original links",
}


@dataclass(frozen=True)
class RatingSummary:
    """The ratings of one source by one sampling method, or by all of them."""

    source: str
    method: str
    pairs: int
    mean: float
    median: float
    positive: int
    deviation: float | None  # mean standard deviation of the ratings of a pair; None if it is not known

    @property
    def label(self) -> str:
        return METHOD_LABELS.get(self.method, self.method)


@dataclass(frozen=True, eq=False)
class PositivesPerItem:
    """How many positive partners each rated item of one side has."""

    source: str
    side: str  # `image` or `caption`
    counts: IntArray

    @property
    def share_without(self) -> float:
        """Share of the items without a positive."""
        return float(np.mean(self.counts == 0))


def methods_of(ratings: PairRatings) -> dict[str, BoolArray]:
    """The pairs of each sampling method, all pairs first; a single method is not listed separately."""
    names = sorted({name for name in ratings.methods.tolist() if name})
    pairs = {ALL: np.ones(len(ratings), dtype=bool)}
    return pairs | {name: ratings.methods == name for name in names} if len(names) > 1 else pairs


def summarise_ratings(ratings: PairRatings) -> list[RatingSummary]:
    """Number, mean, median and positives of the ratings by each sampling method.

    >>> ratings = PairRatings("sts", "caption-caption", [0, 0, 1], [1, 2, 2], [4.0, 1.0, 2.0], [0.5, 0.3, 0.1],
    ...                       ["c2c_cocaption", "c2c_isim", "c2c_isim"], (3, 3), 3.0)
    >>> [(row.label, row.pairs, row.mean, row.positive) for row in summarise_ratings(ratings)]
    [('all', 3, 2.33..., 1), ('captions of one image', 1, 4.0, 1), ('captions of similar images', 2, 1.5, 0)]
    """
    summaries = []
    for method, selected in methods_of(ratings).items():
        grades, deviations = ratings.grades[selected], ratings.deviations[selected]
        finite_deviations = deviations[np.isfinite(deviations)]
        summaries.append(
            RatingSummary(
                ratings.source, method, len(grades), float(grades.mean()), float(np.median(grades)),
                int(ratings.is_positive[selected].sum()), float(finite_deviations.mean()) if len(finite_deviations) else None,
            )
        )  # fmt: skip
    return summaries


def count_positives(ratings: PairRatings) -> list[PositivesPerItem]:
    """The number of positive partners of each rated item, for each side of the pairs.

    A pair of two captions or two images that was rated in both orders counts once, by the mean of the two ratings.

    >>> ratings = PairRatings("sis", "image-image", [0, 1, 0], [1, 0, 2], [4.0, 2.0, 1.0], [0, 0, 0], ["", "", ""], (4, 4), 2.5)
    >>> count_positives(ratings)[0].counts                 # images 0, 1 and 2; image 3 is not rated
    array([1, 1, 0])
    """
    first_side, second_side = KINDS[ratings.kind][0]
    if first_side != second_side:
        positive = ratings.is_positive
        return [
            PositivesPerItem(ratings.source, side, _counts_of_rated(items, items[positive]))
            for side, items in ((first_side, ratings.first), (second_side, ratings.second))
        ]
    low, high = np.minimum(ratings.first, ratings.second), np.maximum(ratings.first, ratings.second)
    key, member = np.unique(low * ratings.shape[1] + high, return_inverse=True)
    mean = np.bincount(member.ravel(), ratings.grades) / np.bincount(member.ravel())
    ends = np.stack(np.divmod(key, ratings.shape[1]))
    return [PositivesPerItem(ratings.source, first_side, _counts_of_rated(ends.ravel(), ends[:, mean >= ratings.positive].ravel()))]


def _counts_of_rated(rated: IntArray, positive: IntArray) -> IntArray:
    """How often each rated item is in a positive pair."""
    items = np.unique(rated)
    return np.asarray(np.bincount(np.searchsorted(items, positive), minlength=len(items)), dtype=np.int64)


def describe_positives(ratings: PairRatings) -> str:
    """One sentence: the share of positive pairs, of all pairs and by sampling method.

    >>> ratings = PairRatings("sts", "caption-caption", [0, 0, 1], [1, 2, 2], [4.0, 1.0, 2.0], [0.5, 0.3, 0.1],
    ...                       ["c2c_cocaption", "c2c_isim", "c2c_isim"], (3, 3), 3.0)
    >>> describe_positives(ratings)
    'sts: 33 % of 3 pairs are positive (rated 3 or more); captions of one image 100 %, captions of similar images 0 %.'
    """
    overall, *by_method = summarise_ratings(ratings)
    parts = ", ".join(f"{row.label} {100 * row.positive / row.pairs:.0f} %" for row in by_method)
    share = f"{100 * overall.positive / overall.pairs:.0f} % of {overall.pairs:,} pairs"
    return f"{ratings.source}: {share} are positive (rated {ratings.positive:g} or more){f'; {parts}' if parts else ''}."


def sort_by_kind(ratings: Mapping[str, PairRatings]) -> dict[str, PairRatings]:
    """Pairs of captions first, then of images, then of both, as in the paper."""
    order = list(QUERIES)
    return dict(sorted(ratings.items(), key=lambda entry: order.index(entry[1].kind)))


def rating_tables(ratings: Mapping[str, PairRatings]) -> list[Table]:
    """A table of the ratings by sampling method, and a table of positives per item."""
    return [_summary_table(list(ratings.values())), _positives_table(list(ratings.values()))]


def _summary_table(ratings: Sequence[PairRatings]) -> Table:
    rows = []
    for source in ratings:
        for n, row in enumerate(summarise_ratings(source)):
            deviation = EMPTY_CELL if row.deviation is None else f"{row.deviation:.2f}"
            share = f"{100 * row.positive / row.pairs:.1f}"
            name = source.source if n == 0 else ""
            rows.append((name, row.label, f"{row.pairs:,}", f"{row.mean:.2f}", f"{row.median:.2f}", f"{row.positive:,}", share,
                         deviation))  # fmt: skip
    thresholds = ", ".join(f"{source.source} {source.positive:g}" for source in ratings)
    header = ("", "sampling method", "pairs", "mean", "median", "positive", "%", "deviation")
    notes = (f"positive: lowest rating {thresholds}; deviation: mean standard deviation of the ratings of a pair",)
    return Table("Ratings by sampling method", (header,), tuple(rows), 2, notes)


def _positives_table(ratings: Sequence[PairRatings]) -> Table:
    rows = tuple(
        (
            source.source if n == 0 else "", item.side, f"{len(item.counts):,}", f"{item.counts.mean():.2f}",
            f"{np.median(item.counts):.0f}", f"{item.counts.max()}", f"{100 * item.share_without:.1f}",
        )
        for source in ratings
        for n, item in enumerate(count_positives(source))
    )  # fmt: skip
    header = ("", "item", "rated", "mean", "median", "most", "none, %")
    return Table("Positive partners per item", (header,), rows, 2)


def ratings_json(ratings: Mapping[str, PairRatings]) -> dict[str, Any]:
    """The numbers of both tables."""
    return {
        source: {
            "kind": pairs.kind,
            "positive_from": pairs.positive,
            "methods": [{key: value for key, value in asdict(row).items() if key != "source"} for row in summarise_ratings(pairs)],
            "positives_per_item": {
                item.side: {"items": len(item.counts), "counts": np.bincount(item.counts).tolist()}
                for item in count_positives(pairs)
            },
        }
        for source, pairs in ratings.items()
    }
