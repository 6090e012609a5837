"""A rehearsal: artificial annotators work through a study by HTTP, as people would, until it is finished.

The service is started for it on a port of loopback that is free, as a process of its own, unless one that runs already is named.
When everybody has done all that they may and something is left, more people join. What those who left unfinished still hold is
free again when its lease has ended; the rehearsal does not wait for that, but sets the clock of its service ahead.

A rehearsal is for a campaign of its own. Where real people are, artificial ones come only if `here` says so: then no clock is set
ahead, and they stop before the lease of anybody real ends, so that they take nothing over from them. Exports leave their answers
out, but the slots that they have filled are filled. By a link alone nobody can see who is there, so that it needs the same word.
"""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np
from sqlalchemy import func, select

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.study import people as entries
from crossmatch.study.annotators import Annotator, Habits, Key, Tally, work
from crossmatch.study.client import Client, Failed
from crossmatch.study.ideal import read_truth
from crossmatch.study.said import Study, is_artificial, progress, studies, things
from crossmatch.study.schema import person, slot
from crossmatch.study.store import open_campaign
from crossmatch.study.worlds import known_of

if TYPE_CHECKING:
    from crossmatch.study.store import Campaign

NAME = "artificial"  # how the names of artificial annotators begin, as `is_artificial` knows them
MARGIN = 30.0  # seconds before the end of a real person's lease in which nobody artificial begins anything
START = 60.0  # seconds for the service to come up
ROUNDS = 50  # in which more people join, at most
SERVER = (
    "import sys, time; from pathlib import Path; from crossmatch.study.serve import serve; folder, port, ahead = sys.argv[1:]; "
)
SERVER += "serve(Path(folder), port=int(port), now=lambda: time.time() + float(ahead))"


@dataclass(frozen=True)
class Simulated:
    """What came of a rehearsal of one study."""

    study: str
    people: int
    hits: int
    answers: int
    dropouts: int
    errors: int
    accuracy: float | None  # share of right answers, among those of which the truth is known
    seconds: float
    left: int | None  # HITs that nobody has answered; None: that cannot be seen from outside
    review: int | None  # HITs that wait for a reviewer
    first_error: str = ""


def simulate(
    where: Path | str,
    study: str = "",
    *,
    people: int = 30,
    habits: Habits | Sequence[Habits] = Habits(),  # noqa: B008 - it is frozen
    spread: float = 0.0,
    seed: int = 0,
    url: str = "",
    truth: Path | None = None,
    wait: float = 0.0,
    limit: float = 0.0,
    here: bool = False,
    say: Callable[[str], object] = lambda said: None,
) -> list[Simulated]:
    """Let artificial annotators work through a study of a campaign, or through all of them.

    `where` is the campaign's folder, or the link of a study (http…/join/…), of which nothing is known, so that answers are drawn.
    `habits` are everybody's, or a list that people take in turn; accuracies differ by `spread` from person to person. `url` is a
    service that runs already, `truth` a csv (image, caption, grade) for data other than the embedded world. `wait` is how long a
    second of work really takes, `limit` after how many seconds to stop. `here` allows it where real people are, or may be.
    """
    if people < 1:
        raise WrongWords(f"{people} people cannot work. Ask for one at least.")
    many = (habits,) if isinstance(habits, Habits) else tuple(habits)
    crowd = Crowd(people, many, spread, seed, wait, time.monotonic() + limit if limit else float("inf"), say)
    if isinstance(where, str) and where.startswith(("http://", "https://")):
        if not here:
            raise WrongWords(
                "by a link nobody can see whether real people are there, whose HITs artificial ones would take. Name the "
                "campaign's folder, or say --rehearse-here."
            )
        return [crowd.visit(where)]
    campaign = open_campaign(Path(where))
    try:
        found = [one for one in studies(campaign) if one.name == study or (not study and one.open)]
        if not found:
            raise WrongWords(f"{where} has no study {study!r} that is open." if study else f"{where} has no open study.")
        real = real_people(campaign)
        if real and not here:
            raise WrongWords(
                f"{where} has {len(real)} real people, such as {real[0]!r}, and artificial ones would do their work. Rehearse in a "
                "campaign of its own (crossmatch study new … -o OTHER), or say --rehearse-here."
            )
        return [crowd.finish(campaign, one, url, truth) for one in found]
    finally:
        campaign.close()


