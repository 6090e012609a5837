"""HITs as annotators see them: items in the order drawn for a claim, and answers mapped back to the declared order."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, select

from crossmatch.data.errors import CrossmatchError
from crossmatch.study.database import queries
from crossmatch.study.database.schema import study
from crossmatch.study.design.declaration import Design, Question, design_from_dict
from crossmatch.study.design.places import Place, parse_place

if TYPE_CHECKING:
    from crossmatch.study.database.campaign import Campaign

SESSION_EXPIRED = "Your session has expired. Open your personal link again."
NO_SUCH_STUDY = "This study does not exist, or you are not a member of it. Check the link."
NO_SUCH_HIT = "This task does not exist, or it is not yours. Go back to the study and start again."


class NotFoundError(CrossmatchError):
    """Something that does not exist or belongs to somebody else. The message does not say which."""


class SessionExpiredError(CrossmatchError):
    """The session has ended because the person got a new personal link."""


@dataclass(frozen=True)
class DisplayedItem:
    """An item as one person sees it. `orders` gives the declared place of what is displayed at each place."""

    item_id: int
    key: str
    block: str
    images: tuple[str, ...]  # file names, in the displayed order
    captions: tuple[str, ...]
    orders: Mapping[str, tuple[int, ...]]
    questions: tuple[Question, ...]
    gold: Mapping[str, Any] | None
    details: Mapping[str, Any] = field(repr=False)

    @property
    def counts(self) -> dict[str, int]:
        """The number of images, captions and lists."""
        return {side: len(places) for side, places in self.orders.items()}


@dataclass(frozen=True)
class Hit:
    """A HIT that a person has claimed."""

    claim_id: str
    study_id: int
    study_name: str
    design: Design
    person_id: int
    hit_id: int
    is_quiz: bool
    items: tuple[DisplayedItem, ...]
    is_submitted: bool
    lease_end: float | None  # None: the slot went to somebody else, or this is a quiz
    slot_id: int | None  # None: a quiz
    event_number: int | None  # the event with the submitted answers
    draft_number: int  # 0: no draft
    draft_answers: Any


@dataclass(frozen=True)
class StudyFacts:
    """The columns of a study that never change."""

    id: int
    name: str
    design: Design
    seed: str


# Per database. Parsing a design takes longer than all queries of a request.
_FACTS: WeakKeyDictionary[Engine, dict[int, StudyFacts]] = WeakKeyDictionary()
_STUDY_IDS: WeakKeyDictionary[Engine, dict[str, int]] = WeakKeyDictionary()


def _load_facts(connection: Connection, study_id: int) -> StudyFacts:
    facts = _FACTS.setdefault(connection.engine, {})
    if study_id not in facts:
        columns = (study.c.id, study.c.name, study.c.design, study.c.seed)
        row = connection.execute(select(*columns).where(study.c.id == study_id)).first()
        if row is None:
            raise NotFoundError(NO_SUCH_STUDY)
        facts[study_id] = StudyFacts(row.id, row.name, design_from_dict(row.design), row.seed)
    return facts[study_id]


def load_study_design(connection: Connection, study_id: int) -> Design:
    """The design of a study."""
    return _load_facts(connection, study_id).design


def find_study_id(campaign: Campaign, name: str) -> int:
    """The id of the study with this name."""
    study_ids = _STUDY_IDS.setdefault(campaign.engine, {})
    if name not in study_ids:
        with campaign.read_transaction() as connection:
            study_id = connection.execute(select(study.c.id).where(study.c.name == name)).scalar()
        if study_id is None:
            raise NotFoundError(NO_SUCH_STUDY)
        study_ids[name] = study_id
    return study_ids[name]


def load_hit(connection: Connection, claim_id: str, person_id: int | None = None, session_number: int | None = None) -> Hit:
    """Load the HIT of a claim.

    Args:
        connection: An open transaction.
        claim_id: The claim.
        person_id: The person who must own the claim; None for a reviewer.
        session_number: The person's session, which must not have ended; None where there is no session.
    """
    row = connection.execute(queries.LOAD_CLAIM, {"claim_id": claim_id}).first()
    if row is None or (person_id is not None and row.person != person_id):
        raise NotFoundError(NO_SUCH_HIT)
    if session_number is not None and row.sessions != session_number:
        raise SessionExpiredError(SESSION_EXPIRED)
    facts = _load_facts(connection, row.study)
    items = connection.execute(queries.LOAD_ITEMS, {"hit_id": row.hit}).all()
    return Hit(
        claim_id=claim_id,
        study_id=row.study,
        study_name=facts.name,
        design=facts.design,
        person_id=row.person,
        hit_id=row.hit,
        is_quiz=row.quiz,
        items=_display_items(facts, items, claim_id),
        is_submitted=row.submitted is not None,
        lease_end=row.lease if row.slot_claim == claim_id else None,
        slot_id=row.slot,
        event_number=row.event,
        draft_number=row.draft_number or 0,
        draft_answers=row.draft_answers,
    )


def shuffled_order(n: int, *seed_parts: object) -> tuple[int, ...]:
    """A permutation of n places, drawn by a hash of the seed parts, so that a reload shows the same order.

    >>> shuffled_order(4, "seed", "claim", 7, "images")
    (0, 3, 2, 1)
    """
    key = "\0".join(map(str, seed_parts)).encode()
    return tuple(sorted(range(n), key=lambda place: hashlib.sha256(key + b"\0%d" % place).digest()))


def _display_items(facts: StudyFacts, rows: Sequence[Any], claim_id: str) -> tuple[DisplayedItem, ...]:
    """The items of a HIT in the order drawn for a claim, block by block."""
    places, blocks = shuffled_order(len(rows), facts.seed, claim_id, "items"), facts.design.shows.blocks
    by_block = sorted(places, key=lambda n: blocks.index(rows[n].block) if rows[n].block else -1)
    return tuple(display_item(facts.design, rows[n], facts.seed, claim_id) for n in by_block)


def display_item(design: Design, row: Any, seed: str, claim_id: str) -> DisplayedItem:
    """An item with its images, captions or lists in the order drawn for this claim."""
    lists = design.shows.lists
    counts = {"images": len(row.images), "captions": len(row.captions), "lists": lists}
    orders = {
        side: shuffled_order(n, seed, claim_id, row.id, side) if side in design.shows.shuffle else tuple(range(n))
        for side, n in counts.items()
    }
    if lists:  # whole lists are shuffled; within a list the images keep their ranks
        size = len(row.images) // lists
        orders["images"] = tuple(which * size + n for which in orders["lists"] for n in range(size))
    return DisplayedItem(
        item_id=row.id,
        key=row.key,
        block=row.block,
        images=tuple(row.images[n] for n in orders["images"]),
        captions=tuple(row.captions[n] for n in orders["captions"]),
        orders=orders,
        questions=design.questions_for(row.block),
        gold=row.gold,
        details=row.body,
    )


def to_declared_places(displayed: DisplayedItem, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Translate an answer that names displayed places (`image-0` is the first on the page) to declared places."""
    return {q.name: _to_declared_place(displayed, q, answer[q.name]) for q in displayed.questions if q.name in answer}


def _to_declared_place(displayed: DisplayedItem, question: Question, value: Any) -> Any:
    if isinstance(value, list):
        return [_to_declared_place(displayed, question, part) for part in value]
    place = parse_place(value) if question.among else None
    return value if place is None else Place(place.side, displayed.orders[place.side][place.n]).value


def is_gold_correct(displayed: DisplayedItem, answer: Mapping[str, Any]) -> bool:
    """Whether an answer to a gold question is one of the accepted ones."""
    return all(answer.get(name) in accepted for name, accepted in (displayed.gold or {}).items())
