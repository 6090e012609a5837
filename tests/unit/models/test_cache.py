"""Scores on disk: nothing is scored twice, nothing damaged is trusted, and a killed process loses one block at most.

Run as a program, this file is the process that is killed: it scores slowly, writes down every call, and saves its matrix.
"""

import errno
import gc
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from crossmatch.core import whole
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError
from crossmatch.models import cache as cache_module
from crossmatch.models import shelf
from crossmatch.models.cache import PROBES, ScoreCache, blocks_of, cache_key, cached_matrix, default_folder
from crossmatch.models.shelf import clear, held, packed, unpacked

SRC = Path(__file__).parents[3] / "src"
IMAGES, CAPTIONS, BATCH = 7, 37, 1
BLOCKS = 7 * 5  # one image by eight captions each
SYSTEM = "clock|v1"
IDS = [f"i{n}" for n in range(IMAGES)], [f"c{n:02d}" for n in range(CAPTIONS)], [f"caption {n}" for n in range(CAPTIONS)]
HELD = Collection(*IDS, np.zeros((0, 2)), lambda name: f"picture of {name}")


def number(thing):
    return int(thing.split()[-1].lstrip("i"))


def truth(images, texts):
    i, c = np.array([[number(x)] for x in images]), np.array([number(x) for x in texts])
    return np.float32(np.sin(1.0 + i * 3.7 + c * 1.3))


WHOLE = truth(HELD.images(range(IMAGES)), HELD.captions)


class Model:
    """Knows the truth, and remembers the calls."""

    def __init__(self, answer=truth):
        self.answer, self.calls = answer, []

    def __call__(self, images, texts):
        self.calls.append((number(images[0]), number(texts[0]), len(images), len(texts)))
        return self.answer(images, texts)


def ask(folder, model=None, collection=HELD, batch=BATCH, system=SYSTEM, tell=lambda line: None):
    """The matrix, and how often the model was called."""
    model = model or Model()
    said = cached_matrix(model, collection, batch=batch, cache=ScoreCache(folder, tell), system=system)
    return said.values, len(model.calls)


def state(folder):
    return {p: (p.stat().st_ino, p.stat().st_size, p.stat().st_mtime_ns) for p in folder.rglob("*")}


