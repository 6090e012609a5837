"""How each person works: what they did, how it fits with what others said, how fast they were, and whether they look."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crossmatch.core.arrays import BoolArray, FloatArray, IntArray
from crossmatch.study.statistics import seconds_per_item
from crossmatch.study.tally import NO, Snapshot, joined
from crossmatch.study.verdicts import VERDICTS

FEW = 20  # answers below which nobody is called conspicuous
RARE = 1e-3  # a run of equal answers that chance brings less often is conspicuous
WRONG = 0.2  # the share of wrong gold answers that is, if there are at least two
HASTE, APART = 1 / 3, 2 / 3  # of everybody's median: times below it, and agreement below it
SPREAD = 1e-12  # a variance as small is rounding


Agreements = tuple[list[float | None], list[int]]  # of each person, and on how much each rests


@dataclass(frozen=True)
class Worker:
    """One person in a study.

    `agreement` is the share of the same answers among pairs with answers of others that count, or, for sliders, the correlation
    with their mean; None where too little is in common. `run` is the longest row of answers that looked the same on the page,
    `chance` the rate at which others gave that one; `most` is the share of the favourite answer, at place `option` among the names
    of question `question`. `watch` says what is
    conspicuous.
    """

    person: int
    hits: int = 0
    answers: int = 0
    counted: int = 0
    gold: int = 0
    wrong: int = 0
    agreement: float | None = None
    compared: int = 0
    seconds: float | None = None  # per item, median over HITs, from claim to submission
    browser: float | None = None  # per item, median, as the browser measured it
    run: int = 0
    chance: float = 1.0
    most: float | None = None
    question: int = NO
    option: int = NO
    late: int = 0
    approved: int = 0
    rejected: int = 0
    reassigned: int = 0
    quiz: bool | None = None
    watch: tuple[str, ...] = ()


def workers(seen: Snapshot) -> tuple[Worker, ...]:
    """Everybody who submitted something, in the order of their numbers."""
    people = np.union1d(seen.work.person, np.array(list(seen.quizzes), dtype=np.int64)).astype(np.int64)
    doer, giver = (np.searchsorted(people, who) for who in (seen.work.person, seen.person))

    def total(values: IntArray | BoolArray) -> list[int]:
        return [int(n) for n in np.bincount(doer, weights=values, minlength=len(people))]

    verdicts = [total(seen.work.verdict == n) for n in range(len(VERDICTS))]
    timed = ~np.isnan(seen.said.seconds)
    columns: dict[str, Any] = {
        "hits": total(np.ones(len(doer), dtype=np.int64)),
        "answers": total(seen.work.items),
        "counted": total(seen.work.items * seen.work.stands),
        "gold": total(seen.work.gold),
        "wrong": total(seen.work.wrong),
        "late": total(seen.work.late),
        "seconds": _medians(doer, seconds_per_item(seen.work), len(people)),
        "browser": _medians(giver[timed], seen.said.seconds[timed], len(people)),
        "quiz": [seen.quizzes.get(int(person)) for person in people],
        **dict(zip(("approved", "rejected", "reassigned"), verdicts, strict=True)),
        **dict(zip(("agreement", "compared"), agreement(seen, people), strict=True)),
    }  # fmt: skip
    made = [
        Worker(int(person), **{name: column[n] for name, column in columns.items()}, **told)
        for n, (person, told) in enumerate(zip(people, sameness(seen, people), strict=True))
    ]
    usual = (_median(one.seconds for one in made), _median(one.agreement for one in made))
    return tuple(replace(one, watch=conspicuous(one, *usual)) for one in made)


def _median(values: Iterable[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return float(np.median(told)) if told else None


def _medians(of: IntArray, values: FloatArray, number: int) -> list[float | None]:
    order = np.argsort(of, kind="stable")
    parts = np.split(values[order], np.cumsum(np.bincount(of, minlength=number))[:-1]) if number else []
    return [float(np.median(part)) if len(part) else None for part in parts]


# -- with others


def agreement(seen: Snapshot, people: IntArray) -> Agreements:
    """Of each person: how far all their answers agree with those of others that count, and how many answers or items that rests on.

    Their own answers are taken whether they count or not, so that a reviewer sees how far work fits that is still in doubt.
    """
    rows = seen.comparable
    _, item = np.unique(seen.said.item[rows], return_inverse=True)
    who, value, stands = np.searchsorted(people, seen.person[rows]), seen.said.value[rows], seen.counts[rows]
    others = np.bincount(item, weights=stands)[item] - stands if len(item) else np.zeros(0)
    if seen.slides:
        total = np.bincount(item, weights=value * stands)[item] - value * stands if len(item) else others
        shared = others > 0
        return _correlations(who[shared], value[shared], total[shared] / others[shared], len(people))
    _, pair = np.unique(joined(item, value.astype(np.int64)), return_inverse=True)
    alike = np.bincount(pair, weights=stands)[pair] - stands if len(item) else others
    same, compared = (np.bincount(who, weights=count, minlength=len(people)) for count in (alike, others))
    return [float(s / n) if n else None for s, n in zip(same, compared, strict=True)], compared.astype(int).tolist()


def _correlations(who: IntArray, own: FloatArray, theirs: FloatArray, n: int) -> Agreements:
    """Pearson's correlation of each person's answers with the mean of the others' to the same items."""
    number = np.bincount(who, minlength=n)

    def centred(values: FloatArray) -> FloatArray:
        return np.asarray(values - (np.bincount(who, weights=values, minlength=n) / np.maximum(number, 1))[who])

    x, y = centred(own), centred(theirs)
    both, first, second = (np.bincount(who, weights=product, minlength=n) for product in (x * y, x * x, y * y))
    told = (number > 2) & (first > SPREAD * number) & (second > SPREAD * number)
    return [float(b / np.sqrt(f * s)) if t else None for b, f, s, t in zip(both, first, second, told, strict=True)], number.tolist()


