"""Progress of a study: slots by state, time per item, time left, and cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection, func, select

from crossmatch.data.arrays import FloatArray
from crossmatch.study.assignment.review import VERDICTS
from crossmatch.study.database.events import read_body
from crossmatch.study.database.schema import BUSY, FREE, slot
from crossmatch.study.design.declaration import Recipe
from crossmatch.study.results.event_columns import HitColumns, StudySize

REJECTED = VERDICTS.index("reject")
PACE_HITS = 100  # the latest HITs, which give the current pace


@dataclass(frozen=True)
class SlotCounts:
    """The number of slots in each state, and the number of HITs."""

    open: int
    held: int
    review: int
    done: int
    hits: int

    @property
    def total(self) -> int:
        return self.open + self.held + self.review + self.done

    @property
    def left(self) -> int:
        """Slots without an answer."""
        return self.open + self.held


def count_slots(connection: Connection, study_id: int) -> SlotCounts:
    """Count the slots of a study.

    The first event holds the total. Free and busy slots are counted over indexes, and the others are done.
    """
    created = read_body(connection, study_id, 1)
    count = select(func.count()).select_from(slot).where(slot.c.study == study_id)
    free = connection.execute(count.where(FREE)).scalar_one()
    by_state = select(slot.c.state, func.count()).where(slot.c.study == study_id, BUSY).group_by(slot.c.state)
    busy = {str(state): int(n) for state, n in connection.execute(by_state)}
    held, review = busy.get("held", 0), busy.get("review", 0)
    return SlotCounts(free - held, held, review, created["hits"] * created["people"] - free - review, created["hits"])


def count_complete_items(hits: HitColumns, size: StudySize) -> int:
    """The number of items, without gold questions, that have all required answers."""
    _, first, times = np.unique(hits.hit[hits.in_results], return_index=True, return_counts=True)
    items = (hits.items - hits.gold)[hits.in_results][first]
    return int(items[times >= size.people].sum())


@dataclass(frozen=True)
class Quartiles:
    """The quartiles of n values."""

    low: float
    median: float
    high: float
    n: int


def quartiles(values: FloatArray) -> Quartiles | None:
    """The quartiles of some values; None without values.

    >>> quartiles(np.array([1.0, 2.0, 3.0, 5.0, 9.0]))
    Quartiles(low=2.0, median=3.0, high=5.0, n=5)
    """
    if not len(values):
        return None
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    return Quartiles(low, median, high, len(values))


def seconds_per_item(hits: HitColumns) -> FloatArray:
    """For each HIT: the time from claim to submission, with breaks, divided by the number of its items."""
    return np.asarray(hits.seconds / hits.items, dtype=np.float64)


@dataclass(frozen=True)
class TimeLeft:
    """The time until a study is complete; None with a reason where it is unknown."""

    seconds: float | None  # at the current pace
    work_seconds: float | None  # if one person did all the work without a break
    reason: str = ""


def estimate_time_left(hits: HitColumns, left: int, now: float) -> TimeLeft:
    """The time left at the pace of the latest counted HITs. The pace is measured until now, so it falls when all work stops.

    Args:
        hits: All submitted HITs.
        left: The number of slots without an answer.
        now: The current time.
    """
    if not left:
        return TimeLeft(0.0, 0.0)
    if not hits.counted.any():
        return TimeLeft(None, None, "No counted HIT has been submitted yet.")
    work_seconds = left * float(np.median(hits.seconds[hits.counted]))
    latest = np.sort(hits.ended[hits.counted])[-PACE_HITS:]
    elapsed = now - float(latest[0])
    if len(latest) < 2 or elapsed <= 0:
        return TimeLeft(None, work_seconds, "The pace is known after the second counted HIT.")
    return TimeLeft(left * elapsed / (len(latest) - 1), work_seconds)


@dataclass(frozen=True)
class Cost:
    """Payments with the platform's fee. `hourly` is the median over paid HITs of what a person earns in an hour."""

    currency: str
    paid_hits: int
    so_far: float
    total: float
    hourly: float | None


def compute_cost(recipe: Recipe, hits: HitColumns, left: int) -> Cost:
    """The cost of a study. Submitted HITs are paid unless they were rejected, also late ones."""
    is_paid = hits.verdict != REJECTED
    paid_hits, price = int(is_paid.sum()), recipe.pay * (1 + recipe.fee)
    hours = hits.seconds[is_paid] / 3600
    hourly = float(np.median(recipe.pay / hours[hours > 0])) if recipe.pay and (hours > 0).any() else None
    return Cost(recipe.currency, paid_hits, price * paid_hits, price * (paid_hits + left), hourly)
