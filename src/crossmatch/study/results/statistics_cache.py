"""Caches the statistics of the owner pages. Background threads compute them, so that pages wait only briefly.

Reading continues from the last event, and nothing is computed again while nothing has changed. Agreement takes long with many
answers, so it is recomputed at most as often as a tenth of a processor allows. Statistics are kept in memory only.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from sqlalchemy import select

from crossmatch.study.database.schema import head
from crossmatch.study.results.annotator_agreement import (
    NO_DISAGREEMENT,
    DisagreementRanking,
    QuestionAgreement,
    measure_agreement,
    rank_disagreement,
)
from crossmatch.study.results.annotator_quality import AnnotatorSummary, summarise_annotators
from crossmatch.study.results.event_columns import BATCH, EventReader, Snapshot, StudySize

if TYPE_CHECKING:
    from crossmatch.study.database.campaign import Campaign

MAX_WAIT_S = 0.3  # that a page waits for newer statistics
SHORT_S = 0.3  # agreement that takes less is always recomputed
PAUSE_FACTOR = 10  # agreement is not recomputed for this many times its duration
PUBLISH_S = 0.2  # while reading, publish figures this often


@dataclass(frozen=True, eq=False)
class StudyFigures:
    """The statistics of one snapshot, except agreement."""

    snapshot: Snapshot
    size: StudySize
    annotators: tuple[AnnotatorSummary, ...] = ()
    disagreement: DisagreementRanking = NO_DISAGREEMENT


@dataclass(frozen=True)
class AgreementFigures:
    """Agreement on each question, up to an event."""

    last_event: int
    questions: tuple[QuestionAgreement, ...]
    finished_at: float
    duration: float


@dataclass(frozen=True, eq=False)
class StatisticsView:
    """The statistics that a page shows. `share` is the share of all events that they cover."""

    figures: StudyFigures
    agreement: AgreementFigures | None
    share: float

    @property
    def is_new(self) -> bool:
        """Whether the agreement belongs to the figures."""
        return self.agreement is not None and self.agreement.last_event == self.figures.snapshot.last_event


class LiveStatistics:
    """The statistics of one study."""

    def __init__(self, campaign: Campaign, study_id: int, executor: ThreadPoolExecutor) -> None:
        self._reader, self._executor, self._lock = EventReader(campaign, study_id), executor, Lock()
        self._job: Future[None] | None = None
        self._figures = StudyFigures(self._reader.snapshot(), self._reader.size)
        self._agreement: AgreementFigures | None = None
        self._number = 0  # of the last event in the figures

    def view(self, max_wait: float = MAX_WAIT_S) -> StatisticsView:
        """The newest statistics that are available within this time."""
        deadline, last = time.monotonic() + max_wait, self._last_event()
        while self._number < last or self._is_agreement_due():
            job = self._start_job()
            wait([job], max(0.0, deadline - time.monotonic()))
            if not job.done():
                break
            job.result()  # raise its exception here
        return StatisticsView(self._figures, self._agreement, min(1.0, self._number / last))

    def _last_event(self) -> int:
        with self._reader.campaign.read_transaction() as connection:
            query = select(head.c.number).where(head.c.study == self._reader.study_id)
            number: int = connection.execute(query).scalar_one()
        return number

    def _start_job(self) -> Future[None]:
        """The running job, or a new one."""
        with self._lock:
            if self._job is None or self._job.done():
                self._job = self._executor.submit(self._update)
            return self._job

    def _update(self) -> None:
        read, published_at, duration = BATCH, time.monotonic(), 0.0
        while read == BATCH:
            read = self._reader.read_batch()
            now = time.monotonic()
            if read < BATCH or now - published_at > max(PUBLISH_S, 3 * duration):
                self._publish()
                published_at, duration = time.monotonic(), time.monotonic() - now
        if self._is_agreement_due():
            start, snapshot = time.monotonic(), self._figures.snapshot
            questions = tuple(measure_agreement(snapshot, n) for n in range(len(snapshot.questions)))
            now = time.monotonic()
            self._agreement = AgreementFigures(snapshot.last_event, questions, now, now - start)

    def _publish(self) -> None:
        snapshot = self._reader.snapshot()
        if snapshot is not self._figures.snapshot:
            annotators, disagreement = summarise_annotators(snapshot), rank_disagreement(snapshot)
            self._figures = StudyFigures(snapshot, self._reader.size, annotators, disagreement)
        self._number = self._reader.number

    def _is_agreement_due(self) -> bool:
        """Whether answers have changed since agreement was computed, and that was long enough ago."""
        last = self._agreement
        if last is None:
            return True
        has_paused = last.duration < SHORT_S or time.monotonic() - last.finished_at >= PAUSE_FACTOR * last.duration
        return last.last_event != self._figures.snapshot.last_event and has_paused


@dataclass(frozen=True, eq=False)
class StatisticsCache:
    """The statistics of all studies that somebody has looked at."""

    max_wait: float = MAX_WAIT_S
    _studies: dict[int, LiveStatistics] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _executor: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2, "statistics"))

    def view(self, campaign: Campaign, study_id: int) -> StatisticsView:
        with self._lock:
            statistics = self._studies.get(study_id)
            if statistics is None:
                statistics = self._studies[study_id] = LiveStatistics(campaign, study_id, self._executor)
        return statistics.view(self.max_wait)

    def close(self) -> None:
        """Wait for running computations, and start no more."""
        self._executor.shutdown(cancel_futures=True)
