"""A PostgreSQL server of one's own on loopback, from Debian's packages, as durable as a real one; for tests and for bench/study.py.

with postgres() as url:                      # postgresql://crossmatch@127.0.0.1:PORT/postgres
    campaign = create(folder, fresh_database(url))
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
PATIENCE = 60.0  # seconds for the server to come up


class NoPostgres(Exception):  # noqa: N818 - it says what is missing
    """There is no PostgreSQL on this machine: apt-get install postgresql"""


def binaries() -> Path | None:
    """The folder with `initdb` and `postgres`, the newest version first."""
    found = [Path(word).parent for word in [shutil.which("initdb")] if word]
    homes = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda home: float(home.parent.name), reverse=True)
    return next((home for home in [*found, *homes] if (home / "initdb").exists() and (home / "postgres").exists()), None)


@contextmanager
def postgres() -> Iterator[str]:
    """A server in a folder that goes when it goes; the URL of its first database."""
    home = binaries()
    if home is None:
        raise NoPostgres(NoPostgres.__doc__)
    folder = Path(tempfile.mkdtemp(prefix="crossmatch-postgres-"))
    try:
        who = _user(folder)
        made = [home / "initdb", "-D", folder / "data", "-U", USER, "--auth=trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, **who)
        with (folder / "log").open("wb") as log:
            port = _free_port()
            words = [word for setting in (*SETTINGS, f"unix_socket_directories={folder}") for word in ("-c", setting)]
            command = [home / "postgres", "-D", folder / "data", "-p", str(port), *words]
            server = subprocess.Popen(command, stdout=log, stderr=log, **who)
        try:
            url = f"postgresql://{USER}@127.0.0.1:{port}/postgres"
            _wait(url, server, folder / "log")
            yield url
        finally:
            server.send_signal(signal.SIGQUIT)  # at once: nothing is written that is deleted anyway
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fresh_database(url: str) -> str:
    """A new, empty database on the server of this URL: its own URL."""
    name = f"study_{secrets.token_hex(6)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'create database "{name}"')
    return url.rpartition("/")[0] + "/" + name


def _user(folder: Path) -> dict[str, object]:
    """PostgreSQL refuses to run as root: it runs as `postgres` then, to whom the folder is given."""
    if os.geteuid() != 0:
        return {"cwd": folder}
    known = pwd.getpwnam("postgres")
    os.chown(folder, known.pw_uid, known.pw_gid)
    return {"cwd": folder, "user": known.pw_uid, "group": known.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
            return
        except psycopg.OperationalError as error:
            if server.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"PostgreSQL did not start ({error}): {log.read_text()[-2000:]}") from None
            time.sleep(0.1)
