"""Cached embeddings: items are embedded once, damage is detected, and a killed process loses at most one batch.

Run as a program, this file is the process that is killed (`killed_process`).
"""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crossmatch.benchmarks.user_collection import load_collection_folder
from crossmatch.cli.cache import cache_command
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io import atomic_write
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval
from crossmatch.data.trials import Trials
from crossmatch.evaluation.model_scores import get_trial_scores, score_collection
from crossmatch.models.baselines.text_encoders import TfIdf
from crossmatch.models.cache import Cache, store
from crossmatch.models.cache.blocks import FORMAT, pack_block
from crossmatch.models.cache.embeddings import EmbeddingCache, count_items, embedding_key, text_key
from killed_process import ChildProcess, Steps, hold, wait_for_others

IMAGES, BATCH = 12, 3
CALLS = 4 + 8  # batches of 12 images, and of 24 texts
SYSTEM = "clock|v1"


def collection(images=range(IMAGES), prefix="i"):
    return Collection.from_captions(
        {f"{prefix}{n:02d}": [f"caption {n}", f"another {n}"] for n in images}, lambda name: f"picture {int(name[len(prefix) :])}"
    )


def data(images):
    return Retrieval(images, {"links": Judgements.from_links(images)})


COLLECTION = collection()


def truth(item):
    return np.float32([np.sin(1 + len(item) + int(item.split()[-1]) * k) for k in range(1, 6)])


class Model:
    """Returns the expected vectors, with a small part that depends on the batch; records the calls."""

    signature = SYSTEM

    def __init__(self, signature=SYSTEM):
        self.signature, self.calls = signature, []

    def _embed(self, items):
        self.calls.append(list(items))
        return np.stack([truth(item) for item in items]) + np.float32(1e-6 * len(items[0]))

    embed_images = embed_texts = _embed


def embed_all(folder, model=None, images=COLLECTION, batch=BATCH, notify=lambda line: None, **how):
    """Return the vectors of images and captions, and the calls of the model."""
    model = model or Model()
    cache = None if folder is None else Cache(folder, notify)
    embeddings = score_collection(model, data(images), batch=batch, cache=cache, **how)
    return (embeddings.image_vectors, embeddings.caption_vectors), model.calls


def same(first, second):
    return all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(first, second, strict=True))


EXPECTED = embed_all(None)[0]


