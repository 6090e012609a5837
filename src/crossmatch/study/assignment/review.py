"""Reviews: verdicts on submitted HITs, and opening or closing a study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import Connection, select, update

from crossmatch.data.errors import CrossmatchError
from crossmatch.study.assignment.displayed_hits import NotFoundError, load_hit
from crossmatch.study.database import events
from crossmatch.study.database.schema import claim, person, slot, study

if TYPE_CHECKING:
    from crossmatch.study.database.campaign import Campaign

Verdict = Literal["approve", "reject", "reassign"]
VERDICTS: tuple[Verdict, ...] = ("approve", "reject", "reassign")
UNDO: Literal["undo"] = "undo"  # withdraws a verdict


class ReviewConflictError(CrossmatchError):
    """A verdict that cannot be given: the HIT is the reviewer's own, or its slot has gone to somebody else."""


def review(campaign: Campaign, claim_id: str, reviewer_id: int | None, verdict: Verdict | Literal["undo"]) -> bool:
    """Record a reviewer's verdict on a submitted HIT.

        approve     the answers count
        reject      they do not count and are not paid; the HIT is open for another person
        reassign    they do not count but are paid; the HIT is open for another person
        undo        withdraws the verdict: the answers count or await review, as when they were submitted

    `undo` or `approve` after `reject` takes the slot back, or another slot of the HIT if one is still open.

    Returns:
        Whether the answers count now.
    """
    if verdict not in (*VERDICTS, UNDO):
        raise CrossmatchError(f"Unknown verdict {str(verdict)[:40]!r}; expected one of {', '.join((*VERDICTS, UNDO))}.")
    now = campaign.now()
    with campaign.write_transaction() as connection:
        row = connection.execute(select(claim).where(claim.c.id == claim_id)).first()
        if row is None or row.submitted is None or row.slot is None:
            raise NotFoundError("This HIT does not exist or is not submitted. Reload the page.")
        if reviewer_id is not None and had_hit(connection, reviewer_id, row.hit):
            raise ReviewConflictError("You worked on this HIT yourself, so another person must review it.")
        if verdict == UNDO and row.verdict is None:
            raise ReviewConflictError("This HIT has no verdict to undo. Reload the page.")
        outcome = _reopen_slot(connection, row) if verdict in ("reject", "reassign") else _count_answers(connection, row, verdict)
        values = {"verdict": None if verdict == UNDO else verdict, "counted": outcome["counted"]}
        connection.execute(update(claim).where(claim.c.id == claim_id).values(**values))
        events.append_event(connection, row.study, now, "review", reviewer_id, claim_id, verdict=verdict, **outcome)
        return bool(outcome["counted"])


@dataclass(frozen=True)
class PendingReview:
    """A submitted HIT that awaits review."""

    id: str
    hit_id: int
    person: str
    wrong: int  # gold questions with a wrong answer
    gold: int
    seconds: float  # measured by the browser, else from claim to submission


def list_pending(connection: Connection, study_id: int) -> list[PendingReview]:
    """The HITs of a study that await review, oldest first."""
    query = (
        select(claim, person.c.key)
        .join(slot, (slot.c.claim == claim.c.id) & (slot.c.state == "review"))
        .join(person, person.c.id == claim.c.person)
        .where(claim.c.study == study_id)
        .order_by(claim.c.event)
    )
    return [_pending_review(connection, row) for row in connection.execute(query).all()]


def find_missing_assignments(connection: Connection, study_id: int, ids: Sequence[str]) -> list[str]:
    """Those of the ids that are not submitted assignments of this study."""
    query = select(claim.c.id).where(
        claim.c.id.in_(ids), claim.c.study == study_id, claim.c.submitted.is_not(None), claim.c.slot.is_not(None)
    )
    submitted = set(connection.execute(query).scalars())
    return [assignment for assignment in ids if assignment not in submitted]


def _pending_review(connection: Connection, row: Any) -> PendingReview:
    body = events.read_body(connection, row.study, row.event)
    seconds = sum(body["seconds"]) if body["seconds"] else max(0.0, row.submitted - row.at)
    gold = sum(displayed.gold is not None for displayed in load_hit(connection, row.id).items)
    return PendingReview(row.id, row.hit, row.key, len(body["wrong"]), gold, seconds)


def had_hit(connection: Connection, person_id: int, hit_id: int) -> bool:
    """Whether a person has ever claimed a HIT; then they must not review it."""
    claims = select(claim.c.id).where(claim.c.person == person_id, claim.c.hit == hit_id)
    return connection.execute(claims.limit(1)).first() is not None


def _reopen_slot(connection: Connection, row: Any) -> dict[str, Any]:
    """Open the slot of a HIT for another person, if these answers fill it."""
    is_filled = (slot.c.id == row.slot, slot.c.claim == row.id, slot.c.state.in_(("review", "done")))
    connection.execute(update(slot).where(*is_filled).values(state="open", person=None, claim=None, lease=0.0))
    return {"counted": False}


def _count_answers(connection: Connection, row: Any, verdict: str) -> dict[str, Any]:
    """Let the answers of a HIT count, if they did when they were submitted and the HIT still has a slot for them."""
    if not row.counted and not events.read_body(connection, row.study, row.event)["counted"]:
        return {"counted": False}  # somebody else had the slot by then
    columns = (slot.c.id, slot.c.number)
    if row.counted:
        query = select(*columns).where(slot.c.id == row.slot, slot.c.claim == row.id)
    else:
        is_open = (slot.c.hit == row.hit, slot.c.state == "open")
        query = select(*columns).where(*is_open).order_by(slot.c.id != row.slot, slot.c.id).limit(1)
    free_slot = connection.execute(query).first()
    if free_slot is None and verdict == UNDO:
        raise ReviewConflictError(
            "The HIT has gone to another person in the meantime, so these answers cannot count again. "
            "Choose reassign to pay for them anyway."
        )
    if free_slot is None:
        return {"counted": False}
    state = "review" if verdict == UNDO and row.doubt else "done"
    values = {"state": state, "person": row.person, "claim": row.id, "lease": None}
    connection.execute(update(slot).where(slot.c.id == free_slot.id).values(**values))
    connection.execute(update(claim).where(claim.c.id == row.id).values(slot=free_slot.id))
    return {"counted": True, "slot": free_slot.number}


def set_open(campaign: Campaign, study_id: int, is_open: bool, person_id: int | None = None) -> None:
    """Open or close a study. A closed study hands out no HITs, but accepts submissions of claimed ones."""
    with campaign.write_transaction() as connection:
        connection.execute(update(study).where(study.c.id == study_id).values(open=is_open))
        events.append_event(connection, study_id, campaign.now(), "open" if is_open else "close", person_id)