@dataclass(frozen=True, eq=False)
class Crowd:
    """Those who work, and how."""

    size: int
    habits: tuple[Habits, ...]
    spread: float
    seed: int
    wait: float
    until: float
    say: Callable[[str], object]

    def person(self, n: int, key: Key, tag: str = "") -> Annotator:
        """The n-th person; their accuracy is their own."""
        mine = self.habits[n % len(self.habits)]
        drawn = np.random.default_rng([self.seed, n]).normal(mine.accuracy, self.spread) if self.spread else mine.accuracy
        return Annotator(f"{NAME}{tag}-{n + 1:04d}", replace(mine, accuracy=float(np.clip(drawn, 0, 1))), key, self.seed)

    def work(self, those: Sequence[tuple[Annotator, Callable[[], Client]]], stays: bool) -> Tally:
        """Let them all work at the same time, until none has anything to do."""
        total = Tally()
        with ThreadPoolExecutor(max(1, len(those))) as pool:
            for done in pool.map(lambda one: self._one(one[0], one[1], stays), those):
                total.add(done)
        return total

    def _one(self, who: Annotator, come: Callable[[], Client], stays: bool) -> Tally:
        tally, client = Tally(), None
        try:
            client = come()
            work(who, client, tally, wait=self.wait, until=self.until, stays=stays)
        except Failed as error:
            tally.errors.append(f"{who.name}: {error}")
        finally:
            if client is not None:
                client.close()
        return tally

    # -- by a link alone

    def visit(self, link: str) -> Simulated:
        """One round of people who come by a link and know nothing."""
        address, begun = urlsplit(link), time.monotonic()
        base, _, name = f"{address.scheme}://{address.netloc}", "", address.path.rpartition("/join/")[2]
        if not name or "/join/" not in address.path:
            raise WrongWords(f"{link} is not the link of a study; one such as http://127.0.0.1:8400/join/… was expected.")
        tag = f"-{secrets.token_hex(3)}"
        seen: set[str] = set()

        def come(who: Annotator) -> Callable[[], Client]:
            def joined() -> Client:
                with opened(base) as client:
                    seen.add(client.join(name, who.name))
                return client

            return joined

        crowd = [self.person(n, Key(), tag) for n in range(self.size)]
        total = self.work([(who, come(who)) for who in crowd], stays=False)
        return _simulated(next(iter(seen), ""), len(crowd), total, begun, None, None)

    # -- with the campaign at hand

    def finish(self, campaign: Campaign, one: Study, url: str, truth: Path | None) -> Simulated:
        """Rounds of people until nothing is left."""
        begun, total, joined, ahead, leapt, stuck = time.monotonic(), Tally(), 0, 0.0, False, False
        key = key_of(campaign, one, truth)
        with campaign.reading() as connection:
            known = connection.execute(select(func.count()).where(person.c.key.startswith(f"{NAME}-"))).scalar_one()
        for turn in range(ROUNDS):
            open_, held, before = _left(campaign, one)
            done = open_ + held == 0 or time.monotonic() >= self.until
            real = bool(real_people(campaign))
            fixed = real or bool(url)  # nobody sets the clock ahead of real people, nor that of a service that runs elsewhere
            if done or (stuck and (leapt or fixed or not held)):
                break
            until = _until(campaign, one) if real else float("inf")
            if until <= 0:
                self.say(f"{one.name}: a real person holds a HIT whose lease ends or has ended; artificial people leave it to them")
                break
            leapt = turn > 0 and not fixed and (stuck or not open_)
            if leapt:
                ahead += 60 * one.design.recipe.lease_minutes + 1
                self.say(f"{one.name}: {held:,} HITs are kept for people who left; the clock is set ahead until their leases end")
            elif turn:
                self.say(f"{one.name}: {open_ + held:,} answers to HITs are still wanted; {self.size} more people join")
            crowd = [self.person(known + joined + n, key) for n in range(self.size)]
            joined += len(crowd)
            with service(campaign.folder, url, ahead) as base:
                those = [(who, _comer(campaign, one, base, who)) for who in crowd]
                total.add(replace(self, until=min(self.until, time.monotonic() + until)).work(those, stays=turn > 0))
            stuck = _left(campaign, one)[2] == before
        open_, held, _ = _left(campaign, one)
        with campaign.reading() as connection:
            review = progress(connection, one.id).review
        if open_ + held:
            self.say(
                f"{one.name}: {open_ + held:,} answers to HITs are missing. Let more people come, or look at the recipe's limits"
            )
        return _simulated(one.name, joined, total, begun, open_ + held, review)


