"""Downloads from a server that breaks off, lies and errs: the file is right or it is not there."""

import hashlib
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from crossmatch.core.download import Wire, claimed, download
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.files import DataFile

SRC = Path(__file__).parents[3] / "src"
CONTENT = random.Random(0).randbytes(100_000)
OTHER = random.Random(1).randbytes(100_000)
SHA, OTHER_SHA = (hashlib.sha256(content).hexdigest() for content in (CONTENT, OTHER))


@pytest.fixture
def bring(server, tmp_path):
    """Download with no patience; gives the pauses that were made."""
    server.content = CONTENT

    def call(mirrors=(), known=True, timeout=5.0, tries=3):
        slept = []
        url = f"{server.url}/cxc/a.csv"
        file = DataFile("cxc/a.csv", SHA if known else None, len(CONTENT) if known else None, url, mirrors)
        download(file, tmp_path / "a.csv", Wire(timeout, tries, 1.0, slept.append), lambda line: None)
        return slept

    return call


def left(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


RIGHT = {"a.csv": CONTENT}


# Servers that end up giving the file


def test_a_file_comes_in_one_request(server, bring, tmp_path):
    assert bring() == []
    assert left(tmp_path) == RIGHT
    assert server.ranges == [None]


def test_a_download_that_breaks_off_continues_where_it_stopped(server, bring, behave, tmp_path):
    server.script = [behave.breaks_after(30_000), behave.breaks_after(1), behave.breaks_after(50_000), behave.honest]
    assert bring() == [1.0, 2.0, 1.0]  # one byte is no progress to speak of
    assert left(tmp_path) == RIGHT
    assert server.ranges == [None, "bytes=30000-", "bytes=30001-", "bytes=80001-"]


def test_a_part_of_an_earlier_run_is_continued(server, bring, tmp_path):
    (tmp_path / "a.csv.part").write_bytes(CONTENT[:70_000])
    bring()
    assert left(tmp_path) == RIGHT
    assert server.ranges == ["bytes=70000-"]


def test_a_complete_part_needs_no_request(server, bring, tmp_path):
    (tmp_path / "a.csv.part").write_bytes(CONTENT)
    bring()
    assert left(tmp_path) == RIGHT
    assert server.ranges == []


@pytest.mark.parametrize("ignoring", ["ignores_range", "other_range"])
def test_a_server_that_does_not_give_the_range_asked_for_leads_to_a_new_start(server, bring, behave, tmp_path, ignoring):
    server.script = [behave.breaks_after(30_000), getattr(behave, ignoring), behave.honest]
    bring()
    assert left(tmp_path) == RIGHT
    assert server.ranges[:2] == [None, "bytes=30000-"]
    assert server.ranges[2:] == ([] if ignoring == "ignores_range" else [None])


@pytest.mark.parametrize("more", [-1, -60_000, 1, 5_000])
def test_a_wrong_content_length_does_no_harm(server, bring, behave, tmp_path, more):
    server.script = [behave.says(more)]
    bring()
    assert left(tmp_path) == RIGHT
    assert server.ranges == ([None] if more > 0 else [None, f"bytes={100_000 + more}-"])


def test_a_stale_part_is_thrown_away_once_the_whole_is_wrong(server, bring, tmp_path):
    (tmp_path / "a.csv.part").write_bytes(OTHER[:70_000])
    bring()
    assert left(tmp_path) == RIGHT
    assert server.ranges == ["bytes=70000-", None]


def test_a_part_that_is_too_long_is_thrown_away(server, bring, tmp_path):
    (tmp_path / "a.csv.part").write_bytes(CONTENT + b"more")
    bring()
    assert left(tmp_path) == RIGHT
    assert server.ranges == [None]


def test_a_server_that_errs_for_a_moment_is_asked_again_after_doubled_pauses(server, bring, behave, tmp_path):
    server.script = [behave.status(500), behave.status(503), behave.honest]
    assert bring() == [2.0, 4.0]
    assert left(tmp_path) == RIGHT


def test_a_server_that_hangs_is_left_and_asked_for_the_rest(server, bring, behave, tmp_path):
    server.script = [behave.hangs_after(20_000, server), behave.honest]
    bring(timeout=0.8)
    assert left(tmp_path) == RIGHT
    assert server.ranges == [None, "bytes=20000-"]


def test_the_second_address_is_taken_where_the_first_fails(server, bring, behave, tmp_path):
    server.script = [behave.status(404), behave.honest]
    bring(mirrors=(f"{server.url}/newest/a.csv",))
    assert left(tmp_path) == RIGHT
    assert server.paths == ["/cxc/a.csv", "/newest/a.csv"]


def test_a_file_of_unknown_size_and_hash_is_continued_by_the_promised_length(server, bring, behave, tmp_path):
    server.script = [behave.breaks_after(30_000), behave.honest]
    bring(known=False)
    assert left(tmp_path) == RIGHT
    assert server.ranges == [None, "bytes=30000-"]


def test_a_complete_part_of_unknown_size_is_recognised_by_the_servers_total(server, bring, tmp_path):
    (tmp_path / "a.csv.part").write_bytes(CONTENT)
    bring(known=False)
    assert left(tmp_path) == RIGHT
    assert server.ranges == ["bytes=100000-"]


# Servers that never give it


def failure(bring, **words):
    with pytest.raises(CrossmatchError) as error:
        bring(**words)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_wrong_file_is_refused_by_its_hash_and_removed(server, bring, behave, tmp_path):
    server.script = [behave.serves(OTHER)]
    said = failure(bring)
    assert OTHER_SHA in said
    assert SHA in said
    assert f"{server.url}/cxc/a.csv" in said
    assert left(tmp_path) == {}
    assert server.ranges == [None]


def test_a_wrong_file_that_also_breaks_off_comes_to_an_end(server, bring, behave, tmp_path):
    server.script = [lambda handler, content, start: behave.breaks_after(60_000)(handler, OTHER, start)]
    assert OTHER_SHA in failure(bring)
    assert left(tmp_path) == {}
    assert len(server.ranges) == 4  # twice in two pieces


@pytest.mark.parametrize("page", [b"<html>Not here any more.</html>", b""])
def test_a_page_in_place_of_the_file_is_not_kept(server, bring, behave, tmp_path, page):
    server.script = [behave.serves(page)]
    assert f"{server.url}/cxc/a.csv" in failure(bring)
    assert left(tmp_path) == {}


def test_a_larger_file_is_refused(server, bring, behave, tmp_path):
    server.script = [behave.serves(OTHER + CONTENT)]
    assert OTHER_SHA in failure(bring)
    assert left(tmp_path) == {}


def test_a_missing_page_is_final_at_once(server, bring, behave, tmp_path):
    server.script = [behave.status(404)]
    assert "answered 404 Not Found" in failure(bring)
    assert left(tmp_path) == {}
    assert server.ranges == [None]


def test_a_server_that_always_errs_is_given_up(server, bring, behave, tmp_path):
    server.script = [behave.status(500)]
    assert "answered 500" in failure(bring)
    assert left(tmp_path) == {}
    assert len(server.ranges) == 3


def test_a_server_that_always_hangs_is_given_up_and_what_came_is_kept(server, bring, behave, tmp_path):
    server.script = [behave.hangs_after(20_000, server), behave.hangs_after(0, server)]
    assert "timed out" in failure(bring, timeout=0.8, tries=1)
    assert left(tmp_path) == {"a.csv.part": CONTENT[:20_000]}


def test_a_server_that_breaks_off_without_ranges_is_given_up(server, bring, behave, tmp_path):
    server.script = [behave.breaks_after(20_000, honours=False)]
    assert "20,000 of 100,000 bytes" in failure(bring)
    assert left(tmp_path) == {"a.csv.part": CONTENT[:20_000]}
    assert len(server.ranges) == 4  # the first brought something, three did not


def test_a_server_that_gives_one_byte_at_a_time_is_given_up(server, bring, behave, tmp_path):
    server.script = [behave.breaks_after(1)]
    assert "3 of 100,000 bytes" in failure(bring)
    assert server.ranges == [None, "bytes=1-", "bytes=2-"]


def test_no_server_at_all(tmp_path):
    file = DataFile("a.csv", SHA, 5, "http://127.0.0.1:9/a.csv")
    with pytest.raises(CrossmatchError, match="cannot be reached"):
        download(file, tmp_path / "a.csv", Wire(1.0, 2, 0.0, lambda s: None), print)
    assert left(tmp_path) == {}


def test_without_a_network_there_is_no_use_in_waiting(tmp_path, monkeypatch):
    def nowhere(*words, **more):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    file, slept = DataFile("a.csv", SHA, 5, "http://data.example/a.csv"), []
    with pytest.raises(CrossmatchError, match=r"http://data.example/a.csv .*cannot be reached \(.*Name or service not known\)"):
        download(file, tmp_path / "a.csv", Wire(1.0, 9, 1.0, slept.append), print)
    assert slept == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_told_and_not_tried_again(server, bring, tmp_path):
    (tmp_path / "a.csv.part").symlink_to("/dev/full")
    said = failure(bring)
    assert "a.csv.part cannot be written (No space left on device). Make room" in said
    assert len(server.ranges) == 1


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_server_does_the_file_is_right_or_not_there(server, bring, behave, tmp_path, seed):
    dice = random.Random(seed)
    sorts = [
        lambda: behave.honest,
        lambda: behave.ignores_range,
        lambda: behave.other_range,
        lambda: behave.breaks_after(dice.randrange(100_000), dice.random() < 0.7),
        lambda: behave.says(dice.randrange(-100_000, 100_000)),
        lambda: behave.serves(OTHER),
        lambda: behave.serves(OTHER[: dice.randrange(100_000)]),
        lambda: behave.status(dice.choice([500, 503, 429, 416])),
    ]
    server.script = [dice.choice(sorts)() for _ in range(dice.randrange(1, 8))]
    if dice.random() < 0.5:
        (tmp_path / "a.csv.part").write_bytes(dice.choice([CONTENT, OTHER])[: dice.randrange(100_001)])
    try:
        bring()
    except CrossmatchError:
        assert set(left(tmp_path)) <= {"a.csv.part"}
        server.script = [behave.honest]
        bring()  # whatever part it left does not stand in the way
    assert left(tmp_path) == RIGHT


# Two at once, and a sudden end


def test_two_at_once_bring_it_once(server, bring, tmp_path):
    def slowly(handler, content, start):
        handler.send_response(200)
        handler.end_headers()
        for at in range(0, len(content), 20_000):
            handler.wfile.write(content[at : at + 20_000])
            time.sleep(0.05)

    server.script = [slowly]
    threads = [threading.Thread(target=bring) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert left(tmp_path) == RIGHT
    assert server.ranges == [None]


def test_the_one_who_waits_says_so(tmp_path):
    said = threading.Event()
    lines = []

    def waiting(line):
        lines.append(line)
        said.set()

    def second():
        with claimed(tmp_path / "a.csv", waiting):
            pass

    with claimed(tmp_path / "a.csv", print):
        thread = threading.Thread(target=second)
        thread.start()
        assert said.wait(5)
        assert left(tmp_path) == {"a.csv.part": b""}
    thread.join()
    assert lines == ["waiting for another crossmatch that is bringing a.csv"]
    assert left(tmp_path) == {}


def test_a_killed_download_leaves_only_a_part_and_the_next_continues_it(server, bring, behave, tmp_path):
    server.script = [behave.hangs_after(40_000, server), behave.honest]
    code = (
        "from pathlib import Path; from crossmatch.core.download import *; from crossmatch.core.files import DataFile\n"
        f"file = DataFile('a.csv', {SHA!r}, {len(CONTENT)}, {server.url + '/a.csv'!r})\n"
        f"download(file, Path({str(tmp_path / 'a.csv')!r}), Wire(), print)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(SRC)})
    part, until = tmp_path / "a.csv.part", time.monotonic() + 20
    while not (part.exists() and part.stat().st_size == 40_000) and time.monotonic() < until:
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert left(tmp_path) == {"a.csv.part": CONTENT[:40_000]}
    bring()
    assert left(tmp_path) == RIGHT
    assert server.ranges == [None, "bytes=40000-"]


# The bar


def test_a_bar_on_a_terminal_and_nothing_elsewhere(server, bring, tmp_path, capsys, monkeypatch):
    bring()
    assert capsys.readouterr() == ("", "")
    (tmp_path / "a.csv").unlink()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    bring()
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(r"a\.csv .*100\.0/100\.0 kB", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", err))
