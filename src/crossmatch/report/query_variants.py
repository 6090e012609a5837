"""Results on the same trials with another query: an altered one (hu2019bison, fig. 9 and 15) or another caption (fig. 14)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crossmatch.data.arrays import IntArray
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.result import Result, ResultPart, shorten_model_name
from crossmatch.data.trial_outcomes import Outcomes
from crossmatch.metrics.forced_choice import accuracy
from crossmatch.metrics.proportions import Proportion, clustered_proportion
from crossmatch.report.tables import EMPTY_CELL, Table, format_share, task_title
from crossmatch.report.trust_gate_table import is_gate_result
from crossmatch.text.perturbations import ALTERATIONS

ALTER, CAPTION = "alter", "caption"
ALTERED_NOTE = re.compile(r"([\d,]+) of ([\d,]+) captions could be altered")
DEFAULT_QUERY = {ALTER: "none", CAPTION: "chosen"}


@dataclass(frozen=True, eq=False)
class QueryVariant:
    """A result with another query, and the same model's result with the default query; `name` is the value of the option."""

    result: Result
    base: Result
    name: str


def is_query_variant(result: Result) -> bool:
    """Whether the query of a result is altered or another caption."""
    return ALTER in result.options or CAPTION in result.options


def main_results(results: Sequence[Result]) -> list[Result]:
    """The results with tables of their own: all except gate scorers, and except variants whose base is also there."""
    variants = {id(v.result) for option in DEFAULT_QUERY for v in find_variants(results, option)}
    return [r for r in results if not is_gate_result(r) and id(r) not in variants] or list(results)


def find_variants(results: Sequence[Result], option: str) -> list[QueryVariant]:
    """All results of models, not of gate scorers, that differ from another one only in this option."""
    variants = []
    for result in (r for r in results if not is_gate_result(r)):
        other_options = {key: value for key, value in result.options.items() if key != option}
        bases = [r for r in results if (r.model, r.task, dict(r.options)) == (result.model, result.task, other_options)]
        if option in result.options and bases:
            variants.append(QueryVariant(result, bases[0], result.options[option]))
    return variants


def predicted_images(part: ResultPart) -> IntArray:
    """The predicted image of each trial with one caption, -1 for a tie. Without saved scores: 0 if correct, otherwise -1.

    >>> part = ResultPart(np.array(["a", "b"]), np.arange(2), Outcomes.from_scores(np.array([[[1.0, 3.0]], [[2.0, 2.0]]])))
    >>> predicted_images(part)
    array([ 1, -1])
    """
    outcomes = part.evidence
    if not isinstance(outcomes, Outcomes) or outcomes.shape[0] != 1:
        raise CrossmatchError("Predictions need trials with one caption. Use a result on bison or diorama/bison.")
    if outcomes.scores is None:
        return np.where(accuracy(outcomes) > 0, 0, -1)
    scores = outcomes.scores[:, 0, :]
    best = scores.argmax(axis=1)
    return np.where((scores == scores.max(axis=1, keepdims=True)).sum(axis=1) > 1, -1, best)


def changed_share(variant: QueryVariant) -> Proportion:
    """The share of predictions that the alteration changed, from 0 to 1."""
    base, altered = variant.base.parts[""], variant.result.parts[""]
    if not np.array_equal(base.ids, altered.ids):
        raise CrossmatchError(
            f"{variant.result.model} was run on different trials: {len(base.ids):,} without alteration, {len(altered.ids):,} with "
            f"{variant.name}. Run both again on the same trials."
        )
    return clustered_proportion(predicted_images(base) != predicted_images(altered), base.clusters)


def alteration_tables(results: Sequence[Result]) -> list[tuple[Table, list[QueryVariant]]]:
    """A table for each task with the share of changed predictions: a row for each alteration, two columns for each model.

    A caption that cannot be altered changes nothing, so the share among altered trials is larger than that among all trials.
    """
    tables = []
    for task, variants in _variants_by_task(results, ALTER):
        models = list(dict.fromkeys(v.base.model for v in variants))
        rows = []
        for name in (name for name in ALTERATIONS if any(v.name == name for v in variants)):
            of_models = [next((v for v in variants if (v.name, v.base.model) == (name, model)), None) for model in models]
            share = altered_share(next(v for v in of_models if v is not None))
            cells = [cell for variant in of_models for cell in _changed_cells(variant, share)]
            rows.append((name, EMPTY_CELL if share is None else f"{100 * share:.1f}", *cells))
        names = [shorten_model_name(model) for model in models]
        header = (("", "captions", *(cell for name in names for cell in (name, ""))),
                  ("", "altered", *(cell for _ in models for cell in ("% of all trials", "% of altered"))))  # fmt: skip
        title = f"{task}: predictions that change when the query is altered, percent"
        note = "negation, permutation and reversal change or destroy the meaning; synonym and hypernym should change little"
        tables.append((Table(title, header, tuple(rows), 1, (note,)), variants))
    return tables


def _variants_by_task(results: Sequence[Result], option: str) -> list[tuple[str, list[QueryVariant]]]:
    by_task: dict[str, list[QueryVariant]] = {}
    for variant in find_variants(results, option):
        by_task.setdefault(task_title(variant.base), []).append(variant)
    return list(by_task.items())


def _changed_cells(variant: QueryVariant | None, altered: float | None) -> tuple[str, str]:
    if variant is None:
        return EMPTY_CELL, EMPTY_CELL
    share = changed_share(variant)
    return format_share(share) if altered != 0 else EMPTY_CELL, f"{100 * share.value / altered:.1f}" if altered else EMPTY_CELL


def altered_share(variant: QueryVariant) -> float | None:
    """The share of captions that were altered, from the notes of the result; None if not all trials were answered."""
    if "partial" in variant.result.options or "limit" in variant.result.options:
        return None
    note = next((note for note in variant.result.notes if note.startswith(f"{variant.name}: ")), "")
    match = ALTERED_NOTE.search(note)
    return int(match[1].replace(",", "")) / int(match[2].replace(",", "")) if match else None


def caption_choice_tables(results: Sequence[Result]) -> list[tuple[Table, list[QueryVariant]]]:
    """A table for each task with the accuracy for the chosen, a random and the longest caption, on trials that have all."""
    tables = []
    for task, variants in _variants_by_task(results, CAPTION):
        kinds = (DEFAULT_QUERY[CAPTION], *dict.fromkeys(v.name for v in variants))
        rows = []
        for model in dict.fromkeys(v.base.model for v in variants):
            of_model = [v for v in variants if v.base.model == model]
            common = sorted(set.intersection(*(set(r.parts[""].ids.tolist()) for v in of_model for r in (v.base, v.result))))
            shares = {kinds[0]: _accuracy(of_model[0].base, common)} | {v.name: _accuracy(v.result, common) for v in of_model}
            cells = (format_share(shares[kind]) if kind in shares else EMPTY_CELL for kind in kinds)
            rows.append((shorten_model_name(model), f"{len(common):,}", *cells))
        tables.append((Table(f"{task}: accuracy by caption", (("", "trials", *kinds),), tuple(rows), 1), variants))
    return tables


def _accuracy(result: Result, ids: Sequence[str]) -> Proportion:
    part = result.parts[""]
    is_selected = np.isin(part.ids, ids)
    return clustered_proportion(accuracy(part.evidence)[is_selected], part.clusters[is_selected])  # type: ignore[arg-type]
