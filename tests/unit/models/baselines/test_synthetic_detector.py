"""Trained detectors: answers by the protocol, saving and loading, and the check of the encoder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.trials import Trials
from crossmatch.evaluation.evaluate import evaluate
from crossmatch.models.baselines.precomputed_synthetic_detector import decide_detector_wins
from crossmatch.models.baselines.text_encoders import make_text_model
from crossmatch.models.cache import Cache

torch = pytest.importorskip("torch")

from crossmatch.models.baselines.synthetic_detector import (
    DetectorConfig,
    TrainedDetector,
    load_detector,
    log_odds,
    make_trained_detector,
    normalise,
    require_embedder,
)

ENCODER = '''
import numpy as np

class Toy:
    """Images by the mean of each channel, texts by the counts of three letters; vectors are not normalised."""

    signature = "toy|weights:{weights}"
    shown = 0

    def embed_images(self, images):
        Toy.shown += len(images)
        return np.stack([np.asarray(image).mean(axis=(0, 1)) for image in images])

    def embed_texts(self, texts):
        return np.array([[1 + text.count(letter) for letter in "abc"] for text in texts], np.float32)

class Reader:
    signature = "reader"
    embed_texts = Toy.embed_texts
'''


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.py").write_text(ENCODER.replace("{weights}", "1"))
    return tmp_path


def toy(name="Toy"):
    from crossmatch.models import make_model

    return make_model(f"toy.py:{name}")


def colour(name):
    return Image.new("RGB", (4, 4), tuple(int(part) for part in name.split()[0].split("-")))


def trials(c: int, i: int, n: int = 6, seed: int = 0) -> Trials:
    rng = np.random.default_rng(seed)
    images = [["-".join(map(str, rng.integers(0, 256, 3).tolist())) + f" {t}{k}" for k in range(i)] for t in range(n)]
    captions = [["".join(rng.choice([*"abc"], 12).tolist()) for _ in range(c)] for _ in range(n)]
    return Trials([f"t{t}" for t in range(n)], images, captions, [""] * n, colour)


def make_detector(name="Toy", image=3, seed=0, **recipe) -> TrainedDetector:
    encoder = toy(name)
    detector = TrainedDetector(DetectorConfig(f"toy.py:{name}", encoder.signature, 3, image), encoder, recipe)
    torch.manual_seed(seed)
    for values in detector.net.parameters():
        torch.nn.init.normal_(values)
    return detector


def probabilities(neuron, vectors):
    """Slow version, item by item: a sigmoid neuron over the vector at unit length."""
    weight, bias = neuron.weight.detach().numpy()[0].astype(float), float(neuron.bias.detach()[0])
    return np.array(
        [[1 / (1 + np.exp(-(float(np.dot(weight, v)) / float(np.sqrt(np.dot(v, v))) + bias))) for v in row] for row in vectors]
    )


def test_answers_follow_the_protocol(home):
    detector, data = make_detector(), trials(2, 2, 40)
    text = probabilities(detector.net.text, [detector.embedder.embed_texts(row.tolist()) for row in data.captions])
    image = probabilities(
        detector.net.image, [detector.embedder.embed_images([colour(name) for name in row]) for row in data.images]
    )
    expected = decide_detector_wins(text, image)
    answers = detector.scores(data)
    wins = np.stack([answers.outcomes.has_wins(1 << bit) for bit in range(4)], axis=1)
    assert (wins == expected).all()
    assert 0 < expected.mean() < 1  # neither side is trivial
    accuracies = 100 * np.mean((text > 0.5) == [False, True]), 100 * np.mean((image > 0.5) == [False, True])
    assert detector.notes_on(data) == (
        f"text detection: {accuracies[0]:.2f} % right",
        f"image detection: {accuracies[1]:.2f} % right",
    )


def test_less_likely_synthetic_caption_is_chosen_for_one_image(home):
    detector, data = make_detector(), trials(2, 1, 20)
    text = probabilities(detector.net.text, [detector.embedder.embed_texts(row.tolist()) for row in data.captions])
    values = detector.scores(data).values
    assert values.shape == (20, 2, 1)
    assert ((values[:, 0, 0] > values[:, 1, 0]) == (text[:, 0] < text[:, 1])).all()
    assert len(detector.notes_on(data)) == 1  # only texts are classified, because all images are natural


def test_large_log_odds_do_not_tie(home):
    neuron = torch.nn.Linear(2, 1)
    torch.nn.init.constant_(neuron.weight, 1000.0)
    values = log_odds(neuron, np.array([[1.0, 0.0], [0.8, 0.6]]))
    assert (1 / (1 + np.exp(-values)) == 1).all()  # as probabilities they would tie
    assert values[0] < values[1]


def test_order_does_not_matter_and_items_are_embedded_once(home):
    detector, data = make_detector(), trials(2, 2, 9)
    order = np.random.default_rng(3).permutation(9)
    detection, again = detector.detect(data), detector.detect(data.select(order))
    assert (again.text == detection.text[order]).all()
    assert (again.image == detection.image[order]).all()
    embedded_count = type(detector.embedder).shown
    detector.notes_on(data)
    assert type(detector.embedder).shown == embedded_count
    cache = Cache(home / "cache")
    make_detector().settled(4, cache, 0).detect(data)
    assert (home / "cache/embeddings").is_dir()
    count = type(toy()).shown
    cached = make_detector().settled(4, cache, 0)
    assert (cached.detect(data).image == detection.image).all()
    assert type(cached.embedder).shown == count == 0  # each run of the file makes a new class


def test_saved_detector_is_loaded(home):
    detector, data = make_detector(), trials(2, 2)
    detector.save(home / "detector")
    loaded = load_detector(Path("detector"))
    assert loaded.signature == detector.signature == f"detector|weights:{detector.weights}|threshold:0.5|over:toy|weights:1"
    assert (loaded.detect(data).image == detector.detect(data).image).all()
    assert json.loads((home / "detector/model.json").read_text())["family"] == "detector"
    assert make_trained_detector("detector+toy.py:Toy").signature == detector.signature


def test_another_encoder_is_refused(home):
    make_detector().save(home / "detector")
    (home / "toy.py").write_text(ENCODER.replace("{weights}", "2"))
    with pytest.raises(CrossmatchError, match=r"trained on 'toy\|weights:1', but toy.py:Toy is 'toy\|weights:2'.*MODEL"):
        load_detector(Path("detector"))
    (home / "moved.py").write_text(ENCODER.replace("{weights}", "1"))
    (home / "toy.py").unlink()
    with pytest.raises(UsageError, match=r"is a detector on toy.py:Toy: there is no file toy.py.*-m detector:detector\+MODEL"):
        load_detector(Path("detector"))
    assert make_trained_detector("detector+moved.py:Toy").config.embedder == "toy.py:Toy"
    with pytest.raises(UsageError, match="names no model"):
        make_trained_detector("detector+")


def test_damaged_folder_is_refused(home):
    make_detector().save(home / "detector")
    next((home / "detector").glob("weights-*")).write_bytes(b"nothing")
    with pytest.raises(CrossmatchError, match=r"no complete detector.*Train it again"):
        load_detector(Path("detector"))
    with pytest.raises(CrossmatchError, match="no trained model"):
        load_detector(Path("nowhere"))


def test_text_encoder_detects_texts_only(home):
    detector = make_detector("Reader", image=0)
    assert detector.net.image is None
    assert len(detector.scores(trials(2, 1)).ids) == 6
    with pytest.raises(CrossmatchError, match=r"embeds texts only.*Train one on"):
        detector.scores(trials(2, 2))


@pytest.mark.parametrize("shape", [(1, 2), (3, 3)])
def test_trials_of_other_shapes_are_refused(home, shape):
    with pytest.raises(CrossmatchError, match="two captions with one or two images"):
        make_detector().scores(trials(*shape))


def test_unsuitable_encoders_are_refused(home):
    class Eyes:
        signature = "eyes"

        def embed_images(self, images):
            return np.zeros((len(images), 3))

    class Nameless:
        def embed_texts(self, texts):
            return np.zeros((len(texts), 3))

    for model, message in (
        (Eyes(), "embeds no texts"),
        (make_text_model("tfidf"), "fitted to the texts"),
        (Nameless(), "no signature"),
    ):
        with pytest.raises(UsageError, match=f"mine .*{message}"):
            require_embedder(model, "mine")


def test_zero_vectors_stay_zero():
    assert (normalise(np.zeros((2, 3))) == 0).all()


def test_evaluation_notes_that_the_detector_was_trained_on_the_trials(home):
    from crossmatch.benchmarks import load_benchmark_data
    from crossmatch.data.loaded_data import data_hash

    data = load_benchmark_data("diorama/bivlc", size="tiny")
    detector = make_detector(trials=[data_hash(data)])
    result = evaluate(detector, "diorama/bivlc", data=data, samples=20)
    text, image = detector.detect(data).text, detector.detect(data).image
    assert result["group"].value == pytest.approx(100 * decide_detector_wins(text, image, 0.0).all(axis=1).mean())
    assert any("image detection: " in note for note in result.notes)
    assert any("trained on some of these trials" in note for note in result.notes)
    assert result.system.endswith(detector.signature)
