"""How each annotator works: amount, agreement with others, speed, repeated answers, and warnings for reviewers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crossmatch.data.arrays import BoolArray, FloatArray, IntArray
from crossmatch.study.assignment.review import VERDICTS
from crossmatch.study.results.event_columns import NONE, Snapshot, combine_columns
from crossmatch.study.results.progress import seconds_per_item

MIN_ANSWERS = 20  # below it there are no warnings about runs, speed and agreement
RARE_RUN = 1e-3  # a run of equal answers with a smaller probability gives a warning
WRONG_GOLD_SHARE = 0.2  # from this share on wrong gold answers give a warning, if there are two or more
FAST, LOW_AGREEMENT = 1 / 3, 2 / 3  # of the median over annotators
MIN_VARIANCE = 1e-12  # a smaller variance is rounding

AgreementColumns = tuple[list[float | None], list[int]]  # for each person: the agreement, and the number of comparisons


@dataclass(frozen=True)
class AnnotatorSummary:
    """One annotator of a study.

    Attributes:
        agreement: Share of equal answers over pairs with counted answers of others; for sliders the correlation with their mean.
            None if there is too little in common.
        longest_run: Length of the longest run of answers that looked the same on the page.
        run_rate: How often others gave that answer.
        favourite_share: Share of the most frequent answer, code `favourite_option` of question `favourite_question`.
        warnings: `gold`, `same answer`, `hasty` or `apart`; see `find_warnings`.
    """

    person_id: int
    hits: int = 0
    answers: int = 0
    counted: int = 0
    gold: int = 0
    wrong: int = 0
    agreement: float | None = None
    compared_count: int = 0
    seconds: float | None = None  # per item from claim to submission, median over HITs
    browser_seconds: float | None = None  # per item as the browser measured it, median
    longest_run: int = 0
    run_rate: float = 1.0
    favourite_share: float | None = None
    favourite_question: int = NONE
    favourite_option: int = NONE
    late: int = 0
    approved: int = 0
    rejected: int = 0
    reassigned: int = 0
    quiz: bool | None = None
    warnings: tuple[str, ...] = ()


def summarise_annotators(snapshot: Snapshot) -> tuple[AnnotatorSummary, ...]:
    """Everybody who submitted something, by person id."""
    hits, answers = snapshot.hits, snapshot.answers
    people = np.union1d(hits.person, np.array(list(snapshot.quizzes), dtype=np.int64)).astype(np.int64)
    person_of_hit, person_of_answer = (np.searchsorted(people, person) for person in (hits.person, snapshot.person))

    def sum_by_person(values: IntArray | BoolArray) -> list[int]:
        return [int(n) for n in np.bincount(person_of_hit, weights=values, minlength=len(people))]

    verdicts = [sum_by_person(hits.verdict == n) for n in range(len(VERDICTS))]
    is_timed = ~np.isnan(answers.seconds)
    agreements, compared_counts = compute_agreement(snapshot, people)
    columns: dict[str, Any] = {
        "hits": sum_by_person(np.ones(len(person_of_hit), dtype=np.int64)),
        "answers": sum_by_person(hits.items),
        "counted": sum_by_person(hits.items * hits.in_results),
        "gold": sum_by_person(hits.gold),
        "wrong": sum_by_person(hits.wrong),
        "late": sum_by_person(hits.late),
        "seconds": _medians(person_of_hit, seconds_per_item(hits), len(people)),
        "browser_seconds": _medians(person_of_answer[is_timed], answers.seconds[is_timed], len(people)),
        "quiz": [snapshot.quizzes.get(int(person)) for person in people],
        **dict(zip(("approved", "rejected", "reassigned"), verdicts, strict=True)),
        "agreement": agreements,
        "compared_count": compared_counts,
    }
    summaries = [
        AnnotatorSummary(int(person), **{name: column[n] for name, column in columns.items()}, **repetition)
        for n, (person, repetition) in enumerate(zip(people, find_repetition(snapshot, people), strict=True))
    ]
    seconds, agreement = (_median(getattr(summary, name) for summary in summaries) for name in ("seconds", "agreement"))
    return tuple(replace(summary, warnings=find_warnings(summary, seconds, agreement)) for summary in summaries)


def _median(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return float(np.median(numbers)) if numbers else None


def _medians(group: IntArray, values: FloatArray, n: int) -> list[float | None]:
    order = np.argsort(group, kind="stable")
    parts = np.split(values[order], np.cumsum(np.bincount(group, minlength=n))[:-1]) if n else []
    return [float(np.median(part)) if len(part) else None for part in parts]


# -- agreement with others


def compute_agreement(snapshot: Snapshot, people: IntArray) -> AgreementColumns:
    """For each person: the agreement with counted answers of others, and the number of comparisons behind it.

    A person's own answers are used whether they count or not, so that a reviewer sees how far HITs in review agree with others.
    """
    rows = snapshot.is_comparable
    _, item = np.unique(snapshot.answers.item[rows], return_inverse=True)
    person, value = np.searchsorted(people, snapshot.person[rows]), snapshot.answers.value[rows]
    is_counted = snapshot.is_counted[rows]
    others = np.bincount(item, weights=is_counted)[item] - is_counted if len(item) else np.zeros(0)
    if snapshot.is_slider:
        total = np.bincount(item, weights=value * is_counted)[item] - value * is_counted if len(item) else others
        is_shared = others > 0
        return _correlations(person[is_shared], value[is_shared], total[is_shared] / others[is_shared], len(people))
    _, pair = np.unique(combine_columns(item, value.astype(np.int64)), return_inverse=True)
    equal = np.bincount(pair, weights=is_counted)[pair] - is_counted if len(item) else others
    equal_sum, compared = (np.bincount(person, weights=count, minlength=len(people)) for count in (equal, others))
    return [float(s / n) if n else None for s, n in zip(equal_sum, compared, strict=True)], compared.astype(int).tolist()


def _correlations(person: IntArray, person_values: FloatArray, others: FloatArray, n: int) -> AgreementColumns:
    """Pearson's correlation of each person's answers with the mean of the others' answers to the same items."""
    number = np.bincount(person, minlength=n)

    def centre(values: FloatArray) -> FloatArray:
        return np.asarray(values - (np.bincount(person, weights=values, minlength=n) / np.maximum(number, 1))[person])

    x, y = centre(person_values), centre(others)
    xy, xx, yy = (np.bincount(person, weights=product, minlength=n) for product in (x * y, x * x, y * y))
    is_defined = (number > 2) & (xx > MIN_VARIANCE * number) & (yy > MIN_VARIANCE * number)
    correlations = [float(b / np.sqrt(f * s)) if t else None for b, f, s, t in zip(xy, xx, yy, is_defined, strict=True)]
    return correlations, number.tolist()


