"""The network, its tokeniser and its folder: what goes in comes out the same, alone or in company."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from crossmatch.core.errors import CrossmatchError
from crossmatch.diorama.world import Diorama
from crossmatch.models import make_model
from crossmatch.models.abilities import abilities

torch = pytest.importorskip("torch")
from crossmatch.models.dual import Dual, DualConfig, load, numbered, pixels_of, vocabulary_of  # noqa: E402

TEXTS = ["", "A red cat.", "Wholly unheard-of gibberish", "a cat " * 30, "Two blue cups on a table in the snow."]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    made = Dual(DualConfig(vocabulary_of(TEXTS[1:2] + TEXTS[4:]), pixels=32, dimensions=16, width=4))
    for part in made.net.modules():  # batch norms that would show if they looked at the batch
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.uniform_(-0.1, 0.1)
            part.running_var.uniform_(0.5, 2)
    return made


@pytest.fixture(scope="module")
def pictures():
    world = Diorama.make("val", images=5)
    return [world.picture(n, 64) for n in range(5)]


def test_embeddings_are_unit_vectors_of_single_precision(model, pictures):
    for vectors in (model.embed_images(pictures), model.embed_texts(TEXTS)):
        assert vectors.dtype == np.float32
        assert vectors.shape == (5, 16)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_the_company_in_a_batch_does_not_matter(model, pictures):
    for embed, items in ((model.embed_images, pictures), (model.embed_texts, TEXTS)):
        alone = np.concatenate([embed([item]) for item in items])
        np.testing.assert_allclose(embed(items), alone, atol=1e-5)
        np.testing.assert_allclose(embed(items * 30)[-5:], alone, atol=1e-5)


def test_nothing_in_nothing_out(model):
    assert model.embed_images([]).shape == model.embed_texts([]).shape == (0, 16)


def test_the_order_of_words_matters(model):
    one, other = model.embed_texts(["a red cat on a blue table", "a blue cat on a red table"])
    assert np.abs(one - other).max() > 1e-4


def test_pictures_of_any_size_and_mode_are_taken(model, pictures):
    grey = pictures[0].convert("L").resize((50, 70))
    assert model.embed_images([grey, pictures[0].convert("RGBA")]).shape == (2, 16)
    assert pixels_of([grey], 32).shape == (1, 32, 32, 3)


def test_unknown_words_share_a_number_and_padding_is_zero():
    assert numbered(["cat dog", "bird"], ("cat",)).tolist() == [[2, 1], [1, 0]]
    assert numbered(["", "!"], ("cat",)).shape == (2, 0)


def test_saved_and_loaded_is_the_same(model, pictures, tmp_path):
    model.save(tmp_path)
    again = load(tmp_path)
    assert again.signature == model.signature
    assert again.config == model.config
    np.testing.assert_array_equal(again.embed_images(pictures), model.embed_images(pictures))
    np.testing.assert_array_equal(again.embed_texts(TEXTS), model.embed_texts(TEXTS))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.json", f"weights-{model.weights}.pt"]
    for name in (str(tmp_path), f"dual:{tmp_path}"):
        assert abilities(make_model(name)) == ("embed",)


def test_the_signature_names_weights_and_preprocessing(model):
    other = Dual(model.config)
    name, weights, pixels, precision = model.signature.split("|")
    assert (name, pixels, precision) == ("dual", "pixels:32/box", "fp32")
    assert weights == f"weights:{model.weights}"
    assert other.weights != model.weights


@pytest.mark.parametrize("failing", ["weights", "model.json"])
def test_an_interrupted_save_leaves_the_old_model_whole(model, tmp_path, monkeypatch, failing):
    first = Dual(model.config)
    first.save(tmp_path)
    replace = os.replace

    def dies(source, target):
        if os.path.basename(target).startswith(failing):
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr("crossmatch.core.whole.os.replace", dies)
    with pytest.raises(KeyboardInterrupt):
        model.save(tmp_path)
    assert load(tmp_path).weights == first.weights
    assert not list(tmp_path.glob("*.part"))


def test_an_interrupted_first_save_is_no_model(model, tmp_path, monkeypatch):
    def dies(source, target):
        raise KeyboardInterrupt

    monkeypatch.setattr("crossmatch.core.whole.os.replace", dies)
    with pytest.raises(KeyboardInterrupt):
        model.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_broken_folders_are_named_with_the_remedy(model, tmp_path):
    with pytest.raises(CrossmatchError, match=r"there is no model\.json"):
        load(tmp_path)
    (tmp_path / "model.json").write_text("{")
    with pytest.raises(CrossmatchError, match="not json"):
        load(tmp_path)
    (tmp_path / "model.json").write_text(json.dumps({"family": "other"}))
    with pytest.raises(CrossmatchError, match="does not describe a dual encoder"):
        load(tmp_path)
    model.save(tmp_path)
    weights = tmp_path / f"weights-{model.weights}.pt"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CrossmatchError, match="Train it again"):
        load(tmp_path)
    weights.unlink()
    with pytest.raises(CrossmatchError, match="Train it again"):
        load(tmp_path)


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_naming_models_does_not_import_torch():
    assert run("import sys, crossmatch.models; print('torch' in sys.modules)") == "False"


def test_without_torch_the_extra_is_named():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from crossmatch.core.errors import MissingDependency\n"
        "try: import crossmatch.models.dual\n"
        "except MissingDependency as error: print(error)"
    )
    assert run(code) == "this needs PyTorch, which is not installed. Install it with: pip install 'crossmatch[models]'"
