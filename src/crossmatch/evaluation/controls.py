"""Control evaluations of forced choices: gate scorers, whose results are known in theory, and altered queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from crossmatch.benchmarks import resolve_task
from crossmatch.benchmarks.altered_captions import alter_trials
from crossmatch.data.benchmark import Benchmark, LoadedData
from crossmatch.data.errors import UsageError
from crossmatch.data.result import Result
from crossmatch.data.trials import Trials
from crossmatch.evaluation.evaluate import evaluate_all
from crossmatch.models.baselines.gate_scorers import GATE_SCORERS
from crossmatch.text.perturbations import ALTERATIONS


def evaluate_gate(benchmarks: Sequence[str | Benchmark], *, data: Sequence[LoadedData], **options: Any) -> list[Result]:
    """Evaluate the gate scorers on all tasks that have trials.

    `options` are those of `evaluate_all`.

    >>> from crossmatch.benchmarks import load_benchmark_data
    >>> trials = load_benchmark_data("diorama/sugarcrepe", size="tiny")
    >>> [result.model for result in evaluate_gate(["diorama/sugarcrepe"], data=[trials], size="tiny")][:2]
    ['gate:constant', 'gate:random']
    """
    with_trials = [(name, trials) for name, trials in zip(benchmarks, data, strict=True) if isinstance(trials, Trials)]
    if not with_trials:
        raise UsageError("--gate needs a task with forced choices, and none of these tasks has any. Omit --gate.")
    names = [name for name, _ in with_trials]
    # A blind scorer draws one score for equal captions, so trials with equal captions are not independent.
    clustered = [replace(trials, cluster_by=("images", "captions")) for _, trials in with_trials]
    return [
        result
        for scorer in GATE_SCORERS
        for result in evaluate_all(scorer, names, name=f"gate:{scorer.name}", data=clustered, **options)
    ]  # fmt: skip


def load_with_alterations(name: str, options: Mapping[str, str], skip_bad: bool = False) -> list[tuple[str, LoadedData]]:
    """Load a task, and add a task for each alteration of its query; all share the images.

    The task must have one caption per trial. Returns pairs of a task name and its data.

    >>> [name for name, _ in load_with_alterations("diorama/bison", {"size": "tiny"})][:2]
    ['diorama/bison', 'diorama/bison+alter=negation']
    """
    benchmark, own_options = resolve_task(name, options)
    if "alter" not in benchmark.options or "alter" in own_options:
        raise UsageError(f"{name} has no single query to alter. Use bison, diorama/bison or trials with one caption.")
    data = benchmark.load(skip_bad, **own_options)
    if not isinstance(data, Trials):
        raise UsageError(f"{name} has no trials. Only trials can be altered.")
    return [(name, data), *((f"{name}+alter={alteration}", alter_trials(data, alteration)) for alteration in ALTERATIONS)]
