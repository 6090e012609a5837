"""Statistics that are there when a page asks for them: threads read events and measure, and pages wait only shortly.

Reading goes on from the last event, and nothing is measured again while nothing has changed. Measuring takes its time with many
answers; it is done again at most so often that it costs a tenth of a processor, and until then the page says how old its figures
are. Figures are kept in memory alone: after a restart they are made again from the events.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from sqlalchemy import select

from crossmatch.study.schema import head
from crossmatch.study.statistics import NOWHERE, Differing, Measured, differing, measured
from crossmatch.study.tally import BATCH, Size, Snapshot, Tally
from crossmatch.study.workers import Worker, workers

if TYPE_CHECKING:
    from crossmatch.study.store import Campaign

PATIENCE = 0.3  # seconds that a page waits for newer figures
SHORT = 0.3  # what is measured as fast is always measured again
REST = 10  # times as long as measuring took nothing is measured again
SHOWN = 0.2  # seconds of reading after which those who wait get to see what was read


@dataclass(frozen=True, eq=False)
class Figures:
    """What one snapshot comes to."""

    seen: Snapshot
    size: Size
    workers: tuple[Worker, ...] = ()
    differing: Differing = NOWHERE


@dataclass(frozen=True)
class Agreed:
    """Agreement on each question, as of an event."""

    number: int
    questions: tuple[Measured, ...]
    at: float
    took: float


@dataclass(frozen=True, eq=False)
class View:
    """What a page is told: the figures, the agreement if it was measured yet, and how much of all events they cover."""

    figures: Figures
    agreed: Agreed | None
    share: float

    @property
    def is_new(self) -> bool:
        """Whether the agreement is that of the figures."""
        return self.agreed is not None and self.agreed.number == self.figures.seen.number


class Live:
    """The figures of one study."""

    def __init__(self, campaign: Campaign, study_id: int, worker: ThreadPoolExecutor) -> None:
        self._tally, self._worker, self._lock = Tally(campaign, study_id), worker, Lock()
        self._job: Future[None] | None = None
        self._figures = Figures(self._tally.snapshot(), self._tally.size)
        self._agreed: Agreed | None = None
        self._number = 0

    def view(self, patience: float = PATIENCE) -> View:
        """The newest figures that can be had in this time."""
        until, wanted = time.monotonic() + patience, self._last()
        while self._number < wanted or self._must_measure():
            job = self._started()
            wait([job], max(0.0, until - time.monotonic()))
            if not job.done():
                break
            job.result()  # what went wrong there goes wrong here
        return View(self._figures, self._agreed, min(1.0, self._number / wanted))

    def _last(self) -> int:
        with self._tally.campaign.reading() as connection:
            found: int = connection.execute(select(head.c.number).where(head.c.study == self._tally.study)).scalar_one()
        return found

    def _started(self) -> Future[None]:
        """The job that is under way, or a new one."""
        with self._lock:
            if self._job is None or self._job.done():
                self._job = self._worker.submit(self._go_on)
            return self._job

    def _go_on(self) -> None:
        read, shown, made = BATCH, time.monotonic(), 0.0
        while read == BATCH:
            read = self._tally.read()
            now = time.monotonic()
            if read < BATCH or now - shown > max(SHOWN, 3 * made):  # showing takes its time, too
                self._show()
                shown, made = time.monotonic(), time.monotonic() - now
        if self._must_measure():
            began, seen = time.monotonic(), self._figures.seen
            found = tuple(measured(seen, n) for n in range(len(seen.asked)))
            now = time.monotonic()
            self._agreed = Agreed(seen.number, found, now, now - began)

    def _show(self) -> None:
        seen = self._tally.snapshot()
        if seen is not self._figures.seen:
            self._figures = Figures(seen, self._tally.size, workers(seen), differing(seen))
        self._number = self._tally.number

    def _must_measure(self) -> bool:
        """Whether answers have changed since the last time, and that was long enough ago."""
        last = self._agreed
        if last is None:
            return True
        rested = last.took < SHORT or time.monotonic() - last.at >= REST * last.took
        return last.number != self._figures.seen.number and rested


@dataclass(frozen=True, eq=False)
class Tallies:
    """The figures of all studies that somebody has looked at."""

    patience: float = PATIENCE
    _lives: dict[int, Live] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _worker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2, "figures"))

    def view(self, campaign: Campaign, study_id: int) -> View:
        with self._lock:
            live = self._lives.get(study_id)
            if live is None:
                live = self._lives[study_id] = Live(campaign, study_id, self._worker)
        return live.view(self.patience)
