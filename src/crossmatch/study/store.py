"""A campaign: a folder with pictures, a secret, and a database in it (SQLite) or elsewhere (PostgreSQL).

campaign.toml    which database
secret           signs sessions; only its owner may read it
campaign.db      studies, people, events
pictures/        what people are shown, encoded anew
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import sqlite3
import time
import tomllib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.core.whole import UNFINISHED, whole_file
from crossmatch.study.together import Refusal, Steps, Together

try:
    import fcntl
except ImportError:  # Windows: two processes that begin one campaign at once are in each other's way
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

T = TypeVar("T")
DESCRIPTION, SECRET, DATABASE, PICTURES = "campaign.toml", "secret", "campaign.db", "pictures"
FORMAT = 2
SECRET_BYTES = 32
IDLE_S = 2.0  # after which a connection is tried before it is used
PATIENCE_MS = 20_000  # that a writer waits for another one
# What a connection has learnt, plans of statements and pages, serves the next: the one that was used last is used first.
POOL: dict[str, Any] = {"pool_size": 20, "max_overflow": 20, "pool_use_lifo": True}
TAKE_TURN = "SELECT pg_advisory_xact_lock(20230701)"  # any number will do: the lock is of this database alone


class Turns:
    """A lock that is given to those who wait in the order in which they came."""

    def __init__(self) -> None:
        self._guard, self._queue, self._taken = Lock(), deque[Lock](), False

    def __enter__(self) -> None:
        with self._guard:
            if not self._taken:
                self._taken = True
                return
            mine = Lock()
            mine.acquire()
            self._queue.append(mine)
        mine.acquire()  # until the one before hands it on

    def __exit__(self, *_: object) -> None:
        with self._guard:
            if self._queue:
                self._queue.popleft().release()
            else:
                self._taken = False


@dataclass(frozen=True, eq=False)
class Campaign:
    """An open campaign. `now` tells the time, in seconds; tests have clocks of their own."""

    folder: Path
    engine: Engine
    secret: bytes
    now: Callable[[], float] = field(default=time.time)

    @property
    def pictures(self) -> Path:
        return self.folder / PICTURES

    turns: Turns = field(default_factory=lambda: Turns())

    together: Together = field(default_factory=Together)

    def write(self, work: Callable[[Connection], Steps[T | Refusal]], whose: int | None = None) -> T:
        """What `work` returns or raises, in a transaction that others share: for what many people ask for at once."""
        return self.together.do(self.writing, work, whose)

    @contextmanager
    def writing(self, turn: bool = True) -> Iterator[Connection]:
        """A transaction that may write: the only one from its beginning on, so that no two ever wait for each other.

        The threads of a process take turns, since SQLite lets those who wait sleep and try again, and some of them starve; several
        processes on PostgreSQL take turns by a lock of the database. Without a `turn` there PostgreSQL lets others write meanwhile.
        """
        is_sqlite = self.engine.dialect.name == "sqlite"
        with self.turns if is_sqlite or turn else nullcontext(), self.engine.connect() as connection:
            if is_sqlite:
                _begin(connection, "BEGIN IMMEDIATE")
            with connection.begin():
                if is_sqlite:
                    yield connection
                    return
                from crossmatch.study.straight import send_first, send_rest

                if turn:
                    send_first(connection, TAKE_TURN)
                yield connection
                send_rest(connection)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads, waits for nobody, and sees one state of everything."""
        with self.engine.connect() as connection:
            if self.engine.dialect.name == "sqlite":
                _begin(connection, "BEGIN")
            else:
                connection.execution_options(isolation_level="REPEATABLE READ")  # SQLite has no other
            yield connection

    @contextmanager
    def asking(self) -> Iterator[Connection]:
        """For one statement that reads: it needs no transaction, whose beginning and end would take longer than itself."""
        with self.engine.connect() as connection:
            if self.engine.dialect.name == "postgresql":
                connection.execution_options(isolation_level="AUTOCOMMIT")
            yield connection

    def close(self) -> None:
        self.engine.dispose()


