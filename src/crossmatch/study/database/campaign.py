"""Campaigns: a folder with images, a secret key and a database (SQLite in the folder, or PostgreSQL elsewhere).

campaign.toml    format number and database URL
secret           key that signs sessions; readable by its owner only
campaign.db      studies, people, events (SQLite)
pictures/        the images that annotators see, re-encoded
"""

from __future__ import annotations

import hashlib
import json
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
from typing import TYPE_CHECKING, Any

from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.io.atomic_write import TEMPORARY_SUFFIX, atomic_write

try:
    import fcntl
except ImportError:  # Windows: nothing prevents two processes from creating the same campaign at once
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

CAMPAIGN_FILE, SECRET_FILE, DATABASE_FILE, IMAGES_FOLDER = "campaign.toml", "secret", "campaign.db", "pictures"
FORMAT = 2
SECRET_BYTES = 32
BUSY_TIMEOUT_MS = 20_000  # how long a writer waits for a writer of another process
# A recently used connection has its statements prepared and its pages cached, so it is reused first (LIFO).
POOL_OPTIONS: dict[str, Any] = {"pool_size": 20, "max_overflow": 20, "pool_use_lifo": True}
CONNECT_TIMEOUT_S = 10  # of PostgreSQL
MISSING_SQLSTATES = ("42501", "42P01")  # PostgreSQL: no permission, no such table
ADVISORY_LOCK = "SELECT pg_advisory_xact_lock(20230701)"  # any number: the lock belongs to this database alone


class FairLock:
    """A lock that waiting threads get in the order in which they asked for it.

    SQLite makes waiting writers sleep and retry, so that some of them starve; `threading.Lock` promises no order either.
    """

    def __init__(self) -> None:
        self._guard, self._waiting, self._is_held = Lock(), deque[Lock](), False

    def __enter__(self) -> None:
        with self._guard:
            if not self._is_held:
                self._is_held = True
                return
            turn = Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            turn.acquire()  # released by the thread before
        except BaseException:  # interrupted while waiting
            with self._guard:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                    raise
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_held = False


class DatabaseUnavailableError(CrossmatchError):
    """The database cannot be used at the moment: it is away, full, locked, damaged, or its permissions are missing."""


@contextmanager
def _explain_database_errors(engine: Engine, folder: Path) -> Iterator[None]:
    """Raise `DatabaseUnavailableError` for errors of the database itself. Errors in statements are bugs and stay as they are."""
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.exc import TimeoutError as PoolTimeoutError

    try:
        yield
    except PoolTimeoutError:
        raise DatabaseUnavailableError(f"The database of {folder} is too busy: all connections are in use. Try again.") from None
    except (DBAPIError, engine.dialect.loaded_dbapi.Error) as error:  # the driver's own errors come from connecting
        original = error.orig if isinstance(error, DBAPIError) else error
        if _is_bug(original, engine.dialect.loaded_dbapi):
            raise
        reason = str(original).strip().partition("\n")[0]
        hint = (
            "Check that its folder is complete and writable, and that the disk is not full"
            if isinstance(original, sqlite3.Error)
            else "Check that the database server is running and that this user has access"
        )
        raise DatabaseUnavailableError(f"Cannot use the database of {folder} ({reason}). {hint}.") from None


def _is_bug(error: BaseException | None, driver: Any) -> bool:
    """Whether an error comes from a statement or its values, and not from the database."""
    if isinstance(error, sqlite3.OperationalError):  # of wrong SQL, too
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR and "no such table" not in str(error)
    is_missing = getattr(error, "sqlstate", "") in MISSING_SQLSTATES
    kinds = (driver.OperationalError, driver.InterfaceError, driver.InternalError)
    return not (is_missing or isinstance(error, kinds) or type(error) is driver.DatabaseError)


