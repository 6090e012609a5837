"""Captioners as scorers, and cross encoders on trials: what is asked, how often, in which order, and what is kept."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch.core.benchmark import Benchmark
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.presented import presented
from crossmatch.core.trials import Trials
from crossmatch.models.abilities import abilities, trial_scores_of
from crossmatch.models.cache import ScoreCache
from crossmatch.models.likelihood import ByLikelihood
from crossmatch.report.compare import compare
from crossmatch.run import evaluate

TEXTS = [["a dog", "a very small brown dog"], ["a cat asleep", "a cat"], ["one bird", "one bird and one tree"]]
TRIALS = Trials(["t0", "t1", "t2"], [["dog", "cat"], ["cat", "bird"], ["bird", "dog"]], TEXTS, ["k"] * 3, open_image=str)
BENCHMARK = Benchmark("b", "", lambda: TRIALS, ("i2t", "t2i", "group"))


class Captioner:
    """Words that name the image cost 1 nat, others 2."""

    signature = "captioner|v1"

    def log_likelihood(self, images, texts):
        return [[-sum(1.0 if word == image else 2.0 for word in text.split()) for text in texts] for image in images]


class Counted(Captioner):
    def lengths(self, texts):
        return [len(text.split()) + 1 for text in texts]


def test_plain_and_per_token_scores_are_both_there_and_named():
    plain, per_token = (evaluate(Captioner(), BENCHMARK, likelihood=how) for how in ("plain", "per-token"))
    usual = evaluate(Captioner(), BENCHMARK)
    assert plain.system == "system|captioner|v1|likelihood:plain"
    assert per_token.system == usual.system == "system|captioner|v1|likelihood:per-word"  # it counts no tokens of its own
    assert evaluate(Counted(), BENCHMARK).system == "system|captioner|v1|likelihood:per-token"
    assert "scored by log-likelihood, per-word" in usual.notes
    raw = np.array([Captioner().log_likelihood(i, t) for i, t in zip(TRIALS.images.tolist(), TEXTS, strict=True)])
    assert np.array_equal(plain.parts[""].evidence.scores, raw.transpose(0, 2, 1))
    words = np.array([[len(text.split()) for text in texts] for texts in TEXTS])
    assert np.allclose(usual.parts[""].evidence.scores, raw.transpose(0, 2, 1) / words[:, :, None])
    assert plain["t2i"].value == usual["t2i"].value  # for one caption, its length changes nothing
    assert (plain.model, usual.model) == ("Captioner+likelihood=plain", "Captioner")  # two systems under one protocol
    assert [c.first.key for c in compare(usual, plain)] == ["i2t", "t2i", "group"]


def test_the_models_own_lengths_count():
    raw = Captioner().log_likelihood(["dog"], ["a dog"])[0][0]
    assert ByLikelihood(Counted()).score(["dog"], ["a dog"])[0, 0] == pytest.approx(raw / 3)
    bad = Counted()
    bad.lengths = lambda texts: [0 for _ in texts]
    with pytest.raises(CrossmatchError, match="above zero"):
        ByLikelihood(bad).score(["dog"], ["a dog"])


def test_wrong_words_about_likelihood():
    assert abilities(Captioner()) == ("log-likelihood",)
    with pytest.raises(WrongWords, match="no captioner"):
        evaluate("random", BENCHMARK, likelihood="plain")
    with pytest.raises(WrongWords, match="per-token, plain"):
        evaluate(Captioner(), BENCHMARK, likelihood="mean")
    wrong = Captioner()
    wrong.log_likelihood = lambda images, texts: [0.0]
    with pytest.raises(CrossmatchError, match="gave shape"):
        evaluate(wrong, BENCHMARK)


class Scorer:
    """Looks at a trial as it is shown, and remembers it."""

    signature = "scorer|v1"

    def __init__(self):
        self.seen = []

    def score(self, images, texts):
        self.seen.append((tuple(images), tuple(texts)))
        return [[len(text) + 0.1 * len(image) + 0.01 * ord(image[0]) for text in texts] for image in images]


def test_only_the_pairs_of_a_trial_are_asked_and_in_the_order_presented():
    model = Scorer()
    found = trial_scores_of(model, TRIALS)
    images, captions = presented(TRIALS)
    shown = [
        (tuple(TRIALS.images[n][images[n]].tolist()), tuple(TRIALS.captions[n][captions[n]].tolist()))
        for n in range(len(TRIALS.ids))
    ]
    assert sorted(model.seen) == sorted(shown)
    slow = [
        [[len(text) + 0.1 * len(image) + 0.01 * ord(image[0]) for image in TRIALS.images[n]] for text in TRIALS.captions[n]]
        for n in range(3)
    ]
    assert np.allclose(found, slow)


def test_many_pairs_at_once_give_the_same_scores():
    class Bulk(Scorer):
        calls = 0

        def score(self, images, texts):
            raise AssertionError("pairs are asked in bulk")

        def score_pairs(self, images, texts):
            self.calls += 1
            return [len(t) + 0.1 * len(i) + 0.01 * ord(i[0]) for i, t in zip(images, texts, strict=True)]

    model = Bulk()
    assert np.allclose(trial_scores_of(model, TRIALS, batch=2), trial_scores_of(Scorer(), TRIALS))
    assert model.calls == 2


def test_a_captioner_without_a_signature_still_says_how_it_scored():
    class Nameless(Captioner):
        signature = None

    assert evaluate(Nameless(), BENCHMARK).system == "system|Nameless|likelihood:per-word"


def test_pictures_are_opened_once_where_trials_that_share_them_are_neighbours():
    opened = []
    n = 300
    far = Trials(
        [f"t{k:03d}" for k in range(2 * n)], [[f"{k % n}a", f"{k % n}b"] for k in range(2 * n)], [["x"]] * 2 * n, [""] * 2 * n,
        open_image=lambda name: opened.append(name) or name,
    )  # fmt: skip
    trial_scores_of(Scorer(), far)
    assert len(opened) == 2 * n  # though a trial and its like are 300 trials apart


def test_a_position_biased_model_gains_nothing_from_the_order_of_the_file():
    n = 4000
    many = Trials(range(n), [[f"{k}a", f"{k}b"] for k in range(n)], [["x"]] * n, ["k"] * n, open_image=str)
    first = evaluate(
        lambda images, texts: -np.arange(len(images))[:, None] * np.ones(len(texts)), Benchmark("b", "", lambda: many, ("t2i",))
    )
    assert first["t2i"].low < 50 < first["t2i"].high


def test_scores_of_trials_are_kept_and_known_again(tmp_path):
    said = []
    cache = ScoreCache(tmp_path, said.append)
    model = Scorer()
    first = trial_scores_of(model, TRIALS, cache=cache)
    again = trial_scores_of(model, TRIALS, cache=cache)
    assert len(model.seen) == 3
    assert np.array_equal(first, again)
    assert any("nothing had to be scored" in line for line in said)
    other = Trials(TRIALS.ids, TRIALS.images, [["a fox", "b"], *TEXTS[1:]], ["k"] * 3, open_image=str)
    trial_scores_of(model, other, cache=cache)
    assert len(model.seen) == 6  # other captions, other scores


@pytest.mark.parametrize(
    ("score", "says"),
    [
        (lambda images, texts: np.zeros(3), r"\(2, 2\) \(images x texts\)"),
        (lambda images, texts: [["a"] * len(texts)] * len(images), "real numbers"),
        (lambda images, texts: np.full((2, 2), np.nan), "NaN or infinity in trial 't0'"),
    ],
)
def test_bad_scores_name_the_trial_or_the_shape(score, says):
    with pytest.raises(CrossmatchError, match=says):
        trial_scores_of(score, TRIALS)


def test_without_pictures_the_remedy_is_named():
    bare = Trials(TRIALS.ids, TRIALS.images, TEXTS, ["k"] * 3)
    with pytest.raises(CrossmatchError, match="no pictures here"):
        trial_scores_of(Scorer(), bare)
