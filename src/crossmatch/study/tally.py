"""What the events of a study come to, as columns of numbers: each event is read once, and a review changes what counts.

A tally holds a few numbers for each submitted HIT and each answer, and no text; names of claims and captions are looked up where a
page shows them.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Connection, func, select

from crossmatch.core.arrays import BoolArray, FloatArray, IntArray
from crossmatch.study.design import ONE, Design, Question
from crossmatch.study.schema import claim, event, hit, hit_item, item
from crossmatch.study.shown import design_of
from crossmatch.study.verdicts import VERDICTS

if TYPE_CHECKING:
    from crossmatch.study.store import Campaign

BATCH = 2000  # events read at a time
CHUNK = 500  # names in one statement
TENTHS = 10  # a slider's answers look the same where they are in the same tenth of it
NO = -1  # no place, no verdict, no answer


@dataclass(frozen=True, eq=False)
class Work:
    """Submitted HITs, one row each, in the order in which they came; quizzes are none."""

    event: IntArray  # the number of the event that holds the answers
    person: IntArray
    hit: IntArray
    began: FloatArray
    ended: FloatArray
    items: IntArray  # gold ones among them
    gold: IntArray
    wrong: IntArray
    late: BoolArray
    counted: BoolArray
    verdict: IntArray  # a place in VERDICTS, or NO

    @property
    def waits(self) -> BoolArray:
        """A gold item was answered wrong, and no reviewer has looked at it yet."""
        return np.asarray(self.counted & (self.wrong > 0) & (self.verdict == NO))

    @property
    def stands(self) -> BoolArray:
        """Whether its answers are among the results: what waits for a reviewer is not, until it is approved."""
        return np.asarray(self.counted & ~self.waits)


@dataclass(frozen=True, eq=False)
class Said:
    """Answers to the main question, one row each, in the order in which they were given.

    `value` is a number on the slider, or a place among `names` of the question; `looked` is the same, but by what stood on the
    page: the left picture, whichever it was; of a slider it is the tenth.
    """

    work: IntArray  # the row of its HIT
    item: IntArray
    at: IntArray  # its place in the HIT as it was shown
    question: IntArray  # a place among the tally's questions, or NO: it was not asked
    value: FloatArray
    looked: IntArray
    place: IntArray  # of what was chosen among things shown in a random order, or NO
    places: IntArray  # how many of them there were
    gold: BoolArray
    seconds: FloatArray  # as the browser measured them; NaN where it did not


WORK = {"event": "q", "person": "q", "hit": "q", "began": "d", "ended": "d", "items": "q", "gold": "q", "wrong": "q", "late": "b",
        "counted": "b", "verdict": "b"}  # fmt: skip
SAID = {"work": "q", "item": "q", "at": "i", "question": "b", "value": "d", "looked": "i", "place": "h", "places": "h", "gold": "b",
        "seconds": "d"}  # fmt: skip
TRUE_OR_FALSE = ("late", "counted", "gold")


@dataclass(frozen=True)
class Asked:
    """A question whose answers are counted, and the names of the answers that were seen, in the order of their codes."""

    question: Question
    names: tuple[str, ...]
    shuffled: bool  # whether the things that one chooses among stand in a random order


@dataclass(frozen=True, eq=False)
class Snapshot:
    """All that was submitted up to an event."""

    number: int  # of the last event that changed anything here
    design: Design
    asked: tuple[Asked, ...]
    work: Work
    said: Said
    quizzes: Mapping[int, bool]  # of each person who took the quiz: whether they passed

    @cached_property
    def counts(self) -> BoolArray:
        """The answers that count: of HITs that stand, to items that are not gold, to the main question."""
        return np.asarray(self.work.stands[self.said.work] & ~self.said.gold & (self.said.question != NO))

    @property
    def slides(self) -> bool:
        """Whether the main question is a slider."""
        return self.asked[0].question.kind == "slider"

    @cached_property
    def comparable(self) -> BoolArray:
        """The answers to the main question, gold items apart, that can be compared: all numbers on sliders, or all names."""
        slides = np.array([asked.question.kind == "slider" for asked in self.asked])
        asked = ~self.said.gold & (self.said.question != NO)
        return np.asarray(asked & (slides[self.said.question] == self.slides))

    @property
    def alike(self) -> BoolArray:
        """Those of them that count."""
        return self.comparable & self.counts

    @cached_property
    def person(self) -> IntArray:
        """Who gave each answer."""
        return self.work.person[self.said.work]


def joined(*columns: IntArray) -> IntArray:
    """One number for each row of several columns of numbers from 0 on: equal rows have equal ones, in the order of the columns.

    >>> joined(np.array([0, 1, 1]), np.array([2, 0, 2]))
    array([2, 3, 5])
    """
    out = columns[0]
    for column in columns[1:]:
        out = out * (int(column.max(initial=0)) + 1) + column
    return out


def main_questions(design: Design) -> tuple[Question, ...]:
    """The question whose answers count; where a block does not ask it, the first one that the block does ask."""
    return tuple(dict.fromkeys((design.main, *map(design.main_in, design.shows.blocks))))


@dataclass(frozen=True)
class Size:
    """How much there is to do: HITs, items without gold ones, and answers wanted of each HIT."""

    hits: int
    items: int
    people: int


def size_of(connection: Connection, study_id: int, design: Design) -> Size:
    """Counted once, for it never changes. Every HIT has as many gold items as the recipe says."""
    asked = (hit.c.study == study_id, ~hit.c.quiz)
    hits = connection.execute(select(func.count()).select_from(hit).where(*asked)).scalar_one()
    joined = select(func.count()).select_from(hit).join(hit_item, hit_item.c.hit == hit.c.id)
    placed = connection.execute(joined.where(*asked)).scalar_one()
    gold = design.recipe.gold_positive + design.recipe.gold_negative
    return Size(hits, placed - gold * hits, design.recipe.people)


class Tally:
    """The events of one study, read so far. One thread reads; what it has made of them is in snapshots, which never change."""

    def __init__(self, campaign: Campaign, study_id: int) -> None:
        self.campaign, self.study = campaign, study_id
        with campaign.reading() as connection:
            self.design = design_of(connection, study_id)
            self.size = size_of(connection, study_id, self.design)
        self.number = 0  # of the last event that was read
        self.questions = main_questions(self.design)
        self._changed, self._made = 0, -1
        self._codes: list[dict[str, int]] = [{} for _ in self.questions]
        self._held: dict[str, tuple[int, float]] = {}  # HIT and time of each claim that is not submitted
        self._work = {name: array(kind) for name, kind in WORK.items()}
        self._said = {name: array(kind) for name, kind in SAID.items()}
        self._gold: dict[int, bool] = {}
        self._quizzes: dict[int, bool] = {}
        self._snapshot: Snapshot | None = None

    def read(self) -> int:
        """Read the next events; how many there were."""
        with self.campaign.reading() as connection:
            columns = (event.c.number, event.c.at, event.c.kind, event.c.person, event.c.claim, event.c.body)
            asked = select(*columns).where(event.c.study == self.study, event.c.number > self.number).order_by(event.c.number)
            rows = connection.execute(asked.limit(BATCH)).all()
            told = [json.loads(row.body) if row.kind in ("claim", "submit", "review") else {} for row in rows]
            self._learn_gold(connection, told)
            submitted = _submissions(connection, [row.claim for row in rows if row.kind == "review"])
        for row, body in zip(rows, told, strict=True):
            if row.kind == "claim":
                self._held.setdefault(row.claim, (body["hit"], row.at))  # who lost it and got it again has one beginning
            elif row.kind == "submit":
                self._submitted(row, body)
            elif row.kind == "review":
                self._reviewed(row.number, submitted[row.claim], body)
            self.number = row.number
        return len(rows)

    def snapshot(self) -> Snapshot:
        """What was read so far; the same one as long as nothing has changed."""
        if self._snapshot is None or self._made != self._changed:
            asked = tuple(
                Asked(q, tuple(codes), q.among in self.design.shows.shuffle)
                for q, codes in zip(self.questions, self._codes, strict=True)
            )
            work, said = Work(**_arrays(self._work)), Said(**_arrays(self._said))
            self._snapshot = Snapshot(self._changed, self.design, asked, work, said, dict(self._quizzes))
            self._made = self._changed
        return self._snapshot

    def _learn_gold(self, connection: Connection, told: Iterable[Mapping[str, Any]]) -> None:
        """Which of the answered items are gold; asked of each item once, and not at all where the recipe has none."""
        if not self.design.recipe.gold_positive + self.design.recipe.gold_negative:
            return
        answered = {each["item"] for body in told if "quiz" not in body for each in body.get("answers", ())}
        for some in _chunks(sorted(answered - self._gold.keys())):
            for row in connection.execute(select(item.c.id, item.c.gold).where(item.c.id.in_(some))):
                self._gold[row.id] = row.gold is not None

    def _submitted(self, row: Any, body: Mapping[str, Any]) -> None:
        self._changed = row.number
        hit_id, began = self._held.pop(row.claim)
        if body.get("quiz"):
            self._quizzes[row.person] = body["passed"]
            return
        answers = body["answers"]
        _append(
            self._work, event=row.number, person=row.person, hit=hit_id, began=began, ended=row.at, items=len(answers),
            gold=sum(self._gold.get(each["item"], False) for each in answers), wrong=len(body["wrong"]), late=body["late"],
            counted=body["counted"], verdict=NO,
        )  # fmt: skip
        number, seconds = len(self._work["event"]) - 1, body["seconds"] or [np.nan] * len(answers)
        for at, (each, took) in enumerate(zip(answers, seconds, strict=True)):
            gold = self._gold.get(each["item"], False)
            _append(self._said, work=number, item=each["item"], at=at, gold=gold, seconds=took, **self._coded(each))

    def _coded(self, each: Mapping[str, Any]) -> dict[str, float]:
        """An answer to the main question, as numbers."""
        at = next((n for n, q in enumerate(self.questions) if q.name in each["answer"]), NO)
        if at == NO:
            return {"question": NO, "value": 0.0, "looked": 0, "place": NO, "places": 0}
        question, codes = self.questions[at], self._codes[at]
        value = each["answer"][question.name]
        if question.kind == "slider":
            tenth = int(TENTHS * (value - question.low) / (question.high - question.low))
            return {"question": at, "value": value, "looked": min(tenth, TENTHS - 1), "place": NO, "places": 0}
        order = each["orders"].get(question.among, ())
        place = place_of(question, value, order)
        name = ", ".join(value) if isinstance(value, list) else value
        looked = name if place == NO else f"{ONE[question.among]}-{place}"
        code = {text: codes.setdefault(text, len(codes)) for text in (name, looked)}
        return {"question": at, "value": code[name], "looked": code[looked], "place": place, "places": len(order)}

    def _reviewed(self, number: int, submission: int, body: Mapping[str, Any]) -> None:
        row = bisect_left(self._work["event"], submission)
        self._work["verdict"][row] = VERDICTS.index(body["verdict"]) if body["verdict"] in VERDICTS else NO  # undone
        self._work["counted"][row] = body["counted"]
        self._changed = number


def place_of(question: Question, value: Any, order: Sequence[int]) -> int:
    """Where on the page stood what was chosen, if it was one of the things shown.

    >>> place_of(Question("q", "Which?", among="images"), "image-0", [1, 0])
    1
    """
    if not order or not isinstance(value, str) or value in {option.value for option in question.options}:
        return NO
    return order.index(int(value.rpartition("-")[2]))


def _submissions(connection: Connection, claims: list[str]) -> dict[str, int]:
    """The numbers of the events by which these claims were submitted."""
    found: dict[str, int] = {}
    for some in _chunks(sorted(set(claims))):
        rows = connection.execute(select(claim.c.id, claim.c.event).where(claim.c.id.in_(some)))
        found |= {row.id: row.event for row in rows}
    return found


def _chunks(names: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (names[n : n + CHUNK] for n in range(0, len(names), CHUNK))


def _append(columns: Mapping[str, array[Any]], **row: float) -> None:
    for name, column in columns.items():
        column.append(row[name])


def _arrays(columns: Mapping[str, array[Any]]) -> dict[str, Any]:
    kinds: dict[str, Any] = {"d": np.float64, **dict.fromkeys("qih", np.int64)}
    return {
        name: np.array(column, dtype=kinds.get(column.typecode, bool if name in TRUE_OR_FALSE else np.int64))
        for name, column in columns.items()
    }
