"""Cached scores: pairs are scored once, damage is detected, and a killed process loses at most one block.

Run as a program, this file is the process that is killed (`killed_process`).
"""

import errno
import gc
import io
import itertools
import json
import os
import resource
import signal
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io import atomic_write
from crossmatch.models.cache import Cache, default_cache_folder, store
from crossmatch.models.cache import blocks as block_format
from crossmatch.models.cache.blocks import read_block
from crossmatch.models.cache.cross_encoder_scores import PROBED_IMAGES, score_key, score_matrix, split_into_blocks
from killed_process import ChildProcess, Steps, hold, wait_for_others
from polling import wait_until

IMAGES, CAPTIONS, BATCH = 7, 37, 1
BLOCKS = 7 * 5  # one image by eight captions each
SYSTEM = "clock|v1"
IDS = [f"i{n}" for n in range(IMAGES)], [f"c{n:02d}" for n in range(CAPTIONS)], [f"caption {n}" for n in range(CAPTIONS)]
COLLECTION = Collection(*IDS, np.zeros((0, 2)), lambda name: f"picture of {name}")


def number(item):
    return int(item.split()[-1].lstrip("i"))


def truth(images, texts):
    i, c = np.array([[number(x)] for x in images]), np.array([number(x) for x in texts])
    return np.float32(np.sin(1.0 + i * 3.7 + c * 1.3))


EXPECTED = truth(COLLECTION.open_images(range(IMAGES)), COLLECTION.captions)


class Model:
    """Returns the expected scores, and records the calls."""

    def __init__(self, answer=truth):
        self.answer, self.calls = answer, []

    def __call__(self, images, texts):
        self.calls.append((number(images[0]), number(texts[0]), len(images), len(texts)))
        return self.answer(images, texts)


def compute(folder, model=None, collection=COLLECTION, batch=BATCH, system=SYSTEM, notify=lambda line: None):
    """Return the matrix, and how often the model was called."""
    model = model or Model()
    scores = score_matrix(model, collection, batch=batch, cache=Cache(folder, notify), system=system)
    return scores.values, len(model.calls)


def state(folder):
    return {p: (p.stat().st_ino, p.stat().st_size, p.stat().st_mtime_ns) for p in folder.rglob("*")}


