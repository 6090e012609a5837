"""The statements of claiming and submitting, made once: to build one takes longer than to run it.

Parameters begin with `its_`: SQLAlchemy keeps the names of columns for itself.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BindParameter, Float, Integer, String, and_, bindparam, exists, insert, literal, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from crossmatch.study.schema import claim, draft, event, exclusion, head, hit, hit_item, item, member, person, slot, study, taken

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

FIND_PERSON = select(person).where(person.c.id == PERSON)
# One thing at a time for each person; on SQLite there is one writer anyway. Rows that refer to the person do not wait.
LOCK_PERSON = select(person.c.id).where(person.c.id == PERSON).with_for_update(key_share=True)
FIND_STUDY = select(study.c.id, study.c.name, study.c.design, study.c.seed).where(study.c.id == STUDY)
COUNT_SUBMITTED = update(member).where(member.c.study == STUDY, member.c.person == PERSON).values(submitted=member.c.submitted + 1)


# -- claiming


def _free_slot(*, quiz: bool) -> Any:
    """The first slot that a person may have, or might have after the quiz: everything that decides about it is in here."""
    one, theirs = slot.alias("one"), taken.alias("theirs")
    is_free = or_(one.c.state == "open", and_(one.c.state == "held", one.c.lease < NOW))
    had = exists().where(
        hit_item.c.hit == one.c.hit, theirs.c.item == hit_item.c.item, theirs.c.person == PERSON,
        or_(theirs.c.done, theirs.c.hit != one.c.hit),
    )  # fmt: skip
    elsewhere = exists().where(exclusion.c.study == STUDY, claim.c.study == exclusion.c.other, claim.c.person == PERSON)
    may = exists().where(
        member.c.study == STUDY, member.c.person == PERSON, member.c.consented, member.c.submitted < bindparam("its_limit"),
        *([] if quiz else [member.c.qualified]),
    )  # fmt: skip
    is_open = exists().where(study.c.id == STUDY, study.c.open)
    return (
        select(one.c.id).where(one.c.study == STUDY, one.c.state.in_(("open", "held")), is_free, ~had, ~elsewhere, may, is_open)
        .order_by(one.c.id).limit(1).with_for_update(skip_locked=True, of=one)
    )  # fmt: skip


FREE_AFTER_QUIZ = _free_slot(quiz=True)
TAKE_SLOT = (
    update(slot).where(slot.c.id == _free_slot(quiz=False).scalar_subquery())
    .values(state="held", person=PERSON, claim=CLAIM, lease=bindparam("its_lease"))
    .returning(slot.c.id, slot.c.hit, slot.c.number)
)  # fmt: skip
UNFINISHED = (
    select(claim.c.id, claim.c.slot).outerjoin(slot, slot.c.id == claim.c.slot)
    .where(claim.c.study == STUDY, claim.c.person == PERSON, claim.c.submitted.is_(None))
    .where(or_(claim.c.slot.is_(None), and_(slot.c.claim == claim.c.id, slot.c.state == "held"))).limit(1)
)  # fmt: skip
KEEP_SLOT = (
    update(slot).where(slot.c.id == SLOT, slot.c.claim == CLAIM, slot.c.state == "held").values(lease=bindparam("its_lease"))
)
LOST_BEFORE = select(claim.c.id).where(
    claim.c.person == PERSON, claim.c.study == STUDY, claim.c.hit == HIT, claim.c.submitted.is_(None)
)
NEW_CLAIM = insert(claim)


def _take_items(put: Any) -> Any:
    rows = select(PERSON, hit_item.c.item, hit_item.c.hit, literal(False)).where(hit_item.c.hit == HIT)
    return put(taken).from_select(["person", "item", "hit", "done"], rows).on_conflict_do_nothing()


TAKE_ITEMS = {"sqlite": _take_items(sqlite.insert), "postgresql": _take_items(postgresql.insert)}


# -- a HIT

LOAD_CLAIM = (
    select(claim, hit.c.quiz, slot.c.claim.label("holder"), slot.c.lease)
    .join(hit, hit.c.id == claim.c.hit).outerjoin(slot, slot.c.id == claim.c.slot).where(claim.c.id == CLAIM)
)  # fmt: skip
LOAD_ITEMS = select(item).join(hit_item, hit_item.c.item == item.c.id).where(hit_item.c.hit == HIT).order_by(hit_item.c.place)
FIND_CLAIM = select(claim).where(claim.c.id == CLAIM, claim.c.person == PERSON)
FIND_DRAFT = select(draft).where(draft.c.claim == CLAIM)


# -- submitting

LOCK_SLOT = select(slot).where(slot.c.id == SLOT).with_for_update()
FILL_SLOT = update(slot).where(slot.c.id == SLOT).values(state=bindparam("its_state"), lease=None)
CLOSE_CLAIM = (
    update(claim).where(claim.c.id == CLAIM)
    .values(submitted=NOW, event=NUMBER, counted=bindparam("its_counted"), doubt=bindparam("its_doubt"))
)  # fmt: skip
DONE_ITEMS = update(taken).where(taken.c.person == PERSON, taken.c.hit == HIT).values(done=True)
DROP_DRAFT = draft.delete().where(draft.c.claim == CLAIM)


# -- events

LAST_EVENT = select(head.c.number, head.c.hash).where(head.c.study == STUDY).with_for_update()
NEW_EVENT = insert(event)
NEW_HEAD = update(head).where(head.c.study == STUDY).values(number=NUMBER, hash=bindparam("its_hash"))
