"""Features of splits and collections: those of the extractor, kept whole, made once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError

torch = pytest.importorskip("torch")

from crossmatch.diorama.world import Diorama  # noqa: E402
from crossmatch.models.zoo.features import Extractor  # noqa: E402
from crossmatch.train import features as module  # noqa: E402
from crossmatch.train.features import RegionStore, collection_features, diorama_features, features_folder, ready  # noqa: E402
from crossmatch.train.namer import lessons, named_right, train_namer  # noqa: E402

SMALL = Extractor(lessons=60)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which the small namer is trained once."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        ready(SMALL)
    return folder


@pytest.fixture
def cache(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared))
    return shared


def test_a_store_has_what_the_extractor_sees(cache: Path) -> None:
    world = Diorama.make("val", images=5)
    store = diorama_features("val", 5, SMALL)
    assert len(store) == 5
    looking = ready(SMALL)
    assert store.dimensions == looking.dimensions
    asked = [3, 0, 3]
    fresh, kept = looking.regions([world.picture(n) for n in asked]), store.take(np.array(asked))
    assert torch.equal(kept.real, fresh.real)
    assert kept.features.dtype == torch.float32
    torch.testing.assert_close(kept.features, fresh.features, rtol=1e-3, atol=1e-3)  # half precision has 11 bits
    torch.testing.assert_close(kept.boxes, fresh.boxes)


def test_what_is_kept_is_not_made_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = diorama_features("val", 4, SMALL)
    monkeypatch.setattr(module, "in_parts", lambda *_: pytest.fail("made again"))
    again = diorama_features("val", 4, SMALL)
    np.testing.assert_array_equal(first.features, again.features)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    drawn = []
    monkeypatch.setattr(
        module, "in_parts", lambda *given: drawn.append(given) or [(module._drawn)(SMALL, ("val", range(3), 256, 0))]
    )
    diorama_features("val", 3, SMALL)
    diorama_features("val", 3, SMALL, seed=1)
    assert len(drawn) == 2


def test_damaged_or_half_written_features_are_made_again(cache: Path) -> None:
    store = diorama_features("train", 3, SMALL)
    assert isinstance(store.features, np.memmap)
    whole, folder = np.array(store.features), Path(str(store.features.filename)).parent
    assert folder.parent == features_folder()
    for file in ("features.f16", "regions.npz"):
        content = (folder / file).read_bytes()
        (folder / file).write_bytes(content[:-10])
        (folder / f".{file}.x.part").write_bytes(b"left by a killed process")
        np.testing.assert_array_equal(diorama_features("train", 3, SMALL).features, whole)
    (folder / "regions.npz").unlink()
    np.testing.assert_array_equal(diorama_features("train", 3, SMALL).features, whole)
    assert sorted(path.name for path in folder.iterdir()) == ["features.f16", "lock", "regions.npz"]


def test_two_processes_at_once(cache: Path) -> None:
    told = (
        "from crossmatch.train.features import diorama_features as d; from crossmatch.models.zoo.features import Extractor as E; "
        "import hashlib; s = d('test', 6, E(lessons=60)); print(len(s), hashlib.sha256(s.features.tobytes()).hexdigest())"
    )
    both = [subprocess.Popen([sys.executable, "-c", told], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=120)[0] for process in both]
    assert said[0] == said[1]
    assert said[0].startswith("6 ")


def test_a_collection_in_its_order(cache: Path) -> None:
    world = Diorama.make("val", images=5)
    opened = []

    def open_image(name: str) -> Image.Image:
        opened.append(name)
        return world.picture(int(name))

    held = Collection.of({str(n): ["a picture"] for n in (4, 0, 2)}, open_image)
    store = collection_features(held, SMALL)
    split = diorama_features("val", 5, SMALL).take([4, 0, 2])
    torch.testing.assert_close(store.take(range(3)).features, split.features, rtol=2e-3, atol=2e-3)
    opened.clear()
    collection_features(held, SMALL)
    assert len(opened) == 3  # to see that they are the same, and no more
    other = Collection.of({str(n): ["a picture"] for n in (4, 0, 2)}, lambda name: world.picture(int(name) // 2))
    assert not np.array_equal(collection_features(other, SMALL).features[:5], store.features[:5])


def test_a_collection_that_cannot_be_looked_at(cache: Path) -> None:
    with pytest.raises(CrossmatchError, match="no pictures"):
        collection_features(Collection.of({"a": ["b"]}), SMALL)

    def broken(name: str) -> Image.Image:
        raise OSError("truncated")

    with pytest.raises(CrossmatchError, match="'a'"):
        collection_features(Collection.of({"a": ["b"]}, broken), SMALL)


def test_a_place_that_cannot_be_written(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CrossmatchError, match="XDG_CACHE_HOME"):
        ready(SMALL)


def test_take_by_a_loop() -> None:
    dice = np.random.default_rng(0)
    begin = np.array([0, 3, 4, 9, 11])
    store = RegionStore(dice.normal(size=(11, 5)).astype(np.float16), dice.random((11, 4), dtype=np.float32), begin)
    for asked in ([0, 1, 2, 3], [2], [3, 1, 1], [-1]):
        taken = store.take(asked)
        for row, n in enumerate(asked):
            own = slice(begin[n % 4], begin[n % 4 + 1])
            count = own.stop - own.start
            assert taken.real[row].tolist() == [k < count for k in range(taken.real.shape[1])]
            np.testing.assert_array_equal(taken.features[row, :count], store.features[own].astype(np.float32))
            np.testing.assert_array_equal(taken.boxes[row, :count], store.boxes[own])
            assert not taken.features[row, count:].any()
    with pytest.raises(IndexError):
        store.take([4])


def test_a_namer_learns_to_name_and_the_same_weights_come_out() -> None:
    asked = lessons("val", 60, 32)
    net, named = train_namer(Extractor(lessons=240), 32)
    for share, own in zip(named_right(net, named, asked), asked[1].T, strict=True):
        count = np.bincount(own[own >= 0])
        guess = count.max() / count.sum()  # right by always saying the most frequent name
        assert share > guess + 3 * np.sqrt(guess * (1 - guess) / count.sum())  # three standard errors: no luck
    again, _ = train_namer(Extractor(lessons=240), 32)
    assert all(torch.equal(values, again.state_dict()[name]) for name, values in net.state_dict().items())
    with pytest.raises(CrossmatchError, match="30 at least"):
        train_namer(Extractor(lessons=3), 32)