def create(folder: Path, database: str = "", now: Callable[[], float] = time.time) -> Campaign:
    """The campaign in this folder, made if there is none; `database` is the URL of a PostgreSQL database.

    What a killed process has begun here is begun anew: the description comes last, so that nothing was in it.
    """
    if (folder / DESCRIPTION).exists():
        return _existing(folder, database, now)
    strange = WrongWords(f"{folder} is there and is no campaign. Name another folder.")
    if folder.exists() and not folder.is_dir():
        raise strange
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # answers, and who gave them, are nobody else's
    with _alone(folder):
        if (folder / DESCRIPTION).exists():  # another process was first
            return _existing(folder, database, now)
        if any(folder.iterdir()) and not _broken_off(folder):
            raise strange
        kept = _secret(folder)  # a database that was begun with it is known by it
        secret = kept or secrets.token_bytes(SECRET_BYTES)
        _emptied(folder)
        (folder / PICTURES).mkdir()
        try:
            engine = _begun(folder, database, secret)
        except BaseException:
            if kept is None:
                _emptied(folder)
            raise
        with whole_file(folder / DESCRIPTION, durable=True, private=True) as file:  # a URL may hold a password
            file.write(f"format = {FORMAT}\ndatabase = {json.dumps(database)}\n".encode())
    return Campaign(folder, engine, secret, now)


def _existing(folder: Path, database: str, now: Callable[[], float]) -> Campaign:
    campaign = open_campaign(folder, now)
    if database and described(folder) != database:
        campaign.close()
        raise WrongWords(f"{folder} has another database already. Leave --database out, or take another folder.")
    return campaign


def _broken_off(folder: Path) -> bool:
    """Whether a folder holds what a campaign begins with, and nothing else: no pictures yet, and no studies."""
    known = all(path.name in (SECRET, PICTURES) or path.name.startswith(DATABASE) or _in_work(path) for path in folder.iterdir())
    return known and (folder / PICTURES).is_dir() and not any((folder / PICTURES).iterdir()) and _unused(folder / DATABASE)


def _unused(database: Path) -> bool:
    """Whether nobody has written into a database yet; a study of captions alone has no pictures, either."""
    if not database.exists():
        return True
    try:
        with closing(sqlite3.connect(database)) as raw:
            tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_master")}
            return not any(raw.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone() for name in {"study", "person"} & tables)
    except sqlite3.Error:  # whatever it is, it may be somebody's
        return False


def _in_work(path: Path) -> bool:
    return path.name.startswith((f".{SECRET}.", f".{DESCRIPTION}.")) and path.name.endswith(UNFINISHED)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time begins a campaign in a folder; the lock ends with the process."""
    if fcntl is None:
        yield
        return
    place = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        os.close(place)


def _secret(folder: Path) -> bytes | None:
    """The secret in a folder, if it is a whole one; an empty one would sign anybody's session."""
    try:
        found = bytes.fromhex((folder / SECRET).read_text().strip())
    except (OSError, ValueError):
        return None
    return found if len(found) == SECRET_BYTES else None


def _begun(folder: Path, database: str, secret: bytes) -> Engine:
    """The secret and the tables of a new campaign; one database holds one campaign."""
    with whole_file(folder / SECRET, durable=True, private=True) as file:
        file.write(secret.hex().encode())
    engine = connect(folder, database)
    from sqlalchemy.exc import DBAPIError

    try:
        with engine.begin() as connection:
            _make_tables(connection, secret)
    except DBAPIError as error:
        engine.dispose()
        told = str(error.orig).strip().partition("\n")[0]
        if "disk is full" in told:  # SQLite's words
            raise CrossmatchError(
                f"there is no room left on the disk of {folder}. Free some, and run the same command again."
            ) from None
        raise CrossmatchError(f"the database cannot be used ({told}). Check the URL, and whether the server runs.") from None
    except WrongWords:
        engine.dispose()
        raise
    return engine


def _make_tables(connection: Connection, secret: bytes) -> None:
    """The tables, all or none; PostgreSQL's tell by whose secret they were made, for the case that their maker is killed now."""
    from sqlalchemy import inspect, select

    tables = _tables()
    study, person = tables.tables["study"], tables.tables["person"]
    mark = hashlib.sha256(b"database of " + secret).hexdigest()
    seen = inspect(connection)
    if not seen.has_table("study"):
        tables.create_all(connection)
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"COMMENT ON TABLE study IS '{mark}'")
    elif (
        connection.dialect.name != "postgresql"
        or seen.get_table_comment("study")["text"] != mark
        or any(connection.execute(select(one.c.id).limit(1)).first() for one in (study, person))
    ):
        raise WrongWords("the database holds a campaign already. Name another database, or open that campaign's folder.")


