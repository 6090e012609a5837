"""What is shown: a HIT in the hands of a person, its items in the order that was drawn for them, and their answers in ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine

from crossmatch.core.errors import CrossmatchError
from crossmatch.study import queries
from crossmatch.study.blind import order
from crossmatch.study.design import Design, Question, from_told
from crossmatch.study.straight import ask
from crossmatch.study.together import Steps, in_step

if TYPE_CHECKING:
    from crossmatch.study.store import Campaign


class NotYours(CrossmatchError):  # noqa: N818 - it says whose it is
    """A HIT that this person does not have, or that does not exist: which of the two is not told."""


class Ended(CrossmatchError):  # noqa: N818 - it says what the session has
    """A session that is over, since its person has a new token."""


def require_session(row: Any, sessions: int | None) -> None:
    """A person's session must be one of those that hold; `row` has their number. None: whoever asks has no session."""
    if sessions is not None and row.sessions != sessions:
        raise Ended("nobody is known here by this session. Open the link that you were given.")


@dataclass(frozen=True)
class Shown:
    """One item as one person sees it: `orders` say which image, caption or list stands at each place."""

    item: int
    key: str
    block: str
    images: tuple[str, ...]  # files, in the order shown
    captions: tuple[str, ...]
    orders: Mapping[str, tuple[int, ...]]
    questions: tuple[Question, ...]
    gold: Mapping[str, Any] | None
    body: Mapping[str, Any] = field(repr=False)

    @property
    def sizes(self) -> dict[str, int]:
        return {side: len(places) for side, places in self.orders.items()}


@dataclass(frozen=True)
class Hit:
    """A HIT in the hands of a person."""

    claim: str
    study: int
    name: str
    design: Design
    person: int
    hit: int
    quiz: bool
    items: tuple[Shown, ...]
    submitted: bool
    lease: float | None  # until when it is kept, if it still is
    slot: int | None  # none: a quiz
    event: int | None  # the number of the event that holds the answers
    draft: tuple[int, Any]  # the number of the newest one, and what was answered so far


@dataclass(frozen=True)
class Facts:
    """What is known of a study, and never changes."""

    id: int
    name: str
    design: Design
    seed: str


class Kept:
    """The items of the HITs that were read last, not more than so many items."""

    MOST = 10_000  # items: a crowd is at work on neighbouring HITs

    def __init__(self) -> None:
        self.items: dict[int, list[Any]] = {}
        self._number, self._guard = 0, Lock()

    def keep(self, hit_id: int, rows: list[Any]) -> None:
        with self._guard:
            if hit_id in self.items or len(rows) > self.MOST:
                return
            self.items[hit_id] = rows
            self._number += len(rows)
            while self._number > self.MOST:
                self._number -= len(self.items.pop(next(iter(self.items))))


# Of each database that is open. To read a design anew for every page would take longer than all the rest.
_KNOWN: WeakKeyDictionary[Engine, dict[int, Facts]] = WeakKeyDictionary()

_NUMBERS: WeakKeyDictionary[Engine, dict[str, int]] = WeakKeyDictionary()

_ITEMS: WeakKeyDictionary[Engine, Kept] = WeakKeyDictionary()


def facts_of(connection: Connection, study_id: int) -> Facts:
    known = _KNOWN.setdefault(connection.engine, {})
    if study_id not in known:
        row = connection.execute(queries.FIND_STUDY, {"its_study": study_id}).first()
        if row is None:
            raise NotYours("there is no such study. Check the link.")
        known[study_id] = Facts(row.id, row.name, from_told(row.design), row.seed)
    return known[study_id]


def number_of(campaign: Campaign, name: str) -> int:
    """The number of the study of this name, which is looked up once."""
    known = _NUMBERS.setdefault(campaign.engine, {})
    if name not in known:
        with campaign.reading() as connection:
            found = connection.execute(queries.FIND_NUMBER, {"its_name": name}).scalar()
        if found is None:
            raise NotYours("there is no such study. Check the link.")
        known[name] = found
    return known[name]


def design_of(connection: Connection, study_id: int) -> Design:
    return facts_of(connection, study_id).design