def real_people(campaign: Campaign) -> list[str]:
    """The annotators of a campaign who are not artificial, whether they were invited or have come by themselves."""
    with campaign.reading() as connection:
        names = connection.execute(select(person.c.key).where(person.c.role == "annotator").order_by(person.c.id)).scalars()
        return [name for name in names if not is_artificial(name)]


def _until(campaign: Campaign, one: Study) -> float:
    """Seconds in which no lease of a real person can end: neither one that is held, nor one that is claimed from now on."""
    asked = select(person.c.key, slot.c.lease).join(slot, slot.c.person == person.c.id)
    with campaign.reading() as connection:
        held = connection.execute(asked.where(slot.c.study == one.id, slot.c.state == "held")).all()
    ends = [float(row.lease) - campaign.now() for row in held if not is_artificial(row.key)]
    return min([60 * one.design.recipe.lease_minutes, *ends]) - MARGIN


def key_of(campaign: Campaign, one: Study, truth: Path | None = None) -> Key:
    """The key to a study: its pictures and its gold, and the truth of the embedded world or of a file."""
    with campaign.reading() as connection:
        found = list(things(connection, one.id).values())
    known = None
    if truth is not None:
        texts = {name: text for thing in found for name, text in zip(thing.caption_ids, thing.captions, strict=False)}
        known = read_truth(truth, texts)
    return Key.of(one.design, found, known or known_of(one.origin))


def _left(campaign: Campaign, one: Study) -> tuple[int, int, int]:
    """Slots that are open, held, and answered."""
    with campaign.reading() as connection:
        far = progress(connection, one.id)
    return far.open, far.held, far.review + far.done


@contextmanager
def opened(base: str) -> Iterator[Client]:
    """A client who stays, unless they do not come in."""
    client = Client(base)
    try:
        yield client
    except BaseException:
        client.close()
        raise


def _comer(campaign: Campaign, one: Study, base: str, who: Annotator) -> Callable[[], Client]:
    """How a person comes in: by the study's link, or by a token where the study asks for a past that its owner vouches for."""
    need = one.design.recipe
    token = ""
    if need.past_tasks or need.past_accepted:
        token = entries.invite(campaign, who.name, "annotator", need.past_tasks, need.past_accepted)

    def come() -> Client:
        with opened(base) as client:
            if token:
                client.enter(token)
                client.open(one.name)
            else:
                client.join(one.link, who.name)
        return client

    return come


def _simulated(name: str, joined: int, total: Tally, begun: float, left: int | None, review: int | None) -> Simulated:
    return Simulated(
        name, joined, total.hits, total.answers, total.dropouts, len(total.errors),
        total.right / total.known if total.known else None, time.monotonic() - begun, left, review, next(iter(total.errors), ""),
    )  # fmt: skip


# -- the service


@contextmanager
def service(folder: Path, url: str = "", ahead: float = 0.0) -> Iterator[str]:
    """The address of a service of this campaign: the given one, or one that is started here and stopped afterwards."""
    if url:
        yield url.rstrip("/")
        return
    port = _free_port()
    command = [sys.executable, "-c", SERVER, str(folder), str(port), repr(ahead)]
    with tempfile.TemporaryFile() as said:
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        try:
            base = f"http://127.0.0.1:{port}"
            _wait(base, server, said)
            yield base
        finally:
            server.terminate()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


def _wait(base: str, server: subprocess.Popen[bytes], said: IO[bytes]) -> None:
    until = time.monotonic() + START
    while True:
        client = Client(base, timeout=5, patience=0)
        try:
            if client.ask("GET", "/alive").status == 200:
                return
        except Failed:
            pass
        finally:
            client.close()
        if server.poll() is not None or time.monotonic() > until:
            said.seek(0)
            last = next(iter(reversed(said.read().decode("utf-8", "replace").strip().splitlines())), "no word from it")
            raise CrossmatchError(f"the service did not start: {last}")
        time.sleep(0.05)