@dataclass(frozen=True, eq=False)
class Campaign:
    """An open campaign.

    `create_campaign` and `open_campaign` return it.

    Attributes:
        folder: The campaign's folder.
        engine: The SQLAlchemy engine of its database.
        secret: Key that signs sessions and completion codes.
        now: Returns the time in seconds; tests and rehearsals pass their own clock.
        write_lock: Keeps the threads of this process from writing at the same time.

    >>> from crossmatch.study import create_campaign
    >>> campaign = create_campaign(folder / "campaign")
    >>> campaign.engine.dialect.name, campaign.images_folder.name
    ('sqlite', 'pictures')
    >>> campaign.close()
    """

    folder: Path
    engine: Engine
    secret: bytes
    now: Callable[[], float] = field(default=time.time)
    write_lock: FairLock = field(default_factory=FairLock)

    @property
    def images_folder(self) -> Path:
        return self.folder / IMAGES_FOLDER

    @contextmanager
    def write_transaction(self, exclusive: bool = True) -> Iterator[Connection]:
        """A transaction that may write. It commits at the end, and rolls back if an exception leaves the block.

        There is one writer at a time, so a decision and the rows that it writes need no further locks. Threads take turns by
        `write_lock`, processes by `BEGIN IMMEDIATE` (SQLite) or an advisory lock (PostgreSQL).

        Args:
            exclusive: False lets others write at the same time on PostgreSQL, for bulk inserts that no other writer depends on.
        """
        is_sqlite = self.engine.dialect.name == "sqlite"
        lock = self.write_lock if is_sqlite or exclusive else nullcontext()
        explained = _explain_database_errors(self.engine, self.folder)
        with explained, self.engine.connect() as connection, lock, connection.begin():
            if is_sqlite:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            elif exclusive:
                connection.exec_driver_sql(ADVISORY_LOCK)
            yield connection

    @contextmanager
    def read_transaction(self) -> Iterator[Connection]:
        """A transaction that only reads, does not wait for writers, and sees the database at one moment."""
        with _explain_database_errors(self.engine, self.folder), self.engine.connect() as connection:
            if self.engine.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN")
            else:
                connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection

    def close(self) -> None:
        self.engine.dispose()


def create_campaign(folder: Path, database: str = "", now: Callable[[], float] = time.time) -> Campaign:
    """Open the campaign in this folder; create it if it does not exist.

    `campaign.toml` is written last, so that a folder without it holds nothing that could be lost: what a killed process left
    behind is created again.

    Args:
        folder: The campaign's folder.
        database: URL of a PostgreSQL database; empty for SQLite in the folder.
        now: Returns the time in seconds.

    Raises:
        UsageError: The folder holds something else, or a campaign with another database.

    >>> campaign = create_campaign(folder / "campaign")
    >>> campaign.close()
    >>> sorted(path.name for path in (folder / "campaign").iterdir())
    ['campaign.db', 'campaign.toml', 'pictures', 'secret']
    """
    if (folder / CAMPAIGN_FILE).exists():
        return _open_existing(folder, database, now)
    foreign_folder = UsageError(f"{folder} exists and is not a campaign. Choose another folder.")
    if folder.exists() and not folder.is_dir():
        raise foreign_folder
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # answers and names are private
    with _folder_lock(folder):
        if (folder / CAMPAIGN_FILE).exists():  # another process was faster
            return _open_existing(folder, database, now)
        if any(folder.iterdir()) and not _is_incomplete(folder):
            raise foreign_folder
        earlier_secret = _read_secret(folder)  # tables in PostgreSQL may carry its mark
        secret = earlier_secret or secrets.token_bytes(SECRET_BYTES)
        _remove_incomplete(folder)
        (folder / IMAGES_FOLDER).mkdir()
        try:
            engine = _create_database(folder, database, secret)
        except BaseException:
            if earlier_secret is None:
                _remove_incomplete(folder)
            raise
        write_description(folder, database)
    return Campaign(folder, engine, secret, now)