def items_of(connection: Connection, hit_id: int) -> Steps[list[Any]]:
    """The items of a HIT, which never change: who is handed it out, who looks at it and who submits it need the same ones."""
    known = _ITEMS.setdefault(connection.engine, Kept())
    found = known.items.get(hit_id)
    if found is None:
        (said,) = yield ((queries.LOAD_ITEMS, {"its_hit": hit_id}),)
        found = said.rows
        known.keep(hit_id, found)
    return found


def load_hit(connection: Connection, claim_id: str, person_id: int | None) -> Hit:
    """A HIT as it is shown to its person; `None` stands for a reviewer, who may see all."""
    row = ask(connection, queries.LOAD_CLAIM, {"its_claim": claim_id}).first
    found: list[Hit] = in_step(connection, [as_hit(connection, claim_id, person_id, row)])
    return found[0]


def as_hit(connection: Connection, claim_id: str, person_id: int | None, row: Any) -> Steps[Hit]:
    """The HIT of a row of `queries.LOAD_CLAIM`."""
    if row is None or (person_id is not None and row.person != person_id):
        raise NotYours("there is no such page for you. Go back to the study, and begin again.")
    known = facts_of(connection, row.study)
    shown = _shown(known, (yield from items_of(connection, row.hit)), claim_id)
    lease = row.lease if row.holder == claim_id else None
    held = (claim_id, row.study, known.name, known.design, row.person, row.hit, row.quiz, shown, row.submitted is not None, lease)
    return Hit(*held, row.slot, row.event, (row.draft or 0, row.body))


def new_hit(known: Facts, items: list[Any], claim_id: str, person_id: int, taken: Any, lease: float) -> Hit:
    """The HIT of a claim that was made on a slot just now: nothing of it is submitted, and there is no draft."""
    shown = _shown(known, items, claim_id)
    return Hit(
        claim_id, known.id, known.name, known.design, person_id, taken.hit, False, shown, False, lease,
        taken.id, None, (0, None),
    )  # fmt: skip


def _shown(known: Facts, rows: list[Any], claim_id: str) -> tuple[Shown, ...]:
    """The items of a HIT in the order drawn for a claim, block by block."""
    places, blocks = order(len(rows), known.seed, claim_id, "items"), known.design.shows.blocks
    by_block = sorted(places, key=lambda n: blocks.index(rows[n].block) if rows[n].block else -1)
    return tuple(shown_item(known.design, rows[n], known.seed, claim_id) for n in by_block)


def shown_item(design: Design, row: Any, seed: str, claim_id: str) -> Shown:
    """An item with its images, captions or lists in the order drawn for this claim."""
    lists = design.shows.lists
    numbers = {"images": len(row.images), "captions": len(row.captions), "lists": lists}
    orders = {
        side: order(n, seed, claim_id, row.id, side) if side in design.shows.shuffle else tuple(range(n))
        for side, n in numbers.items()
    }
    if lists:  # whole lists change places, and within a list the images stand as they were ranked
        size = len(row.images) // lists
        orders["images"] = tuple(which * size + n for which in orders["lists"] for n in range(size))
    images, captions = tuple(row.images[n] for n in orders["images"]), tuple(row.captions[n] for n in orders["captions"])
    return Shown(
        row.id, row.key, row.block, images, captions,
        orders, design.asked(row.block), row.gold, row.body,
    )  # fmt: skip


def as_declared(one: Shown, answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer that names places on the page, by the places that the item declares."""
    return {q.name: _declared(one, q, answer[q.name]) for q in one.questions if q.name in answer}


def _declared(one: Shown, question: Question, value: Any) -> Any:
    if not question.among or isinstance(value, float):
        return value
    if isinstance(value, list):
        return [_declared(one, question, each) for each in value]
    side, _, place = value.rpartition("-")
    own = {option.value for option in question.options}
    return value if value in own else f"{side}-{one.orders[question.among][int(place)]}"


def right(one: Shown, answer: Mapping[str, Any]) -> bool:
    """Whether a gold item was answered as it must be."""
    return all(answer.get(name) in accepted for name, accepted in (one.gold or {}).items())