def blocks_in(folder):
    return sorted(folder.glob("scores/*/*.block"))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Do not wait for the disk in this process; the child processes do."""
    monkeypatch.setattr(atomic_write.os, "fsync", lambda handle: None)


# The process that is killed


def work(folder, log, out, point="", nth=0, meet=0, meet_in_call=0, hold_in_call=0):
    """Score everything, once `meet` processes have started; die at the nth time that `point` is reached.

    The first call waits until `meet_in_call` processes are in theirs, and one call can wait for the parent.
    """
    wait_for_others(out, meet)
    steps, calls = Steps(point, nth), itertools.count(1)

    def score(images, texts):
        call = next(calls)
        append(log, f"{number(images[0])} {number(texts[0])}")
        if call == 1:
            wait_for_others(out, meet_in_call, "in its first call")
        if call == hold_in_call:
            hold(out)
        steps.reach("scored")
        return truth(images, texts)

    cache = Cache(Path(folder), lambda line: append(messages_of(out), line))
    np.savez(out, score_matrix(score, COLLECTION, batch=BATCH, cache=cache, system=SYSTEM).values)


def append(path, line):
    with open(path, "a") as file:
        file.write(f"{line}\n")


def messages_of(out):
    return Path(f"{out}.messages")


Process = partial(ChildProcess, __file__, log_name="calls.log")  # all processes of a test write one log


def saved_bytes(process):
    with np.load(process.out) as archive:
        return archive["arr_0"].tobytes()


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    if options.pop("unlocked", False):
        store.fcntl = None
    if "largest" in options:  # bytes that a file may have: the system refuses more, as a full disk does
        resource.setrlimit(resource.RLIMIT_FSIZE, (options["largest"], options.pop("largest")))
    try:
        work(**options)
    except CrossmatchError as error:
        sys.exit(str(error))


# Killed


def test_resumed_process_scores_only_missing_blocks(tmp_path):
    calls_before_kill = (4, 1, 9)
    for calls in calls_before_kill:
        running = Process(tmp_path, hold_in_call=calls)
        running.wait_for_calls(running.calls + calls)
        running.popen.kill()
        code, error = running.end()
        assert code == -signal.SIGKILL, error
    last = Process(tmp_path)
    assert last.end() == (0, "")
    assert last.calls == BLOCKS + len(calls_before_kill)  # only the call in which a process was killed is repeated
    assert saved_bytes(last) == EXPECTED.tobytes()
    assert compute(tmp_path / "cache")[1] == 0


@pytest.mark.slow
@pytest.mark.parametrize("point", ["scored", "torn", "before the name", "after the name"])
def test_process_may_be_killed_at_every_step_of_writing(tmp_path, point):
    for kills, nth in enumerate((1, 2, 5, 8), 1):
        running = Process(tmp_path, point=point, nth=nth)
        code, error = running.end()
        assert code == -signal.SIGKILL, error
        assert not running.out.exists()
        read = [unpack(p.read_bytes(), p.stem, p.parent.name) for p in blocks_in(tmp_path / "cache")]
        assert all(part is not None for part in read)  # a block with its final name is complete
        assert running.calls <= len(read) + kills
    running = Process(tmp_path)
    assert running.end() == (0, "")
    assert BLOCKS <= running.calls <= BLOCKS + 4
    assert saved_bytes(running) == EXPECTED.tobytes()
    assert not list((tmp_path / "cache").rglob(".*"))  # unfinished files of killed processes are removed


def unpack(raw, name, key):
    return read_block(io.BytesIO(raw), key, name)


# Two processes


def test_second_process_waits_for_the_first(tmp_path):
    both = [Process(tmp_path, name, meet=2) for name in "ab"]
    assert [process.end() for process in both] == [(0, ""), (0, "")]
    assert both[0].calls == BLOCKS
    assert all(saved_bytes(process) == EXPECTED.tobytes() for process in both)


def test_two_processes_may_write_without_locks(tmp_path):
    both = [Process(tmp_path, name, meet_in_call=2, unlocked=True) for name in "ab"]
    assert [process.end() for process in both] == [(0, ""), (0, "")]
    assert BLOCKS < both[0].calls <= 2 * BLOCKS, "the processes did not overlap"
    assert all(saved_bytes(process) == EXPECTED.tobytes() for process in both)
    assert compute(tmp_path / "cache")[1] == 0


def test_waiting_process_continues_when_the_other_is_killed(tmp_path):
    first = Process(tmp_path, "a", hold_in_call=3)
    first.wait_for_calls(3)
    second = Process(tmp_path, "b")
    wait_until(lambda: messages_of(second.out).exists() and "waiting for it to finish" in messages_of(second.out).read_text())
    first.popen.kill()
    assert first.end()[0] == -signal.SIGKILL
    assert second.end() == (0, "")
    assert second.calls <= BLOCKS + 1
    assert saved_bytes(second) == EXPECTED.tobytes()


# Reuse


def test_rerun_scores_and_writes_nothing(tmp_path):
    scores, calls = compute(tmp_path)
    assert calls == BLOCKS
    assert scores.tobytes() == EXPECTED.tobytes()
    opened = []
    again = Collection(*IDS, np.zeros((0, 2)), lambda name: opened.append(name) or f"picture of {name}")
    before = state(tmp_path)
    messages = []
    scores, calls = compute(tmp_path, collection=again, notify=messages.append)
    assert (calls, scores.tobytes()) == (0, EXPECTED.tobytes())
    assert len(opened) <= PROBED_IMAGES
    assert state(tmp_path) == before
    assert messages == [f"reusing all 35 blocks of scores in {next((tmp_path / 'scores').iterdir())}"]


@pytest.mark.parametrize("batch", [1, 2, 3, 7, 100])
def test_cache_changes_no_bit_and_images_are_opened_once(tmp_path, batch):
    opened = []
    counted = Collection(*IDS, np.zeros((0, 2)), lambda name: opened.append(name) or f"picture of {name}")
    bare, cached = Model(), Model()
    without = score_matrix(bare, counted, batch=batch).values
    assert opened == IDS[0]
    first = compute(tmp_path, cached, batch=batch)[0]
    assert bare.calls == cached.calls
    assert max(call[2] for call in cached.calls) <= batch
    assert {v.tobytes() for v in (without, first, compute(tmp_path, batch=batch)[0])} == {EXPECTED.tobytes()}
    assert without.dtype == np.float32


def test_blocks_before_an_error_stay_cached(tmp_path):
    class TiredError(Exception):
        pass

    def score(images, texts):
        if len(model.calls) == 9:
            raise TiredError
        return truth(images, texts)

    model = Model(score)
    with pytest.raises(TiredError):
        compute(tmp_path, model)
    assert len(blocks_in(tmp_path)) == 8
    messages = []
    scores, calls = compute(tmp_path, notify=messages.append)
    assert calls == BLOCKS - 8
    assert scores.tobytes() == EXPECTED.tobytes()
    assert messages == [f"reusing 8 of 35 blocks of scores in {next((tmp_path / 'scores').iterdir())}"]


# Damage


def flip(position):
    def damage(path):
        raw = bytearray(path.read_bytes())
        raw[position if position >= 0 else len(raw) + position] ^= 1
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
    "a bit in the checksum": flip(190),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "another format": with_line(b'"format":2', b'"format":1'),
    "another dtype": with_line(b'"<f4"', b'"<i8"'),
    "foreign": lambda path: path.write_bytes(b"\x89PNG\r\n" + bytes(100_000)),
    "another block": lambda path: path.write_bytes((path.parent / "0000003-0000008.block").read_bytes()),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_block_is_scored_again(tmp_path, kind):
    compute(tmp_path)
    damaged = tmp_path / "scores" / score_key(SYSTEM, COLLECTION, BATCH) / "0000002-0000016.block"
    DAMAGE[kind](damaged)
    model, messages = Model(), []
    scores, _ = compute(tmp_path, model, notify=messages.append)
    assert model.calls == [(2, 16, 1, 8)]
    assert scores.tobytes() == EXPECTED.tobytes()
    assert any(str(damaged) in line for line in messages) == (kind != "gone")
    assert compute(tmp_path)[1] == 0


def test_block_of_another_key_is_ignored(tmp_path):
    compute(tmp_path)
    compute(tmp_path, Model(lambda images, texts: -truth(images, texts)), system="other")
    first, second = (tmp_path / "scores" / score_key(system, COLLECTION, BATCH) for system in (SYSTEM, "other"))
    (first / "0000000-0000000.block").write_bytes((second / "0000000-0000000.block").read_bytes())
    scores, calls = compute(tmp_path)
    assert (calls, scores.tobytes()) == (1, EXPECTED.tobytes())


def test_new_format_does_not_touch_old_entries(tmp_path, monkeypatch):
    compute(tmp_path)
    monkeypatch.setattr(block_format, "FORMAT", 3)
    assert compute(tmp_path)[1] == BLOCKS
    monkeypatch.undo()
    assert compute(tmp_path)[1] == 0


def test_damaged_description_is_rewritten(tmp_path):
    compute(tmp_path)
    about = next(tmp_path.glob("*/*/about.json"))
    about.write_text("{")
    assert compute(tmp_path)[1] == 0
    assert Cache(tmp_path).summaries() == []
    blocks_in(tmp_path)[0].unlink()
    assert compute(tmp_path)[1] == 1
    assert Cache(tmp_path).summaries()[0].system == SYSTEM


# Keys


def changed_collection(**changes):
    fields = dict(zip(("image_ids", "caption_ids", "captions"), IDS, strict=True)) | {
        "links": np.zeros((0, 2)), "open_image": lambda name: f"picture of {name}",
    }  # fmt: skip
    return Collection(**{**fields, **changes})


CHANGES = {
    "another model": {"system": "clock|v2"},
    "other image ids": {"collection": changed_collection(image_ids=["i9", *IDS[0][1:]])},
    "other caption ids": {"collection": changed_collection(caption_ids=["c99", *IDS[1][1:]])},
    "another text": {"collection": changed_collection(captions=[*IDS[2][:-1], "caption  36"])},
    "fewer images": {"collection": changed_collection(image_ids=IDS[0][:-1])},
    "fewer captions": {"collection": changed_collection(caption_ids=IDS[1][:-1], captions=IDS[2][:-1])},
    "other pictures": {"collection": changed_collection(open_image=lambda name: f"painting of {name}")},
    "another batch": {"batch": 2},
}


@pytest.mark.parametrize("change", CHANGES)
def test_scores_are_not_reused_for(tmp_path, change):
    compute(tmp_path)
    model = Model()
    options = {"collection": COLLECTION, "batch": BATCH, **CHANGES[change]}
    scores, calls = compute(tmp_path, model, **options)
    collection = options["collection"]
    assert calls == len(split_into_blocks(collection.shape, options["batch"]))
    assert scores.tobytes() == truth(collection.open_images(range(collection.shape[0])), collection.captions).tobytes()
    assert compute(tmp_path)[1] == 0


def test_order_and_links_do_not_change_the_key(tmp_path):
    compute(tmp_path)
    order = np.random.default_rng(0).permutation(CAPTIONS)
    moved = changed_collection(
        image_ids=IDS[0][::-1], caption_ids=[IDS[1][n] for n in order], captions=[IDS[2][n] for n in order], links=[[0, 3], [5, 1]]
    )
    scores, calls = compute(tmp_path, collection=moved)
    assert calls == 0
    assert scores.tobytes() == np.ascontiguousarray(EXPECTED[::-1, order]).tobytes()
    assert score_matrix(truth, moved, batch=3).values.tobytes() == scores.tobytes()


def test_images_are_identified_by_identity():
    class Opener:
        def __init__(self, changed=""):
            self.changed, self.opened = changed, []

        def __call__(self, name):
            self.opened.append(name)
            return "the same picture"

        def identity(self, name):
            return f"{name} 1024 bytes{' and one' if name == self.changed else ''}"

    openers = [Opener(), Opener(), Opener("i3")]
    keys = [score_key(SYSTEM, changed_collection(open_image=opener), 1) for opener in openers]
    assert keys[0] == keys[1] != keys[2]
    assert not any(opener.opened for opener in openers)


def test_images_are_identified_by_pixels_mode_and_palette():
    image = pytest.importorskip("PIL.Image", reason="pip install pillow")
    grey = image.new("L", (4, 4), 1)
    palette = image.new("P", (4, 4), 1)
    other_palette = palette.copy()
    palette.putpalette([0, 0, 0, 9, 9, 9])
    other_palette.putpalette([0, 0, 0, 8, 8, 8])
    wide, bright = image.new("L", (8, 2), 1), image.new("L", (4, 4), 2)
    keys = {
        score_key(SYSTEM, changed_collection(open_image=lambda _, p=p: p), 1) for p in (grey, palette, other_palette, wide, bright)
    }
    assert len(keys) == 5
    assert score_key(SYSTEM, changed_collection(open_image=lambda _: image.new("L", (4, 4), 1)), 1) in keys


def test_images_without_hash_are_refused(tmp_path):
    with pytest.raises(CrossmatchError, match=r"type object cannot be told apart.*identity\(id\).*--no-cache"):
        compute(tmp_path, collection=changed_collection(open_image=lambda name: object()))


@pytest.mark.parametrize("system", [None, "", " ", 3])
def test_model_without_signature_is_not_cached(tmp_path, system):
    messages = []
    for _ in range(2):
        assert compute(tmp_path, system=system, notify=messages.append)[1] == BLOCKS
    assert not list(tmp_path.iterdir())
    assert len(messages) == 2
    assert "has no signature" in messages[0]


# Values


def test_float64_block_widens_the_matrix(tmp_path):
    def fine(images, texts):
        part = 1 + 1e-12 * truth(images, texts).astype(np.float64)
        return part if number(images[0]) == 3 else part.astype(np.float32)

    expected = np.concatenate([fine([i], COLLECTION.captions) for i in COLLECTION.open_images(range(IMAGES))])
    first, again = compute(tmp_path, Model(fine))[0], compute(tmp_path)[0]
    assert first.dtype == again.dtype == np.float64
    assert first.tobytes() == again.tobytes() == expected.astype(np.float64).tobytes()


@pytest.mark.parametrize("dtype", ["f2", ">f4", "f8", "u1", "i2", "i8", "?"])
def test_real_dtypes_are_cached_by_value(tmp_path, dtype):
    def coarse(images, texts):
        return (10 * truth(images, texts) > 3).astype(dtype)

    scores = compute(tmp_path, Model(coarse))[0]
    assert np.array_equal(scores, 10 * EXPECTED > 3)
    assert np.array_equal(compute(tmp_path)[0], scores)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_is_refused_and_not_cached(tmp_path, value):
    def score(images, texts):
        block = truth(images, texts)
        block[[number(i) == 4 for i in images], [number(t) == 19 for t in texts]] = value
        return block

    with pytest.raises(
        CrossmatchError, match=r"returned -?(nan|inf) for image 'i4' with caption 'c19'; 1 of 8 scores.*NaN or infinite"
    ):
        compute(tmp_path, Model(score))
    assert "0000004-0000016.block" not in [p.name for p in blocks_in(tmp_path)]
    assert len(blocks_in(tmp_path)) == 4 * 5 + 2
    scores, calls = compute(tmp_path)
    assert (calls, scores.tobytes()) == (BLOCKS - 22, EXPECTED.tobytes())


def test_changed_shape_is_refused(tmp_path):
    def shrinks(images, texts):
        return truth(images, texts)[:, : 8 - (number(images[0]) == 2)]

    with pytest.raises(CrossmatchError, match=r"expected shape \(1, 8\) \(images x texts\), got \(1, 7\)"):
        compute(tmp_path, Model(shrinks), collection=changed_collection(caption_ids=IDS[1][:8], captions=IDS[2][:8]))
    assert len(blocks_in(tmp_path)) == 2


def test_large_matrix_is_memory_mapped(tmp_path, monkeypatch):
    monkeypatch.setattr("crossmatch.ranking.counts_at_k.MAX_BYTES_IN_MEMORY", 1)
    for _ in range(2):
        scores, _ = compute(tmp_path)
        assert isinstance(scores, np.memmap)
        assert scores.tobytes() == EXPECTED.tobytes()
    del scores
    gc.collect()  # reports files that were left open


# Folders that cannot be written


def test_full_disk_gives_one_line_and_complete_blocks(tmp_path, monkeypatch):
    calls_of_fsync = []

    def full(handle):
        calls_of_fsync.append(handle)
        if len(calls_of_fsync) > 12:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic_write.os, "fsync", full)
    with pytest.raises(CrossmatchError) as error:
        compute(tmp_path)
    assert str(error.value).startswith(
        f"cannot write to the cache in {next((tmp_path / 'scores').iterdir())} (No space left on device)."
    )
    assert "--cache DIR" in str(error.value)
    assert "\n" not in str(error.value)
    monkeypatch.undo()
    written = len(blocks_in(tmp_path))
    assert 0 < written < BLOCKS
    assert not list(tmp_path.rglob(".*"))
    scores, calls = compute(tmp_path)
    assert (calls, scores.tobytes()) == (BLOCKS - written, EXPECTED.tobytes())


def test_refused_write_gives_one_line(tmp_path):
    """A limit of the file size fails in the middle of a write, as a full disk does."""
    code, error = Process(tmp_path, largest=180).end()
    assert code == 1
    assert error.startswith(f"cannot write to the cache in {tmp_path / 'cache'}")
    assert len(error.splitlines()) == 1
    assert not blocks_in(tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob(".*"))


@pytest.mark.parametrize("kind", ["a file in the way", "read-only"])
def test_unwritable_folder_is_reported_before_scoring(tmp_path, kind, monkeypatch):
    folder = tmp_path / "place"
    if kind == "read-only":

        def refuse(*arguments, **options):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        folder.mkdir()
        monkeypatch.setattr(Path, "mkdir", refuse)  # permissions do not apply to the superuser
    else:
        folder.write_text("")
    model = Model()
    with pytest.raises(CrossmatchError, match=r"to the cache in .* \((Not a directory|Read-only file system)\).*--no-cache"):
        compute(folder, model)
    assert model.calls == []


def test_complete_cache_may_be_read_only(tmp_path, monkeypatch):
    compute(tmp_path)

    def refuse(*arguments, **options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(store.os, "open", refuse)
    monkeypatch.setattr(atomic_write.tempfile, "mkstemp", refuse)
    assert compute(tmp_path)[1] == 0


# Listing and clearing


def test_entries_are_listed_and_cleared(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "about.json").write_text('{"key": "not this"}')
    assert Cache(tmp_path / "nowhere").summaries() == []
    compute(tmp_path)
    compute(tmp_path, system="other", batch=100)
    first, second = Cache(tmp_path).summaries()
    assert (first.system, first.kind, first.blocks) == (SYSTEM, "scores", BLOCKS)
    assert [first.about[name] for name in ("images", "captions", "blocks")] == [IMAGES, CAPTIONS, BLOCKS]
    assert first.bytes > EXPECTED.nbytes
    assert (second.system, second.blocks) == ("other", 1)
    assert Cache(tmp_path).clear("other") == [second]
    assert Cache(tmp_path).summaries() == [first]
    assert Cache(tmp_path).clear() == [first]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", "scores"]


def test_entry_in_use_is_not_cleared(tmp_path):
    running = Process(tmp_path, hold_in_call=3)
    running.wait_for_calls(3)
    with pytest.raises(CrossmatchError, match="a process is writing to"):
        Cache(tmp_path / "cache").clear()
    running.release()
    assert running.end() == (0, "")


def test_default_folder_is_in_the_users_cache(monkeypatch):
    monkeypatch.setenv("CROSSMATCH_DATA", "/shared")
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/me/cache")
    assert default_cache_folder() == Path("/home/me/cache/crossmatch/cache")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_cache_folder() == Path("/home/me/.cache/crossmatch/cache")
