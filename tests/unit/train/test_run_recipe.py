"""From a recipe to a folder with a trained model: training, resuming, loading, and errors."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.models import make_model
from crossmatch.train import loop, run_recipe
from crossmatch.train.data.sources import DataOptions
from crossmatch.train.run_recipe import train_recipe

sys.path.insert(0, str(Path(__file__).parent))
from toy import interrupt, stop_at_step, toy_data, write_scan_folder

SMALL = ("model.dimensions=24", "model.word_dimensions=8", "train.fewest=1", "train.batch=16", "train.learning_rate=2e-2",
         "train.schedule=one-cycle", "train.epochs=4")  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The toy in SCAN's layout."""
    return write_scan_folder(tmp_path_factory.mktemp("toy"), toy_data(80, 0), toy_data(20, 1))


@pytest.fixture
def train(data, tmp_path):
    def call(recipe="vse0", output="run", overrides=(), **more):
        return train_recipe(recipe, tmp_path / output, data=data, overrides=[*SMALL, *overrides], **more)

    return call


def file_names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("recipe", ["vse0", "vse++", "vse-semi-hard", "convnet-bow", "convnet-bigru", "obj-bigru"])
def test_vse_recipe_learns(train, tmp_path, recipe):
    """On images and captions of the validation split; chance is 203 of 600."""
    hidden = ["model.hidden=32"] if recipe.startswith("convnet") else []
    warm = ["objective.warm_up=0.5"] if recipe != "vse0" else []
    model = train(recipe, overrides=[*hidden, *warm])
    assert model.recipe["validation"] > 330
    assert file_names(tmp_path / "run") == sorted(["lock", "log.csv", "model.json", f"weights-{model.weights}.pt"])


def test_model_json_describes_the_training(train, tmp_path, data):
    model = train()
    again = make_model(str(tmp_path / "run"))
    assert again.weights == model.weights
    description = json.loads((tmp_path / "run/model.json").read_text())["recipe"]
    assert (description["name"], description["data"], description["family"]) == ("vse0", data, "vse")
    assert (description["train"]["learning_rate"], description["train"]["seed"], description["objective"]["margin"]) == (
        2e-2,
        0,
        0.2,
    )
    assert len(description["hash"]) == len(description["data_hash"]) == 12
    assert description["best_epoch"] <= description["epochs"] == 4


def test_finished_model_is_loaded_and_a_damaged_one_trained_again(train, tmp_path, monkeypatch):
    first = train()
    calls, messages = [], []
    monkeypatch.setattr(run_recipe, "fit", lambda *arguments, **more: calls.append(arguments) or loop.fit(*arguments, **more))
    assert train(notify=messages.append).weights == first.weights
    assert not calls
    assert "nothing left to train" in messages[0]
    (tmp_path / f"run/weights-{first.weights}.pt").write_bytes(b"broken")
    assert train().weights == first.weights
    assert len(calls) == 1


