"""A temporary PostgreSQL server on loopback with the durability settings of a real one, for tests and bench/study.py.

with postgres() as url:                      # postgresql://crossmatch@127.0.0.1:PORT/postgres
    campaign = create_campaign(folder, fresh_database(url))

with PostgresServer() as server:             # one that can be killed and started again
    server.kill()
    server.start()
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

USER = "crossmatch"
SETTINGS = (
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "max_connections=300",
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
)
START_TIMEOUT = 60.0  # seconds


class PostgresNotFoundError(Exception):
    """PostgreSQL is not installed."""


def find_binaries() -> Path | None:
    """The folder with `initdb` and `postgres`: on the path, or else Debian's newest version."""
    initdb = shutil.which("initdb")
    on_path = [Path(initdb).parent] if initdb else []
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: float(folder.parent.name), reverse=True)
    return next(
        (folder for folder in [*on_path, *versions] if all((folder / name).exists() for name in ("initdb", "postgres"))), None
    )


class PostgresServer:
    """A server whose data survive that it is killed and started again on the same port.

    Args:
        parent: Folder for the data, which user `postgres` can enter. Default: the system's temporary folder.
    """

    def __init__(self, parent: Path | None = None) -> None:
        self._parent, self._port = parent, free_port()
        self.url = f"postgresql://{USER}@127.0.0.1:{self._port}/postgres"

    def __enter__(self) -> PostgresServer:
        binaries = find_binaries()
        if binaries is None:
            raise PostgresNotFoundError("PostgreSQL is not installed. Install it: apt-get install postgresql")
        self._binaries = binaries
        self._folder = Path(tempfile.mkdtemp(prefix="crossmatch-postgres-", dir=self._parent))
        try:
            self._user = _process_user(self._folder)
            options = ("-U", USER, "--auth=trust", "-E", "UTF8", "--no-locale", "--no-sync")
            command = [binaries / "initdb", "-D", self._folder / "data", *options]
            subprocess.run(command, check=True, capture_output=True, **self._user)
            self._launch()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if hasattr(self, "_process"):
            self.shut_down_immediately()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def start(self) -> None:
        """Start the server if it is not running, and wait until it accepts connections."""
        until = time.monotonic() + START_TIMEOUT
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if time.monotonic() > until:
                    log = (self._folder / "log").read_text()[-2000:]
                    raise RuntimeError(f"PostgreSQL did not start ({error}): {log}") from None
            time.sleep(0.05)
            if not self.is_running:  # processes of a killed server may have used its memory until now
                self._launch()

    def _launch(self) -> None:
        settings = [part for setting in SETTINGS for part in ("-c", setting)]
        command = [self._binaries / "postgres", "-D", self._folder / "data", "-p", str(self._port), *settings]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._user)

    def kill(self) -> None:
        """SIGKILL for the server and all its processes, as in a power failure."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        processes = [int(text) for text in children.read_text().split()] if children.exists() else []
        self._process.kill()
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._process.wait()

    def shut_down_immediately(self) -> None:
        """Stop without a checkpoint: the next start has to recover."""
        self._process.send_signal(signal.SIGQUIT)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()


@contextmanager
def postgres() -> Iterator[str]:
    """Run a server in a temporary folder; gives the URL of its first database."""
    with PostgresServer() as server:
        yield server.url


def fresh_database(url: str) -> str:
    """Create an empty database on the server of this URL; returns the URL of the database."""
    name = f"study_{secrets.token_hex(6)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'create database "{name}"')
    return url.rpartition("/")[0] + "/" + name


def _process_user(folder: Path) -> dict[str, object]:
    """Options of `subprocess`. PostgreSQL refuses to run as root, so root runs it as user `postgres`, who gets the folder."""
    if os.geteuid() != 0:
        return {"cwd": folder}
    user = pwd.getpwnam("postgres")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return {"cwd": folder, "user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def free_port() -> int:
    """A free port below those of outgoing connections, so that it is still free when a killed server is started again."""
    while True:
        port = secrets.choice(range(20_000, 30_000))
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
