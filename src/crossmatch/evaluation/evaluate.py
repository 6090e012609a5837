"""The evaluation path: model and benchmarks to scores, counts, metrics and results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from crossmatch.data.benchmark import Benchmark
from crossmatch.data.errors import UsageError
from crossmatch.data.io.user_code_errors import report_user_errors
from crossmatch.data.loaded_data import LoadedData, data_hash
from crossmatch.data.result import Result
from crossmatch.data.signature import system_signature
from crossmatch.evaluation.data_shapes import TaskEvidence, shape_of
from crossmatch.evaluation.input_checks import count_truncated_captions, note_animated_images
from crossmatch.evaluation.options import EvaluationOptions
from crossmatch.evaluation.plan import Task, group_tasks, load_task, plan_tasks
from crossmatch.evaluation.summarise import note_few_clusters, summarise
from crossmatch.models import make_model
from crossmatch.models.abilities import list_abilities
from crossmatch.models.likelihood_scoring import NORMALISATIONS, LikelihoodScorer, as_scorer


def evaluate(
    model: object,
    benchmark: str | Benchmark,
    options: EvaluationOptions | None = None,
    *,
    data: LoadedData | None = None,
    **overrides: Any,
) -> Result:
    """Evaluate a model on a benchmark.

    Args:
        model: A name (`random`, `precomputed:FILE`, …), an object with an ability (`embed_images` and `embed_texts` or one of
            them, `score(images, texts)`, `log_likelihood(images, texts)`), or a callable `score(images, texts)`.
        benchmark: The name of a task, or a declaration.
        options: Options of the evaluation.
        data: The data of the benchmark, if it is loaded already.
        overrides: Fields of `EvaluationOptions` (`ties`, `samples`, `limit`, …) and options of the benchmark (`split`, `size`, …).

    Returns:
        The result, with a row for each metric and part.

    >>> result = evaluate("oracle", "diorama/retrieval", size="tiny", samples=100)
    >>> result["t2i/truth/map@r"].value
    100.0
    """
    options, benchmark_options = EvaluationOptions.merge(options, overrides)
    task = benchmark if data is None else load_task(benchmark, benchmark_options, data=data)
    return evaluate_all(model, [task], options, **benchmark_options)[0]


def evaluate_all(
    model: object,
    tasks: Sequence[str | Benchmark | Task],
    options: EvaluationOptions | None = None,
    **overrides: Any,
) -> list[Result]:
    """Evaluate a model on several benchmarks. Tasks on one collection share one embedding pass and one sweep over the scores.

    Args:
        model: See `evaluate`.
        tasks: Names of tasks, declarations, or tasks that `evaluation.plan.load_task` loaded before.
        options: Options of the evaluation.
        overrides: Fields of `EvaluationOptions`, and options of the benchmarks that are not loaded yet.

    Returns:
        One result for each task, in the same order.

    >>> results = evaluate_all("random", ["diorama/bison", "diorama/sts"], size="tiny", samples=100)
    >>> [result.task for result in results]
    ['diorama/bison', 'diorama/sts']
    """
    options, benchmark_options = EvaluationOptions.merge(options, overrides)
    system = _open_system(model, options)
    loaded = [
        task if isinstance(task, Task) else load_task(task, benchmark_options, skip_bad=options.skip_bad) for task in tasks
    ]  # fmt: skip
    planned = plan_tasks(loaded, options)
    allow_extra = options.limit is not None or any(task.skipped for task in planned)
    results: dict[int, Result] = {}
    for group in group_tasks(system.model, planned):
        start = time.perf_counter()
        group_shape = shape_of(planned[group[0]].data)
        with report_user_errors():
            evidence = group_shape.collect_evidence(system.model, [planned[n] for n in group], options, allow_extra)
            bare_results = [_bare_result(system, planned[n], e, options) for n, e in zip(group, evidence, strict=True)]
        seconds = round((time.perf_counter() - start) / len(group), 3)
        for n, task_evidence, bare in zip(group, evidence, bare_results, strict=True):
            results[n] = _summarise_task(replace(bare, seconds={"scoring": seconds}), planned[n], task_evidence.data, options)
    return [results[n] for n in range(len(planned))]


@dataclass(frozen=True)
class _System:
    """The model under evaluation, its name in results, and its half of the signature."""

    model: object
    name: str
    signature: str


def _open_system(model: object, options: EvaluationOptions) -> _System:
    """Create a model from its name, and make a captioner a scorer."""
    default_name = model if isinstance(model, str) else str(getattr(model, "__name__", type(model).__name__))
    with report_user_errors():
        opened = make_model(model) if isinstance(model, str) else model
    has_other_abilities = not set(list_abilities(opened)) <= {"log-likelihood", "caption"}
    scorer = as_scorer(opened, options.likelihood, has_other_abilities=has_other_abilities, name=default_name)
    is_default = options.likelihood in (None, NORMALISATIONS[0])
    name = options.name or default_name + ("" if is_default else f"+likelihood={options.likelihood}")
    # Without a signature of its own, a captioner is identified by its name and the use of its likelihoods.
    likelihood = f"|likelihood:{scorer.kind}" if isinstance(scorer, LikelihoodScorer) else ""
    return _System(scorer, name, system_signature(f"{name}{likelihood}", getattr(scorer, "signature", None)))


def _bare_result(system: _System, task: Task, evidence: TaskEvidence, options: EvaluationOptions) -> Result:
    """Build a result with evidence and notes, but without rows."""
    shape = shape_of(task.data)
    truncation_notes, counts = count_truncated_captions(system.model, evidence.data)
    limit_note = (
        (f"partial: {options.limit:,} of the images or trials, not comparable with complete results",) if options.limit else ()
    )
    notes = (
        *limit_note, *task.notes, *evidence.notes, *truncation_notes, *note_animated_images(system.model, evidence.data),
        *note_few_clusters(evidence.parts),
    )  # fmt: skip
    changes = dict(task.options)
    if shape.item_count(evidence.data) < shape.item_count(task.data):
        changes["partial"] = str(shape.item_count(evidence.data))
    if task.skipped:
        changes["skipped"] = str(len(task.skipped))
    return Result(
        model=system.name,
        task=task.benchmark.name,
        system=system.signature,
        options=changes | options.protocol_changes(),
        rows=(),
        parts=evidence.parts,
        seconds={},
        samples=options.samples,
        seed=options.seed,
        ties=options.ties,
        notes=notes,
        skipped=task.skipped,
        counts=counts,
    )


def _summarise_task(bare: Result, task: Task, data: LoadedData, options: EvaluationOptions) -> Result:
    """Compute the metrics of a task. A metric that the user named and that does not apply is an error."""
    start = time.perf_counter()
    facts = {"data": data_hash(data, ordered=True)} | ({"limit": options.limit} if options.limit else {})
    result = summarise(bare, task.metrics, facts | shape_of(data).protocol_facts(data))
    computed = {row.metric for row in result.rows}
    missing = [m.name for m in task.metrics if m.name not in computed]
    if options.metrics and missing:
        raise UsageError(f"{', '.join(missing)} cannot be computed on {bare.task}. See the shapes in `crossmatch list metrics`.")
    return replace(result, seconds={**result.seconds, "metrics": round(time.perf_counter() - start, 3)})
