"""Who gets what: claims, submissions and reviews. Each is one transaction, and each decision one statement in it.

- A slot is one answer that is wanted of a HIT. It is open, held by a person until its lease ends, under review, or done.
- A person who holds a HIT gets it again, in the same order, until it is submitted or another one has taken it over.
- A lease is renewed by drafts, for a while. It is looked at only when somebody claims: a slot whose lease has ended goes to the
  next who asks, before those that nobody had yet.
- Who comes late finds the slot still theirs, and the answers count; or taken over, and they are kept, flagged, and do not count.
- Nobody gets an item twice, in whatever HIT it is, nor takes part in two studies that exclude each other.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import Connection, select, update
from sqlalchemy.dialects import postgresql, sqlite

from crossmatch.core.errors import CrossmatchError
from crossmatch.study import events, queries
from crossmatch.study.design import Design, check_answer
from crossmatch.study.schema import claim, draft, exclusion, hit, member, slot, study
from crossmatch.study.shown import Hit, NotYours, as_declared, design_of, load_hit, right

if TYPE_CHECKING:
    from crossmatch.study.store import Campaign

Verdict = Literal["approve", "reject", "reassign"]
VERDICTS: tuple[Verdict, ...] = ("approve", "reject", "reassign")
UNDO: Literal["undo"] = "undo"  # takes a verdict back
LEASES = 4  # for so many a HIT is kept while drafts of it come; a page that is left open must not keep it from others for ever


class Nothing(CrossmatchError):  # noqa: N818 - there is nothing to be had, which is no accident
    """There is no HIT for this person; `why` is one word: agree, qualify, excluded, limit, closed, or none."""

    def __init__(self, why: str, text: str) -> None:
        self.why = why
        super().__init__(text)


class NotReviewed(CrossmatchError):  # noqa: N818 - it says what was not done
    """What a reviewer said cannot be: the HIT is their own, or has gone to another person."""


@dataclass(frozen=True)
class Receipt:
    """What a submission came to. `again`: it had been submitted before, and nothing was changed."""

    claim: str
    again: bool
    counted: bool
    late: bool
    passed: bool | None = None  # of a quiz


# -- claiming


def claim_hit(campaign: Campaign, study_id: int, person_id: int) -> str:
    """The claim on a HIT: the one that the person has not finished, or else the first that is free for them."""
    now = campaign.now()
    who = {"its_person": person_id, "its_study": study_id}
    with campaign.writing() as connection:
        _lock(connection, person_id)
        design = design_of(connection, study_id)
        begun = connection.execute(queries.UNFINISHED, who).all()
        held = next((one for one in begun if one.theirs), None)
        if held is not None and _kept(connection, held, design, now):
            return str(held.id)
        quiz = _needs_quiz(connection, design, study_id, person_id)
        when = {**who, "its_now": now, "its_limit": design.recipe.hits_per_person or queries.NO_LIMIT}
        if quiz and connection.execute(queries.FREE_AFTER_QUIZ, when).scalar() is not None:  # or they would answer it for nothing
            return _claim_quiz(connection, study_id, person_id, now)
        token = secrets.token_hex(16)
        taking = {**when, "its_claim": token, "its_lease": now + 60 * design.recipe.lease_minutes}
        free = None if quiz else connection.execute(queries.TAKE_SLOT, taking).first()
        if free is None:
            raise _why_nothing(connection, design, study_id, person_id, quiz)
        before = next((one.id for one in begun if one.hit == free.hit), None)
        if before is None:
            _new_claim(connection, token, study_id, free.hit, free.id, person_id, now)
        else:  # who had lost this HIT has the same claim again, or they could submit it twice
            token = before
            connection.execute(update(claim).where(claim.c.id == token).values(slot=free.id))
            connection.execute(update(slot).where(slot.c.id == free.id).values(claim=token))
        events.append(connection, study_id, now, "claim", person_id, token, hit=free.hit, slot=free.number)
        return token


def holds(connection: Connection, study_id: int, person_id: int) -> bool:
    """Whether a person has a HIT of this study that they may finish, even if it is closed by now; a quiz is none."""
    begun = connection.execute(queries.UNFINISHED, {"its_person": person_id, "its_study": study_id})
    return any(one.theirs and one.slot is not None for one in begun.all())


def _new_claim(
    connection: Connection, token: str, study_id: int, hit_id: int, slot_id: int | None, person_id: int, now: float
) -> None:
    """Write a claim down, and that this person has had its items."""
    values = {"id": token, "study": study_id, "hit": hit_id, "slot": slot_id, "person": person_id, "at": now}
    connection.execute(queries.NEW_CLAIM, values)
    connection.execute(queries.BAR_LIKES[connection.dialect.name], {"its_person": person_id, "its_hit": hit_id})


def _why_nothing(connection: Connection, design: Design, study_id: int, person_id: int, quiz: bool) -> Nothing:
    """What keeps this person from work, in the order in which it can be mended."""
    row = connection.execute(select(study.c.open).where(study.c.id == study_id)).one()
    if not row.open:
        return Nothing("closed", "this study is closed. Thank you for coming.")
    mine = connection.execute(select(member).where(member.c.study == study_id, member.c.person == person_id)).first()
    if mine is None or not mine.consented:
        return Nothing("agree", "nobody can begin without agreeing first. Read the first page, and agree.")
    if not mine.qualified and not quiz:
        return Nothing("qualify", "the questions at the beginning were not answered well enough to go on. Thank you for coming.")
    asked = select(claim.c.id).join(exclusion, claim.c.study == exclusion.c.other)
    if connection.execute(asked.where(exclusion.c.study == study_id, claim.c.person == person_id).limit(1)).first():
        return Nothing("excluded", "you took part in another part of this work, so this part is for other people. Thank you.")
    limit = design.recipe.hits_per_person
    if limit and mine.submitted >= limit:
        return Nothing("limit", "you have done as much as one person may. Thank you.")
    return Nothing("none", "there is nothing left for you at the moment. Thank you.")


def _needs_quiz(connection: Connection, design: Design, study_id: int, person_id: int) -> bool:
    if not design.recipe.quiz:
        return False
    mine = connection.execute(select(member).where(member.c.study == study_id, member.c.person == person_id)).first()
    if mine is None or not mine.consented or mine.qualified:
        return False
    tried = select(claim.c.id).where(claim.c.study == study_id, claim.c.person == person_id, claim.c.slot.is_(None))
    return connection.execute(tried.limit(1)).first() is None


def _claim_quiz(connection: Connection, study_id: int, person_id: int, now: float) -> str:
    asked = connection.execute(select(hit.c.id).where(hit.c.study == study_id, hit.c.quiz).limit(1)).one()
    token = secrets.token_hex(16)
    _new_claim(connection, token, study_id, asked.id, None, person_id, now)
    events.append(connection, study_id, now, "claim", person_id, token, hit=asked.id, quiz=True)
    return token


def _kept(connection: Connection, held: Any, design: Design, now: float) -> bool:
    """Keep a HIT for longer, unless another has taken it over in this very moment; a quiz is nobody else's.

    One whose lease has ended is anybody's who asks first: its own person has it as if they claimed it now.
    """
    if held.slot is None:
        return True
    ended = held.lease < now
    lease = now + 60 * design.recipe.lease_minutes if ended else max(held.lease, _renewed(held, design, now))
    mine = {"its_slot": held.slot, "its_claim": held.id, "its_lease": lease}
    return connection.execute(queries.KEEP_SLOT, mine).rowcount == 1


def _renewed(held: Any, design: Design, now: float) -> float:
    """Until when a claim is kept for who is at work on it."""
    lease = 60 * design.recipe.lease_minutes
    return float(min(now + lease, held.at + LEASES * lease))


def _lock(connection: Connection, person_id: int) -> None:
    """One thing at a time for each person; on SQLite there is one writer anyway. Rows that refer to the person do not wait."""
    if connection.execute(queries.LOCK_PERSON, {"its_person": person_id}).first() is None:
        raise NotYours("there is no such person. Join the study first.")


# -- submitting


def submit(campaign: Campaign, claim_id: str, person_id: int, given: object, seconds: Sequence[float] | None = None) -> Receipt:
    """Take the answers to all items of a HIT, once: whoever submits again is told so, and the first answers stand."""
    now = campaign.now()
    with campaign.writing() as connection:
        _lock(connection, person_id)
        held = load_hit(connection, claim_id, person_id)
        if held.submitted:
            return _receipt_again(connection, held)
        answers = checked_answers(held, given)
        wrong = [
            one.key for one, answer in zip(held.items, answers, strict=True) if one.gold is not None and not right(one, answer)
        ]
        told = {
            "answers": [
                {"item": one.item, "answer": answer, "orders": {side: one.orders[side] for side in held.design.shows.shuffle}}
                for one, answer in zip(held.items, answers, strict=True)
            ],
            "seconds": _times(seconds, len(held.items)),
            "wrong": wrong,
        }  # fmt: skip
        if held.quiz:
            return _finish_quiz(connection, held, now, told)
        return _finish_hit(connection, held, now, told)


def checked_answers(held: Hit, given: object) -> list[dict[str, Any]]:
    """The answers to all items, in the order shown, by the places that the items declare."""
    if not isinstance(given, list) or len(given) != len(held.items):
        seen = len(given) if isinstance(given, list) else "no"
        raise CrossmatchError(f"{seen} answers came for {len(held.items)} items. Answer each of them.")
    out = []
    for n, (one, answer) in enumerate(zip(held.items, given, strict=True), 1):
        try:
            out.append(as_declared(one, check_answer(one.questions, one.sizes, answer)))
        except CrossmatchError as error:
            raise CrossmatchError(f"item {n}: {error}") from None
    return out


def _finish_quiz(connection: Connection, held: Hit, now: float, told: dict[str, Any]) -> Receipt:
    passed = 1 - len(told["wrong"]) / len(held.items) >= held.design.recipe.quiz_share
    number = events.append(connection, held.study, now, "submit", held.person, held.claim, quiz=True, passed=passed, **told)
    _close_claim(connection, held, now, number, counted=False, doubt=False)
    mine = (member.c.study == held.study, member.c.person == held.person)
    connection.execute(update(member).where(*mine).values(qualified=passed))
    return Receipt(held.claim, again=False, counted=False, late=False, passed=passed)


def _finish_hit(connection: Connection, held: Hit, now: float, told: dict[str, Any]) -> Receipt:
    filled = {"its_slot": held.slot, "its_claim": held.claim, "its_state": "review" if told["wrong"] else "done"}
    counted = connection.execute(queries.FILL_SLOT, filled).rowcount == 1  # else another has it by now
    late = not counted or held.lease is None or held.lease < now
    number = events.append(connection, held.study, now, "submit", held.person, held.claim, late=late, counted=counted, **told)
    _close_claim(connection, held, now, number, counted=counted, doubt=bool(told["wrong"]))
    connection.execute(queries.COUNT_SUBMITTED, {"its_study": held.study, "its_person": held.person})
    return Receipt(held.claim, again=False, counted=counted, late=late)


def _close_claim(connection: Connection, held: Hit, now: float, number: int, counted: bool, doubt: bool) -> None:
    done = {"its_claim": held.claim, "its_now": now, "its_number": number, "its_counted": counted, "its_doubt": doubt}
    connection.execute(queries.CLOSE_CLAIM, done)
    connection.execute(queries.BAR_DONE, {"its_person": held.person, "its_hit": held.hit})
    if held.draft[0]:
        connection.execute(queries.DROP_DRAFT, {"its_claim": held.claim})


def _receipt_again(connection: Connection, held: Hit) -> Receipt:
    kept = events.body(connection, held.study, held.event or 0)
    return Receipt(
        held.claim, again=True, counted=kept.get("counted", False), late=kept.get("late", False), passed=kept.get("passed")
    )


def _times(seconds: Sequence[float] | None, n: int) -> list[float] | None:
    """Seconds per item as the browser measured them, where they make sense; they are statistics, and nothing rests on them."""
    fits = isinstance(seconds, list) and len(seconds) == n
    if not fits or not all(isinstance(s, int | float) and not isinstance(s, bool) and 0 <= s < 1e6 for s in seconds or ()):
        return None
    return [round(float(s), 1) for s in seconds or ()]


# -- drafts


def keep_draft(campaign: Campaign, claim_id: str, person_id: int, number: int, body: Any) -> float | None:
    """Keep what was answered so far; an older draft never replaces a newer one, and nothing follows a submission.

    Who answers is at work: the lease is renewed, up to `LEASES` of them after the claim. Until when, if it was renewed.
    """
    now = campaign.now()
    with campaign.writing() as connection:
        _lock(connection, person_id)
        row = connection.execute(queries.FIND_CLAIM, {"its_claim": claim_id, "its_person": person_id}).first()
        if row is None:
            raise NotYours("there is no such page for you. Go back to the study, and begin again.")
        if row.submitted is not None:
            return None
        put = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        new = put(draft).values(claim=claim_id, number=number, body=body)
        connection.execute(
            new.on_conflict_do_update(
                index_elements=[draft.c.claim], set_={"number": number, "body": body}, where=draft.c.number < number
            )
        )
        longer = {"its_slot": row.slot, "its_claim": claim_id, "its_lease": _renewed(row, design_of(connection, row.study), now)}
        renewed: float | None = connection.execute(queries.RENEW_SLOT, longer).scalar()
        return renewed


# -- reviewing


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
