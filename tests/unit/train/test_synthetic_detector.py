"""Training of detectors: the neuron against a loop written from the paper, disjoint data, reproducible weights."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.trials import Trials

torch = pytest.importorskip("torch")

from crossmatch.models.baselines.synthetic_detector import DetectorConfig, DetectorNet, EmbeddingOptions
from crossmatch.models.cache import Cache
from crossmatch.train.data.sources import DataOptions
from crossmatch.train.recipe import load_recipe
from crossmatch.train.run_recipe import train_recipe
from crossmatch.train.synthetic_detector import (
    ACCURACY,
    DetectorData,
    DetectorSample,
    DetectorSettings,
    check_detector_data,
    detector_settings,
    diorama_edit_trials,
    fit_neuron,
    hold_out,
    measure_accuracy,
    train_detector,
)

# Colours of a picture cut into sixteen parts, and how often each word of a few occurs.
ENCODER = """
import numpy as np

WORDS = "a two three four small tiny large striped dotted red blue green of and the in on by near left right".split()

class Toy:
    signature = "toy|weights:1"

    def embed_images(self, images):
        small = np.stack([np.asarray(image.convert("RGB").resize((16, 16))) for image in images]) / 255
        return np.concatenate([small.reshape(len(small), -1), np.diff(small, axis=1).reshape(len(small), -1) * 4], axis=1) - 0.2

    def embed_texts(self, texts):
        said = [text.lower().split() for text in texts]
        return np.array([[1.0, len(words) / 10, *(words.count(word) for word in WORDS)] for words in said])

class Reader:
    signature = "reader"
    embed_texts = Toy.embed_texts
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.py").write_text(ENCODER)
    return tmp_path


def sample(n=30, d=4, seed=0, apart=0.5) -> DetectorSample:
    rng = np.random.default_rng(seed)
    parts = rng.standard_normal((2, n, 2, d)) + apart * np.array([-1.0, 1.0])[:, None]
    return DetectorSample(*(parts / np.linalg.norm(parts, axis=3, keepdims=True)))


def neuron(d=4):
    return DetectorNet(DetectorConfig("", "", d)).text


def weights_by_loop(data: DetectorSample, settings: DetectorSettings, epochs: int) -> list[np.ndarray]:
    """Adam on binary cross-entropy, item by item, as the appendix lists it; the weights after each epoch."""
    vectors = data.train.reshape(-1, data.train.shape[2])
    labels = [0, 1] * len(data.train)
    x = np.concatenate([vectors, np.ones((len(vectors), 1))], axis=1)
    w, first, second, step, out = np.zeros(x.shape[1]), np.zeros(x.shape[1]), np.zeros(x.shape[1]), 0, []
    for epoch in range(epochs):
        order = np.random.default_rng([settings.seed, epoch]).permutation(len(x))
        for at in range(0, len(x), settings.batch):
            chosen, slope = order[at : at + settings.batch], np.zeros(x.shape[1])
            for n in chosen:
                slope += (1 / (1 + np.exp(-x[n] @ w)) - labels[n]) * x[n] / len(chosen)
            step += 1
            first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
            w = w - settings.learning_rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        out.append(w)
    return out


def test_neuron_equals_a_loop():
    data, settings = sample(), DetectorSettings(learning_rate=0.05, batch=7)
    trained_neuron = neuron()
    rows = fit_neuron(trained_neuron, data, 5, settings)
    slow = weights_by_loop(data, settings, 5)
    right = [100 * np.mean((data.validation @ w[:-1] + w[-1] > 0) == [False, True]) for w in slow]
    assert [row[ACCURACY] for row in rows] == pytest.approx(right)
    best = slow[int(np.argmax(right))]  # the first of equals
    assert np.abs(trained_neuron.weight.detach().numpy()[0] - best[:-1]).max() < 1e-5
    assert abs(float(trained_neuron.bias.detach()[0]) - best[-1]) < 1e-5
    assert measure_accuracy(trained_neuron, data.validation) == pytest.approx(max(right) / 100)


def test_best_epoch_is_kept():
    data = sample()
    swapped = DetectorSample(data.train, data.validation[:, ::-1])  # validation gets worse with training
    rows = fit_neuron(trained_neuron := neuron(), swapped, 6, DetectorSettings(learning_rate=0.2, batch=10))
    assert rows[-1][ACCURACY] < rows[0][ACCURACY] or rows[0][ACCURACY] == rows[-1][ACCURACY]
    assert 100 * measure_accuracy(trained_neuron, swapped.validation) == pytest.approx(max(row[ACCURACY] for row in rows))