def _emptied(folder: Path) -> None:
    """Take away what was begun, so that one can begin again."""
    for path in (folder / SECRET, *folder.glob(f"{DATABASE}*"), *filter(_in_work, folder.iterdir())):
        path.unlink(missing_ok=True)
    if (folder / PICTURES).is_dir():
        (folder / PICTURES).rmdir()


def open_campaign(folder: Path, now: Callable[[], float] = time.time) -> Campaign:
    """The campaign in this folder."""
    database = described(folder)
    secret = _secret(folder)
    if secret is None:
        raise CrossmatchError(
            f"the secret of {folder} cannot be read; a file of {2 * SECRET_BYTES} hexadecimal digits was expected. "
            "Bring it back from a copy of the folder."
        )
    return Campaign(folder, connect(folder, database), secret, now)


def described(folder: Path) -> str:
    """The URL of the database; empty for the SQLite file in the folder."""
    try:
        table = tomllib.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise WrongWords(
            f"{folder} is no campaign: it has no {DESCRIPTION}. Make one: crossmatch study new PRESET … -o {folder}"
        ) from None
    except (OSError, ValueError) as error:
        raise CrossmatchError(f"{folder / DESCRIPTION} cannot be read ({error}). Mend it.") from None
    if table.get("format") != FORMAT:
        raise CrossmatchError(
            f"{folder} has format {table.get('format')!r}; this version reads {FORMAT}. Use the version that made it."
        )
    return str(table.get("database", ""))


def connect(folder: Path, database: str) -> Engine:
    """An engine with full durability: what was acknowledged is on the disk."""
    try:
        from sqlalchemy import create_engine, event
        from sqlalchemy.exc import ArgumentError
    except ImportError:
        raise MissingDependency("SQLAlchemy", "study") from None
    if database:
        if not database.startswith(("postgresql://", "postgresql+psycopg://")):
            raise WrongWords("the database is no PostgreSQL URL; postgresql://user:password@host/name was expected.")
        try:
            url = database.replace("postgresql://", "postgresql+psycopg://", 1)
            engine = create_engine(url, **POOL, isolation_level="READ COMMITTED", connect_args={"prepare_threshold": 1})
            return _in_order(_awake(engine))
        except ArgumentError as error:
            raise WrongWords(f"the database URL cannot be read ({error}).") from None
        except ImportError:
            raise MissingDependency("psycopg", "study") from None
    engine = create_engine(f"sqlite:///{folder / DATABASE}", **POOL, connect_args={"check_same_thread": False})

    @event.listens_for(engine, "connect")
    def prepare(raw: sqlite3.Connection, _: Any) -> None:
        raw.isolation_level = None  # transactions begin where we say so
        for setting in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            f"busy_timeout={PATIENCE_MS}",
            "cache_size=-65536",
        ):
            raw.execute(f"PRAGMA {setting}")

    return engine


def _awake(engine: Engine) -> Engine:
    """Connections that have lain idle are tried before they are used: the server may have been started anew.

    SQLAlchemy's own `pool_pre_ping` tries them every time, which is a fifth of all that goes to and fro in a judgement.
    """
    from sqlalchemy import event
    from sqlalchemy.exc import DisconnectionError

    @event.listens_for(engine, "checkin")
    def put_back(_: Any, record: Any) -> None:
        record.info["idle since"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def try_it(raw: Any, record: Any, _: Any) -> None:
        if time.monotonic() - record.info.get("idle since", math.inf) > IDLE_S:
            try:
                engine.dialect.do_ping(raw)
            except engine.dialect.loaded_dbapi.Error as error:
                raise DisconnectionError from error  # it is thrown away, and a new one is made

    return engine


def _in_order(engine: Engine) -> Engine:
    """What SQLAlchemy runs comes behind what was to be sent before it."""
    from sqlalchemy import event

    from crossmatch.study.straight import send_rest

    @event.listens_for(engine, "before_cursor_execute")
    def first(connection: Connection, *_: Any) -> None:
        send_rest(connection)

    return engine


def _begin(connection: Connection, how: str) -> None:
    """Begin a transaction of SQLite. A listener of SQLAlchemy's would do, too, but then every statement looks for listeners."""
    raw: Any = connection.connection.dbapi_connection
    raw.execute(how)


def _tables() -> Any:
    from crossmatch.study.schema import metadata

    return metadata
