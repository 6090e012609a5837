"""Small studies, people and clocks for the tests of the annotation service."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import event as happening
from sqlalchemy import select

from crossmatch.study.assignment import claims, people
from crossmatch.study.assignment.hits import Hit, load_hit
from crossmatch.study.database.campaign import Campaign, create_campaign
from crossmatch.study.database.events import check_chain
from crossmatch.study.database.schema import claim, event, study
from crossmatch.study.design.declaration import Design, load_design
from crossmatch.study.design.new_study import NewItem, create_study

NOON = 1_700_000_000.0
PICTURE = bytes.fromhex("ffd8ffe000104a46494600010100000100010000ffd9")  # begins and ends as a JPEG does; nobody decodes it here
RIGHT = {"positive": "yes", "negative": "no"}


@dataclass
class Clock:
    """Time that passes only when told to."""

    at: float = NOON

    def __call__(self) -> float:
        return self.at

    def wait(self, minutes: float) -> None:
        self.at += 60 * minutes


@contextmanager
def new_campaign(folder: Path, database: str = "", clock: Clock | None = None) -> Iterator[Campaign]:
    campaign = create_campaign(folder, database, clock or Clock())
    try:
        yield campaign
    finally:
        campaign.close()


def database_of(kind: str, request: pytest.FixtureRequest) -> str:
    """The URL of an empty database: one for all tests, which is emptied before each."""
    if kind != "postgresql":
        return ""
    url: str = request.getfixturevalue("postgres_url")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("drop schema if exists public cascade")
        connection.execute("create schema public")
    return f"{url}?options=-csynchronous_commit%3Doff"  # no test here ends with a power failure


def careless(campaign: Campaign) -> None:
    """Let SQLite forget what it wrote if the power fails: for thousands of small transactions in a test."""

    @happening.listens_for(campaign.engine, "connect")
    def prepare(raw: object, _: object) -> None:
        raw.execute("PRAGMA synchronous=OFF")

    campaign.engine.dispose()


# -- studies


def design_of(*overrides: str, name: str = "eccv-hit") -> Design:
    """Image-caption pairs, three to a HIT, none of them gold unless told otherwise."""
    usual = ["recipe.batch=3", "recipe.gold_positive=0", "recipe.gold_negative=0"] if name == "eccv-hit" else []
    return load_design(name, [*usual, *overrides])


GOLDEN = ("recipe.gold_positive=1", "recipe.gold_negative=1")


def pairs(n: int, **more: object) -> list[NewItem]:
    return [NewItem(f"pair-{k}", ("a.jpg",), (f"caption {k}",), **more) for k in range(n)]


def gold(n: int, kinds: tuple[str, ...] = ("positive", "negative")) -> list[NewItem]:
    """So many gold pairs of each kind; their captions tell what they are, for the tests alone."""
    return [
        NewItem(f"{kind}-{k}", ("a.jpg",), (f"gold {kind} {k}",), gold={"match": (RIGHT[kind],)}, kind=kind)
        for kind in kinds
        for k in range(n)
    ]


def a_study(campaign: Campaign, *overrides: str, items: int = 6, golden: int = 0, name: str = "", **more: object) -> int:
    """A study of so many pairs, and of gold of each kind if any is wanted."""
    (campaign.images_folder / "a.jpg").write_bytes(PICTURE)
    wanted = [*(GOLDEN if golden else ()), *overrides]
    return create_study(campaign, design_of(*wanted), [*pairs(items), *gold(golden)], name=name, seed="seed", **more)


def link_of(campaign: Campaign, study_id: int) -> str:
    with campaign.read_transaction() as connection:
        return connection.execute(select(study.c.link).where(study.c.id == study_id)).scalar_one()


def someone(campaign: Campaign, study_id: int, name: str = "") -> int:
    """A person who has joined and agreed."""
    _, who = people.join_study(campaign, link_of(campaign, study_id), name)
    people.give_consent(campaign, study_id, who.id)
    return who.id


# -- working


def hit_of(campaign: Campaign, claim_id: str, person_id: int | None = None) -> Hit:
    with campaign.read_transaction() as connection:
        return load_hit(connection, claim_id, person_id)


def answers_to(held: Hit, match: str = "yes", wrong: bool = False) -> list[dict[str, object]]:
    """An answer to every item, gold ones as they must be, unless they are to be wrong."""
    out = []
    for item in held.items:
        value = match if item.gold is None else item.gold["match"][0]
        if wrong and item.gold is not None:
            value = {"yes": "no", "no": "yes"}[value]
        out.append({"match": value})
    return out


def work(campaign: Campaign, study_id: int, person_id: int, match: str = "yes", wrong: bool = False) -> str:
    """Claim and submit a HIT; its claim."""
    claim_id = claims.claim_hit(campaign, study_id, person_id)
    claims.submit(campaign, claim_id, person_id, answers_to(hit_of(campaign, claim_id), match, wrong))
    return claim_id


def refused(campaign: Campaign, study_id: int, person_id: int) -> str:
    """Why there is nothing for a person."""
    with pytest.raises(claims.NoHitAvailableError) as error:
        claims.claim_hit(campaign, study_id, person_id)
    return error.value.reason


@dataclass
class Book:
    """What was submitted, by the events."""

    answers: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    bodies: dict[str, dict[str, object]] = field(default_factory=dict)
    people: dict[str, int] = field(default_factory=dict)


def book(campaign: Campaign, study_id: int) -> Book:
    found = Book()
    with campaign.read_transaction() as connection:
        query = select(event).where(event.c.study == study_id, event.c.kind == "submit").order_by(event.c.number)
        for row in connection.execute(query):
            body = json.loads(row.body)
            found.bodies[row.claim], found.people[row.claim] = body, row.person
            found.answers[row.claim] = [answer["answer"] for answer in body["answers"]]
    return found


def verify_chain(campaign: Campaign, study_id: int) -> tuple[int, str]:
    """Check the event log of a study: the number of events and the last hash."""
    with campaign.read_transaction() as connection:
        return check_chain(connection, study_id)


def row_of(campaign: Campaign, claim_id: str) -> object:
    with campaign.read_transaction() as connection:
        return connection.execute(select(claim).where(claim.c.id == claim_id)).one()


def in_parallel(jobs: list[Callable[[], Any]]) -> list[Any]:
    """Run these at the same time; what each gave, or the error that it raised."""
    gate, out = threading.Barrier(len(jobs)), [None] * len(jobs)

    def run(n: int) -> None:
        gate.wait()
        try:
            out[n] = jobs[n]()
        except Exception as error:
            out[n] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return out


def in_order(campaign: Campaign, jobs: list[Callable[[], Any]]) -> list[Any]:
    """Run these so that they ask for the database in this order, all while another transaction is open."""
    out = [None] * len(jobs)

    def run(n: int) -> None:
        out[n] = in_parallel([jobs[n]])[0]

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(jobs))]
    with campaign.write_lock:
        for n, thread in enumerate(threads):
            thread.start()
            while len(campaign.write_lock._waiting) <= n:
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    return out
