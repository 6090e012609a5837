"""Trained networks as models: abilities, batching, model folders, and messages about damaged folders."""

from __future__ import annotations

import json

import numpy as np
import pytest

from crossmatch.data.errors import CrossmatchError
from crossmatch.diorama.world import Diorama

torch = pytest.importorskip("torch")

from crossmatch.models import make_model
from crossmatch.models.abilities import list_abilities
from crossmatch.models.zoo import trained_model as module
from crossmatch.models.zoo.network_inputs import MAX_WORDS, Vocabulary
from crossmatch.models.zoo.trained_model import ZooConfig, build_model, load_zoo_model, uncertainty_of_images, uncertainty_of_texts

SMALL = {"dimensions": 16, "word_dimensions": 8}
FAMILIES = {
    "vse": ({}, ("embed",)),
    "vse-infinity": ({}, ("embed",)),
    "vsrn": ({"decoder": 8}, ("embed",)),
    "scan": ({}, ("score", "ground")),
    "sgraf": ({"similarity_dimensions": 8}, ("score",)),
    "pvse": ({"embeddings": 2}, ("score",)),
    "pcme": ({}, ("embed",)),
}
TEXTS = ["", "A red cat.", "Wholly unheard-of gibberish", "a cat " * 30, "Two blue cups on a table in the snow."]
PIXELS = {"kind": "pixels", "side": 16, "width": 4}


def build(family, features=PIXELS, **sizes):
    torch.manual_seed(3)
    return build_model(
        ZooConfig(family, {**SMALL, **FAMILIES[family][0], **sizes}, Vocabulary.from_texts(TEXTS[1:2] + TEXTS[4:]).words, features)
    )


@pytest.fixture(scope="module")
def pictures():
    world = Diorama.make("val", images=6)
    return [world.picture(n, 64) for n in range(6)]


def score(model, images, texts):
    if "score" in list_abilities(model):
        return model.score(images, texts)
    return model.embed_images(images) @ model.embed_texts(texts).T


@pytest.mark.parametrize("family", FAMILIES)
def test_abilities_follow_from_the_network(family):
    assert list_abilities(build(family)) == FAMILIES[family][1]


@pytest.mark.parametrize("features", [PIXELS, {"name": "namer", "side": 16}], ids=["pixels", "regions"])
@pytest.mark.parametrize("family", FAMILIES)
def test_scores_do_not_depend_on_the_batch(family, features, pictures, monkeypatch):
    model = build(family, features)
    together = score(model, pictures, TEXTS)
    alone = np.array([[score(model, [image], [text])[0, 0] for text in TEXTS] for image in pictures])
    assert together == pytest.approx(alone, abs=1e-5)
    monkeypatch.setattr(module, "IMAGE_BATCH", 2)
    monkeypatch.setattr(module, "TEXT_BATCH", 2)
    assert score(model, pictures, TEXTS) == pytest.approx(together, abs=1e-5)
    assert score(model, pictures[::-1], TEXTS[::-1]) == pytest.approx(together[::-1, ::-1], abs=1e-5)
    assert together.std() > 1e-4  # images and texts have an effect


@pytest.mark.parametrize("family", [name for name, (_, abilities) in FAMILIES.items() if "score" in abilities])
def test_pair_scores_are_the_diagonal(family, pictures):
    model = build(family)
    chosen = [pictures[n % 3] for n in range(5)]
    assert model.score_pairs(chosen, TEXTS) == pytest.approx(model.score(chosen, TEXTS).diagonal(), abs=1e-5)
    with pytest.raises(CrossmatchError, match="pass equal numbers"):
        model.score_pairs(chosen, TEXTS[:2])


@pytest.mark.parametrize("family", FAMILIES)
def test_saved_model_loads_with_equal_scores(family, pictures, tmp_path):
    model = build(family, {"name": "namer", "side": 16})
    model.save(tmp_path)
    for name in (str(tmp_path), f"{family}:{tmp_path}"):
        loaded = make_model(name)
        assert loaded.signature == model.signature
        assert np.array_equal(score(loaded, pictures, TEXTS), score(model, pictures, TEXTS))


def test_regions_are_scored_like_their_pictures(pictures):
    for family in ("vse", "scan"):
        model = build(family, {"name": "namer", "side": 16})
        assert model.compare(model.extract_regions(pictures), TEXTS) == pytest.approx(score(model, pictures, TEXTS), abs=1e-5)


