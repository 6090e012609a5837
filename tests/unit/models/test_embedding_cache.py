"""Embeddings on disk: nothing is embedded twice, nothing damaged is trusted, and a killed process loses one batch at most.

Run as a program, this file is the process that is killed: it embeds slowly, writes down every call, and saves its vectors.
"""

import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crossmatch.benchmarks.folder import load_folder
from crossmatch.cli.cache import clear_cache, list_cache
from crossmatch.core import whole
from crossmatch.core.benchmark import Retrieval
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.judgements import Judgements
from crossmatch.core.trials import Trials
from crossmatch.models.abilities import scores_of, trial_scores_of
from crossmatch.models.cache import ScoreCache
from crossmatch.models.embedding_cache import (
    FORMAT,
    EmbeddingShelf,
    clear_embeddings,
    held_embeddings,
    key_of,
    packed,
    text_key,
)
from crossmatch.models.text import TfIdf

SRC = Path(__file__).parents[3] / "src"
IMAGES, BATCH = 12, 3
CALLS = 4 + 8  # batches of 12 images, and of 24 texts
SYSTEM = "clock|v1"


def collection(images=range(IMAGES), prefix="i"):
    return Collection.of(
        {f"{prefix}{n:02d}": [f"caption {n}", f"another {n}"] for n in images}, lambda name: f"picture {int(name[len(prefix) :])}"
    )


def data(held):
    return Retrieval(held, {"links": Judgements.from_links(held)})


HELD = collection()


def truth(thing):
    return np.float32([np.sin(1 + len(thing) + int(thing.split()[-1]) * k) for k in range(1, 6)])


class Model:
    """Knows the truth, with a little that depends on the batch; remembers the calls."""

    signature = SYSTEM

    def __init__(self, signature=SYSTEM):
        self.signature, self.calls = signature, []

    def _embed(self, things):
        self.calls.append(list(things))
        return np.stack([truth(thing) for thing in things]) + np.float32(1e-6 * len(things[0]))

    embed_images = embed_texts = _embed


def ask(folder, model=None, held=HELD, batch=BATCH, tell=lambda line: None, **how):
    """The vectors of both sides, and how often the model was asked for how many things."""
    model = model or Model()
    cache = None if folder is None else ScoreCache(folder, tell)
    said = scores_of(model, data(held), batch=batch, cache=cache, **how)
    return (said.image_vectors, said.caption_vectors), model.calls


def same(one, two):
    return all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(one, two, strict=True))


WHOLE = ask(None)[0]


