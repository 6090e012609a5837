"""The plan of an evaluation: tasks with data and metrics resolved once, and groups of tasks that share one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from crossmatch.benchmarks import resolve_task
from crossmatch.data.benchmark import Benchmark, LoadedData, limit_data
from crossmatch.data.errors import UsageError
from crossmatch.data.skipped_items import SkippedItem
from crossmatch.evaluation.input_checks import drop_unreadable_images
from crossmatch.evaluation.options import EvaluationOptions
from crossmatch.evaluation.shapes import shape_of
from crossmatch.metrics.metric_table import Metric, metric


@dataclass(frozen=True, eq=False)
class Task:
    """A benchmark with its data."""

    benchmark: Benchmark
    data: LoadedData
    options: Mapping[str, str]  # those that change the data and differ from their defaults
    metrics: tuple[Metric, ...]
    skipped: tuple[SkippedItem, ...] = ()  # items that were left out because they cannot be used
    notes: tuple[str, ...] = ()  # about the skipped items


def plan_tasks(
    benchmarks: Sequence[str | Benchmark],
    benchmark_options: Mapping[str, str],
    options: EvaluationOptions,
    data: Sequence[LoadedData] | None,
) -> list[Task]:
    """Resolve the names of tasks and metrics, and load the data that is not given."""
    tasks = []
    for n, name in enumerate(benchmarks):
        benchmark, own_options = resolve_task(name, benchmark_options)
        loaded = benchmark.load(options.skip_bad, **own_options) if data is None else data[n]
        limited = loaded if options.limit is None else limit_data(loaded, options.limit, options.seed)
        metrics = {m.name: m for m in map(metric, options.metrics or benchmark.metrics)}
        changed = {
            key: value
            for key, value in own_options.items()
            if value != benchmark.options.get(key) and key not in benchmark.check_options
        }
        tasks.append(Task(benchmark, limited, changed, tuple(metrics.values())))
    _require_distinct(tasks)
    if not options.skip_bad:
        return tasks
    checked = drop_unreadable_images([task.data for task in tasks], options.workers)
    return [replace(task, data=c.data, skipped=c.skipped, notes=c.notes) for task, c in zip(tasks, checked, strict=True)]


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
