"""From answers to results: what several people said of an item becomes one value, and values become `Judgements`, `Trials`,
ratings or preferences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from crossmatch.core.errors import CrossmatchError
from crossmatch.metrics.answers import Answers
from crossmatch.metrics.crowd import dawid_skene, majority, mean_and_deviation, unanimous
from crossmatch.metrics.preference import Preferences
from crossmatch.study.design import Design
from crossmatch.study.said import Said, Thing

if TYPE_CHECKING:
    from crossmatch.core.collection import Collection
    from crossmatch.core.judgements import Judgements


@dataclass(frozen=True)
class Decided:
    """What is taken of an item: a value or a grade, or neither where people are level.

    `share` is that of the answers which say so, or the probability that it is true, by Dawid and Skene's model.
    """

    thing: Thing
    value: str | None
    grade: float | None
    answers: int
    deviation: float | None = None
    share: float | None = None


def decide(design: Design, said: Iterable[Said]) -> list[Decided]:
    """One value for each item that was answered and is not gold, by what the design declares.

    mean          of the grades, with their standard deviation
    majority      the most frequent answer; nothing where several are
    dawid-skene   the likeliest answer, by how well people do
    unanimous     the wanted answer if as many people gave it as are asked, and nobody another one
    """
    heard = [one for one in said if one.thing.gold is None]
    if not heard:
        return []
    return COMBINE[design.result.combine](design, heard)


def _graded(design: Design, one: Said) -> float:
    question = design.main_in(one.thing.block)
    value = one.answer[question.name]
    if question.kind == "slider":
        return float(value)
    grade = next((option.grade for option in question.options if option.value == value), None)
    if grade is None:
        raise CrossmatchError(
            f"the answer {value!r} to {question.name!r} has no grade, so that there is no mean. Give each option a grade in the "
            "design, or set result.combine=majority."
        )
    return grade


def _numbered(said: Sequence[Said], values: Sequence[float]) -> tuple[Answers, dict[int, Thing]]:
    people = {name: n for n, name in enumerate(sorted({one.person for one in said}))}
    triples = [(one.thing.id, people[one.person], value) for one, value in zip(said, values, strict=True)]
    return Answers.of(triples), {one.thing.id: one.thing for one in said}


def _by_mean(design: Design, said: list[Said]) -> list[Decided]:
    answers, known = _numbered(said, [_graded(design, one) for one in said])
    found = mean_and_deviation(answers)
    spread = found.deviation.tolist()
    rows = zip(found.item.tolist(), found.mean.tolist(), spread, found.answers.tolist(), strict=True)
    return [Decided(known[i], None, mean, n, deviation) for i, mean, deviation, n in rows]


def told(value: Any) -> str:
    """An answer as one text; several values are one answer, too.

    >>> told("yes"), told(["a", "b"]), told(3.5)
    ('yes', 'a;b', '3.5')
    """
    return ";".join(value) if isinstance(value, list) else str(value)


def _coded(design: Design, said: list[Said]) -> tuple[Answers, dict[int, Thing], list[str]]:
    """Answers as numbers, and what they stand for."""
    given = [told(one.answer[design.main_in(one.thing.block).name]) for one in said]
    names = sorted(set(given))
    code = {name: n for n, name in enumerate(names)}
    answers, known = _numbered(said, [code[value] for value in given])
    return answers, known, names


def _grade_of(design: Design, thing: Thing, value: str | None) -> float | None:
    options = design.main_in(thing.block).options
    return next((option.grade for option in options if option.value == value), None)


def _by_majority(design: Design, said: list[Said]) -> list[Decided]:
    answers, known, names = _coded(design, said)
    found = majority(answers)
    return _chosen(design, known, names, found.item, found.value, found.answers, found.share)


def _by_dawid_skene(design: Design, said: list[Said]) -> list[Decided]:
    """Items with one answer wait: from one alone nobody can tell who errs."""
    answers, known, names = _coded(design, said)
    items, of, times = np.unique(answers.item, return_inverse=True, return_counts=True)
    if times.max() < 2:
        raise CrossmatchError(
            f"each of the {len(items):,} items has one answer so far, and one does not tell who errs how, as dawid-skene needs it. "
            "Wait for more answers, or let the majority decide: --combine majority"
        )
    compared = answers.among((times > 1)[of])
    found = dawid_skene(compared)
    numbers = np.bincount(np.searchsorted(found.item, compared.item))
    decided = _chosen(design, known, names, found.item, found.value, numbers, found.posterior.max(axis=1))
    return decided + [Decided(known[i], None, None, 1) for i in items[times == 1].tolist()]


def _chosen(
    design: Design, known: dict[int, Thing], names: list[str], items: Any, values: Any, answers: Any, shares: Any
) -> list[Decided]:
    out = []
    for i, code, n, share in zip(items.tolist(), values.tolist(), answers.tolist(), shares.tolist(), strict=True):
        value = None if code is None else names[int(code)]
        out.append(Decided(known[i], value, _grade_of(design, known[i], value), n, share=share))
    return out


def _by_unanimity(design: Design, said: list[Said]) -> list[Decided]:
    """Accepted items have the wanted value, refused ones the empty one, and those that wait for answers none."""
    answers, known, names = _coded(design, said)
    wanted = design.result.wanted
    code = names.index(wanted) if wanted in names else -1
    found = unanimous(answers, code, design.recipe.people)
    out = []
    for n, i in enumerate(found.item.tolist()):
        value = wanted if found.accepted[n] else None if found.waiting[n] else ""
        out.append(Decided(known[i], value, None, int(found.answers[n]), share=float(found.wanted[n] / found.answers[n])))
    return out


COMBINE: dict[str, Callable[[Design, list[Said]], list[Decided]]] = {
    "mean": _by_mean,
    "majority": _by_majority,
    "dawid-skene": _by_dawid_skene,
    "unanimous": _by_unanimity,
    "bradley-terry": _by_majority,  # of each comparison; all of them together are `preferences`
}


def as_judgements(decided: Sequence[Decided], collection: Collection, source: str, positive: float = 1.0) -> Judgements:
    """Graded pairs of an image and a caption, as `run` takes them."""
    from crossmatch.core.judgements import Judgements

    pairs = [
        (one.thing.image_ids[0], one.thing.caption_ids[0], one.grade)
        for one in decided
        if one.grade is not None and one.thing.image_ids and one.thing.caption_ids
    ]
    if not pairs:
        raise CrossmatchError(
            "no answer is about an image and a caption with ids, so there is nothing to judge by. Check the items."
        )
    return Judgements.from_ids(collection, source, pairs, positive)


def preferences(design: Design, said: Iterable[Said]) -> Preferences:
    """Which of two systems each answer preferred; an item names its systems in the order of its lists."""
    compared = []
    for one in said:
        if one.thing.gold is None:
            systems = one.thing.body["systems"]
            chosen = str(one.answer[design.main.name])
            compared.append((str(systems[0]), str(systems[1]), 1.0 if chosen == "list-0" else 0.0 if chosen == "list-1" else 0.5))
    return Preferences.of(compared)


@dataclass(frozen=True)
class Instance:
    """A trial of 2 x 2 as a person solved it: whether each image got its caption, and each caption its image."""

    name: str
    person: str
    wins: tuple[bool, bool, bool, bool]


def instances(design: Design, said: Iterable[Said]) -> list[Instance]:
    """The two-way choices of `bivlc-human` put together, for each person and each instance of which all four were made.

    An item tells its instance (`trial`) and which of the four questions it is (`query`: 0 and 1 the images, 2 and 3 the captions).
    The right answer is the one of its own place: question 0 and 2 belong to the first, 1 and 3 to the second.
    """
    found: dict[tuple[str, str], dict[int, bool]] = {}
    for one in said:
        if one.thing.gold is None and "query" in one.thing.body:
            query = int(one.thing.body["query"])
            value = one.answer[design.main_in(one.thing.block).name]
            right = int(str(value).rpartition("-")[2]) == query % 2
            found.setdefault((str(one.thing.body["trial"]), one.person), {})[query] = right
    return [
        Instance(name, person, (wins[0], wins[1], wins[2], wins[3])) for (name, person), wins in found.items() if len(wins) == 4
    ]
