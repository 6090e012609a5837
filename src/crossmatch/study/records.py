"""Who answered what, as tables: every answer that counts, every submitted HIT for payment, and every person.

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

from crossmatch.study import people
from crossmatch.study.results import told
from crossmatch.study.said import Said, Study, is_artificial
from crossmatch.study.schema import person
from crossmatch.study.sheets import as_csv

if TYPE_CHECKING:
    from crossmatch.study.store import Campaign

STATUS = {None: "Submitted", "approve": "Approved", "reject": "Rejected", "reassign": "Approved"}
ASSIGNMENT = (
    "HITId", "Title", "Reward", "AssignmentId", "WorkerId", "AssignmentStatus", "SubmitTime", "WorkTimeInSeconds", "Late",
    "WrongGold", "CompletionCode", "Artificial",
)  # fmt: skip
ANSWER = ("item", "person", "question", "answer", "seconds", "at", "hit", "gold", "late", "order", "artificial")
ANNOTATOR = (
    "person", "hits", "answers", "counted", "wrong_gold", "late", "approved", "rejected", "reassigned", "seconds",
    "completion_code", "artificial",
)  # fmt: skip


def completion_codes(campaign: Campaign, connection: Connection, study_id: int) -> dict[str, str]:
    """The code of everybody who was shown one: who has submitted a HIT of the study."""
    rows = connection.execute(select(person.c.id, person.c.key).where(person.c.role == "annotator").order_by(person.c.id)).all()
    found = (
        (row.key, people.completion(campaign, connection, study_id, people.Person(row.id, row.key, "annotator", 0))) for row in rows
    )
    return {key: code[0] for key, code in found if code is not None}


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def answers(said: Sequence[Said]) -> str:
    """Every answer that counts, gold too; `order` is in which order things were shown."""
    rows = (
        (s.thing.key, s.person, name, told(value), s.seconds, _time(s.at), s.hit, int(s.thing.gold is not None), int(s.late),
         json.dumps(s.orders) if s.orders else "", int(s.artificial))
        for s in said for name, value in s.answer.items()
    )  # fmt: skip
    return as_csv(ANSWER, rows)


def by_claim(said: Sequence[Said]) -> list[list[Said]]:
    """The answers of each submitted HIT."""
    out: dict[str, list[Said]] = {}
    for one in said:
        out.setdefault(one.claim, []).append(one)
    return list(out.values())


def _seconds(each: Sequence[Said]) -> float | str:
    times = [s.seconds for s in each if s.seconds is not None]
    return round(sum(times), 1) if times else ""


def assignments(study: Study, said: Sequence[Said], codes: Mapping[str, str]) -> str:
    """One row for each HIT that a person submitted, as MTurk's results have it; late, doubted and rejected ones too."""
    done = by_claim(said)
    names = [q.name for q in study.design.questions]
    most = max(map(len, done), default=0)
    head = [*ASSIGNMENT, *(cell for n in range(1, most + 1) for cell in (f"Input.item_{n}", *(f"Answer.{q}_{n}" for q in names)))]
    recipe = study.design.recipe
    rows = []
    for each in done:
        first = each[0]
        row: list[Any] = [
            first.hit, study.design.title, f"{recipe.pay:.2f} {recipe.currency}" if recipe.pay else "", first.claim, first.person,
            STATUS[first.verdict], _time(first.at), _seconds(each), int(first.late), int(first.doubt),
            codes.get(first.person, ""), int(first.artificial),
        ]  # fmt: skip
        for one in each:
            row += [one.thing.key, *(told(one.answer.get(name, "")) for name in names)]
        rows.append(row + [""] * (len(head) - len(row)))
    return as_csv(head, rows)


def annotators(said: Sequence[Said], counted: Sequence[Said], codes: Mapping[str, str]) -> str:
    """One row for each person who submitted a HIT. `wrong_gold` and what follows are HITs; `counted` are answers."""
    of: dict[str, list[list[Said]]] = {}
    for each in by_claim(said):
        of.setdefault(each[0].person, []).append(each)
    stands: dict[str, int] = {}
    for one in counted:
        stands[one.person] = stands.get(one.person, 0) + 1
    rows = []
    for name, hits in sorted(of.items()):
        firsts = [each[0] for each in hits]
        verdicts = [sum(first.verdict == verdict for first in firsts) for verdict in ("approve", "reject", "reassign")]
        rows.append([
            name, len(hits), sum(map(len, hits)), stands.get(name, 0), sum(f.doubt for f in firsts), sum(f.late for f in firsts),
            *verdicts, _seconds([s for each in hits for s in each]), codes.get(name, ""), int(is_artificial(name)),
        ])  # fmt: skip
    return as_csv(ANNOTATOR, rows)
