"""What a campaign's database stores, read by plain SQL, and how it may differ from what the clients of the service saw.

`find_faults` knows the tables and the rules of the service from its documentation only. It shares no code with crossmatch.
"""

from __future__ import annotations

import csv
import hashlib
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

TABLES = ("item", "hit", "hit_item", "person", "slot", "claim", "event", "head")
Answers = Mapping[str, str]  # caption to answer
Row = dict[str, Any]


@dataclass(frozen=True)
class Acknowledgement:
    """A complete response with status 200 to a submission."""

    claim: str
    person: str
    answers: Answers
    again: bool  # the service says that it had stored a submission before
    counted: bool


@dataclass
class Log:
    """What the clients saw."""

    hits: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)  # person, claim and captions of each HIT received
    sent: dict[str, list[Answers]] = field(default_factory=lambda: defaultdict(list))  # all answers that were sent, by claim
    acknowledged: list[Acknowledgement] = field(default_factory=list)
    verdicts: list[tuple[str, str]] = field(default_factory=list)  # acknowledged verdicts of the owner: claim, verdict


# -- reading


def open_database(database: Path | str) -> Any:
    """A connection of the driver to an SQLite file, or to PostgreSQL by a URL."""
    if isinstance(database, str):
        return psycopg.connect(database, row_factory=dict_row)
    connection = sqlite3.connect(database, timeout=60)
    connection.row_factory = lambda cursor, row: {column[0]: value for column, value in zip(cursor.description, row, strict=True)}
    return connection


def read_tables(database: Path | str) -> dict[str, list[Row]]:
    """All rows of the tables, in one transaction."""
    with closing(open_database(database)) as connection:
        connection.execute("BEGIN" if isinstance(database, Path) else "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        tables = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in TABLES}
    for row in tables["item"]:
        row["captions"] = json.loads(row["captions"]) if isinstance(row["captions"], str) else row["captions"]
    tables["event"].sort(key=lambda row: row["number"])
    for row in tables["event"]:
        row["content"] = json.loads(row["body"])
    return tables


# -- checking


def find_faults(tables: dict[str, list[Row]], log: Log, people_per_hit: int) -> list[str]:
    """Every way in which the database of a finished study breaks the contract; empty if it keeps it."""
    return [
        *_chain_faults(tables),
        *_acknowledgement_faults(tables, log),
        *_replay_faults(tables, people_per_hit),
        *_repetition_faults(tables, log),
        *_completeness_faults(tables, people_per_hit),
    ]


def submissions_of(tables: dict[str, list[Row]]) -> list[Row]:
    return [row for row in tables["event"] if row["kind"] == "submit"]


def counted_claims(tables: dict[str, list[Row]]) -> set[str]:
    """The claims whose answers count according to the last event about each."""
    is_counted = {row["claim"]: row["content"]["counted"] for row in tables["event"] if row["kind"] in ("submit", "review")}
    return {claim for claim, counted in is_counted.items() if counted}


def _chain_faults(tables: dict[str, list[Row]]) -> Iterator[str]:
    """Recompute the hash of every event."""
    previous = "0" * 64
    for number, row in enumerate(tables["event"], 1):
        if row["number"] != number:
            yield f"event {number} is missing or doubled"
            return
        columns = ("study", "number", "at", "kind", "person", "claim", "body")
        content = [previous, *(repr(row[name]) if name == "at" else row[name] for name in columns)]
        expected = hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).hexdigest()
        if (row["previous"], row["hash"]) != (previous, expected):
            yield f"event {number} does not match its hash"
            return
        previous = expected
    if [(row["number"], row["hash"]) for row in tables["head"]] != [(len(tables["event"]), previous)]:
        yield "the last event is not the head of the chain"


def _acknowledgement_faults(tables: dict[str, list[Row]], log: Log) -> Iterator[str]:
    """Compare the acknowledged submissions and verdicts with the events."""
    captions = {row["id"]: row["captions"][0] for row in tables["item"]}
    names = {row["id"]: row["key"] for row in tables["person"]}
    stored: dict[str, list[tuple[str, Answers, bool]]] = defaultdict(list)
    for row in submissions_of(tables):
        answers = {captions[entry["item"]]: entry["answer"]["match"] for entry in row["content"]["answers"]}
        stored[row["claim"]].append((names[row["person"]], answers, row["content"]["counted"]))
    for claim, rows in stored.items():
        if len(rows) > 1:
            yield f"claim {claim}: {len(rows)} submissions are stored"
        if any(answers not in log.sent.get(claim, ()) for _, answers, _ in rows):
            yield f"claim {claim}: the stored answers were never sent"
    for receipt in log.acknowledged:
        if not stored[receipt.claim]:
            yield f"claim {receipt.claim}: the acknowledged submission of {receipt.person} is lost"
            continue
        person, answers, counted = stored[receipt.claim][0]
        if (person, counted) != (receipt.person, receipt.counted):
            yield f"claim {receipt.claim}: person and counted are {person}, {counted}; acknowledged was {receipt}"
        if not receipt.again and answers != receipt.answers:
            yield f"claim {receipt.claim}: the stored answers are not those that were acknowledged"
    first_receipts = Counter(receipt.claim for receipt in log.acknowledged if not receipt.again)
    for claim, number in first_receipts.items():
        if number > 1:
            yield f"claim {claim}: {number} submissions were acknowledged as the first"
    reviews = {(row["claim"], row["content"]["verdict"]) for row in tables["event"] if row["kind"] == "review"}
    yield from (
        f"claim {claim}: the acknowledged verdict {verdict} is lost"
        for claim, verdict in log.verdicts
        if (claim, verdict) not in reviews
    )


