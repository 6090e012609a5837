"""Baselines that see one side alone, and the language model behind one of them against a slow count."""

from __future__ import annotations

import json
import math
from itertools import product

import numpy as np
import pytest
from PIL import Image

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.models.abilities import abilities
from crossmatch.models.blind import BLIND, Ngram, blind, read_texts
from crossmatch.models.ngram import END, START, UNKNOWN, NgramModel, tokens

TEXTS = ["A cat sits on a mat.", "A dog sits on a rug.", "a dog runs", "Two cats sit.", "A dog sits on a mat.", "A dog runs."]


def kneser_ney(lines: list[tuple[str, ...]], word: str, context: tuple[str, ...], size: int) -> float:
    """P(word | context) from all n-grams of all lines, counted anew at every step."""

    def grams(n: int) -> list[tuple[str, ...]]:
        return [line[at : at + n] for line in lines for at in range(len(line) - n + 1)]

    def count(gram: tuple[str, ...]) -> int:
        if len(gram) == 3 or gram[0] == START:
            return grams(len(gram)).count(gram)
        return len({longer[0] for longer in grams(len(gram) + 1) if longer[1:] == gram})

    def discount(n: int) -> float:
        found = [count(gram) for gram in set(grams(n)) if gram != (START,)]
        return found.count(1) / (found.count(1) + 2 * found.count(2))

    follow = {gram[-1] for gram in grams(len(context) + 1) if gram[:-1] == context} - {START}
    lower = 1 / size if not context else kneser_ney(lines, word, context[1:], size)
    if not follow:
        return lower
    total = sum(count((*context, other)) for other in follow)
    d = discount(len(context) + 1)
    own = count((*context, word)) if word in follow else 0
    return (max(own - d, 0) + d * len(follow) * lower) / total


def test_probabilities_are_those_of_a_slow_count():
    model = NgramModel.fit(TEXTS)
    lines = [(START, *tokens(text), END) for text in TEXTS]
    size = len({word for line in lines for word in line} - {START}) + 1
    contexts = [(START,), (START, "a"), ("a", "dog"), ("dog", "sits"), ("on", "a"), ("mat", "cat"), ("zebra", "a")]
    for context, word in product(contexts, ("a", "dog", "mat", "runs", END, "zebra")):
        known = tuple(w if w in model.words or w == START else UNKNOWN for w in context)
        slow = kneser_ney(lines, word if word in model.vocabulary else UNKNOWN, known, size)
        assert model.probability(word, context) == pytest.approx(slow, rel=1e-12), (context, word)


@pytest.mark.parametrize("context", [(START,), (START, "a"), ("a", "dog"), ("never", "seen"), ("dog", "dog"), ()])
def test_whatever_follows_has_probability_one_in_all(context):
    model = NgramModel.fit(TEXTS)
    assert math.fsum(model.probability(word, context) for word in model.vocabulary) == pytest.approx(1)
    assert min(model.probability(word, context) for word in model.vocabulary) > 0


@pytest.mark.parametrize("texts", [["One."], ["a b c", "a b c"], ["a a a a"]])
def test_a_handful_of_captions_is_enough(texts):
    model = NgramModel.fit(texts)
    assert math.fsum(model.probability(word, (START,)) for word in model.vocabulary) == pytest.approx(1)
    assert math.isfinite(model.log_likelihood("something else entirely"))


def test_a_likelihood_is_the_product_over_words_and_end():
    model = NgramModel.fit(TEXTS)
    parts = [("a", (START,)), ("dog", (START, "a")), ("barks", ("a", "dog")), (END, ("dog", "barks"))]
    assert model.log_likelihood("A dog barks!") == pytest.approx(sum(math.log(model.probability(*part)) for part in parts))
    assert model.length("A dog barks!") == 4


def test_repeated_captions_count():
    once, often = NgramModel.fit([*TEXTS]), NgramModel.fit([*TEXTS, *["Two cats sit."] * 20])
    assert often.log_likelihood("Two cats sit.") > once.log_likelihood("Two cats sit.") + 1


