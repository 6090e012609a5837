"""The options of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from crossmatch.data.errors import UsageError
from crossmatch.metrics.cluster_bootstrap import DEFAULT_SAMPLES
from crossmatch.models.cache import Cache
from crossmatch.models.cache.cross_encoder_scores import BATCH
from crossmatch.ranking.ranks import TIE_POLICIES


@dataclass(frozen=True)
class EvaluationOptions:
    """The options of `evaluate` and `evaluate_all`.

    Args:
        name: Name of the model in results; by default its name or its class.
        ties: Tie policy: `expected`, `pessimistic` or `optimistic`.
        samples: Samples of metrics that draw rated pairs (`bootstrap-spearman`).
        seed: Seed of these samples, and of the images or trials that `limit` draws.
        metrics: Names of metrics, instead of those of the benchmark.
        limit: Evaluate a random sample of this many images or trials.
        partial: Accept precomputed answers to a part of the trials.
        likelihood: How a captioner scores: `per-token` or `plain`.
        cache: Reuses embeddings and scores of earlier evaluations.
        skip_bad: Leave out images that cannot be opened and empty captions, and report them.
        batch: Items per call of the model.
        workers: Threads that open images; 0 opens them in the thread of the model. By default one per spare core.

    Raises:
        UsageError: An option is out of range.

    >>> EvaluationOptions(samples=100, ties="optimistic").protocol_changes()
    {'ties': 'optimistic', 'samples': '100'}
    """

    name: str | None = None
    ties: str = "expected"
    samples: int = DEFAULT_SAMPLES
    seed: int = 0
    metrics: tuple[str, ...] | None = None
    limit: int | None = None
    partial: bool = False
    likelihood: str | None = None
    cache: Cache | None = field(default=None, repr=False)
    skip_bad: bool = False
    batch: int = BATCH
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.ties not in TIE_POLICIES:
            raise UsageError(f"ties must be one of {', '.join(TIE_POLICIES)} (got {self.ties!r}).")
        for option, value, least in (
            ("samples", self.samples, 2),
            ("seed", self.seed, 0),
            ("limit", self.limit, 1),
            ("batch", self.batch, 1),
            ("workers", self.workers, 0),
        ):
            if value is not None and value < least:
                raise UsageError(f"{option} must be at least {least} (got {value}).")
        if self.name is not None and self.name != self.name.encode(errors="replace").decode():
            raise UsageError(f"the name {self.name!r} is not valid Unicode. Choose another name.")

    @classmethod
    def merge(cls, options: EvaluationOptions | None, overrides: Mapping[str, Any]) -> tuple[EvaluationOptions, dict[str, str]]:
        """Apply overrides to options, and return the overrides that are options of the benchmark instead.

        >>> EvaluationOptions.merge(None, {"seed": 5, "size": "tiny"})[1]
        {'size': 'tiny'}
        """
        own_fields = {field.name for field in fields(cls)}
        merged = replace(options or cls(), **{key: value for key, value in overrides.items() if key in own_fields})
        return merged, {key: value for key, value in overrides.items() if key not in own_fields}

    def protocol_changes(self) -> dict[str, str]:
        """Return the options of the protocol that differ from their defaults, as they appear in names of result files."""
        values = {
            "ties": self.ties,
            "samples": self.samples,
            "seed": self.seed,
            "metrics": ",".join(self.metrics or ()) or None,
            "limit": self.limit,
        }
        return {key: str(value) for key, value in values.items() if value != getattr(EvaluationOptions, key)}
