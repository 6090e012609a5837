"""Simulates a study: artificial annotators answer it by HTTP, as people would, until it is finished.

The service is started as a separate process on a free port of the loopback address, unless a running service is given. If work is
left that no annotator may do, more annotators join. Unfinished HITs are free again when their leases end; the simulation does not wait
for that, but sets the clock of its service ahead.

A simulation needs a separate campaign. In a campaign with real people it needs `allow_real_people`. Then the clock stays as it is,
and artificial annotators stop before the lease of a real person ends, so that they take over no HIT. Exports leave out their
answers, but the slots that they filled stay filled. Artificial annotators have reserved names, which nobody can take who joins by a
link; so a simulation needs the campaign's folder.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from sqlalchemy import func, select

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.study.assignment.people import invite_artificial
from crossmatch.study.assignment.reserved_names import ARTIFICIAL_PREFIX
from crossmatch.study.database.campaign import open_campaign
from crossmatch.study.database.schema import person, slot
from crossmatch.study.results.answers import is_artificial, load_items
from crossmatch.study.results.progress import count_slots
from crossmatch.study.simulation.correct_answers import read_truth
from crossmatch.study.simulation.diorama_items import truth_of
from crossmatch.study.simulation.http_client import Client, RequestFailedError
from crossmatch.study.simulation.simulated_annotators import AnswerKey, Habits, SimulatedAnnotator, WorkSummary, work
from crossmatch.study.study import Study, list_studies

if TYPE_CHECKING:
    from crossmatch.study.database.campaign import Campaign

MARGIN = 30.0  # seconds before the end of a real person's lease in which artificial annotators begin nothing
START = 60.0  # seconds for the service to come up
ROUNDS = 50  # in which more people join, at most
SERVER = """
import sys, time
from pathlib import Path
from crossmatch.study.web.server import serve

