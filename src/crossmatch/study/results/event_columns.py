"""The events of a study as NumPy columns. Each event is read once; a review changes what counts.

A reader keeps a few numbers for each submitted HIT and each answer, and no texts. Pages look up names and captions themselves.
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

from crossmatch.data.arrays import BoolArray, FloatArray, IntArray
from crossmatch.study.assignment.displayed_hits import load_study_design
from crossmatch.study.assignment.review import VERDICTS
from crossmatch.study.database.schema import claim, event, hit, hit_item, item
from crossmatch.study.design.declaration import Design, Question
from crossmatch.study.design.places import Place, parse_place

if TYPE_CHECKING:
    from crossmatch.study.database.campaign import Campaign

BATCH = 2000  # events read at a time
CHUNK = 500  # values in the IN list of a query
SLIDER_PARTS = 10  # slider answers in the same tenth look the same
NONE = -1  # no place, no verdict, no answer


@dataclass(frozen=True, eq=False)
class HitColumns:
    """Submitted HITs without quizzes, one row each, in the order of submission."""

    event: IntArray  # number of the event with the answers
    person: IntArray
    hit: IntArray
    began: FloatArray
    ended: FloatArray
    items: IntArray  # with gold questions
    gold: IntArray
    wrong: IntArray
    late: BoolArray
    counted: BoolArray
    verdict: IntArray  # index into VERDICTS, or NONE

    @property
    def seconds(self) -> FloatArray:
        """Seconds from claim to submission; 0 where the clock was set back in between."""
        return np.maximum(self.ended - self.began, 0.0)

    @property
    def awaits_review(self) -> BoolArray:
        """Whether a gold question was answered wrong and the HIT is not reviewed yet."""
        return np.asarray(self.counted & (self.wrong > 0) & (self.verdict == NONE))

    @property
    def in_results(self) -> BoolArray:
        """Whether the answers are part of the results; those of a HIT that awaits review are not."""
        return np.asarray(self.counted & ~self.awaits_review)


@dataclass(frozen=True, eq=False)
class AnswerColumns:
    """Answers to the main question, one row each, in the order of submission.

    `value` is a slider value, or an index into the answer names of the question. `displayed` is the same by what was on the page:
    the left image, whichever it was; for a slider the tenth.
    """

    hit_row: IntArray  # row in HitColumns
    item: IntArray
    at: IntArray  # displayed position of the item in the HIT
    question: IntArray  # index into the snapshot's questions; NONE: not asked
    value: FloatArray
    displayed: IntArray
    place: IntArray  # displayed place of the choice among shuffled images, captions or lists, or NONE
    places: IntArray  # number of these images, captions or lists
    gold: BoolArray
    seconds: FloatArray  # measured by the browser; NaN if it did not


HIT_TYPES = {
    "event": "q", "person": "q", "hit": "q", "began": "d", "ended": "d", "items": "q", "gold": "q", "wrong": "q", "late": "b",
    "counted": "b", "verdict": "b",
}  # fmt: skip
ANSWER_TYPES = {
    "hit_row": "q", "item": "q", "at": "i", "question": "b", "value": "d", "displayed": "i", "place": "h", "places": "h",
    "gold": "b", "seconds": "d",
}  # fmt: skip
BOOLEAN_COLUMNS = ("late", "counted", "gold")


@dataclass(frozen=True)
class CountedQuestion:
    """A question whose answers count, and the names of its answers by code."""

    question: Question
    answer_names: tuple[str, ...]
    is_shuffled: bool  # whether the images, captions or lists to choose among are shuffled


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Everything that was submitted up to an event."""

    last_event: int  # number of the last event that changed something here
    design: Design
    questions: tuple[CountedQuestion, ...]
    hits: HitColumns
    answers: AnswerColumns
    quizzes: Mapping[int, bool]  # person to whether they passed the quiz

    @cached_property
    def is_counted(self) -> BoolArray:
        """Whether each answer counts: it is to the main question of an item that is not gold, in a HIT that is in the results."""
        return np.asarray(self.hits.in_results[self.answers.hit_row] & ~self.answers.gold & (self.answers.question != NONE))

    @property
    def is_slider(self) -> bool:
        """Whether the main question is a slider."""
        return self.questions[0].question.kind == "slider"

    @cached_property
    def is_comparable(self) -> BoolArray:
        """Whether each answer can be compared with others: not gold, and a slider value like the main question, or a name."""
        sliders = np.array([question.question.kind == "slider" for question in self.questions])
        is_answered = ~self.answers.gold & (self.answers.question != NONE)
        return np.asarray(is_answered & (sliders[self.answers.question] == self.is_slider))

    @property
    def is_compared(self) -> BoolArray:
        """Whether each answer is comparable and counts."""
        return self.is_comparable & self.is_counted

    @cached_property
    def person(self) -> IntArray:
        """The person of each answer."""
        return self.hits.person[self.answers.hit_row]