def blocks_in(folder):
    return sorted(folder.glob("*/*.scores"))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The processes below wait for the disk; the tests in this one need not."""
    monkeypatch.setattr(whole.os, "fsync", lambda handle: None)


# The process that is killed


def work(folder, log, out, seconds, point="", nth=0, meet=0):
    """Score all, once as many have come as shall `meet`, and die by SIGKILL at the nth time that `point` is reached."""
    passed = []
    Path(f"{out}.here").touch()
    while len(list(Path(out).parent.glob("*.here"))) < meet:
        time.sleep(0.002)

    def reach(name):
        passed.append(name)
        if name == point and passed.count(name) == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    def score(images, texts):
        with open(log, "a") as file:
            file.write(f"{number(images[0])} {number(texts[0])}\n")
        time.sleep(seconds)
        reach("scored")
        return truth(images, texts)

    fsync, replace = os.fsync, os.replace

    def torn_fsync(handle):
        if point == "torn" and passed.count("torn") + 1 == nth:
            os.ftruncate(handle, os.fstat(handle).st_size // 2)
        reach("torn")
        fsync(handle)

    def noted_replace(source, target):
        reach("before the name")
        replace(source, target)
        reach("after the name")

    os.fsync, os.replace = torn_fsync, noted_replace
    said = cached_matrix(score, HELD, batch=BATCH, cache=ScoreCache(Path(folder)), system=SYSTEM)
    np.save(out, said.values)


POINTS = ("scored", "torn", "before the name", "after the name")


class Process:
    """One such process in a folder of its own making."""

    def __init__(self, place, name="out", seconds=0.0, point="", nth=0, **words):
        self.log, self.out = place / "log", place / f"{name}.npy"
        given = {"folder": str(place / "scores"), "log": str(self.log), "out": str(self.out), "seconds": seconds,
                 "point": point, "nth": nth, **words}  # fmt: skip
        self.popen = subprocess.Popen(
            [sys.executable, __file__, json.dumps(given)],
            env={**os.environ, "PYTHONPATH": str(SRC)},
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self):
        error = self.popen.communicate(timeout=60)[1]
        return self.popen.returncode, error

    @property
    def calls(self):
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


if __name__ == "__main__":
    words = json.loads(sys.argv[1])
    if words.pop("unlocked", False):
        shelf.fcntl = None
    if "largest" in words:  # bytes that a file may have: the system refuses more, as a full disk does
        resource.setrlimit(resource.RLIMIT_FSIZE, (words["largest"], words.pop("largest")))
    try:
        work(**words)
    except CrossmatchError as error:
        sys.exit(str(error))


# Killed


def test_killed_at_random_and_resumed_scores_all_but_nothing_twice(tmp_path):
    for seconds in (0.02, 0.1, 0.5):  # on a busy machine a process may end before it is killed
        place = tmp_path / str(seconds)
        place.mkdir()
        kills, last = kill_until_done(place, seconds)
        assert BLOCKS <= last.calls <= BLOCKS + kills
        assert np.load(last.out).tobytes() == WHOLE.tobytes()
        assert ask(place / "scores")[1] == 0
        if kills >= 3:
            break
    assert kills >= 3


def kill_until_done(place, seconds):
    """How many processes were killed, and the one that came to the end."""
    dice, kills = random.Random(), 0
    while True:
        running = Process(place, seconds=seconds)
        wait = running.calls + dice.randrange(3, 9)
        while running.popen.poll() is None and running.calls < wait:
            time.sleep(0.002)
        time.sleep(dice.uniform(0, 2 * seconds))
        running.popen.kill()
        code, error = running.end()
        if code == 0:
            return kills, running
        assert code == -signal.SIGKILL, error
        kills += 1
        assert kills < BLOCKS, "every process scored something, and yet it is never done"


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_every_step_of_writing_a_block(tmp_path, point):
    for kills, nth in enumerate((1, 2, 5, 8), 1):
        running = Process(tmp_path, point=point, nth=nth)
        code, error = running.end()
        assert code == -signal.SIGKILL, error
        assert not running.out.exists()
        read = [unpacked(p.read_bytes(), _block(p.name), p.parent.name) for p in blocks_in(tmp_path / "scores")]
        assert all(part is not None for part in read)  # what has its name is whole
        assert running.calls <= len(read) + kills
    running = Process(tmp_path)
    assert running.end() == (0, "")
    assert BLOCKS <= running.calls <= BLOCKS + 4
    assert np.load(running.out).tobytes() == WHOLE.tobytes()
    assert not list((tmp_path / "scores").glob("*/.*"))  # what the killed ones left unfinished is swept up


def _block(name):
    return next(b for b in blocks_of(HELD.shape, BATCH) if b.name == name)


# Two at once


def test_of_two_processes_one_scores_and_the_other_waits(tmp_path):
    both = [Process(tmp_path, name, seconds=0.01, meet=2) for name in "ab"]
    assert [process.end() for process in both] == [(0, ""), (0, "")]
    assert both[0].calls == BLOCKS
    assert all(np.load(process.out).tobytes() == WHOLE.tobytes() for process in both)


def test_without_locks_two_processes_may_write_the_same_blocks(tmp_path):
    both = [Process(tmp_path, name, seconds=0.01, meet=2, unlocked=True) for name in "ab"]
    assert [process.end() for process in both] == [(0, ""), (0, "")]
    assert BLOCKS < both[0].calls <= 2 * BLOCKS, "they never met"
    assert all(np.load(process.out).tobytes() == WHOLE.tobytes() for process in both)
    assert ask(tmp_path / "scores")[1] == 0


def test_one_that_waits_goes_on_when_the_other_is_killed(tmp_path):
    first = Process(tmp_path, "a", seconds=0.2)
    while first.calls < 3:
        time.sleep(0.002)
    second = Process(tmp_path, "b")
    time.sleep(0.6)  # long enough to begin to wait
    first.popen.kill()
    assert first.end()[0] == -signal.SIGKILL
    assert second.end() == (0, "")
    assert second.calls <= BLOCKS + 1
    assert np.load(second.out).tobytes() == WHOLE.tobytes()


# Nothing twice


def test_a_rerun_asks_nothing_opens_next_to_nothing_and_writes_nothing(tmp_path):
    said, calls = ask(tmp_path)
    assert calls == BLOCKS
    assert said.tobytes() == WHOLE.tobytes()
    opened = []
    again = Collection(*IDS, np.zeros((0, 2)), lambda name: opened.append(name) or f"picture of {name}")
    before = state(tmp_path)
    heard = []
    said, calls = ask(tmp_path, collection=again, tell=heard.append)
    assert (calls, said.tobytes()) == (0, WHOLE.tobytes())
    assert len(opened) <= PROBES
    assert state(tmp_path) == before
    assert heard == [f"nothing had to be scored: all 35 blocks of scores are in {next(tmp_path.iterdir())}"]


@pytest.mark.parametrize("batch", [1, 2, 3, 7, 100])
def test_the_cache_changes_no_bit_and_images_are_opened_once_per_block(tmp_path, batch):
    opened = []
    counted = Collection(*IDS, np.zeros((0, 2)), lambda name: opened.append(name) or f"picture of {name}")
    bare, kept = Model(), Model()
    without = cached_matrix(bare, counted, batch=batch).values
    assert opened == IDS[0]
    first = ask(tmp_path, kept, batch=batch)[0]
    assert bare.calls == kept.calls
    assert max(call[2] for call in kept.calls) <= batch
    assert {v.tobytes() for v in (without, first, ask(tmp_path, batch=batch)[0])} == {WHOLE.tobytes()}
    assert without.dtype == np.float32


def test_an_error_in_the_model_keeps_what_came_before(tmp_path):
    class TiredError(Exception):
        pass

    def tires(images, texts):
        if len(model.calls) == 9:
            raise TiredError
        return truth(images, texts)

    model = Model(tires)
    with pytest.raises(TiredError):
        ask(tmp_path, model)
    assert len(blocks_in(tmp_path)) == 8
    heard = []
    said, calls = ask(tmp_path, tell=heard.append)
    assert calls == BLOCKS - 8
    assert said.tobytes() == WHOLE.tobytes()
    assert heard == [f"8 of 35 blocks of scores are in {next(tmp_path.iterdir())}; the others are computed"]


# Damage


def flip(where):
    def damage(path):
        raw = bytearray(path.read_bytes())
        raw[where if where >= 0 else len(raw) + where] ^= 1
        path.write_bytes(raw)

    return damage


def with_line(old, new):
    def damage(path):
        raw = path.read_bytes()
        assert old in raw
        path.write_bytes(raw.replace(old, new, 1))

    return damage


DAMAGE = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "a bit in the numbers": flip(-1),
    "a bit in the first number": flip(-32),
    "a bit in the line": flip(30),
    "a bit in the checksum": flip(120),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "another format": with_line(b"scores 1 ", b"scores 0 "),
    "another dtype": with_line(b" <f4 ", b" <i4 "),
    "foreign": lambda path: path.write_bytes(b"\x89PNG\r\n" + bytes(100_000)),
    "another block": lambda path: path.write_bytes((path.parent / "0000003-0000008.scores").read_bytes()),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_block_is_scored_again_and_mended(tmp_path, kind):
    ask(tmp_path)
    damaged = tmp_path / cache_key(SYSTEM, HELD, BATCH) / "0000002-0000016.scores"
    DAMAGE[kind](damaged)
    model, heard = Model(), []
    said, _ = ask(tmp_path, model, tell=heard.append)
    assert model.calls == [(2, 16, 1, 8)]
    assert said.tobytes() == WHOLE.tobytes()
    assert any(str(damaged) in line for line in heard) == (kind != "gone")
    assert ask(tmp_path)[1] == 0


@pytest.mark.parametrize("byte", range(0, 190, 7))
def test_no_byte_of_a_block_can_change_unnoticed(byte):
    block, part = blocks_of((1, 6), 1)[0], np.arange(6, dtype="<f4").reshape(1, 6)
    raw = bytearray(packed(part, block, "k" * 32))
    assert np.array_equal(unpacked(bytes(raw), block, "k" * 32), part)
    raw[byte % len(raw)] ^= 16
    assert unpacked(bytes(raw), block, "k" * 32) is None


def test_a_block_of_another_key_is_not_taken(tmp_path):
    ask(tmp_path)
    ask(tmp_path, Model(lambda images, texts: -truth(images, texts)), system="other")
    one, two = (tmp_path / cache_key(system, HELD, BATCH) for system in (SYSTEM, "other"))
    (one / "0000000-0000000.scores").write_bytes((two / "0000000-0000000.scores").read_bytes())
    said, calls = ask(tmp_path)
    assert (calls, said.tobytes()) == (1, WHOLE.tobytes())


def test_a_new_format_leaves_the_old_one_alone(tmp_path, monkeypatch):
    ask(tmp_path)
    for module in (cache_module, shelf):
        monkeypatch.setattr(module, "FORMAT", 2)
    assert ask(tmp_path)[1] == BLOCKS
    monkeypatch.undo()
    assert ask(tmp_path)[1] == 0


def test_a_damaged_description_does_no_harm(tmp_path):
    ask(tmp_path)
    about = next(tmp_path.glob("*/about.json"))
    about.write_text("{")
    assert ask(tmp_path)[1] == 0
    assert held(tmp_path) == []
    blocks_in(tmp_path)[0].unlink()
    assert ask(tmp_path)[1] == 1
    assert held(tmp_path)[0].system == SYSTEM


# Which scores are which


def other(**changes):
    given = dict(zip(("image_ids", "caption_ids", "captions"), IDS, strict=True)) | {
        "links": np.zeros((0, 2)), "open_image": lambda name: f"picture of {name}",
    }  # fmt: skip
    return Collection(**{**given, **changes})


OTHERS = {
    "another model": {"system": "clock|v2"},
    "other image ids": {"collection": other(image_ids=["i9", *IDS[0][1:]])},
    "other caption ids": {"collection": other(caption_ids=["c99", *IDS[1][1:]])},
    "another text": {"collection": other(captions=[*IDS[2][:-1], "caption  36"])},
    "fewer images": {"collection": other(image_ids=IDS[0][:-1])},
    "fewer captions": {"collection": other(caption_ids=IDS[1][:-1], captions=IDS[2][:-1])},
    "other pictures": {"collection": other(open_image=lambda name: f"painting of {name}")},
    "another batch": {"batch": 2},
}


@pytest.mark.parametrize("kind", OTHERS)
def test_scores_are_not_reused_for(tmp_path, kind):
    ask(tmp_path)
    model = Model()
    given = {"collection": HELD, "batch": BATCH, **OTHERS[kind]}
    said, calls = ask(tmp_path, model, **given)
    held_now = given["collection"]
    assert calls == len(blocks_of(held_now.shape, given["batch"]))
    assert said.tobytes() == truth(held_now.images(range(held_now.shape[0])), held_now.captions).tobytes()
    assert ask(tmp_path)[1] == 0


def test_another_order_and_another_benchmark_on_the_same_items_cost_nothing(tmp_path):
    ask(tmp_path)
    order = np.random.default_rng(0).permutation(CAPTIONS)
    moved = other(
        image_ids=IDS[0][::-1], caption_ids=[IDS[1][n] for n in order], captions=[IDS[2][n] for n in order], links=[[0, 3], [5, 1]]
    )
    said, calls = ask(tmp_path, collection=moved)
    assert calls == 0
    assert said.tobytes() == np.ascontiguousarray(WHOLE[::-1, order]).tobytes()
    assert cached_matrix(truth, moved, batch=3).values.tobytes() == said.tobytes()


def test_the_same_things_under_other_links_are_the_same_scores(tmp_path):
    ask(tmp_path)
    assert ask(tmp_path, collection=other(links=[[0, 0], [1, 5]]))[1] == 0


def test_pictures_are_known_by_their_identity_where_they_have_one():
    class Opener:
        def __init__(self, changed=""):
            self.changed, self.opened = changed, []

        def __call__(self, name):
            self.opened.append(name)
            return "the same picture"

        def identity(self, name):
            return f"{name} 1024 bytes{' and one' if name == self.changed else ''}"

    openers = [Opener(), Opener(), Opener("i3")]
    keys = [cache_key(SYSTEM, other(open_image=opener), 1) for opener in openers]
    assert keys[0] == keys[1] != keys[2]
    assert not any(opener.opened for opener in openers)


def test_pictures_are_known_by_pixels_mode_and_palette():
    image = pytest.importorskip("PIL.Image", reason="pip install pillow")
    grey = image.new("L", (4, 4), 1)
    palette = image.new("P", (4, 4), 1)
    other_palette = palette.copy()
    palette.putpalette([0, 0, 0, 9, 9, 9])
    other_palette.putpalette([0, 0, 0, 8, 8, 8])
    wide, bright = image.new("L", (8, 2), 1), image.new("L", (4, 4), 2)
    keys = {cache_key(SYSTEM, other(open_image=lambda _, p=p: p), 1) for p in (grey, palette, other_palette, wide, bright)}
    assert len(keys) == 5
    assert cache_key(SYSTEM, other(open_image=lambda _: image.new("L", (4, 4), 1)), 1) in keys


def test_pictures_that_cannot_be_told_apart_are_refused(tmp_path):
    with pytest.raises(CrossmatchError, match=r"type object cannot be told apart.*identity\(id\).*--no-cache"):
        ask(tmp_path, collection=other(open_image=lambda name: object()))


@pytest.mark.parametrize("system", [None, "", " ", 3])
def test_a_model_without_a_signature_is_not_kept_and_says_so(tmp_path, system):
    heard = []
    for _ in range(2):
        assert ask(tmp_path, system=system, tell=heard.append)[1] == BLOCKS
    assert not list(tmp_path.iterdir())
    assert len(heard) == 2
    assert "has no signature" in heard[0]


# Numbers


def test_a_block_in_float64_widens_all_and_comes_back_as_it_was(tmp_path):
    def fine(images, texts):
        part = 1 + 1e-12 * truth(images, texts).astype(np.float64)
        return part if number(images[0]) == 3 else part.astype(np.float32)

    expected = np.concatenate([fine([i], HELD.captions) for i in HELD.images(range(IMAGES))])
    first, again = ask(tmp_path, Model(fine))[0], ask(tmp_path)[0]
    assert first.dtype == again.dtype == np.float64
    assert first.tobytes() == again.tobytes() == expected.astype(np.float64).tobytes()


@pytest.mark.parametrize("dtype", ["f2", ">f4", "f8", "u1", "i2", "i8", "?"])
def test_any_real_dtype_comes_back_by_value(tmp_path, dtype):
    def coarse(images, texts):
        return (10 * truth(images, texts) > 3).astype(dtype)

    said = ask(tmp_path, Model(coarse))[0]
    assert np.array_equal(said, 10 * WHOLE > 3)
    assert np.array_equal(ask(tmp_path)[0], said)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_is_refused_with_its_image_and_caption_and_is_not_kept(tmp_path, value):
    def sick(images, texts):
        part = truth(images, texts)
        part[[number(i) == 4 for i in images], [number(t) == 19 for t in texts]] = value
        return part

    with pytest.raises(
        CrossmatchError, match=r"gave -?(nan|inf) for image 'i4' with caption 'c19'; 1 of 8 scores.*NaN or infinite"
    ):
        ask(tmp_path, Model(sick))
    assert "0000004-0000016.scores" not in [p.name for p in blocks_in(tmp_path)]
    assert len(blocks_in(tmp_path)) == 4 * 5 + 2
    said, calls = ask(tmp_path)
    assert (calls, said.tobytes()) == (BLOCKS - 22, WHOLE.tobytes())


def test_another_shape_in_the_middle_is_refused(tmp_path):
    def shrinks(images, texts):
        return truth(images, texts)[:, : 8 - (number(images[0]) == 2)]

    with pytest.raises(CrossmatchError, match=r"gave shape \(1, 7\); \(1, 8\) \(images x texts\) was expected"):
        ask(tmp_path, Model(shrinks), collection=other(caption_ids=IDS[1][:8], captions=IDS[2][:8]))
    assert len(blocks_in(tmp_path)) == 2


def test_a_large_matrix_is_put_together_in_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("crossmatch.core.cuts.IN_MEMORY", 1)
    for _ in range(2):
        said, _ = ask(tmp_path)
        assert isinstance(said, np.memmap)
        assert said.tobytes() == WHOLE.tobytes()
    del said
    gc.collect()  # a file left open would be noticed here


# Folders that cannot be written


def test_no_room_on_the_disk_is_one_line_and_leaves_whole_blocks_only(tmp_path, monkeypatch):
    times = []

    def full(handle):
        times.append(handle)
        if len(times) > 12:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(whole.os, "fsync", full)
    with pytest.raises(CrossmatchError) as error:
        ask(tmp_path)
    assert str(error.value).startswith(f"scores cannot be kept in {next(tmp_path.iterdir())} (No space left on device).")
    assert "--cache DIR" in str(error.value)
    assert "\n" not in str(error.value)
    monkeypatch.undo()
    there = len(blocks_in(tmp_path))
    assert 0 < there < BLOCKS
    assert not list(tmp_path.glob("*/.*"))
    said, calls = ask(tmp_path)
    assert (calls, said.tobytes()) == (BLOCKS - there, WHOLE.tobytes())


def test_a_write_that_the_system_refuses_is_one_line(tmp_path):
    """The limit of a file's size is the one that any user can lower; it strikes in the middle of a write, as a full disk does."""
    code, error = Process(tmp_path, largest=180).end()
    assert code == 1
    assert error.startswith(f"scores cannot be kept in {tmp_path / 'scores'}")
    assert len(error.splitlines()) == 1
    assert not blocks_in(tmp_path / "scores")
    assert not list((tmp_path / "scores").glob("*/.*"))


