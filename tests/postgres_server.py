"""A temporary PostgreSQL server on loopback with the durability settings of a real one, for tests and bench/study.py.

with postgres() as url:                      # postgresql://crossmatch@127.0.0.1:PORT/postgres
    campaign = create_campaign(folder, fresh_database(url))
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
from contextlib import contextmanager
from pathlib import Path

import psycopg

USER = "crossmatch"
SETTINGS = ("fsync=on", "synchronous_commit=on", "full_page_writes=on", "max_connections=300", "listen_addresses=127.0.0.1")
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


@contextmanager
def postgres() -> Iterator[str]:
    """Run a server in a temporary folder; gives the URL of its first database."""
    binaries = find_binaries()
    if binaries is None:
        raise PostgresNotFoundError("PostgreSQL is not installed. Install it: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="crossmatch-postgres-"))
    try:
        user = _process_user(folder)
        command = [binaries / "initdb", "-D", folder / "data", "-U", USER, "--auth=trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        subprocess.run(command, check=True, capture_output=True, **user)
        with (folder / "log").open("wb") as log:
            port = _free_port()
            settings = [part for setting in (*SETTINGS, f"unix_socket_directories={folder}") for part in ("-c", setting)]
            command = [binaries / "postgres", "-D", folder / "data", "-p", str(port), *settings]
            server = subprocess.Popen(command, stdout=log, stderr=log, **user)
        try:
            url = f"postgresql://{USER}@127.0.0.1:{port}/postgres"
            _wait(url, server, folder / "log")
            yield url
        finally:
            server.send_signal(signal.SIGQUIT)  # stop at once, without writing data that is deleted anyway
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_TIMEOUT
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
            return
        except psycopg.OperationalError as error:
            if server.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"PostgreSQL did not start ({error}): {log.read_text()[-2000:]}") from None
            time.sleep(0.1)
