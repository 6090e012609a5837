"""Whether the tables say what the events say: everything is made again from the events, and compared."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from crossmatch.core.errors import CrossmatchError
from crossmatch.study import events
from crossmatch.study.schema import claim, hit_item, item, slot, study, taken

if TYPE_CHECKING:
    from crossmatch.study.store import Campaign


@dataclass
class Replayed:
    """What follows from the events of a study."""

    holder: dict[tuple[int, int], str] = field(default_factory=dict)  # of a slot: the last claim on it that was not undone
    done: dict[tuple[int, int], str] = field(default_factory=dict)  # the claim whose answers count
    people: dict[str, int] = field(default_factory=dict)
    at: dict[str, tuple[int, int]] = field(default_factory=dict)
    hits: dict[str, int] = field(default_factory=dict)
    answered: dict[str, tuple[int, ...]] = field(default_factory=dict)  # the items of each submission
    counted: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Verified:
    """What was found of a study: its events, the last hash, and the answers that count."""

    study: str
    events: int
    hash: str
    answers: int


def verify(campaign: Campaign) -> list[Verified]:
    """Check every study of a campaign; the first fault is an error that names it."""
    with campaign.reading() as connection:
        rows = connection.execute(select(study.c.id, study.c.name).order_by(study.c.id)).all()
    return [verify_study(campaign, row.id, row.name) for row in rows]


def verify_study(campaign: Campaign, study_id: int, name: str) -> Verified:
    number, last = events.check_chain(campaign, study_id)
    with campaign.reading() as connection:
        told = _replay(events.events(connection, study_id), name)
        counted = set(connection.execute(select(claim.c.id).where(claim.c.study == study_id, claim.c.counted)).scalars())
        if counted != told.counted:
            odd = next(iter(counted ^ told.counted))
            raise CrossmatchError(f"{name}: the events and the table disagree whether claim {odd} counts. Compare with a copy.")
        for row in connection.execute(select(slot).where(slot.c.study == study_id)):
            at = (row.hit, row.number)
            want = "done" if at in told.done else "held" if at in told.holder else "open"
            seen = "done" if row.state == "review" else row.state
            if seen != want or (want != "open" and row.claim != told.holder.get(at)):
                raise CrossmatchError(
                    f"{name}: slot {row.number} of HIT {row.hit} is {row.state}, but the events say {want}. Compare with a copy."
                )
        parts = _parts(
            connection.execute(
                select(hit_item.c.hit, hit_item.c.item).join(item, item.c.id == hit_item.c.item).where(item.c.study == study_id)
            )
        )
        for one, items in told.answered.items():
            if set(items) != parts[told.hits[one]] or len(items) != len(parts[told.hits[one]]):
                raise CrossmatchError(f"{name}: claim {one} answered other items than those of its HIT. Compare with a copy.")
        owned = connection.execute(
            select(taken.c.person, taken.c.item).join(item, item.c.id == taken.c.item).where(item.c.study == study_id)
        )
        had = {(row.person, row.item) for row in owned}
    _require_once(told, name, had)
    return Verified(name, number, last, sum(len(told.answered[one]) for one in told.counted))


def _parts(rows: Any) -> dict[int, set[int]]:
    out: dict[int, set[int]] = {}
    for row in rows:
        out.setdefault(row.hit, set()).add(row.item)
    return out


def _require_once(told: Replayed, name: str, had: set[tuple[int, int]]) -> None:
    """Nobody answered an item twice, and everything that was answered had been handed out."""
    seen: set[tuple[int, int]] = set()
    for one, items in told.answered.items():
        for each in items:
            pair = (told.people[one], each)
            if pair in seen:
                raise CrossmatchError(f"{name}: person {pair[0]} answered item {each} twice. Compare with a copy.")
            if pair not in had:
                raise CrossmatchError(f"{name}: person {pair[0]} answered item {each} without having had it. Compare with a copy.")
            seen.add(pair)


def _replay(rows: Any, name: str) -> Replayed:
    told = Replayed()
    for row in rows:
        body = json.loads(row.body)
        if row.kind == "claim":
            told.people[row.claim], told.hits[row.claim] = row.person, body["hit"]
            if not body.get("quiz"):
                at = told.at[row.claim] = (body["hit"], body["slot"])
                if at in told.done:
                    raise CrossmatchError(f"{name}: event {row.number} hands out a slot that was done. Compare with a copy.")
                told.holder[at] = row.claim
        elif row.kind == "submit":
            _submitted(told, row, body, name)
        elif row.kind == "review":
            _reviewed(told, row, body)
    return told


def _submitted(told: Replayed, row: Any, body: dict[str, Any], name: str) -> None:
    if row.claim in told.answered or told.people.get(row.claim) != row.person:
        raise CrossmatchError(
            f"{name}: event {row.number} submits what was submitted before, or another's HIT. Compare with a copy."
        )
    told.answered[row.claim] = tuple(each["item"] for each in body["answers"])
    if body.get("counted"):
        at = told.at[row.claim]
        if told.holder.get(at) != row.claim or at in told.done:
            raise CrossmatchError(f"{name}: event {row.number} counts answers to a slot that was another's. Compare with a copy.")
        told.done[at] = row.claim
        told.counted.add(row.claim)


def _reviewed(told: Replayed, row: Any, body: dict[str, Any]) -> None:
    at = told.at[row.claim]
    if not body["counted"]:
        told.counted.discard(row.claim)
        if told.done.get(at) == row.claim:
            del told.done[at]
            told.holder.pop(at, None)
