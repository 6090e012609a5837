"""Control evaluations of forced choices: gate scorers, whose results are known in theory, and altered queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from crossmatch.benchmarks import resolve_task
from crossmatch.benchmarks.altered_queries import alter_trials
from crossmatch.data.errors import UsageError
from crossmatch.data.result import Result
from crossmatch.data.trials import Trials
from crossmatch.evaluation.evaluate import evaluate_all
from crossmatch.evaluation.plan import Task, load_task
from crossmatch.models.baselines.gate_scorers import GATE_SCORERS
from crossmatch.text.perturbations import ALTERATIONS


def evaluate_gate(tasks: Sequence[Task], **options: Any) -> list[Result]:
    """Evaluate the gate scorers on all tasks that have trials.

    `options` are those of `evaluate_all`.

    >>> [result.model for result in evaluate_gate([load_task("diorama/sugarcrepe", {"size": "tiny"})])][:2]
    ['gate:constant', 'gate:random']
    """
    # A blind scorer draws one score for equal captions, so trials with equal captions are not independent.
    clustered = [
        replace(task, data=replace(task.data, cluster_by=("images", "captions"))) for task in tasks if isinstance(task.data, Trials)
    ]  # fmt: skip
    if not clustered:
        raise UsageError("--gate needs a task with forced choices, and none of these tasks has any. Omit --gate.")
    return [
        result for scorer in GATE_SCORERS for result in evaluate_all(scorer, clustered, name=f"gate:{scorer.name}", **options)
    ]  # fmt: skip


def load_with_alterations(name: str, options: Mapping[str, str], skip_bad: bool = False) -> list[Task]:
    """Load a task, and add a task for each alteration of its query; all share the images.

    The task must have one caption per trial. One with another caption than the default is loaded alone, because it is a variant of
    the query itself.

    >>> [task.name for task in load_with_alterations("diorama/bison", {"size": "tiny"})][:2]
    ['diorama/bison', 'diorama/bison+alter=negation']
    """
    benchmark, own_options = resolve_task(name, options)
    if "alter" not in benchmark.options or "alter" in own_options:
        raise UsageError(f"{name} has no single query to alter. Use bison, diorama/bison or trials with one caption.")
    task = replace(load_task(benchmark, own_options, skip_bad=skip_bad), name=name)
    if "caption" in task.options:
        return [task]
    if not isinstance(task.data, Trials):
        raise UsageError(f"{name} has no trials. Only trials can be altered.")
    altered = [
        replace(
            task,
            name=f"{name}+alter={alteration}",
            data=alter_trials(task.data, alteration),
            options={**task.options, "alter": alteration},
        )
        for alteration in ALTERATIONS
    ]
    return [task, *altered]