def files(folder):
    return sorted(folder.rglob("*.block"))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Do not wait for the disk in this process; the child processes do."""
    monkeypatch.setattr(atomic_write.os, "fsync", lambda handle: None)


# The process that is killed


def work(folder, log, out, point="", nth=0, meet_in_call=0, hold_in_call=0):
    """Embed everything; die at the nth time that `point` is reached.

    The first call waits until `meet_in_call` processes are in theirs, and one call can wait for the parent.
    """
    steps = Steps(point, nth)

    class Logged(Model):
        def _embed(self, items):
            with open(log, "a") as file:
                file.write(f"{len(items)}\n")
            if not self.calls:
                wait_for_others(out, meet_in_call, "in its first call")
            if len(self.calls) + 1 == hold_in_call:
                hold(out)
            steps.reach("embedded")
            return super()._embed(items)

        embed_images = embed_texts = _embed

    np.savez(out, *embed_all(Path(folder), Logged())[0])


Process = partial(ChildProcess, __file__)


def saved_vectors(process):
    with np.load(process.out) as archive:
        return tuple(archive[name] for name in archive.files)


if __name__ == "__main__":
    work(**json.loads(sys.argv[1]))
    sys.exit()


@pytest.mark.parametrize(("point", "cached_batches"), [("embedded", 5), ("torn", 5), ("before the name", 5), ("after the name", 6)])
def test_process_may_be_killed_at_every_step_of_writing(tmp_path, point, cached_batches):
    """The process dies in the sixth batch. (A file is synced twice, the first time for about.json.)"""
    nth = {"embedded": 6, "torn": 2 * 6 + 1}.get(point, 7)
    process = Process(tmp_path, point=point, nth=nth)
    code, error = process.end()
    assert code == -signal.SIGKILL, error
    assert process.calls == 6
    messages = []
    vectors, calls = embed_all(tmp_path / "cache", notify=messages.append)
    assert same(vectors, EXPECTED), "the same batches give the same bits"
    assert len(calls) == CALLS - cached_batches
    assert not [line for line in messages if "damaged" in line]
    assert not list((tmp_path / "cache").rglob(".*.part")), "unfinished files of the killed process are removed"
    assert not embed_all(tmp_path / "cache")[1]


@pytest.mark.slow
def test_killed_process_loses_at_most_one_batch(tmp_path):
    calls_before_kill = (2, 1, 3, 4)
    for n, calls in enumerate(calls_before_kill):
        process = Process(tmp_path, name=f"process {n}", hold_in_call=calls)
        process.wait_for_calls(calls)
        process.popen.kill()
        code, error = process.end()
        assert code == -signal.SIGKILL, error
    vectors, calls = embed_all(tmp_path / "cache")
    assert same(vectors, EXPECTED)
    assert sum(calls_before_kill) + len(calls) <= CALLS + len(calls_before_kill)


def test_two_processes_may_write_at_once(tmp_path):
    both = [Process(tmp_path, name=name, meet_in_call=2) for name in ("one", "two")]
    ends = [process.end() for process in both]
    assert [code for code, _ in ends] == [0, 0], ends
    assert all(same(saved_vectors(process), EXPECTED) for process in both)
    messages = []
    vectors, calls = embed_all(tmp_path / "cache", notify=messages.append)
    assert same(vectors, EXPECTED)
    assert not calls
    assert not [line for line in messages if "damaged" in line]


def test_process_finishes_when_the_other_is_killed(tmp_path):
    killed = Process(tmp_path, name="one", meet_in_call=2, point="before the name", nth=4)
    survivor = Process(tmp_path, name="two", meet_in_call=2, hold_in_call=1)
    assert killed.end()[0] == -signal.SIGKILL
    survivor.release()
    assert survivor.end()[0] == 0
    assert same(saved_vectors(survivor), EXPECTED)
    assert not embed_all(tmp_path / "cache")[1]


# Reuse


def test_rerun_embeds_nothing_and_gives_the_same_bits(tmp_path):
    first, calls = embed_all(tmp_path)
    assert len(calls) == CALLS
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    messages = []
    for batch, workers in ((BATCH, None), (5, 0), (100, 3)):
        again, calls = embed_all(tmp_path, batch=batch, workers=workers, notify=messages.append)
        assert calls == []
        assert same(again, first)
    assert same(first, EXPECTED), "the cache changes no bit"
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before, "nothing is written"
    assert f"reusing the embeddings of 12 of 12 images in {tmp_path / 'embeddings' / embedding_key(SYSTEM)}" in messages


def test_benchmarks_share_equal_items(tmp_path):
    embed_all(tmp_path, images=collection(range(8)))
    second_collection = collection(range(5, 12), prefix="other-")
    vectors, calls = embed_all(tmp_path, images=second_collection)
    assert sorted(item for call in calls for item in call) == sorted(
        [f"picture {n}" for n in range(8, 12)] + [f"{label} {n}" for n in range(8, 12) for label in ("caption", "another")]
    )
    assert np.abs(vectors[0] - embed_all(None, images=second_collection)[0][0]).max() < 1e-5
    trials = Trials(
        ["t"], [["x01", "x11"]], [["caption 1", "another 11"]], ["k"], open_image=lambda name: f"picture {int(name[1:])}"
    )
    model = Model()
    get_trial_scores(model, trials, cache=Cache(tmp_path))
    assert model.calls == []


def test_signatures_have_separate_entries(tmp_path):
    embed_all(tmp_path)
    assert len(embed_all(tmp_path, Model("clock|v2"))[1]) == CALLS
    assert [s.system for s in Cache(tmp_path).summaries()] == ["clock|v1", "clock|v2"]


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", "<i2", "|b1", np.longdouble])
def test_real_dtypes_are_cached_by_value(tmp_path, dtype):
    class Typed(Model):
        def _embed(self, items):
            return (np.round(4 * super()._embed(items)) + 9).astype(dtype)

        embed_images = embed_texts = _embed

    first, _ = embed_all(tmp_path, Typed())
    again, calls = embed_all(tmp_path, Typed())
    assert calls == []
    assert same(first, again)
    assert same(first, embed_all(None, Typed())[0])


@pytest.mark.parametrize("reason", ["no signature", "an empty signature", "cached = False"])
def test_model_without_usable_signature_is_not_cached(tmp_path, reason):
    model = Model({"no signature": None, "an empty signature": " "}.get(reason, SYSTEM))
    model.cached = reason != "cached = False"
    messages = []
    embed_all(tmp_path, model, notify=messages.append)
    assert list(tmp_path.iterdir()) == []
    assert len(messages) == 1
    assert messages[0].startswith("embeddings are not cached, because the model has no signature.")
    assert 'signature = "mine-1"' in messages[0]


def test_fitted_model_is_not_cached(tmp_path):
    messages = []
    texts = Collection.from_captions({"a": ["a red cat", "two dogs"]})
    score_collection(TfIdf(), data(texts), cache=Cache(tmp_path, messages.append))
    assert (list(tmp_path.iterdir()), messages) == ([], [])


# Images in files


def test_files_are_identified_by_their_bytes(tmp_path):
    class Colour:
        signature = "colour"

        def __init__(self):
            self.seen = 0

        def embed_images(self, images):
            self.seen += len(images)
            return [np.asarray(image, float)[0, 0] + 1 for image in images]

        def embed_texts(self, texts):
            return np.ones((len(texts), 3))

    def count_embedded(folder):
        model = Colour()
        score_collection(model, load_collection_folder(folder), cache=Cache(tmp_path / "cache"))
        return model.seen

    folder = tmp_path / "one"
    (folder / "images").mkdir(parents=True)
    for n, name in enumerate("abc"):
        Image.new("RGB", (8, 8), (n, 0, 0)).save(folder / "images" / f"{name}.png")
    (folder / "captions.csv").write_text("image,caption\na.png,A.\nb.png,B.\nc.png,C.\n")
    assert count_embedded(folder) == 3
    shutil.copytree(folder, tmp_path / "two")
    os.utime(tmp_path / "two/images/a.png", (0, 0))
    (tmp_path / "two/images/b.png").rename(tmp_path / "two/images/d.png")
    (tmp_path / "two/captions.csv").write_text("image,caption\na.png,A.\nd.png,B.\nc.png,C.\n")
    assert count_embedded(tmp_path / "two") == 0
    Image.new("RGB", (8, 8), (9, 0, 0)).save(folder / "images/a.png")
    assert count_embedded(folder) == 1


# Damage


def damage(path, kind):
    raw = bytearray(path.read_bytes())
    at = {"head": 30, "items": raw.index(b"\n") + 5, "numbers": len(raw) - 3}.get(kind)
    if at:
        raw[at] ^= 1
    changed = {"cut": raw[:-7], "longer": raw + b"x", "empty": b"", "strange": b"\x89PNG" * 50}.get(kind, raw)
    path.write_bytes(bytes(changed))


@pytest.mark.parametrize("kind", ["head", "items", "numbers", "cut", "longer", "empty", "strange"])
def test_damaged_block_is_embedded_again(tmp_path, kind):
    embed_all(tmp_path)
    damage(files(tmp_path)[4], kind)
    messages = []
    vectors, calls = embed_all(tmp_path, notify=messages.append)
    assert same(vectors, EXPECTED)
    assert len(calls) == 1
    assert sum("is damaged or belongs to another entry; it is computed again" in line for line in messages) == 1
    assert not embed_all(tmp_path)[1]


def test_changed_byte_is_detected(tmp_path):
    keys = [text_key("a"), text_key("b")]
    embeddings = EmbeddingCache.open(Cache(tmp_path), SYSTEM)
    embeddings.put(keys, np.float32([[1, 2], [3, 4]]))
    embeddings.close()
    (path,) = files(tmp_path)
    raw = path.read_bytes()
    for at in range(len(raw)):
        changed = bytearray(raw)
        changed[at] ^= 1
        path.write_bytes(changed)
        messages = []
        vectors = EmbeddingCache.open(Cache(tmp_path, messages.append), SYSTEM).get(keys)
        assert (vectors, len(messages), path.exists()) == ({}, 1, False), at
    path.write_bytes(raw)
    assert {key: row.tolist() for key, row in EmbeddingCache.open(Cache(tmp_path), SYSTEM).get(keys).items()} == {
        keys[0]: [1, 2], keys[1]: [3, 4]
    }  # fmt: skip


def test_block_of_another_model_is_ignored(tmp_path):
    folder = tmp_path / "embeddings" / embedding_key(SYSTEM)
    folder.mkdir(parents=True)
    arrays = {"items": np.frombuffer(text_key("caption 1"), np.uint8)[None], "vectors": np.ones((1, 5), "<f4")}
    (folder / "0.block").write_bytes(pack_block(embedding_key("another"), "0", arrays))
    vectors, _ = embed_all(tmp_path)
    assert same(vectors, EXPECTED)
    assert FORMAT == 2, "a new format changes the key, so that old files are left alone"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_is_not_cached(tmp_path, value):
    class Holes(Model):
        def _embed(self, items):
            vectors = super()._embed(items)
            vectors[["7" in item for item in items], 2] = value
            return vectors

        embed_images = embed_texts = _embed

    with pytest.raises(CrossmatchError, match=r"the vector of image 'i07' has NaN or infinite numbers.*none of them is cached"):
        embed_all(tmp_path, Holes())
    assert len(files(tmp_path)) == 2, "earlier batches are cached"
    assert same(embed_all(tmp_path)[0], EXPECTED)


# The disk


def test_full_disk_keeps_complete_blocks(tmp_path):
    process = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(tmp_path)], capture_output=True, check=False)
    if process.returncode:
        pytest.skip("this user may not mount a small disk")
    try:
        with pytest.raises(CrossmatchError, match=r"No space left on device.*--cache DIR"):
            embed_all(tmp_path, batch=1)
        assert files(tmp_path), "some blocks fit"
        messages = []
        embeddings = EmbeddingCache.open(Cache(tmp_path, messages.append), SYSTEM)
        assert embeddings.get([text_key("nothing")]) == {}
        assert messages == [], "all blocks are complete"
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_complete_cache_may_be_read_only(tmp_path, monkeypatch):
    embed_all(tmp_path)

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(store, "atomic_write", refuse)
    assert same(embed_all(tmp_path)[0], EXPECTED)
    with pytest.raises(CrossmatchError, match="Permission denied"):
        embed_all(tmp_path, Model("another"))


# Listing and clearing


def test_command_lists_and_clears_entries(tmp_path):
    from click.testing import CliRunner

    def call(command, *options):
        outcome = CliRunner().invoke(command, [*options, "--cache", str(tmp_path)])
        assert outcome.exit_code == 0, outcome.output
        return outcome.output

    assert "is empty" in call(cache_command)
    embed_all(tmp_path)
    embed_all(tmp_path, Model("clock|v2"), images=collection(range(3)))
    (tmp_path / "embeddings" / "notes").mkdir()
    listing = call(cache_command)
    assert f"embeddings in {tmp_path}" in listing
    assert [line.split()[:2] for line in listing.splitlines() if "clock" in line] == [["clock|v1", "36"], ["clock|v2", "9"]]
    assert "1 entries (0.0 MB) of embeddings" in call(cache_command, "--clear", "--model", "clock|v1")
    assert [(s.system, count_items(s)) for s in Cache(tmp_path).summaries()] == [("clock|v2", 9)]
    assert "1 entries (0.0 MB) of embeddings" in call(cache_command, "--clear")
    assert Cache(tmp_path).summaries() == []
    assert (tmp_path / "embeddings" / "notes").is_dir(), "other folders stay"


def test_entry_in_use_is_not_cleared(tmp_path):
    embeddings = EmbeddingCache.open(Cache(tmp_path), SYSTEM)
    embeddings.put([text_key("a")], np.ones((1, 2), np.float32))
    with pytest.raises(CrossmatchError, match="a process is writing to"):
        Cache(tmp_path).clear()
    embeddings.close()
    assert len(Cache(tmp_path).clear()) == 1
