"""Agreement between annotators, position bias, and the items with the largest disagreement.

Pure functions over a snapshot of the answers. What is undefined is None, with a reason where a page shows one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.metrics.agreement.answer_arrays import Answers
from crossmatch.metrics.agreement.coefficient import Agreement
from crossmatch.metrics.agreement.cohen_kappa import PairwiseKappas, pairwise_cohen_kappa
from crossmatch.metrics.agreement.fleiss_krippendorff import fleiss_kappa, krippendorff_alpha
from crossmatch.metrics.agreement.side_bias import SideBias, side_bias
from crossmatch.study.design.declaration import Question
from crossmatch.study.design.places import Place, parse_place
from crossmatch.study.results.event_columns import NONE, CountedQuestion, Snapshot, combine_columns

MIN_SHARED_ITEMS = 10  # for the kappa of two people
MAX_PEOPLE = 60  # whose pairs are compared: at most 1,770 kappas
SLIDER_REASON = "Numbers on a slider are rarely equal; Krippendorff's alpha uses the distance between them."
ONE_PERSON_REASON = "One person answers each item, so there is nothing to compare."


@dataclass(frozen=True)
class QuestionAgreement:
    """Agreement on one question, and the test for position bias for each number of places."""

    question: Question
    level: str
    answers: int
    krippendorff: Agreement
    fleiss: Agreement
    cohen: PairwiseKappas | None
    no_cohen: str  # why there is no Cohen's kappa
    left_out: int  # people whose pairs were not compared, because there are too many
    bias: tuple[tuple[int, SideBias], ...]
    no_bias: str  # why position bias is not tested


def measure_agreement(snapshot: Snapshot, question_number: int) -> QuestionAgreement:
    """Agreement on a question, from the counted answers without gold questions."""
    question = snapshot.questions[question_number]
    rows = snapshot.is_counted & (snapshot.answers.question == question_number)
    item, person, value = snapshot.answers.item[rows], snapshot.person[rows], snapshot.answers.value[rows]
    level, grades = measurement_level(question)
    bias, no_bias = measure_place_bias(snapshot, question_number)
    is_slider = question.question.kind == "slider"
    if not is_slider and question.is_shuffled:
        value, question = renumber_choices(item, value.astype(np.int64), snapshot.answers.places[rows], question)
    code = value if is_slider else value.astype(np.int64)
    alpha = krippendorff_alpha(Answers(item, person, grades[code] if grades is not None else code), level)
    people = snapshot.design.recipe.people
    if is_slider or people < 2:
        reason = SLIDER_REASON if is_slider else ONE_PERSON_REASON
        undefined = Agreement.undefined(reason, 0, 0)
        return QuestionAgreement(question.question, level, len(value), alpha, undefined, None, reason, 0, bias, no_bias)
    answers = Answers(item, person, code)
    busiest, left_out = _select_busiest(answers)
    return QuestionAgreement(
        question=question.question,
        level=level,
        answers=len(value),
        krippendorff=_with_answer_name(alpha, question) if grades is None else alpha,
        fleiss=_with_answer_name(fleiss_kappa(answers, people), question),
        cohen=pairwise_cohen_kappa(busiest, MIN_SHARED_ITEMS),
        no_cohen="",
        left_out=left_out,
        bias=bias,
        no_bias=no_bias,
    )


def renumber_choices(
    item: IntArray, code: IntArray, places: IntArray, question: CountedQuestion
) -> tuple[IntArray, CountedQuestion]:
    """Renumber the images, captions or lists that people chose among, differently for each item.

        image-n  ->  image-((n + h_i) mod k)        of k images; h_i is a hash of item i

    The declared number of an image can carry information: in BISON and BiVLC the first image is the correct one. Then people
    who answer well all choose `image-0`, a coefficient takes this for a habit, and the agreement comes out as 0. After
    renumbering, all k numbers are equally frequent, as with people who guess: two people who are right with probability a and
    choose among two have κ = (2a - 1)². Equal answers stay equal and different ones different. Options such as `both` and `none`
    keep their names, because a preference for them is a real habit. The same holds for images that are not shuffled.

    Returns:
        The new codes, and the question with the names of the new codes.

    >>> question = CountedQuestion(Question("which", "Which?", among="images"), ("image-0", "both"), is_shuffled=True)
    >>> codes, renumbered = renumber_choices(np.arange(6), np.array([0, 0, 0, 0, 0, 1]), np.full(6, 2), question)
    >>> [renumbered.answer_names[code] for code in codes]
    ['image-1', 'image-0', 'image-1', 'image-0', 'image-1', 'both']
    """
    columns = np.stack([code, _hash_numbers(item) % np.maximum(places, 1), places])
    kinds, kind_of_row = np.unique(columns, axis=1, return_inverse=True)
    names = [_shift_name(question.answer_names[c], shift, k, question.question) for c, shift, k in kinds.T.tolist()]
    codes = {name: n for n, name in enumerate(dict.fromkeys(names))}
    new_codes = np.array([codes[name] for name in names], dtype=np.int64)[kind_of_row.ravel()]
    return new_codes, replace(question, answer_names=tuple(codes))


def _shift_name(name: str, shift: int, k: int, question: Question) -> str:
    """The name of an answer with the numbers in it shifted; an answer to a multiple choice has several parts."""
    parts = [name] if question.kind == "choice" else name.split(", ")
    places = [parse_place(part) if question.among else None for part in parts]
    shifted = [
        part if place is None else Place(place.side, (place.n + shift) % k).value for part, place in zip(parts, places, strict=True)
    ]
    return ", ".join(sorted(shifted))


def _hash_numbers(numbers: IntArray) -> IntArray:
    """Numbers mixed by splitmix64 (steele2014fast), so that neighbours are unrelated."""
    x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)


def measurement_level(question: CountedQuestion) -> tuple[str, FloatArray | None]:
    """`interval` or `nominal`, and the grade of each answer code if all options have one."""
    declared = question.question
    if declared.kind == "slider":
        return "interval", None
    grades = {option.value: option.grade for option in declared.options}
    if declared.kind == "several" or declared.among or None in grades.values():
        return "nominal", None
    return "interval", np.array([grades[name] for name in question.answer_names], dtype=np.float64)


def _select_busiest(answers: Answers) -> tuple[Answers, int]:
    """The answers of the `MAX_PEOPLE` people with the most answers, and the number of other people."""
    people, times = np.unique(answers.person, return_counts=True)
    busiest = people[np.argsort(-times, kind="stable")[:MAX_PEOPLE]]
    return answers.select(np.isin(answers.person, busiest)), len(people) - len(busiest)


def _with_answer_name(agreement: Agreement, question: CountedQuestion) -> Agreement:
    """The reason with the name of an answer instead of its code."""
    note = f" ({question.question.among} are renumbered for each item)" * question.is_shuffled
    reason = re.sub(r"the value (\d+)", lambda code: f"“{question.answer_names[int(code[1])]}”{note}", agreement.reason)
    return replace(agreement, reason=reason)


def measure_place_bias(snapshot: Snapshot, question_number: int) -> tuple[tuple[tuple[int, SideBias], ...], str]:
    """The test for position bias for each number of displayed places, or the reason why no test is possible."""
    question = snapshot.questions[question_number]
    among = question.question.among
    if question.question.kind == "slider":
        return (), "A slider has no places to choose from."
    if not among:
        return (
            (),
            "The options have the same order on every page, so a preferred place cannot be distinguished from a preferred option.",
        )
    if not question.is_shuffled:
        return (), f"The {among} are not shuffled, so a preferred place cannot be distinguished from a preferred choice."
    answers = snapshot.answers
    rows = snapshot.is_counted & (answers.question == question_number) & (answers.place != NONE) & (answers.places > 1)
    place, places = answers.place[rows], answers.places[rows]
    tests = [(k, side_bias(*np.bincount(place[places == k], minlength=k).tolist())) for k in np.unique(places).tolist()]
    return tuple(tests), "" if tests else "There are no choices yet."


# -- disagreement


@dataclass(frozen=True, eq=False)
class DisagreementRanking:
    """Items with different answers, largest disagreement first.

    `spread` is the entropy of choices in bits, or the standard deviation of slider values.
    """

    item: IntArray
    spread: FloatArray
    answers: IntArray


NO_DISAGREEMENT = DisagreementRanking(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))


def rank_disagreement(snapshot: Snapshot) -> DisagreementRanking:
    """Rank the items by the disagreement of their counted answers. Items with one answer or full agreement are left out."""
    rows = snapshot.is_compared
    item, position = np.unique(snapshot.answers.item[rows], return_inverse=True)
    answer_counts = np.bincount(position, minlength=len(item))
    spread = (_deviations if snapshot.is_slider else _entropies)(position, snapshot.answers.value[rows], len(item))
    disagreeing = np.flatnonzero(spread > 1e-9)
    order = disagreeing[
        np.lexsort((item[disagreeing], -np.round(spread[disagreeing], 9)))
    ]  # rounding errors must not decide the order
    return DisagreementRanking(item[order], spread[order], answer_counts[order])


def _entropies(position: IntArray, value: FloatArray, items: int) -> FloatArray:
    """H = Σ_k p_k log2 1/p_k for each item."""
    _, first, times = np.unique(combine_columns(position, value.astype(np.int64)), return_index=True, return_counts=True)
    item = position[first]
    total = np.bincount(item, weights=times, minlength=items)
    share = times / total[item]
    return np.asarray(np.bincount(item, weights=-share * np.log2(share), minlength=items), dtype=np.float64)


def _deviations(position: IntArray, value: FloatArray, items: int) -> FloatArray:
    """The population standard deviation for each item."""
    number = np.bincount(position, minlength=items)
    mean = np.bincount(position, weights=value, minlength=items) / number
    squares = np.bincount(position, weights=(value - mean[position]) ** 2, minlength=items)
    return np.asarray(np.sqrt(squares / number), dtype=np.float64)
