"""The contract of the annotation service, through real HTTP and real server processes that are killed while fifty people work.

Every item ends with exactly its number of answers, nobody answers an item twice, no submission that was acknowledged is lost, and
the chain of events holds; at no time are there more answers than are wanted. People claim twice at once, vanish and come back too
late, hang up before they hear the answer, and submit from two windows with different answers.
"""

from __future__ import annotations

import http.client
import json
import random
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

import pytest
from sqlalchemy import func, select

from crossmatch.study.assignment import people
from crossmatch.study.assignment.review import VERDICTS, review
from crossmatch.study.database.schema import claim, hit_item, item, slot
from crossmatch.study.database.verification import verify
from postgres_server import fresh_database
from study_lab import WITH_GOLD, add_small_study, new_campaign, read_submissions
from study_web import answers_by_caption

CROWD = 50
HITS, WANTED, GOLD = 36, 3, 12  # HITs of three pairs and two gold ones; answers to each; gold pairs of each kind
LEASE = 4.0  # seconds
PATIENCE = 120.0  # in which all must be done
KILL_AFTER = 18  # acknowledged submissions
SERVER = """
import sys
from pathlib import Path
from crossmatch.study.web.server import serve
import crossmatch.study.web.app
port = sys.stdin.readline()  # all is imported; when the port is told, it begins
serve(Path(sys.argv[1]), port=int(port))
"""
CSRF = re.compile(r'<meta name="csrf" content="([0-9a-f]+)">')


class Lost(Exception):  # noqa: N818 - what happened to the request
    """There was no answer: nobody knows whether the request was heard."""


# -- servers


