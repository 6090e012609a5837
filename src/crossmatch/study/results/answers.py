"""The submitted answers of a study, read from the event log. No other table holds them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, and_, or_, select, true

from crossmatch.study.database.schema import claim, event, item, person
from crossmatch.study.design.result_requirements import ids_of

ARTIFICIAL_NAME = re.compile(r"artificial(-[0-9a-f]{6})?-[0-9]{4,}")  # reserved for artificial annotators


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
    has_wrong_gold: bool  # whether a gold question of the HIT was answered wrong
    verdict: str | None
    orders: Mapping[str, Any] = field(repr=False)

    @property
    def is_artificial(self) -> bool:
        return is_artificial(self.person)


def is_artificial(name: str) -> bool:
    """Whether this is the name of an artificial annotator.

    >>> is_artificial("artificial-0007"), is_artificial("artificial-3fa2c1-0001"), is_artificial("artificial flower")
    (True, True, False)
    """
    return ARTIFICIAL_NAME.fullmatch(name) is not None


def load_items(connection: Connection, study_id: int) -> dict[int, StudyItem]:
    """The items of a study by their number."""
    rows = connection.execute(select(item).where(item.c.study == study_id).order_by(item.c.id))
    return {
        row.id: StudyItem(row.id, row.key, tuple(row.images), tuple(row.captions), row.block, row.gold, row.body) for row in rows
    }


def read_counted_answers(connection: Connection, study_id: int, *, pending: bool = False) -> Iterator[Answer]:
    """The answers that count, also to gold questions, in the order of submission.

    Args:
        connection: An open transaction.
        study_id: The study.
        pending: Whether HITs with a wrong gold answer count before a reviewer has approved them.
    """
    is_accepted = true() if pending else or_(~claim.c.doubt, claim.c.verdict == "approve")
    return _read_answers(connection, study_id, and_(claim.c.counted, is_accepted))


def read_all_answers(connection: Connection, study_id: int) -> Iterator[Answer]:
    """All submitted answers except those to quizzes: also late, doubted and rejected ones."""
    return _read_answers(connection, study_id, claim.c.slot.is_not(None))


def _read_answers(connection: Connection, study_id: int, condition: Any) -> Iterator[Answer]:
    items = load_items(connection, study_id)
    query = (
        select(event.c.body, event.c.at, claim, person.c.key)
        .join(claim, and_(claim.c.study == event.c.study, claim.c.event == event.c.number))
        .join(person, person.c.id == claim.c.person)
        .where(event.c.study == study_id, condition)
        .order_by(event.c.number)
    )
    for row in connection.execute(query, execution_options={"yield_per": 2000}):
        body = json.loads(row.body)
        times = body["seconds"] or [None] * len(body["answers"])
        for answer, seconds in zip(body["answers"], times, strict=True):
            yield Answer(
                item=items[answer["item"]],
                person=row.key,
                claim_id=row.id,
                hit_id=row.hit,
                values=answer["answer"],
                submitted_at=row.at,
                seconds=seconds,
                is_late=body.get("late", False),
                has_wrong_gold=row.doubt,
                verdict=row.verdict,
                orders=answer.get("orders", {}),
            )
