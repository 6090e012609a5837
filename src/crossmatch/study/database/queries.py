"""The SQL queries of claiming: which slot a person gets, and the rows of a claim. Built once, because they are large.

Values that decide which index PostgreSQL uses are part of the text of a query. A value that is passed as a parameter is unknown
when PostgreSQL plans a prepared statement, so it would not use an index of open slots alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import (
    BindParameter,
    Float,
    Integer,
    String,
    and_,
    bindparam,
    case,
    exists,
    func,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from crossmatch.study.database.schema import (
    barred,
    claim,
    draft,
    exclusion,
    hit,
    hit_item,
    item,
    member,
    person,
    slot,
    study,
)

Parameter = BindParameter[Any]
CLAIM_ID: Parameter = bindparam("claim_id", type_=String())
HIT_ID: Parameter = bindparam("hit_id", type_=Integer())
NOW: Parameter = bindparam("now", type_=Float())
PERSON_ID: Parameter = bindparam("person_id", type_=Integer())
STUDY_ID: Parameter = bindparam("study_id", type_=Integer())
HIT_LIMIT: Parameter = bindparam("hit_limit", type_=Integer())
LEASE_END: Parameter = bindparam("lease_end", type_=Float())
NO_LIMIT = 2**31 - 1
OPEN: Any = literal_column("'open'")
HELD: Any = literal_column("'held'")


def _first_slot(*conditions: Callable[[Any], Any], many: bool = False) -> Any:
    """The first slot that meets these conditions and whose HIT this person may have.

    Args:
        conditions: Functions from the slot's columns to a condition.
        many: Whether to expect many slots to be skipped; then the list of barred HITs is read once instead of for each slot.
    """
    candidate = slot.alias("candidate")
    barred_hits = select(barred.c.hit).where(barred.c.person == PERSON_ID)
    is_barred = barred_hits.where(barred.c.hit == candidate.c.hit).exists()
    is_allowed = candidate.c.hit.not_in(barred_hits) if many else ~is_barred
    query = select(candidate.c.id).where(
        candidate.c.study == STUDY_ID, *(condition(candidate.c) for condition in conditions), is_allowed
    )
    return query.order_by(candidate.c.id).limit(1).scalar_subquery()


def _free_slot(*, ignore_quiz: bool) -> Any:
    """The slot that a person gets next, or NULL. All conditions for getting work are part of it.

    Slots that were handed out before and are free again come first. Then follows the first open slot after the person's last
    one, so that somebody who did thousands of HITs does not skip all of them again; and then any open slot.
    """
    last_slot = (
        select(func.coalesce(func.max(claim.c.slot), 0))
        .where(claim.c.person == PERSON_ID, claim.c.study == STUDY_ID)
        .scalar_subquery()
    )
    returned = _first_slot(lambda column: column.lease < NOW)  # only slots that are held or were reopened have a lease
    next_open = _first_slot(lambda column: column.state == OPEN, lambda column: column.id > last_slot)
    any_open = _first_slot(lambda column: column.state == OPEN, many=True)
    excluded_studies = select(exclusion.c.other).where(exclusion.c.study == STUDY_ID)
    took_part_in_excluded = exists().where(claim.c.person == PERSON_ID, claim.c.study.in_(excluded_studies))
    is_eligible = exists().where(
        member.c.study == STUDY_ID,
        member.c.person == PERSON_ID,
        member.c.consented,
        member.c.submitted < HIT_LIMIT,
        *([] if ignore_quiz else [member.c.qualified]),
    )
    is_open = exists().where(study.c.id == STUDY_ID, study.c.open)
    may_work = and_(is_open, is_eligible, ~took_part_in_excluded)
    return case((may_work, func.coalesce(returned, next_open, any_open)))


SLOT_AFTER_QUIZ = select(_free_slot(ignore_quiz=True))
TAKE_SLOT = (
    update(slot)
    .where(slot.c.id == _free_slot(ignore_quiz=False))
    .values(state=HELD, person=PERSON_ID, claim=CLAIM_ID, lease=LEASE_END)
    .returning(slot.c.id, slot.c.hit, slot.c.number)
)

# The unsubmitted claims of a person in a study: at most one that is still theirs, and those whose slot went to somebody else.
_HOLDS_SLOT = and_(slot.c.claim == claim.c.id, slot.c.state == HELD)
UNFINISHED_CLAIMS = (
    select(
        claim.c.id,
        claim.c.hit,
        claim.c.slot,
        claim.c.at,
        slot.c.lease,
        or_(claim.c.slot.is_(None), _HOLDS_SLOT).label("is_held"),
    )
    .outerjoin(slot, slot.c.id == claim.c.slot)
    .where(claim.c.person == PERSON_ID, claim.c.study == STUDY_ID, claim.c.submitted.is_(None))
)

LOAD_CLAIM = (
    select(
        claim.c.study,
        claim.c.hit,
        claim.c.slot,
        claim.c.person,
        claim.c.submitted,
        claim.c.event,
        hit.c.quiz,
        slot.c.claim.label("slot_claim"),
        slot.c.lease,
        draft.c.number.label("draft_number"),
        draft.c.body.label("draft_answers"),
        person.c.sessions,
    )
    .join(hit, hit.c.id == claim.c.hit)
    .join(person, person.c.id == claim.c.person)
    .outerjoin(slot, slot.c.id == claim.c.slot)
    .outerjoin(draft, draft.c.claim == claim.c.id)
    .where(claim.c.id == CLAIM_ID)
)
LOAD_ITEMS = (
    select(item.c.id, item.c.key, item.c.images, item.c.captions, item.c.block, item.c.gold, item.c.body)
    .join(hit_item, hit_item.c.item == item.c.id)
    .where(hit_item.c.hit == HIT_ID)
    .order_by(hit_item.c.place)
)


def _bar_overlapping_hits(insert: Any) -> Any:
    """Keep a person from the HITs that share an item with this one."""
    claimed, shared = hit_item.alias("claimed"), hit_item.alias("shared")
    rows = (
        select(PERSON_ID, shared.c.hit)
        .where(claimed.c.hit == HIT_ID, shared.c.item == claimed.c.item, shared.c.hit != HIT_ID)
        .distinct()
    )
    return insert(barred).from_select(["person", "hit"], rows).on_conflict_do_nothing()


BAR_OVERLAPPING_HITS = {
    "sqlite": _bar_overlapping_hits(sqlite.insert),
    "postgresql": _bar_overlapping_hits(postgresql.insert),
}