def test_published_settings():
    published = detector_settings(load_recipe("detector", ""))
    settings = published.learning_rate, published.batch, published.text_epochs, published.image_epochs
    assert settings == (1e-6, 400, 10, 1)
    rows = fit_neuron(neuron(), sample(300), 10, published)
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert rows[-1][ACCURACY] > 60  # the signs are right though all probabilities are near one half


def test_trials_that_share_an_image_stay_together():
    rng = np.random.default_rng(0)
    images = [[f"i{n}", f"j{m}"] for n, m in rng.integers(0, 40, (60, 2))]
    trials = Trials([f"t{n}" for n in range(60)], images, [["x", "y"]] * 60, [""] * 60)
    is_held_out = hold_out(trials)
    assert not set(trials.images[is_held_out].ravel()) & set(trials.images[~is_held_out].ravel())
    assert 0 < is_held_out.sum() < 60
    separate = Trials([f"t{n}" for n in range(100)], [[f"i{n}", f"j{n}"] for n in range(100)], [["x", "y"]] * 100, [""] * 100)
    assert hold_out(separate).sum() == 20
    connected = Trials(["a", "b"], [["i", "j"], ["i", "k"]], [["x", "y"]] * 2, ["", ""])
    with pytest.raises(CrossmatchError, match="--validation TASK"):
        hold_out(connected)


def diorama_data(images):
    return check_detector_data("diorama", validation=None, images=images, size="tiny")()


def test_diorama_data_have_two_styles_and_splits():
    data = diorama_data(10)
    assert data.train.shape == data.validation.shape == (2, 2)
    assert not set(data.train.images.ravel()) & set(data.validation.images.ravel())
    assert len(data.train.ids) == 14
    again = diorama_edit_trials("train", 10)
    assert again.captions.tolist() == data.train.captions.tolist()
    from crossmatch.diorama.world import Diorama

    world = Diorama.make("train", 10)
    camera = {str(name): np.asarray(world.picture(n)) for n, name in enumerate(world.collection.image_ids)}
    natural, synthetic = data.train.images[0].tolist()
    assert (np.asarray(data.train.open_image(natural)) == camera[natural]).all()
    assert (np.asarray(data.train.open_image(synthetic)) != camera[natural]).any()
    assert data.digest == diorama_data(10).digest
    assert data.digest != diorama_data(15).digest


def train(home, name="runs/a", overrides=(), **how):
    options = {"images": 60, "size": "tiny", "embedding": EmbeddingOptions(cache=Cache(home / "cache"), workers=0)} | how
    recipe = load_recipe("detector", options.get("data", "diorama"), overrides)
    return train_detector(options.pop("model", "toy.py:Toy"), home / name, detector_settings(recipe), **options)


@pytest.mark.slow
def test_both_detectors_beat_chance_and_are_reproducible(home):
    messages: list[str] = []
    detector = train(home, notify=messages.append)
    description = json.loads((home / "runs/a/model.json").read_text())
    assert description["family"] == "detector"
    assert description["config"]["embedder"] == "toy.py:Toy"
    assert description["config"]["system"] == "toy|weights:1"
    assert description["recipe"]["settings"]["learning_rate"] == 0.1
    assert description["recipe"]["validation"] == detector.recipe["validation"]
    assert detector.recipe["validation"]["image"] > 75
    assert detector.recipe["validation"]["text"] > 50
    for side in ("text", "image"):
        log = (home / f"runs/a/log-{side}.csv").read_text().splitlines()
        assert log[0] == "epoch,loss,val accuracy"
        assert len(log) == 101
    weights = next((home / "runs/a").glob("weights-*.pt"))
    again = train(home, "runs/b")
    other_weights = next((home / "runs/b").glob("weights-*.pt"))
    assert (other_weights.name, other_weights.read_bytes()) == (weights.name, weights.read_bytes())
    assert again.signature == detector.signature
    assert messages == []
    assert train(home, notify=messages.append).signature == detector.signature
    assert "nothing left to train" in messages[0]
    with pytest.raises(CrossmatchError, match=r"another recipe.*--restart"):
        train(home, overrides=["train.epochs=3"])
    short = train(home, overrides=["train.epochs=3"], restart=True)
    assert short.recipe["settings"]["text_epochs"] == 3
    assert not weights.is_file()
    uncached = train(home, "runs/c", overrides=["train.epochs=3"], embedding=EmbeddingOptions(workers=0))
    assert uncached.weights == short.weights


@pytest.mark.slow
def test_incomplete_folder_is_trained_again(home):
    whole = train(home, overrides=["train.epochs=2"])
    next((home / "runs/a").glob("weights-*.pt")).unlink()
    assert train(home, overrides=["train.epochs=2"]).weights == whole.weights
    assert next((home / "runs/a").glob("weights-*.pt")).is_file()


