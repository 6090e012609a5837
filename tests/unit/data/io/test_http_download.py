"""Downloads from unreliable servers: the file is complete and right, or it does not exist."""

import hashlib
import os
import random
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.dataset_files import DataFile
from crossmatch.data.io.http_download import RetryPolicy, download, locked_part_file
from error_messages import error_message
from polling import LIMIT, wait_until

SRC = Path(__file__).parents[4] / "src"
CONTENT = random.Random(0).randbytes(100_000)
OTHER = random.Random(1).randbytes(100_000)
PATIENCE = 2.0  # seconds that a client waits for a server that hangs; one that does not hang answers much earlier
SHA, OTHER_SHA = (hashlib.sha256(content).hexdigest() for content in (CONTENT, OTHER))


@pytest.fixture
def fetch(server, tmp_path):
    """Download with few attempts; returns the pauses between them."""
    server.content = CONTENT

    def call(mirrors=(), known=True, timeout=LIMIT, tries=3, report=lambda line: None):
        pauses = []
        url = f"{server.url}/cxc/a.csv"
        file = DataFile("cxc/a.csv", SHA if known else None, len(CONTENT) if known else None, url, mirrors)
        download(file, tmp_path / "a.csv", RetryPolicy(timeout, tries, 1.0, pauses.append), report)
        return pauses

    return call


def folder_contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


COMPLETE = {"a.csv": CONTENT}

# The behaviour of the server, the part file of an earlier run, options of the download, and the Range headers that the server gets.
SUCCESSES = {
    "one request": (lambda b, s: [], b"", {}, [None]),
    "a break": (
        lambda b, s: [b.breaks_after(30_000), b.breaks_after(1), b.breaks_after(50_000), b.honest],
        b"", {}, [None, "bytes=30000-", "bytes=30001-", "bytes=80001-"],
    ),
    "a part of an earlier run": (lambda b, s: [], CONTENT[:70_000], {}, ["bytes=70000-"]),
    "a complete part": (lambda b, s: [], CONTENT, {}, []),
    "a server that ignores the range": (
        lambda b, s: [b.breaks_after(30_000), b.ignores_range, b.honest], b"", {}, [None, "bytes=30000-"],
    ),
    "a server that sends another range": (
        lambda b, s: [b.breaks_after(30_000), b.other_range, b.honest], b"", {}, [None, "bytes=30000-", None],
    ),
    "a content length that is 1 too small": (lambda b, s: [b.says(-1)], b"", {}, [None, "bytes=99999-"]),
    "a content length that is far too small": (lambda b, s: [b.says(-60_000)], b"", {}, [None, "bytes=40000-"]),
    "a content length that is 1 too large": (lambda b, s: [b.says(1)], b"", {}, [None]),
    "a content length that is far too large": (lambda b, s: [b.says(5_000)], b"", {}, [None]),
    "a part of another version": (lambda b, s: [], OTHER[:70_000], {}, ["bytes=70000-", None]),
    "a part that is too long": (lambda b, s: [], CONTENT + b"more", {}, [None]),
    "a server that hangs": (
        lambda b, s: [b.hangs_after(20_000, s), b.honest], b"", {"timeout": PATIENCE}, [None, "bytes=20000-"],
    ),
    "a break in a file of unknown size and hash": (
        lambda b, s: [b.breaks_after(30_000), b.honest], b"", {"known": False}, [None, "bytes=30000-"],
    ),
    "a complete part of unknown size": (lambda b, s: [], CONTENT, {"known": False}, ["bytes=100000-"]),
}  # fmt: skip


@pytest.mark.parametrize("case", SUCCESSES)
def test_download_gets_the_complete_file_despite(case, server, fetch, behave, tmp_path):
    script, part, options, ranges = SUCCESSES[case]
    server.script = script(behave, server)
    if part:
        (tmp_path / "a.csv.part").write_bytes(part)
    fetch(**options)
    assert folder_contents(tmp_path) == COMPLETE
    assert server.ranges == ranges


def test_pauses_double_while_there_is_no_progress(server, fetch, behave, tmp_path):
    server.script = [behave.breaks_after(30_000), behave.breaks_after(1), behave.breaks_after(50_000), behave.honest]
    assert fetch() == [1.0, 2.0, 1.0]  # a single byte is not progress
    (tmp_path / "a.csv").unlink()
    server.script = [behave.status(500), behave.status(503), behave.honest]
    assert fetch() == [2.0, 4.0]
    assert folder_contents(tmp_path) == COMPLETE


def test_mirror_is_used_if_the_first_address_fails(server, fetch, behave, tmp_path):
    server.script = [behave.status(404), behave.honest]
    fetch(mirrors=(f"{server.url}/newest/a.csv",))
    assert folder_contents(tmp_path) == COMPLETE
    assert server.paths == ["/cxc/a.csv", "/newest/a.csv"]


# The behaviour of the server, options of the download, a part of the message, the length of the remaining part file, and the number
# of requests.
FAILURES = {
    "another file": (lambda b, s: [b.serves(OTHER)], {}, f"sha256 {OTHER_SHA}, expected {SHA}", 0, 1),
    "another file in two pieces": (
        lambda b, s: [lambda handler, content, start: b.breaks_after(60_000)(handler, OTHER, start)], {}, OTHER_SHA, 0, 4,
    ),
    "a page": (lambda b, s: [b.serves(b"<html>Not here any more.</html>")], {}, "/cxc/a.csv", 0, 3),
    "no bytes": (lambda b, s: [b.serves(b"")], {}, "/cxc/a.csv", 0, 3),
    "a larger file": (lambda b, s: [b.serves(OTHER + CONTENT)], {}, OTHER_SHA, 0, 1),
    "a missing page": (lambda b, s: [b.status(404)], {}, "answered 404 Not Found", 0, 1),
    "an error each time": (lambda b, s: [b.status(500)], {}, "answered 500", 0, 3),
    "a timeout each time": (
        lambda b, s: [b.hangs_after(20_000, s), b.hangs_after(0, s)], {"timeout": PATIENCE, "tries": 1}, "timed out", 20_000, None,
    ),
    "a break each time, without ranges": (
        lambda b, s: [b.breaks_after(20_000, honours=False)], {}, "20,000 of 100,000 bytes", 20_000, 4,
    ),
    "one byte each time": (lambda b, s: [b.breaks_after(1)], {}, "3 of 100,000 bytes", 3, 3),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILURES)