def test_interrupted_save_needs_no_further_steps(train, tmp_path, monkeypatch):
    whole = train(output="whole").weights

    monkeypatch.setattr(run_recipe, "_save", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train()
    assert "model.json" not in file_names(tmp_path / "run")
    monkeypatch.undo()
    steps = stop_at_step(monkeypatch, 1)
    assert train().weights == whole
    assert not steps


def test_another_recipe_or_other_data_are_refused_without_restart(train, tmp_path, monkeypatch):
    first = train()
    for changes in ({"overrides": ["train.seed=1"]}, {"recipe": "vse++"}, {"options": DataOptions(images=50)}):
        with pytest.raises(CrossmatchError, match=r"run: the folder contains the finished model of (another|other).*--restart"):
            train(**changes)
    assert make_model(str(tmp_path / "run")).weights == first.weights
    (tmp_path / "run/notes.txt").write_text("mine")
    second = train(overrides=["train.seed=1"], restart=True)
    assert second.weights != first.weights
    assert file_names(tmp_path / "run") == sorted(["lock", "log.csv", "model.json", "notes.txt", f"weights-{second.weights}.pt"])


def test_checkpoint_of_another_recipe_is_refused(train, tmp_path, monkeypatch):
    monkeypatch.setattr(run_recipe, "_save", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train()
    monkeypatch.undo()
    with pytest.raises(CrossmatchError, match=r"a checkpoint of another recipe \(train.seed was 0, is now 1\).*--restart"):
        train(overrides=["train.seed=1"])
    assert train(overrides=["train.seed=1"], restart=True).weights == train(output="b", overrides=["train.seed=1"]).weights


INVALID = [
    ("vse0", "model.dimensions=-5", "it must be at least 1 and at most 65536"),
    ("vse0", "model.dimensions=100000000000", "it must be at least 1 and at most 65536"),
    ("vse0", "model.dimensions=many", "expected a whole number"),
    ("vse0", "model.dimension=3", r"\[model\] has no key 'dimension'. Did you mean 'dimensions'"),
    ("vse0", "model.words=3", "no key 'words'"),
    ("vse0", "model.image=gur", "one of linear, mlp, bigru"),
    ("scan-t2i", "model.word_dimensions=0", "word_dimensions = 0; it must be"),
    ("sgr", "model.steps=0", "steps = 0; it must be"),
    ("vsrn", "model.layers=-1", "layers = -1; it must be"),
    ("pvse-k2", "model.embeddings=0", "embeddings = 0; it must be"),
    ("pcme", "model.samples=100000000", "it must be at least 1 and at most 1024"),
    ("pcme", "model.scale=nan", "it must be finite"),
    ("pcme", "model.log_sigma=1000", "it must be at least -20 and at most 20"),
    ("de-i2t", "model.heads=7", r"text_dimensions = 384 and heads = 7"),
    ("de-i2t", "model.dropout=2", "dropout = 2.0; it must be at least 0 and at most 0.99"),
    ("clip", "model.text_heads=0", "it must be at least 1 and at most 1024"),
    ("clip", "model.image_layers=0", "it must be at least 1 and at most 64"),
    ("vse0", "objective.margin=nan", "margin = NaN; it must be"),
    ("vse0", "objective.margin=-1", "margin = -1.0; it must be at least 0"),
    ("vse0", "objective.warm_up=half", "expected a number"),
    ("vse0", "objective.warm_up=3", "it must be at least 0 and at most 1"),
    ("vse0", "objective.negatives=few", "expected one of sum, semi-hard, hardest"),
    ("vse0", "objective.margn=1", "Did you mean 'margin'"),
    ("vse0", "objective.name=pcme", "works with pcme only"),
    ("vse0", "objective.name=tripel", "Did you mean 'triplet'"),
    ("vse0", "objective.name=3", "expected a text"),
    ("vse0", "features.name=bla", "expected one of namer, efficientnet-lite0"),
    ("vse0", "features.nmae=namer", "Did you mean 'name'"),
    ("vse0", "features.side=-3", "it must be at least 0"),
    ("vse0", "features.width=3", "no key 'width'"),
    ("vse0", "features.kind=pixel", "Did you mean 'pixels'"),
    ("vse0", "features.kind=pixels features.widht=3", "Did you mean 'width'"),
    ("vse0", "train.learning_rate=1e38", "it must be above 0 and at most 1000"),
    ("vse0", "train.weight_decay=1e300", "it must be at least 0 and at most 1000"),
    ("vse0", "train.threads=1000000", "it must be at least 1 and at most 1024"),
    ("vse0", "train.images=1", "must be at least 2"),
]


@pytest.mark.parametrize(("recipe", "overrides", "message"), INVALID)
def test_invalid_override_is_refused_and_nothing_is_written(data, tmp_path, recipe, overrides, message):
    with pytest.raises(UsageError, match=message):
        train_recipe(recipe, tmp_path / "run", data=data, overrides=overrides.split())
    assert not (tmp_path / "run").exists()


def test_objective_name_must_be_a_text(tmp_path, data):
    (tmp_path / "mine.toml").write_text('family="vse"\nabout="a"\npaper="p"\n[objective]\nname=["triplet"]\n')
    with pytest.raises(UsageError, match=r"unknown objective \['triplet'\]"):
        train_recipe(tmp_path / "mine.toml", tmp_path / "run", data=data)


def test_captions_without_words_are_refused(tmp_path):
    for split in ("train", "dev"):
        np.save(tmp_path / f"{split}_ims.npy", np.ones((4, 2, 3), np.float32))
        (tmp_path / f"{split}_caps.txt").write_text("...\n" * 4)
    with pytest.raises(CrossmatchError, match=r"4 captions contain no words.*'\.\.\.'"):
        train_recipe("vse0", tmp_path / "run", data=f"precomp:{tmp_path}")


def test_model_of_another_network_is_trained_again(train, tmp_path):
    import hashlib

    import torch

    first, messages = train(), []
    path = tmp_path / f"run/weights-{first.weights}.pt"
    weights = torch.load(path, weights_only=True)
    torch.save({name.replace("match.image.", "match.eye."): values for name, values in weights.items()}, path)
    description = json.loads((tmp_path / "run/model.json").read_text())
    description["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "run/model.json").write_text(json.dumps(description))
    with pytest.raises(CrossmatchError, match=r"another network: .*'match\.image\.\w+'.*unknown \(first 'match\.eye\.\w+'"):
        make_model(str(tmp_path / "run"))
    assert train(notify=messages.append).weights == first.weights
    assert "is trained again: " in messages[0]


def test_unusable_items_are_errors_without_advice_to_skip(tmp_path):
    from PIL import Image

    (tmp_path / "pets/images").mkdir(parents=True)
    for n in range(6):
        Image.new("RGB", (8, 8), (20 * n,) * 3).save(tmp_path / f"pets/images/{n}.png")
    rows = "".join(f"{n}.png,picture {n}\n" for n in range(6))
    options = {"data": f"collection:{tmp_path / 'pets'}", "overrides": ["features.kind=pixels"]}
    for caption, picture, message in (("", None, "is empty. Fill it in"), ("a", b"xx", "3.png cannot be opened.*Replace it")):
        (tmp_path / "pets/captions.csv").write_text(f"image,caption\n{rows}3.png,{caption}\n")
        if picture:
            (tmp_path / "pets/images/3.png").write_bytes(picture)
        with pytest.raises(CrossmatchError, match=message) as error:
            train_recipe("vse0", tmp_path / "run", **options)
        assert "--skip-bad" not in str(error.value)


def test_pixel_features_are_trained(tmp_path):
    overrides = ["features.kind=pixels", "features.side=16", "features.width=4", "model.dimensions=16", "train.epochs=1"]
    model = train_recipe(
        "vse0", tmp_path / "a", options=DataOptions(size="tiny", images=24), overrides=[*overrides, "train.validation=10"]
    )
    from crossmatch.models.zoo.trained_model import build_model

    fresh = build_model(model.config)
    assert model.net.look is not None
    running = [float(values) for name, values in model.net.look.state_dict().items() if name.endswith("num_batches_tracked")]
    assert running == [1.0] * 4  # 120 pairs are one batch, in which the convolutions were trained
    assert type(fresh) is type(model)
    from PIL import Image

    vectors = make_model(str(tmp_path / "a")).embed_images([Image.new("RGB", (64, 64), "red")])
    assert vectors.shape == (1, 16)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache for all tests of this file."""
    return tmp_path_factory.mktemp("cache")


def test_model_folder_contains_the_region_encoder(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    overrides = ["features.lessons=40", "train.epochs=4", "model.dimensions=32", "train.batch=50"]
    model = train_recipe("vse0", tmp_path / "a", options=DataOptions(size="tiny", images=150), overrides=overrides)
    assert model.recipe["validation"] > 120  # chance adds up to 80 on 50 images
    from crossmatch.diorama.world import Diorama
    from crossmatch.models.zoo.region_extractors import ExtractorSettings
    from crossmatch.train.data.region_feature_cache import diorama_features

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))  # an empty cache
    again = make_model(str(tmp_path / "a"))
    world = Diorama.make("val", 2)
    vectors = again.embed_images([world.picture(n) for n in range(2)])
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    stored = diorama_features("val", 2, ExtractorSettings(lessons=40))
    assert np.allclose(vectors, model.embed_regions(stored.take([0, 1])), atol=2e-3)  # features are stored in half precision


def test_collection_with_region_file(tmp_path):
    from PIL import Image

    data = toy_data(30, 0)
    (tmp_path / "pets/images").mkdir(parents=True)
    lines = ["image,caption"]
    for image, caption in data.links.tolist():
        Image.new("RGB", (4, 4)).save(tmp_path / f"pets/images/{image}.png")
        lines.append(f"{image}.png,{data.captions[caption]}")
    (tmp_path / "pets/captions.csv").write_text("\n".join(lines) + "\n")
    order = np.random.default_rng(0).permutation(30)
    np.savez(tmp_path / "r.npz", image_ids=[f"{n}.png" for n in order], features=data.store.features[order])
    options = DataOptions(regions=tmp_path / "r.npz")
    model = train_recipe(
        "vse0", tmp_path / "run", data=f"collection:{tmp_path / 'pets'}", options=options, overrides=[*SMALL, "train.epochs=12"]
    )
    assert model.config.features == {"kind": "file", "dimensions": 16, "source": "r.npz"}
    assert model.recipe["validation"] > 550  # of 600 on three images, if each has its own regions
    with pytest.raises(CrossmatchError, match="region features from a file"):
        model.embed_images([Image.new("RGB", (4, 4))])


def test_rare_words_are_unknown(train):
    assert "ape" in train(overrides=["train.fewest=2"]).vocabulary.words
    with pytest.raises(CrossmatchError, match=r"No word occurs 9999 times.*train.fewest"):
        train(output="b", overrides=["train.fewest=9999"])


def test_unknown_family_is_refused(train, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('family = "vsee"\nabout = "mine"\npaper = "faghri2018vse"\n[objective]\nname = "triplet"\n')
    with pytest.raises(UsageError, match="Did you mean 'vse"):
        train(path)


def precomp(folder, train, dev, caption="a {} cat"):
    """Random features for each image, with two captions."""
    for split, images in (("train", train), ("dev", dev)):
        np.save(folder / f"{split}_ims.npy", np.random.default_rng(0).standard_normal((images, 2, 4)).astype(np.float32))
        names = ["red", "blue", "green", "black"]
        (folder / f"{split}_caps.txt").write_text("".join(f"{caption.format(names[n // 2 % 4])}\n" for n in range(2 * images)))
    return f"precomp:{folder}"


TINY = ["model.dimensions=8", "model.word_dimensions=6", "train.fewest=1", "train.batch=8", "train.epochs=1"]


def test_captioner_needs_two_validation_images(tmp_path):
    messages = []
    with pytest.raises(CrossmatchError, match=r"validation set has 1 image with captions.*--validation FOLDER"):
        train_recipe("show-tell", tmp_path / "run", data=precomp(tmp_path, 4, 1), overrides=TINY, notify=messages.append)
    assert not messages
    assert not (tmp_path / "run/log.csv").exists()


def test_self_critical_training_without_reward_is_refused(tmp_path):
    for name in ("one", "same", "known", "foreign"):
        (tmp_path / name).mkdir()
    base = tmp_path / "base"
    train_recipe("show-tell", base, data=precomp(tmp_path / "known", 8, 4), overrides=TINY)
    for data, message in (
        (precomp(tmp_path / "one", 1, 4), "Self-critical training has 1 image with captions.*Train on more images"),
        (precomp(tmp_path / "same", 8, 4, "a cat"), "The reward is 0 .*8 images.*the first is 'a cat'"),
        (precomp(tmp_path / "foreign", 8, 4, "chat{} noir"), "The reward is 0 .*8 images.*Start from a model that knows"),
    ):
        with pytest.raises(CrossmatchError, match=message):
            train_recipe("show-tell-scst", tmp_path / "run", data=data, begin=base, overrides=["train.epochs=1", "train.batch=2"])


def test_self_critical_epoch_without_change_is_reported(tmp_path):
    (tmp_path / "long").mkdir()
    data, messages = precomp(tmp_path / "long", 8, 4, "a {0} cat " * 100), []
    words = [*(override for override in TINY if "epochs" not in override), "train.epochs=1", "begin.train.epochs=1"]
    train_recipe("show-tell-scst", tmp_path / "run", data=data, overrides=words, notify=messages.append)
    assert "epoch 1: the loss was 0, so nothing changed. Every sampled caption had the same reward" in messages[-1]
