"""One set of candidates under several metrics, with intervals; and two sets on the same images compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossmatch.captions.corpus import Corpus
from crossmatch.captions.scores import replicates
from crossmatch.captions.table import CaptionResult, score
from crossmatch.core.arrays import FloatArray
from crossmatch.core.errors import CrossmatchError
from crossmatch.metrics.significance import SAMPLES, Difference, Draws, compare_clusters, holm, interval


@dataclass(frozen=True, eq=False)
class Judged:
    """Candidates called `name` and what each metric says of them; `drawn` holds its corpus value in the bootstrap's replicates."""

    name: str
    corpus: Corpus
    results: Mapping[str, CaptionResult]
    drawn: Mapping[str, FloatArray]

    def __repr__(self) -> str:
        return f"Judged({self.name}: {', '.join(f'{name} {one.scores.value:.4f}' for name, one in self.results.items())})"

    def __getitem__(self, metric: str) -> CaptionResult:
        return self.results[metric]

    def interval(self, metric: str) -> tuple[float, float]:
        """The 95 % interval of a corpus value: images are drawn with replacement, document frequencies stay as they are.

        One image tells nothing of others: NaN. Where all captions have the best value, or all the worst, the interval has no width:
        it says how much the images differ, and they do not.
        """
        return interval(self.drawn[metric]) if len(self.corpus) > 1 else (math.nan, math.nan)

    def as_json(self) -> dict[str, dict[str, object]]:
        """Value, interval and signature of each metric."""
        found: dict[str, dict[str, object]] = {}
        for name, result in self.results.items():
            low, high = (None if math.isnan(end) else round(end, 6) for end in self.interval(name))
            found[name] = {"value": round(result.scores.value, 6), "low": low, "high": high, "signature": result.signature}
        return found


def judge(name: str, corpus: Corpus, metrics: str | Iterable[str], samples: int = SAMPLES, seed: int = 0, **given: Any) -> Judged:
    """Score candidates by these metrics; what else the metrics need is `given` as to `table.score`.

    >>> corpus = Corpus.of({"7": "a dog runs", "8": "a cat"}, {"7": ["a dog is running"], "8": ["the cat sleeps", "a cat"]})
    >>> judge("mine", corpus, ["rouge-l"]).as_json()["rouge-l"]["value"]
    0.778539
    """
    results = score(corpus, metrics, **given)
    draws = Draws.of(np.argsort(np.argsort(corpus.ids)), samples, seed)  # by id: the order of a file is of no account
    return Judged(name, corpus, results, {name: replicates(result.scores, draws) for name, result in results.items()})


@dataclass(frozen=True)
class Compared:
    """How much higher the second candidates score than the first by one metric; `p` is corrected for all that were compared."""

    first: str
    second: str
    metric: str
    difference: Difference
    p: float
    floor: float = 0.0  # the smallest p that so many replicates and tests can tell

    def as_json(self) -> dict[str, object]:
        """Everything, with both ends of the interval."""
        told = {"value": self.difference.value, "low": self.difference.low, "high": self.difference.high, "p": self.p}
        return {"first": self.first, "second": self.second, "metric": self.metric, **{k: round(v, 6) for k, v in told.items()}}


def compare(judged: Sequence[Judged]) -> list[Compared]:
    """Each but the first against the first, by each metric: paired bootstrap over images, Holm's correction over all of them."""
    first, *others = judged
    for other in others:
        if not np.array_equal(first.corpus.ids, other.corpus.ids):
            raise CrossmatchError(
                f"{first.name} and {other.name} caption different images ({len(first.corpus):,} and {len(other.corpus):,}), or in "
                "another order; only the same images can be compared. Score those that all have: --partial"
            )
    found = [(other, metric, _apart(first, other, metric)) for other in others for metric in first.results]
    corrected = holm([difference.p for _, _, difference in found])
    return [
        Compared(first.name, other.name, metric, difference, p, min(1.0, len(found) * difference.floor))
        for (other, metric, difference), p in zip(found, corrected, strict=True)
    ]


def _apart(first: Judged, other: Judged, metric: str) -> Difference:
    value = _value(other, metric) - _value(first, metric)
    return compare_clusters(first.drawn[metric], other.drawn[metric], value, len(first.corpus))


def _value(judged: Judged, metric: str) -> float:
    return judged.results[metric].scores.value
