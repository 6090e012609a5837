"""The submitted answers of a study, read from the event log, and those of them that count."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, and_, select

from crossmatch.data.judgements import ARTIFICIAL, PEOPLE
from crossmatch.study.assignment.reserved_names import ARTIFICIAL_PREFIX
from crossmatch.study.database.schema import claim, event, item, person
from crossmatch.study.design.result_requirements import ids_of

ARTIFICIAL_NAME = re.compile(ARTIFICIAL_PREFIX + r"(-[0-9a-f]{6})?-[0-9]{4,}")
MAX_NAMES = 5  # in a message; the summary file of an export has all
OMITTING_VERDICTS = {"reject": "a reviewer rejected them", "reassign": "a reviewer reassigned their HIT"}


@dataclass(frozen=True)
class StudyItem:
    """An item in its declared order."""

    id: int
    key: str
    images: tuple[str, ...]
    captions: tuple[str, ...]
    block: str
    gold: Mapping[str, Any] | None
    details: Mapping[str, Any] = field(repr=False)

    @property
    def image_ids(self) -> tuple[str, ...]:
        """The ids of the images in the data that the item came from."""
        return ids_of(self.details, "image_id", len(self.images))

    @property
    def caption_ids(self) -> tuple[str, ...]:
        """The ids of the captions in the data that the item came from."""
        return ids_of(self.details, "caption_id", len(self.captions))


@dataclass(frozen=True)
class Answer:
    """The answer of one person to one item."""

    item: StudyItem
    person: str
    claim_id: str
    hit_id: int
    values: Mapping[str, Any]  # by question
    submitted_at: float
    seconds: float | None  # measured by the browser
    is_late: bool
    has_slot: bool  # whether it is one of the answers that the HIT requires: neither rejected nor too late
    has_wrong_gold: bool  # whether a gold question of the HIT was answered wrong
    verdict: str | None
    orders: Mapping[str, Any] = field(repr=False)
    is_quiz: bool = False  # whether it belongs to the test questions before the work

    @property
    def is_artificial(self) -> bool:
        return is_artificial(self.person)

    @property
    def awaits_review(self) -> bool:
        return self.has_wrong_gold and self.verdict is None


@dataclass(frozen=True)
class OmittedAnswers:
    """Submitted answers that do not count, all for the same reason."""

    reason: str
    answers: int
    people: tuple[str, ...]

    @property
    def message(self) -> str:
        """How many answers of whom are left out, and why.

        >>> OmittedAnswers("a reviewer rejected them", 12, ("anna", "ben")).message
        '12 answers of 2 people are left out, because a reviewer rejected them (anna, ben)'
        """
        names = ", ".join(self.people[:MAX_NAMES])
        more = f" and {len(self.people) - MAX_NAMES:,} more" if len(self.people) > MAX_NAMES else ""
        who = ARTIFICIAL if all(map(is_artificial, self.people)) else PEOPLE
        return f"{self.answers:,} answers of {len(self.people):,} {who} are left out, because {self.reason} ({names}{more})"


@dataclass(frozen=True, eq=False)
class StudyAnswers:
    """The answers of a study in the order of submission, also to gold questions but not to the test before the work."""

    submitted: list[Answer]  # also late and rejected ones, and those that await review
    counted: list[Answer]  # those that become the result
    left_out: tuple[OmittedAnswers, ...]  # all others, by reason


def is_artificial(name: str) -> bool:
    """Whether this is the name of an artificial annotator.

    >>> is_artificial("artificial-0007"), is_artificial("artificial-3fa2c1-0001"), is_artificial("artificial flower")
    (True, True, False)
    """
    return ARTIFICIAL_NAME.fullmatch(name) is not None


def answered_by(answers: Iterable[Answer]) -> str:
    """Who gave these answers, as the column `by` of exports says it: people, or artificial annotators."""
    return ARTIFICIAL if any(answer.is_artificial for answer in answers) else PEOPLE


def depend_on_rehearsal(answers: Iterable[Answer]) -> bool:
    """Whether artificial annotators gave these answers, or those of an earlier study whose export the items come from."""
    return any(answer.is_artificial or answer.item.details.get("by") == ARTIFICIAL for answer in answers)


def load_items(connection: Connection, study_id: int) -> dict[int, StudyItem]:
    """The items of a study by their number."""
    rows = connection.execute(select(item).where(item.c.study == study_id).order_by(item.c.id))
    return {
        row.id: StudyItem(row.id, row.key, tuple(row.images), tuple(row.captions), row.block, row.gold, row.body) for row in rows
    }


def read_answers(connection: Connection, study_id: int, *, pending: bool = False) -> StudyAnswers:
    """The answers of a study. Those of artificial annotators are left out as soon as a real person has submitted a HIT.

    Every answer that does not count is in `left_out`, with the reason.

    Args:
        connection: An open transaction.
        study_id: The study.
        pending: Whether HITs with a wrong gold answer count before a reviewer has approved them.
    """
    answers = _read_submitted(connection, study_id)
    has_real_people = not all(answer.is_artificial or answer.is_quiz for answer in answers)
    submitted = [answer for answer in answers if not answer.is_quiz and not (has_real_people and answer.is_artificial)]
    reasons = [_omission_reason(answer, has_real_people, pending) for answer in answers]
    counted = [answer for answer, reason in zip(answers, reasons, strict=True) if not reason]
    omitted: dict[str, list[str]] = {}
    for answer, reason in zip(answers, reasons, strict=True):
        if reason:
            omitted.setdefault(reason, []).append(answer.person)
    left_out = (OmittedAnswers(reason, len(people), tuple(sorted(set(people)))) for reason, people in omitted.items())
    return StudyAnswers(submitted, counted, tuple(left_out))


def _omission_reason(answer: Answer, has_real_people: bool, pending: bool) -> str:
    """Why an answer does not count; empty if it does."""
    if has_real_people and answer.is_artificial:
        return "real people answered too"
    if answer.is_quiz:
        return "they belong to the test before the work"
    if answer.verdict in OMITTING_VERDICTS:
        return OMITTING_VERDICTS[answer.verdict]
    if not answer.has_slot:
        return "their HIT had gone to another person"
    return "they await review" if answer.awaits_review and not pending else ""


def _read_submitted(connection: Connection, study_id: int) -> list[Answer]:
    items = load_items(connection, study_id)
    query = (
        select(event.c.body, event.c.at, claim, person.c.key)
        .join(claim, and_(claim.c.study == event.c.study, claim.c.event == event.c.number))
        .join(person, person.c.id == claim.c.person)
        .where(event.c.study == study_id)
        .order_by(event.c.number)
    )
    answers = []
    for row in connection.execute(query, execution_options={"yield_per": 2000}):
        body = json.loads(row.body)
        times = body["seconds"] or [None] * len(body["answers"])
        answers += [
            Answer(
                item=items[answer["item"]],
                person=row.key,
                claim_id=row.id,
                hit_id=row.hit,
                values=answer["answer"],
                submitted_at=row.at,
                seconds=seconds,
                is_late=body.get("late", False),
                has_slot=row.counted,
                has_wrong_gold=row.doubt,
                verdict=row.verdict,
                orders=answer.get("orders", {}),
                is_quiz=row.slot is None,
            )
            for answer, seconds in zip(body["answers"], times, strict=True)
        ]
    return answers
