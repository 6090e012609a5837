"""The contract of the annotation service: every acknowledged answer is stored exactly once, whatever is killed.

    python tests/study_contract/run_contract.py --database sqlite|postgresql [--kills 20] [--servers 2] [--database-stops 4]
                                                [--full-disk] [--clients 20] [--hits 130] [--folder DIR]

Clients answer a campaign that `crossmatch study serve` serves, while servers are killed (SIGKILL) and started again, PostgreSQL is
killed or shut down at once, or the disk is full. They ask for HITs in two windows at once, vanish and come back after the lease has
ended, hang up before they read the response, and submit different answers in two windows. An owner reviews HITs with wrong gold
answers. In the end, plain SQL, `study verify` and `study export` must agree with what the clients saw. Prints one JSON line.

Nothing of crossmatch is imported: it runs as a program.
"""

from __future__ import annotations

import argparse
import dataclasses
import errno
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))  # when started as a program
from postgres_server import PostgresServer, free_port, fresh_database
from study_contract.raw_client import HOST, Browser, Connection, ConnectionLostError, Response, UnexpectedResponseError
from study_contract.stored_answers import Acknowledgement, Log, find_export_faults, find_faults, open_database, read_tables

STUDY, PAIRS_PER_HIT, ITEMS_PER_HIT = "eccv-hit", 3, 5  # three pairs, and a gold pair of each kind
PATIENCE = 240.0  # seconds after which the script gives up waiting for an event
DISK_MEGABYTES = {"sqlite": 8, "postgresql": 128}
REVIEW_LINK = re.compile(rf"/owner/{STUDY}/hit/([0-9a-f]{{32}})\"")


class ContractError(Exception):
    """The service broke the contract; the message lists the first faults."""


class NoSmallDiskError(Exception):
    """A small file system cannot be mounted here."""


@dataclass(frozen=True)
class Scenario:
    """Who answers how much, and what fails meanwhile."""

    database: str = "sqlite"
    clients: int = 20
    servers: int = 1
    kills: int = 20  # of servers, in turn
    database_stops: int = 0  # SIGKILL and immediate shutdown of PostgreSQL, in turn
    full_disk: bool = False
    hits: int = 130
    people: int = 3  # per HIT
    lease: float = 4.0  # seconds


@dataclass(frozen=True)
class Outcome:
    """What is left of a contract that was kept."""

    scenario: Scenario
    folder: Path  # of the campaign
    database: Path | str
    log: Log
    answers_csv: Path
    counts: dict[str, int]  # of acknowledged submissions, refusals, and actions of the clients


# -- programs


def crossmatch(*arguments: object) -> str:
    """Run a command to its end; returns its standard output."""
    process = subprocess.run(_command(*arguments), capture_output=True, text=True, check=False)
    if process.returncode:
        raise ContractError(
            f"crossmatch {' '.join(map(str, arguments))} failed with {process.returncode}: {process.stderr[-2000:]}"
        )
    return process.stdout


def _command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "crossmatch", *map(str, arguments)]


class Server:
    """`crossmatch study serve`, which can be killed and started again on the same port."""

    def __init__(self, campaign: Path, log_file: Path) -> None:
        self.campaign, self.log_file, self.port = campaign, log_file, free_port()
        self.start()

    def start(self) -> None:
        with self.log_file.open("ab") as log:
            command = _command("study", "serve", self.campaign, "--port", self.port)
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def is_listening(self) -> bool:
        try:
            with closing(Connection(self.port)) as connection:
                connection.send(f"GET /alive HTTP/1.1\r\nhost: {HOST}:{self.port}\r\n\r\n".encode())
                return connection.read_response().status == 200
        except ConnectionLostError:
            return False

    def path_of(self, link: str) -> str:
        """The path of a link that the server printed at its start: of the owner, or of a study."""
        return re.search(rf"^{link} +http://[^/]+(/\S+)$", self.log_file.read_text(), re.MULTILINE)[1]


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """A file system of this size in memory. It is outside of pytest's folders, which user `postgres` must not enter."""
    folder = Path(tempfile.mkdtemp(prefix="crossmatch-disk-"))
    try:
        options = f"size={megabytes}m,mode=755"
        mount = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True, check=False
        )
        if mount.returncode:
            raise NoSmallDiskError(f"Cannot mount a small file system: {mount.stderr.strip()}. Run as root.")
        try:
            yield folder
        finally:
            subprocess.run(["umount", folder], check=True)
    finally:
        folder.rmdir()


