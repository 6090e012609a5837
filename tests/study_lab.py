"""Small studies, people and clocks for the tests of the annotation service."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import event as sqlalchemy_event
from sqlalchemy import select

from crossmatch.study.assignment import claims, people
from crossmatch.study.assignment.displayed_hits import Hit, load_hit
from crossmatch.study.database.campaign import Campaign, create_campaign
from crossmatch.study.database.events import check_chain
from crossmatch.study.database.schema import claim, event, study
from crossmatch.study.design.add_study import create_study
from crossmatch.study.design.declaration import Design, load_design
from crossmatch.study.design.new_items import NewItem
from polling import wait_until

START = 1_700_000_000.0
JPEG = bytes.fromhex("ffd8ffe000104a46494600010100000100010000ffd9")  # begins and ends like a JPEG file, and is never decoded
CORRECT = {"positive": "yes", "negative": "no"}


@dataclass
class Clock:
    """A clock that advances only when `wait` is called."""

    at: float = START

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
    """The URL of an empty database: empty for SQLite; for PostgreSQL, one database that is emptied before each test."""
    if kind != "postgresql":
        return ""
    url: str = request.getfixturevalue("postgres_url")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("drop schema if exists public cascade")
        connection.execute("create schema public")
    return f"{url}?options=-csynchronous_commit%3Doff"  # faster, and only unsafe in a power failure


def disable_sync(campaign: Campaign) -> None:
    """Let SQLite commit without waiting for the disk, because tests have thousands of small transactions."""

    @sqlalchemy_event.listens_for(campaign.engine, "connect")
    def prepare(raw: object, _: object) -> None:
        raw.execute("PRAGMA synchronous=OFF")

    campaign.engine.dispose()


# -- studies


def design_of(*overrides: str, name: str = "eccv-hit") -> Design:
    """A design for image-caption pairs with three items per HIT and no gold, unless overridden."""
    defaults = ["recipe.batch=3", "recipe.gold_positive=0", "recipe.gold_negative=0"] if name == "eccv-hit" else []
    return load_design(name, [*defaults, *overrides])


WITH_GOLD = ("recipe.gold_positive=1", "recipe.gold_negative=1")


def pairs(n: int, **more: object) -> list[NewItem]:
    return [NewItem(f"pair-{k}", ("a.jpg",), (f"caption {k}",), **more) for k in range(n)]


def gold(n: int, kinds: tuple[str, ...] = ("positive", "negative")) -> list[NewItem]:
    """n gold pairs of each kind; their captions name the kind, so that tests can answer them."""
    return [
        NewItem(f"{kind}-{k}", ("a.jpg",), (f"gold {kind} {k}",), gold={"match": (CORRECT[kind],)}, kind=kind)
        for kind in kinds
        for k in range(n)
    ]


def add_small_study(
    campaign: Campaign, *overrides: str, items: int = 6, gold_per_kind: int = 0, name: str = "", **more: object
) -> int:
    """Create a study of pairs, with gold pairs of each kind if `gold_per_kind` is set; returns its id."""
    (campaign.images_folder / "a.jpg").write_bytes(JPEG)
    settings = [*(WITH_GOLD if gold_per_kind else ()), *overrides]
    return create_study(campaign, design_of(*settings), [*pairs(items), *gold(gold_per_kind)], name=name, seed="seed", **more)


def link_of(campaign: Campaign, study_id: int) -> str:
    with campaign.read_transaction() as connection:
        return connection.execute(select(study.c.link).where(study.c.id == study_id)).scalar_one()


def add_annotator(campaign: Campaign, study_id: int, name: str = "") -> int:
    """Add a person who has joined and agreed; returns their id."""
    _, annotator = people.join_study(campaign, link_of(campaign, study_id), name)
    people.give_consent(campaign, study_id, annotator.id)
    return annotator.id


# -- working


def hit_of(campaign: Campaign, claim_id: str, person_id: int | None = None) -> Hit:
    with campaign.read_transaction() as connection:
        return load_hit(connection, claim_id, person_id)


def answers_to(claimed: Hit, match: str = "yes", wrong: bool = False) -> list[dict[str, object]]:
    """An answer to every item: `match`, and the correct answer to gold unless `wrong` is set."""
    out = []
    for item in claimed.items:
        value = match if item.gold is None else item.gold["match"][0]
        if wrong and item.gold is not None:
            value = {"yes": "no", "no": "yes"}[value]
        out.append({"match": value})
    return out


def submit_hit(campaign: Campaign, study_id: int, person_id: int, match: str = "yes", wrong: bool = False) -> str:
    """Claim and submit a HIT; returns the id of the claim."""
    claim_id = claims.claim_hit(campaign, study_id, person_id)
    claims.submit(campaign, claim_id, person_id, answers_to(hit_of(campaign, claim_id), match, wrong))
    return claim_id


def refusal_reason(campaign: Campaign, study_id: int, person_id: int) -> str:
    """The reason why a person gets no HIT."""
    with pytest.raises(claims.NoHitAvailableError) as error:
        claims.claim_hit(campaign, study_id, person_id)
    return error.value.reason


@dataclass
class Submissions:
    """Answers, event bodies and people of all submissions, by claim."""

    answers: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    bodies: dict[str, dict[str, object]] = field(default_factory=dict)
    people: dict[str, int] = field(default_factory=dict)


def read_submissions(campaign: Campaign, study_id: int) -> Submissions:
    submissions = Submissions()
    with campaign.read_transaction() as connection:
        query = select(event).where(event.c.study == study_id, event.c.kind == "submit").order_by(event.c.number)
        for row in connection.execute(query):
            body = json.loads(row.body)
            submissions.bodies[row.claim], submissions.people[row.claim] = body, row.person
            submissions.answers[row.claim] = [answer["answer"] for answer in body["answers"]]
    return submissions


def verify_chain(campaign: Campaign, study_id: int) -> tuple[int, str]:
    """Check the event log of a study; returns the number of events and the last hash."""
    with campaign.read_transaction() as connection:
        return check_chain(connection, study_id)


def claim_row(campaign: Campaign, claim_id: str) -> object:
    with campaign.read_transaction() as connection:
        return connection.execute(select(claim).where(claim.c.id == claim_id)).one()


def in_parallel(jobs: list[Callable[[], Any]]) -> list[Any]:
    """Run jobs at the same time; returns the result or the exception of each."""
    barrier, results = threading.Barrier(len(jobs)), [None] * len(jobs)

    def run(n: int) -> None:
        barrier.wait()
        try:
            results[n] = jobs[n]()
        except Exception as error:
            results[n] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def in_order(campaign: Campaign, jobs: list[Callable[[], Any]]) -> list[Any]:
    """Run jobs that request the write lock in this order while another transaction holds it; returns their results."""
    results = [None] * len(jobs)

    def run(n: int) -> None:
        results[n] = in_parallel([jobs[n]])[0]

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(jobs))]
    with campaign.write_lock:
        for n, thread in enumerate(threads):
            thread.start()
            wait_until(lambda n=n: len(campaign.write_lock._waiting) > n)
    for thread in threads:
        thread.join()
    return results
