"""CLIPScore and RefCLIPScore against their definition, one caption at a time."""

from __future__ import annotations

import math
import zlib

import numpy as np
import pytest

from crossmatch.captions.clip_score import clip_score, ref_clip_score
from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.data.errors import CrossmatchError


class Hashed:
    """Every text and image (here also a text) has its own direction; a name that ends in 0 has a zero vector."""

    def __init__(self):
        self.images, self.texts = [], []

    def vector(self, item):
        if item.endswith("0"):
            return [0.0] * 4
        return (np.random.default_rng(zlib.crc32(item.encode())).standard_normal(4) * len(item)).tolist()

    def embed_images(self, images):
        self.images += images
        return [self.vector(image) for image in images]

    def embed_texts(self, texts):
        self.texts += texts
        return [self.vector(text) for text in texts]


def cosine(x, y):
    lengths = math.sqrt(sum(a * a for a in x)) * math.sqrt(sum(b * b for b in y))
    return sum(a * b for a, b in zip(x, y, strict=True)) / lengths if lengths else 0.0


CANDIDATES = {f"i{n}": f"caption {n}" for n in range(30)}
REFERENCES = {f"i{n}": [f"caption {n % 7}", *(f"reference {n} {k}" for k in range(n % 4))] for n in range(30)}
PICTURES = {name: f"picture of {name}" for name in CANDIDATES}


@pytest.fixture
def corpus():
    return CaptionCorpus.from_texts(CANDIDATES, REFERENCES)


@pytest.mark.parametrize(("weight", "prefix"), [(2.5, "A photo depicts "), (1.0, "")])
@pytest.mark.parametrize("batch", [1, 7, 100])
def test_scores_equal_the_definition(corpus, weight, prefix, batch):
    options = {"images": PICTURES, "weight": weight, "prefix": prefix, "batch": batch}
    (plain,), (with_references,) = (
        clip_score(corpus, embedder=Hashed(), **options),
        ref_clip_score(corpus, embedder=Hashed(), **options),
    )
    model, expected, expected_with = Hashed(), [], []
    for name, text in CANDIDATES.items():
        candidate = model.vector(prefix + text)
        s = weight * max(cosine(candidate, model.vector(PICTURES[name])), 0)
        r = max(max(cosine(candidate, model.vector(prefix + reference)) for reference in REFERENCES[name]), 0)
        expected.append(s)
        expected_with.append(2 * s * r / (s + r) if s + r else 0.0)
    np.testing.assert_allclose(plain.values, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(with_references.values, expected_with, rtol=0, atol=1e-12)
    assert plain.value == pytest.approx(np.mean(expected))
    assert with_references.value == pytest.approx(np.mean(expected_with))
    assert np.count_nonzero(plain.values) < len(CANDIDATES)  # some cosines are negative, and one caption is nowhere


def test_default_options_are_those_of_the_paper(corpus):
    model = Hashed()
    (scores,) = clip_score(corpus, embedder=model, images=PICTURES)
    assert model.texts[0] == "A photo depicts caption 0"
    (explicit,) = clip_score(corpus, embedder=Hashed(), images=PICTURES, weight=2.5, prefix="A photo depicts ")
    np.testing.assert_array_equal(scores.values, explicit.values)


def test_each_image_and_text_is_embedded_once(corpus):
    model, opened = Hashed(), []
    ref_clip_score(corpus, embedder=model, images=lambda name: opened.append(name) or PICTURES[name], batch=4)
    assert opened == list(CANDIDATES)
    assert model.images == list(PICTURES.values())
    texts = {*CANDIDATES.values(), *(text for texts in REFERENCES.values() for text in texts)}
    assert sorted(model.texts) == sorted(f"A photo depicts {text}" for text in texts)


def test_clip_score_embeds_no_references(corpus):
    model = Hashed()
    clip_score(corpus, embedder=model, images=PICTURES)
    assert sorted(model.texts) == sorted(f"A photo depicts {text}" for text in CANDIDATES.values())


def test_zero_vectors_score_zero():
    corpus = CaptionCorpus.from_texts(
        {"a": "caption 0", "b": "caption 1", "c": "caption 1"}, {"a": ["x"], "b": ["x 0"], "c": ["caption 1"]}
    )
    pictures = {"a": "p", "b": "p", "c": "p 0"}
    assert clip_score(corpus, embedder=Hashed(), images=pictures, prefix="")[0].values[[0, 2]].tolist() == [0, 0]
    assert ref_clip_score(corpus, embedder=Hashed(), images=pictures, prefix="")[0].values.tolist() == [0, 0, 0]


def test_length_of_embeddings_does_not_matter(corpus):
    class Scaled(Hashed):
        def embed_images(self, images):
            return np.array(super().embed_images(images)) * 1e-200

        def embed_texts(self, texts):
            return np.array(super().embed_texts(texts)) * 1e200

    for metric in (clip_score, ref_clip_score):
        scaled, plain = (metric(corpus, embedder=model, images=PICTURES)[0].values for model in (Scaled(), Hashed()))
        np.testing.assert_allclose(scaled, plain, rtol=0, atol=1e-12)


class Fixed:
    def __init__(self, images, texts):
        self.embed_images, self.embed_texts = (lambda items, make=make: make(len(items)) for make in (images, texts))


@pytest.mark.parametrize("metric", [clip_score, ref_clip_score])
@pytest.mark.parametrize(
    ("images", "texts", "message"),
    [
        (lambda n: np.ones((n, 3)), lambda n: np.ones((n, 4)), "images in 3 dimensions and texts in 4"),
        (lambda n: np.ones((n + 1, 4)), lambda n: np.ones((n, 4)), r"for 30 images, .* got \(31, 4\)"),
        (lambda n: np.ones((n, 4)), lambda n: np.ones(n), "texts, with the same d in every batch, got"),
        (
            lambda n: np.ones((n, 4)),
            lambda n: np.where(np.arange(n)[:, None] == 3, np.nan, np.ones(4)),
            "number 3 of the texts has NaN",
        ),
    ],
)
def test_invalid_embeddings_are_refused(corpus, metric, images, texts, message):
    with pytest.raises(CrossmatchError, match=message):
        metric(corpus, embedder=Fixed(images, texts), images=PICTURES)


def test_missing_image_tokens_and_invalid_weight_are_refused(corpus):
    with pytest.raises(CrossmatchError, match="No image for candidate 'i1'"):
        clip_score(corpus, embedder=Hashed(), images={"i0": "p"})
    with pytest.raises(CrossmatchError, match="tokens only"):
        clip_score(CaptionCorpus.from_tokens([["a"]], [[["b"]]]), embedder=Hashed(), images={"0": "p"})
    with pytest.raises(CrossmatchError, match="weight must be a positive number, got 0"):
        clip_score(corpus, embedder=Hashed(), images=PICTURES, weight=0)
