"""Whether the tables say what the events say: everything is made again from the events, and compared.

And whether people were shown what they were to be shown: a picture is named by the hash of its bytes, and its name is among the
content that the first event of a study tells the hash of. Pictures that somebody put there under names of their own must be there,
but nothing tells whether they were changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select

from crossmatch.core.errors import CrossmatchError
from crossmatch.study import events
from crossmatch.study.content import content_hash
from crossmatch.study.people import sealed
from crossmatch.study.pictures import SUFFIX, is_whole
from crossmatch.study.schema import barred, claim, exclusion, hit, hit_item, item, member, person, slot, study
from crossmatch.study.shown import design_of
from crossmatch.study.verdicts import UNDO

if TYPE_CHECKING:
    from crossmatch.study.store import Campaign

HASHED = re.compile(rf"[0-9a-f]{{64}}{re.escape(SUFFIX)}")
Place = tuple[int, int]  # a HIT, and the number of one of its slots


@dataclass
class Claimed:
    """A claim as the events tell it."""

    person: int
    hit: int
    at: Place | None  # none: a quiz
    submitted: float | None = None
    event: int | None = None
    items: tuple[int, ...] = ()
    counted: bool = False
    doubt: bool = False
    verdict: str | None = None


@dataclass
class Replayed:
    """What follows from the events of a study."""

    quiz: bool  # whether people must pass one
    claims: dict[str, Claimed] = field(default_factory=dict)
    holder: dict[Place, str] = field(default_factory=dict)  # of a slot: the last claim on it that was not undone
    done: dict[Place, str] = field(default_factory=dict)  # the claim whose answers count
    members: dict[int, tuple[bool, int]] = field(default_factory=dict)  # whether they are qualified, and HITs that they submitted
    names: dict[int, str] = field(default_factory=dict)  # seals of their names
    open: bool = True
    new: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Verified:
    """What was found of a study: its events, the last hash, and the answers that count."""

    study: str
    events: int
    hash: str
    answers: int
    pictures: int = 0


def verify(campaign: Campaign) -> list[Verified]:
    """Check every study of a campaign; the first fault is an error that names it."""
    with campaign.reading() as connection:
        rows = connection.execute(select(study.c.id, study.c.name).order_by(study.c.id)).all()
        _require_exclusions(connection, {row.name: row.id for row in rows})
    return [verify_study(campaign, row.id, row.name) for row in rows]


def verify_study(campaign: Campaign, study_id: int, name: str) -> Verified:
    with campaign.reading() as connection:
        number, last = events.chain(connection, study_id)
        if events.body(connection, study_id, 1).get("content") != content_hash(connection, study_id):
            raise CrossmatchError(f"{name}: its questions, items or HITs are not those of its beginning. Compare with a copy.")
        told = _replay(connection, study_id, name)
        if connection.execute(select(study.c.open).where(study.c.id == study_id)).scalar_one() != told.open:
            raise CrossmatchError(
                f"{name}: the events do not say that it is {'closed' if told.open else 'open'}. Compare with a copy."
            )
        _compare(name, "claims", _claims(told), _seen_claims(connection, study_id))
        _compare(name, "slots", _slots(connection, study_id, told), _seen_slots(connection, study_id))
        _compare(name, "people", told.members, _seen_members(connection, study_id))
        _require_names(campaign, connection, told, name)
        parts = _parts(connection, study_id)
        _compare(name, "HITs that people may not have", _barred(told, parts), _seen_barred(connection, study_id))
        shown = {file for row in connection.execute(select(item.c.images).where(item.c.study == study_id)) for file in row.images}
    _require_once(told, parts, name)
    _require_pictures(campaign, shown, name)
    answers = sum(len(one.items) for one in told.claims.values() if one.counted)
    return Verified(name, number, last, answers, len(shown))


def _require_pictures(campaign: Campaign, shown: Iterable[str], name: str) -> None:
    """Every picture is there, and those that are named by their bytes have them."""
    for file in sorted(shown):
        path = campaign.pictures / file
        if not path.is_file():
            raise CrossmatchError(f"{name}: the picture {file} is missing from {campaign.pictures}. Put a copy of it there.")
        if HASHED.fullmatch(file) and not is_whole(path):
            raise CrossmatchError(
                f"{name}: the picture {file} is not the one that was stored under this name. Put a copy of it there."
            )


def _compare(name: str, what: str, told: Mapping[Any, Any], seen: Mapping[Any, Any]) -> None:
    """The events must tell the same of each as its table; the first difference is an error."""
    if told == seen:
        return
    odd = next(key for key in [*told, *seen] if told.get(key) != seen.get(key))
    held, want = seen.get(odd, "missing"), told.get(odd, "that there is none")
    raise CrossmatchError(f"{name}, {what}: {odd} is {held}, but the events say {want}. Compare with a copy.")


# -- the tables


def _claims(told: Replayed) -> dict[str, tuple[Any, ...]]:
    return {
        token: (one.person, one.hit, one.at, one.submitted, one.event, one.counted, one.doubt, one.verdict)
        for token, one in told.claims.items()
    }


def _seen_claims(connection: Connection, study_id: int) -> dict[str, tuple[Any, ...]]:
    asked = select(claim, slot.c.hit.label("its_hit"), slot.c.number).outerjoin(slot, slot.c.id == claim.c.slot)
    return {
        row.id: (
            row.person, row.hit, None if row.slot is None else (row.its_hit, row.number), row.submitted, row.event, row.counted,
            row.doubt, row.verdict,
        )
        for row in connection.execute(asked.where(claim.c.study == study_id))
    }  # fmt: skip


def _slots(connection: Connection, study_id: int, told: Replayed) -> dict[Place, tuple[Any, ...]]:
    hits = connection.execute(select(hit.c.id).where(hit.c.study == study_id, ~hit.c.quiz)).scalars()
    out: dict[Place, tuple[Any, ...]] = {(each, n): ("open", None, None) for each in hits for n in range(told.new["people"])}
    for at, token in told.holder.items():
        one = told.claims[token]
        state = "held" if at not in told.done else "review" if one.doubt and one.verdict != "approve" else "done"
        out[at] = (state, one.person, token)
    return out


def _seen_slots(connection: Connection, study_id: int) -> dict[Place, tuple[Any, ...]]:
    rows = connection.execute(select(slot).where(slot.c.study == study_id))
    return {(row.hit, row.number): (row.state, row.person, row.claim) for row in rows}


def _seen_members(connection: Connection, study_id: int) -> dict[int, tuple[bool, int]]:
    rows = connection.execute(select(member).where(member.c.study == study_id, member.c.consented))
    return {row.person: (row.qualified, row.submitted) for row in rows}


def _parts(connection: Connection, study_id: int) -> dict[int, set[int]]:
    """The items of each HIT."""
    out: dict[int, set[int]] = {}
    asked = select(hit_item.c.hit, hit_item.c.item).join(hit, hit.c.id == hit_item.c.hit).where(hit.c.study == study_id)
    for row in connection.execute(asked):
        out.setdefault(row.hit, set()).add(row.item)
    return out


def _barred(told: Replayed, parts: Mapping[int, set[int]]) -> dict[tuple[int, int], bool]:
    """Of a person: the HITs that they answered, and those that share an item with one that they had."""
    homes: dict[int, set[int]] = {}
    for each, items in parts.items():
        for one in items:
            homes.setdefault(one, set()).add(each)
    likes = {
        each: {other for one in items if len(homes[one]) > 1 for other in homes[one]} - {each} for each, items in parts.items()
    }
    out = {(one.person, other): True for one in told.claims.values() for other in likes[one.hit]}
    return out | {(one.person, one.hit): True for one in told.claims.values() if one.submitted is not None}


def _seen_barred(connection: Connection, study_id: int) -> dict[tuple[int, int], bool]:
    rows = connection.execute(select(barred).join(hit, hit.c.id == barred.c.hit).where(hit.c.study == study_id))
    return {(row.person, row.hit): True for row in rows}


def _require_names(campaign: Campaign, connection: Connection, told: Replayed, name: str) -> None:
    """People are called what they were called when they agreed."""
    for row in connection.execute(select(person.c.id, person.c.key).where(person.c.id.in_(select(member.c.person)))):
        if told.names.get(row.id, seal := sealed(campaign, row.key)) != seal:
            raise CrossmatchError(f"{name}: person {row.id} was called otherwise when they agreed. Compare with a copy.")


def _require_once(told: Replayed, parts: Mapping[int, set[int]], name: str) -> None:
    """Who submitted answered all items of the HIT, and nobody answered an item twice."""
    seen: set[tuple[int, int]] = set()
    for token, one in told.claims.items():
        if one.submitted is None:
            continue
        if set(one.items) != parts[one.hit] or len(one.items) != len(parts[one.hit]):
            raise CrossmatchError(f"{name}: claim {token} answered other items than those of its HIT. Compare with a copy.")
        pairs = {(one.person, each) for each in one.items}
        if pairs & seen:
            raise CrossmatchError(f"{name}: person {one.person} answered item {min(pairs & seen)[1]} twice. Compare with a copy.")
        seen |= pairs


def _require_exclusions(connection: Connection, numbers: Mapping[str, int]) -> None:
    """Studies exclude each other as they said when they began."""
    told: set[tuple[int, int]] = set()
    for number in numbers.values():
        others = [numbers[other] for other in events.body(connection, number, 1).get("excludes", ()) if other in numbers]
        told |= {pair for other in others for pair in ((number, other), (other, number))}
    seen = {(row.study, row.other) for row in connection.execute(select(exclusion))}
    if told != seen:
        raise CrossmatchError("the studies do not exclude those that they excluded at their beginning. Compare with a copy.")


# -- the events


def _replay(connection: Connection, study_id: int, name: str) -> Replayed:
    told = Replayed(quiz=design_of(connection, study_id).recipe.quiz > 0)
    with closing(events.events(connection, study_id)) as rows:
        for row in rows:
            _follow(told, row, json.loads(row.body), name)
    return told


def _follow(told: Replayed, row: Any, body: dict[str, Any], name: str) -> None:
    """What one event changes."""
    if row.kind == "new":
        told.new = body
    elif row.kind in ("open", "close"):
        told.open = row.kind == "open"
    elif row.kind == "consent":
        told.members[row.person], told.names[row.person] = (not told.quiz, 0), body["name"]
    elif row.kind == "claim":
        _claimed(told, row, body, name)
    elif row.kind == "submit":
        _submitted(told, row, body, name)
    elif row.kind == "review":
        _reviewed(told, row, body, name)


def _claimed(told: Replayed, row: Any, body: Mapping[str, Any], name: str) -> None:
    at = None if body.get("quiz") else (body["hit"], body["slot"])
    if at in told.done:
        raise CrossmatchError(f"{name}: event {row.number} hands out a slot that was done. Compare with a copy.")
    before = told.claims.get(row.claim)
    if before is not None and (before.submitted is not None or before.person != row.person or before.hit != body["hit"]):
        raise CrossmatchError(f"{name}: event {row.number} hands out what was submitted, or another's HIT. Compare with a copy.")
    told.claims[row.claim] = Claimed(row.person, body["hit"], at)
    if at is not None:
        told.holder[at] = row.claim


def _submitted(told: Replayed, row: Any, body: Mapping[str, Any], name: str) -> None:
    one = told.claims.get(row.claim)
    if one is None or one.submitted is not None or one.person != row.person:
        raise CrossmatchError(
            f"{name}: event {row.number} submits what was submitted before, or another's HIT. Compare with a copy."
        )
    one.submitted, one.event, one.items = row.at, row.number, tuple(each["item"] for each in body["answers"])
    _, before = told.members[row.person]
    if one.at is None:
        told.members[row.person] = (body["passed"], before)
        return
    told.members[row.person] = (told.members[row.person][0], before + 1)
    one.counted, one.doubt = body["counted"], bool(body["wrong"])
    if one.counted:
        if told.holder.get(one.at) != row.claim or one.at in told.done:
            raise CrossmatchError(f"{name}: event {row.number} counts answers to a slot that was another's. Compare with a copy.")
        told.done[one.at] = row.claim


def _reviewed(told: Replayed, row: Any, body: Mapping[str, Any], name: str) -> None:
    one = told.claims[row.claim]
    one.verdict, one.counted = None if body["verdict"] == UNDO else body["verdict"], body["counted"]
    if one.counted:
        one.at = (one.hit, body["slot"])
        if told.holder.setdefault(one.at, row.claim) != row.claim:
            raise CrossmatchError(f"{name}: event {row.number} takes back a slot that was another's. Compare with a copy.")
        told.done[one.at] = row.claim
    elif one.at is not None and told.done.get(one.at) == row.claim:
        del told.done[one.at]
        told.holder.pop(one.at, None)
