"""What an owner wants to know of a study: how far it is, how long it takes, what it costs, how people work, and how far they agree.

Pure functions over a snapshot of the tally; only `slots` asks the database. What cannot be said yet is None, with a reason where a
page shows one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
from sqlalchemy import Connection, func, select

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.metrics.answers import Answers
from crossmatch.metrics.coefficient import Agreement
from crossmatch.metrics.cohen import PairKappas, cohen_pairs
from crossmatch.metrics.raters import fleiss, krippendorff
from crossmatch.metrics.sides import SideBias, side_bias
from crossmatch.study import events
from crossmatch.study.design import ONE, PLACE, Question, Recipe
from crossmatch.study.schema import BUSY, FREE, slot
from crossmatch.study.tally import NO, Asked, Size, Snapshot, Work, joined
from crossmatch.study.verdicts import VERDICTS

REJECTED = VERDICTS.index("reject")
LATEST = 100  # HITs by which the pace is told
SHARED = 10  # items that two people must share for a kappa of theirs
MOST_PEOPLE = 60  # whose pairs are compared: 1,770 kappas at most


# -- how far


@dataclass(frozen=True)
class Slots:
    """The answers that are wanted, by what has become of them."""

    open: int = 0
    held: int = 0
    review: int = 0
    done: int = 0

    @property
    def all(self) -> int:
        return self.open + self.held + self.review + self.done

    @property
    def left(self) -> int:
        """Still to be answered."""
        return self.open + self.held


def slots(connection: Connection, study_id: int) -> Slots:
    """The slots of a study.

    How many there are stands in its first event; those that are free or in somebody's hands are counted over indexes; the rest is
    done.
    """
    first = events.body(connection, study_id, 1)
    counted = select(func.count()).select_from(slot).where(slot.c.study == study_id)
    free = connection.execute(counted.where(FREE)).scalar_one()
    by_state = select(slot.c.state, func.count()).where(slot.c.study == study_id, BUSY).group_by(slot.c.state)
    busy = {str(state): int(n) for state, n in connection.execute(by_state)}
    held, review = busy.get("held", 0), busy.get("review", 0)
    return Slots(free - held, held, review, first["hits"] * first["people"] - free - review)


def complete_items(work: Work, size: Size) -> int:
    """Items that have all the answers that are wanted; gold ones are none."""
    _, first, times = np.unique(work.hit[work.stands], return_index=True, return_counts=True)
    items = (work.items - work.gold)[work.stands][first]
    return int(items[times >= size.people].sum())


# -- how long


@dataclass(frozen=True)
class Quartiles:
    """A quarter is below `low`, half below `median`, a quarter above `high`."""

    low: float
    median: float
    high: float
    n: int


def quartiles(values: FloatArray) -> Quartiles | None:
    """
    >>> quartiles(np.array([1.0, 2.0, 3.0, 5.0, 9.0]))
    Quartiles(low=2.0, median=3.0, high=5.0, n=5)
    """
    if not len(values):
        return None
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    return Quartiles(low, median, high, len(values))


def seconds_per_item(work: Work) -> FloatArray:
    """Of each HIT: the time from its claim to its submission, over its items. Pauses are part of it."""
    return np.asarray((work.ended - work.began) / work.items, dtype=np.float64)


@dataclass(frozen=True)
class Left:
    """When the work will be done: `seconds` at the pace of the latest HITs, `work` if one person did it all without a pause."""

    seconds: float | None
    work: float | None
    reason: str = ""


def time_left(work: Work, left: int, now: float) -> Left:
    """At the pace of the latest HITs that count, counted until now: where nobody works any more, the pace falls."""
    if not left:
        return Left(0.0, 0.0)
    if not work.counted.any():
        return Left(None, None, "nobody has submitted anything that counts yet.")
    alone = left * float(np.median((work.ended - work.began)[work.counted]))
    latest = np.sort(work.ended[work.counted])[-LATEST:]
    since = now - float(latest[0])
    if len(latest) < 2 or since <= 0:
        return Left(None, alone, "one HIT tells no pace.")
    return Left(left * since / (len(latest) - 1), alone)


# -- what it costs


@dataclass(frozen=True)
class Money:
    """What people and the platform get. `hourly` is what people earn in an hour: the median over HITs that are paid."""

    currency: str
    paid: int  # HITs
    so_far: float
    total: float
    hourly: float | None


def money(recipe: Recipe, work: Work, left: int) -> Money:
    """Submitted HITs are paid unless they were rejected, late ones too; what is left to do will be."""
    paid = work.verdict != REJECTED
    each = recipe.pay * (1 + recipe.fee)
    hours = (work.ended - work.began)[paid] / 3600
    hourly = float(np.median(recipe.pay / hours[hours > 0])) if recipe.pay and (hours > 0).any() else None
    return Money(recipe.currency, int(paid.sum()), each * int(paid.sum()), each * (int(paid.sum()) + left), hourly)


# -- how far people agree


@dataclass(frozen=True)
class Measured:
    """Agreement on one question, and whether places are favoured: by the number of places, `bias`, or why it is not tested."""

    question: Question
    level: str
    answers: int
    krippendorff: Agreement
    fleiss: Agreement
    cohen: PairKappas | None  # none: `no_cohen` says why
    no_cohen: str
    left_out: int  # people whose pairs were not compared, because there are too many
    bias: tuple[tuple[int, SideBias], ...]
    no_bias: str


SLIDER = "answers on a slider are numbers, which are hardly ever equal. Krippendorff's alpha takes how far apart they are."
ALONE = "each item is judged by one person, so there is nothing to compare."


def measured(seen: Snapshot, at: int) -> Measured:
    """Agreement on the question at this place, from the answers that count; gold items apart."""
    asked, rows = seen.asked[at], seen.counts & (seen.said.question == at)
    item, person, value = seen.said.item[rows], seen.person[rows], seen.said.value[rows]
    level, scale = level_of(asked)
    named = asked.question.kind != "slider"
    if named and asked.shuffled:
        value, asked = numbered_anew(item, value.astype(np.int64), seen.said.places[rows], asked)
    code = value.astype(np.int64) if named else value
    alpha = krippendorff(Answers(item, person, scale[code] if scale is not None else code), level)
    if not named or seen.design.recipe.people < 2:
        reason = SLIDER if not named else ALONE
        return Measured(
            asked.question, level, len(value), alpha, Agreement.undefined(reason, 0, 0), None, reason, 0, *place_bias(seen, at)
        )
    said = Answers(item, person, code)
    among, left_out = _busiest(said)
    pairs = cohen_pairs(among, SHARED)
    return Measured(
        asked.question, level, len(value), _worded(alpha, asked) if scale is None else alpha,
        _worded(fleiss(said, seen.design.recipe.people), asked), pairs, "", left_out, *place_bias(seen, at),
    )  # fmt: skip


def numbered_anew(item: IntArray, code: IntArray, places: IntArray, asked: Asked) -> tuple[IntArray, Asked]:
    """Codes in which the things that one chooses among have other numbers for each item, drawn at random; and what they stand for.

        image-n  ->  image-((n + h_i) mod k)        of k images; h_i is a hash of item i

    Which image of an item is called `image-0` says nothing to those who see them in an order of their own, but it may say all to
    those who wrote the items: in BISON and in BiVLC the first one is the right one. Then good people all answer `image-0`, a
    coefficient takes that for a habit by which they would agree on any item, and comes out as 0 however well they agree. Numbered
    anew, what is chosen is as often any of the k, which is how people who guess would choose, and agreement by chance is theirs:
    two people who are right with probability a and choose among two have κ = (2a - 1)². Equal answers stay equal and others stay
    others; options that are no things (`both`, `none`) keep their names, for a liking of these is a habit that people can have.
    Where things stand in one order for all (not shuffled) a liking of a place is such a habit as well, and names are kept.

    >>> asked = Asked(Question("which", "Which?", among="images"), ("image-0", "both"), shuffled=True)
    >>> codes, again = numbered_anew(np.arange(6), np.array([0, 0, 0, 0, 0, 1]), np.full(6, 2), asked)
    >>> [again.names[code] for code in codes]
    ['image-1', 'image-0', 'image-1', 'image-0', 'image-1', 'both']
    """
    kinds, of = np.unique(np.stack([code, _hashed(item) % np.maximum(places, 1), places]), axis=1, return_inverse=True)
    names = [_moved(asked.names[c], turn, k, asked.question) for c, turn, k in kinds.T.tolist()]
    known = {name: n for n, name in enumerate(dict.fromkeys(names))}
    return np.array([known[name] for name in names], dtype=np.int64)[of.ravel()], replace(asked, names=tuple(known))


def _moved(name: str, turn: int, k: int, question: Question) -> str:
    """The name of an answer, or of several, with the things in it so many numbers further."""
    own = {option.value for option in question.options}
    parts = [
        part if part in own or not PLACE.fullmatch(part) else f"{ONE[question.among]}-{(int(part.rpartition('-')[2]) + turn) % k}"
        for part in ([name] if question.kind == "choice" else name.split(", "))
    ]
    return ", ".join(sorted(parts) if len(parts) > 1 else parts)


def _hashed(numbers: IntArray) -> IntArray:
    """Numbers mixed so that neighbours have nothing in common: splitmix64 (steele2014fast)."""
    x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)


def level_of(asked: Asked) -> tuple[str, FloatArray | None]:
    """Whether answers are names or numbers; and the grade of each code, where all options have one."""
    question = asked.question
    if question.kind == "slider":
        return "interval", None
    grades = {option.value: option.grade for option in question.options}
    if question.kind == "several" or question.among or None in grades.values():
        return "nominal", None
    return "interval", np.array([grades[name] for name in asked.names], dtype=np.float64)


def _busiest(said: Answers) -> tuple[Answers, int]:
    """The answers of those who gave most, if there are too many people to compare all."""
    people, times = np.unique(said.person, return_counts=True)
    busiest = people[np.argsort(-times, kind="stable")[:MOST_PEOPLE]]
    return said.among(np.isin(said.person, busiest)), len(people) - len(busiest)


def _worded(found: Agreement, asked: Asked) -> Agreement:
    """The reason with the answer's name instead of its code."""
    anew = f" ({asked.question.among} are numbered anew for each item)" * asked.shuffled
    reason = re.sub(r"the value (\d+)", lambda code: f"“{asked.names[int(code[1])]}”{anew}", found.reason)
    return Agreement(found.value, found.low, found.high, found.items, found.people, found.observed, found.left_out, reason)


