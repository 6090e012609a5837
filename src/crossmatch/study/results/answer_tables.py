"""The csv tables of an export that list answers, HITs and people.

answers.csv         one row for each person, item and question
assignments.csv     one row for each submitted HIT, in the columns of MTurk's results, with the person's completion code
annotators.csv      one row for each person
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select

from crossmatch.data.io.spreadsheet_csv import format_csv
from crossmatch.study.assignment.people import Person, completion_code
from crossmatch.study.database.schema import person
from crossmatch.study.results.answers import Answer, is_artificial
from crossmatch.study.results.item_decisions import answer_as_text

if TYPE_CHECKING:
    from crossmatch.study.database.campaign import Campaign
    from crossmatch.study.study import Study

STATUS = {None: "Submitted", "approve": "Approved", "reject": "Rejected", "reassign": "Approved"}
ASSIGNMENT_COLUMNS = (
    "HITId", "Title", "Reward", "AssignmentId", "WorkerId", "AssignmentStatus", "SubmitTime", "WorkTimeInSeconds", "Late",
    "WrongGold", "CompletionCode", "Artificial",
)  # fmt: skip
ANSWER_COLUMNS = ("item", "person", "question", "answer", "seconds", "at", "hit", "gold", "late", "order", "artificial")
ANNOTATOR_COLUMNS = (
    "person", "hits", "answers", "counted", "wrong_gold", "late", "approved", "rejected", "reassigned", "seconds",
    "completion_code", "artificial",
)  # fmt: skip


def completion_codes(campaign: Campaign, connection: Connection, study_id: int) -> dict[str, str]:
    """The completion code of everybody who has submitted a HIT of the study, by name."""
    rows = connection.execute(select(person.c.id, person.c.key).where(person.c.role == "annotator").order_by(person.c.id)).all()
    codes = {}
    for row in rows:
        code = completion_code(campaign, connection, study_id, Person(row.id, row.key, "annotator", 0))
        if code is not None:
            codes[row.key] = code[0]
    return codes


def _format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def answers_csv(answers: Sequence[Answer]) -> str:
    """Every answer that counts, also to gold questions; `order` is the displayed order."""
    rows = (
        (
            answer.item.key,
            answer.person,
            question,
            answer_as_text(value),
            answer.seconds,
            _format_time(answer.submitted_at),
            answer.hit_id,
            int(answer.item.gold is not None),
            int(answer.is_late),
            json.dumps(answer.orders) if answer.orders else "",
            int(answer.is_artificial),
        )
        for answer in answers
        for question, value in answer.values.items()
    )
    return format_csv(ANSWER_COLUMNS, rows)


def _group_by_claim(answers: Sequence[Answer]) -> list[list[Answer]]:
    """The answers of each submitted HIT."""
    groups: dict[str, list[Answer]] = {}
    for answer in answers:
        groups.setdefault(answer.claim_id, []).append(answer)
    return list(groups.values())


def _total_seconds(answers: Sequence[Answer]) -> float | str:
    times = [answer.seconds for answer in answers if answer.seconds is not None]
    return round(sum(times), 1) if times else ""


def assignments_csv(study: Study, answers: Sequence[Answer], codes: Mapping[str, str]) -> str:
    """One row for each submitted HIT as in MTurk's results, also late and rejected ones."""
    submissions = _group_by_claim(answers)
    questions = [question.name for question in study.design.questions]
    most_items = max(map(len, submissions), default=0)
    item_columns = [
        column for n in range(1, most_items + 1) for column in (f"Input.item_{n}", *(f"Answer.{name}_{n}" for name in questions))
    ]
    header = [*ASSIGNMENT_COLUMNS, *item_columns]
    recipe = study.design.recipe
    reward = f"{recipe.pay:.2f} {recipe.currency}" if recipe.pay else ""
    rows = []
    for submission in submissions:
        first = submission[0]
        row: list[Any] = [
            first.hit_id,
            study.design.title,
            reward,
            first.claim_id,
            first.person,
            STATUS[first.verdict],
            _format_time(first.submitted_at),
            _total_seconds(submission),
            int(first.is_late),
            int(first.has_wrong_gold),
            codes.get(first.person, ""),
            int(first.is_artificial),
        ]
        for answer in submission:
            row += [answer.item.key, *(answer_as_text(answer.values.get(name, "")) for name in questions)]
        rows.append(row + [""] * (len(header) - len(row)))
    return format_csv(header, rows)


def annotators_csv(answers: Sequence[Answer], counted: Sequence[Answer], codes: Mapping[str, str]) -> str:
    """One row for each person who submitted a HIT. `wrong_gold` to `reassigned` count HITs, `counted` counts answers."""
    submissions_of: dict[str, list[list[Answer]]] = {}
    for submission in _group_by_claim(answers):
        submissions_of.setdefault(submission[0].person, []).append(submission)
    counted_of: dict[str, int] = {}
    for answer in counted:
        counted_of[answer.person] = counted_of.get(answer.person, 0) + 1
    rows = []
    for name, submissions in sorted(submissions_of.items()):
        firsts = [submission[0] for submission in submissions]
        rows.append(
            [
                name,
                len(submissions),
                sum(map(len, submissions)),
                counted_of.get(name, 0),
                sum(first.has_wrong_gold for first in firsts),
                sum(first.is_late for first in firsts),
                *(sum(first.verdict == verdict for first in firsts) for verdict in ("approve", "reject", "reassign")),
                _total_seconds([answer for submission in submissions for answer in submission]),
                codes.get(name, ""),
                int(is_artificial(name)),
            ]
        )
    return format_csv(ANNOTATOR_COLUMNS, rows)
