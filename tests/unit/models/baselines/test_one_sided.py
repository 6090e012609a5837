"""Blind baselines, and the n-gram language model against a slow count."""

from __future__ import annotations

import json
import math
from itertools import product

import numpy as np
import pytest
from PIL import Image

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.models.abilities import list_abilities
from crossmatch.models.baselines.ngram_language_model import END, START, UNKNOWN, NgramModel, tokenize
from crossmatch.models.baselines.one_sided import BLIND, NgramScorer, make_blind_model, read_caption_texts

TEXTS = ["A cat sits on a mat.", "A dog sits on a rug.", "a dog runs", "Two cats sit.", "A dog sits on a mat.", "A dog runs."]


def kneser_ney(lines: list[tuple[str, ...]], word: str, context: tuple[str, ...], size: int) -> float:
    """P(word | context) from all n-grams of all lines, counted again at every step."""

    def grams(n: int) -> list[tuple[str, ...]]:
        return [line[at : at + n] for line in lines for at in range(len(line) - n + 1)]

    def count(gram: tuple[str, ...]) -> int:
        if len(gram) == 3 or gram[0] == START:
            return grams(len(gram)).count(gram)
        return len({longer[0] for longer in grams(len(gram) + 1) if longer[1:] == gram})

    def discount(n: int) -> float:
        counts = [count(gram) for gram in set(grams(n)) if gram != (START,)]
        return counts.count(1) / (counts.count(1) + 2 * counts.count(2))

    follow = {gram[-1] for gram in grams(len(context) + 1) if gram[:-1] == context} - {START}
    lower = 1 / size if not context else kneser_ney(lines, word, context[1:], size)
    if not follow:
        return lower
    total = sum(count((*context, follower)) for follower in follow)
    d = discount(len(context) + 1)
    word_count = count((*context, word)) if word in follow else 0
    return (max(word_count - d, 0) + d * len(follow) * lower) / total


def test_probabilities_equal_a_slow_count():
    model = NgramModel.fit(TEXTS)
    lines = [(START, *tokenize(text), END) for text in TEXTS]
    size = len({word for line in lines for word in line} - {START}) + 1
    contexts = [(START,), (START, "a"), ("a", "dog"), ("dog", "sits"), ("on", "a"), ("mat", "cat"), ("zebra", "a")]
    for context, word in product(contexts, ("a", "dog", "mat", "runs", END, "zebra")):
        known_context = tuple(w if w in model.words or w == START else UNKNOWN for w in context)
        slow = kneser_ney(lines, word if word in model.vocabulary else UNKNOWN, known_context, size)
        assert model.probability(word, context) == pytest.approx(slow, rel=1e-12), (context, word)


@pytest.mark.parametrize("context", [(START,), (START, "a"), ("a", "dog"), ("never", "seen"), ("dog", "dog"), ()])
def test_probabilities_sum_to_one(context):
    model = NgramModel.fit(TEXTS)
    assert math.fsum(model.probability(word, context) for word in model.vocabulary) == pytest.approx(1)
    assert min(model.probability(word, context) for word in model.vocabulary) > 0


@pytest.mark.parametrize("texts", [["One."], ["a b c", "a b c"], ["a a a a"]])
def test_few_captions_give_a_distribution(texts):
    model = NgramModel.fit(texts)
    assert math.fsum(model.probability(word, (START,)) for word in model.vocabulary) == pytest.approx(1)
    assert math.isfinite(model.log_likelihood("something else entirely"))


def test_likelihood_is_the_product_over_words_and_end():
    model = NgramModel.fit(TEXTS)
    parts = [("a", (START,)), ("dog", (START, "a")), ("barks", ("a", "dog")), (END, ("dog", "barks"))]
    assert model.log_likelihood("A dog barks!") == pytest.approx(sum(math.log(model.probability(*part)) for part in parts))
    assert model.length("A dog barks!") == 4


def test_repeated_captions_are_more_likely():
    once, often = NgramModel.fit([*TEXTS]), NgramModel.fit([*TEXTS, *["Two cats sit."] * 20])
    assert often.log_likelihood("Two cats sit.") > once.log_likelihood("Two cats sit.") + 1


