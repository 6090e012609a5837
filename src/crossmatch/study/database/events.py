"""The event log: append-only, each event chained to the one before by its hash.

    hash_n = sha256(hash_{n-1} · json of study, n, time, kind, person, claim, body)

A changed, removed or inserted event breaks the chain. `study verify` and every export print the last hash: an owner who keeps it can
tell later whether the log was rewritten.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator
from contextlib import closing
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from crossmatch.data.errors import CrossmatchError
from crossmatch.study.database.schema import event, head

INITIAL_HASH = "0" * 64  # the hash before the first event


def event_hash(
    previous: str, study_id: int, number: int, at: float, kind: str, person_id: int | None, claim_id: str | None, body: str
) -> str:
    """The hash of an event that follows the event with the hash `previous`."""
    content = json.dumps([previous, study_id, number, repr(at), kind, person_id, claim_id, body], ensure_ascii=False)
    return hashlib.sha256(content.encode()).hexdigest()


def append_event(
    connection: Connection,
    study_id: int,
    at: float,
    kind: str,
    person_id: int | None = None,
    claim_id: str | None = None,
    **body: Any,
) -> int:
    """Append an event to a study's log, in the transaction of the change that it records.

    Returns:
        The number of the event.
    """
    last = connection.execute(select(head.c.number, head.c.hash).where(head.c.study == study_id)).first()
    if last is None:
        raise CrossmatchError(f"Study {study_id} has no event log. Create the study again.")
    number, at, text = last.number + 1, float(at), json.dumps(body, ensure_ascii=False, sort_keys=True)
    new_hash = event_hash(last.hash, study_id, number, at, kind, person_id, claim_id, text)
    values = {
        "study": study_id,
        "number": number,
        "at": at,
        "kind": kind,
        "person": person_id,
        "claim": claim_id,
        "body": text,
        "previous": last.hash,
        "hash": new_hash,
    }
    connection.execute(insert(event), values)
    connection.execute(update(head).where(head.c.study == study_id).values(number=number, hash=new_hash))
    return int(number)


def start_chain(connection: Connection, study_id: int, at: float, **body: Any) -> None:
    """Start the event log of a new study."""
    connection.execute(insert(head).values(study=study_id, number=0, hash=INITIAL_HASH))
    append_event(connection, study_id, at, "new", **body)


def read_events(connection: Connection, study_id: int, after: int = 0) -> Generator[Row[Any]]:
    """The events of a study in order. Close the generator if you stop early."""
    query = select(event).where(event.c.study == study_id, event.c.number > after).order_by(event.c.number)
    with connection.execute(query, execution_options={"yield_per": 2000}) as rows:
        yield from rows


def read_body(connection: Connection, study_id: int, number: int) -> dict[str, Any]:
    """The body of an event."""
    text = connection.execute(select(event.c.body).where(event.c.study == study_id, event.c.number == number)).scalar_one()
    body: dict[str, Any] = json.loads(text)
    return body


def check_chain(connection: Connection, study_id: int) -> tuple[int, str]:
    """Check the hash of every event of a study.

    Returns:
        The number of events and the last hash.

    Raises:
        CrossmatchError: An event is missing or was changed; the message says which.
    """
    previous, number = INITIAL_HASH, 0
    with closing(read_events(connection, study_id)) as rows:
        for row in rows:
            if row.number != number + 1:
                raise CrossmatchError(f"Study {study_id}: event {number + 1} is missing. Compare with a backup of the database.")
            number = row.number
            expected = event_hash(previous, study_id, number, row.at, row.kind, row.person, row.claim, row.body)
            if row.previous != previous or row.hash != expected:
                raise CrossmatchError(
                    f"Study {study_id}: event {number} was changed: its hash does not match. Compare with a backup."
                )
            previous = expected
    last = connection.execute(select(head).where(head.c.study == study_id)).one()
    if (last.number, last.hash) != (number, previous):
        raise CrossmatchError(
            f"Study {study_id}: the event log ends at event {number}, but {last.number} events were written. "
            "Compare with a backup of the database."
        )
    return number, previous