def write_description(folder: Path, database: str) -> None:
    """Write `campaign.toml`, the last file of a campaign."""
    with atomic_write(folder / CAMPAIGN_FILE, durable=True, private=True) as file:  # the URL may contain a password
        file.write(f"format = {FORMAT}\ndatabase = {json.dumps(database)}\n".encode())


def _open_existing(folder: Path, database: str, now: Callable[[], float]) -> Campaign:
    campaign = open_campaign(folder, now)
    if database and read_database_url(folder) != database:
        campaign.close()
        raise UsageError(f"{folder} already uses another database. Omit --database, or choose another folder.")
    return campaign


def _is_incomplete(folder: Path) -> bool:
    """Whether a folder holds only what an interrupted `create_campaign` leaves behind: no images and no studies."""
    images = folder / IMAGES_FOLDER
    has_only_our_files = all(
        path.name in (SECRET_FILE, IMAGES_FOLDER) or path.name.startswith(DATABASE_FILE) or _is_temporary(path)
        for path in folder.iterdir()
    )
    return has_only_our_files and images.is_dir() and not any(images.iterdir()) and _is_unused(folder / DATABASE_FILE)


def _is_unused(database: Path) -> bool:
    """Whether a database has no study and no person; a study of captions alone has no images."""
    if not database.exists():
        return True
    try:
        with closing(sqlite3.connect(database)) as raw:
            tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_master")}
            return not any(raw.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone() for name in {"study", "person"} & tables)
    except sqlite3.Error:  # not our file
        return False


def _is_temporary(path: Path) -> bool:
    return path.name.startswith((f".{SECRET_FILE}.", f".{CAMPAIGN_FILE}.")) and path.name.endswith(TEMPORARY_SUFFIX)


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Let one process at a time create a campaign in a folder; the lock ends with the process."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read_secret(folder: Path) -> bytes | None:
    """The secret in a folder if it is complete; an empty one would sign anybody's session."""
    try:
        secret = bytes.fromhex((folder / SECRET_FILE).read_text().strip())
    except (FileNotFoundError, ValueError):
        return None
    return secret if len(secret) == SECRET_BYTES else None


def _create_database(folder: Path, database: str, secret: bytes) -> Engine:
    """Write the secret and create the tables; one database holds one campaign."""
    with atomic_write(folder / SECRET_FILE, durable=True, private=True) as file:
        file.write(secret.hex().encode())
    engine = create_engine_for(folder, database)
    from sqlalchemy.exc import DBAPIError

    try:
        with engine.begin() as connection:
            _create_tables(connection, secret)
    except DBAPIError as error:
        engine.dispose()
        reason = str(error.orig).strip().partition("\n")[0]
        if "disk is full" in reason:  # SQLite's message
            raise CrossmatchError(f"The disk of {folder} is full. Free some space and run the same command again.") from None
        raise CrossmatchError(f"Cannot use the database ({reason}). Check the URL and that the server is running.") from None
    except UsageError:
        engine.dispose()
        raise
    return engine


def _create_tables(connection: Connection, secret: bytes) -> None:
    """Create all tables or none.

    On PostgreSQL a comment ties the tables to the secret, so that a campaign whose creation was interrupted can be completed.
    """
    from sqlalchemy import inspect, select

    from crossmatch.study.database.schema import metadata, person, study

    mark = hashlib.sha256(b"database of " + secret).hexdigest()
    existing = inspect(connection)
    if not existing.has_table("study"):
        metadata.create_all(connection)
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"COMMENT ON TABLE study IS '{mark}'")
    elif (
        connection.dialect.name != "postgresql"
        or existing.get_table_comment("study")["text"] != mark
        or any(connection.execute(select(table.c.id).limit(1)).first() for table in (study, person))
    ):
        raise UsageError("The database already holds a campaign. Choose another database, or open that campaign's folder.")


