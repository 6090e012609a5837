"""`study serve` as a process: what it says when it cannot start or its database goes away, and how it ends."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack, closing, contextmanager

import pytest

from crossmatch.study.assignment.people import owner_token
from crossmatch.study.database.campaign import DATABASE_FILE, create_campaign, open_campaign
from crossmatch.study.database.verification import verify
from crossmatch.study.simulation.simulate import _free_port
from postgres_server import postgres
from study_lab import add_small_study, link_of

WITHOUT_ROOT = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []  # root ignores permissions


def command(*arguments):
    return [*WITHOUT_ROOT, sys.executable, "-m", "crossmatch", "study", *map(str, arguments)]


def run(*arguments):
    """Exit code and lines on standard error of a command, with the permissions of an ordinary user."""
    process = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=120)
    return process.returncode, process.stderr.splitlines()


@contextmanager
def serving(folder, port):
    """A service, as soon as it answers."""
    with subprocess.Popen(command("serve", folder, "--port", port), stderr=subprocess.PIPE, text=True) as server:
        try:
            lines = [server.stderr.readline() for _ in range(3)]
            assert lines[-1].startswith("Press Ctrl-C"), lines
            while status(port, "/alive") != 200:
                assert server.poll() is None
            yield server
        finally:
            server.kill()


def status(port, path):
    """The HTTP status of a page; 0 if the service does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as page:
            return page.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


@pytest.fixture
def folder(tmp_path):
    """A campaign with a study, as `study serve` finds it when it is started again."""
    with closing(create_campaign(tmp_path / "S")) as campaign:
        add_small_study(campaign)
        owner_token(campaign)
    return tmp_path / "S"


@contextmanager
def mode(path, bits):
    before = path.stat().st_mode
    path.chmod(bits)
    try:
        yield
    finally:
        path.chmod(before)


def test_port_in_use_is_one_line(folder, crossmatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = f"crossmatch: Port {port} of 127.0.0.1 is in use. Choose another: --port {port + 1}\n"
        assert crossmatch("study", "serve", folder, "--port", port) == (1, "", message)


def test_foreign_address_is_one_line(folder, crossmatch):
    code, _, message = crossmatch("study", "serve", folder, "--host", "203.0.113.7")
    assert code == 1
    assert message.startswith("crossmatch: Cannot listen on 203.0.113.7 (")
    assert message.count("\n") == 1


@pytest.mark.parametrize("name", ["", "secret", DATABASE_FILE])
def test_missing_permission_is_one_line(folder, name):
    with mode(folder / name, 0):
        code, (line,) = run("serve", folder, "--port", _free_port())
    assert code == 1
    assert str(folder) in line
    assert any(word in line for word in ("Permission denied", "unable to open database file")), line


def test_read_only_folder_is_one_line(folder):
    with mode(folder, 0o500), mode(folder / DATABASE_FILE, 0o400):
        code, (line,) = run("serve", folder, "--port", _free_port())
    assert code == 1
    assert f"Cannot use the database of {folder} (" in line
    assert "Check that its folder is complete and writable" in line


@pytest.mark.parametrize("content", [None, b"not a database" * 99])
def test_missing_or_damaged_database_is_one_line(folder, crossmatch, content):
    (folder / DATABASE_FILE).unlink()
    if content is not None:
        (folder / DATABASE_FILE).write_bytes(content)
    for arguments in (("serve", folder), ("status", folder), ("invite", folder, "anna")):
        code, _, message = crossmatch("study", *arguments)
        assert (code, message.count("\n")) == (1, 1)
        assert "is missing. Restore it" in message or "file is not a database" in message
    assert content is not None or not (folder / DATABASE_FILE).exists()  # SQLite would create an empty one


def test_postgresql_that_is_away_at_the_start_is_one_line(folder, crossmatch):
    (folder / "campaign.toml").write_text('format = 2\ndatabase = "postgresql://me:hunter2@127.0.0.1:1/none"\n')
    for arguments in (("serve", folder), ("status", folder)):
        code, _, message = crossmatch("study", *arguments)
        assert (code, message.count("\n")) == (1, 1)
        assert "Connection refused" in message
        assert "Check that the database server is running" in message
        assert "hunter2" not in message


@pytest.mark.slow
def test_postgresql_that_goes_away_while_serving_is_one_line(tmp_path, postgres_url):
    """Pages say so with status 503, and the log has one line and not one for each request."""
    port, own_server = _free_port(), ExitStack()
    with own_server:
        database = own_server.enter_context(postgres())
        with closing(create_campaign(tmp_path / "S", database)) as campaign:
            link = f"/join/{link_of(campaign, add_small_study(campaign))}"
        with serving(tmp_path / "S", port) as server:
            assert status(port, link) == 200
            own_server.close()
            assert [status(port, path) for path in (link, link, "/alive")] == [503, 503, 200]
            server.send_signal(signal.SIGTERM)
            (line,) = server.stderr.read().splitlines()
            assert line.startswith(f"Cannot use the database of {tmp_path / 'S'} (")


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_end_by_a_signal_leaves_a_complete_database(folder, tmp_path, sent):
    """The write-ahead log is written back, so that the database file alone is a complete campaign; also with an open connection."""
    port = _free_port()
    with closing(open_campaign(folder)) as campaign:
        link = f"/join/{link_of(campaign, 1)}"
    with serving(folder, port) as server, socket.create_connection(("127.0.0.1", port)) as talk:
        talk.sendall(f"POST {link} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n".encode())
        talk.sendall(b"Content-Length: 11\r\n\r\nperson=anna")
        assert talk.recv(65_536).startswith(b"HTTP/1.1 303")
        assert (folder / f"{DATABASE_FILE}-wal").stat().st_size > 0
        server.send_signal(sent)
        assert server.wait(60) == (-sent if sent == signal.SIGTERM else 130)
        assert "Traceback" not in server.stderr.read()
    assert not (folder / f"{DATABASE_FILE}-wal").exists()
    shutil.copytree(folder, tmp_path / "copy")
    with closing(open_campaign(tmp_path / "copy")) as copy:
        assert verify(copy)[0].events == 2


def test_backup_while_serving_opens_with_verify(folder, crossmatch):
    with serving(folder, _free_port()):
        code, _, message = crossmatch("study", "status", folder, "--backup", "copy")
        assert (code, message.partition(":")[0]) == (0, "eccv-hit")
        assert crossmatch("study", "status", folder, "--backup", "copy")[0] == 2  # nothing is overwritten
    assert crossmatch("study", "verify", "copy") == (0, message, "")
    assert crossmatch("study", "verify", folder) == (0, message, "")