def test_model_of_features_from_a_file_rejects_pictures(pictures):
    model = build("vse", {"kind": "file", "dimensions": 20, "source": "train_ims.npy"})
    with pytest.raises(CrossmatchError, match=r"regions:FILE\+FOLDER"):
        model.embed_images(pictures)


def test_grounding_has_a_score_for_each_region(pictures):
    model = build("scan", {"name": "namer", "side": 16})
    grounding = model.ground(pictures[:3], TEXTS[1:4])
    assert grounding.regions.tolist() == model.extract_regions(pictures[:3]).mask.sum(dim=1).tolist()
    assert len(set(grounding.regions.tolist())) > 1  # else nothing is padded
    alone = model.ground(pictures[1:2], TEXTS[2:3])
    assert alone.scores[0, : alone.regions[0]] == pytest.approx(grounding.scores[1, : grounding.regions[1]], abs=1e-5)


def test_only_probabilistic_models_have_an_uncertainty(pictures):
    model = build("pcme")
    uncertainties = uncertainty_of_images(model, pictures), uncertainty_of_texts(model, TEXTS)
    assert [values.shape for values in uncertainties] == [(6,), (5,)]
    assert all((values > 0).all() for values in uncertainties)
    with pytest.raises(CrossmatchError, match="crossmatch train pcme"):
        uncertainty_of_texts(build("vse"), TEXTS)


def test_truncated_texts_and_unknown_words_are_counted():
    model = build("vse")
    assert model.truncated([*TEXTS, "a " * (MAX_WORDS + 1), "a " * MAX_WORDS]).tolist() == [False] * 5 + [True, False]
    assert model.unknown(TEXTS[:3]) == 4  # "unheard-of" is two words


def test_folder_with_nan_weights_or_another_family_is_rejected(tmp_path):
    model = build("vse")
    with torch.no_grad():
        model.match.word_vectors.table.weight[3] = float("nan")
    model.save(tmp_path)
    with pytest.raises(CrossmatchError, match="NaN or infinite"):
        make_model(str(tmp_path))
    build("vse").save(tmp_path)
    description = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(description | {"family": "scan"}))
    with pytest.raises(CrossmatchError, match="has no complete scan model"):
        load_zoo_model(tmp_path, "scan")


def change_config(**changes):
    return lambda model: model | {"config": model["config"] | changes}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: [1], "does not describe a vse model"),
        (lambda model: model | {"config": 3}, "model.json has no table 'config'"),
        (lambda model: model | {"recipe": None}, "model.json has no table 'recipe'"),
        (lambda model: model | {"weights": "../x"}, "expected the name of a file"),
        (lambda model: model | {"weights": 3}, "expected the name of a file"),
        (change_config(vocabulary=3), "is not a list of words"),
        (change_config(vocabulary=[1, 2]), "is not a list of words"),
        (change_config(net=3), "has no complete vse model"),
        (change_config(net={"dimensions": -3}), "it must be at least 1"),
        (change_config(net={"heads": 3}), "has no key 'heads'"),
        (change_config(net={"image": "foo"}), "expected one of linear, mlp, bigru"),
        (change_config(features=3), "has no complete vse model"),
        (change_config(features={"kind": "foo"}), r"there is no kind of regions 'foo'. Known: regions, pixels, file\)"),
        (change_config(features={"kind": ["foo"]}), "there is no kind of regions"),
        (change_config(features={"name": "foo"}), "expected one of namer, efficientnet-lite0"),
        (change_config(features={"kind": "file", "dimensions": "x"}), "expected a whole number"),
    ],
)
def test_wrong_model_json_is_reported(tmp_path, change, message):
    build("vse").save(tmp_path)
    description = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(change(description)))
    with pytest.raises(CrossmatchError, match=message) as error:
        load_zoo_model(tmp_path, "vse")
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


def test_signature_covers_all_settings_that_change_scores():
    """Settings without weights, and the order of the vocabulary: the cache identifies models by the signature alone."""
    model = build("scan")
    variants = [build("scan", direction="i2t"), build("scan", temperature=4.0), build("scan", aggregation="max")]
    assert {variant.weights for variant in variants} == {model.weights}
    reversed_words = ZooConfig("scan", model.config.net, model.config.vocabulary[::-1], model.config.features)
    signatures = {model.signature, *(variant.signature for variant in variants), build_model(reversed_words).signature}
    assert len(signatures) == 5
    assert build("scan").signature == model.signature
