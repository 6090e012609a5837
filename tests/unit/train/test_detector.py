"""Training the detectors: the neuron against a loop from the paper's words, data without overlap, the same weights each time."""

from __future__ import annotations

import json

import numpy as np
import pytest

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.trials import Trials

torch = pytest.importorskip("torch")

from crossmatch.models.cache import ScoreCache  # noqa: E402
from crossmatch.models.detector_model import DetectorConfig, Embedding, Neurons  # noqa: E402
from crossmatch.train.detector import (  # noqa: E402
    ON_DIORAMA,
    PUBLISHED,
    VALUE,
    DetectorData,
    DetectorSettings,
    Sample,
    accuracy,
    detector_data,
    drawn_apart,
    fit_neuron,
    held_out,
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


def sample(n=30, d=4, seed=0, apart=0.5) -> Sample:
    rng = np.random.default_rng(seed)
    parts = rng.standard_normal((2, n, 2, d)) + apart * np.array([-1.0, 1.0])[:, None]
    return Sample(*(parts / np.linalg.norm(parts, axis=3, keepdims=True)))


def neuron(d=4):
    return Neurons(DetectorConfig("", "", d)).text


def by_hand(held: Sample, settings: DetectorSettings, epochs: int) -> list[np.ndarray]:
    """Adam on binary cross-entropy, item by item, as the appendix lists it; the weights after each epoch."""
    vectors = held.train.reshape(-1, held.train.shape[2])
    labels = [0, 1] * len(held.train)
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


def test_the_neuron_is_that_of_a_loop_from_the_papers_words():
    held, settings = sample(), DetectorSettings(learning_rate=0.05, batch=7)
    one = neuron()
    rows = list(fit_neuron(one, held, 5, settings))
    slow = by_hand(held, settings, 5)
    right = [100 * np.mean((held.validation @ w[:-1] + w[-1] > 0) == [False, True]) for w in slow]
    assert [row[VALUE] for row in rows] == pytest.approx(right)
    best = slow[int(np.argmax(right))]  # the first of equals
    assert np.abs(one.weight.detach().numpy()[0] - best[:-1]).max() < 1e-5
    assert abs(float(one.bias.detach()[0]) - best[-1]) < 1e-5
    assert accuracy(one, held.validation) == pytest.approx(max(right) / 100)


def test_the_epoch_with_the_best_validation_accuracy_is_kept():
    held = sample()
    spoilt = Sample(held.train, held.validation[:, ::-1])  # what it learns is wrong there, more so each epoch
    rows = list(fit_neuron(one := neuron(), spoilt, 6, DetectorSettings(learning_rate=0.2, batch=10)))
    assert rows[-1][VALUE] < rows[0][VALUE] or rows[0][VALUE] == rows[-1][VALUE]
    assert 100 * accuracy(one, spoilt.validation) == pytest.approx(max(row[VALUE] for row in rows))


def test_published_settings_are_those_of_the_appendix():
    told = PUBLISHED.learning_rate, PUBLISHED.batch, PUBLISHED.text_epochs, PUBLISHED.image_epochs
    assert told == (1e-6, 400, 10, 1)
    rows = list(fit_neuron(neuron(), sample(300), 10, PUBLISHED))
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert rows[-1][VALUE] > 60  # the signs are right though all probabilities are near one half


def test_trials_that_share_an_image_are_never_torn_apart():
    rng = np.random.default_rng(0)
    images = [[f"i{n}", f"j{m}"] for n, m in rng.integers(0, 40, (60, 2))]
    some = Trials([f"t{n}" for n in range(60)], images, [["x", "y"]] * 60, [""] * 60)
    held = held_out(some)
    assert not set(some.images[held].ravel()) & set(some.images[~held].ravel())
    assert 0 < held.sum() < 60
    apart = Trials([f"t{n}" for n in range(100)], [[f"i{n}", f"j{n}"] for n in range(100)], [["x", "y"]] * 100, [""] * 100)
    assert held_out(apart).sum() == 20
    one = Trials(["a", "b"], [["i", "j"], ["i", "k"]], [["x", "y"]] * 2, ["", ""])
    with pytest.raises(CrossmatchError, match="--validation TASK"):
        held_out(one)


def test_the_worlds_two_styles_and_splits():
    data = detector_data("diorama", images=10, size="tiny")
    assert data.train.shape == data.validation.shape == (2, 2)
    assert not set(data.train.images.ravel()) & set(data.validation.images.ravel())
    assert len(data.train.ids) == 14
    again = drawn_apart("train", 10)
    assert again.captions.tolist() == data.train.captions.tolist()
    from crossmatch.diorama.world import Diorama

    world = Diorama.make("train", 10)
    camera = {str(name): np.asarray(world.picture(n)) for n, name in enumerate(world.collection.image_ids)}
    natural, synthetic = data.train.images[0].tolist()
    assert (np.asarray(data.train.open_image(natural)) == camera[natural]).all()
    assert (np.asarray(data.train.open_image(synthetic)) != camera[natural]).any()
    assert data.digest == detector_data("diorama", images=10, size="tiny").digest
    assert data.digest != detector_data("diorama", images=15, size="tiny").digest


def trained(home, name="runs/a", **how):
    given = {"images": 60, "size": "tiny", "asking": Embedding(cache=ScoreCache(home / "cache"), workers=0)} | how
    return train_detector(given.pop("model", "toy.py:Toy"), home / name, **given)


def test_both_sides_are_trained_to_better_than_chance_and_kept(home):
    said: list[str] = []
    one = trained(home, tell=said.append)
    told = json.loads((home / "runs/a/model.json").read_text())
    assert told["family"] == "detector"
    assert told["config"]["embedder"] == "toy.py:Toy"
    assert told["config"]["system"] == "toy|weights:1"
    assert told["recipe"]["settings"]["learning_rate"] == ON_DIORAMA.learning_rate
    assert told["recipe"]["validation"] == one.recipe["validation"]
    assert one.recipe["validation"]["image"] > 75
    assert one.recipe["validation"]["text"] > 50
    for side in ("text", "image"):
        log = (home / f"runs/a/log-{side}.csv").read_text().splitlines()
        assert log[0] == "epoch,loss,val accuracy"
        assert len(log) == 101
    weights = next((home / "runs/a").glob("weights-*.pt"))
    again = trained(home, "runs/b")
    other = next((home / "runs/b").glob("weights-*.pt"))
    assert (other.name, other.read_bytes()) == (weights.name, weights.read_bytes())
    assert again.signature == one.signature
    assert said == []
    assert trained(home, tell=said.append).signature == one.signature
    assert "nothing is left to train" in said[0]
    with pytest.raises(CrossmatchError, match=r"another recipe.*--restart"):
        trained(home, epochs=3)
    short = trained(home, epochs=3, restart=True)
    assert short.recipe["settings"]["text_epochs"] == 3
    assert not weights.is_file()
    uncached = trained(home, "runs/c", epochs=3, asking=Embedding(workers=0))
    assert uncached.weights == short.weights


def test_half_a_folder_is_trained_again(home):
    whole = trained(home, epochs=2)
    next((home / "runs/a").glob("weights-*.pt")).unlink()
    assert trained(home, epochs=2).weights == whole.weights
    assert next((home / "runs/a").glob("weights-*.pt")).is_file()


def test_a_reader_alone_and_a_folder_of_another_kind(home):
    one = trained(home, model="toy.py:Reader", epochs=2)
    assert list(one.recipe["validation"]) == ["text"]
    (home / "runs/a/model.json").write_text(json.dumps({"family": "vse", "recipe": {}}))
    with pytest.raises(CrossmatchError, match=r"another kind \(vse\)"):
        trained(home, epochs=2)


def test_a_users_own_trials(home, monkeypatch):
    from crossmatch.train import detector

    whole = drawn_apart("val", 40)
    monkeypatch.setattr(detector, "load_data", lambda name: whole)
    one = trained(home, data="trials:mine.csv", images=None)
    assert one.recipe["trained_on"] + one.recipe["validated_with"] == len(whole.ids)
    assert one.recipe["settings"]["learning_rate"] == 1e-6
    assert any("very trials" in note for note in one.notes_on(whole))
    named = trained(home, "runs/b", data="trials:mine.csv", images=None, validation="trials:other.csv")
    assert named.recipe["trained_on"] == named.recipe["validated_with"] == len(whole.ids)


def test_what_cannot_be_trained_on(home):
    for how, why in (
        ({"data": "diorama/sugarcrepe+size=tiny", "images": None}, "trials of 1 images x 2 captions"),
        ({"data": "diorama/retrieval+size=tiny", "images": None}, "no trials"),
        ({"data": "diorama/bivlc"}, "--images are scenes"),
        ({"validation": "bivlc"}, "--validation goes with"),
        ({"size": "huge"}, "no size 'huge'"),
        ({"model": "tfidf"}, "fitted to the texts"),
        ({"model": "random"}, "embeds no texts"),
    ):
        with pytest.raises(WrongWords, match=why):
            trained(home, "runs/x", **how)
    assert not (home / "runs").exists()


def test_the_data_are_looked_at_before_the_model_is_loaded(home, monkeypatch):
    from crossmatch.train import detector

    loaded = []
    monkeypatch.setattr(detector, "make_model", lambda name: loaded.append(name))
    with pytest.raises(CrossmatchError, match=r"nothing\.csv"):
        trained(home, "runs/x", data="trials:nothing.csv", images=None)
    assert not loaded
    assert not (home / "runs").exists()


def test_stopped_between_its_logs_and_its_name_it_ends_with_the_same_weights(home, monkeypatch):
    from crossmatch.train import detector

    whole = trained(home, "runs/whole", epochs=3)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(detector.TrainedDetector, "save", stop)
    with pytest.raises(KeyboardInterrupt):
        trained(home, epochs=3)
    assert sorted(path.name for path in (home / "runs/a").iterdir()) == ["lock", "log-image.csv", "log-text.csv"]
    monkeypatch.undo()
    monkeypatch.chdir(home)
    assert trained(home, epochs=3).weights == whole.weights


def test_the_data_are_known_by_all_of_their_pictures():
    rng = np.random.default_rng(0)
    pictures = {f"{side}{n}": rng.integers(0, 255, (4, 4, 3), dtype=np.uint8) for side in "ab" for n in range(20)}

    def data(changed=""):
        shown = {name: 255 - values if name == changed else values for name, values in pictures.items()}
        parts = [
            Trials([f"t{n}" for n in some], [[f"a{n}", f"b{n}"] for n in some], [["x", "y"]] * 10, [""] * 10, shown.__getitem__)
            for some in (range(10), range(10, 20))
        ]
        return DetectorData("trials:mine.csv", *parts).digest

    assert data() == data()
    assert len({data(name) for name in ("", "a0", "b9", "a10", "b19")}) == 5


@pytest.mark.parametrize(
    "how",
    [{"learning_rate": float("nan")}, {"learning_rate": float("inf")}, {"learning_rate": 1e30}, {"batch": 2**63}, {"epochs": 0}],
)
def test_settings_beyond_all_measure_are_refused(home, how):
    with pytest.raises(WrongWords, match=r"the training of a detector has .* it must be"):
        trained(home, **how)
    assert not (home / "runs").exists()


def test_a_neuron_that_is_no_number_is_refused():
    with pytest.raises(CrossmatchError, match=r"no finite number after epoch 1.*lower learning rate"):
        list(fit_neuron(neuron(), sample(), 2, DetectorSettings(learning_rate=float("inf"))))
