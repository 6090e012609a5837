"""Cached models give the same numbers, open each image once and embed each text once."""

from collections import Counter

import numpy as np
import pytest

from crossmatch.captions.caption_metric_table import compute_metrics
from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.captions.human.cached_models import ArrayCache, CachedGrounder, cache_models
from crossmatch.captions.human.reference_curve import measure_reference_curve
from crossmatch.captions.human.sensitivity import measure_word_sensitivity
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.grounding import Grounding
from crossmatch.data.ratings import Preferences

VISUAL = ["clip-score", "ref-clip-score", "tiger"]
CAPTIONS = [
    "A man rides a horse.", "Two big dogs sit on a couch.", "A woman is eating pizza.", "A large bus drives down a street.",
    "A small cat sleeps on a bench.", "Three boys run with a green kite.", "A person on a pony.", "The dog and a man.",
]  # fmt: skip


class Model:
    """Vectors by the letters of a text or an image name; counts its inputs."""

    signature = "letters|1"

    def __init__(self):
        self.seen = Counter()

    def embed_images(self, images):
        self.seen.update(images)
        return np.array([[image.count(letter) + 0.1 for letter in "aeiost"] for image in images])

    def embed_texts(self, texts):
        self.seen.update(texts)
        return np.array([[text.count(letter) for letter in "aeiost"] for text in texts], dtype=np.float32)

    def ground(self, images, texts):
        self.seen.update(zip(images, texts, strict=True))
        regions = [2 + len(image) % 2 for image in images]
        scores = np.full((len(texts), max(regions)), np.nan)
        boxes = np.full((*scores.shape, 4), np.nan)
        for n, (text, many) in enumerate(zip(texts, regions, strict=True)):
            scores[n, :many] = [text.count(letter) / len(text) + 0.01 for letter in "aeo"[:many]]
            boxes[n, :many] = many
        return Grounding(scores, boxes)


class Opener:
    def __init__(self):
        self.opened = Counter()

    def __call__(self, name):
        self.opened[name] += 1
        return f"picture {name * 3}"


@pytest.fixture
def study():
    images = [f"i{'x' * (n // 2)}" for n in range(6)]
    pairs = [(CAPTIONS[n], CAPTIONS[(n + 3) % 8]) for n in range(6)]
    references = [[CAPTIONS[(n + at) % 8] for at in (1, 2, 4)] for n in range(6)]
    return Preferences("mine", [str(n) for n in range(6)], images, pairs, references, [0, 1] * 3, ["a", "b"] * 3)


def test_curve_opens_each_image_once_and_embeds_each_text_once(study):
    embedder, grounder, opener = Model(), Model(), Opener()
    resources = {"embedder": embedder, "grounder": grounder, "images": opener}
    curve = measure_reference_curve(study, VISUAL, draws=6, **resources)
    assert set(embedder.seen.values()) == set(grounder.seen.values()) == {1}
    assert opener.opened == dict.fromkeys(dict.fromkeys(study.images.tolist()), 2)  # by each of the two models
    assert len(curve.signatures) == 5
    assert "|embedder:letters,1|" in curve.signatures["clip-score"]
    plain = [p for p in curve.points if p.metric == "clip-score" and p.group == "mean"]
    assert len({(p.value, p.low, p.draw_low, p.draw_high, p.draws) for p in plain}) == 1  # references have no influence
    assert plain[0].draws == 1


def test_last_point_equals_uncached_models(study):
    """The curve with all references against models without a cache."""
    resources = {"embedder": Model(), "grounder": Model()}
    curve = measure_reference_curve(study, VISUAL, draws=2, images=Opener(), **resources)
    names = {f"{n}/{which}": n for n in range(6) for which in (0, 1)}
    corpus = CaptionCorpus.from_texts(
        {i: study.captions[n][int(i[-1])] for i, n in names.items()}, {i: study.references[n] for i, n in names.items()}
    )
    opener = Opener()
    results = compute_metrics(corpus, VISUAL, images=lambda i: opener(str(study.images[names[i]])), **resources)
    for name, result in results.items():
        pair_scores = result.scores.values.reshape(-1, 2)
        right = pair_scores[np.arange(6), study.preferred] > pair_scores[np.arange(6), 1 - study.preferred]
        point = next(p for p in curve.points if (p.metric, p.group, p.references) == (name, "mean", 3))
        assert point.value == pytest.approx(right.reshape(-1, 2).mean())


def test_analyses_share_a_cache(study):
    embedder, grounder, opener = Model(), Model(), Opener()
    resources = cache_models({"embedder": embedder, "grounder": grounder, "images": opener})
    assert cache_models(resources) == resources
    first = measure_reference_curve(study, VISUAL, draws=3, **resources)
    inputs, opened = Counter(grounder.seen), Counter(opener.opened)
    assert measure_reference_curve(study, VISUAL, draws=3, **resources).points == first.points
    assert (grounder.seen, opener.opened) == (inputs, opened)
    measure_word_sensitivity(study, VISUAL, **resources)
    assert set(embedder.seen.values()) == set(grounder.seen.values()) == {1}


def test_sensitivity_opens_each_image_once(study):
    embedder, grounder, opener = Model(), Model(), Opener()
    result = measure_word_sensitivity(study, VISUAL, embedder=embedder, grounder=grounder, images=opener)
    assert result.rows[0].probes > 1
    assert set(opener.opened.values()) == {2}  # by each of the two models
    assert set(embedder.seen.values()) == set(grounder.seen.values()) == {1}


def test_same_id_from_another_source_is_another_image():
    model = Model()
    first, second = (cache_models({"images": images, "grounder": model}) for images in ({"7": "here"}, {"7": "there"}))
    grounder = CachedGrounder(model)
    grounded = grounder.ground([first["images"]("7"), second["images"]("7"), first["images"]("7")], ["a man", "a man", "a man"])
    assert model.seen == {("here", "a man"): 1, ("there", "a man"): 1}
    assert grounded.regions.tolist() == [2, 3, 2]
    assert (grounded.boxes[1] == 3).all()
    assert np.isnan(grounded.boxes[0, 2]).all()


def test_without_images_nothing_is_wrapped():
    resources = {"frequencies": None, "embedder": object(), "images": None}
    assert cache_models(resources) == resources


def test_full_cache_drops_the_oldest():
    memory, requests = ArrayCache(max_bytes=16), []

    def compute(new):
        requests.append(list(new))
        return [np.array([float(key)]) for key in new]

    assert memory.get([1, 2, 3], compute) == [1.0, 2.0, 3.0]
    assert memory.get([3, 2, 1], compute) == [3.0, 2.0, 1.0]
    assert (requests, memory.used_bytes, list(memory.arrays)) == ([[1, 2, 3], [1]], 16, [3, 1])


@pytest.mark.parametrize("rows", [[[1.0]], [1.0, 2.0]])
def test_wrong_number_of_outputs_is_refused(rows):
    class Wrong:
        def embed_texts(self, texts):
            return rows

        def ground(self, images, texts):
            return Grounding(np.ones((1, 2)))

    resources = cache_models({"images": {"7": "here"}, "embedder": Wrong(), "grounder": Wrong()})
    with pytest.raises(CrossmatchError, match="Expected embeddings of shape"):
        resources["embedder"].embed_texts(["a", "b"])
    with pytest.raises(CrossmatchError, match="got 1 for 2 captions"):
        resources["grounder"].ground([resources["images"]("7")] * 2, ["a", "b"])