def fill_disk(file: Path) -> None:
    """Write to a file until not even a page is left on its disk."""
    with file.open("wb", buffering=0) as filler:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    filler.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


# -- the campaign, and what its clients report


def create_study(scenario: Scenario, campaign: Path, folder: Path, database: str) -> None:
    """Create the study with `crossmatch study new`. Captions are unique, so that an answer can be traced to its item."""
    Image.new("RGB", (8, 8), "red").save(folder / "a.jpg")
    items: list[dict[str, Any]] = [{"id": f"pair-{n}", "captions": [f"Pair {n}."]} for n in range(PAIRS_PER_HIT * scenario.hits)]
    for kind, right in (("positive", "yes"), ("negative", "no")):
        number = max(scenario.hits // 2, min(scenario.hits, 20))  # of a gold pair's two HITs, a person gets only one
        items += [{"id": f"{kind}-{n}", "captions": [f"Gold {n}: {right}"], "kind": kind, "gold": right} for n in range(number)]
    lines = (json.dumps({**item, "images": ["a.jpg"]}) for item in items)
    (folder / "items.jsonl").write_text("\n".join(lines))
    recipe = {
        "batch": PAIRS_PER_HIT,
        "gold_positive": 1,
        "gold_negative": 1,
        "people": scenario.people,
        "lease_minutes": scenario.lease / 60,
    }
    settings = [part for key, value in recipe.items() for part in ("--set", f"recipe.{key}={value}")]
    place = ["--database", database] if database else []
    crossmatch("study", "new", STUDY, "--items", folder / "items.jsonl", "-o", campaign, *settings, *place)


@dataclass
class Campaign:
    """A served campaign, and what its clients reported."""

    scenario: Scenario
    folder: Path
    database: Path | str
    servers: list[Server]
    log: Log = field(default_factory=Log)
    actions: list[str] = field(default_factory=list)  # what the clients did or met, one word each time
    refusals: list[Response] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    finished: threading.Event = field(default_factory=threading.Event)

    def browser(self, name: str) -> Browser:
        chance = random.Random(f"{self.scenario}/{name}")
        return Browser([server.port for server in self.servers], chance, self.report_failure, self.finished)

    def report_failure(self, failure: str | Response) -> None:
        if isinstance(failure, Response):
            self.refusals.append(failure)
        else:
            self.actions.append(failure)

    def wait_until(self, is_met: Callable[[], bool], event: str, interval: float = 0.01) -> None:
        """Wait for an event, but not after a fault."""
        end = time.monotonic() + PATIENCE
        while not is_met():
            stopped = [server for server in self.servers if not server.is_running]
            if stopped:
                self.faults.append(f"the server stopped by itself: {stopped[0].log_file.read_text()[-2000:]}")
            if time.monotonic() > end:
                self.faults.append(f"waited in vain until {event}; the clients did {Counter(self.actions)}")
            if self.faults:
                raise ContractError("\n".join(self.faults[:10]))
            time.sleep(interval)

    def wait_for_acknowledgements(self, number: int) -> None:
        target = len(self.log.acknowledged) + number
        self.wait_until(lambda: len(self.log.acknowledged) >= target, f"{number} more submissions were acknowledged")

    def is_complete(self) -> bool:
        with closing(open_database(self.database)) as connection:
            row = connection.execute("SELECT count(*) AS number FROM slot WHERE state != 'done'").fetchone()
        return bool(row["number"] == 0)


# -- clients


class Client(threading.Thread):
    """A thread that works until the campaign is over; an exception in it is a fault of the service."""

    def __init__(self, campaign: Campaign, name: str) -> None:
        super().__init__(name=name)
        self.campaign, self.log, self.actions = campaign, campaign.log, campaign.actions
        self.browser = campaign.browser(name)
        self.chance = self.browser.chance

    def run(self) -> None:
        try:
            self.begin()
            while not self.campaign.finished.is_set():
                self.work()
        except Exception as error:
            if not self.campaign.finished.is_set():
                self.campaign.faults.append(f"{self.name}: {type(error).__name__}: {error}")
        finally:
            self.browser.close()

    def begin(self) -> None:
        raise NotImplementedError

    def work(self) -> None:
        raise NotImplementedError

    def pause(self, shortest: float, longest: float) -> None:
        self.campaign.finished.wait(self.chance.uniform(shortest, longest))


class Annotator(Client):
    """A person who answers one HIT after another."""

    def begin(self) -> None:
        path = self.campaign.servers[0].path_of(STUDY)
        require(self.browser.get(path), 200)
        page = require(self.browser.post_form(path, person=self.name), 303).header("location")
        require(self.browser.get(page), 200)  # contains the CSRF token

    def work(self) -> None:
        hit = self.claim()
        if hit is None:
            self.pause(0.1, 0.3)
            return
        if self.chance.random() < 0.2:
            image = require(self.browser.get(hit["items"][0]["images"][0]), 200)
            require_that(image.body.startswith(b"\xff\xd8"), f"expected a JPEG, got {image.body[:20]!r}")
        if self.chance.random() < 0.2:
            self.save_draft(hit)
        if self.chance.random() < 0.06:
            self.actions.append("vanish")
            self.pause(1.1 * self.campaign.scenario.lease, 1.2 * self.campaign.scenario.lease)
            if self.chance.random() < 0.5:
                return
        answers, habit = self.answers_to(hit), self.chance.random()
        if habit < 0.15:
            self.actions.append("hang up")
            self.log.sent[hit["claim"]].append(answers)
            self.browser.hang_up_after("POST", f"/api/h/{hit['claim']}/submit", _submission(hit, answers))
        if habit > 0.85:
            self.actions.append("two submissions")
            other_answers = self.answers_to(hit)
            in_two_windows(self.browser, lambda browser, n: self.submit(browser, hit, (answers, other_answers)[n]))
        else:
            self.submit(self.browser, hit, answers)

    def claim(self) -> dict[str, Any] | None:
        """The next HIT; now and then two windows ask for it at once."""

        def claim(browser: Browser, _: int) -> dict[str, Any] | None:
            response = browser.send_json("POST", f"/api/s/{STUDY}/claim", {})
            if response.status == 409 and response.json()["why"] == "none":
                return None
            hit: dict[str, Any] = require(response, 200).json()
            self.log.hits.append((self.name, hit["claim"], tuple(item["captions"][0] for item in hit["items"])))
            return hit

        if self.chance.random() < 0.8:
            return claim(self.browser, 0)
        self.actions.append("two claims")
        return next(filter(None, in_two_windows(self.browser, claim)), None)

    def answers_to(self, hit: dict[str, Any]) -> dict[str, str]:
        """An answer to each caption: random ones, so that different submissions differ, but mostly right ones to gold."""
        answers = {}
        for item in hit["items"]:
            caption = item["captions"][0]
            is_right = caption.startswith("Gold") and self.chance.random() > 0.03
            answers[caption] = caption.rpartition(" ")[2] if is_right else self.chance.choice(("yes", "no"))
        return answers

    def save_draft(self, hit: dict[str, Any]) -> None:
        """An acknowledged draft is there when the page is loaded again."""
        self.actions.append("draft")
        draft = {"number": hit["draft"]["number"] + 1, "answers": [{"match": self.chance.choice(("yes", "no"))}]}
        require(self.browser.send_json("PUT", f"/api/h/{hit['claim']}/draft", draft), 200)
        stored = require(self.browser.get(f"/api/h/{hit['claim']}"), 200).json()["draft"]
        require_that(stored == draft, f"the draft {draft} was acknowledged, and {stored} is stored")

    def submit(self, browser: Browser, hit: dict[str, Any], answers: dict[str, str]) -> None:
        self.log.sent[hit["claim"]].append(answers)
        response = browser.send_json("POST", f"/api/h/{hit['claim']}/submit", _submission(hit, answers))
        receipt = require(response, 200).json()
        self.log.acknowledged.append(Acknowledgement(hit["claim"], self.name, answers, receipt["again"], receipt["counted"]))


class Owner(Client):
    """Reviews HITs with wrong gold answers in the browser."""

    def begin(self) -> None:
        require(self.browser.post_form(self.campaign.servers[0].path_of("owner")), 303)
        require(self.browser.get("/owner"), 200)

    def work(self) -> None:
        page = require(self.browser.get(f"/owner/{STUDY}/review"), 200)
        for claim in REVIEW_LINK.findall(page.body.decode()):
            verdict = self.chance.choice(("approve", "approve", "reassign", "reject"))
            fields = {"csrf": self.browser.csrf, "was": "", "verdict": verdict}
            response = self.browser.post_form(f"/owner/{STUDY}/hit/{claim}/review", **fields)
            if response.status == 303:
                self.log.verdicts.append((claim, verdict))
            else:
                require(response, 409)  # the verdict was stored, but its response was lost
        self.pause(0.1, 0.2)


def _submission(hit: dict[str, Any], answers: dict[str, str]) -> dict[str, Any]:
    captions = [item["captions"][0] for item in hit["items"]]
    return {"answers": [{"match": answers[caption]} for caption in captions], "seconds": [1.0] * len(captions)}


def in_two_windows(browser: Browser, act: Callable[[Browser, int], Any]) -> list[Any]:
    """Do something in two windows of a browser at once; returns both results, or raises the first error."""
    results: list[Any] = [None, None]

    def run(n: int) -> None:
        with closing(browser.second_window()) as window:
            try:
                results[n] = act(window, n)
            except Exception as error:
                results[n] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def require(response: Response, status: int) -> Response:
    require_that(response.status == status, f"expected status {status}, got {response.status}: {response.body[:300]!r}")
    return response


def require_that(is_true: bool, message: str) -> None:
    if not is_true:
        raise UnexpectedResponseError(message)


# -- failures


def kill_servers(campaign: Campaign, number: int, chance: random.Random) -> None:
    """SIGKILL one server after the other while the clients work, and start it again."""
    for n in range(number):
        campaign.wait_for_acknowledgements(chance.randint(2, 10))
        server = campaign.servers[n % len(campaign.servers)]
        server.kill()
        server.start()
        campaign.wait_until(server.is_listening, "the restarted server listens")


def stop_database(campaign: Campaign, postgres: PostgresServer, number: int) -> None:
    """Kill PostgreSQL or shut it down immediately, in turn, while the clients work; the service stays up."""
    for stop in ((postgres.kill, postgres.shut_down_immediately) * number)[:number]:
        campaign.wait_for_acknowledgements(3)
        stop()
        number_of_refusals = len(campaign.refusals)
        campaign.wait_until(lambda n=number_of_refusals: len(campaign.refusals) > n, "a request was refused")
        postgres.start()


def fill_and_free_disk(campaign: Campaign, disk: Path, postgres: PostgresServer | None) -> None:
    """Fill the disk while the clients work until many requests were refused, and free it again; work continues."""
    campaign.wait_for_acknowledgements(10)
    lost_before = campaign.actions.count("lost")
    fill_disk(disk / "filler")
    campaign.wait_until(lambda: len(campaign.refusals) >= 2 * campaign.scenario.clients, "requests were refused")
    if campaign.actions.count("lost") > lost_before:
        raise ContractError("connections were closed without a response while the disk was full")
    (disk / "filler").unlink()
    if postgres is not None:
        postgres.start()  # it stops by itself if it cannot write its log


def require_clean_refusals(campaign: Campaign) -> None:
    """Responses with status 5xx appear only while the database is away, and do not reveal details."""
    scenario = campaign.scenario
    if campaign.refusals and not (scenario.full_disk or scenario.database_stops):
        raise ContractError(f"requests were refused although the database was there: {campaign.refusals[0]}")
    for response in campaign.refusals:
        text = response.json()["error"] if response.header("content-type") == "application/json" else response.body.decode()
        if not text or re.search(r"Traceback|sqlite|psycopg|SELECT|UPDATE|INSERT", text):
            raise ContractError(f"a refusal is empty or reveals details: {response}")
    for server in campaign.servers:
        if "sqlalchemy" in (text := server.log_file.read_text()):
            raise ContractError(f"a server logged a traceback of its database: {text[-3000:]}")


# -- the contract


def run_contract(scenario: Scenario, folder: Path) -> Outcome:
    """Run a scenario, and check what is stored in the end. Raises ContractError if the service breaks the contract."""
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(DISK_MEGABYTES[scenario.database])) if scenario.full_disk else None
        campaign_folder = (disk if disk and scenario.database == "sqlite" else folder) / "campaign"
        postgres, database = None, campaign_folder / "campaign.db"
        if scenario.database == "postgresql":
            postgres = stack.enter_context(PostgresServer(disk))
            database = fresh_database(postgres.url)
        create_study(scenario, campaign_folder, folder, database if isinstance(database, str) else "")
        campaign = Campaign(scenario, campaign_folder, database, [])
        for n in range(scenario.servers):
            campaign.servers.append(server := Server(campaign_folder, folder / f"server-{n}.log"))
            stack.callback(server.kill)
        for server in campaign.servers:
            campaign.wait_until(server.is_listening, "the server listens")
        crowd = [Annotator(campaign, f"person-{n}") for n in range(scenario.clients)]
        _work(campaign, [Owner(campaign, "owner"), *crowd], disk, postgres)
        for server in campaign.servers:
            server.kill()
        outcome = check_storage(campaign, folder / "export")
        require_clean_refusals(campaign)
        return outcome


