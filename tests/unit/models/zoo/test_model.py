"""Every family as a model: what it can do, alone and in company, from regions and from pixels, and back from its folder."""

from __future__ import annotations

import json

import numpy as np
import pytest

from crossmatch.core.errors import CrossmatchError
from crossmatch.diorama.world import Diorama

torch = pytest.importorskip("torch")

from crossmatch.models import make_model  # noqa: E402
from crossmatch.models.abilities import abilities  # noqa: E402
from crossmatch.models.zoo import model as module  # noqa: E402
from crossmatch.models.zoo.inputs import LONGEST, Vocabulary  # noqa: E402
from crossmatch.models.zoo.model import ZooConfig, load, made, uncertainty_of_images, uncertainty_of_texts  # noqa: E402

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


def built(family, features=PIXELS, **sizes):
    torch.manual_seed(3)
    return made(ZooConfig(family, {**SMALL, **FAMILIES[family][0], **sizes}, Vocabulary.of(TEXTS[1:2] + TEXTS[4:]).words, features))


@pytest.fixture(scope="module")
def pictures():
    world = Diorama.make("val", images=6)
    return [world.picture(n, 64) for n in range(6)]


def compared(model, images, texts):
    if "score" in abilities(model):
        return model.score(images, texts)
    return model.embed_images(images) @ model.embed_texts(texts).T


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_can_do_what_its_network_has(family):
    assert abilities(built(family)) == FAMILIES[family][1]


