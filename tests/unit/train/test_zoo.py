"""From a recipe to a folder with a trained model: what is learnt, kept, found again, continued and refused."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.models import make_model
from crossmatch.train import loop, zoo
from crossmatch.train.sources import Asked
from crossmatch.train.zoo import train_zoo

sys.path.insert(0, str(Path(__file__).parent))
from toy import toy

SMALL = ("model.dimensions=24", "model.word_dimensions=8", "train.fewest=1", "train.batch=16", "train.learning_rate=2e-2",
         "train.schedule=one-cycle", "train.epochs=4")  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The toy in SCAN's layout."""
    folder = tmp_path_factory.mktemp("toy")
    for split, images, seed in (("train", 80, 0), ("dev", 20, 1)):
        held = toy(images, seed)
        np.save(folder / f"{split}_ims.npy", held.store.features)
        (folder / f"{split}_caps.txt").write_text("".join(f"{text}\n" for text in held.captions))
    return f"precomp:{folder}"


@pytest.fixture
def train(data, tmp_path):
    def call(recipe="vse0", output="run", overrides=(), **more):
        return train_zoo(recipe, tmp_path / output, data=data, overrides=[*SMALL, *overrides], **more)

    return call


def left(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("recipe", ["vse0", "vse++", "vse-semi-hard", "convnet-bow", "convnet-bigru", "obj-bigru"])
def test_every_vse_recipe_learns(train, tmp_path, recipe):
    """On images and captions that it was not trained on; chance adds up to 203 of 600."""
    hidden = ["model.hidden=32"] if recipe.startswith("convnet") else []
    warm = ["objective.warm_up=0.5"] if recipe != "vse0" else []
    model = train(recipe, overrides=[*hidden, *warm])
    assert model.recipe["validation"] > 330
    assert left(tmp_path / "run") == sorted(["lock", "log.csv", "model.json", f"weights-{model.weights}.pt"])


def test_a_finished_folder_is_a_model_that_knows_where_it_comes_from(train, tmp_path, data):
    model = train()
    again = make_model(str(tmp_path / "run"))
    assert again.weights == model.weights
    told = json.loads((tmp_path / "run/model.json").read_text())["recipe"]
    assert (told["name"], told["data"], told["family"]) == ("vse0", data, "vse")
    assert (told["train"]["learning_rate"], told["train"]["seed"], told["objective"]["margin"]) == (2e-2, 0, 0.2)
    assert len(told["hash"]) == len(told["data_hash"]) == 12
    assert told["best_epoch"] <= told["epochs"] == 4


def test_a_finished_model_is_not_trained_again_and_a_damaged_one_is(train, tmp_path, monkeypatch):
    first = train()
    calls, said = [], []
    monkeypatch.setattr(zoo, "fit", lambda *given, **more: calls.append(given) or loop.fit(*given, **more))
    assert train(tell=said.append).weights == first.weights
    assert not calls
    assert "nothing is left to train" in said[0]
    (tmp_path / f"run/weights-{first.weights}.pt").write_bytes(b"broken")
    assert train().weights == first.weights
    assert len(calls) == 1


def test_an_interruption_before_the_model_is_named_costs_nothing(train, tmp_path, monkeypatch):
    whole = train(output="whole").weights

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(zoo, "_save", stop)
    with pytest.raises(KeyboardInterrupt):
        train()
    assert "model.json" not in left(tmp_path / "run")
    monkeypatch.undo()
    steps = []
    stepped = loop._stepped
    monkeypatch.setattr(loop, "_stepped", lambda *given: steps.append(0) or stepped(*given))
    assert train().weights == whole
    assert not steps


def test_another_recipe_or_other_data_are_refused_unless_it_begins_again(train, tmp_path, monkeypatch):
    first = train()
    for other in ({"overrides": ["train.seed=1"]}, {"recipe": "vse++"}, {"asked": Asked(images=50)}):
        with pytest.raises(CrossmatchError, match=r"run holds the finished model of (another|other).*--restart"):
            train(**other)
    assert make_model(str(tmp_path / "run")).weights == first.weights
    (tmp_path / "run/notes.txt").write_text("mine")
    second = train(overrides=["train.seed=1"], restart=True)
    assert second.weights != first.weights
    assert left(tmp_path / "run") == sorted(["lock", "log.csv", "model.json", "notes.txt", f"weights-{second.weights}.pt"])


def test_an_interrupted_training_of_another_recipe_is_refused(train, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(zoo, "_save", stop)
    with pytest.raises(KeyboardInterrupt):
        train()
    monkeypatch.undo()
    with pytest.raises(CrossmatchError, match=r"a checkpoint of another recipe \(train.seed is 0 there and 1 here\).*--restart"):
        train(overrides=["train.seed=1"])
    assert train(overrides=["train.seed=1"], restart=True).weights == train(output="b", overrides=["train.seed=1"]).weights


@pytest.mark.parametrize(
    ("recipe", "word", "says"),
    [
        ("vse0", "model.dimensions=-5", "it must be at least 1 and at most 65536"),
        ("vse0", "model.dimensions=100000000000", "it must be at least 1 and at most 65536"),
        ("vse0", "model.hidden=0", "hidden = 0; it must be at least 1"),
        ("scan-t2i", "model.word_dimensions=0", "word_dimensions = 0; it must be"),
        ("sgr", "model.steps=0", "steps = 0; it must be"),
        ("vse-infinity", "model.dimensions=0", "dimensions = 0; it must be"),
        ("vsrn", "model.layers=-1", "layers = -1; it must be"),
        ("pvse-k2", "model.embeddings=0", "embeddings = 0; it must be"),
        ("pcme", "model.samples=0", "samples = 0; it must be"),
        ("pcme", "model.samples=100000000", "it must be at least 1 and at most 1024"),
        ("pcme", "model.scale=nan", "it must be finite"),
        ("pcme", "model.log_sigma=1000", "it must be at least -20 and at most 20"),
        ("de-i2t", "model.heads=7", r"7 heads cannot share 384 numbers"),
        ("de-i2t", "model.heads=0", "heads = 0; it must be"),
        ("de-i2t", "model.dropout=2", "dropout = 2.0; it must be at least 0 and at most 0.99"),
        ("vse0", "objective.margin=nan", "margin = NaN; it must be"),
        ("vse0", "objective.margin=-1", "margin = -1.0; it must be at least 0"),
        ("vse0", "objective.warm_up=half", "a number was expected"),
        ("vse0", "objective.warm_up=3", "it must be at least 0 and at most 1"),
        ("vse0", "objective.negatives=few", "one of sum, semi-hard, hardest was expected"),
        ("vse0", "objective.margn=1", "Did you mean 'margin'"),
        ("vse0", "objective.name=pcme", "goes with pcme alone"),
        ("vse0", "objective.name=3", "a text was expected"),
        ("pcme", "objective.samples=0", "samples = 0; it must be"),
        ("vse0", "features.name=bla", "one of namer, efficientnet-lite0 was expected"),
        ("vse0", "features.side=-3", "it must be at least 0"),
        ("vse0", "features.width=3", "no key 'width'"),
        ("clip", "model.dimensions=0", "it must be at least 1 and at most 65536"),
        ("clip", "model.image_width=-8", "it must be at least 1 and at most 65536"),
        ("clip", "model.text_heads=0", "it must be at least 1 and at most 1024"),
        ("clip", "model.image_layers=0", "it must be at least 1 and at most 64"),
        ("show-tell", "model.dimensions=10000000", "it must be at least 1 and at most 65536"),
        ("vse0", "train.learning_rate=1e38", "it must be above 0 and at most 1000"),
        ("vse0", "train.weight_decay=1e300", "it must be at least 0 and at most 1000"),
        ("vse0", "train.threads=1000000", "it must be at least 1 and at most 1024"),
        ("vse0", "train.images=1", "it takes 2 images at least. Set --images, or train.images, to more"),
    ],
)
def test_a_size_or_an_option_beyond_its_limits_is_refused_before_any_work(data, tmp_path, recipe, word, says):
    with pytest.raises(WrongWords, match=says):
        train_zoo(recipe, tmp_path / "run", data=data, overrides=[word])
    assert not (tmp_path / "run").exists()


def test_the_name_of_an_objective_is_a_text(tmp_path, data):
    (tmp_path / "mine.toml").write_text('family="vse"\nabout="a"\npaper="p"\n[objective]\nname=["triplet"]\n')
    with pytest.raises(WrongWords, match=r"the objective \['triplet'\], which is not there"):
        train_zoo(tmp_path / "mine.toml", tmp_path / "run", data=data)


def test_captions_without_words_are_named(tmp_path):
    for split in ("train", "dev"):
        np.save(tmp_path / f"{split}_ims.npy", np.ones((4, 2, 3), np.float32))
        (tmp_path / f"{split}_caps.txt").write_text("...\n" * 4)
    with pytest.raises(CrossmatchError, match=r"the 4 captions have no words.*'\.\.\.'. Write"):
        train_zoo("vse0", tmp_path / "run", data=f"precomp:{tmp_path}")


def test_a_model_of_another_network_is_trained_anew_and_that_is_said(train, tmp_path):
    import hashlib

    import torch

    first, said = train(), []
    path = tmp_path / f"run/weights-{first.weights}.pt"
    held = torch.load(path, weights_only=True)
    torch.save({name.replace("match.image.", "match.eye."): values for name, values in held.items()}, path)
    told = json.loads((tmp_path / "run/model.json").read_text())
    told["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "run/model.json").write_text(json.dumps(told))
    with pytest.raises(
        CrossmatchError, match=r"another network: 'match\.image\.\w+' is missing, and 'match\.eye\.\w+' is not known"
    ):
        make_model(str(tmp_path / "run"))
    assert train(tell=said.append).weights == first.weights
    assert "is trained anew: " in said[0]


def test_a_training_does_not_advise_to_leave_out_what_is_bad(tmp_path):
    from PIL import Image

    (tmp_path / "pets/images").mkdir(parents=True)
    for n in range(6):
        Image.new("RGB", (8, 8), (20 * n,) * 3).save(tmp_path / f"pets/images/{n}.png")
    rows = "".join(f"{n}.png,picture {n}\n" for n in range(6))
    asked = {"data": f"collection:{tmp_path / 'pets'}", "overrides": ["features.kind=pixels"]}
    for caption, picture, says in (("", None, "is empty. Write one"), ("a", b"xx", "3.png cannot be opened.*Replace it")):
        (tmp_path / "pets/captions.csv").write_text(f"image,caption\n{rows}3.png,{caption}\n")
        if picture:
            (tmp_path / "pets/images/3.png").write_bytes(picture)
        with pytest.raises(CrossmatchError, match=says) as error:
            train_zoo("vse0", tmp_path / "run", **asked)
        assert "--skip-bad" not in str(error.value)


def test_pixels_are_learnt_with_the_network(tmp_path):
    overrides = ["features.kind=pixels", "features.side=16", "features.width=4", "model.dimensions=16", "train.epochs=1"]
    model = train_zoo("vse0", tmp_path / "a", asked=Asked(size="tiny", images=24), overrides=[*overrides, "train.validation=10"])
    from crossmatch.models.zoo.model import made

    fresh = made(model.config)
    assert model.net.look is not None
    running = [float(values) for name, values in model.net.look.state_dict().items() if name.endswith("num_batches_tracked")]
    assert running == [1.0] * 4  # 120 pairs are one batch: the convolutions were part of the training
    assert type(fresh) is type(model)
    from PIL import Image

    seen = make_model(str(tmp_path / "a")).embed_images([Image.new("RGB", (64, 64), "red")])
    assert seen.shape == (1, 16)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """One place for the features of all tests here."""
    return tmp_path_factory.mktemp("cache")


def test_regions_of_the_embedded_world_and_the_model_keeps_what_looked_at_them(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    overrides = ["features.lessons=40", "train.epochs=4", "model.dimensions=32", "train.batch=50"]
    model = train_zoo("vse0", tmp_path / "a", asked=Asked(size="tiny", images=150), overrides=overrides)
    assert model.recipe["validation"] > 120  # chance adds up to 80 on 50 images
    from crossmatch.diorama.world import Diorama
    from crossmatch.models.zoo.features import Extractor
    from crossmatch.train.features import diorama_features

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))  # what the folder does not hold is not found
    again = make_model(str(tmp_path / "a"))
    world = Diorama.make("val", 2)
    seen = again.embed_images([world.picture(n) for n in range(2)])
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    kept = diorama_features("val", 2, Extractor(lessons=40))
    assert np.allclose(seen, model.embed_regions(kept.take([0, 1])), atol=2e-3)  # features are kept in half precision


def test_a_collection_with_regions_from_a_file(tmp_path):
    from PIL import Image

    held = toy(30, 0)
    (tmp_path / "pets/images").mkdir(parents=True)
    lines = ["image,caption"]
    for image, caption in held.links.tolist():
        Image.new("RGB", (4, 4)).save(tmp_path / f"pets/images/{image}.png")
        lines.append(f"{image}.png,{held.captions[caption]}")
    (tmp_path / "pets/captions.csv").write_text("\n".join(lines) + "\n")
    order = np.random.default_rng(0).permutation(30)
    np.savez(tmp_path / "r.npz", image_ids=[f"{n}.png" for n in order], features=held.store.features[order])
    asked = Asked(regions=tmp_path / "r.npz")
    model = train_zoo(
        "vse0", tmp_path / "run", data=f"collection:{tmp_path / 'pets'}", asked=asked, overrides=[*SMALL, "train.epochs=12"]
    )
    assert model.config.features == {"kind": "file", "dimensions": 16, "source": "r.npz"}
    assert model.recipe["validation"] > 550  # three images are easily told apart, if each has its own regions
    with pytest.raises(CrossmatchError, match="region features from a file"):
        model.embed_images([Image.new("RGB", (4, 4))])


def test_words_that_are_rare_are_unknown(train):
    assert "ape" in train(overrides=["train.fewest=2"]).vocabulary.words
    with pytest.raises(CrossmatchError, match=r"no word occurs 9999 times.*train.fewest"):
        train(output="b", overrides=["train.fewest=9999"])


WRONG = [
    (["model.dimension=3"], r"\[model\] has no key 'dimension'. Did you mean 'dimensions'"),
    (["model.words=3"], "no key 'words'"),
    (["model.image=gur"], "one of linear, mlp, bigru"),
    (["model.dimensions=many"], "a whole number was expected"),
    (["objective.name=tripel"], "Did you mean 'triplet'"),
    (["objective.margn=1"], "Did you mean 'margin'"),
    (["features.kind=pixel"], "Did you mean 'pixels'"),
    (["features.kind=pixels", "features.widht=3"], "Did you mean 'width'"),
    (["features.nmae=namer"], "Did you mean 'name'"),
]


@pytest.mark.parametrize(("overrides", "says"), WRONG, ids=[words[-1] for words, _ in WRONG])
def test_a_recipe_that_cannot_be_is_refused_and_nothing_is_left_behind(train, tmp_path, overrides, says):
    with pytest.raises(WrongWords, match=says):
        train(overrides=overrides)
    assert left(tmp_path) == []


def test_a_recipe_of_another_family_is_refused(train, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('family = "vsee"\nabout = "mine"\npaper = "faghri2018vse"\n[objective]\nname = "triplet"\n')
    with pytest.raises(WrongWords, match="Did you mean 'vse"):
        train(path)


def precomp(folder, train, dev, caption="a {} cat"):
    """A picture of noise for each caption."""
    for split, images in (("train", train), ("dev", dev)):
        np.save(folder / f"{split}_ims.npy", np.random.default_rng(0).standard_normal((images, 2, 4)).astype(np.float32))
        names = ["red", "blue", "green", "black"]
        (folder / f"{split}_caps.txt").write_text("".join(f"{caption.format(names[n // 2 % 4])}\n" for n in range(2 * images)))
    return f"precomp:{folder}"


TINY = ["model.dimensions=8", "model.word_dimensions=6", "train.fewest=1", "train.batch=8", "train.epochs=1"]


def test_a_captioner_is_judged_by_two_images_at_least(tmp_path):
    said = []
    with pytest.raises(CrossmatchError, match=r"there is 1 image with captions to validate with.*--validation FOLDER"):
        train_zoo("show-tell", tmp_path / "run", data=precomp(tmp_path, 4, 1), overrides=TINY, tell=said.append)
    assert not said
    assert not (tmp_path / "run/log.csv").exists()


def test_self_critical_training_without_any_reward_is_refused(tmp_path):
    for name in ("one", "same", "known", "foreign"):
        (tmp_path / name).mkdir()
    base = tmp_path / "base"
    train_zoo("show-tell", base, data=precomp(tmp_path / "known", 8, 4), overrides=TINY)
    for data, says in (
        (precomp(tmp_path / "one", 1, 4), "self-critical training has 1 image with captions.*Train on more images"),
        (precomp(tmp_path / "same", 8, 4, "a cat"), "is worth anything to the 8 images.*the first is 'a cat'"),
        (precomp(tmp_path / "foreign", 8, 4, "chat{} noir"), "is worth anything to the 8 images.*Begin with a model that knows"),
    ):
        with pytest.raises(CrossmatchError, match=says):
            train_zoo("show-tell-scst", tmp_path / "run", data=data, begin=base, overrides=["train.epochs=1", "train.batch=2"])


def test_an_epoch_of_self_critical_training_that_changed_nothing_is_told(tmp_path):
    (tmp_path / "long").mkdir()
    data, said = precomp(tmp_path / "long", 8, 4, "a {0} cat " * 100), []
    words = [*(word for word in TINY if "epochs" not in word), "train.epochs=1", "begin.train.epochs=1"]
    train_zoo("show-tell-scst", tmp_path / "run", data=data, overrides=words, tell=said.append)
    assert "epoch 1 changed nothing: every caption that was drawn was worth what the greedy one was" in said[-1]