def combine_columns(*columns: IntArray) -> IntArray:
    """One number for each row of several columns of non-negative integers; equal rows have equal numbers, ordered by the columns.

    >>> combine_columns(np.array([0, 1, 1]), np.array([2, 0, 2]))
    array([2, 3, 5])
    """
    combined = columns[0]
    for column in columns[1:]:
        combined = combined * (int(column.max(initial=0)) + 1) + column
    return combined


def main_questions(design: Design) -> tuple[Question, ...]:
    """The main question of the design, and that of each block which does not ask it."""
    return tuple(dict.fromkeys((design.main_question, *map(design.main_question_for, design.shows.blocks))))


@dataclass(frozen=True)
class StudySize:
    """The number of HITs, of items without gold questions, and of required answers for each HIT."""

    hits: int
    items: int
    people: int


def load_size(connection: Connection, study_id: int, design: Design) -> StudySize:
    """The size of a study, which never changes. Every HIT has as many gold questions as the recipe says."""
    is_hit = (hit.c.study == study_id, ~hit.c.quiz)
    hits = connection.execute(select(func.count()).select_from(hit).where(*is_hit)).scalar_one()
    count = select(func.count()).select_from(hit).join(hit_item, hit_item.c.hit == hit.c.id)
    items = connection.execute(count.where(*is_hit)).scalar_one()
    gold = design.recipe.gold_positive + design.recipe.gold_negative
    return StudySize(hits, items - gold * hits, design.recipe.people)