def test_captions_are_more_likely_than_reversed_ones():
    model = NgramModel.fit(TEXTS)
    for text in TEXTS[:2]:
        words = tokenize(text)
        assert model.log_likelihood(text) > model.log_likelihood(" ".join(reversed(words)))


def test_baselines_use_one_side():
    texts = ["A cat.", "A big black cat.", "It isn't a dog's."]
    black, white = (Image.new("RGB", (60, 40), colour) for colour in ("black", "white"))
    checkerboard = Image.fromarray(np.kron(np.indices((8, 8)).sum(axis=0) % 2, np.ones((16, 16))).astype(np.uint8) * 255)
    images = [black, white, checkerboard]
    assert make_blind_model("longest").score([None] * 2, texts).tolist() == [[2, 4, 4]] * 2
    assert make_blind_model("shortest").score([None], texts).tolist() == [[-2, -4, -4]]
    assert make_blind_model("brightness").score(images, texts).tolist() == [[0] * 3, [1] * 3, [0.5] * 3]
    scores = make_blind_model("detail").score(images, texts)
    assert scores.shape == (3, 3)
    assert (scores[:2] == 0).all()
    assert (scores[2] > 0.05).all()
    assert [baseline.inputs for baseline in (*BLIND, make_blind_model("ngram"))] == ["texts", "texts", "images", "images", "texts"]


def test_detail_does_not_depend_on_image_size():
    rough = Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32)).astype(np.uint8)).resize((224, 224))
    small, large = (make_blind_model("detail").score([rough.resize((side, side))], ["x"])[0, 0] for side in (224, 448))
    assert large == pytest.approx(small, rel=0.1)


def test_language_model_is_fitted_on_a_file(tmp_path):
    path = tmp_path / "captions.txt"
    path.write_text("\n".join(TEXTS))
    model = make_blind_model(f"ngram={path}")
    scores = model.log_likelihood([None, None], ["A dog runs.", "Runs dog a."])
    assert scores.shape == (2, 2)
    assert (scores[0] == scores[1]).all()
    assert scores[0, 0] > scores[0, 1]
    assert model.lengths(["A dog runs.", "Hi"]).tolist() == [4, 2]
    assert model.was_fitted_on(["a DOG runs!", "A cow runs."]).tolist() == [True, False]
    assert model.signature.startswith("blind:ngram|captions:captions.txt:")
    assert "log-likelihood" in list_abilities(model)


def test_language_model_is_fitted_on_diorama_by_default(monkeypatch):
    monkeypatch.setattr("crossmatch.models.baselines.one_sided.SCENES", 40)
    model = NgramScorer()
    fluent, reversed_text = "There is a cat.", "Cat a is there."
    assert len(model.model.words) > 50
    assert model.log_likelihood([None], [fluent])[0, 0] > model.log_likelihood([None], [reversed_text])[0, 0]


def test_captions_are_read_from_every_file_type(tmp_path):
    captions = ["A cat, black.", "Two dogs."]
    files = {
        "a.txt": "A cat, black.\n\nTwo dogs.\n",
        "a.csv": 'image,caption\n1,"A cat, black."\n2,Two dogs.\n',
        "a.tsv": "caption\timage\nA cat, black.\t1\nTwo dogs.\t2\n",
        "a.json": json.dumps({"annotations": [{"caption": text, "image_id": 1} for text in captions]}),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        assert read_caption_texts(tmp_path / name) == captions, name


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "image,text\n1,x\n", "expected a column caption"),
        ("a.json", '{"annotations": [{"text": "x"}]}', "as in COCO"),
        ("a.json", "{", "cannot be read as .json"),
        ("a.txt", " \n", "has no captions"),
        ("a.doc", "x", ".txt, .csv, .tsv, .json"),
    ],
)
def test_wrong_files_are_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(CrossmatchError, match=message):
        read_caption_texts(tmp_path / name)


def test_wrong_names_are_refused():
    for wrong in ("", "clever", "longest=x"):
        with pytest.raises(UsageError, match="Use one of blind:longest"):
            make_blind_model(wrong)
    with pytest.raises(UsageError, match=r"no file nowhere\.txt"):
        make_blind_model("ngram=nowhere.txt")
    with pytest.raises(CrossmatchError, match="no words"):
        NgramModel.fit(["...", ""])