def _replay_faults(tables: dict[str, list[Row]], people_per_hit: int) -> Iterator[str]:
    """Follow the events: at no time has a HIT more than k assignments, a slot two, or a person two unfinished HITs."""
    claims: dict[str, Row] = {}  # hit, slot, person, submitted
    assigned: dict[str, Row] = {}  # those that hold a slot or whose answers count
    for row in tables["event"]:
        claim, content, where = row["claim"], row["content"], f"event {row['number']}"
        if row["kind"] == "claim":
            new = {"hit": content["hit"], "slot": content["slot"], "person": row["person"], "submitted": False}
            for earlier, holder in list(assigned.items()):
                if (holder["hit"], holder["slot"]) == (new["hit"], new["slot"]):
                    if holder["submitted"]:
                        yield f"{where}: slot {new['slot']} of HIT {new['hit']} is assigned although it is filled"
                    del assigned[earlier]
                elif holder["person"] == new["person"] and not holder["submitted"]:
                    yield f"{where}: person {new['person']} gets HIT {new['hit']} while holding HIT {holder['hit']}"
            assigned[claim] = claims[claim] = new
        elif row["kind"] in ("submit", "review") and claim not in claims:
            yield f"{where}: claim {claim} was never assigned"
        elif row["kind"] == "submit":
            claims[claim]["submitted"] = True
            if content["counted"] and claim not in assigned:
                yield f"{where}: the answers count although the slot has gone to another person"
                assigned[claim] = claims[claim]
        elif row["kind"] == "review" and content["counted"]:
            claims[claim]["slot"] = content["slot"]
            assigned[claim] = claims[claim]
        elif row["kind"] == "review":
            assigned.pop(claim, None)
        if claim in assigned:
            hit = assigned[claim]["hit"]
            number = sum(holder["hit"] == hit for holder in assigned.values())
            if number > people_per_hit:
                yield f"{where}: HIT {hit} has {number} assignments, but needs {people_per_hit}"


def _repetition_faults(tables: dict[str, list[Row]], log: Log) -> Iterator[str]:
    """Nobody gets an item twice, according to the table of claims, the submissions, and the clients themselves."""
    items = _items_by_hit(tables)
    assigned = Counter((row["person"], item) for row in tables["claim"] for item in items[row["hit"]])
    yield from (f"person {person} got item {item} {n} times" for (person, item), n in assigned.items() if n > 1)
    answered = Counter((row["person"], entry["item"]) for row in submissions_of(tables) for entry in row["content"]["answers"])
    yield from (f"person {person} answered item {item} {n} times" for (person, item), n in answered.items() if n > 1)
    received: dict[tuple[str, str], set[str]] = defaultdict(set)
    for person, claim, captions in log.hits:
        for caption in captions:
            received[person, caption].add(claim)
    yield from (
        f"{person} received {caption!r} in {len(claims)} HITs" for (person, caption), claims in received.items() if len(claims) > 1
    )


def _completeness_faults(tables: dict[str, list[Row]], people_per_hit: int) -> Iterator[str]:
    """Every HIT, and every item of it, has exactly the required number of counted answers, in the events and in the tables."""
    items, counted = _items_by_hit(tables), counted_claims(tables)
    hit_of = {row["id"]: row["hit"] for row in tables["claim"]}
    expected = Counter({item: people_per_hit * n for item, n in Counter(i for entries in items.values() for i in entries).items()})
    answers = Counter(
        entry["item"] for row in submissions_of(tables) if row["claim"] in counted for entry in row["content"]["answers"]
    )
    for item in expected | answers:
        if answers[item] != expected[item]:
            yield f"item {item} has {answers[item]} counted answers, but needs {expected[item]}"
    per_hit = {
        "counted submissions": Counter(hit_of.get(claim) for claim in counted),
        "counted claims": Counter(row["hit"] for row in tables["claim"] if row["counted"]),
        "slots": Counter(row["hit"] for row in tables["slot"]),
        "filled slots": Counter(row["hit"] for row in tables["slot"] if row["state"] == "done"),
    }
    for name, numbers in per_hit.items():
        for hit in {*items, *numbers}:
            if numbers[hit] != people_per_hit:
                yield f"HIT {hit} has {numbers[hit]} {name}, but needs {people_per_hit}"


def _items_by_hit(tables: dict[str, list[Row]]) -> dict[int, list[int]]:
    items: dict[int, list[int]] = defaultdict(list)
    for row in tables["hit_item"]:
        items[row["hit"]].append(row["item"])
    return items


def find_export_faults(tables: dict[str, list[Row]], answers_csv: Path) -> list[str]:
    """How `answers.csv` differs from the counted answers in the events; empty if it has each of them exactly once."""
    keys, names = ({row["id"]: row["key"] for row in tables[name]} for name in ("item", "person"))
    counted = counted_claims(tables)
    stored = Counter(
        (keys[entry["item"]], names[row["person"]], entry["answer"]["match"])
        for row in submissions_of(tables)
        if row["claim"] in counted
        for entry in row["content"]["answers"]
    )
    with answers_csv.open(encoding="utf-8", newline="") as file:
        exported = Counter((row["item"], row["person"], row["answer"]) for row in csv.DictReader(file))
    rows = sorted(stored.keys() | exported.keys())
    return [f"{row} is stored {stored[row]} and exported {exported[row]} times" for row in rows if stored[row] != exported[row]]