@dataclass
class Servers:
    """Processes that serve one campaign, each on a port of its own; one more waits to take the place of one that is killed."""

    folder: str
    ports: list[int]
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    kills: int = 0

    def __post_init__(self) -> None:
        self.spare = self._process()
        for port in self.ports:
            self._start(port)

    def _process(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", SERVER, self.folder], stdin=subprocess.PIPE)

    def _start(self, port: int) -> None:
        made, self.spare = self.spare, self._process()
        made.stdin.write(f"{port}\n".encode())
        made.stdin.close()
        self.running[port] = made

    def kill(self, port: int) -> None:
        """kill -9, and another one at once on the same port."""
        self.running[port].kill()
        self.running[port].wait()
        self._start(port)
        self.kills += 1

    def stop(self) -> None:
        for process in (*self.running.values(), self.spare):
            process.kill()
            process.wait()
            process.stdin.close()


def free_ports(number: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


# -- people


@dataclass
class Log:
    """What the people saw; the service must agree with it in the end."""

    sent: dict[str, list[list[dict[str, str]]]] = field(default_factory=dict)  # of a claim: all answers that were ever sent
    acknowledged: list[tuple[str, int, list[dict[str, str]], dict[str, object]]] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)


class Annotator(threading.Thread):
    """A person with a browser that knows several addresses of the service."""

    def __init__(self, number: int, token: str, ports: list[int], log: Log, kind: str) -> None:
        super().__init__(name=f"person-{number}")
        self.number, self.token, self.ports, self.log = number, token, ports, log
        self.chance = random.Random(f"{kind}/{number}")
        self.cookie = self.csrf = ""
        self.drafts = count(1)

    def run(self) -> None:
        try:
            self.enter()
            while not self.log.over.is_set():
                self.work()
        except Exception as error:
            self.log.faults.append(f"{self.name}: {type(error).__name__}: {error}")

    # -- one request

    def ask(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json", hang_up: bool = False):
        headers = {"cookie": self.cookie, "x-csrf-token": self.csrf, "content-type": kind}
        wire = http.client.HTTPConnection("127.0.0.1", self.chance.choice(self.ports), timeout=60)
        try:
            wire.request(method, path, body, headers)
            if hang_up:
                if self.chance.random() < 0.5:  # rudely
                    wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                raise Lost
            answer = wire.getresponse()
            text = answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise Lost from error
        finally:
            wire.close()
        if answer.status >= 500:
            raise AssertionError(f"{method} {path} was answered with {answer.status}: {text[:200]}")
        self.cookie = (answer.getheader("set-cookie") or self.cookie).partition(";")[0]
        return answer.status, text

    def insist(self, *asked: object, **more: object):
        """Ask until there is an answer."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                return self.ask(*asked, **more)
            except Lost:
                self.log.seen["lost"] += 1
                time.sleep(self.chance.uniform(0.02, 0.2))
        raise AssertionError("no server answered")

    def enter(self) -> None:
        form = "application/x-www-form-urlencoded"
        status, text = self.insist("POST", f"/enter/{self.token}", b"", form)
        assert status == 303, text
        status, text = self.insist("GET", "/s/eccv-hit")
        self.csrf = CSRF.search(text)[1]
        status, text = self.insist("POST", "/s/eccv-hit/agree", f"csrf={self.csrf}".encode(), form)
        assert status == 303, text

    # -- a HIT

    def work(self) -> None:
        hit = self.claim()
        if hit is None:
            self.log.over.wait(self.chance.uniform(0.3, 0.9))
            return
        what, path = self.chance.random(), f"/api/h/{hit['claim']}/submit"
        answers = self.answers(hit)
        if what < 0.10:  # vanishes, and comes back when the HIT may be another's
            self.log.seen["vanished"] += 1
            self.log.over.wait(LEASE * 1.1)
            if self.chance.random() < 0.5:
                return
        if what > 0.80:
            self.keep_draft(hit)
        told = json.dumps({"answers": answers, "seconds": [1.0] * len(answers)}).encode()
        self.log.sent.setdefault(hit["claim"], []).append(answers)
        if what < 0.30:  # hangs up, and sends it again
            self.log.seen["hung up"] += 1
            try:
                self.ask("POST", path, told, hang_up=True)
            except Lost:
                time.sleep(self.chance.uniform(0, 0.05))
        if what > 0.75:
            self.twice(hit, path, answers)
        else:
            self.acknowledge(hit, answers, *self.insist("POST", path, told))

    def claim(self) -> dict[str, object] | None:
        """The next HIT; now and then asked for in two windows at once, which must be given the same."""
        began, found = time.monotonic(), [None, None]

        def ask(n: int) -> None:
            found[n] = self.insist("POST", "/api/s/eccv-hit/claim", b"{}")

        both(ask) if self.chance.random() < 0.4 else ask(0)
        told = [json.loads(text) for status, text in filter(None, found) if status == 200]
        for status, text in filter(None, found):
            assert status == 200 or json.loads(text)["why"] == "none", text
        if len(told) == 2 and time.monotonic() - began < LEASE / 2:
            assert told[0]["claim"] == told[1]["claim"], "one person has two HITs at once"
        return told[0] if told else None

    def answers(self, hit) -> list[dict[str, str]]:
        """Different ones each time, so that one can tell which were kept; gold is wrong now and then."""
        right = answers_by_caption(hit, "?")
        wrong = self.chance.random() < 0.06
        return [
            {"match": self.chance.choice(["yes", "no"])} if one["match"] == "?" or wrong else one for one in right
        ]  # fmt: skip

    def keep_draft(self, hit) -> None:
        number, path = next(self.drafts), f"/api/h/{hit['claim']}"
        draft = json.dumps({"number": number, "answers": [{"match": str(number)}]}).encode()
        assert self.insist("PUT", f"{path}/draft", draft)[0] == 200
        kept = json.loads(self.insist("GET", path)[1])["draft"]
        assert kept == {"number": number, "answers": [{"match": str(number)}]}, kept
        self.log.seen["drafts"] += 1

    def twice(self, hit, path: str, answers: list[dict[str, str]]) -> None:
        """From two windows at the same time, with different answers."""
        given = [answers, self.answers(hit)]
        self.log.sent[hit["claim"]].append(given[1])
        self.log.seen["twice"] += 1

        def send(n: int) -> None:
            told = json.dumps({"answers": given[n], "seconds": None}).encode()
            self.acknowledge(hit, given[n], *self.insist("POST", path, told))

        both(send)

    def acknowledge(self, hit, answers: list[dict[str, str]], status: int, text: str) -> None:
        assert status == 200, text
        self.log.acknowledged.append((hit["claim"], self.number, answers, json.loads(text)))


def both(act) -> None:
    """Do it twice at once; the first accident is everybody's."""
    failed: list[Exception] = []

    def run(n: int) -> None:
        try:
            act(n)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


# -- the contract


def look(campaign, chance) -> bool:
    """Review what is in doubt, and see whether there is too much of anything; whether all is done."""
    with campaign.read_transaction() as connection:
        most = select(claim.c.hit, func.count().label("n")).where(claim.c.counted).group_by(claim.c.hit)
        over = [row.hit for row in connection.execute(most) if row.n > WANTED]
        alone = select(claim.c.slot).where(claim.c.counted).group_by(claim.c.slot).having(func.count() > 1)
        over += connection.execute(alone).scalars().all()
        doubted = connection.execute(select(slot.c.claim).where(slot.c.state == "review")).scalars().all()
        left = connection.execute(select(func.count()).select_from(slot).where(slot.c.state != "done")).scalar_one()
    assert not over, f"more answers than are wanted: {over}"
    for one in doubted:
        review(campaign, one, None, chance.choice(("approve", *VERDICTS)))
    return left == 0


@contextmanager
def at_work(campaign, kind: str, processes: int):
    """Servers and people; both are gone in the end."""
    tokens = [people.invite(campaign, f"person-{n}") for n in range(CROWD)]
    servers, log = Servers(str(campaign.folder), free_ports(processes)), Log()
    crowd = [Annotator(n, token, servers.ports, log, kind) for n, token in enumerate(tokens, 1)]
    try:
        for each in crowd:
            each.start()
        yield servers, log
    finally:
        log.over.set()
        for each in crowd:
            each.join()
        servers.stop()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "processes"), [("sqlite", 1), ("sqlite", 2), ("postgresql", 3)])
