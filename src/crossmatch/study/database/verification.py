"""Verifies a campaign: replays the event log, compares the result with the tables, and checks the images.

An image is named by the hash of its bytes, and the first event of a study contains a hash of all names. So a changed image is
detected. An image with another kind of name must exist, but its bytes cannot be checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select

from crossmatch.data.errors import CrossmatchError
from crossmatch.study.assignment.displayed_hits import load_study_design
from crossmatch.study.assignment.people import seal_name
from crossmatch.study.assignment.review import UNDO
from crossmatch.study.database import events
from crossmatch.study.database.schema import barred, claim, exclusion, hit, hit_item, item, member, person, slot, study
from crossmatch.study.design.content_hash import content_hash
from crossmatch.study.design.image_storage import SUFFIX, is_intact

if TYPE_CHECKING:
    from crossmatch.study.database.campaign import Campaign

HASH_NAME = re.compile(rf"[0-9a-f]{{64}}{re.escape(SUFFIX)}")
Place = tuple[int, int]  # a HIT, and the number of one of its slots


@dataclass
class ReplayedClaim:
    """A claim according to the events."""

    person: int
    hit: int
    place: Place | None  # None: a quiz
    submitted: float | None = None
    event: int | None = None
    counted: bool = False
    doubt: bool = False
    verdict: str | None = None
    items: tuple[int, ...] = field(default=(), compare=False, repr=False)  # not in the table


@dataclass
class ReplayedStudy:
    """The state of a study according to its events."""

    quiz: bool  # whether people must pass a quiz
    claims: dict[str, ReplayedClaim] = field(default_factory=dict)
    holder: dict[Place, str] = field(default_factory=dict)  # slot to the last claim on it that was not undone
    counted_claims: dict[Place, str] = field(default_factory=dict)  # slot to the claim whose answers count
    members: dict[int, tuple[bool, int]] = field(default_factory=dict)  # person to whether they are qualified, and submitted HITs
    names: dict[int, str] = field(default_factory=dict)  # person to the seal of their name
    open: bool = True
    new: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class VerifiedStudy:
    """A study that passed: its number of events, the last hash, and the number of answers that count."""

    study: str
    events: int
    last_hash: str
    answers: int
    images: int = 0


def verify(campaign: Campaign) -> list[VerifiedStudy]:
    """Check every study of a campaign. The first fault raises an error."""
    with campaign.read_transaction() as connection:
        rows = connection.execute(select(study.c.id, study.c.name).order_by(study.c.id)).all()
        _require_exclusions(connection, {row.name: row.id for row in rows})
    return [verify_study(campaign, row.id, row.name) for row in rows]


def verify_study(campaign: Campaign, study_id: int, name: str) -> VerifiedStudy:
    with campaign.read_transaction() as connection:
        number, last = events.check_chain(connection, study_id)
        if events.read_body(connection, study_id, 1).get("content") != content_hash(connection, study_id):
            raise CrossmatchError(
                f"{name}: The design, items or HITs were changed after the study was created. Compare with a backup."
            )
        replayed = _replay(connection, study_id, name)
        if connection.execute(select(study.c.open).where(study.c.id == study_id)).scalar_one() != replayed.open:
            raise CrossmatchError(
                f"{name}: The event log does not say that the study is {'closed' if replayed.open else 'open'}. Compare with a backup."
            )
        _compare(name, "claims", replayed.claims, _stored_claims(connection, study_id))
        _compare(name, "slots", _slots(connection, study_id, replayed), _stored_slots(connection, study_id))
        _compare(name, "people", replayed.members, _stored_members(connection, study_id))
        _require_names(campaign, connection, replayed, name)
        hit_items = _load_hit_items(connection, study_id)
        _compare(name, "barred HITs", _barred(replayed, hit_items), _stored_barred(connection, study_id))
        rows = connection.execute(select(item.c.images).where(item.c.study == study_id))
        image_files = {file for row in rows for file in row.images}
    _require_once(replayed, hit_items, name)
    _require_images(campaign, image_files, name)
    answers = sum(len(replayed_claim.items) for replayed_claim in replayed.claims.values() if replayed_claim.counted)
    return VerifiedStudy(name, number, last, answers, len(image_files))


def _require_images(campaign: Campaign, image_files: Iterable[str], name: str) -> None:
    """Check that every image exists, and matches the hash in its name."""
    for file in sorted(image_files):
        path = campaign.images_folder / file
        if not path.is_file():
            raise CrossmatchError(f"{name}: image {file} is missing from {campaign.images_folder}. Restore it from a backup.")
        if HASH_NAME.fullmatch(file) and not is_intact(path):
            raise CrossmatchError(f"{name}: image {file} was changed. Restore it from a backup.")


def _compare(name: str, table: str, expected: Mapping[Any, Any], stored: Mapping[Any, Any]) -> None:
    """Raise if the replayed rows differ from the table; the message names the first difference."""
    if expected == stored:
        return
    key = next(key for key in [*expected, *stored] if expected.get(key) != stored.get(key))
    stored_row, expected_row = stored.get(key, "missing"), expected.get(key, "that it does not exist")
    raise CrossmatchError(f"{name}, {table}: {key} is {stored_row}, but the events say {expected_row}. Compare with a backup.")


# -- the tables


def _stored_claims(connection: Connection, study_id: int) -> dict[str, ReplayedClaim]:
    query = select(claim, slot.c.hit.label("slot_hit"), slot.c.number).outerjoin(slot, slot.c.id == claim.c.slot)
    claims = {}
    for row in connection.execute(query.where(claim.c.study == study_id)):
        place = None if row.slot is None else (row.slot_hit, row.number)
        claims[row.id] = ReplayedClaim(row.person, row.hit, place, row.submitted, row.event, row.counted, row.doubt, row.verdict)
    return claims


def _slots(connection: Connection, study_id: int, replayed: ReplayedStudy) -> dict[Place, tuple[Any, ...]]:
    hits = connection.execute(select(hit.c.id).where(hit.c.study == study_id, ~hit.c.quiz)).scalars()
    slots: dict[Place, tuple[Any, ...]] = {
        (hit_id, n): ("open", None, None) for hit_id in hits for n in range(replayed.new["people"])
    }
    for place, claim_id in replayed.holder.items():
        holding = replayed.claims[claim_id]
        state = "review" if holding.doubt and holding.verdict != "approve" else "done"
        slots[place] = (state if place in replayed.counted_claims else "held", holding.person, claim_id)
    return slots


def _stored_slots(connection: Connection, study_id: int) -> dict[Place, tuple[Any, ...]]:
    rows = connection.execute(select(slot).where(slot.c.study == study_id))
    return {(row.hit, row.number): (row.state, row.person, row.claim) for row in rows}


def _stored_members(connection: Connection, study_id: int) -> dict[int, tuple[bool, int]]:
    rows = connection.execute(select(member).where(member.c.study == study_id, member.c.consented))
    return {row.person: (row.qualified, row.submitted) for row in rows}


def _load_hit_items(connection: Connection, study_id: int) -> dict[int, set[int]]:
    """The items of each HIT."""
    hit_items: dict[int, set[int]] = {}
    query = select(hit_item.c.hit, hit_item.c.item).join(hit, hit.c.id == hit_item.c.hit).where(hit.c.study == study_id)
    for row in connection.execute(query):
        hit_items.setdefault(row.hit, set()).add(row.item)
    return hit_items


def _barred(replayed: ReplayedStudy, hit_items: Mapping[int, set[int]]) -> dict[tuple[int, int], bool]:
    """The HITs that each person answered, and those that share an item with a HIT that they claimed."""
    hits_of_item: dict[int, set[int]] = {}
    for hit_id, items in hit_items.items():
        for item_id in items:
            hits_of_item.setdefault(item_id, set()).add(hit_id)
    overlapping = {
        hit_id: {overlap for item_id in items for overlap in hits_of_item[item_id]} - {hit_id}
        for hit_id, items in hit_items.items()
    }
    claims = replayed.claims.values()
    shared = {(past.person, hit_id): True for past in claims for hit_id in overlapping[past.hit]}
    return shared | {(past.person, past.hit): True for past in claims if past.submitted is not None}


def _stored_barred(connection: Connection, study_id: int) -> dict[tuple[int, int], bool]:
    rows = connection.execute(select(barred).join(hit, hit.c.id == barred.c.hit).where(hit.c.study == study_id))
    return {(row.person, row.hit): True for row in rows}


def _require_names(campaign: Campaign, connection: Connection, replayed: ReplayedStudy, name: str) -> None:
    """Check that no person was renamed after they agreed to take part."""
    for row in connection.execute(select(person.c.id, person.c.key).where(person.c.id.in_(select(member.c.person)))):
        if replayed.names.get(row.id, seal := seal_name(campaign, row.key)) != seal:
            raise CrossmatchError(f"{name}: person {row.id} was renamed after they agreed. Compare with a backup.")


def _require_once(replayed: ReplayedStudy, hit_items: Mapping[int, set[int]], name: str) -> None:
    """Check that submissions cover all items of their HIT, and that no person answered an item twice."""
    answered: set[tuple[int, int]] = set()
    for claim_id, past in replayed.claims.items():
        if past.submitted is None:
            continue
        if sorted(past.items) != sorted(hit_items[past.hit]):
            raise CrossmatchError(f"{name}: claim {claim_id} answered other items than those of its HIT. Compare with a backup.")
        pairs = {(past.person, item_id) for item_id in past.items}
        if pairs & answered:
            raise CrossmatchError(
                f"{name}: person {past.person} answered item {min(pairs & answered)[1]} twice. Compare with a backup."
            )
        answered |= pairs


def _require_exclusions(connection: Connection, numbers: Mapping[str, int]) -> None:
    """Check that studies exclude each other as their first events say."""
    declared: set[tuple[int, int]] = set()
    for number in numbers.values():
        names = events.read_body(connection, number, 1).get("excludes", ())
        excluded_ids = [numbers[name] for name in names if name in numbers]
        declared |= {pair for excluded in excluded_ids for pair in ((number, excluded), (excluded, number))}
    stored = {(row.study, row.other) for row in connection.execute(select(exclusion))}
    if declared != stored:
        raise CrossmatchError("The exclusions between studies differ from the event logs. Compare with a backup.")


# -- the events


def _replay(connection: Connection, study_id: int, name: str) -> ReplayedStudy:
    replayed = ReplayedStudy(quiz=load_study_design(connection, study_id).recipe.quiz > 0)
    with closing(events.read_events(connection, study_id)) as rows:
        for row in rows:
            _apply_event(replayed, row, json.loads(row.body), name)
    return replayed


def _apply_event(replayed: ReplayedStudy, row: Any, body: dict[str, Any], name: str) -> None:
    """Apply one event to the state."""
    if row.kind == "new":
        replayed.new = body
    elif row.kind in ("open", "close"):
        replayed.open = row.kind == "open"
    elif row.kind == "consent":
        replayed.members[row.person], replayed.names[row.person] = (not replayed.quiz, 0), body["name"]
    elif row.kind == "claim":
        _apply_claim(replayed, row, body, name)
    elif row.kind == "submit":
        _apply_submission(replayed, row, body, name)
    elif row.kind == "review":
        _apply_review(replayed, row, body, name)


def _apply_claim(replayed: ReplayedStudy, row: Any, body: Mapping[str, Any], name: str) -> None:
    place = None if body.get("quiz") else (body["hit"], body["slot"])
    if place in replayed.counted_claims:
        raise CrossmatchError(f"{name}: event {row.number} assigns a slot that is done. Compare with a backup.")
    before = replayed.claims.get(row.claim)
    if before is not None and (before.submitted is not None or before.person != row.person or before.hit != body["hit"]):
        raise CrossmatchError(f"{name}: event {row.number} claims a submitted HIT, or another person's HIT. Compare with a backup.")
    replayed.claims[row.claim] = ReplayedClaim(row.person, body["hit"], place)
    if place is not None:
        replayed.holder[place] = row.claim


def _apply_submission(replayed: ReplayedStudy, row: Any, body: Mapping[str, Any], name: str) -> None:
    replayed_claim = replayed.claims.get(row.claim)
    if replayed_claim is None or replayed_claim.submitted is not None or replayed_claim.person != row.person:
        raise CrossmatchError(
            f"{name}: event {row.number} submits a submitted HIT, or another person's HIT. Compare with a backup."
        )
    replayed_claim.submitted, replayed_claim.event = row.at, row.number
    replayed_claim.items = tuple(answer["item"] for answer in body["answers"])
    is_qualified, submitted = replayed.members[row.person]
    if replayed_claim.place is None:
        replayed.members[row.person] = (body["passed"], submitted)
        return
    replayed.members[row.person] = (is_qualified, submitted + 1)
    replayed_claim.counted, replayed_claim.doubt = body["counted"], bool(body["wrong"])
    if replayed_claim.counted:
        if replayed.holder.get(replayed_claim.place) != row.claim or replayed_claim.place in replayed.counted_claims:
            raise CrossmatchError(f"{name}: event {row.number} counts answers for another person's slot. Compare with a backup.")
        replayed.counted_claims[replayed_claim.place] = row.claim


def _apply_review(replayed: ReplayedStudy, row: Any, body: Mapping[str, Any], name: str) -> None:
    replayed_claim = replayed.claims[row.claim]
    replayed_claim.verdict, replayed_claim.counted = None if body["verdict"] == UNDO else body["verdict"], body["counted"]
    if replayed_claim.counted:
        replayed_claim.place = (replayed_claim.hit, body["slot"])
        if replayed.holder.setdefault(replayed_claim.place, row.claim) != row.claim:
            raise CrossmatchError(f"{name}: event {row.number} takes back another person's slot. Compare with a backup.")
        replayed.counted_claims[replayed_claim.place] = row.claim
    elif replayed_claim.place is not None and replayed.counted_claims.get(replayed_claim.place) == row.claim:
        del replayed.counted_claims[replayed_claim.place]
        replayed.holder.pop(replayed_claim.place, None)
