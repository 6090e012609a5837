"""Several threads' work on the database in one transaction, so that they wait for the disk once and not one after another.

What takes long about a small transaction is its end: everything must be on the disk before it is acknowledged. While one
transaction ends, those who come meanwhile wait, and then they are done together: whoever came first does the work of all, and all
are answered when the transaction is on the disk. Whoever is alone waits for nobody.

If one of them fails, all is undone, and each is done again by itself, so that it fails alone: work must be safe to be done again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from sqlalchemy import Connection

    Writing = Callable[[], AbstractContextManager[Connection]]

T = TypeVar("T")
MOST = 50  # in one transaction: the first of them waits for the last


class Asked:
    """A piece of work, and what became of it. Its thread sleeps until it is `told`, or is to lead."""

    def __init__(self, work: Callable[[Connection], Any]) -> None:
        self.work, self.result, self.error = work, None, None
        self.leads, self.told = False, Lock()
        self.told.acquire()

    error: BaseException | None
    result: Any


class Together:
    """Runs work in transactions that `writing` opens: one after another, in the order in which it was asked for."""

    def __init__(self) -> None:
        self._guard, self._waiting, self._led = Lock(), deque[Asked](), False

    def do(self, writing: Writing, work: Callable[[Connection], T]) -> T:
        """What `work` returns or raises, once it is on the disk. It may be done by another thread."""
        mine = Asked(work)
        with self._guard:
            self._waiting.append(mine)
            mine.leads, self._led = not self._led, True
        if not mine.leads:
            mine.told.acquire()
        if mine.leads:
            self._lead(writing)
        if mine.error is not None:
            raise mine.error
        done: T = mine.result
        return done

    def _lead(self, writing: Writing) -> None:
        """Do what has been asked for, one's own first, then let the next one lead."""
        with self._guard:
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST))]
        if len(batch) == 1 or not _done(writing, batch):
            for each in batch:
                _done(writing, [each])
        with self._guard:
            follower = self._waiting[0] if self._waiting else None
            self._led = follower is not None
        for each in batch[1:]:
            each.told.release()
        if follower is not None:
            follower.leads = True
            follower.told.release()


def _done(writing: Writing, batch: list[Asked]) -> bool:
    """Whether all of it is on the disk, in one transaction; else nothing is."""
    try:
        with writing() as connection:
            for each in batch:
                each.result, each.error = each.work(connection), None
    except BaseException as error:
        for each in batch:
            each.error = error
        return False
    return True
