"""Regions in a file as a model: their mean, and what a stand-in for a trained model makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossmatch.core.benchmark import Retrieval
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements
from crossmatch.core.scores import Embeddings, Matrix
from crossmatch.core.trials import Trials, TrialScores
from crossmatch.models import region_source
from crossmatch.models.abilities import abilities, outcomes_of, scores_of, trial_scores_of
from crossmatch.models.region_files import RegionFile
from crossmatch.models.region_source import RegionSource

torch = pytest.importorskip("torch")

F = 4
COUNTS = {"1": 3, "2": 1, "3": 2, "4": 3, "5": 2}
WORDS = ("cat", "dog", "red", "blue")


def regions_of(name: str) -> np.ndarray:
    return np.random.default_rng(int(name)).normal(size=(COUNTS[name], F)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    for name in COUNTS:
        np.savez(tmp_path / f"{name}.npz", feat=regions_of(name))
    return tmp_path


def vector(text: str) -> np.ndarray:
    return np.array([1 + text.split().count(word) for word in WORDS], dtype=np.float32)


class Comparing:
    """The largest dot product of a region with the text: what is compared region by region has no vector."""

    signature, longest = "comparing|v1", 2

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def compare(self, regions: Any, texts: Sequence[str]) -> np.ndarray:
        self.asked.append((len(regions), len(texts)))
        said = torch.from_numpy(np.stack([vector(text) for text in texts]))
        found = (regions.features @ said.T).masked_fill(~regions.real.unsqueeze(2), -torch.inf)
        return found.amax(dim=1).numpy()

    def truncated(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([len(text.split()) > 2 for text in texts])


class Embedding:
    signature = "embedding|v1"
    similarity = "dot"

    def embed_regions(self, regions: Any) -> np.ndarray:
        return np.stack([f[r].sum(dim=0).numpy() for f, r in zip(regions.features, regions.real, strict=True)])

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        return np.stack([vector(text) for text in texts])


def compared(image: str, text: str) -> float:
    return max(float(region @ vector(text)) for region in regions_of(image))


def embedded(image: str, text: str) -> float:
    return float(regions_of(image).sum(axis=0) @ vector(text))


MODELS = [(Comparing, compared), (Embedding, embedded)]
PETS = Collection.of({"5": ["red cat", "cat"], "1": ["dog"], "3": ["blue dog", "cat"]})
TRIALS = Trials(
    ids=[f"t{n}" for n in range(11)],
    images=[["1", "2"], ["3", "4"]] * 5 + [["5", "1"]],
    captions=[[f"cat {WORDS[n % 4]}", "dog red"] for n in range(11)],
    categories=[""] * 11,
)


def searched(collection: Collection) -> Retrieval:
    return Retrieval(collection, {"links": Judgements.from_links(collection)})


def test_without_a_model_images_are_the_mean_of_their_regions(path: Path) -> None:
    source = RegionSource.from_name(str(path))
    said = source.scores(searched(PETS))
    assert isinstance(said, Embeddings)
    assert said.directions == ("i2i",)
    expected = np.stack([regions_of(name).mean(axis=0) for name in PETS.image_ids.tolist()])
    assert np.abs(said.vectors("image") - expected).max() < 1e-6
    assert abilities(source) == ("scores",)


@pytest.mark.parametrize(("model", "truth"), MODELS)
def test_a_collection_with_a_model(path: Path, model: type, truth: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = np.array([[truth(i, t) for t in PETS.texts()] for i in PETS.image_ids.tolist()])
    for block in (512, 2, 1):
        monkeypatch.setattr(region_source, "IMAGES", block)
        said = scores_of(RegionSource(RegionFile.open(path), model()), searched(PETS))
        assert isinstance(said, Matrix if model is Comparing else Embeddings)
        rows, columns = np.indices(expected.shape)
        assert np.abs(said.pairs(rows.ravel(), columns.ravel()).reshape(expected.shape) - expected).max() < 1e-5


@pytest.mark.parametrize(("model", "truth"), MODELS)
def test_trials_with_a_model(path: Path, model: type, truth: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = np.array(
        [
            [[truth(i, t) for i in images] for t in texts]
            for images, texts in zip(TRIALS.images.tolist(), TRIALS.captions.tolist(), strict=True)
        ]
    )
    for block in (8, 1, 100):
        monkeypatch.setattr(region_source, "TRIALS", block)
        found = trial_scores_of(RegionSource(RegionFile.open(path), model()), TRIALS)
        assert found.shape == (11, 2, 2)
        assert np.abs(found - expected).max() < 1e-5


def test_each_distinct_text_is_compared_once(path: Path) -> None:
    model = Comparing()
    RegionSource(RegionFile.open(path), model).scores(searched(PETS))
    assert model.asked == [(3, 4)]


def test_missing_images_of_a_collection_are_named(path: Path) -> None:
    collection = Collection.of({"1": ["cat"], "77": ["dog"]})
    for model in (None, Comparing(), Embedding()):
        with pytest.raises(CrossmatchError, match=r"regions of 1 of 2 images; missing: '77' \(its own ids are like '1'\)"):
            RegionSource(RegionFile.open(path), model).scores(searched(collection))


@pytest.mark.parametrize(("model", "truth"), MODELS)
def test_trials_with_missing_images_are_left_unanswered(path: Path, model: type, truth: Any) -> None:
    trials = Trials(["a", "b"], [["1", "2"], ["1", "9"]], [["cat"], ["dog"]], ["", ""])
    source = RegionSource(RegionFile.open(path), model())
    said = source.scores(trials)
    assert isinstance(said, TrialScores)
    assert said.ids.tolist() == ["a"]
    ((answered, _),) = outcomes_of(source, [trials], partial=True)
    assert answered.ids.tolist() == ["a"]
    with pytest.raises(CrossmatchError, match="b"):
        outcomes_of(source, [trials])
    with pytest.raises(CrossmatchError, match="missing: '8', '9'"):
        source.scores(Trials(["a"], [["8", "9"]], [["cat"]], [""]))


def test_trials_without_a_model_are_refused(path: Path) -> None:
    with pytest.raises(CrossmatchError, match=r"compares no images with texts.*regions:.*\+FOLDER"):
        RegionSource(RegionFile.open(path)).scores(TRIALS)


def test_the_name_has_a_file_and_perhaps_a_folder(path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("runs") / "a+b"
    folder.mkdir()
    (folder / "model.json").write_text("{}")
    loaded: list[Path] = []

    def load(given: Path) -> object:
        loaded.append(given)
        return Comparing()

    source = RegionSource.from_name(f"{path}+{folder}", load)
    assert loaded == [folder]
    assert isinstance(source.model, Comparing)
    assert source.signature == f"regions:{path.name}|npz folder:{source.file.hash}|model:comparing|v1"
    assert source.truncated(["a b", "a b c"]).tolist() == [False, True]
    assert source.longest == 2
    bare = RegionSource.from_name(str(path))
    assert bare.signature.endswith("|mean")
    assert not bare.truncated(["a b c"]).any()


def test_wrong_words(path: Path) -> None:
    with pytest.raises(WrongWords, match="needs a file"):
        RegionSource.from_name("")
    with pytest.raises(WrongWords, match="there is no file nowhere"):
        RegionSource.from_name("nowhere.npy+runs/scan")
    with pytest.raises(WrongWords, match="there is no trained model in 'runs/none'"):
        RegionSource.from_name(f"{path}+runs/none")
    with pytest.raises(WrongWords, match=r"holds a int, which cannot compare regions with texts"):
        RegionSource(RegionFile.open(path), 7, "x")


def test_features_of_another_width_than_the_models(path: Path) -> None:
    model = Comparing()
    model.eyes = type("Eyes", (), {"dimensions": 2048})()  # type: ignore[attr-defined]
    with pytest.raises(CrossmatchError, match="has 4 numbers for each region; scan was trained with 2048"):
        RegionSource(RegionFile.open(path), model, "scan")


@pytest.mark.parametrize(
    ("family", "sizes"), [("vse", {"dimensions": 8, "word_dimensions": 5}), ("scan", {"dimensions": 8, "word_dimensions": 5})]
)
def test_a_model_of_the_zoo_from_its_folder(
    path: Path, tmp_path_factory: pytest.TempPathFactory, family: str, sizes: dict[str, int]
) -> None:
    from crossmatch.models import make_model
    from crossmatch.models.zoo.inputs import Regions
    from crossmatch.models.zoo.model import ZooConfig, made

    torch.manual_seed(0)
    model = made(ZooConfig(family, sizes, WORDS, {"kind": "file", "dimensions": F}))
    folder = tmp_path_factory.mktemp("zoo")
    model.save(folder)
    source = make_model(f"regions:{path}+{folder}")
    found = trial_scores_of(source, TRIALS)
    for n in (0, 5, 10):
        alone = [RegionFile.open(path).take([name]) for name in TRIALS.images[n].tolist()]
        given = [Regions(*map(torch.from_numpy, each)) for each in alone]
        expected = np.stack([model.compare(each, TRIALS.captions[n].tolist())[0] for each in given], axis=1)
        assert np.abs(found[n] - expected).max() < 1e-5
    said = scores_of(source, searched(PETS))
    assert said.directions == (("i2t", "t2i", "t2t", "i2i") if family == "vse" else ("i2t", "t2i"))