def test_every_item_gets_the_required_answers_despite_failures(kind, processes, tmp_path, request):
    database = fresh_database(request.getfixturevalue("postgres_url")) if kind == "postgresql" else ""
    chance = random.Random(f"{kind}/{processes}")
    with new_campaign(tmp_path / "campaign", database, time.time) as campaign:
        recipe = (*WITH_GOLD, f"recipe.people={WANTED}", f"recipe.lease_minutes={LEASE / 60}")
        study = add_small_study(campaign, *recipe, items=3 * HITS, gold_per_kind=GOLD)
        with at_work(campaign, f"{kind}/{processes}", processes) as (servers, log):
            until = time.monotonic() + PATIENCE
            while not look(campaign, chance) and not log.faults:
                assert time.monotonic() < until, f"not done after {PATIENCE} s: {log.seen}"
                if len(log.acknowledged) >= KILL_AFTER * (servers.kills + 1):
                    servers.kill(chance.choice(servers.ports))
                time.sleep(0.1)
        assert not log.faults
        require_all(campaign, study, log)
        assert servers.kills >= 5
        assert min(log.seen[what] for what in ("lost", "vanished", "hung up", "twice", "drafts")) > 0, log.seen


def require_all(campaign, study: int, log: Log) -> None:
    """What was promised, from the tables, the events and the people's own log."""
    (verified,) = verify(campaign)
    assert verified.answers == HITS * WANTED * 5
    with campaign.read_transaction() as connection:
        counted = set(connection.execute(select(claim.c.id).where(claim.c.counted)).scalars())
        query = Counter(row.item for row in connection.execute(select(hit_item.c.item)))
        keys = {row.id: row.key for row in connection.execute(select(item.c.id, item.c.key))}
    told = read_submissions(campaign, study)
    each = Counter(stored_answer["item"] for token in counted for stored_answer in told.bodies[token]["answers"])
    assert each == Counter({number: WANTED * times for number, times in query.items()})
    assert all(each[number] == WANTED for number, key in keys.items() if key.startswith("pair"))
    pairs = Counter(
        (told.people[token], stored_answer["item"]) for token, body in told.bodies.items() for stored_answer in body["answers"]
    )
    assert max(pairs.values()) == 1, "somebody answered an item twice"
    first = Counter(token for token, _, _, answer in log.acknowledged if not answer["again"])
    assert max(first.values()) == 1, "a HIT was acknowledged as new twice"
    for token, person, answers, answer in log.acknowledged:
        assert token in told.answers, f"the submission of {token} was acknowledged and is lost"
        assert told.people[token] == person
        assert told.answers[token] in log.sent[token]
        assert answer["again"] or told.answers[token] == answers, "other answers were kept than those that were acknowledged"
        assert answer["counted"] is told.bodies[token]["counted"]