def test_download_fails_if_the_server_sends(case, server, fetch, behave, tmp_path):
    script, options, message, part, requests = FAILURES[case]
    server.script = script(behave, server)
    assert message in error_message(fetch, **options)
    assert folder_contents(tmp_path) == ({"a.csv.part": CONTENT[:part]} if part else {})
    assert requests is None or len(server.ranges) == requests


def test_unreachable_server_is_an_error(tmp_path):
    file = DataFile("a.csv", SHA, 5, "http://127.0.0.1:9/a.csv")
    with pytest.raises(CrossmatchError, match="cannot be reached"):
        download(file, tmp_path / "a.csv", RetryPolicy(1.0, 2, 0.0, lambda s: None), print)
    assert folder_contents(tmp_path) == {}


def test_unknown_host_is_not_retried(tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    file, pauses = DataFile("a.csv", SHA, 5, "http://data.example/a.csv"), []
    with pytest.raises(CrossmatchError, match=r"http://data.example/a.csv .*cannot be reached \(.*Name or service not known\)"):
        download(file, tmp_path / "a.csv", RetryPolicy(1.0, 9, 1.0, pauses.append), print)
    assert pauses == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk_is_an_error_without_retry(server, fetch, tmp_path):
    (tmp_path / "a.csv.part").symlink_to("/dev/full")
    assert "a.csv.part cannot be written (No space left on device). Make room" in error_message(fetch)
    assert len(server.ranges) == 1


@pytest.mark.parametrize("seed", range(40))
def test_random_server_behaviour_gives_the_right_file_or_none(server, fetch, behave, tmp_path, seed):
    rng = random.Random(seed)
    behaviours = [
        lambda: behave.honest,
        lambda: behave.ignores_range,
        lambda: behave.other_range,
        lambda: behave.breaks_after(rng.randrange(100_000), rng.random() < 0.7),
        lambda: behave.says(rng.randrange(-100_000, 100_000)),
        lambda: behave.serves(OTHER),
        lambda: behave.serves(OTHER[: rng.randrange(100_000)]),
        lambda: behave.status(rng.choice([500, 503, 429, 416])),
    ]
    server.script = [rng.choice(behaviours)() for _ in range(rng.randrange(1, 8))]
    if rng.random() < 0.5:
        (tmp_path / "a.csv.part").write_bytes(rng.choice([CONTENT, OTHER])[: rng.randrange(100_001)])
    try:
        fetch()
    except CrossmatchError:
        assert set(folder_contents(tmp_path)) <= {"a.csv.part"}
        server.script = [behave.honest]
        fetch()  # the remaining part file does no harm
    assert folder_contents(tmp_path) == COMPLETE


# Several processes, and a killed process


def test_concurrent_downloads_send_one_request(server, fetch, behave, tmp_path):
    lines = []

    def answer_when_the_others_wait(handler, content, start):
        wait_until(lambda: len(lines) == 3)
        behave.honest(handler, content, start)

    server.script = [answer_when_the_others_wait]
    threads = [threading.Thread(target=fetch, kwargs={"report": lines.append}) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert folder_contents(tmp_path) == COMPLETE
    assert server.ranges == [None]


def test_waiting_process_reports_it(tmp_path):
    reported = threading.Event()
    lines = []

    def report(line):
        lines.append(line)
        reported.set()

    def second():
        with locked_part_file(tmp_path / "a.csv", report):
            pass

    with locked_part_file(tmp_path / "a.csv", print):
        thread = threading.Thread(target=second)
        thread.start()
        assert reported.wait(LIMIT)
        assert folder_contents(tmp_path) == {"a.csv.part": b""}
    thread.join()
    assert lines == ["waiting for another crossmatch process that downloads a.csv"]
    assert folder_contents(tmp_path) == {}


def test_killed_download_is_continued(server, fetch, behave, tmp_path):
    server.script = [behave.hangs_after(40_000, server), behave.honest]
    code = (
        "from pathlib import Path\nfrom crossmatch.data.io.http_download import *\n"
        "from crossmatch.data.io.dataset_files import DataFile\n"
        f"file = DataFile('a.csv', {SHA!r}, {len(CONTENT)}, {server.url + '/a.csv'!r})\n"
        f"download(file, Path({str(tmp_path / 'a.csv')!r}), RetryPolicy(), print)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(SRC)})
    part = tmp_path / "a.csv.part"
    wait_until(lambda: part.exists() and part.stat().st_size == 40_000)
    process.kill()
    process.wait()
    assert folder_contents(tmp_path) == {"a.csv.part": CONTENT[:40_000]}
    fetch()
    assert folder_contents(tmp_path) == COMPLETE
    assert server.ranges == [None, "bytes=40000-"]


def test_progress_bar_is_shown_only_on_a_terminal(server, fetch, tmp_path, capsys, monkeypatch):
    fetch()
    assert capsys.readouterr() == ("", "")
    (tmp_path / "a.csv").unlink()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    fetch()
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(r"a\.csv .*100\.0/100\.0 kB", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", err))
