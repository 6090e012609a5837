"""The statements of claiming and submitting, made once: to build one takes longer than to run it.

Parameters begin with `its_`: SQLAlchemy keeps the names of columns for itself.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BindParameter, Float, Integer, String, and_, bindparam, case, exists, func, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from crossmatch.study.schema import barred, claim, draft, event, exclusion, head, hit, hit_item, item, member, person, slot, study

Parameter = BindParameter[Any]
CLAIM: Parameter = bindparam("its_claim", type_=String())
HIT: Parameter = bindparam("its_hit", type_=Integer())
NOW: Parameter = bindparam("its_now", type_=Float())
NUMBER: Parameter = bindparam("its_number", type_=Integer())
PERSON: Parameter = bindparam("its_person", type_=Integer())
SLOT: Parameter = bindparam("its_slot", type_=Integer())
STUDY: Parameter = bindparam("its_study", type_=Integer())
NO_LIMIT = 2**31 - 1


# -- people and studies

FIND_PERSON = select(person.c.id, person.c.key, person.c.role, person.c.sessions).where(person.c.id == PERSON)
# One thing at a time for each person; on SQLite there is one writer anyway. Rows that refer to the person do not wait.
LOCK_PERSON = select(person.c.id).where(person.c.id == PERSON).with_for_update(key_share=True)
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
    behind = _first(lambda one: one.state == "open", lambda one: one.id > last)
    anywhere = _first(lambda one: one.state == "open", of_many=True)
    others = select(exclusion.c.other).where(exclusion.c.study == STUDY)
    elsewhere = exists().where(claim.c.person == PERSON, claim.c.study.in_(others))
    may = exists().where(
        member.c.study == STUDY, member.c.person == PERSON, member.c.consented, member.c.submitted < bindparam("its_limit"),
        *([] if quiz else [member.c.qualified]),
    )  # fmt: skip
    is_open = exists().where(study.c.id == STUDY, study.c.open)
    return case((and_(is_open, may, ~elsewhere), func.coalesce(again, behind, anywhere)))


FREE_AFTER_QUIZ = select(_free_slot(quiz=True))
TAKE_SLOT = (
    update(slot).where(slot.c.id == _free_slot(quiz=False))
    .values(state="held", person=PERSON, claim=CLAIM, lease=bindparam("its_lease"))
    .returning(slot.c.id, slot.c.hit, slot.c.number)
)  # fmt: skip
# What a person has begun: one HIT, or a quiz, that is still theirs, and those that others took over.
UNFINISHED = (
    select(claim.c.id, claim.c.hit, claim.c.slot, claim.c.at, slot.c.lease,
           or_(claim.c.slot.is_(None), and_(slot.c.claim == claim.c.id, slot.c.state == "held")).label("theirs"))
    .outerjoin(slot, slot.c.id == claim.c.slot)
    .where(claim.c.study == STUDY, claim.c.person == PERSON, claim.c.submitted.is_(None))
)  # fmt: skip
KEEP_SLOT = (
    update(slot).where(slot.c.id == SLOT, slot.c.claim == CLAIM, slot.c.state == "held").values(lease=bindparam("its_lease"))
)
RENEW_SLOT = KEEP_SLOT.where(slot.c.lease < bindparam("its_lease")).returning(slot.c.lease)
NEW_CLAIM = insert(claim)


def _bar_likes(put: Any) -> Any:
    """Keep a person from the HITs that share an item with this one."""
    mine, other = hit_item.alias("mine"), hit_item.alias("other")
    rows = select(PERSON, other.c.hit).where(mine.c.hit == HIT, other.c.item == mine.c.item, other.c.hit != HIT).distinct()
    return put(barred).from_select(["person", "hit"], rows).on_conflict_do_nothing()


BAR_LIKES = {"sqlite": _bar_likes(sqlite.insert), "postgresql": _bar_likes(postgresql.insert)}


# -- a HIT

LOAD_CLAIM = (
    select(claim.c.study, claim.c.hit, claim.c.slot, claim.c.person, claim.c.submitted, claim.c.event, hit.c.quiz,
           slot.c.claim.label("holder"), slot.c.lease, draft.c.number.label("draft"), draft.c.body)
    .join(hit, hit.c.id == claim.c.hit).outerjoin(slot, slot.c.id == claim.c.slot)
    .outerjoin(draft, draft.c.claim == claim.c.id).where(claim.c.id == CLAIM)
)  # fmt: skip
LOAD_ITEMS = (
    select(item.c.id, item.c.key, item.c.images, item.c.captions, item.c.block, item.c.gold, item.c.body)
    .join(hit_item, hit_item.c.item == item.c.id).where(hit_item.c.hit == HIT).order_by(hit_item.c.place)
)  # fmt: skip
FIND_CLAIM = select(claim).where(claim.c.id == CLAIM, claim.c.person == PERSON)


# -- submitting

FILL_SLOT = (
    update(slot).where(slot.c.id == SLOT, slot.c.claim == CLAIM, slot.c.state == "held")
    .values(state=bindparam("its_state"), lease=None)
)  # fmt: skip
CLOSE_CLAIM = (
    update(claim).where(claim.c.id == CLAIM)
    .values(submitted=NOW, event=NUMBER, counted=bindparam("its_counted"), doubt=bindparam("its_doubt"))
)  # fmt: skip
BAR_DONE = insert(barred).values(person=PERSON, hit=HIT)
DROP_DRAFT = draft.delete().where(draft.c.claim == CLAIM)


# -- events

LAST_EVENT = select(head.c.number, head.c.hash).where(head.c.study == STUDY).with_for_update()
NEW_EVENT = insert(event)
NEW_HEAD = update(head).where(head.c.study == STUDY).values(number=NUMBER, hash=bindparam("its_hash"))
