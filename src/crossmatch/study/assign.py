"""Who gets what: claims, drafts and submissions. Each is one transaction, and each decision one statement in it.

- A slot is one answer that is wanted of a HIT. It is open, held by a person until its lease ends, under review, or done.
- A person who holds a HIT gets it again, in the same order, until it is submitted or another one has taken it over.
- A lease is renewed by drafts, for a while. It is looked at only when somebody claims: a slot whose lease has ended goes to the
  next who asks, before those that nobody had yet.
- Who comes late finds the slot still theirs, and the answers count; or taken over, and they are kept, flagged, and do not count.
- Nobody gets an item twice, in whatever HIT it is, nor takes part in two studies that exclude each other.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select, update
from sqlalchemy.dialects import postgresql, sqlite

from crossmatch.core.errors import CrossmatchError
from crossmatch.study import events, queries
from crossmatch.study.design import Design, check_answer
from crossmatch.study.schema import claim, draft, exclusion, hit, member, study
from crossmatch.study.shown import (
    Hit,
    NotYours,
    as_declared,
    as_hit,
    design_of,
    facts_of,
    items_of,
    load_hit,
    new_hit,
    require_session,
    right,
)
from crossmatch.study.straight import ask, write_all
from crossmatch.study.together import Steps, refusable

if TYPE_CHECKING:
    from crossmatch.study.store import Campaign
    from crossmatch.study.straight import Asked

Load = Callable[[], Hit]  # what is left to do once a claim is on the disk
LEASES = 4  # for so many a HIT is kept while drafts of it come; a page that is left open must not keep it from others for ever


class Nothing(CrossmatchError):  # noqa: N818 - there is nothing to be had, which is no accident
    """There is no HIT for this person; `why` is one word: agree, qualify, excluded, limit, closed, or none."""

    def __init__(self, why: str, text: str) -> None:
        self.why = why
        super().__init__(text)


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
    return claim_and_load(campaign, study_id, person_id).claim


def claim_and_load(campaign: Campaign, study_id: int, person_id: int, sessions: int | None = None) -> Hit:
    """The HIT that the person has not finished, or else the first that is free for them; `sessions` must still be theirs."""
    asked = (study_id, person_id, sessions)
    load = campaign.write(refusable(lambda connection: _claim(connection, *asked, campaign.now())), whose=person_id)
    return load()  # others write again meanwhile


def _claim(connection: Connection, study_id: int, person_id: int, sessions: int | None, now: float) -> Steps[Load]:
    known, token = facts_of(connection, study_id), secrets.token_hex(16)
    design = known.design
    asked = {"its_person": person_id, "its_study": study_id, "its_sessions": sessions, "its_now": now}
    asked |= {"its_limit": design.recipe.hits_per_person or queries.NO_LIMIT}
    lease = now + 60 * design.recipe.lease_minutes
    taking = {**asked, "its_claim": token, "its_lease": lease}
    begun, taken = yield (queries.BEGUN, asked), (queries.TAKE_SLOT, taking)
    if begun.first is None:
        raise NotYours("there is no such person. Join the study first.")
    require_session(begun.first, sessions)
    held = next((one for one in begun.rows if one.theirs), None)
    if held is not None:
        _keep(connection, held, design, now)
        return _as_it_is(connection, held.id, person_id)
    if taken.first is None:
        _write_claim(connection, token, begun.first, now, asked, _free_quiz(connection, design, asked))
        return _as_it_is(connection, token, person_id)
    before = next((one.id for one in begun.rows if one.hit == taken.first.hit), "")
    _write_claim(connection, token, begun.first, now, asked, taken.first.hit, taken.first, before)
    if before:
        return _as_it_is(connection, before, person_id)
    items = yield from items_of(connection, taken.first.hit)
    return lambda: new_hit(known, items, token, person_id, taken.first, lease)


def _as_it_is(connection: Connection, claim_id: str, person_id: int) -> Load:
    """A HIT with its draft, as it is at this moment."""
    found = load_hit(connection, claim_id, person_id)
    return lambda: found


def _write_claim(
    connection: Connection,
    token: str,
    last: Any,
    now: float,
    asked: Mapping[str, Any],
    hit_id: int,
    taken: Any = None,
    before: str = "",
) -> None:
    """Write down a claim on a slot that was taken, or on a quiz, and that this person has had its items.

    Who had lost this HIT has the claim that they had `before` again, or they could submit it twice.
    """
    study_id, person_id = asked["its_study"], asked["its_person"]
    place = {"quiz": True} if taken is None else {"slot": taken.number}
    its = {"its_study": study_id, "its_person": person_id, "its_hit": hit_id, "its_slot": None if taken is None else taken.id}
    new: list[Asked] = [
        (queries.NEW_CLAIM, {**its, "its_id": token, "its_at": now}),
        (queries.BAR_LIKES[connection.dialect.name], its),
    ]
    if before:
        moved = {"its_claim": before, "its_slot": taken.id}
        new = [(queries.MOVE_CLAIM, moved), (queries.MOVE_SLOT, {**moved, "its_token": token})]
    _, told = events.follow(connection, last, study_id, now, "claim", person_id, before or token, hit=hit_id, **place)
    write_all(connection, *new, *told, changing=(1, 1) if before else (1,))


def holds(connection: Connection, study_id: int, person_id: int) -> bool:
    """Whether a person has a HIT of this study in hand."""
    begun = ask(connection, queries.BEGUN, {"its_person": person_id, "its_study": study_id})
    return any(one.theirs and one.slot is not None for one in begun.rows)


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


def _free_quiz(connection: Connection, design: Design, asked: Mapping[str, Any]) -> int:
    """The quiz, for who must answer it and gets a HIT after it; else it is said why there is nothing for them."""
    study_id, person_id = asked["its_study"], asked["its_person"]
    needed = _needs_quiz(connection, design, study_id, person_id)
    if not needed or ask(connection, queries.FREE_AFTER_QUIZ, asked).rows[0][0] is None:  # they would answer it for nothing
        raise _why_nothing(connection, design, study_id, person_id, needed)
    quiz: int = connection.execute(select(hit.c.id).where(hit.c.study == study_id, hit.c.quiz).limit(1)).scalar_one()
    return quiz


def _needs_quiz(connection: Connection, design: Design, study_id: int, person_id: int) -> bool:
    if not design.recipe.quiz:
        return False
    mine = connection.execute(select(member).where(member.c.study == study_id, member.c.person == person_id)).first()
    if mine is None or not mine.consented or mine.qualified:
        return False
    tried = select(claim.c.id).where(claim.c.study == study_id, claim.c.person == person_id, claim.c.slot.is_(None))
    return connection.execute(tried.limit(1)).first() is None


def _keep(connection: Connection, held: Any, design: Design, now: float) -> None:
    """Keep a HIT for longer; a quiz is nobody else's.

    One whose lease has ended is anybody's who asks first: its own person has it as if they claimed it now.
    """
    if held.slot is not None:
        ended = held.lease < now
        lease = now + 60 * design.recipe.lease_minutes if ended else max(held.lease, _renewed(held, design, now))
        longer = {"its_slot": held.slot, "its_claim": held.id, "its_lease": lease}
        write_all(connection, (queries.KEEP_SLOT, longer), changing=(1,))  # else who came at the same moment has taken it over


def _renewed(held: Any, design: Design, now: float) -> float:
    """Until when a claim is kept for who is at work on it."""
    lease = 60 * design.recipe.lease_minutes
    return float(min(now + lease, held.at + LEASES * lease))


# -- submitting


def submit(
    campaign: Campaign,
    claim_id: str,
    person_id: int,
    given: object,
    seconds: Sequence[float] | None = None,
    sessions: int | None = None,
) -> Receipt:
    """Take the answers to all items of a HIT, once: whoever submits again is told so, and the first answers stand."""
    told = (claim_id, person_id, given, seconds, sessions)
    return campaign.write(refusable(lambda connection: _submit(connection, *told, campaign.now())), whose=person_id)


def _submit(
    connection: Connection,
    claim_id: str,
    person_id: int,
    given: object,
    seconds: Sequence[float] | None,
    sessions: int | None,
    now: float,
) -> Steps[Receipt]:
    (said,) = yield ((queries.LOAD_CLAIM, {"its_claim": claim_id}),)
    row = said.first
    held = yield from as_hit(connection, claim_id, person_id, row)
    require_session(row, sessions)
    if held.submitted:
        return _receipt_again(connection, held)
    answers = checked_answers(held, given)
    pairs = list(zip(held.items, answers, strict=True))
    told = {
        "answers": [
            {"item": one.item, "answer": answer, "orders": {side: one.orders[side] for side in held.design.shows.shuffle}}
            for one, answer in pairs
        ],
        "seconds": _times(seconds, len(held.items)),
        "wrong": [one.key for one, answer in pairs if one.gold is not None and not right(one, answer)],
    }  # fmt: skip
    finish = _finish_quiz if held.quiz else _finish_hit
    return finish(connection, held, row, now, told)


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


def _finish_quiz(connection: Connection, held: Hit, last: Any, now: float, told: dict[str, Any]) -> Receipt:
    passed = 1 - len(told["wrong"]) / len(held.items) >= held.design.recipe.quiz_share
    number, event = events.follow(
        connection, last, held.study, now, "submit", held.person, held.claim, quiz=True, passed=passed, **told
    )
    write_all(connection, *event, *_close_claim(held, now, number, counted=False, doubt=False))
    mine = (member.c.study == held.study, member.c.person == held.person)
    connection.execute(update(member).where(*mine).values(qualified=passed))
    return Receipt(held.claim, again=False, counted=False, late=False, passed=passed)


def _finish_hit(connection: Connection, held: Hit, last: Any, now: float, told: dict[str, Any]) -> Receipt:
    counted = held.lease is not None  # else another has it by now
    late = held.lease is None or held.lease < now
    number, event = events.follow(
        connection, last, held.study, now, "submit", held.person, held.claim, late=late, counted=counted, **told
    )
    filled = {"its_slot": held.slot, "its_claim": held.claim, "its_state": "review" if told["wrong"] else "done"}
    closed = _close_claim(held, now, number, counted=counted, doubt=bool(told["wrong"]))
    mine = {"its_study": held.study, "its_person": held.person}
    all_of_it = ((queries.FILL_SLOT, filled), *event, *closed, (queries.COUNT_SUBMITTED, mine))
    write_all(connection, *all_of_it, changing=(int(counted),))
    return Receipt(held.claim, again=False, counted=counted, late=late)


def _close_claim(held: Hit, now: float, number: int, counted: bool, doubt: bool) -> list[Asked]:
    done = {"its_claim": held.claim, "its_now": now, "its_number": number, "its_counted": counted, "its_doubt": doubt}
    barred = {"its_person": held.person, "its_hit": held.hit}
    drafts: list[Asked] = [(queries.DROP_DRAFT, {"its_claim": held.claim})] if held.draft[0] else []
    return [(queries.CLOSE_CLAIM, done), (queries.BAR_DONE, barred), *drafts]


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

    def kept(connection: Connection) -> Steps[float | None]:
        (said,) = yield ((queries.FIND_CLAIM, {"its_claim": claim_id, "its_person": person_id}),)
        row = said.first
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
        lease = _renewed(row, design_of(connection, row.study), campaign.now())
        longer = {"its_slot": row.slot, "its_claim": claim_id, "its_lease": lease}
        renewed = ask(connection, queries.RENEW_SLOT, longer).first
        return None if renewed is None else float(renewed.lease)

    return campaign.write(refusable(kept), whose=person_id)