def _remove_incomplete(folder: Path) -> None:
    """Delete what an interrupted `create_campaign` left behind."""
    for path in (folder / SECRET_FILE, *folder.glob(f"{DATABASE_FILE}*"), *filter(_is_temporary, folder.iterdir())):
        path.unlink(missing_ok=True)
    if (folder / IMAGES_FOLDER).is_dir():
        (folder / IMAGES_FOLDER).rmdir()


def open_campaign(folder: Path, now: Callable[[], float] = time.time) -> Campaign:
    """Open the campaign in this folder.

    Args:
        folder: The campaign's folder.
        now: Returns the time in seconds.

    Raises:
        UsageError: The folder is not a campaign.
        CrossmatchError: The campaign is damaged, or of another version.

    >>> from crossmatch.study import create_campaign, list_studies, open_campaign
    >>> create_campaign(folder / "campaign").close()
    >>> campaign = open_campaign(folder / "campaign")
    >>> list_studies(campaign)                              # `add_study` adds one
    []
    >>> campaign.close()
    """
    database = read_database_url(folder)
    secret = _read_secret(folder)
    if secret is None:
        raise CrossmatchError(
            f"Cannot read {folder / SECRET_FILE}: expected {2 * SECRET_BYTES} hexadecimal digits. Restore it from a backup."
        )
    if not database and not (folder / DATABASE_FILE).is_file():  # SQLite would create an empty one
        raise CrossmatchError(f"{folder / DATABASE_FILE} is missing. Restore it from a backup.")
    return Campaign(folder, create_engine_for(folder, database), secret, now)


def read_database_url(folder: Path) -> str:
    """The database URL in `campaign.toml`; empty for the SQLite file in the folder."""
    try:
        settings = tomllib.loads((folder / CAMPAIGN_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"{folder} is not a campaign: it has no {CAMPAIGN_FILE}. Create one: crossmatch study new PRESET … -o {folder}"
        ) from None
    except ValueError as error:
        raise CrossmatchError(f"Cannot read {folder / CAMPAIGN_FILE} ({error}). Correct the file.") from None
    if settings.get("format") != FORMAT:
        raise CrossmatchError(
            f"{folder} has format {settings.get('format')!r}; this version reads format {FORMAT}. "
            "Open it with the version of crossmatch that created it."
        )
    return str(settings.get("database", ""))


def create_engine_for(folder: Path, database: str) -> Engine:
    """An SQLAlchemy engine with full durability: a committed transaction is on the disk."""
    try:
        from sqlalchemy import create_engine, event
        from sqlalchemy.exc import ArgumentError
    except ImportError:
        raise MissingDependencyError("SQLAlchemy", "study") from None
    if database:
        if not database.startswith(("postgresql://", "postgresql+psycopg://")):
            raise UsageError("--database is not a PostgreSQL URL; expected postgresql://user:password@host/name.")
        options: dict[str, Any] = {
            "isolation_level": "READ COMMITTED",
            "connect_args": {"prepare_threshold": 1, "connect_timeout": CONNECT_TIMEOUT_S},
        }
        try:
            url = database.replace("postgresql://", "postgresql+psycopg://", 1)
            return create_engine(url, **POOL_OPTIONS, **options, pool_pre_ping=True)  # the server may have been restarted
        except ArgumentError as error:
            raise UsageError(f"Cannot read the database URL ({error}).") from None
        except ImportError:
            raise MissingDependencyError("psycopg", "study") from None
    engine = create_engine(f"sqlite:///{folder / DATABASE_FILE}", **POOL_OPTIONS, connect_args={"check_same_thread": False})

    @event.listens_for(engine, "connect")
    def configure(raw: sqlite3.Connection, _: Any) -> None:
        raw.isolation_level = None  # `Campaign` begins transactions itself
        settings = (
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            f"busy_timeout={BUSY_TIMEOUT_MS}",
            "cache_size=-65536",
        )
        for setting in settings:
            raw.execute(f"PRAGMA {setting}")

    return engine
