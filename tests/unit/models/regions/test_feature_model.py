"""Models on precomputed regions: their mean, toy models, and models of the zoo."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval
from crossmatch.data.scores import Embeddings, Matrix
from crossmatch.data.trials import Trials, TrialScores
from crossmatch.evaluation.model_scores import get_trial_scores, score_collection, score_trials
from crossmatch.models.abilities import list_abilities
from crossmatch.models.caption_generation import generate_captions
from crossmatch.models.regions import feature_model
from crossmatch.models.regions.feature_files import RegionFile
from crossmatch.models.regions.feature_model import RegionModel, make_region_model

torch = pytest.importorskip("torch")

from crossmatch.models.zoo.network_inputs import Regions

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
    """Scores by the largest dot product of a region with the text, without a vector for the image."""

    signature, longest = "comparing|v1", 2

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def compare(self, regions: Any, texts: Sequence[str]) -> np.ndarray:
        self.asked.append((len(regions), len(texts)))
        text_vectors = torch.from_numpy(np.stack([vector(text) for text in texts]))
        similarities = (regions.features @ text_vectors.T).masked_fill(~regions.mask.unsqueeze(2), -torch.inf)
        return similarities.amax(dim=1).numpy()

    def truncated(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([len(text.split()) > 2 for text in texts])


class Embedding:
    signature = "embedding|v1"
    similarity = "dot"

    def embed_regions(self, regions: Any) -> np.ndarray:
        return np.stack([f[r].sum(dim=0).numpy() for f, r in zip(regions.features, regions.mask, strict=True)])

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        return np.stack([vector(text) for text in texts])


def compared(image: str, text: str) -> float:
    return max(float(region @ vector(text)) for region in regions_of(image))


def embedded(image: str, text: str) -> float:
    return float(regions_of(image).sum(axis=0) @ vector(text))


MODELS = [(Comparing, compared), (Embedding, embedded)]
PETS = Collection.from_captions({"5": ["red cat", "cat"], "1": ["dog"], "3": ["blue dog", "cat"]})
TRIALS = Trials(
    ids=[f"t{n}" for n in range(11)],
    images=[["1", "2"], ["3", "4"]] * 5 + [["5", "1"]],
    captions=[[f"cat {WORDS[n % 4]}", "dog red"] for n in range(11)],
    categories=[""] * 11,
)


def retrieval(collection: Collection) -> Retrieval:
    return Retrieval(collection, {"links": Judgements.from_links(collection)})


def test_image_vector_is_the_mean_of_its_regions(path: Path) -> None:
    source = make_region_model(str(path))
    embeddings = source.scores(retrieval(PETS))
    assert isinstance(embeddings, Embeddings)
    assert embeddings.directions == ("i2i",)
    expected = np.stack([regions_of(name).mean(axis=0) for name in PETS.image_ids.tolist()])
    assert np.abs(embeddings.vectors("image") - expected).max() < 1e-6
    assert list_abilities(source) == ("scores",)


@pytest.mark.parametrize(("model", "expected_score"), MODELS)
def test_collection_is_scored_by_the_model(path: Path, model: type, expected_score: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = np.array([[expected_score(i, t) for t in PETS.texts()] for i in PETS.image_ids.tolist()])
    for block in (512, 2, 1):
        monkeypatch.setattr(feature_model, "IMAGES_PER_BLOCK", block)
        scores = score_collection(RegionModel(RegionFile.open(path), model()), retrieval(PETS))
        assert isinstance(scores, Matrix if model is Comparing else Embeddings)
        rows, columns = np.indices(expected.shape)
        assert np.abs(scores.score_pairs(rows.ravel(), columns.ravel()).reshape(expected.shape) - expected).max() < 1e-5


@pytest.mark.parametrize(("model", "expected_score"), MODELS)
def test_trials_are_scored_by_the_model(path: Path, model: type, expected_score: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = np.array(
        [
            [[expected_score(i, t) for i in images] for t in texts]
            for images, texts in zip(TRIALS.images.tolist(), TRIALS.captions.tolist(), strict=True)
        ]
    )
    for block in (8, 1, 100):
        monkeypatch.setattr(feature_model, "TRIALS_PER_BLOCK", block)
        scores = get_trial_scores(RegionModel(RegionFile.open(path), model()), TRIALS)
        assert scores.shape == (11, 2, 2)
        assert np.abs(scores - expected).max() < 1e-5


def test_distinct_texts_are_compared_once(path: Path) -> None:
    model = Comparing()
    RegionModel(RegionFile.open(path), model).scores(retrieval(PETS))
    assert model.asked == [(3, 4)]


def test_missing_images_are_listed(path: Path) -> None:
    collection = Collection.from_captions({"1": ["cat"], "77": ["dog"]})
    for model in (None, Comparing(), Embedding()):
        with pytest.raises(CrossmatchError, match=r"regions of 1 of 2 images; missing: '77' \(ids in the file look like '1'\)"):
            RegionModel(RegionFile.open(path), model).scores(retrieval(collection))


@pytest.mark.parametrize(("model", "expected_score"), MODELS)
def test_trials_with_missing_images_stay_unanswered(path: Path, model: type, expected_score: Any) -> None:
    trials = Trials(["a", "b"], [["1", "2"], ["1", "9"]], [["cat"], ["dog"]], ["", ""])
    source = RegionModel(RegionFile.open(path), model())
    scores = source.scores(trials)
    assert isinstance(scores, TrialScores)
    assert scores.ids.tolist() == ["a"]
    ((answered, _),) = score_trials(source, [trials], allow_missing=True)
    assert answered.ids.tolist() == ["a"]
    with pytest.raises(CrossmatchError, match="b"):
        score_trials(source, [trials])
    with pytest.raises(CrossmatchError, match="missing: '8', '9'"):
        source.scores(Trials(["a"], [["8", "9"]], [["cat"]], [""]))


def test_trials_need_a_model(path: Path) -> None:
    with pytest.raises(CrossmatchError, match=r"cannot compare images with texts.*regions:.*\+FOLDER"):
        RegionModel(RegionFile.open(path)).scores(TRIALS)


def test_name_has_a_file_and_an_optional_folder(
    path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("runs") / "a+b"
    folder.mkdir()
    (folder / "model.json").write_text("{}")
    monkeypatch.setattr("crossmatch.models.make_model", {str(folder): Comparing()}.__getitem__)
    source = make_region_model(f"{path}+{folder}")
    assert isinstance(source.model, Comparing)
    assert source.signature == f"regions:{path.name}|npz folder:{source.file.hash}|model:comparing|v1"
    assert source.truncated(["a b", "a b c"]).tolist() == [False, True]
    assert source.longest == 2
    bare = make_region_model(str(path))
    assert bare.signature.endswith("|mean")
    assert not bare.truncated(["a b c"]).any()


def test_wrong_names_are_refused(path: Path) -> None:
    with pytest.raises(UsageError, match="needs a file"):
        make_region_model("")
    with pytest.raises(UsageError, match="there is no file nowhere"):
        make_region_model("nowhere.npy+runs/scan")
    with pytest.raises(UsageError, match="there is no trained model in 'runs/none'"):
        make_region_model(f"{path}+runs/none")
    with pytest.raises(UsageError, match=r"contains a int, which cannot compare regions with texts"):
        RegionModel(RegionFile.open(path), 7, "x")


def test_features_must_have_the_width_of_the_model(path: Path) -> None:
    model = Comparing()
    model.extractor = type("Extractor", (), {"dimensions": 2048})()  # type: ignore[attr-defined]
    with pytest.raises(CrossmatchError, match="has 4 numbers for each region; scan was trained with 2048"):
        RegionModel(RegionFile.open(path), model, "scan")


@pytest.mark.parametrize(
    ("family", "sizes"), [("vse", {"dimensions": 8, "word_dimensions": 5}), ("scan", {"dimensions": 8, "word_dimensions": 5})]
)
def test_zoo_model_scores_regions_of_a_file(
    path: Path, tmp_path_factory: pytest.TempPathFactory, family: str, sizes: dict[str, int]
) -> None:
    from crossmatch.models import make_model
    from crossmatch.models.zoo.trained_model import ZooConfig, build_model

    torch.manual_seed(0)
    model = build_model(ZooConfig(family, sizes, WORDS, {"kind": "file", "dimensions": F}))
    folder = tmp_path_factory.mktemp("zoo")
    model.save(folder)
    source = make_model(f"regions:{path}+{folder}")
    scores = get_trial_scores(source, TRIALS)
    for n in (0, 5, 10):
        single = [RegionFile.open(path).take([name]) for name in TRIALS.images[n].tolist()]
        regions = [Regions(*map(torch.from_numpy, arrays)) for arrays in single]
        expected = np.stack([model.compare(arrays, TRIALS.captions[n].tolist())[0] for arrays in regions], axis=1)
        assert np.abs(scores[n] - expected).max() < 1e-5
    collection_scores = score_collection(source, retrieval(PETS))
    assert collection_scores.directions == (("i2t", "t2i", "t2t", "i2i") if family == "vse" else ("i2t", "t2i"))


def zoo_source(path: Path, folder: Path, family: str, **sizes: int) -> Any:
    """An untrained model of the zoo on the regions of the file."""
    from crossmatch.models import make_model
    from crossmatch.models.zoo.trained_model import ZooConfig, build_model

    torch.manual_seed(0)
    sizes = {"dimensions": 8, "word_dimensions": 5, **sizes}
    build_model(ZooConfig(family, sizes, WORDS, {"kind": "file", "dimensions": F})).save(folder)
    return make_model(f"regions:{path}+{folder}")


def test_texts_are_grounded_in_the_regions_of_each_id(path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    source = zoo_source(path, tmp_path_factory.mktemp("zoo"), "scan")
    assert list_abilities(source) == ("ground", "scores")
    ids, texts = ["4", "2", "4", "1"], ["red cat", "dog", "blue", "cat dog"]
    together = source.ground(ids, texts)
    assert together.regions.tolist() == [COUNTS[name] for name in ids]
    for n, (name, text) in enumerate(zip(ids, texts, strict=True)):
        alone = source.ground([name], [text])
        np.testing.assert_allclose(together.scores[n, : COUNTS[name]], alone.scores[0], atol=1e-6)
        reordered = torch.from_numpy(regions_of(name)[::-1].copy())[None]
        mask, boxes = torch.ones(reordered.shape[:2], dtype=torch.bool), torch.zeros(*reordered.shape[:2], 4)
        encoded = source.model.match.images(Regions(reordered, mask, boxes))
        words = source.model.match.texts(source.model.read([text]))
        with torch.inference_mode():
            scores = source.model.match.region_grounding(encoded, words)[0].numpy()[::-1]
        np.testing.assert_allclose(alone.scores[0], scores, atol=1e-5)  # a region's score belongs to its features
    assert together.boxes is not None
    assert np.isnan(together.boxes).all()  # the file has none
    with pytest.raises(CrossmatchError, match="missing: '77'"):
        source.ground(["77"], ["cat"])
    with pytest.raises(CrossmatchError, match="2 images and 1 texts"):
        source.ground(["1", "2"], ["cat"])


def test_captions_are_written_for_ids(path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    source = zoo_source(path, tmp_path_factory.mktemp("zoo"), "up-down", attention=4)
    assert list_abilities(source) == ("caption", "scores")
    captions = generate_captions(source, PETS, batch=2, decoding="greedy", longest=4)  # the collection has no images
    assert list(captions) == PETS.image_ids.tolist()
    for name, caption in captions.items():
        regions = Regions(*map(torch.from_numpy, RegionFile.open(path).take([name])))
        assert [caption] == source.model.caption_regions(regions, decoding="greedy", longest=4)
    assert source.cut_short(["a b", "a"]).tolist() == [False, False]
