"""The statements of claiming and submitting, made once: to build one takes longer than to run it. `straight` runs them.

Parameters begin with `its_`: SQLAlchemy keeps the names of columns for itself.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BindParameter,
    Float,
    Insert,
    Integer,
    String,
    Table,
    and_,
    bindparam,
    case,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from crossmatch.study.schema import barred, claim, draft, event, exclusion, head, hit, hit_item, item, member, person, slot, study

Parameter = BindParameter[Any]
CLAIM: Parameter = bindparam("its_claim", type_=String())
HIT: Parameter = bindparam("its_hit", type_=Integer())
NOW: Parameter = bindparam("its_now", type_=Float())
NUMBER: Parameter = bindparam("its_number", type_=Integer())
PERSON: Parameter = bindparam("its_person", type_=Integer())
SESSIONS: Parameter = bindparam("its_sessions", type_=Integer())  # must be the person's; none: whoever asks has no session
SLOT: Parameter = bindparam("its_slot", type_=Integer())
STUDY: Parameter = bindparam("its_study", type_=Integer())
NO_LIMIT = 2**31 - 1
# In the text of a statement, not beside it: else PostgreSQL, which plans it for any value, takes no index of open slots alone.
OPEN: Any = literal_column("'open'")
HELD: Any = literal_column("'held'")


def _new(table: Table, *columns: str) -> Insert:
    """A row with these columns, each from a parameter of its name."""
    return insert(table).values({name: bindparam(f"its_{name}", type_=table.c[name].type) for name in columns})


# -- people and studies

FIND_PERSON = select(person.c.id, person.c.key, person.c.role, person.c.sessions).where(person.c.id == PERSON)
FIND_STUDY = select(study.c.id, study.c.name, study.c.design, study.c.seed).where(study.c.id == STUDY)
FIND_NUMBER = select(study.c.id).where(study.c.name == bindparam("its_name"))
COUNT_SUBMITTED = update(member).where(member.c.study == STUDY, member.c.person == PERSON).values(submitted=member.c.submitted + 1)


# -- claiming


def _first(*which: Any, of_many: bool = False) -> Any:
    """The first of such slots whose HIT this person may have, unless another is about to take it.

    Each HIT is looked up among those that they may not have; of many slots the list is read once instead.
    """
    one = slot.alias("one")
    theirs = select(barred.c.hit).where(barred.c.person == PERSON)
    may_have = one.c.hit.not_in(theirs) if of_many else ~theirs.where(barred.c.hit == one.c.hit).exists()
    asked = select(one.c.id).where(one.c.study == STUDY, *(each(one.c) for each in which), may_have)
    return asked.order_by(one.c.id).limit(1).with_for_update(skip_locked=True, of=one).scalar_subquery()


def _free_slot(*, quiz: bool) -> Any:
    """The slot that a person is to have, or might have after the quiz: everything that decides about it is in here.

    What was handed out and came back goes first; then the first that is open. Whoever did thousands of HITs would pass all of
    them, so that they are sought behind their last one. Nothing that is open is before it, except what somebody was about to take
    at that moment and did not: so before there is nothing at all, everything is looked at.
    """
    last = (
        select(func.coalesce(func.max(claim.c.slot), 0)).where(claim.c.person == PERSON, claim.c.study == STUDY).scalar_subquery()
    )
    again = _first(lambda one: one.lease < NOW)  # only a slot that is held, or was opened again, has one
    behind = _first(lambda one: one.state == OPEN, lambda one: one.id > last)
    anywhere = _first(lambda one: one.state == OPEN, of_many=True)
    others = select(exclusion.c.other).where(exclusion.c.study == STUDY)
    elsewhere = exists().where(claim.c.person == PERSON, claim.c.study.in_(others))
    may = exists().where(
        member.c.study == STUDY, member.c.person == PERSON, member.c.consented, member.c.submitted < bindparam("its_limit"),
        person.c.id == member.c.person, or_(SESSIONS.is_(None), person.c.sessions == SESSIONS),
        *([] if quiz else [member.c.qualified]),
    )  # fmt: skip
    mine = slot.alias("mine")  # `slot` is the one that is taken
    at_work = exists().where(
        claim.c.person == PERSON, claim.c.study == STUDY, claim.c.submitted.is_(None),
        mine.c.id == claim.c.slot, mine.c.claim == claim.c.id, mine.c.state == HELD,
    )  # fmt: skip
    is_open = exists().where(study.c.id == STUDY, study.c.open)
    return case((and_(is_open, may, ~at_work, ~elsewhere), func.coalesce(again, behind, anywhere)))


FREE_AFTER_QUIZ = select(_free_slot(quiz=True))
TAKE_SLOT = (
    update(slot).where(slot.c.id == _free_slot(quiz=False))
    .values(state=HELD, person=PERSON, claim=CLAIM, lease=bindparam("its_lease"))
    .returning(slot.c.id, slot.c.hit, slot.c.number)
)  # fmt: skip
# What a person has begun: one HIT, or a quiz, that is still theirs, and those that others took over. Beside it the person, and the
# last event of the study: there is one row at least, unless one of the two is not there.
_HELD_BY_CLAIM = and_(slot.c.claim == claim.c.id, slot.c.state == HELD)
BEGUN = (
    select(person.c.sessions, head.c.number.label("last"), head.c.hash, claim.c.id, claim.c.hit, claim.c.slot, claim.c.at,
           slot.c.lease, and_(claim.c.id.is_not(None), or_(claim.c.slot.is_(None), _HELD_BY_CLAIM)).label("theirs"))
    .select_from(person).join(head, head.c.study == STUDY)
    .outerjoin(claim, and_(claim.c.person == person.c.id, claim.c.study == STUDY, claim.c.submitted.is_(None)))
    .outerjoin(slot, slot.c.id == claim.c.slot).where(person.c.id == PERSON)
)  # fmt: skip
KEEP_SLOT = update(slot).where(slot.c.id == SLOT, slot.c.claim == CLAIM, slot.c.state == HELD).values(lease=bindparam("its_lease"))
RENEW_SLOT = KEEP_SLOT.where(slot.c.lease < bindparam("its_lease")).returning(slot.c.lease)
NEW_CLAIM = _new(claim, "id", "study", "hit", "slot", "person", "at")
# Who had lost a HIT has the same claim again, or they could submit it twice; the slot is still as they have just taken it.
MOVE_CLAIM = update(claim).where(claim.c.id == CLAIM).values(slot=SLOT)
MOVE_SLOT = update(slot).where(slot.c.id == SLOT, slot.c.claim == bindparam("its_token", type_=String())).values(claim=CLAIM)


def _bar_likes(put: Any) -> Any:
    """Keep a person from the HITs that share an item with this one."""
    mine, other = hit_item.alias("mine"), hit_item.alias("other")
    rows = select(PERSON, other.c.hit).where(mine.c.hit == HIT, other.c.item == mine.c.item, other.c.hit != HIT).distinct()
    return put(barred).from_select(["person", "hit"], rows).on_conflict_do_nothing()


BAR_LIKES = {"sqlite": _bar_likes(sqlite.insert), "postgresql": _bar_likes(postgresql.insert)}


# -- a HIT

LOAD_CLAIM = (
    select(claim.c.study, claim.c.hit, claim.c.slot, claim.c.person, claim.c.submitted, claim.c.event, hit.c.quiz,
           slot.c.claim.label("holder"), slot.c.lease, draft.c.number.label("draft"), draft.c.body, person.c.sessions,
           head.c.number.label("last"), head.c.hash)
    .join(hit, hit.c.id == claim.c.hit).join(person, person.c.id == claim.c.person).join(head, head.c.study == claim.c.study)
    .outerjoin(slot, slot.c.id == claim.c.slot)
    .outerjoin(draft, draft.c.claim == claim.c.id).where(claim.c.id == CLAIM)
)  # fmt: skip
LOAD_ITEMS = (
    select(item.c.id, item.c.key, item.c.images, item.c.captions, item.c.block, item.c.gold, item.c.body)
    .join(hit_item, hit_item.c.item == item.c.id).where(hit_item.c.hit == HIT).order_by(hit_item.c.place)
)  # fmt: skip
FIND_CLAIM = select(claim).where(claim.c.id == CLAIM, claim.c.person == PERSON)


# -- submitting

FILL_SLOT = (
    update(slot).where(slot.c.id == SLOT, slot.c.claim == CLAIM, slot.c.state == HELD)
    .values(state=bindparam("its_state"), lease=None)
)  # fmt: skip
CLOSE_CLAIM = (
    update(claim).where(claim.c.id == CLAIM)
    .values(submitted=NOW, event=NUMBER, counted=bindparam("its_counted"), doubt=bindparam("its_doubt"))
)  # fmt: skip
BAR_DONE = insert(barred).values(person=PERSON, hit=HIT)
DROP_DRAFT = draft.delete().where(draft.c.claim == CLAIM)


# -- events

LAST_EVENT = select(head.c.number.label("last"), head.c.hash).where(head.c.study == STUDY)
NEW_EVENT = _new(event, "study", "number", "at", "kind", "person", "claim", "body", "previous", "hash")
NEW_HEAD = update(head).where(head.c.study == STUDY).values(number=NUMBER, hash=bindparam("its_hash"))