def place_bias(seen: Snapshot, at: int) -> tuple[tuple[tuple[int, SideBias], ...], str]:
    """How the choices fell on the places of the page, for each number of places; or why that tells nothing."""
    asked = seen.asked[at]
    if asked.question.kind == "slider":
        return (), "on a slider nothing stands beside another."
    if not asked.question.among:
        return (), "the options stand in the same order on every page, so a place cannot be told from what stands there."
    if not asked.shuffled:
        return (), f"the {asked.question.among} stand in the declared order, so a place cannot be told from what stands there."
    rows = seen.counts & (seen.said.question == at) & (seen.said.place != NO) & (seen.said.places > 1)
    place, places = seen.said.place[rows], seen.said.places[rows]
    found = [(k, side_bias(*np.bincount(place[places == k], minlength=k).tolist())) for k in np.unique(places).tolist()]
    return tuple(found), "" if found else "nothing was chosen yet."


# -- where they differ


@dataclass(frozen=True, eq=False)
class Differing:
    """Items on which people differ, the most first: bits of entropy of a choice, the standard deviation of a slider."""

    item: IntArray
    spread: FloatArray
    answers: IntArray


NOWHERE = Differing(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))


def differing(seen: Snapshot) -> Differing:
    """Of the answers that count; items with fewer than two, or on which all agree, are left out."""
    rows = seen.alike
    item, at = np.unique(seen.said.item[rows], return_inverse=True)
    number = np.bincount(at, minlength=len(item))
    spread = (_deviations if seen.slides else _entropies)(at, seen.said.value[rows], len(item))
    kept = np.flatnonzero(spread > 1e-9)
    order = kept[np.lexsort((item[kept], -np.round(spread[kept], 9)))]  # what differs by rounding alone is level
    return Differing(item[order], spread[order], number[order])


def _entropies(at: IntArray, value: FloatArray, items: int) -> FloatArray:
    """H = Σ_k p_k log2 1/p_k of each item."""
    _, first, times = np.unique(joined(at, value.astype(np.int64)), return_index=True, return_counts=True)
    of = at[first]
    total = np.bincount(of, weights=times, minlength=items)
    share = times / total[of]
    return np.asarray(np.bincount(of, weights=-share * np.log2(share), minlength=items), dtype=np.float64)


def _deviations(at: IntArray, value: FloatArray, items: int) -> FloatArray:
    """The standard deviation of each item, over its number of answers."""
    number = np.bincount(at, minlength=items)
    mean = np.bincount(at, weights=value, minlength=items) / number
    return np.asarray(np.sqrt(np.bincount(at, weights=(value - mean[at]) ** 2, minlength=items) / number), dtype=np.float64)
