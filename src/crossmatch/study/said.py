"""What people said: the answers that count, read from the events, which are the only place where they stand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, and_, func, or_, select

from crossmatch.core.errors import WrongWords
from crossmatch.study.design import Design, from_told
from crossmatch.study.promise import ids_of
from crossmatch.study.schema import claim, event, hit, item, person, slot, study

if TYPE_CHECKING:
    from crossmatch.study.store import Campaign

ARTIFICIAL = re.compile(r"artificial(-[0-9a-f]{6})?-[0-9]{4,}")  # how artificial annotators are called, and nobody else


@dataclass(frozen=True)
class Thing:
    """An item as it was declared."""

    id: int
    key: str
    images: tuple[str, ...]
    captions: tuple[str, ...]
    block: str
    gold: Mapping[str, Any] | None
    body: Mapping[str, Any] = field(repr=False)

    @property
    def image_ids(self) -> tuple[str, ...]:
        """What its images are called in the data that it came from."""
        return ids_of(self.body, "image_id", len(self.images))

    @property
    def caption_ids(self) -> tuple[str, ...]:
        return ids_of(self.body, "caption_id", len(self.captions))

    @property
    def sizes(self) -> dict[str, int]:
        return {"images": len(self.images), "captions": len(self.captions)}


@dataclass(frozen=True)
class Said:
    """What one person answered about one item."""

    thing: Thing
    person: str
    claim: str
    hit: int
    answer: Mapping[str, Any]
    at: float
    seconds: float | None
    late: bool
    doubt: bool
    verdict: str | None
    orders: Mapping[str, Any] = field(repr=False)

    @property
    def artificial(self) -> bool:
        return is_artificial(self.person)


def is_artificial(name: str) -> bool:
    """Whether this is the name of an artificial annotator.

    >>> is_artificial("artificial-0007"), is_artificial("artificial-3fa2c1-0001"), is_artificial("artificial flower")
    (True, True, False)
    """
    return ARTIFICIAL.fullmatch(name) is not None


@dataclass(frozen=True)
class Study:
    """A study of a campaign."""

    id: int
    name: str
    design: Design
    seed: str
    link: str
    open: bool
    origin: Mapping[str, Any]


def find_study(campaign: Campaign, name: str = "") -> Study:
    """The study of this name, or the only one there is."""
    found = {one.name: one for one in studies(campaign)}
    if not found:
        raise WrongWords(f"{campaign.folder} has no study yet. Make one: crossmatch study new PRESET … -o {campaign.folder}")
    if not name and len(found) > 1:
        raise WrongWords(f"{campaign.folder} has {len(found)} studies: {', '.join(found)}. Say which: --study NAME")
    if name and name not in found:
        raise WrongWords(f"{campaign.folder} has no study {name!r}; it has {', '.join(found)}.")
    return found[name] if name else next(iter(found.values()))


def studies(campaign: Campaign) -> list[Study]:
    with campaign.reading() as connection:
        rows = connection.execute(select(study).order_by(study.c.id)).all()
    return [Study(r.id, r.name, from_told(r.design), r.seed, r.link, r.open, r.origin) for r in rows]


def things(connection: Connection, study_id: int) -> dict[int, Thing]:
    """The items of a study by number."""
    rows = connection.execute(select(item).where(item.c.study == study_id).order_by(item.c.id))
    return {r.id: Thing(r.id, r.key, tuple(r.images), tuple(r.captions), r.block, r.gold, r.body) for r in rows}


def counted(connection: Connection, study_id: int, *, pending: bool = False) -> Iterator[Said]:
    """The answers that count, by the order in which they came; gold items too.

    A HIT with a wrong gold answer counts once a reviewer approved it; with `pending` also while nobody has looked at it.
    """
    known = things(connection, study_id)
    looked_at = or_(~claim.c.doubt, claim.c.verdict == "approve") if not pending else claim.c.doubt.is_not(None)
    yield from _read(connection, study_id, known, and_(claim.c.counted, looked_at))


def everything(connection: Connection, study_id: int) -> Iterator[Said]:
    """All answers that were ever submitted to HITs: late, doubted and rejected ones too; quizzes apart."""
    yield from _read(connection, study_id, things(connection, study_id), claim.c.slot.is_not(None))


def _read(connection: Connection, study_id: int, known: Mapping[int, Thing], which: Any) -> Iterator[Said]:
    rows = connection.execution_options(yield_per=2000).execute(
        select(event.c.body, event.c.at, claim, person.c.key)
        .join(claim, and_(claim.c.study == event.c.study, claim.c.event == event.c.number))
        .join(person, person.c.id == claim.c.person)
        .where(event.c.study == study_id, which)
        .order_by(event.c.number)
    )
    for row in rows:
        told = json.loads(row.body)
        times = told["seconds"] or [None] * len(told["answers"])
        for one, seconds in zip(told["answers"], times, strict=True):
            yield Said(
                known[one["item"]], row.key, row.id, row.hit, one["answer"], row.at, seconds, told.get("late", False), row.doubt,
                row.verdict, one.get("orders", {}),
            )  # fmt: skip


@dataclass(frozen=True)
class Progress:
    """How far a study is: slots in each state, HITs, items to be judged, and HITs that wait for a reviewer."""

    open: int
    held: int
    review: int
    done: int
    hits: int

    @property
    def slots(self) -> int:
        return self.open + self.held + self.review + self.done


def progress(connection: Connection, study_id: int) -> Progress:
    rows = connection.execute(select(slot.c.state, func.count()).where(slot.c.study == study_id).group_by(slot.c.state)).all()
    states = {str(state): int(n) for state, n in rows}
    hits = connection.execute(select(func.count()).select_from(hit).where(hit.c.study == study_id, ~hit.c.quiz)).scalar_one()
    return Progress(states.get("open", 0), states.get("held", 0), states.get("review", 0), states.get("done", 0), hits)
