"""TIGEr of a corpus: calls of the grounder, comparison with references, and special cases."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch.captions.corpus import CaptionCorpus, leave_one_out
from crossmatch.captions.tiger.score import rrs, tiger, wds
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.grounding import Grounding


class Letters:
    """The image is a word, and each letter a region; its score is the share of the letter in the text."""

    def __init__(self):
        self.calls = []

    def ground(self, images, texts):
        self.calls.append((list(images), list(texts)))
        most = max(map(len, images))
        scores = np.full((len(texts), most), np.nan)
        for n, (image, text) in enumerate(zip(images, texts, strict=True)):
            scores[n, : len(image)] = [text.count(letter) / max(1, len(text)) for letter in image]
        boxes = np.zeros((*scores.shape, 4))
        boxes[:, :, 2:] = 1
        return Grounding(scores, boxes)


CANDIDATES = {"x": "a bad cab", "y": "Dad!", "z": "abba"}
REFERENCES = {"x": ["a cab", "bad  CAB"], "y": ["a dad", "dad"], "z": ["a bee"]}
PICTURES = {"x": "abc", "y": "ad", "z": "abeq"}


@pytest.fixture
def corpus():
    return CaptionCorpus.from_texts(CANDIDATES, REFERENCES)


def by_hand(grounder, name, references):
    score = lambda text: grounder.ground([PICTURES[name]], [text]).scores  # noqa: E731
    candidate, mean = score(CANDIDATES[name]), np.mean([score(text) for text in references], axis=0)
    rank, weight = rrs(candidate, mean)[0], wds(candidate, mean)[0]
    return (rank + weight) / 2, rank, weight


@pytest.mark.parametrize("batch", [1, 2, 64])
def test_candidate_is_compared_with_the_mean_of_its_references(corpus, batch):
    result = tiger(corpus, grounder=Letters(), images=PICTURES, batch=batch)
    expected = [by_hand(Letters(), name, REFERENCES[name]) for name in CANDIDATES]
    np.testing.assert_allclose(np.array([scores.values for scores in result]).T, expected, rtol=0, atol=1e-12)
    assert [scores.value for scores in result] == pytest.approx(np.mean(expected, axis=0), abs=1e-12)


def test_original_texts_are_grounded_and_images_opened_once(corpus):
    opened, grounder = [], Letters()
    tiger(corpus, grounder=grounder, images=lambda name: opened.append(name) or PICTURES[name], batch=2)
    assert opened == ["x", "y", "z"]
    assert grounder.calls == [
        (["abc"] * 3 + ["ad"] * 3, ["a bad cab", "a cab", "bad  CAB", "Dad!", "a dad", "dad"]),
        (["abeq"] * 2, ["abba", "a bee"]),
    ]


def test_candidate_that_is_a_reference_is_left_out(corpus):
    candidates = {"x": "a bad cab", "y": "Dad!", "z": "abba"}
    corpus = CaptionCorpus.from_texts(candidates, leave_one_out([candidates], REFERENCES))
    result = tiger(corpus, grounder=Letters(), images=PICTURES)
    assert result[0].values[1] == pytest.approx(by_hand(Letters(), "y", ["a dad"])[0], abs=1e-12)
    assert result[0].values[0] == pytest.approx(by_hand(Letters(), "x", REFERENCES["x"])[0], abs=1e-12)


def test_equal_grounding_scores_three_quarters():
    corpus = CaptionCorpus.from_texts({"x": "a bad cab"}, {"x": ["cab a bad"]})
    for variant in ("paper", "released"):
        assert [s.value for s in tiger(corpus, grounder=Letters(), images=PICTURES, variant=variant)] == pytest.approx(
            [0.75, 1, 0.5]
        )


def test_empty_captions_have_limit_values():
    corpus = CaptionCorpus.from_texts({"x": "", "y": "???", "z": ""}, {"x": ["a cab"], "y": ["dad"], "z": ["", "..."]})
    total, rank, weight = tiger(corpus, grounder=Letters(), images=PICTURES)
    assert weight.values == pytest.approx([0, 0, 0.5])  # grounded nowhere; in z, neither are the references
    assert rank.values[2] == 1
    shuffled = [rrs(np.array([order]), np.array([[2, 1, 1.0]]) / 5)[0] for order in ([3.0, 2, 1], [2.0, 3, 1], [1.0, 2, 3])]
    assert rank.values[0] == pytest.approx(np.mean(shuffled))  # the mean over all orders of the regions
    assert total.values == pytest.approx((rank.values + weight.values) / 2)


def test_single_region_has_rrs_one():
    for variant in ("paper", "released"):
        assert rrs(np.array([[0.2], [-0.2], [0.0]]), np.array([[0.7], [-0.7], [0.0]]), variant).tolist() == [1, 1, 1]
    assert wds(np.array([[0.2]]), np.array([[0.4]]), tau=2.0)[0] == pytest.approx(1 / 5)  # D = log 2; 1 / (1 + 2²)


def test_constant_scores():
    flat, uneven = np.full((1, 4), 0.3), np.array([[0.1, 0.9, 0.2, 0.3]])
    for variant in ("paper", "released"):
        assert rrs(flat, flat, variant)[0] == rrs(uneven, flat, variant)[0] == 1
    assert wds(flat, flat)[0] == 0.5
    discounts = 1 / np.log2(np.arange(2, 6))
    ideal = np.sort(uneven[0])[::-1] @ discounts
    assert rrs(flat, uneven)[0] == pytest.approx(uneven.mean() * discounts.sum() / ideal)


def test_zero_vectors_have_limit_values():
    zero, some = np.zeros((1, 3)), np.array([[0.5, 0.2, 0.1]])
    assert wds(zero, some)[0] == 0
    assert wds(some, zero)[0] == 1
    assert wds(zero, zero)[0] == 0.5
    assert rrs(some, zero)[0] == rrs(zero, zero)[0] == 1


def test_limit_values_are_continuous():
    some = np.array([[0.5, 0.2, 0.1]])
    assert wds(some * 1e-200, some)[0] == pytest.approx(0, abs=1e-100)
    assert wds(some, some * 1e-200)[0] == 1
    # As the ideal gain of negative relevance goes to 0 from above, what is not ideal goes to 0.
    worse, better = np.array([[1.0, 2.0]]), np.array([[2.0, 1.0]])
    for least in (1e-3, 1e-9, 0.0, -1e-9, -1e-3):
        reference = np.array([[1.0, -np.log2(3) * (1 - least)]])
        assert rrs(better, reference)[0] == 1
        assert rrs(worse, reference)[0] == 0


def test_rrs_stays_between_0_and_1_for_negative_scores():
    rng = np.random.default_rng(0)
    candidate, reference = rng.standard_normal((2, 500, 5))
    values = rrs(candidate, reference)
    assert values.min() == 0
    assert values.max() == 1
    assert len(np.unique(values)) > 100


def test_released_variant_ignores_the_level_of_relevance():
    candidate, reference = np.array([[0.1, 0.3, 0.2]]), np.array([[0.82, 0.81, 0.80]])
    assert rrs(candidate, reference)[0] > 0.99
    assert rrs(candidate, reference, "released")[0] == pytest.approx((0.5 + 1 / 2) / (1 + 0.5 / np.log2(3)))
    assert rrs(candidate, reference - 5, "released")[0] == pytest.approx(rrs(candidate, reference, "released")[0], abs=1e-9)


def test_huge_scores_do_not_overflow():
    big = np.array([[1e300, -1e300, 0.0]])
    assert wds(big, big)[0] == 0.5
    assert wds(big, big[:, ::-1])[0] == 0
    assert rrs(big, big)[0] == 1


def test_corpus_of_tokens_is_refused():
    with pytest.raises(CrossmatchError, match=r"CaptionCorpus\.from_texts"):
        tiger(CaptionCorpus.from_tokens([["a"]], [[["b"]]]), grounder=Letters(), images={"0": "ab"})


def test_missing_image_is_named(corpus):
    with pytest.raises(CrossmatchError, match="No image for candidate 'y' among 1"):
        tiger(corpus, grounder=Letters(), images={"x": "abc"})


class Broken:
    def __init__(self, scores):
        self.scores = np.array(scores, dtype=float)

    def ground(self, images, texts):
        return Grounding(self.scores)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[1.0, 2.0]], "got 1 for 2 captions"),
        ([[np.nan], [np.nan]], "Image 'x': the grounder returned 0 regions"),
        ([[1.0, 2.0], [1.0, np.nan]], "Image 'x': the grounder returned 2 regions for one caption and 1"),
    ],
)
def test_inconsistent_grounder_is_refused(scores, message):
    with pytest.raises(CrossmatchError, match=message):
        tiger(CaptionCorpus.from_texts({"x": "a"}, {"x": ["b"]}), grounder=Broken(scores), images={"x": "ab"})


@pytest.mark.parametrize("measure", [rrs, wds])
def test_mismatched_vectors_are_refused(measure):
    with pytest.raises(CrossmatchError, match=r"got \(1, 2\) and \(1, 3\)"):
        measure(np.ones((1, 2)), np.ones((1, 3)))
    with pytest.raises(CrossmatchError, match="row 1:"):
        measure(np.ones((2, 2)), np.array([[1, 1], [1, np.nan]]))
    with pytest.raises(CrossmatchError, match="row 0:"):
        measure(np.array([[np.inf, 1]]), np.ones((1, 2)))


def test_invalid_options_are_refused(corpus):
    with pytest.raises(UsageError, match=r"unknown variant 'original'. Choose from: paper, released"):
        tiger(corpus, grounder=Letters(), images=PICTURES, variant="original")
    for tau in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(CrossmatchError, match="must be a positive number"):
            tiger(corpus, grounder=Letters(), images=PICTURES, tau=tau)
