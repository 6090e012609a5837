"""What people say of others' work: verdicts on submitted HITs, and whether a study is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import Connection, select, update

from crossmatch.core.errors import CrossmatchError
from crossmatch.study import events
from crossmatch.study.schema import claim, slot, study
from crossmatch.study.shown import NotYours

if TYPE_CHECKING:
    from crossmatch.study.store import Campaign

Verdict = Literal["approve", "reject", "reassign"]
VERDICTS: tuple[Verdict, ...] = ("approve", "reject", "reassign")
UNDO: Literal["undo"] = "undo"  # takes a verdict back


class NotReviewed(CrossmatchError):  # noqa: N818 - it says what was not done
    """What a reviewer said cannot be: the HIT is their own, or has gone to another person."""


def review(campaign: Campaign, claim_id: str, reviewer: int | None, verdict: Verdict | Literal["undo"]) -> bool:
    """What a reviewer says of a submitted HIT; whether its answers count afterwards.

    approve     they count
    reject      they do not count, are not paid, and the HIT is open for another person
    reassign    they do not count, are paid, and the HIT is open for another person
    undo        nothing was said: they count, or wait for a reviewer, as when they were submitted

    Who undoes or approves what was rejected takes the slot back, or another one of the HIT, if one is still open.
    """
    if verdict not in (*VERDICTS, UNDO):
        raise CrossmatchError(f"the verdict is {str(verdict)[:40]!r}; one of {', '.join((*VERDICTS, UNDO))} was expected.")
    now = campaign.now()
    with campaign.writing() as connection:
        row = connection.execute(select(claim).where(claim.c.id == claim_id).with_for_update()).first()
        if row is None or row.submitted is None or row.slot is None:
            raise NotYours("there is no submitted HIT of this name. Reload the page.")
        if reviewer is not None and answered(connection, reviewer, row.hit):
            raise NotReviewed("you were given this HIT yourself, so another person must review it.")
        if verdict == UNDO and row.verdict is None:
            raise NotReviewed("nothing was said of this HIT yet, so there is nothing to undo. Reload the page.")
        told = _free(connection, row) if verdict in ("reject", "reassign") else _count(connection, row, verdict)
        said = None if verdict == UNDO else verdict
        connection.execute(update(claim).where(claim.c.id == claim_id).values(verdict=said, counted=told["counted"]))
        events.append(connection, row.study, now, "review", reviewer, claim_id, verdict=verdict, **told)
        return bool(told["counted"])


def answered(connection: Connection, person_id: int, hit_id: int) -> bool:
    """Whether a person was given a HIT themselves: then they are no judge of it."""
    mine = select(claim.c.id).where(claim.c.person == person_id, claim.c.hit == hit_id)
    return connection.execute(mine.limit(1)).first() is not None


def _free(connection: Connection, row: Any) -> dict[str, Any]:
    """Open the slot of a HIT for another person, if these answers fill it."""
    filled = (slot.c.id == row.slot, slot.c.claim == row.id, slot.c.state.in_(("review", "done")))
    connection.execute(update(slot).where(*filled).values(state="open", person=None, claim=None, lease=0.0))
    return {"counted": False}


def _count(connection: Connection, row: Any, verdict: str) -> dict[str, Any]:
    """Let the answers of a HIT count, if they did when they were submitted, and if its slot is still there for them."""
    if not row.counted and not events.body(connection, row.study, row.event)["counted"]:
        return {"counted": False}  # another had the HIT by then
    free = select(slot.c.id, slot.c.number).where(slot.c.hit == row.hit, slot.c.state == "open")
    nearest = free.order_by(slot.c.id != row.slot, slot.c.id).limit(1).with_for_update(skip_locked=True)
    mine = select(slot.c.id, slot.c.number).where(slot.c.id == row.slot, slot.c.claim == row.id).with_for_update()
    place = connection.execute(mine if row.counted else nearest).first()
    if place is None and verdict == UNDO:
        raise NotReviewed(
            "the HIT has gone to another person meanwhile, so these answers cannot count again. Reassign it, and they are paid all "
            "the same."
        )
    if place is None:
        return {"counted": False}
    state = "review" if verdict == UNDO and row.doubt else "done"
    held = {"state": state, "person": row.person, "claim": row.id, "lease": None}
    connection.execute(update(slot).where(slot.c.id == place.id).values(**held))
    connection.execute(update(claim).where(claim.c.id == row.id).values(slot=place.id))
    return {"counted": True, "slot": place.number}


def set_open(campaign: Campaign, study_id: int, is_open: bool, by: int | None = None) -> None:
    """Open or close a study: a closed one hands nothing out, and takes what was handed out."""
    with campaign.writing() as connection:
        connection.execute(update(study).where(study.c.id == study_id).values(open=is_open))
        events.append(connection, study_id, campaign.now(), "open" if is_open else "close", by)
