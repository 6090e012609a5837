"""The small dual encoder: embeddings, words, and the folder of a trained model."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from crossmatch.data.errors import CrossmatchError
from crossmatch.diorama.world import Diorama
from crossmatch.models import make_model
from crossmatch.models.abilities import list_abilities

torch = pytest.importorskip("torch")
from crossmatch.models.baselines.small_dual_encoder import (
    SmallDualEncoder,
    SmallDualEncoderConfig,
    build_vocabulary,
    load,
    number_words,
    resize_images,
)

TEXTS = ["", "A red cat.", "Wholly unheard-of gibberish", "a cat " * 30, "Two blue cups on a table in the snow."]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    encoder = SmallDualEncoder(SmallDualEncoderConfig(build_vocabulary(TEXTS[1:2] + TEXTS[4:]), pixels=32, dimensions=16, width=4))
    for module in encoder.net.modules():  # running statistics that differ from those of a batch
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.uniform_(-0.1, 0.1)
            module.running_var.uniform_(0.5, 2)
    return encoder


@pytest.fixture(scope="module")
def images():
    world = Diorama.make("val", images=5)
    return [world.picture(n, 64) for n in range(5)]


def test_embeddings_are_unit_vectors_in_float32(model, images):
    for vectors in (model.embed_images(images), model.embed_texts(TEXTS)):
        assert vectors.dtype == np.float32
        assert vectors.shape == (5, 16)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_embeddings_do_not_depend_on_the_batch(model, images):
    for embed, items in ((model.embed_images, images), (model.embed_texts, TEXTS)):
        alone = np.concatenate([embed([item]) for item in items])
        np.testing.assert_allclose(embed(items), alone, atol=1e-5)
        np.testing.assert_allclose(embed(items * 30)[-5:], alone, atol=1e-5)


def test_empty_inputs_give_empty_arrays(model):
    assert model.embed_images([]).shape == model.embed_texts([]).shape == (0, 16)


def test_word_order_matters(model):
    first, second = model.embed_texts(["a red cat on a blue table", "a blue cat on a red table"])
    assert np.abs(first - second).max() > 1e-4


def test_images_of_any_size_and_mode_are_embedded(model, images):
    grey = images[0].convert("L").resize((50, 70))
    assert model.embed_images([grey, images[0].convert("RGBA")]).shape == (2, 16)
    assert resize_images([grey], 32).shape == (1, 32, 32, 3)


def test_unknown_words_share_an_id_and_padding_is_zero():
    assert number_words(["cat dog", "bird"], ("cat",)).tolist() == [[2, 1], [1, 0]]
    assert number_words(["", "!"], ("cat",)).shape == (2, 0)


def test_loaded_model_equals_the_saved_one(model, images, tmp_path):
    model.save(tmp_path)
    again = load(tmp_path)
    assert again.signature == model.signature
    assert again.config == model.config
    np.testing.assert_array_equal(again.embed_images(images), model.embed_images(images))
    np.testing.assert_array_equal(again.embed_texts(TEXTS), model.embed_texts(TEXTS))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.json", f"weights-{model.weights}.pt"]
    for name in (str(tmp_path), f"dual:{tmp_path}"):
        assert list_abilities(make_model(name)) == ("embed",)


def test_signature_contains_weights_and_preprocessing(model):
    untrained = SmallDualEncoder(model.config)
    name, weights, pixels, precision = model.signature.split("|")
    assert (name, pixels, precision) == ("dual", "pixels:32/box", "fp32")
    assert weights == f"weights:{model.weights}"
    assert untrained.weights != model.weights


@pytest.mark.parametrize("failing", ["weights", "model.json"])
def test_interrupted_save_keeps_the_old_model(model, tmp_path, monkeypatch, failing):
    first = SmallDualEncoder(model.config)
    first.save(tmp_path)
    replace = os.replace

    def interrupt(source, target):
        if os.path.basename(target).startswith(failing):
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr("crossmatch.data.io.atomic_write.os.replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.save(tmp_path)
    assert load(tmp_path).weights == first.weights
    assert not list(tmp_path.glob("*.part"))


def test_interrupted_first_save_leaves_no_files(model, tmp_path, monkeypatch):
    def interrupt(source, target):
        raise KeyboardInterrupt

    monkeypatch.setattr("crossmatch.data.io.atomic_write.os.replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_damaged_folders_are_refused(model, tmp_path):
    path = tmp_path / "model.json"
    with pytest.raises(CrossmatchError, match=r"there is no model\.json"):
        load(tmp_path)
    model.save(tmp_path)
    description = json.loads(path.read_text())
    for content, message in (
        ("{", "not json"),
        (json.dumps({"family": "other"}), "does not describe a dual encoder"),
        (json.dumps({"family": "dual", "format": 99}), "has format 99; this version reads format 1"),
        (json.dumps({"family": "dual", "format": 1}), "Train it again"),
        (json.dumps(description | {"config": description["config"] | {"width": 5}}), "those of another network.*Train it again"),
    ):
        path.write_text(content)
        with pytest.raises(CrossmatchError, match=message) as caught:
            load(tmp_path)
        assert "\n" not in str(caught.value)
    model.save(tmp_path)
    weights = tmp_path / f"weights-{model.weights}.pt"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CrossmatchError, match="has changed since it was written"):
        load(tmp_path)
    weights.unlink()
    with pytest.raises(CrossmatchError, match="Train it again"):
        load(tmp_path)


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_models_does_not_import_torch():
    assert run("import sys, crossmatch.models; print('torch' in sys.modules)") == "False"


@pytest.mark.parametrize("module", ["small_dual_encoder", "small_grounder", "synthetic_detector"])
def test_missing_torch_names_the_extra(module):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from crossmatch.data.errors import MissingDependencyError\n"
        f"try: import crossmatch.models.baselines.{module}\n"
        "except MissingDependencyError as error: print(error)"
    )
    assert run(code) == "This needs PyTorch, which is not installed. Install it with: pip install 'crossmatch[models]'"