def files(folder):
    return sorted(folder.rglob("*.vectors"))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The processes below wait for the disk; the tests in this one need not."""
    monkeypatch.setattr(whole.os, "fsync", lambda handle: None)


# The process that is killed


def work(folder, log, out, seconds, point="", nth=0, meet=0):
    """Embed all, once as many have come as shall `meet`, and die by SIGKILL at the nth time that `point` is reached."""
    passed = []
    Path(f"{out}.here").touch()
    while len(list(Path(out).parent.glob("*.here"))) < meet:
        time.sleep(0.002)

    def reach(name):
        passed.append(name)
        if name == point and passed.count(name) == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    class Slow(Model):
        def _embed(self, things):
            with open(log, "a") as file:
                file.write(f"{len(things)}\n")
            time.sleep(seconds)
            reach("embedded")
            return super()._embed(things)

        embed_images = embed_texts = _embed

    fsync, rename = os.fsync, os.replace

    def torn_fsync(handle):
        if point == "torn" and passed.count("torn") + 1 == nth:
            os.ftruncate(handle, os.fstat(handle).st_size // 2)
        reach("torn")
        fsync(handle)

    def noted_replace(source, target):
        reach("before the name")
        rename(source, target)
        reach("after the name")

    os.fsync, os.replace = torn_fsync, noted_replace
    vectors, _ = ask(Path(folder), Slow())
    np.savez(out, *vectors)


class Process:
    """One such process in a folder of its own making."""

    def __init__(self, place, name="out", seconds=0.0, point="", nth=0, **words):
        self.log, self.out = place / f"{name}.log", place / f"{name}.npz"
        given = {"folder": str(place / "cache"), "log": str(self.log), "out": str(self.out), "seconds": seconds,
                 "point": point, "nth": nth, **words}  # fmt: skip
        self.popen = subprocess.Popen(
            [sys.executable, __file__, json.dumps(given)],
            env={**os.environ, "PYTHONPATH": str(SRC)},
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self):
        error = self.popen.communicate(timeout=120)[1]
        return self.popen.returncode, error

    def calls(self):
        return len(self.log.read_text().split()) if self.log.exists() else 0

    def vectors(self):
        with np.load(self.out) as held:
            return tuple(held[name] for name in held.files)


if __name__ == "__main__":
    work(**json.loads(sys.argv[1]))
    sys.exit()


@pytest.mark.parametrize(("point", "kept"), [("embedded", 5), ("torn", 5), ("before the name", 5), ("after the name", 6)])
def test_killed_at_every_step_of_writing_a_batch(tmp_path, point, kept):
    """The sixth batch is the one in which the process dies. (A file is synced twice, the first time for about.json.)"""
    nth = {"embedded": 6, "torn": 2 * 6 + 1}.get(point, 7)
    process = Process(tmp_path, point=point, nth=nth)
    code, error = process.end()
    assert code == -signal.SIGKILL, error
    assert process.calls() == 6
    news = []
    vectors, calls = ask(tmp_path / "cache", tell=news.append)
    assert same(vectors, WHOLE), "the same batches give the same bits"
    assert len(calls) == CALLS - kept
    assert not [line for line in news if "damaged" in line]
    assert not list((tmp_path / "cache").rglob(".*.part")), "what the killed process left is swept up"
    assert not ask(tmp_path / "cache")[1]


def test_killed_at_random_and_resumed_loses_a_batch_at_most(tmp_path):
    dice, killed = random.Random(5), []
    for n in range(4):
        process = Process(tmp_path, name=f"process {n}", seconds=0.02)
        while not process.log.exists() and process.popen.poll() is None:
            time.sleep(0.001)
        time.sleep(dice.random() * 0.1)
        process.popen.send_signal(signal.SIGKILL)
        code, error = process.end()
        assert code in (0, -signal.SIGKILL), error
        killed.append(process.calls())
    vectors, calls = ask(tmp_path / "cache")
    assert same(vectors, WHOLE)
    assert min(killed) >= 1
    assert sum(killed) + len(calls) <= CALLS + len(killed)


def test_two_processes_at_once_do_each_other_no_harm(tmp_path):
    both = [Process(tmp_path, name=name, seconds=0.005, meet=2) for name in ("one", "two")]
    ends = [process.end() for process in both]
    assert [code for code, _ in ends] == [0, 0], ends
    assert all(same(process.vectors(), WHOLE) for process in both)
    news = []
    vectors, calls = ask(tmp_path / "cache", tell=news.append)
    assert same(vectors, WHOLE)
    assert not calls
    assert not [line for line in news if "damaged" in line]


def test_one_of_two_is_killed_and_the_other_ends_well(tmp_path):
    doomed = Process(tmp_path, name="one", seconds=0.01, meet=2, point="before the name", nth=4)
    other = Process(tmp_path, name="two", seconds=0.01, meet=2)
    assert doomed.end()[0] == -signal.SIGKILL
    assert other.end()[0] == 0
    assert same(other.vectors(), WHOLE)
    assert not ask(tmp_path / "cache")[1]


# What is there is not asked for


def test_a_rerun_asks_nothing_and_gives_the_same_bits(tmp_path):
    first, calls = ask(tmp_path)
    assert len(calls) == CALLS
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    news = []
    for batch, workers in ((BATCH, None), (5, 0), (100, 3)):
        again, calls = ask(tmp_path, batch=batch, workers=workers, tell=news.append)
        assert calls == []
        assert same(again, first)
    assert same(first, WHOLE), "the cache changes no bit"
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before, "nothing is written"
    assert f"12 of 12 images were embedded before, and are in {tmp_path / 'embeddings' / key_of(SYSTEM)}" in news


def test_benchmarks_share_equal_items_under_any_name(tmp_path):
    ask(tmp_path, held=collection(range(8)))
    other = collection(range(5, 12), prefix="other-")
    vectors, calls = ask(tmp_path, held=other)
    assert sorted(thing for call in calls for thing in call) == sorted(
        [f"picture {n}" for n in range(8, 12)] + [f"{what} {n}" for n in range(8, 12) for what in ("caption", "another")]
    )
    assert np.abs(vectors[0] - ask(None, held=other)[0][0]).max() < 1e-5
    trials = Trials(
        ["t"], [["x01", "x11"]], [["caption 1", "another 11"]], ["k"], open_image=lambda name: f"picture {int(name[1:])}"
    )
    model = Model()
    trial_scores_of(model, trials, cache=ScoreCache(tmp_path))
    assert model.calls == []


def test_another_signature_has_vectors_of_its_own(tmp_path):
    ask(tmp_path)
    assert len(ask(tmp_path, Model("clock|v2"))[1]) == CALLS
    assert [h.system for h in held_embeddings(tmp_path)] == ["clock|v1", "clock|v2"]


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", "<i2", "|b1", np.longdouble])
def test_any_real_dtype_comes_back_by_value(tmp_path, dtype):
    class Typed(Model):
        def _embed(self, things):
            return (np.round(4 * super()._embed(things)) + 9).astype(dtype)

        embed_images = embed_texts = _embed

    first, _ = ask(tmp_path, Typed())
    again, calls = ask(tmp_path, Typed())
    assert calls == []
    assert same(first, again)
    assert same(first, ask(None, Typed())[0])


@pytest.mark.parametrize("what", ["no signature", "an empty signature", "cached = False"])
def test_a_model_that_cannot_be_known_again_is_not_kept_and_that_is_said(tmp_path, what):
    model = Model({"no signature": None, "an empty signature": " "}.get(what, SYSTEM))
    model.cached = what != "cached = False"
    news = []
    ask(tmp_path, model, tell=news.append)
    assert list(tmp_path.iterdir()) == []
    assert len(news) == 1
    assert news[0].startswith("embeddings are not kept: the model has no signature to know it by.")
    assert 'signature = "mine-1"' in news[0]


def test_a_model_that_is_fitted_to_the_texts_is_not_kept(tmp_path):
    news = []
    texts = Collection.of({"a": ["a red cat", "two dogs"]})
    scores_of(TfIdf(), data(texts), cache=ScoreCache(tmp_path, news.append))
    assert (list(tmp_path.iterdir()), news) == ([], [])


# Pictures in files


def test_files_are_known_by_their_bytes(tmp_path):
    class Colour:
        signature = "colour"

        def __init__(self):
            self.seen = 0

        def embed_images(self, images):
            self.seen += len(images)
            return [np.asarray(image, float)[0, 0] + 1 for image in images]

        def embed_texts(self, texts):
            return np.ones((len(texts), 3))

    def asked(folder):
        model = Colour()
        scores_of(model, load_folder(folder), cache=ScoreCache(tmp_path / "cache"))
        return model.seen

    one = tmp_path / "one"
    (one / "images").mkdir(parents=True)
    for n, name in enumerate("abc"):
        Image.new("RGB", (8, 8), (n, 0, 0)).save(one / "images" / f"{name}.png")
    (one / "captions.csv").write_text("image,caption\na.png,A.\nb.png,B.\nc.png,C.\n")
    assert asked(one) == 3
    shutil.copytree(one, tmp_path / "two")
    os.utime(tmp_path / "two/images/a.png", (0, 0))
    (tmp_path / "two/images/b.png").rename(tmp_path / "two/images/d.png")
    (tmp_path / "two/captions.csv").write_text("image,caption\na.png,A.\nd.png,B.\nc.png,C.\n")
    assert asked(tmp_path / "two") == 0
    Image.new("RGB", (8, 8), (9, 0, 0)).save(one / "images/a.png")
    assert asked(one) == 1


# Damage


def damage(path, kind):
    raw = bytearray(path.read_bytes())
    at = {"head": 30, "items": raw.index(b"\n") + 5, "numbers": len(raw) - 3}.get(kind)
    if at:
        raw[at] ^= 1
    changed = {"cut": raw[:-7], "longer": raw + b"x", "empty": b"", "strange": b"\x89PNG" * 50}.get(kind, raw)
    path.write_bytes(bytes(changed))


@pytest.mark.parametrize("kind", ["head", "items", "numbers", "cut", "longer", "empty", "strange"])
def test_a_damaged_file_is_embedded_again_said_and_mended(tmp_path, kind):
    ask(tmp_path)
    damage(files(tmp_path)[4], kind)
    news = []
    vectors, calls = ask(tmp_path, tell=news.append)
    assert same(vectors, WHOLE)
    assert len(calls) == 1
    assert sum("is damaged or of another origin; its items are embedded anew" in line for line in news) == 1
    assert not ask(tmp_path)[1]


def test_no_byte_of_a_file_can_change_unnoticed(tmp_path):
    keys = [text_key("a"), text_key("b")]
    shelf = EmbeddingShelf(tmp_path / key_of(SYSTEM), SYSTEM, lambda line: None)
    shelf.keep(keys, np.float32([[1, 2], [3, 4]]))
    shelf.close()
    (path,) = files(tmp_path)
    raw = path.read_bytes()
    for at in range(len(raw)):
        changed = bytearray(raw)
        changed[at] ^= 1
        path.write_bytes(changed)
        news = []
        found = EmbeddingShelf(shelf.folder, SYSTEM, news.append).find(keys)
        assert (found, len(news), path.exists()) == ({}, 1, False), at
    path.write_bytes(raw)
    assert {key: row.tolist() for key, row in EmbeddingShelf(shelf.folder, SYSTEM, print).find(keys).items()} == {
        keys[0]: [1, 2], keys[1]: [3, 4]
    }  # fmt: skip


def test_a_file_of_another_model_is_not_taken(tmp_path):
    folder = tmp_path / "embeddings" / key_of(SYSTEM)
    folder.mkdir(parents=True)
    (folder / "0.vectors").write_bytes(packed([text_key("caption 1")], np.ones((1, 5), "<f4"), key_of("another")))
    vectors, _ = ask(tmp_path)
    assert same(vectors, WHOLE)
    assert FORMAT == 1, "a new format changes the key, so that old files are left alone"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_is_never_kept(tmp_path, value):
    class Holes(Model):
        def _embed(self, things):
            found = super()._embed(things)
            found[["7" in thing for thing in things], 2] = value
            return found

        embed_images = embed_texts = _embed

    with pytest.raises(CrossmatchError, match=r"the vector of image 'i07' holds NaN or infinite numbers.*none of them is kept"):
        ask(tmp_path, Holes())
    assert len(files(tmp_path)) == 2, "the batches before are"
    assert same(ask(tmp_path)[0], WHOLE)


# The disk


def test_no_room_on_the_disk_is_one_line_and_leaves_whole_files_only(tmp_path, monkeypatch):
    synced = []

    def full(handle):
        synced.append(handle)
        if len(synced) > 6:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(whole.os, "fsync", full)
    with pytest.raises(
        CrossmatchError, match=r"cannot be kept in .*No space left on device.*Make room.*--cache DIR.*--no-cache"
    ) as said:
        ask(tmp_path)
    assert "\n" not in str(said.value)
    assert not list(tmp_path.rglob(".*.part"))
    monkeypatch.setattr(whole.os, "fsync", lambda handle: None)
    kept = len(files(tmp_path))
    vectors, calls = ask(tmp_path)
    assert same(vectors, WHOLE)
    assert len(calls) == CALLS - kept


def test_a_disk_that_is_really_full(tmp_path):
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(tmp_path)], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("this user may not mount a small disk")
    try:
        with pytest.raises(CrossmatchError, match=r"No space left on device.*--cache DIR"):
            ask(tmp_path, batch=1)
        assert files(tmp_path), "some did fit"
        news = []
        shelf = EmbeddingShelf(tmp_path / "embeddings" / key_of(SYSTEM), SYSTEM, news.append)
        assert shelf.find([text_key("nothing")]) == {}
        assert news == [], "every file that is there is whole"
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_write_that_the_system_refuses_is_one_line(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
    try:
        with pytest.raises(CrossmatchError, match=r"cannot be kept in .*File too large"):
            ask(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert files(tmp_path) == []


def test_a_complete_cache_may_be_read_only(tmp_path, monkeypatch):
    ask(tmp_path)

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("crossmatch.models.embedding_cache.whole_file", refuse)
    assert same(ask(tmp_path)[0], WHOLE)
    with pytest.raises(CrossmatchError, match="Permission denied"):
        ask(tmp_path, Model("another"))


# Seeing and clearing


def test_what_is_kept_can_be_seen_and_cleared(tmp_path):
    from click.testing import CliRunner

    def call(command, *words):
        done = CliRunner().invoke(command, [*words, "--cache", str(tmp_path)])
        assert done.exit_code == 0, done.output
        return done.output

    assert "no scores are kept in" in call(list_cache)
    ask(tmp_path)
    ask(tmp_path, Model("clock|v2"), held=collection(range(3)))
    (tmp_path / "embeddings" / "notes").mkdir()
    shown = call(list_cache)
    assert f"embeddings in {tmp_path}" in shown
    assert [line.split()[:2] for line in shown.splitlines() if "clock" in line] == [["clock|v1", "36"], ["clock|v2", "9"]]
    assert "embeddings of 1 models" in call(clear_cache, "--system", "clock|v1")
    assert [h.system for h in held_embeddings(tmp_path)] == ["clock|v2"]
    assert "embeddings of 1 models" in call(clear_cache)
    assert held_embeddings(tmp_path) == []
    assert (tmp_path / "embeddings" / "notes").is_dir(), "nothing else is touched"


def test_what_is_being_written_is_not_cleared(tmp_path):
    shelf = EmbeddingShelf(tmp_path / "embeddings" / key_of(SYSTEM), SYSTEM, print)
    shelf.keep([text_key("a")], np.ones((1, 2), np.float32))
    with pytest.raises(CrossmatchError, match="a process is computing in"):
        clear_embeddings(tmp_path)
    shelf.close()
    assert len(clear_embeddings(tmp_path)) == 1