folder, port, ahead = sys.argv[1:]
serve(Path(folder), port=int(port), connections=0, now=lambda: time.time() + float(ahead))
"""


@dataclass(frozen=True)
class SimulationSummary:
    """The outcome of a simulation of one study."""

    study: str
    people: int
    hits: int
    answers: int
    dropouts: int
    errors: int
    accuracy: float | None  # share of right answers, among the checkable ones
    checkable: int  # answers whose truth is known
    seconds: float
    left: int | None  # missing assignments; None: unknown
    review: int | None  # HITs that await review
    first_error: str = ""


def simulate(
    where: Path,
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
    allow_real_people: bool = False,
    say: Callable[[str], object] = lambda message: None,
) -> list[SimulationSummary]:
    """Let artificial annotators work through a study of a campaign, or through all of them.

    Args:
        where: The campaign's folder.
        study: The name of the study; default: all open studies.
        people: The number of annotators who join at once.
        habits: The habits of all annotators, or a list that they take in turn.
        spread: Standard deviation of the accuracy between annotators.
        seed: Seed of all answers.
        url: Address of a running service.
        truth: A csv (image, caption, grade) with the truth about data other than the embedded world.
        wait: The real duration of one second of simulated work.
        limit: Seconds after which to stop; 0 for no limit.
        allow_real_people: Permits a campaign with real people.
        say: Called with messages about the progress.

    Returns:
        The numbers of people, HITs, answers and errors of each study, and what is left to do.

    >>> from crossmatch.study import add_study, create_campaign, load_design, read_items, simulate
    >>> count = (folder / "items.jsonl").write_text('{"captions": ["A cat.", "A kitten."]}')
    >>> campaign, design = create_campaign(folder / "campaign"), load_design("sts")
    >>> study_id = add_study(campaign, design, read_items(folder / "items.jsonl", design))
    >>> campaign.close()
    >>> [(study.study, study.hits, study.answers, study.left) for study in simulate(folder / "campaign", people=5)]
    [('sts', 5, 5, 0)]
    """
    if people < 1:
        raise UsageError(f"--people must be at least 1 (got {people}).")
    many = (habits,) if isinstance(habits, Habits) else tuple(habits)
    crowd = Crowd(people, many, spread, seed, wait, time.monotonic() + limit if limit else float("inf"), say)
    campaign = open_campaign(where)
    try:
        studies = [selected for selected in list_studies(campaign) if selected.name == study or (not study and selected.is_open)]
        if not studies:
            raise UsageError(
                f"{where} has no study {study!r} that is open."
                if study
                else f"{where} has no open study. Reopen one: crossmatch study status {where} --reopen"
            )
        real = real_people(campaign)
        if real and not allow_real_people:
            raise UsageError(
                f"{where} has {len(real)} real people, such as {real[0]!r}; artificial annotators would take their HITs. "
                "Simulate in a separate campaign (crossmatch study new … -o OTHER), or add --rehearse-here."
            )
        return [crowd.finish(campaign, selected, url, truth) for selected in studies]
    finally:
        campaign.close()


@dataclass(frozen=True, eq=False)
class Crowd:
    """The artificial annotators of a simulation, and how they work."""

    size: int
    habits: tuple[Habits, ...]
    spread: float
    seed: int
    wait: float
    until: float
    say: Callable[[str], object]

    def person(self, n: int, key: AnswerKey) -> SimulatedAnnotator:
        """The n-th annotator, with their own accuracy."""
        habits = self.habits[n % len(self.habits)]
        accuracy = habits.accuracy
        if self.spread:
            accuracy = np.random.default_rng([self.seed, n]).normal(accuracy, self.spread)
        return SimulatedAnnotator(
            f"{ARTIFICIAL_PREFIX}-{n + 1:04d}", replace(habits, accuracy=float(np.clip(accuracy, 0, 1))), key, self.seed
        )

    def work(
        self, base: str, annotators: Sequence[SimulatedAnnotator], tokens: Mapping[str, str], study_name: str, stays: bool
    ) -> WorkSummary:
        """Let all annotators work at the same time, until there is nothing to do. They enter by the tokens of their names."""

        def work_alone(annotator: SimulatedAnnotator) -> WorkSummary:
            tally, client = WorkSummary(), Client(base)
            try:
                client.enter(tokens[annotator.name])
                client.open(study_name)
                work(annotator, client, tally, wait=self.wait, until=self.until, stays=stays)
            except RequestFailedError as error:
                tally.errors.append(f"{annotator.name}: {error}")
            finally:
                client.close()
            return tally

        total = WorkSummary()
        with ThreadPoolExecutor(max(1, len(annotators))) as pool:
            for summary in pool.map(work_alone, annotators):
                total.add(summary)
        return total

    def finish(self, campaign: Campaign, study: Study, url: str, truth: Path | None) -> SimulationSummary:
        """Rounds of annotators until nothing is left."""
        started, total, joined, ahead, leapt, stuck = time.monotonic(), WorkSummary(), 0, 0.0, False, False
        key = make_answer_key(campaign, study, truth)
        with campaign.read_transaction() as connection:
            earlier_people = connection.execute(
                select(func.count()).where(person.c.key.startswith(f"{ARTIFICIAL_PREFIX}-"))
            ).scalar_one()
        for turn in range(ROUNDS):
            open_slots, held_slots, answered_before = _left(campaign, study)
            is_finished = open_slots + held_slots == 0 or time.monotonic() >= self.until
            real = bool(real_people(campaign))
            is_clock_fixed = real or bool(url)  # real people and running services need the real time
            if is_finished or (stuck and (leapt or is_clock_fixed or not held_slots)):
                break
            until = _seconds_until_lease_end(campaign, study) if real else float("inf")
            if until <= 0:
                self.say(f"{study.name}: the lease of a real person's HIT ends soon or has ended, so artificial annotators stop")
                break
            leapt = turn > 0 and not is_clock_fixed and (stuck or not open_slots)
            if leapt:
                ahead += 60 * study.design.recipe.lease_minutes + 1
                self.say(
                    f"{study.name}: {held_slots:,} HITs are held by people who left; the clock is set ahead to the end of their leases"
                )
            elif turn:
                self.say(f"{study.name}: {open_slots + held_slots:,} assignments are missing; {self.size} more people join")
            annotators = [self.person(earlier_people + joined + n, key) for n in range(self.size)]
            joined += len(annotators)
            tokens = _invite(campaign, study, annotators)
            with service(campaign.folder, url, ahead) as base:
                crowd = replace(self, until=min(self.until, time.monotonic() + until))
                total.add(crowd.work(base, annotators, tokens, study.name, stays=turn > 0))
            stuck = _left(campaign, study)[2] == answered_before
        open_slots, held_slots, _ = _left(campaign, study)
        with campaign.read_transaction() as connection:
            review = count_slots(connection, study.id).review
        if open_slots + held_slots:
            self.say(
                f"{study.name}: {open_slots + held_slots:,} assignments are missing. Add people, or raise the limits of the recipe"
            )
        return _summarise(study.name, joined, total, started, open_slots + held_slots, review)


def real_people(campaign: Campaign) -> list[str]:
    """The annotators of a campaign who are not artificial, whether they were invited or joined by a link."""
    with campaign.read_transaction() as connection:
        names = connection.execute(select(person.c.key).where(person.c.role == "annotator").order_by(person.c.id)).scalars()
        return [name for name in names if not is_artificial(name)]


def _seconds_until_lease_end(campaign: Campaign, study: Study) -> float:
    """Seconds in which no lease of a real person can end, neither a current lease nor one that begins now."""
    leases = select(person.c.key, slot.c.lease).join(slot, slot.c.person == person.c.id)
    with campaign.read_transaction() as connection:
        held_slots = connection.execute(leases.where(slot.c.study == study.id, slot.c.state == "held")).all()
    ends = [float(row.lease) - campaign.now() for row in held_slots if not is_artificial(row.key)]
    return min([60 * study.design.recipe.lease_minutes, *ends]) - MARGIN


def make_answer_key(campaign: Campaign, study: Study, truth: Path | None = None) -> AnswerKey:
    """The key to a study: its images, its gold, and the truth of the embedded world or of a file."""
    with campaign.read_transaction() as connection:
        items = list(load_items(connection, study.id).values())
    file_truth = None
    if truth is not None:
        texts = {name: text for item in items for name, text in zip(item.caption_ids, item.captions, strict=False)}
        file_truth = read_truth(truth, texts)
    return AnswerKey.of(study.design, items, file_truth or truth_of(study.origin))


def _left(campaign: Campaign, study: Study) -> tuple[int, int, int]:
    """Slots that are open, held, and answered."""
    with campaign.read_transaction() as connection:
        slots = count_slots(connection, study.id)
    return slots.open, slots.held, slots.review + slots.done


def _invite(campaign: Campaign, study: Study, annotators: Sequence[SimulatedAnnotator]) -> dict[str, str]:
    """Personal tokens by name, with the experience that the study requires."""
    past = (study.design.recipe.past_tasks, study.design.recipe.past_accepted)
    return {annotator.name: invite_artificial(campaign, annotator.name, study.name, *past) for annotator in annotators}


def _summarise(
    name: str, joined: int, total: WorkSummary, started: float, left: int | None, review: int | None
) -> SimulationSummary:
    accuracy = total.right / total.checkable if total.checkable else None
    return SimulationSummary(
        name, joined, total.hits, total.answers, total.dropouts, len(total.errors), accuracy, total.checkable,
        time.monotonic() - started, left, review, next(iter(total.errors), ""),
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
    with tempfile.TemporaryFile() as server_log:
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=server_log)
        try:
            base = f"http://127.0.0.1:{port}"
            _wait(base, server, server_log)
            yield base
        finally:
            server.terminate()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait(base: str, server: subprocess.Popen[bytes], server_log: IO[bytes]) -> None:
    until = time.monotonic() + START
    while True:
        client = Client(base, timeout=5, patience=0)
        try:
            if client.request("GET", "/alive").status == 200:
                return
        except RequestFailedError:
            pass
        finally:
            client.close()
        if server.poll() is not None or time.monotonic() > until:
            server_log.seek(0)
            last = next(iter(reversed(server_log.read().decode("utf-8", "replace").strip().splitlines())), "it printed nothing")
            raise CrossmatchError(f"The service did not start: {last}")
        time.sleep(0.05)
