"""Cached region features of splits and collections."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError

torch = pytest.importorskip("torch")

from crossmatch.diorama.world import Diorama
from crossmatch.models.zoo.region_extractors import ExtractorSettings
from crossmatch.train.data import region_feature_cache as module
from crossmatch.train.data.diorama_images import ScenePart
from crossmatch.train.data.region_feature_cache import (
    RegionStore,
    collection_features,
    diorama_features,
    features_folder,
    load_extractor,
)

SMALL = ExtractorSettings(lessons=60)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with a small trained namer."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        load_extractor(SMALL)
    return folder


@pytest.fixture
def cache(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared))
    return shared


def test_stored_features_equal_extracted_ones(cache: Path) -> None:
    world = Diorama.make("val", images=5)
    store = diorama_features("val", 5, SMALL)
    assert len(store) == 5
    extractor = load_extractor(SMALL)
    numbers = [3, 0, 3]
    fresh, stored = extractor.regions([world.picture(n) for n in numbers]), store.take(np.array(numbers))
    assert torch.equal(stored.mask, fresh.mask)
    assert stored.features.dtype == torch.float32
    torch.testing.assert_close(stored.features, fresh.features, rtol=1e-3, atol=1e-3)  # half precision has 11 bits
    torch.testing.assert_close(stored.boxes, fresh.boxes)


def test_features_are_cached(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = diorama_features("val", 4, SMALL)
    monkeypatch.setattr(module, "map_scene_parts", lambda *_: pytest.fail("made again"))
    again = diorama_features("val", 4, SMALL)
    np.testing.assert_array_equal(first.features, again.features)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    drawn = []
    monkeypatch.setattr(
        module,
        "map_scene_parts",
        lambda *arguments: drawn.append(arguments) or [module._draw_and_extract(SMALL, ScenePart("val", range(3), 256))],
    )
    diorama_features("val", 3, SMALL)
    diorama_features("test", 3, SMALL)
    assert len(drawn) == 2


def test_damaged_or_incomplete_features_are_computed_again(cache: Path) -> None:
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


@pytest.mark.slow
def test_two_processes_compute_the_same_features(cache: Path) -> None:
    script = (
        "from crossmatch.train.data.region_feature_cache import diorama_features as d; from crossmatch.models.zoo.region_extractors import ExtractorSettings as E; "
        "import hashlib; s = d('test', 6, E(lessons=60)); print(len(s), hashlib.sha256(s.features.tobytes()).hexdigest())"
    )
    processes = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith("6 ")


def test_collection_features_follow_its_order_and_content(cache: Path) -> None:
    world = Diorama.make("val", images=5)
    opened = []

    def open_image(name: str) -> Image.Image:
        opened.append(name)
        return world.picture(int(name))

    collection = Collection.from_captions({str(n): ["a picture"] for n in (4, 0, 2)}, open_image)
    store = collection_features(collection, SMALL)
    split = diorama_features("val", 5, SMALL).take([4, 0, 2])
    torch.testing.assert_close(store.take(range(3)).features, split.features, rtol=2e-3, atol=2e-3)
    opened.clear()
    collection_features(collection, SMALL)
    assert len(opened) == 3  # for their hashes only
    changed = Collection.from_captions({str(n): ["a picture"] for n in (4, 0, 2)}, lambda name: world.picture(int(name) // 2))
    assert not np.array_equal(collection_features(changed, SMALL).features[:5], store.features[:5])


def test_collection_without_readable_images_is_refused(cache: Path) -> None:
    with pytest.raises(CrossmatchError, match="no images"):
        collection_features(Collection.from_captions({"a": ["b"]}), SMALL)

    def broken(name: str) -> Image.Image:
        raise OSError("truncated")

    with pytest.raises(CrossmatchError, match="'a'"):
        collection_features(Collection.from_captions({"a": ["b"]}, broken), SMALL)


def test_unwritable_cache_is_reported(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CrossmatchError, match="XDG_CACHE_HOME"):
        load_extractor(SMALL)


def test_take_equals_a_loop() -> None:
    rng = np.random.default_rng(0)
    begin = np.array([0, 3, 4, 9, 11])
    store = RegionStore(rng.normal(size=(11, 5)).astype(np.float16), rng.random((11, 4), dtype=np.float32), begin)
    for numbers in ([0, 1, 2, 3], [2], [3, 1, 1], [-1]):
        regions = store.take(numbers)
        for row, n in enumerate(numbers):
            rows = slice(begin[n % 4], begin[n % 4 + 1])
            count = rows.stop - rows.start
            assert regions.mask[row].tolist() == [k < count for k in range(regions.mask.shape[1])]
            np.testing.assert_array_equal(regions.features[row, :count], store.features[rows].astype(np.float32))
            np.testing.assert_array_equal(regions.boxes[row, :count], store.boxes[rows])
            assert not regions.features[row, count:].any()
    with pytest.raises(IndexError):
        store.take([4])