def _work(campaign: Campaign, clients: list[Client], disk: Path | None, postgres: PostgresServer | None) -> None:
    """Let the clients work until the study is complete, with all failures of the scenario on the way."""
    scenario = campaign.scenario
    try:
        for client in clients:
            client.start()
        kill_servers(campaign, scenario.kills, random.Random(f"{scenario}"))
        if postgres is not None:
            stop_database(campaign, postgres, scenario.database_stops)
        if disk is not None:
            fill_and_free_disk(campaign, disk, postgres)
        if campaign.is_complete():
            raise ContractError("the study was complete before the last failure. Use more --hits.")
        campaign.wait_until(campaign.is_complete, "the study is complete", interval=0.1)
    finally:
        campaign.finished.set()
        for client in clients:
            client.join()
    if campaign.faults:
        raise ContractError("\n".join(campaign.faults[:10]))


def check_storage(campaign: Campaign, export: Path) -> Outcome:
    """Compare the database, `study verify` and `study export` with what the clients saw."""
    scenario, log = campaign.scenario, campaign.log
    tables = read_tables(campaign.database)
    faults = find_faults(tables, log, scenario.people)
    events, answers = len(tables["event"]), scenario.hits * scenario.people * ITEMS_PER_HIT
    try:
        verified = crossmatch("study", "verify", campaign.folder)
        if f"{events:,} events, {answers:,} answers count" not in verified:
            faults.append(f"expected {events:,} events and {answers:,} answers from study verify, got: {verified}")
        crossmatch("study", "export", campaign.folder, "-o", export)
        faults += find_export_faults(tables, export / "answers.csv")
    except ContractError as error:
        faults.append(str(error))
    if faults:
        raise ContractError("\n".join(faults[:20]))
    counts = {"acknowledged": len(log.acknowledged), "refused": len(campaign.refusals), **Counter(campaign.actions)}
    return Outcome(scenario, campaign.folder, campaign.database, log, export / "answers.csv", counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in dataclasses.fields(Scenario):
        name = f"--{option.name.replace('_', '-')}"
        if isinstance(option.default, bool):
            parser.add_argument(name, action="store_true")
        else:
            choices = ("sqlite", "postgresql") if option.name == "database" else None
            parser.add_argument(name, type=type(option.default), default=option.default, choices=choices)
    parser.add_argument("--folder", type=Path, help="Folder for the campaign. Default: a temporary one.")
    options = vars(parser.parse_args())
    with ExitStack() as stack:
        folder = options.pop("folder") or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crossmatch-contract-")))
        folder.mkdir(parents=True, exist_ok=True)
        scenario, start = Scenario(**options), time.monotonic()
        try:
            outcome = run_contract(scenario, folder)
        except (ContractError, NoSmallDiskError) as error:
            sys.exit(str(error))
    measured = {"seconds": round(time.monotonic() - start, 1), "load_average": round(os.getloadavg()[0], 1)}
    print(json.dumps({**dataclasses.asdict(scenario), **outcome.counts, **measured}))


if __name__ == "__main__":
    main()