def test_likely_captions_go_before_scrambled_ones():
    model = NgramModel.fit(TEXTS)
    for text in TEXTS[:2]:
        words = tokens(text)
        assert model.log_likelihood(text) > model.log_likelihood(" ".join(reversed(words)))


def test_the_baselines_see_one_side():
    texts = ["A cat.", "A big black cat.", "It isn't a dog's."]
    black, white = (Image.new("RGB", (60, 40), colour) for colour in ("black", "white"))
    checks = Image.fromarray(np.kron(np.indices((8, 8)).sum(axis=0) % 2, np.ones((16, 16))).astype(np.uint8) * 255)
    pictures = [black, white, checks]
    assert blind("longest").score([None] * 2, texts).tolist() == [[2, 4, 4]] * 2
    assert blind("shortest").score([None], texts).tolist() == [[-2, -4, -4]]
    assert blind("brightness").score(pictures, texts).tolist() == [[0] * 3, [1] * 3, [0.5] * 3]
    found = blind("detail").score(pictures, texts)
    assert found.shape == (3, 3)
    assert (found[:2] == 0).all()
    assert (found[2] > 0.05).all()
    assert [baseline.sees for baseline in (*BLIND, blind("ngram"))] == ["texts", "texts", "images", "images", "texts"]


def test_detail_does_not_grow_with_the_size_of_a_picture():
    rough = Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32)).astype(np.uint8)).resize((224, 224))
    small, large = (blind("detail").score([rough.resize((side, side))], ["x"])[0, 0] for side in (224, 448))
    assert large == pytest.approx(small, rel=0.1)


def test_a_language_model_from_a_file(tmp_path):
    path = tmp_path / "captions.txt"
    path.write_text("\n".join(TEXTS))
    model = blind(f"ngram={path}")
    said = model.log_likelihood([None, None], ["A dog runs.", "Runs dog a."])
    assert said.shape == (2, 2)
    assert (said[0] == said[1]).all()
    assert said[0, 0] > said[0, 1]
    assert model.lengths(["A dog runs.", "Hi"]).tolist() == [4, 2]
    assert model.seen(["a DOG runs!", "A cow runs."]).tolist() == [True, False]
    assert model.signature.startswith("blind:ngram|captions:captions.txt:")
    assert "log-likelihood" in abilities(model)


def test_the_embedded_world_teaches_by_default(monkeypatch):
    monkeypatch.setattr("crossmatch.models.blind.SCENES", 40)
    model = Ngram()
    own, turned = "There is a cat.", "Cat a is there."
    assert len(model.model.words) > 50
    assert model.log_likelihood([None], [own])[0, 0] > model.log_likelihood([None], [turned])[0, 0]


def test_captions_are_read_from_every_kind_of_file(tmp_path):
    said = ["A cat, black.", "Two dogs."]
    kinds = {
        "a.txt": "A cat, black.\n\nTwo dogs.\n",
        "a.csv": 'image,caption\n1,"A cat, black."\n2,Two dogs.\n',
        "a.tsv": "caption\timage\nA cat, black.\t1\nTwo dogs.\t2\n",
        "a.json": json.dumps({"annotations": [{"caption": text, "image_id": 1} for text in said]}),
    }
    for name, text in kinds.items():
        (tmp_path / name).write_text(text)
        assert read_texts(tmp_path / name) == said, name


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "image,text\n1,x\n", "caption was expected"),
        ("a.json", '{"annotations": [{"text": "x"}]}', "as COCO has it"),
        ("a.json", "{", "cannot be read as .json"),
        ("a.txt", " \n", "holds no captions"),
        ("a.doc", "x", ".txt, .csv, .tsv, .json"),
    ],
)
def test_bad_files_say_what_is_wrong(tmp_path, name, text, says):
    (tmp_path / name).write_text(text)
    with pytest.raises(CrossmatchError, match=says):
        read_texts(tmp_path / name)


def test_wrong_names():
    for wrong in ("", "clever", "longest=x"):
        with pytest.raises(WrongWords, match="there are blind:longest"):
            blind(wrong)
    with pytest.raises(WrongWords, match=r"no file nowhere\.txt"):
        blind("ngram=nowhere.txt")
    with pytest.raises(CrossmatchError, match="no words"):
        NgramModel.fit(["...", ""])
