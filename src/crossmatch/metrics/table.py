"""The metric table: every metric, what it needs, what is best, what chance is, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.catalog import Catalog
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.ranks import Ranks
from crossmatch.metrics import choice, cuts, pairs, ranking
from crossmatch.metrics.median import median_rank


@dataclass(frozen=True)
class Metric:
    """A pure function over arrays, declared once.

    `values` gives one number per query or trial. `aggregate` turns them into one: "mean", or "median", which for ranks
    under ties is the exact expected one. A correlation over rated pairs has no value per pair: "samples" are its values in
    samples of the pairs, of which mean and spread are told, and "whole" is one value over all pairs. `depth` says how far down a
    ranking must be known. A "total" adds up its `members` over all directions. `unit` "%" is shown x 100.
    """

    name: str
    about: str
    shape: str  # "retrieval", "cuts", "trials", "pairs" or "total"
    values: Callable[..., Any]
    best: float
    source: str
    label: str = ""
    unit: str = "%"
    aggregate: str = "mean"
    worst: float = 0.0
    needs: str = ""  # trials: "captions", "images" or both must offer a choice; "one side" alone; "2x2" exactly
    graded: bool = False  # counts every grade above zero, not only those of positives
    depth: Callable[[Ranks], IntArray] | None = None
    at: tuple[int, ...] = ()  # for families such as hit@k: the usual k
    members: tuple[str, ...] = ()  # of a total

    @property
    def higher_is_better(self) -> bool:
        return self.best > self.worst

    @property
    def scale(self) -> float:
        return 100.0 if self.unit == "%" else 1.0

    def summarise(self, given: Ranks | FloatArray, values: FloatArray | None = None) -> float:
        """One number for all queries or trials, as a fraction or a rank."""
        if self.aggregate == "median" and isinstance(given, Ranks):
            return median_rank(given)
        return float(np.mean(self.values(given) if values is None else values))

    def chance(self, given: Ranks | tuple[int, int]) -> float:
        """What scores without any information get in expectation: a constant scorer under ties, random ones in trials."""
        if isinstance(given, Ranks):
            return self.summarise(Ranks.level(given.count, given.gallery, given.gain))
        return choice.chance(self.name, given)

    def with_k(self, k: int) -> Metric:
        """One member of a family: hit@k with k = 5 is hit@5."""
        return replace(
            self,
            name=self.name.replace("@k", f"@{k}"),
            about=self.about.replace(" k", f" {k}"),
            label=self.label.replace("@k", f"@{k}"),
            values=partial(self.values, k=k),
            depth=(lambda ranks: np.minimum(k, ranks.gallery)) if self.shape == "retrieval" else None,
            at=(),
        )


def _to_r(ranks: Ranks) -> IntArray:
    return ranks.count


def _to_first(ranks: Ranks) -> IntArray:
    """Down to the best positive: known once it is listed, else the whole gallery is needed."""
    best = ranks.above[ranks.start[:-1]]
    return np.where(best < ranks.depth, np.minimum(best + 1, ranks.depth), ranks.gallery)


def _no_values(given: object) -> FloatArray:
    raise CrossmatchError("a total is the sum of its members: it has no values of its own.")


LARGEST_K = 10**9

FAMILIES = (
    Metric("hit@k", "any positive among the first k", "retrieval", ranking.hit_at, 1.0, "karpathy2015deep",
           label="R@k", at=(1, 5, 10)),
    Metric("recall@k", "share of the positives among the first k", "retrieval", ranking.recall_at, 1.0,
           "manning2008introduction, eq. 8.2", label="recall@k", at=(1, 5, 10)),
    Metric("precision@k", "share of the first k that is positive", "retrieval", ranking.precision_at, 1.0,
           "manning2008introduction, eq. 8.1", label="P@k", at=(1, 5, 10)),
    Metric("ndcg@k", "discounted gain of the first k over the ideal", "retrieval", ranking.ndcg_at, 1.0,
           "jarvelin2002cumulated; burges2005learning", label="nDCG@k", graded=True, at=(10,)),
    Metric("r-precision", "share of the first R that is positive", "retrieval", ranking.r_precision, 1.0,
           "chun2022eccv, eq. E.3", label="R-P", depth=_to_r),
    Metric("map@r", "mean precision over the first R places", "retrieval", ranking.map_at_r, 1.0,
           "chun2022eccv, sec. 4.1", label="mAP@R", depth=_to_r),
    Metric("mrr", "mean of one over the rank of the best positive", "retrieval", ranking.reciprocal_rank, 1.0,
           "voorhees1999trec", label="MRR", depth=_to_first),
    Metric("median-rank", "median rank of the best positive", "retrieval", ranking.first_rank, 1.0,
           "karpathy2015deep", label="Med r", unit="rank", aggregate="median", worst=np.inf, depth=_to_first),
    Metric("mean-rank", "mean rank of the best positive", "retrieval", ranking.first_rank, 1.0,
           "karpathy2015deep", label="Mean r", unit="rank", worst=np.inf, depth=_to_first),
    Metric("pmrp", "share of the first R that is a plausible match", "cuts", cuts.plausible_precision, 1.0,
           "chun2021pcme", label="PMRP"),
    Metric("pmrp@k", "share of the first min(R, k) that is a plausible match", "cuts", cuts.plausible_precision, 1.0,
           "chun2022eccv, sec. 4.1", label="PMRP@k", at=(50,)),
    Metric("rsum", "R@1, R@5 and R@10 of both directions, added up", "total", _no_values, 6.0, "chun2022eccv, tab. 4",
           label="RSUM", members=("hit@1", "hit@5", "hit@10")),
    Metric("bootstrap-spearman", "Spearman's r with people: mean and spread over samples of one pair per query", "pairs",
           pairs.of_samples, 1.0, "parekh2021cxc, sec. 4", label="Spearman (bootstrap)", aggregate="samples"),
    Metric("spearman", "Spearman's r with people over all pairs", "pairs", partial(pairs.of_all, coefficient="spearman"), 1.0,
           "parekh2021cxc, sec. 4", label="Spearman", aggregate="whole"),
    Metric("kendall", "Kendall's tau-b with people over all pairs", "pairs", partial(pairs.of_all, coefficient="kendall"), 1.0,
           "kendall1945treatment", label="Kendall tau-b", aggregate="whole"),
    Metric("pearson", "Pearson's r with people over all pairs", "pairs", partial(pairs.of_all, coefficient="pearson"), 1.0,
           "parekh2021cxc, sec. 4", label="Pearson", aggregate="whole"),
    Metric("accuracy", "the one choice is right: BISON's image, SugarCrepe's caption", "trials", choice.accuracy, 1.0,
           "hu2019bison, sec. 3.3; hsieh2023sugarcrepe", label="accuracy", needs="one side"),
    Metric("i2t", "every image strictly prefers its own caption", "trials", choice.i2t_choice, 1.0,
           "miranda2024bivlc, eq. 1", label="I2T", needs="captions"),
    Metric("t2i", "every caption strictly prefers its own image", "trials", choice.t2i_choice, 1.0,
           "miranda2024bivlc, eq. 2", label="T2I", needs="images"),
    Metric("group", "both directions are right", "trials", choice.group_choice, 1.0,
           "miranda2024bivlc, eq. 3", label="Group", needs="captions images"),
    Metric("ipos2t", "the positive image prefers its own caption", "trials", choice.ipos2t, 1.0,
           "miranda2024bivlc, tab. 3", label="Ipos2T", needs="2x2"),
    Metric("ineg2t", "the negative image prefers its own caption", "trials", choice.ineg2t, 1.0,
           "miranda2024bivlc, tab. 3", label="Ineg2T", needs="2x2"),
    Metric("tpos2i", "the positive caption prefers its own image", "trials", choice.tpos2i, 1.0,
           "miranda2024bivlc, tab. 3", label="Tpos2I", needs="2x2"),
    Metric("tneg2i", "the negative caption prefers its own image", "trials", choice.tneg2i, 1.0,
           "miranda2024bivlc, tab. 3", label="Tneg2I", needs="2x2"),
    Metric("text", "Winoground's text score: every image strictly prefers its own caption", "trials", choice.i2t_choice, 1.0,
           "thrush2022winoground, eq. 1", label="text", needs="captions"),
    Metric("image", "Winoground's image score: every caption strictly prefers its own image", "trials", choice.t2i_choice, 1.0,
           "thrush2022winoground, eq. 2", label="image", needs="images"),
)  # fmt: skip

METRICS: Catalog[Metric] = Catalog(
    "metric", {m.name: m for family in FAMILIES for m in ([family.with_k(k) for k in family.at] or [family])}
)


def metric(name: str) -> Metric:
    """A metric by name; families take any k.

    >>> metric("hit@7").about, metric("R@7").name
    ('any positive among the first 7', 'hit@7')
    >>> metric("map@rr")
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.WrongWords: there is no metric 'map@rr'. Did you mean 'map@r'? `crossmatch metrics` lists them all.
    """
    stem, at, k = name.partition("@")
    stem = "hit" if stem == "R" and at else stem  # as papers call it, and as tables show it
    family = next((f for f in FAMILIES if f.at and f.name == f"{stem}@k"), None)
    if at and family is not None and k.isdecimal():
        if not 1 <= int(k) <= LARGEST_K:
            raise WrongWords(f"{name:.40} has no meaning: k counts from one to a billion.")
        return family.with_k(int(k))
    return METRICS[name]
