"""What happened, in the order in which it happened: append-only, each event chained to the one before by its hash.

    hash_n = sha256(hash_{n-1} · json of study, n, time, kind, person, claim, body)

A changed, removed or inserted event breaks the chain from there on. The last hash is printed by `study verify` and by every
export: who keeps it can tell later whether the past was rewritten.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Row, insert, select

from crossmatch.core.errors import CrossmatchError
from crossmatch.study import queries
from crossmatch.study.schema import event, head
from crossmatch.study.straight import ask, write_all

if TYPE_CHECKING:
    from crossmatch.study.store import Campaign
    from crossmatch.study.straight import Asked

FIRST = "0" * 64  # stands for the hash before the first event
_ENDS: WeakKeyDictionary[Connection, dict[int, tuple[int, str]]] = WeakKeyDictionary()  # of the chains, in open transactions
KINDS = ("new", "join", "consent", "claim", "submit", "review", "open", "close")


def link(previous: str, study: int, number: int, at: float, kind: str, person: int | None, claim: str | None, body: str) -> str:
    """The hash of an event that follows another."""
    told = json.dumps([previous, study, number, repr(at), kind, person, claim, body], ensure_ascii=False)
    return hashlib.sha256(told.encode()).hexdigest()


def append(
    connection: Connection, study: int, at: float, kind: str, person: int | None = None, claim: str | None = None, **body: Any
) -> int:
    """Write an event at the end of a study's chain, within the transaction of what it tells; its number."""
    last = ask(connection, queries.LAST_EVENT, {"its_study": study}).first
    number, told = follow(connection, last, study, at, kind, person, claim, **body)
    write_all(connection, *told)
    return number


def follow(
    connection: Connection,
    row: Any,
    study: int,
    at: float,
    kind: str,
    person: int | None = None,
    claim: str | None = None,
    **body: Any,
) -> tuple[int, list[Asked]]:
    """The number of the next event, and the statements that write it. Nobody else writes meanwhile.

    It comes behind the `last` one that a row tells of, or behind what this transaction has written since that row was asked for.
    """
    if row is None:
        raise CrossmatchError(f"study {study} has no beginning: its chain of events was never opened. Make it anew.")
    ends = _ENDS.setdefault(connection, {})
    last, previous = ends.get(study, (row.last, row.hash))
    number, at, text = last + 1, float(at), json.dumps(body, ensure_ascii=False, sort_keys=True)  # at: as it is read again
    found = link(previous, study, number, at, kind, person, claim, text)
    ends[study] = (number, found)
    place = {"its_study": study, "its_number": number, "its_hash": found}
    told = {"its_at": at, "its_kind": kind, "its_person": person, "its_claim": claim, "its_body": text, "its_previous": previous}
    return number, [(queries.NEW_EVENT, {**place, **told}), (queries.NEW_HEAD, place)]


def begin(connection: Connection, study: int, at: float, **body: Any) -> None:
    """Open the chain of a new study."""
    connection.execute(insert(head).values(study=study, number=0, hash=FIRST))
    append(connection, study, at, "new", **body)


def events(connection: Connection, study: int, after: int = 0) -> Generator[Row[Any]]:
    """The events of a study in their order; whoever may stop before the end closes it."""
    asked = select(event).where(event.c.study == study, event.c.number > after).order_by(event.c.number)
    with connection.execute(asked, execution_options={"yield_per": 2000}) as rows:
        yield from rows


def body(connection: Connection, study: int, number: int) -> dict[str, Any]:
    """What an event tells."""
    text = connection.execute(select(event.c.body).where(event.c.study == study, event.c.number == number)).scalar_one()
    told: dict[str, Any] = json.loads(text)
    return told


def check_chain(campaign: Campaign, study: int) -> tuple[int, str]:
    """How many events a study has, and the last hash."""
    with campaign.reading() as connection:
        return chain(connection, study)


def chain(connection: Connection, study: int) -> tuple[int, str]:
    """The same within a transaction; a chain that does not hold is an error that says where it breaks."""
    previous, number = FIRST, 0
    with closing(events(connection, study)) as rows:
        for one in rows:
            if one.number != number + 1:
                raise CrossmatchError(f"event {number + 1} of study {study} is missing. Compare with a copy of the database.")
            number = one.number
            found = link(previous, study, number, one.at, one.kind, one.person, one.claim, one.body)
            if one.previous != previous or one.hash != found:
                raise CrossmatchError(f"event {number} of study {study} was changed: its hash does not fit. Compare with a copy.")
            previous = found
    last = connection.execute(select(head).where(head.c.study == study)).one()
    if (last.number, last.hash) != (number, previous):
        raise CrossmatchError(
            f"the chain of study {study} ends at event {number}, but {last.number} were written. Compare with a copy."
        )
    return number, previous