class EventReader:
    """Reads the events of a study in batches. One thread reads; other threads use snapshots, which never change."""

    def __init__(self, campaign: Campaign, study_id: int) -> None:
        self.campaign, self.study_id = campaign, study_id
        with campaign.read_transaction() as connection:
            self.design = load_study_design(connection, study_id)
            self.size = load_size(connection, study_id, self.design)
        self.number = 0  # of the last event that was read
        self.questions = main_questions(self.design)
        self._last_change, self._snapshot_change = 0, -1
        self._codes: list[dict[str, int]] = [{} for _ in self.questions]
        self._claims: dict[str, tuple[int, float]] = {}  # HIT and time of each unsubmitted claim
        self._hits = {name: array(kind) for name, kind in HIT_TYPES.items()}
        self._answers = {name: array(kind) for name, kind in ANSWER_TYPES.items()}
        self._is_gold: dict[int, bool] = {}
        self._quizzes: dict[int, bool] = {}
        self._snapshot: Snapshot | None = None

    def read_batch(self) -> int:
        """Read the next events; returns their number."""
        with self.campaign.read_transaction() as connection:
            columns = (event.c.number, event.c.at, event.c.kind, event.c.person, event.c.claim, event.c.body)
            query = select(*columns).where(event.c.study == self.study_id, event.c.number > self.number)
            rows = connection.execute(query.order_by(event.c.number).limit(BATCH)).all()
            bodies = [json.loads(row.body) if row.kind in ("claim", "submit", "review") else {} for row in rows]
            self._load_gold(connection, bodies)
            submissions = _load_submissions(connection, [row.claim for row in rows if row.kind == "review"])
        for row, body in zip(rows, bodies, strict=True):
            if row.kind == "claim":
                self._claims.setdefault(row.claim, (body["hit"], row.at))  # a claim that was lost and regained began once
            elif row.kind == "submit":
                self._add_submission(row, body)
            elif row.kind == "review":
                self._add_review(row.number, submissions[row.claim], body)
            self.number = row.number
        return len(rows)

    def snapshot(self) -> Snapshot:
        """What was read so far; the same object as long as nothing has changed."""
        if self._snapshot is None or self._snapshot_change != self._last_change:
            questions = tuple(
                CountedQuestion(question, tuple(codes), question.among in self.design.shows.shuffle)
                for question, codes in zip(self.questions, self._codes, strict=True)
            )
            hits, answers = HitColumns(**_as_arrays(self._hits)), AnswerColumns(**_as_arrays(self._answers))
            self._snapshot = Snapshot(self._last_change, self.design, questions, hits, answers, dict(self._quizzes))
            self._snapshot_change = self._last_change
        return self._snapshot

    def _load_gold(self, connection: Connection, bodies: Iterable[Mapping[str, Any]]) -> None:
        """Load which of the answered items are gold, once for each item, if the recipe has gold questions."""
        if not self.design.recipe.gold_positive + self.design.recipe.gold_negative:
            return
        answered = {answer["item"] for body in bodies if "quiz" not in body for answer in body.get("answers", ())}
        for ids in _chunks(sorted(answered - self._is_gold.keys())):
            for row in connection.execute(select(item.c.id, item.c.gold).where(item.c.id.in_(ids))):
                self._is_gold[row.id] = row.gold is not None

    def _add_submission(self, row: Any, body: Mapping[str, Any]) -> None:
        self._last_change = row.number
        hit_id, began = self._claims.pop(row.claim)
        if body.get("quiz"):
            self._quizzes[row.person] = body["passed"]
            return
        answers = body["answers"]
        _append_row(
            self._hits, event=row.number, person=row.person, hit=hit_id, began=began, ended=row.at, items=len(answers),
            gold=sum(self._is_gold.get(answer["item"], False) for answer in answers), wrong=len(body["wrong"]), late=body["late"],
            counted=body["counted"], verdict=NONE,
        )  # fmt: skip
        hit_row, times = len(self._hits["event"]) - 1, body["seconds"] or [np.nan] * len(answers)
        for at, (answer, seconds) in enumerate(zip(answers, times, strict=True)):
            gold, item_id = self._is_gold.get(answer["item"], False), answer["item"]
            codes = self._encode_answer(answer)
            _append_row(self._answers, hit_row=hit_row, item=item_id, at=at, gold=gold, seconds=seconds, **codes)

    def _encode_answer(self, answer: Mapping[str, Any]) -> dict[str, float]:
        """The answer to the main question as numbers."""
        n = next((n for n, question in enumerate(self.questions) if question.name in answer["answer"]), NONE)
        if n == NONE:
            return {"question": NONE, "value": 0.0, "displayed": 0, "place": NONE, "places": 0}
        question, codes = self.questions[n], self._codes[n]
        value = answer["answer"][question.name]
        if question.kind == "slider":
            part = int(SLIDER_PARTS * (value - question.low) / (question.high - question.low))
            return {"question": n, "value": value, "displayed": min(part, SLIDER_PARTS - 1), "place": NONE, "places": 0}
        order = answer["orders"].get(question.among, ())
        place = displayed_place(value, order)
        name = ", ".join(value) if isinstance(value, list) else value
        displayed_name = name if place == NONE else Place(question.among, place).value
        code, displayed = (codes.setdefault(text, len(codes)) for text in (name, displayed_name))
        return {"question": n, "value": code, "displayed": displayed, "place": place, "places": len(order)}

    def _add_review(self, number: int, submission: int, body: Mapping[str, Any]) -> None:
        row = bisect_left(self._hits["event"], submission)
        is_verdict = body["verdict"] in VERDICTS  # or it withdraws one
        self._hits["verdict"][row] = VERDICTS.index(body["verdict"]) if is_verdict else NONE
        self._hits["counted"][row] = body["counted"]
        self._last_change = number


def displayed_place(value: object, order: Sequence[int]) -> int:
    """The place on the page of the chosen image, caption or list; NONE if the choice was an option, or places are not shuffled.

    >>> displayed_place("image-0", [1, 0]), displayed_place("both", [1, 0])
    (1, -1)
    """
    place = parse_place(value) if order else None
    return NONE if place is None else order.index(place.n)


def _load_submissions(connection: Connection, claims: list[str]) -> dict[str, int]:
    """The numbers of the events with the submissions of these claims."""
    numbers: dict[str, int] = {}
    for ids in _chunks(sorted(set(claims))):
        rows = connection.execute(select(claim.c.id, claim.c.event).where(claim.c.id.in_(ids)))
        numbers |= {row.id: row.event for row in rows}
    return numbers


def _chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (values[n : n + CHUNK] for n in range(0, len(values), CHUNK))


def _append_row(columns: Mapping[str, array[Any]], **row: float) -> None:
    for name, column in columns.items():
        column.append(row[name])


def _as_arrays(columns: Mapping[str, array[Any]]) -> dict[str, Any]:
    types: dict[str, Any] = {"d": np.float64, **dict.fromkeys("qih", np.int64)}
    return {
        name: np.array(column, dtype=types.get(column.typecode, bool if name in BOOLEAN_COLUMNS else np.int64))
        for name, column in columns.items()
    }
