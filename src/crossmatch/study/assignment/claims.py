"""Claims, drafts and submissions. Each is one transaction, and there is one writer at a time.

- A slot is one of a HIT's required answers. It is open, held by a person until the lease ends, in review, or done.
- Somebody who holds a HIT gets the same HIT again, in the same order, until it is submitted or has gone to somebody else.
- Drafts renew the lease, up to a limit. A lease is checked only when somebody claims: a slot whose lease has ended goes to the next
  person, before slots that were never held.
- A late submission counts if the slot is still the person's. Otherwise it is stored, flagged, and does not count.
- A person never gets the same item twice, in whatever HIT, and cannot take part in two studies that exclude each other.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from crossmatch.data.errors import CrossmatchError
from crossmatch.study.assignment.displayed_hits import (
    NO_SUCH_HIT,
    SESSION_EXPIRED,
    Hit,
    NotFoundError,
    SessionExpiredError,
    is_gold_correct,
    load_hit,
    load_study_design,
    to_declared_places,
)
from crossmatch.study.database import events, queries
from crossmatch.study.database.schema import barred, claim, draft, exclusion, hit, member, person, slot, study
from crossmatch.study.design.declaration import Design, check_answer

if TYPE_CHECKING:
    from crossmatch.study.database.campaign import Campaign

MAX_LEASES = 4  # drafts extend a claim to at most this many leases, so that a page left open does not block a HIT forever


class NoHitAvailableError(CrossmatchError):
    """There is no HIT for this person.

    Attributes:
        reason: `agree`, `qualify`, `excluded`, `limit`, `closed` or `none`.
    """

    def __init__(self, reason: str, text: str) -> None:
        self.reason = reason
        super().__init__(text)


@dataclass(frozen=True)
class Receipt:
    """The result of a submission."""

    claim_id: str
    is_repeat: bool  # it was submitted before, and nothing has changed
    is_counted: bool
    is_late: bool
    passed_quiz: bool | None = None  # None: not a quiz


# -- claiming


def claim_hit(campaign: Campaign, study_id: int, person_id: int) -> str:
    """Claim a HIT: the person's unfinished one, or else the first that is free for them.

    Returns:
        The id of the claim.

    Raises:
        NoHitAvailableError: There is no HIT for this person.
    """
    return claim_and_load(campaign, study_id, person_id).claim_id


def claim_and_load(campaign: Campaign, study_id: int, person_id: int, session_number: int | None = None) -> Hit:
    """Claim a HIT as `claim_hit` does, and load it. A session number must be the person's current one."""
    with campaign.write_transaction() as connection:
        _require_session(connection, person_id, session_number)
        claim_id = _claim(connection, study_id, person_id, campaign.now())
        return load_hit(connection, claim_id, person_id)


def _require_session(connection: Connection, person_id: int, session_number: int | None) -> None:
    current = connection.execute(select(person.c.sessions).where(person.c.id == person_id)).scalar()
    if current is None:
        raise NotFoundError("This person does not exist. Join the study first.")
    if session_number is not None and session_number != current:
        raise SessionExpiredError(SESSION_EXPIRED)


def _claim(connection: Connection, study_id: int, person_id: int, now: float) -> str:
    design = load_study_design(connection, study_id)
    ids = {"study_id": study_id, "person_id": person_id}
    unfinished = connection.execute(queries.UNFINISHED_CLAIMS, ids).all()
    held_claim = next((row for row in unfinished if row.is_held), None)
    if held_claim is not None:
        _extend_lease(connection, held_claim, design, now)
        return str(held_claim.id)
    claim_id = secrets.token_hex(16)
    limits = {**ids, "now": now, "hit_limit": design.recipe.hits_per_person or queries.NO_LIMIT}
    lease_end = now + 60 * design.recipe.lease_minutes
    taken = connection.execute(queries.TAKE_SLOT, {**limits, "claim_id": claim_id, "lease_end": lease_end}).first()
    if taken is None:
        if not _needs_quiz(connection, design, study_id, person_id):
            raise _explain_no_hit(connection, design, study_id, person_id)
        if connection.execute(queries.SLOT_AFTER_QUIZ, limits).scalar() is None:  # no HIT would follow the quiz
            raise _explain_no_hit(connection, design, study_id, person_id, ignore_quiz=True)
        quiz_id = connection.execute(select(hit.c.id).where(hit.c.study == study_id, hit.c.quiz).limit(1)).scalar_one()
        _insert_claim(connection, claim_id, study_id, person_id, quiz_id, None, now)
        events.append_event(connection, study_id, now, "claim", person_id, claim_id, hit=quiz_id, quiz=True)
        return claim_id
    earlier = next((row.id for row in unfinished if row.hit == taken.hit), None)
    if earlier is None:
        _insert_claim(connection, claim_id, study_id, person_id, taken.hit, taken.id, now)
    else:  # the person had lost this HIT: with a second claim they could submit it twice
        claim_id = str(earlier)
        connection.execute(update(claim).where(claim.c.id == claim_id).values(slot=taken.id))
        connection.execute(update(slot).where(slot.c.id == taken.id).values(claim=claim_id))
    events.append_event(connection, study_id, now, "claim", person_id, claim_id, hit=taken.hit, slot=taken.number)
    return claim_id