@pytest.mark.parametrize("kind", ["a file in the way", "read-only"])
def test_a_folder_that_cannot_be_written_is_one_line_before_anything_is_scored(tmp_path, kind, monkeypatch):
    folder = tmp_path / "place"
    if kind == "read-only":

        def refuse(*words, **more):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        folder.mkdir()
        monkeypatch.setattr(Path, "mkdir", refuse)  # permissions do not bind the superuser
    else:
        folder.write_text("")
    model = Model()
    with pytest.raises(CrossmatchError, match=r"cannot be kept in .* \((Not a directory|Read-only file system)\).*--no-cache"):
        ask(folder, model)
    assert model.calls == []


def test_a_complete_cache_may_be_read_only(tmp_path, monkeypatch):
    ask(tmp_path)

    def refuse(*words, **more):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(shelf.os, "open", refuse)
    monkeypatch.setattr(whole.tempfile, "mkstemp", refuse)
    assert ask(tmp_path)[1] == 0


# What is kept


def test_what_is_kept_can_be_seen_and_cleared(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "about.json").write_text('{"key": "not this"}')
    assert held(tmp_path / "nowhere") == []
    ask(tmp_path)
    ask(tmp_path, system="other", batch=100)
    one, two = held(tmp_path)
    assert (one.system, one.images, one.captions, one.blocks, one.there) == (SYSTEM, IMAGES, CAPTIONS, BLOCKS, BLOCKS)
    assert one.bytes > WHOLE.nbytes
    assert (two.system, two.blocks) == ("other", 1)
    assert clear(tmp_path, "other") == [two]
    assert held(tmp_path) == [one]
    assert clear(tmp_path) == [one]
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_what_is_being_computed_is_not_cleared(tmp_path):
    running = Process(tmp_path, seconds=0.05)
    while running.calls < 3:
        time.sleep(0.002)
    with pytest.raises(CrossmatchError, match="a process is computing in"):
        clear(tmp_path / "scores")
    assert running.end() == (0, "")


def test_the_usual_folder_is_the_users_and_not_that_of_the_data(monkeypatch):
    monkeypatch.setenv("CROSSMATCH_DATA", "/shared")
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/me/cache")
    assert default_folder() == Path("/home/me/cache/crossmatch/scores")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_folder() == Path("/home/me/.cache/crossmatch/scores")
