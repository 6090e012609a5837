"""Several threads' work on the database in one transaction, so that they wait for the disk once and not one after another.

What takes long about a small transaction is its end: everything must be on the disk before it is acknowledged. While one
transaction ends, those who come meanwhile wait, and then they are done together: whoever came first does the work of all, and all
are answered when the transaction is on the disk. Whoever is alone waits for nobody.

Work is a generator that yields what it asks of the database, is sent what was said, and goes on from there. PostgreSQL is asked for
all who are done together at once, and waited for once; so nobody's first question sees what others who ask at the same time write
afterwards. What one person asks for more than once is therefore done one after another, in the same transaction.

If one of them fails, all is undone, and each is done again by itself, so that it fails alone: work must be safe to be done again.
Who is refused before anything was written undoes nobody's work: else one who asks in vain, again and again, would slow down all.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from crossmatch.core.errors import CrossmatchError

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from crossmatch.study.straight import Asked, Said

    Writing = Callable[[], AbstractContextManager[Connection]]

T = TypeVar("T")
Steps = Generator["tuple[Asked, ...]", "list[Said]", T]
MOST = 50  # in one transaction: the first of them waits for the last


class Refusal:
    """What work returns that wrote nothing: the error is raised where the work was asked for."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def refusable(work: Callable[[Connection], Steps[T]]) -> Callable[[Connection], Steps[T | Refusal]]:
    """Work that is refused, if it is, before it has written anything: then what others did in its transaction stays.

    SQLite counts what was written, so that whatever breaks this rule is undone there, and seen by tests.
    """

    def done(connection: Connection) -> Steps[T | Refusal]:
        raw: Any = connection.connection.dbapi_connection
        before = getattr(raw, "total_changes", 0)
        try:
            return (yield from work(connection))
        except CrossmatchError as error:
            if getattr(raw, "total_changes", 0) != before:
                raise RuntimeError(f"refused after something was written: {error}") from error
            return Refusal(error)

    return done


def in_step(connection: Connection, works: Sequence[Steps[Any]]) -> list[Any]:
    """What each work returns: all ask, then all are told, until all are done. SQLite is never waited for: one after another."""
    from crossmatch.study.straight import ask_each

    if connection.dialect.name == "sqlite" and len(works) > 1:
        return [result for work in works for result in in_step(connection, [work])]
    begun = [Begun(work) for work in works]
    while left := [one for one in begun if not one.over]:
        for one, said in zip(left, ask_each(connection, [one.asked for one in left]), strict=True):
            one.go_on(said)
    return [one.result for one in begun]


class Begun:
    """Work as far as its next question, or what it came to."""

    def __init__(self, work: Steps[Any]) -> None:
        self.work, self.over, self.result = work, False, None
        self.asked: tuple[Asked, ...] = ()
        self.go_on(None)

    def go_on(self, said: Any) -> None:
        try:
            self.asked = self.work.send(said)
        except StopIteration as end:
            self.over, self.result = True, end.value


class Job:
    """A piece of work, whose it is, and what became of it. Its thread sleeps until it is told, or is to lead."""

    def __init__(self, work: Callable[[Connection], Steps[Any]], whose: object) -> None:
        self.work, self.whose, self.result = work, whose, None
        self.error = RuntimeError("whoever was to do this was interrupted")
        self.leads, self.known, self.told = False, False, Lock()
        self.told.acquire()

    error: BaseException | None
    result: Any

    def tell(self) -> None:
        if not self.known:
            self.known = True
            self.told.release()


class Together:
    """Runs work in transactions that `writing` opens, one after another: each has what was asked for first, in waves (`_waves`)."""

    def __init__(self) -> None:
        self._guard, self._waiting, self._led = Lock(), deque[Job](), False

    def do(self, writing: Writing, work: Callable[[Connection], Steps[T | Refusal]], whose: object = None) -> T:
        """What `work` returns or raises, once it is on the disk. Another thread may do it. `whose`: a person's, or nobody's."""
        mine = Job(work, whose)
        with self._guard:
            self._waiting.append(mine)
            mine.leads, self._led = not self._led, True
        if not mine.leads:
            self._wait(mine)
        if mine.leads:
            self._lead(writing, mine)
        if mine.error is not None:
            raise mine.error
        if isinstance(mine.result, Refusal):
            raise mine.result.error
        done: T = mine.result
        return done

    def _wait(self, mine: Job) -> None:
        """Until it is done, or one's own turn to lead. Who is interrupted leaves, and lets another one lead."""
        try:
            mine.told.acquire()
        except BaseException:
            with self._guard:
                if mine in self._waiting:
                    self._waiting.remove(mine)
                    if mine.leads:
                        self._hand_on()
            raise

    def _lead(self, writing: Writing, mine: Job) -> None:
        """Do what has been asked for, one's own first, then let the next one lead."""
        batch: list[Job] = []
        try:
            with self._guard:
                batch += [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST))]
            _do(writing, batch)
        finally:
            for each in batch:
                each.tell()
            with self._guard:
                if mine in self._waiting:  # interrupted before it was even looked at
                    self._waiting.remove(mine)
                self._hand_on()

    def _hand_on(self) -> None:
        self._led = bool(self._waiting)
        if self._waiting:
            self._waiting[0].leads = True
            self._waiting[0].tell()


def _do(writing: Writing, batch: list[Job]) -> None:
    """All of it in one transaction; if that fails, each in one of its own, unless there is none to be had."""
    if len(batch) > 1:
        _opened(writing, batch)
        if batch[0].error is None:
            return
    for n, each in enumerate(batch):
        if not _opened(writing, [each], alone=True):  # those behind it would wait as long, one after another, for nothing
            for other in batch[n:]:
                other.error = each.error
            return
        each.tell()


def _opened(writing: Writing, batch: list[Job], alone: bool = False) -> bool:
    """Do this in one transaction, all or nothing; whether there was a transaction at all: if `alone`, one that may write."""
    from crossmatch.study.straight import send_rest

    opened, results = False, list[tuple[Job, Any]]()
    try:
        with writing() as connection:
            if alone:
                send_rest(connection)  # on PostgreSQL the turn is taken with what is asked first
            opened = True
            for wave in _waves(batch):
                results += zip(wave, in_step(connection, [each.work(connection) for each in wave]), strict=True)
    except Exception as error:
        for each in batch:
            each.error = error
    else:
        for each, result in results:
            each.result, each.error = result, None
    return opened


def _waves(batch: Sequence[Job]) -> list[list[Job]]:
    """Those who ask at the same time: of each person what they asked for first, then what they asked for second, and so on."""
    waves: list[list[Job]] = []
    before = Counter[object]()
    for each in batch:
        if before[each.whose] == len(waves):
            waves.append([])
        waves[before[each.whose]].append(each)
        before[each.whose] += each.whose is not None
    return waves