def test_text_model_and_folder_of_another_family(home):
    detector = train(home, model="toy.py:Reader", overrides=["train.epochs=2"])
    assert list(detector.recipe["validation"]) == ["text"]
    (home / "runs/a/model.json").write_text(json.dumps({"family": "vse", "recipe": {}}))
    with pytest.raises(CrossmatchError, match=r"another family \(vse\)"):
        train(home, overrides=["train.epochs=2"])


def test_trials_of_a_user(home, monkeypatch):
    from crossmatch.train import synthetic_detector

    whole = diorama_edit_trials("val", 40)
    monkeypatch.setattr(synthetic_detector, "load_benchmark_data", lambda name: whole)
    detector = train(home, data="trials:mine.csv", images=None)
    assert detector.recipe["trained_on"] + detector.recipe["validated_with"] == len(whole.ids)
    assert detector.recipe["settings"]["learning_rate"] == 1e-6
    assert any("trained on some of these trials" in note for note in detector.notes_on(whole))
    separate = train(home, "runs/b", data="trials:mine.csv", images=None, validation="trials:other.csv")
    assert separate.recipe["trained_on"] == separate.recipe["validated_with"] == len(whole.ids)


def test_unsuitable_data_and_models_are_refused(home):
    for how, why in (
        ({"data": "diorama/sugarcrepe+size=tiny", "images": None}, "trials of 1 images x 2 captions"),
        ({"data": "diorama/retrieval+size=tiny", "images": None}, "no trials"),
        ({"data": "diorama/bivlc"}, "--images applies to diorama"),
        ({"validation": "bivlc"}, "--validation applies to"),
        ({"size": "huge"}, "no size 'huge'"),
        ({"model": "tfidf"}, "fitted to the texts"),
        ({"model": "random"}, "embeds no texts"),
    ):
        with pytest.raises(UsageError, match=why):
            train(home, "runs/x", **how)
    assert not (home / "runs").exists()


def test_data_are_checked_before_the_model_is_loaded(home, monkeypatch):
    from crossmatch.train import synthetic_detector

    loaded = []
    monkeypatch.setattr(synthetic_detector, "make_model", lambda name: loaded.append(name))
    with pytest.raises(CrossmatchError, match=r"nothing\.csv"):
        train(home, "runs/x", data="trials:nothing.csv", images=None)
    assert not loaded
    assert not (home / "runs").exists()


@pytest.mark.slow
def test_interrupted_save_ends_with_the_same_weights(home, monkeypatch):
    from crossmatch.train import synthetic_detector

    whole = train(home, "runs/whole", overrides=["train.epochs=3"])

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(synthetic_detector.TrainedDetector, "save", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(home, overrides=["train.epochs=3"])
    assert sorted(path.name for path in (home / "runs/a").iterdir()) == ["lock", "log-image.csv", "log-text.csv"]
    monkeypatch.undo()
    monkeypatch.chdir(home)
    assert train(home, overrides=["train.epochs=3"]).weights == whole.weights


def test_digest_depends_on_every_picture():
    rng = np.random.default_rng(0)
    pictures = {f"{side}{n}": rng.integers(0, 255, (4, 4, 3), dtype=np.uint8) for side in "ab" for n in range(20)}

    def digest_of(changed=""):
        shown = {name: 255 - values if name == changed else values for name, values in pictures.items()}
        parts = [
            Trials(
                [f"t{n}" for n in numbers], [[f"a{n}", f"b{n}"] for n in numbers], [["x", "y"]] * 10, [""] * 10, shown.__getitem__
            )
            for numbers in (range(10), range(10, 20))
        ]
        return DetectorData("trials:mine.csv", *parts).digest

    assert digest_of() == digest_of()
    assert len({digest_of(name) for name in ("", "a0", "b9", "a10", "b19")}) == 5


@pytest.mark.parametrize(
    "setting",
    ["train.learning_rate=nan", "train.learning_rate=inf", "train.learning_rate=1e30", f"train.batch={2**63}", "train.epochs=0",
     "objective.image_epochs=-1", "features.batch=0", "train.patience=3", "objective.margin=1", "model.width=1", "objective.name=triplet", "begin.train.epochs=3"],
)  # fmt: skip
def test_settings_out_of_range_or_without_effect_are_refused(home, setting):
    with pytest.raises(
        UsageError, match="begin|" + re.escape(setting.partition("=")[0].partition(".")[2]).replace("name", "objective")
    ):
        train_recipe("detector", home / "runs/x", begin="toy.py:Toy", options=DataOptions(size="tiny"), overrides=[setting])
    assert not (home / "runs").exists()


def test_infinite_weights_are_refused():
    with pytest.raises(CrossmatchError, match=r"Epoch 1: .*not finite.*lower learning rate"):
        fit_neuron(neuron(), sample(), 2, DetectorSettings(learning_rate=float("inf")))