# -- whether they look


def sameness(seen: Snapshot, people: IntArray) -> list[dict[str, Any]]:
    """Of each person: the longest run of answers that looked the same, how often others gave that one, and their favourite.

    The others' rate is (n + 1) / (N + 2) of their N answers to the question, so that it is never 0; 1 where there are no others.
    """
    rows = seen.said.question != NO
    who = np.searchsorted(people, seen.person[rows])
    order = np.argsort(who, kind="stable")  # in which a person gave them
    who, looks = who[order], joined(seen.said.question, seen.said.looked)[rows][order]
    one = joined(who, looks)
    starts = np.flatnonzero(np.diff(one, prepend=NO))
    lengths = np.diff(starts, append=len(who))
    _, first, times = np.unique(one, return_index=True, return_counts=True)
    question = dict(zip(looks.tolist(), seen.said.question[rows][order].tolist(), strict=True))
    option = dict(zip(looks.tolist(), seen.said.looked[rows][order].tolist(), strict=True))
    everybody = dict(zip(*(part.tolist() for part in np.unique(looks, return_counts=True)), strict=True))
    told: list[dict[str, Any]] = [{} for _ in people]
    for (person, kinds), (_, runs) in zip(_groups(who[first]), _groups(who[starts]), strict=True):
        own = dict(zip(looks[first[kinds]].tolist(), times[kinds].tolist(), strict=True))
        run = runs[np.argmax(lengths[runs])]
        long, most = int(looks[starts[run]]), max(own, key=lambda look: own[look])
        others = sum(n - own.get(look, 0) for look, n in everybody.items() if question[look] == question[long])
        told[person] = {
            "run": int(lengths[run]), "chance": (everybody[long] - own[long] + 1) / (others + 2) if others else 1.0,
            "question": question[most], "option": option[most], "most": own[most] / sum(own.values()),
        }  # fmt: skip
    return told


def _groups(of: IntArray) -> list[tuple[int, IntArray]]:
    """The values of an ordered column, and the rows of each."""
    values, first = np.unique(of, return_index=True)
    return list(zip(values.tolist(), np.split(np.arange(len(of)), first[1:]), strict=True))


def conspicuous(one: Worker, seconds: float | None, agree: float | None) -> tuple[str, ...]:
    """What a reviewer should look at, given everybody's median of time and agreement.

        gold          two or more gold items wrong, and a fifth of them
        same answer   a run of L equal answers, which at the others' rate p comes in n answers with probability n p^L < 0.001
        hasty         less than a third of the median time for an item
        apart         less than two thirds of the median agreement

    It is a reason to look, never a verdict.

    >>> conspicuous(Worker(1, answers=60, gold=6, wrong=3, run=58, chance=0.4, seconds=1.0), 8.0, None)
    ('gold', 'same answer', 'hasty')
    """
    enough = one.answers >= FEW
    found = {
        "gold": one.wrong >= 2 and one.wrong >= WRONG * one.gold,
        "same answer": enough and one.answers * one.chance**one.run < RARE,
        "hasty": enough and _below(one.seconds, HASTE, seconds),
        "apart": enough and _below(one.agreement, APART, agree),
    }
    return tuple(word for word, so in found.items() if so)


def _below(own: float | None, part: float, usual: float | None) -> bool:
    return own is not None and usual is not None and own < part * usual
