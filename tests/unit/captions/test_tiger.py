"""TIGEr of a corpus: what the grounder is asked, whom a candidate is compared with, and where the formulas break down."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch.captions.corpus import Corpus
from crossmatch.captions.leave_out import leave_own_out
from crossmatch.captions.tiger import references_mean, rrs, tiger, wds
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.grounding import Grounding


class Letters:
    """A region for each letter of the picture (a word); its score is the share of the text that the letter makes up."""

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
    return Corpus.of(CANDIDATES, REFERENCES)


def by_hand(grounder, name, references):
    score = lambda text: grounder.ground([PICTURES[name]], [text]).scores  # noqa: E731
    own, mean = score(CANDIDATES[name]), np.mean([score(text) for text in references], axis=0)
    rank, weight = rrs(own, mean)[0], wds(own, mean)[0]
    return (rank + weight) / 2, rank, weight


@pytest.mark.parametrize("batch", [1, 2, 64])
def test_every_candidate_is_compared_with_the_mean_of_its_references(corpus, batch):
    found = tiger(corpus, grounder=Letters(), images=PICTURES, batch=batch)
    expected = [by_hand(Letters(), name, REFERENCES[name]) for name in CANDIDATES]
    np.testing.assert_allclose(np.array([scores.values for scores in found]).T, expected, rtol=0, atol=1e-12)
    assert [scores.value for scores in found] == pytest.approx(np.mean(expected, axis=0), abs=1e-12)


def test_texts_are_grounded_as_they_were_written_and_pictures_are_opened_once(corpus):
    opened, grounder = [], Letters()
    tiger(corpus, grounder=grounder, images=lambda name: opened.append(name) or PICTURES[name], batch=2)
    assert opened == ["x", "y", "z"]
    assert grounder.calls == [
        (["abc"] * 3 + ["ad"] * 3, ["a bad cab", "a cab", "bad  CAB", "Dad!", "a dad", "dad"]),
        (["abeq"] * 2, ["abba", "a bee"]),
    ]


def test_a_candidate_that_is_a_reference_is_compared_with_the_others(corpus):
    candidates = {"x": "a bad cab", "y": "Dad!", "z": "abba"}
    corpus = Corpus.of(candidates, leave_own_out(candidates, REFERENCES))
    found = tiger(corpus, grounder=Letters(), images=PICTURES)
    assert found[0].values[1] == pytest.approx(by_hand(Letters(), "y", ["a dad"])[0], abs=1e-12)
    assert found[0].values[0] == pytest.approx(by_hand(Letters(), "x", REFERENCES["x"])[0], abs=1e-12)


def test_a_candidate_grounded_as_its_single_reference_has_three_quarters():
    corpus = Corpus.of({"x": "a bad cab"}, {"x": ["cab a bad"]})
    for variant in ("paper", "released"):
        assert [s.value for s in tiger(corpus, grounder=Letters(), images=PICTURES, variant=variant)] == pytest.approx(
            [0.75, 1, 0.5]
        )


def test_an_empty_caption_and_one_of_unknown_words():
    corpus = Corpus.of({"x": "", "y": "???", "z": ""}, {"x": ["a cab"], "y": ["dad"], "z": ["", "..."]})
    whole, rank, weight = tiger(corpus, grounder=Letters(), images=PICTURES)
    assert weight.values == pytest.approx([0, 0, 0.5])  # grounded nowhere; in z, neither are the references
    assert rank.values[2] == 1
    shuffled = [rrs(np.array([order]), np.array([[2, 1, 1.0]]) / 5)[0] for order in ([3.0, 2, 1], [2.0, 3, 1], [1.0, 2, 3])]
    assert rank.values[0] == pytest.approx(np.mean(shuffled))  # the mean over all orders of the regions
    assert whole.values == pytest.approx((rank.values + weight.values) / 2)


def test_one_region():
    for variant in ("paper", "released"):
        assert rrs(np.array([[0.2], [-0.2], [0.0]]), np.array([[0.7], [-0.7], [0.0]]), variant).tolist() == [1, 1, 1]
    assert wds(np.array([[0.2]]), np.array([[0.4]]), tau=2.0)[0] == pytest.approx(1 / 5)  # D = log 2; 1 / (1 + 2²)


def test_equal_scores_everywhere():
    flat, other = np.full((1, 4), 0.3), np.array([[0.1, 0.9, 0.2, 0.3]])
    for variant in ("paper", "released"):
        assert rrs(flat, flat, variant)[0] == rrs(other, flat, variant)[0] == 1
    assert wds(flat, flat)[0] == 0.5
    discounts = 1 / np.log2(np.arange(2, 6))
    ideal = np.sort(other[0])[::-1] @ discounts
    assert rrs(flat, other)[0] == pytest.approx(other.mean() * discounts.sum() / ideal)


def test_zero_vectors():
    zero, some = np.zeros((1, 3)), np.array([[0.5, 0.2, 0.1]])
    assert wds(zero, some)[0] == 0
    assert wds(some, zero)[0] == 1
    assert wds(zero, zero)[0] == 0.5
    assert rrs(some, zero)[0] == rrs(zero, zero)[0] == 1


def test_the_limits_are_limits():
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


def test_the_released_variant_ignores_the_level_of_relevance():
    candidate, reference = np.array([[0.1, 0.3, 0.2]]), np.array([[0.82, 0.81, 0.80]])
    assert rrs(candidate, reference)[0] > 0.99
    assert rrs(candidate, reference, "released")[0] == pytest.approx((0.5 + 1 / 2) / (1 + 0.5 / np.log2(3)))
    assert rrs(candidate, reference - 5, "released")[0] == pytest.approx(rrs(candidate, reference, "released")[0], abs=1e-9)


def test_huge_scores_overflow_nowhere():
    big = np.array([[1e300, -1e300, 0.0]])
    assert wds(big, big)[0] == 0.5
    assert wds(big, big[:, ::-1])[0] == 0
    assert rrs(big, big)[0] == 1


def test_the_mean_over_references_keeps_the_padding():
    found = references_mean(np.array([[1, 2, np.nan], [3, 4, np.nan], [5, 6, 7]]), np.array([0, 0, 1]))
    np.testing.assert_array_equal(found, [[2, 3, np.nan], [5, 6, 7]])


def test_a_corpus_of_tokens_alone_cannot_be_grounded():
    with pytest.raises(CrossmatchError, match=r"Corpus\.of"):
        tiger(Corpus.of_tokens([["a"]], [[["b"]]]), grounder=Letters(), images={"0": "ab"})


def test_a_missing_picture_is_named(corpus):
    with pytest.raises(CrossmatchError, match="no picture of 'y' among 1"):
        tiger(corpus, grounder=Letters(), images={"x": "abc"})


class Broken:
    def __init__(self, scores):
        self.scores = np.array(scores, dtype=float)

    def ground(self, images, texts):
        return Grounding(self.scores)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[1.0, 2.0]], "gave 1 groundings for 2 captions"),
        ([[np.nan], [np.nan]], "of 'x' is grounded in 0 regions"),
        ([[1.0, 2.0], [1.0, np.nan]], "of 'x' is grounded in 2 regions, another in 1"),
    ],
)
def test_a_grounder_that_contradicts_itself_is_refused(scores, message):
    with pytest.raises(CrossmatchError, match=message):
        tiger(Corpus.of({"x": "a"}, {"x": ["b"]}), grounder=Broken(scores), images={"x": "ab"})


@pytest.mark.parametrize("measure", [rrs, wds])
def test_vectors_that_do_not_belong_together_are_refused(measure):
    with pytest.raises(CrossmatchError, match=r"shape \(1, 2\) and \(1, 3\)"):
        measure(np.ones((1, 2)), np.ones((1, 3)))
    with pytest.raises(CrossmatchError, match="row 1 "):
        measure(np.ones((2, 2)), np.array([[1, 1], [1, np.nan]]))
    with pytest.raises(CrossmatchError, match="row 0 "):
        measure(np.array([[np.inf, 1]]), np.ones((1, 2)))


def test_wrong_options_are_refused(corpus):
    with pytest.raises(WrongWords, match="no variant 'original'; there are paper, released"):
        tiger(corpus, grounder=Letters(), images=PICTURES, variant="original")
    for tau in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(CrossmatchError, match="a positive number was expected"):
            tiger(corpus, grounder=Letters(), images=PICTURES, tau=tau)
