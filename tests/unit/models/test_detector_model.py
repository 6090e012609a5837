"""A trained detector as a model: its answers are those of the protocol, item by item, and it knows its encoder again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.trials import Trials
from crossmatch.models.cache import ScoreCache
from crossmatch.models.detector import detector_outcomes
from crossmatch.models.text import text_model
from crossmatch.run import evaluate

torch = pytest.importorskip("torch")

from crossmatch.models.detector_model import (  # noqa: E402
    DetectorConfig,
    TrainedDetector,
    load,
    log_odds,
    require_embedder,
    trained_detector,
    unit,
)

ENCODER = '''
import numpy as np

class Toy:
    """Images by the mean of each channel, texts by how often each of three letters occurs; both far from unit length."""

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


def made(name="Toy", image=3, seed=0, **recipe) -> TrainedDetector:
    encoder = toy(name)
    found = TrainedDetector(DetectorConfig(f"toy.py:{name}", encoder.signature, 3, image), encoder, recipe)
    torch.manual_seed(seed)
    for values in found.net.parameters():
        torch.nn.init.normal_(values)
    return found


def probabilities(neuron, vectors):
    """One item after another, as the words of the paper have it: a sigmoid neuron over the vector at unit length."""
    weight, bias = neuron.weight.detach().numpy()[0].astype(float), float(neuron.bias.detach()[0])
    return np.array(
        [[1 / (1 + np.exp(-(float(np.dot(weight, v)) / float(np.sqrt(np.dot(v, v))) + bias))) for v in row] for row in vectors]
    )


def test_answers_are_those_of_probabilities_by_the_protocol(home):
    one, asked = made(), trials(2, 2, 40)
    text = probabilities(one.net.text, [one.embedder.embed_texts(row.tolist()) for row in asked.captions])
    image = probabilities(one.net.image, [one.embedder.embed_images([colour(name) for name in row]) for row in asked.images])
    expected = detector_outcomes(text, image)
    said = one.scores(asked)
    wins = np.stack([said.outcomes.won(1 << bit) for bit in range(4)], axis=1)
    assert (wins == expected).all()
    assert 0 < expected.mean() < 1  # neither side is trivial
    right = 100 * np.mean((text > 0.5) == [False, True]), 100 * np.mean((image > 0.5) == [False, True])
    assert one.notes_on(asked) == (f"text detection: {right[0]:.2f} % right", f"image detection: {right[1]:.2f} % right")


def test_with_one_image_the_caption_that_is_less_likely_synthetic_is_taken(home):
    one, asked = made(), trials(2, 1, 20)
    text = probabilities(one.net.text, [one.embedder.embed_texts(row.tolist()) for row in asked.captions])
    values = one.scores(asked).values
    assert values.shape == (20, 2, 1)
    assert ((values[:, 0, 0] > values[:, 1, 0]) == (text[:, 0] < text[:, 1])).all()
    assert len(one.notes_on(asked)) == 1  # images are all natural here, and nobody asks for their type


def test_sure_neurons_do_not_make_different_items_equal(home):
    neuron = torch.nn.Linear(2, 1)
    torch.nn.init.constant_(neuron.weight, 1000.0)
    found = log_odds(neuron, np.array([[1.0, 0.0], [0.8, 0.6]]))
    assert (1 / (1 + np.exp(-found)) == 1).all()  # as probabilities they would tie
    assert found[0] < found[1]


def test_the_order_of_the_trials_does_not_matter_and_nothing_is_embedded_twice(home):
    one, asked = made(), trials(2, 2, 9)
    order = np.random.default_rng(3).permutation(9)
    seen, again = one.detect(asked), one.detect(asked.chosen(order))
    assert (again.text == seen.text[order]).all()
    assert (again.image == seen.image[order]).all()
    shown = type(one.embedder).shown
    one.notes_on(asked)
    assert type(one.embedder).shown == shown
    cache = ScoreCache(home / "cache")
    made().settled(4, cache, 0).detect(asked)
    assert (home / "cache/embeddings").is_dir()
    counted = type(toy()).shown
    kept = made().settled(4, cache, 0)
    assert (kept.detect(asked).image == seen.image).all()
    assert type(kept.embedder).shown == counted == 0  # a class of its own for every file that is run


def test_as_a_folder(home):
    one, asked = made(), trials(2, 2)
    one.save(home / "detector")
    again = load(Path("detector"))
    assert again.signature == one.signature == f"detector|weights:{one.weights}|threshold:0.5|over:toy|weights:1"
    assert (again.detect(asked).image == one.detect(asked).image).all()
    assert json.loads((home / "detector/model.json").read_text())["family"] == "detector"
    assert trained_detector("detector+toy.py:Toy").signature == one.signature


def test_another_encoder_under_the_neurons_is_refused(home):
    made().save(home / "detector")
    (home / "toy.py").write_text(ENCODER.replace("{weights}", "2"))
    with pytest.raises(CrossmatchError, match=r"trained over 'toy\|weights:1', but toy.py:Toy is 'toy\|weights:2'.*MODEL"):
        load(Path("detector"))
    (home / "moved.py").write_text(ENCODER.replace("{weights}", "1"))
    (home / "toy.py").unlink()
    with pytest.raises(WrongWords, match=r"is a detector over toy.py:Toy: there is no file toy.py.*-m detector:detector\+MODEL"):
        load(Path("detector"))
    assert trained_detector("detector+moved.py:Toy").config.embedder == "toy.py:Toy"
    with pytest.raises(WrongWords, match="names no model"):
        trained_detector("detector+")


def test_a_damaged_folder_is_refused(home):
    made().save(home / "detector")
    next((home / "detector").glob("weights-*")).write_bytes(b"nothing")
    with pytest.raises(CrossmatchError, match=r"no whole detector.*Train it again"):
        load(Path("detector"))
    with pytest.raises(CrossmatchError, match="no trained model"):
        load(Path("nowhere"))


def test_a_reader_detects_texts_alone(home):
    one = made("Reader", image=0)
    assert one.net.image is None
    assert len(one.scores(trials(2, 1)).ids) == 6
    with pytest.raises(CrossmatchError, match=r"embeds texts alone.*Train one over"):
        one.scores(trials(2, 2))


@pytest.mark.parametrize("shape", [(1, 2), (3, 3)])
def test_other_trials_are_refused(home, shape):
    with pytest.raises(CrossmatchError, match="two captions with one image or two"):
        made().scores(trials(*shape))


def test_models_that_no_detector_can_look_through(home):
    class Eyes:
        signature = "eyes"

        def embed_images(self, images):
            return np.zeros((len(images), 3))

    class Nameless:
        def embed_texts(self, texts):
            return np.zeros((len(texts), 3))

    for model, why in ((Eyes(), "embeds no texts"), (text_model("tfidf"), "fitted to the texts"), (Nameless(), "no signature")):
        with pytest.raises(WrongWords, match=f"mine .*{why}"):
            require_embedder(model, "mine")


def test_zeros_stay_zeros():
    assert (unit(np.zeros((2, 3))) == 0).all()


def test_it_is_evaluated_like_any_model_and_says_so_where_it_knows_the_trials(home):
    from crossmatch.benchmarks import load_data
    from crossmatch.core.benchmark import data_hash

    data = load_data("diorama/bivlc", size="tiny")
    one = made(trials=[data_hash(data)])
    result = evaluate(one, "diorama/bivlc", data=data, samples=20)
    text, image = one.detect(data).text, one.detect(data).image
    assert result["group"].value == pytest.approx(100 * detector_outcomes(text, image, 0.0).all(axis=1).mean())
    assert any("image detection: " in note for note in result.notes)
    assert any("trained on some of these very trials" in note for note in result.notes)
    assert result.system.endswith(one.signature)