def _insert_claim(
    connection: Connection, claim_id: str, study_id: int, person_id: int, hit_id: int, slot_id: int | None, now: float
) -> None:
    values = {"id": claim_id, "study": study_id, "person": person_id, "hit": hit_id, "slot": slot_id, "at": now}
    connection.execute(insert(claim), values)
    bar_overlapping = queries.BAR_OVERLAPPING_HITS[connection.dialect.name]
    connection.execute(bar_overlapping, {"person_id": person_id, "hit_id": hit_id})


def has_unfinished_hit(connection: Connection, study_id: int, person_id: int) -> bool:
    """Whether a person holds a HIT of this study."""
    unfinished = connection.execute(queries.UNFINISHED_CLAIMS, {"study_id": study_id, "person_id": person_id})
    return any(row.is_held and row.slot is not None for row in unfinished)


def _explain_no_hit(
    connection: Connection, design: Design, study_id: int, person_id: int, ignore_quiz: bool = False
) -> NoHitAvailableError:
    """Why there is no HIT for this person; reasons that they can do something about come first."""
    if not connection.execute(select(study.c.open).where(study.c.id == study_id)).scalar_one():
        return NoHitAvailableError("closed", "This study is closed. Thank you for your interest.")
    membership = connection.execute(select(member).where(member.c.study == study_id, member.c.person == person_id)).first()
    if membership is None or not membership.consented:
        return NoHitAvailableError("agree", "You have not agreed to take part yet. Read the first page of the study and agree.")
    if not membership.qualified and not ignore_quiz:
        return NoHitAvailableError(
            "qualify", "You did not pass the test questions at the beginning, so you cannot continue. Thank you for your interest."
        )
    excluded = select(claim.c.id).join(exclusion, claim.c.study == exclusion.c.other)
    if connection.execute(excluded.where(exclusion.c.study == study_id, claim.c.person == person_id).limit(1)).first():
        return NoHitAvailableError(
            "excluded", "You took part in a related study, so this one is reserved for other people. Thank you."
        )
    limit = design.recipe.hits_per_person
    if limit and membership.submitted >= limit:
        return NoHitAvailableError("limit", "You have reached the maximum number of tasks per person. Thank you.")
    return NoHitAvailableError("none", "There are no more tasks for you at the moment. Thank you.")


def _needs_quiz(connection: Connection, design: Design, study_id: int, person_id: int) -> bool:
    if not design.recipe.quiz:
        return False
    membership = connection.execute(select(member).where(member.c.study == study_id, member.c.person == person_id)).first()
    if membership is None or not membership.consented or membership.qualified:
        return False
    attempts = select(claim.c.id).where(claim.c.study == study_id, claim.c.person == person_id, claim.c.slot.is_(None))
    return connection.execute(attempts.limit(1)).first() is None


def _extend_lease(connection: Connection, held_claim: Any, design: Design, now: float) -> None:
    """Extend the lease of a HIT that its person opens again. A quiz has no lease.

    A HIT whose lease has ended goes to the first person who asks: here its own person, as if they claimed it now.
    """
    if held_claim.slot is not None:
        if held_claim.lease < now:
            lease_end = now + 60 * design.recipe.lease_minutes
        else:
            lease_end = max(held_claim.lease, _renewed_lease(held_claim.at, design, now))
        connection.execute(update(slot).where(slot.c.id == held_claim.slot).values(lease=lease_end))


def _renewed_lease(claimed_at: float, design: Design, now: float) -> float:
    """The end of the lease of somebody who is at work."""
    lease = 60 * design.recipe.lease_minutes
    return float(min(now + lease, claimed_at + MAX_LEASES * lease))


# -- submitting


def submit(
    campaign: Campaign,
    claim_id: str,
    person_id: int,
    answers: object,
    seconds: Sequence[float] | None = None,
    session_number: int | None = None,
) -> Receipt:
    """Store the answers to all items of a HIT. A second submission changes nothing and says so.

    Args:
        campaign: The campaign.
        claim_id: The claim on the HIT.
        person_id: Who submits.
        answers: A list with one object for each item, in the displayed order: question name to value.
        seconds: The time for each item as the browser measured it.
        session_number: The person's session, which must not have ended; None where there is no session.

    Raises:
        CrossmatchError: An answer is missing or not allowed.
    """
    with campaign.write_transaction() as connection:
        claimed_hit = load_hit(connection, claim_id, person_id, session_number)
        if claimed_hit.is_submitted:
            outcome = events.read_body(connection, claimed_hit.study_id, claimed_hit.event_number or 0)
            return _make_receipt(claim_id, outcome, is_repeat=True)
        pairs = list(zip(claimed_hit.items, check_answers(claimed_hit, answers), strict=True))
        shuffled = claimed_hit.design.shows.shuffle
        answers_with_orders = [
            {"item": displayed.item_id, "answer": answer, "orders": {side: displayed.orders[side] for side in shuffled}}
            for displayed, answer in pairs
        ]
        wrong = [
            displayed.key for displayed, answer in pairs if displayed.gold is not None and not is_gold_correct(displayed, answer)
        ]
        times = _check_seconds(seconds, len(claimed_hit.items))
        return _store_answers(connection, claimed_hit, campaign.now(), answers=answers_with_orders, seconds=times, wrong=wrong)