@pytest.mark.parametrize("features", [PIXELS, {"name": "namer", "side": 16}], ids=["pixels", "regions"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_score_does_not_depend_on_its_company(family, features, pictures, monkeypatch):
    model = built(family, features)
    together = compared(model, pictures, TEXTS)
    alone = np.array([[compared(model, [image], [text])[0, 0] for text in TEXTS] for image in pictures])
    assert together == pytest.approx(alone, abs=1e-5)
    monkeypatch.setattr(module, "IMAGES", 2)
    monkeypatch.setattr(module, "TEXTS", 2)
    assert compared(model, pictures, TEXTS) == pytest.approx(together, abs=1e-5)
    assert compared(model, pictures[::-1], TEXTS[::-1]) == pytest.approx(together[::-1, ::-1], abs=1e-5)
    assert together.std() > 1e-4  # it does look


@pytest.mark.parametrize("family", [name for name, (_, can) in FAMILIES.items() if "score" in can])
def test_pairs_are_the_diagonal_of_all(family, pictures):
    model = built(family)
    chosen = [pictures[n % 3] for n in range(5)]
    assert model.score_pairs(chosen, TEXTS) == pytest.approx(model.score(chosen, TEXTS).diagonal(), abs=1e-5)
    with pytest.raises(CrossmatchError, match="as many of one"):
        model.score_pairs(chosen, TEXTS[:2])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_gives_the_same_model_back(family, pictures, tmp_path):
    model = built(family, {"name": "namer", "side": 16})
    model.save(tmp_path)
    again = make_model(str(tmp_path))
    assert again.signature == model.signature
    assert np.array_equal(compared(again, pictures, TEXTS), compared(model, pictures, TEXTS))
    assert np.array_equal(compared(make_model(f"{family}:{tmp_path}"), pictures, TEXTS), compared(model, pictures, TEXTS))


def test_regions_that_are_there_need_no_picture(pictures):
    for family in ("vse", "scan"):
        model = built(family, {"name": "namer", "side": 16})
        assert model.compare(model.see(pictures), TEXTS) == pytest.approx(compared(model, pictures, TEXTS), abs=1e-5)


def test_a_model_of_features_from_a_file_cannot_see_pictures(pictures):
    model = built("vse", {"kind": "file", "dimensions": 20, "source": "train_ims.npy"})
    with pytest.raises(CrossmatchError, match=r"regions:FILE\+FOLDER"):
        model.embed_images(pictures)


def test_scan_grounds_in_the_regions_that_a_picture_has(pictures):
    model = built("scan", {"name": "namer", "side": 16})
    found = model.ground(pictures[:3], TEXTS[1:4])
    seen = model.see(pictures[:3])
    assert found.regions.tolist() == seen.real.sum(dim=1).tolist()
    assert len(set(found.regions.tolist())) > 1  # else nothing is filled up
    one = model.ground(pictures[1:2], TEXTS[2:3])
    assert one.scores[0, : one.regions[0]] == pytest.approx(found.scores[1, : found.regions[1]], abs=1e-5)


def test_only_distributions_have_an_uncertainty(pictures):
    model = built("pcme")
    unsure = uncertainty_of_images(model, pictures), uncertainty_of_texts(model, TEXTS)
    assert [part.shape for part in unsure] == [(6,), (5,)]
    assert all((part > 0).all() for part in unsure)
    with pytest.raises(CrossmatchError, match="crossmatch train pcme"):
        uncertainty_of_texts(built("vse"), TEXTS)


def test_what_is_cut_off_and_what_is_unknown_is_counted():
    model = built("vse")
    assert model.truncated([*TEXTS, "a " * (LONGEST + 1), "a " * LONGEST]).tolist() == [False] * 5 + [True, False]
    assert model.unknown(TEXTS[:3]) == 4  # "unheard-of" is two words


def test_a_broken_folder_is_refused(tmp_path):
    model = built("vse")
    with torch.no_grad():
        model.match.word_vectors.table.weight[3] = float("nan")
    model.save(tmp_path)
    with pytest.raises(CrossmatchError, match="NaN or infinite"):
        make_model(str(tmp_path))
    built("vse").save(tmp_path)
    told = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(told | {"family": "scan"}))
    with pytest.raises(CrossmatchError, match="holds no whole scan model"):
        load(tmp_path, "scan")


def config(**changed):
    return lambda told: told | {"config": told["config"] | changed}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda told: [1], "does not describe a vse model"),
        (lambda told: told | {"config": 3}, "model.json has no table 'config'"),
        (lambda told: told | {"recipe": None}, "model.json has no table 'recipe'"),
        (lambda told: told | {"weights": "../x"}, "the name of a file beside it was expected"),
        (lambda told: told | {"weights": 3}, "the name of a file beside it was expected"),
        (config(vocabulary=3), "is no list of words"),
        (config(vocabulary=[1, 2]), "is no list of words"),
        (config(net=3), "holds no whole vse model"),
        (config(net={"dimensions": -3}), "it must be at least 1"),
        (config(net={"heads": 3}), "has no key 'heads'"),
        (config(net={"image": "foo"}), "one of linear, mlp, bigru was expected"),
        (config(features=3), "holds no whole vse model"),
        (config(features={"kind": "foo"}), r"there is no kind of regions 'foo'. Known: regions, pixels, file\)"),
        (config(features={"kind": ["foo"]}), "there is no kind of regions"),
        (config(features={"name": "foo"}), "one of namer, efficientnet-lite0 was expected"),
        (config(features={"kind": "file", "dimensions": "x"}), "a whole number was expected"),
    ],
)
def test_a_model_json_that_was_changed_by_hand_is_named(tmp_path, change, says):
    built("vse").save(tmp_path)
    told = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(change(told)))
    with pytest.raises(CrossmatchError, match=says) as error:
        load(tmp_path, "vse")
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


def test_the_signature_tells_all_that_a_score_depends_on():
    """Settings without a weight of their own, and the order of the words: the cache knows models by this line alone."""
    model = built("scan")
    others = [built("scan", direction="i2t"), built("scan", temperature=4.0), built("scan", aggregation="max")]
    for other in others:
        assert other.weights == model.weights
    turned = ZooConfig("scan", model.config.net, model.config.vocabulary[::-1], model.config.features)
    lines = {model.signature, *(other.signature for other in others), module.made(turned).signature}
    assert len(lines) == 5
    assert built("scan").signature == model.signature
