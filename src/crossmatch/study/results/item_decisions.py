"""Combines the answers of several people to an item into one value or grade."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossmatch.data.errors import CrossmatchError
from crossmatch.metrics.agreement.answer_arrays import Answers
from crossmatch.metrics.agreement.vote_aggregation import dawid_skene, decide_unanimously, majority_vote, mean_answers
from crossmatch.study.design.declaration import Design
from crossmatch.study.results.answers import Answer, StudyItem


@dataclass(frozen=True)
class Decision:
    """The combined answer to an item: a value or a grade, or neither where the answers are tied.

    `share` is the share of the answers with this value, or its probability by Dawid and Skene's model.
    """

    item: StudyItem
    value: str | None
    grade: float | None
    answer_count: int
    deviation: float | None = None
    share: float | None = None


def decide_items(design: Design, answers: Iterable[Answer]) -> list[Decision]:
    """Combine the answers to each item that is not gold, by the rule that the design declares.

    mean          mean of the grades, with their standard deviation
    majority      the most frequent answer; none if several are
    dawid-skene   the most probable answer, given how reliable each person is
    unanimous     the wanted answer if enough people gave it and no other answer was given
    """
    counted = [answer for answer in answers if answer.item.gold is None]
    return RULES[design.result.combine](design, counted) if counted else []


def answer_as_text(value: Any) -> str:
    """The value of an answer as one text; several values are joined.

    >>> answer_as_text("yes"), answer_as_text(["a", "b"]), answer_as_text(3.5)
    ('yes', 'a;b', '3.5')
    """
    return ";".join(value) if isinstance(value, list) else str(value)


def _grade_answer(design: Design, answer: Answer) -> float:
    question = design.main_question_for(answer.item.block)
    value = answer.values[question.name]
    if question.kind == "slider":
        return float(value)
    grade = _grade_of(design, answer.item, value)
    if grade is None:
        raise CrossmatchError(
            f"The answer {value!r} to question {question.name!r} has no grade, so there is no mean. Give each option a grade in the "
            "design, or set result.combine=majority."
        )
    return grade


def _grade_of(design: Design, item: StudyItem, value: str | None) -> float | None:
    options = design.main_question_for(item.block).options
    return next((option.grade for option in options if option.value == value), None)


def _as_arrays(answers: Sequence[Answer], values: Sequence[float]) -> tuple[Answers, dict[int, StudyItem]]:
    people = {name: n for n, name in enumerate(sorted({answer.person for answer in answers}))}
    triples = [(answer.item.id, people[answer.person], value) for answer, value in zip(answers, values, strict=True)]
    return Answers.from_triples(triples), {answer.item.id: answer.item for answer in answers}


def _as_codes(design: Design, answers: list[Answer]) -> tuple[Answers, dict[int, StudyItem], list[str]]:
    """The answers as numbers, the items, and the text of each number."""
    texts = [answer_as_text(answer.values[design.main_question_for(answer.item.block).name]) for answer in answers]
    names = sorted(set(texts))
    codes = {name: n for n, name in enumerate(names)}
    return *_as_arrays(answers, [codes[text] for text in texts]), names


def _by_mean(design: Design, answers: list[Answer]) -> list[Decision]:
    arrays, items = _as_arrays(answers, [_grade_answer(design, answer) for answer in answers])
    means = mean_answers(arrays)
    columns = (means.item, means.mean, means.deviation, means.answer_counts)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Decision(items[i], None, mean, count, deviation) for i, mean, deviation, count in rows]


def _by_majority(design: Design, answers: list[Answer]) -> list[Decision]:
    arrays, items, names = _as_codes(design, answers)
    votes = majority_vote(arrays)
    return _decide_values(design, items, names, votes.item, votes.value, votes.answer_counts, votes.share)


def _by_dawid_skene(design: Design, answers: list[Answer]) -> list[Decision]:
    """Items with one answer stay undecided: a single answer does not show who errs."""
    arrays, items, names = _as_codes(design, answers)
    ids, positions, counts = np.unique(arrays.item, return_inverse=True, return_counts=True)
    if counts.max() < 2:
        raise CrossmatchError(
            f"dawid-skene needs items with two or more answers; each of the {len(ids):,} items has one so far. "
            "Wait for more answers, or use --combine majority."
        )
    repeated = arrays.select((counts > 1)[positions])
    fit = dawid_skene(repeated)
    answer_counts = np.bincount(np.searchsorted(fit.item, repeated.item))
    decisions = _decide_values(design, items, names, fit.item, fit.value, answer_counts, fit.posterior.max(axis=1))
    return decisions + [Decision(items[i], None, None, 1) for i in ids[counts == 1].tolist()]


def _decide_values(
    design: Design, items: dict[int, StudyItem], names: list[str], ids: Any, codes: Any, counts: Any, shares: Any
) -> list[Decision]:
    decisions = []
    for i, code, count, share in zip(ids.tolist(), codes.tolist(), counts.tolist(), shares.tolist(), strict=True):
        value = None if code is None else names[int(code)]
        decisions.append(Decision(items[i], value, _grade_of(design, items[i], value), count, share=share))
    return decisions


def _by_unanimity(design: Design, answers: list[Answer]) -> list[Decision]:
    """Accepted items have the wanted value, rejected ones an empty value, and items that need more answers None."""
    arrays, items, names = _as_codes(design, answers)
    accepting_value = design.result.wanted
    code = names.index(accepting_value) if accepting_value in names else -1
    outcome = decide_unanimously(arrays, code, design.recipe.people)
    shares = (outcome.accepting / outcome.answer_counts).tolist()
    decisions = []
    for n, i in enumerate(outcome.item.tolist()):
        value = accepting_value if outcome.accepted[n] else None if outcome.waiting[n] else ""
        decisions.append(Decision(items[i], value, None, int(outcome.answer_counts[n]), share=shares[n]))
    return decisions


RULES: dict[str, Callable[[Design, list[Answer]], list[Decision]]] = {
    "mean": _by_mean,
    "majority": _by_majority,
    "dawid-skene": _by_dawid_skene,
    "unanimous": _by_unanimity,
    "bradley-terry": _by_majority,  # of each single comparison; `judgements_and_trials.as_comparisons` combines them
}