def check_answers(claimed_hit: Hit, answers: object) -> list[dict[str, Any]]:
    """Check the answers to all items, in the displayed order, and translate them to declared places."""
    if not isinstance(answers, list) or len(answers) != len(claimed_hit.items):
        number = len(answers) if isinstance(answers, list) else "no"
        raise CrossmatchError(f"Got {number} answers for {len(claimed_hit.items)} items. Answer each item.")
    checked = []
    for n, (displayed, answer) in enumerate(zip(claimed_hit.items, answers, strict=True), 1):
        try:
            checked.append(to_declared_places(displayed, check_answer(displayed.questions, displayed.counts, answer)))
        except CrossmatchError as error:
            raise CrossmatchError(f"Item {n}: {error}") from None
    return checked


def _store_answers(connection: Connection, claimed_hit: Hit, now: float, **body: Any) -> Receipt:
    """Append the submission to the event log, and update the claim, its slot and the person's progress."""
    study_id, person_id, claim_id = claimed_hit.study_id, claimed_hit.person_id, claimed_hit.claim_id
    is_counted = not claimed_hit.is_quiz and claimed_hit.lease_end is not None  # without a lease the slot went to somebody else
    has_wrong_gold = not claimed_hit.is_quiz and bool(body["wrong"])
    if claimed_hit.is_quiz:
        passed = 1 - len(body["wrong"]) / len(claimed_hit.items) >= claimed_hit.design.recipe.quiz_share
        outcome: dict[str, Any] = {"quiz": True, "passed": passed}
        progress: dict[str, Any] = {"qualified": passed}
    else:
        outcome = {"late": claimed_hit.lease_end is None or claimed_hit.lease_end < now, "counted": is_counted}
        progress = {"submitted": member.c.submitted + 1}
    number = events.append_event(connection, study_id, now, "submit", person_id, claim_id, **outcome, **body)
    if is_counted:
        state = "review" if has_wrong_gold else "done"
        connection.execute(update(slot).where(slot.c.id == claimed_hit.slot_id).values(state=state, lease=None))
    values = {"submitted": now, "event": number, "counted": is_counted, "doubt": has_wrong_gold}
    connection.execute(update(claim).where(claim.c.id == claim_id).values(**values))
    connection.execute(insert(barred), {"person": person_id, "hit": claimed_hit.hit_id})
    if claimed_hit.draft_number:
        connection.execute(draft.delete().where(draft.c.claim == claim_id))
    connection.execute(update(member).where(member.c.study == study_id, member.c.person == person_id).values(**progress))
    return _make_receipt(claim_id, outcome, is_repeat=False)


def _make_receipt(claim_id: str, outcome: Mapping[str, Any], is_repeat: bool) -> Receipt:
    is_counted, is_late = outcome.get("counted", False), outcome.get("late", False)
    return Receipt(claim_id, is_repeat, is_counted, is_late, outcome.get("passed"))


def _check_seconds(seconds: Sequence[float] | None, n: int) -> list[float] | None:
    """The seconds per item as the browser measured them, or None if they make no sense. They only serve statistics."""
    if not isinstance(seconds, list) or len(seconds) != n:
        return None
    if not all(isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e6 for value in seconds):
        return None
    return [round(float(value), 1) for value in seconds]


# -- drafts


def save_draft(campaign: Campaign, claim_id: str, person_id: int, number: int, answers: Any) -> float | None:
    """Store the answers so far. An older draft never replaces a newer one, and a submitted HIT takes no draft.

    A draft shows that the person is at work, so it renews the lease, up to `MAX_LEASES` leases after the claim.

    Returns:
        The new end of the lease, or None if it was not renewed.
    """
    with campaign.write_transaction() as connection:
        claim_row = connection.execute(select(claim).where(claim.c.id == claim_id, claim.c.person == person_id)).first()
        if claim_row is None:
            raise NotFoundError(NO_SUCH_HIT)
        if claim_row.submitted is not None:
            return None
        dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        new_draft = dialect.insert(draft).values(claim=claim_id, number=number, body=answers)
        connection.execute(
            new_draft.on_conflict_do_update(
                index_elements=[draft.c.claim], set_={"number": number, "body": answers}, where=draft.c.number < number
            )
        )
        lease_end = _renewed_lease(claim_row.at, load_study_design(connection, claim_row.study), campaign.now())
        is_held = (slot.c.id == claim_row.slot, slot.c.claim == claim_id, slot.c.state == "held", slot.c.lease < lease_end)
        renewed = connection.execute(update(slot).where(*is_held).values(lease=lease_end).returning(slot.c.lease)).first()
        return None if renewed is None else float(renewed.lease)