# -- repeated answers


def find_repetition(snapshot: Snapshot, people: IntArray) -> list[dict[str, Any]]:
    """For each person: the longest run of answers that looked the same, how often others gave that answer, and the favourite.

    The rate of the others is (n + 1) / (N + 2) of their N answers to the question, so that it is never 0; 1 without others.
    """
    rows = snapshot.answers.question != NONE
    person = np.searchsorted(people, snapshot.person[rows])
    order = np.argsort(person, kind="stable")  # by person, and then by time
    person, look = person[order], combine_columns(snapshot.answers.question, snapshot.answers.displayed)[rows][order]
    person_look = combine_columns(person, look)
    starts = np.flatnonzero(np.diff(person_look, prepend=NONE))
    lengths = np.diff(starts, append=len(person))
    _, first, times = np.unique(person_look, return_index=True, return_counts=True)
    question_of = dict(zip(look.tolist(), snapshot.answers.question[rows][order].tolist(), strict=True))
    option_of = dict(zip(look.tolist(), snapshot.answers.displayed[rows][order].tolist(), strict=True))
    totals = dict(zip(*(part.tolist() for part in np.unique(look, return_counts=True)), strict=True))
    repetition: list[dict[str, Any]] = [{} for _ in people]
    for (n, kinds), (_, runs) in zip(_group_rows(person[first]), _group_rows(person[starts]), strict=True):
        look_counts = dict(zip(look[first[kinds]].tolist(), times[kinds].tolist(), strict=True))
        run = runs[np.argmax(lengths[runs])]
        repeated, favourite = int(look[starts[run]]), max(look_counts, key=lambda look: look_counts[look])
        others = sum(total - look_counts.get(key, 0) for key, total in totals.items() if question_of[key] == question_of[repeated])
        repetition[n] = {
            "longest_run": int(lengths[run]),
            "run_rate": (totals[repeated] - look_counts[repeated] + 1) / (others + 2) if others else 1.0,
            "favourite_question": question_of[favourite],
            "favourite_option": option_of[favourite],
            "favourite_share": look_counts[favourite] / sum(look_counts.values()),
        }
    return repetition


def _group_rows(column: IntArray) -> list[tuple[int, IntArray]]:
    """The values of a sorted column, and the rows of each."""
    values, first = np.unique(column, return_index=True)
    return list(zip(values.tolist(), np.split(np.arange(len(column)), first[1:]), strict=True))


def find_warnings(summary: AnnotatorSummary, seconds: float | None, agreement: float | None) -> tuple[str, ...]:
    """Reasons for a reviewer to look at somebody's work, given the medians of time and agreement. Never a verdict.

        gold          two or more gold questions wrong, and at least a fifth of them
        same answer   a run of L equal answers, which with the others' rate p occurs in n answers with probability n p^L < 0.001
        hasty         less than a third of the median time for an item
        apart         less than two thirds of the median agreement

    >>> find_warnings(AnnotatorSummary(1, answers=60, gold=6, wrong=3, longest_run=58, run_rate=0.4, seconds=1.0), 8.0, None)
    ('gold', 'same answer', 'hasty')
    """
    has_enough = summary.answers >= MIN_ANSWERS
    applies = {
        "gold": summary.wrong >= 2 and summary.wrong >= WRONG_GOLD_SHARE * summary.gold,
        "same answer": has_enough and summary.answers * summary.run_rate**summary.longest_run < RARE_RUN,
        "hasty": has_enough and _is_below(summary.seconds, FAST, seconds),
        "apart": has_enough and _is_below(summary.agreement, LOW_AGREEMENT, agreement),
    }
    return tuple(warning for warning, is_given in applies.items() if is_given)


def _is_below(value: float | None, share: float, median: float | None) -> bool:
    return value is not None and median is not None and value < share * median
