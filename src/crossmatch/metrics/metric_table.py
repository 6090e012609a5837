"""The metric table: every metric with its data shape, best value, chance level and source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.name_lookup import Catalog
from crossmatch.metrics import forced_choice, retrieval
from crossmatch.metrics.correlation import correlation_with_ratings
from crossmatch.metrics.forced_choice_chance import expected_value
from crossmatch.metrics.median_rank import median_rank
from crossmatch.ranking.ranks import Ranks


@dataclass(frozen=True)
class Metric:
    """A pure function over arrays, declared once.

    Attributes:
        name: Name in results and on the command line.
        description: One line for tables.
        shape: Data shape: "retrieval", "plausible" (plausible matches), "trials", "pairs" (rated pairs) or "total".
        values: Function that returns one number per query or trial.
        best: Best value.
        source: Citation keys.
        label: Name in tables.
        unit: "%" is displayed x 100; "rank" as it is.
        aggregate: How values become one number: "mean"; "median" (of ranks, exact under ties); "samples" (mean and standard
            deviation over samples of rated pairs); "whole" (one value over all pairs).
        worst: Worst value.
        choices: For trials, where a choice is needed: "captions", "images", "captions images", "one side" (only one) or "2x2";
            empty if the metric applies to all trials.
        graded: Whether every grade above zero counts, not only positives.
        required_depth: How far down each ranking must be known.
        usual_k: For families such as hit@k, the usual values of k.
        members: For a total, the metrics that are summed over all directions.

    >>> from crossmatch import Ranks, metric
    >>> hit = metric("hit@3")
    >>> hit.summarise(Ranks.from_lists([[1, 4], [2], [5]]))      # two of three queries have a positive among the first 3
    0.6666666666666666
    """

    name: str
    description: str
    shape: str
    values: Callable[..., Any]
    best: float
    source: str
    label: str = ""
    unit: str = "%"
    aggregate: str = "mean"
    worst: float = 0.0
    choices: str = ""
    graded: bool = False
    required_depth: Callable[[Ranks], IntArray] | None = None
    usual_k: tuple[int, ...] = ()
    members: tuple[str, ...] = ()

    @property
    def higher_is_better(self) -> bool:
        return self.best > self.worst

    @property
    def scale(self) -> float:
        return 100.0 if self.unit == "%" else 1.0

    def summarise(self, data: Ranks | FloatArray, values: FloatArray | None = None) -> float:
        """One number for all queries or trials, as a fraction or a rank."""
        if self.aggregate == "median" and isinstance(data, Ranks):
            return median_rank(data)
        return float(np.mean(self.values(data) if values is None else values))

    def chance(self, data: Ranks | tuple[int, int]) -> float:
        """Expected value of scores without information: all candidates tied in rankings, random scores in trials."""
        if isinstance(data, Ranks):
            return self.summarise(Ranks.all_tied(data.positive_counts, data.gallery_size, data.gain))
        return expected_value("random", self.values, data).value

    def value_range(self, data: Any) -> tuple[float, float]:
        """Smallest and largest value that a query of these data can have.

        It depends on the numbers of positives (precision@10 of a query with one positive is at most 0.1) and of candidates.

        >>> ranks = Ranks.from_lists([[1], [2]], gallery=50)
        >>> [metric(name).value_range(ranks) for name in ("map@r", "precision@10", "mean-rank")]
        [(0.0, 1.0), (0.0, 0.1), (1.0, 50.0)]
        """
        if not isinstance(data, Ranks):
            return self.worst, self.best
        best = self.values(data.perfect)
        if self.higher_is_better:
            return self.worst, float(best.max())
        return float(best.min()), float(data.gallery_size.max()) if np.isinf(self.worst) else self.worst

    def with_k(self, k: int) -> Metric:
        """The member of a family for this k: hit@k with k = 5 is hit@5."""
        return replace(
            self,
            name=self.name.replace("@k", f"@{k}"),
            description=self.description.replace(" k", f" {k}"),
            label=self.label.replace("@k", f"@{k}"),
            values=partial(self.values, k=k),
            required_depth=(lambda ranks: np.minimum(k, ranks.gallery_size)) if self.shape == "retrieval" else None,
            usual_k=(),
        )


def _depth_r(ranks: Ranks) -> IntArray:
    return ranks.positive_counts


def _depth_of_best(ranks: Ranks) -> IntArray:
    """Depth of the best positive if it is listed, else the whole gallery."""
    best = ranks.above[ranks.start[:-1]]
    return np.where(best < ranks.depth, np.minimum(best + 1, ranks.depth), ranks.gallery_size)


def _no_values(data: object) -> FloatArray:
    raise CrossmatchError("A total is the sum of its members and has no values per query.")


MAX_K = 10**9


def _overall(coefficient: str) -> Callable[..., Any]:
    return partial(correlation_with_ratings.overall_correlation, coefficient=coefficient)


FAMILIES = (
    Metric("hit@k", "any positive among the first k", "retrieval", retrieval.hit_at_k, 1.0, "karpathy2015deep",
           label="R@k", usual_k=(1, 5, 10)),
    Metric("recall@k", "share of the positives among the first k", "retrieval", retrieval.recall_at_k, 1.0,
           "manning2008introduction, eq. 8.2", label="recall@k", usual_k=(1, 5, 10)),
    Metric("precision@k", "share of the first k that is positive", "retrieval", retrieval.precision_at_k, 1.0,
           "manning2008introduction, eq. 8.1", label="P@k", usual_k=(1, 5, 10)),
    Metric("ndcg@k", "discounted gain of the first k over the ideal", "retrieval", retrieval.ndcg_at_k, 1.0,
           "jarvelin2002cumulated; burges2005learning", label="nDCG@k", graded=True, usual_k=(10,)),
    Metric("r-precision", "share of the first R that is positive", "retrieval", retrieval.r_precision, 1.0,
           "chun2022eccv, eq. E.3", label="R-P", required_depth=_depth_r),
    Metric("map@r", "mean precision over the first R places", "retrieval", retrieval.map_at_r, 1.0,
           "chun2022eccv, sec. 4.1", label="mAP@R", required_depth=_depth_r),
    Metric("mrr", "mean of one over the rank of the best positive", "retrieval", retrieval.reciprocal_rank, 1.0,
           "voorhees1999trec", label="MRR", required_depth=_depth_of_best),
    Metric("median-rank", "median rank of the best positive", "retrieval", retrieval.first_rank, 1.0,
           "karpathy2015deep", label="Med r", unit="rank", aggregate="median", worst=np.inf, required_depth=_depth_of_best),
    Metric("mean-rank", "mean rank of the best positive", "retrieval", retrieval.first_rank, 1.0,
           "karpathy2015deep", label="Mean r", unit="rank", worst=np.inf, required_depth=_depth_of_best),
    Metric("pmrp", "share of the first R that is a plausible match", "plausible",
           retrieval.plausible_match_r_precision, 1.0, "chun2021pcme", label="PMRP"),
    Metric("pmrp@k", "share of the first min(R, k) that is a plausible match", "plausible",
           retrieval.plausible_match_r_precision, 1.0, "chun2022eccv, sec. 4.1", label="PMRP@k", usual_k=(50,)),
    Metric("rsum", "R@1, R@5 and R@10 of both directions, added up", "total", _no_values, 6.0, "chun2022eccv, tab. 4",
           label="RSUM", members=("hit@1", "hit@5", "hit@10")),
    Metric("bootstrap-spearman", "Spearman's r with people: mean and spread over samples of one pair per query", "pairs",
           correlation_with_ratings.sampled_spearman, 1.0, "parekh2021cxc, sec. 4", label="Spearman (bootstrap)", aggregate="samples"),
    Metric("spearman", "Spearman's r with people over all pairs", "pairs", _overall("spearman"), 1.0,
           "parekh2021cxc, sec. 4", label="Spearman", aggregate="whole"),
    Metric("kendall", "Kendall's tau-b with people over all pairs", "pairs", _overall("kendall"), 1.0,
           "kendall1945treatment", label="Kendall tau-b", aggregate="whole"),
    Metric("pearson", "Pearson's r with people over all pairs", "pairs", _overall("pearson"), 1.0,
           "parekh2021cxc, sec. 4", label="Pearson", aggregate="whole"),
    Metric("accuracy", "the one choice is right: BISON's image, SugarCrepe's caption", "trials", forced_choice.accuracy, 1.0,
           "hu2019bison, sec. 3.3; hsieh2023sugarcrepe", label="accuracy", choices="one side"),
    Metric("i2t", "every image strictly prefers its own caption", "trials", forced_choice.i2t_choice, 1.0,
           "miranda2024bivlc, eq. 1", label="I2T", choices="captions"),
    Metric("t2i", "every caption strictly prefers its own image", "trials", forced_choice.t2i_choice, 1.0,
           "miranda2024bivlc, eq. 2", label="T2I", choices="images"),
    Metric("group", "both directions are right", "trials", forced_choice.group_choice, 1.0,
           "miranda2024bivlc, eq. 3", label="Group", choices="captions images"),
    Metric("ipos2t", "the positive image prefers its own caption", "trials", forced_choice.ipos2t, 1.0,
           "miranda2024bivlc, tab. 3", label="Ipos2T", choices="2x2"),
    Metric("ineg2t", "the negative image prefers its own caption", "trials", forced_choice.ineg2t, 1.0,
           "miranda2024bivlc, tab. 3", label="Ineg2T", choices="2x2"),
    Metric("tpos2i", "the positive caption prefers its own image", "trials", forced_choice.tpos2i, 1.0,
           "miranda2024bivlc, tab. 3", label="Tpos2I", choices="2x2"),
    Metric("tneg2i", "the negative caption prefers its own image", "trials", forced_choice.tneg2i, 1.0,
           "miranda2024bivlc, tab. 3", label="Tneg2I", choices="2x2"),
    Metric("text", "Winoground's text score: every image strictly prefers its own caption", "trials", forced_choice.i2t_choice, 1.0,
           "thrush2022winoground, eq. 1", label="text", choices="captions"),
    Metric("image", "Winoground's image score: every caption strictly prefers its own image", "trials",
           forced_choice.t2i_choice, 1.0,
           "thrush2022winoground, eq. 2", label="image", choices="images"),
)  # fmt: skip

METRICS: Catalog[Metric] = Catalog(
    "metric", {m.name: m for family in FAMILIES for m in ([family.with_k(k) for k in family.usual_k] or [family])}
)


def metric(name: str) -> Metric:
    """Look up a metric by name; families accept any k.

    Args:
        name: Name of a metric, such as `map@r`, or of a member of a family, such as `hit@7`.

    Raises:
        UsageError: The name is unknown, or k is out of range.

    >>> metric("hit@7").description, metric("R@7").name
    ('any positive among the first 7', 'hit@7')
    >>> metric("map@rr")
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.UsageError: there is no metric 'map@rr'. Did you mean 'map@r'? `crossmatch list metrics` lists them all.
    """
    stem, at, k = name.partition("@")
    stem = "hit" if stem == "R" and at else stem  # the name in papers and tables
    family = next((f for f in FAMILIES if f.usual_k and f.name == f"{stem}@k"), None)
    if at and family is not None and k.isdecimal():
        if not 1 <= int(k) <= MAX_K:
            raise UsageError(f"The k of {name:.40} must be between 1 and {MAX_K:,}.")
        return family.with_k(int(k))
    return METRICS[name]
