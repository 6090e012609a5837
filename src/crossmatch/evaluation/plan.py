"""The plan of an evaluation: tasks with their data and metrics, and groups of tasks that share one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from crossmatch.benchmarks import resolve_task
from crossmatch.data.benchmark import Benchmark
from crossmatch.data.errors import SkippedItem, UsageError
from crossmatch.data.loaded_data import LoadedData, limit_data
from crossmatch.evaluation.data_shapes import shape_of
from crossmatch.evaluation.input_checks import drop_unreadable_images
from crossmatch.evaluation.options import EvaluationOptions
from crossmatch.metrics.metric_table import Metric, metric


@dataclass(frozen=True, eq=False)
class Task:
    """A benchmark with its data."""

    name: str  # as the user named it, with options: `diorama/bison+alter=negation`
    benchmark: Benchmark
    data: LoadedData
    options: Mapping[str, str]  # those that change the data and differ from their defaults
    metrics: tuple[Metric, ...] = ()  # set by `plan_tasks`, as the next two
    skipped: tuple[SkippedItem, ...] = ()  # items that were left out because they cannot be used
    notes: tuple[str, ...] = ()  # about the skipped items


def load_task(
    task: str | Benchmark, options: Mapping[str, str] | None = None, *, data: LoadedData | None = None, skip_bad: bool = False
) -> Task:
    """Resolve the name of a task, and load its data if they are not given.

    Options in the name override `options`.

    >>> task = load_task("diorama/sts+size=tiny")
    >>> task.benchmark.name, task.options
    ('diorama/sts', {'size': 'tiny'})
    """
    benchmark, own_options = resolve_task(task, options or {})
    changed = {
        key: value
        for key, value in own_options.items()
        if value != benchmark.options.get(key) and key not in benchmark.check_options
    }
    loaded = benchmark.load(skip_bad, **own_options) if data is None else data
    return Task(task if isinstance(task, str) else task.name, benchmark, loaded, changed)


def plan_tasks(tasks: Sequence[Task], options: EvaluationOptions) -> list[Task]:
    """Resolve the names of metrics, and leave out what the options exclude."""
    _require_distinct(tasks)
    planned = []
    for task in tasks:
        metrics = {m.name: m for m in map(metric, options.metrics or task.benchmark.metrics)}
        data = task.data if options.limit is None else limit_data(task.data, options.limit, options.seed)
        planned.append(replace(task, data=data, metrics=tuple(metrics.values())))
    if not options.skip_bad:
        return planned
    checked = drop_unreadable_images([task.data for task in planned], options.workers)
    return [replace(task, data=c.data, skipped=c.skipped, notes=c.notes) for task, c in zip(planned, checked, strict=True)]


def group_tasks(model: object, tasks: Sequence[Task]) -> list[list[int]]:
    """Group the positions of tasks on the same items, which share one pass of the model."""
    groups: dict[object, list[int]] = {}
    for n, task in enumerate(tasks):
        key = None if getattr(model, "by_task", False) else shape_of(task.data).group_key(model, task.data)
        groups.setdefault(n if key is None else key, []).append(n)
    return list(groups.values())


def _require_distinct(tasks: Sequence[Task]) -> None:
    """Raise an error for two tasks whose results would have the same file name."""
    keys = set()
    for task in tasks:
        key = (task.benchmark.name, *sorted(task.options.items()))
        if key in keys:
            raise UsageError(
                f"the task {task.benchmark.name} occurs twice, so one result would overwrite the other. Name it once, or "
                "rename one of the files or folders."
            )
        keys.add(key)
