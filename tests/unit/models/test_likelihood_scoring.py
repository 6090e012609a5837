"""Captioners as scorers, and cross encoders on trials: calls, presentation order and caching."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch.data.benchmark import Benchmark
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.hashed_random_numbers import draw_presentation_order
from crossmatch.data.trials import Trials
from crossmatch.evaluation.evaluate import evaluate
from crossmatch.evaluation.model_scores import get_trial_scores
from crossmatch.models.abilities import list_abilities
from crossmatch.models.cache import Cache
from crossmatch.models.likelihood_scoring import LikelihoodScorer
from crossmatch.report.comparison import compare

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


def test_plain_and_per_token_scores_are_named_in_the_signature():
    plain, per_token = (evaluate(Captioner(), BENCHMARK, likelihood=how) for how in ("plain", "per-token"))
    default = evaluate(Captioner(), BENCHMARK)
    assert plain.system == "system|captioner|v1|likelihood:plain"
    assert per_token.system == default.system == "system|captioner|v1|likelihood:per-word"  # it has no lengths(texts)
    assert evaluate(Counted(), BENCHMARK).system == "system|captioner|v1|likelihood:per-token"
    assert "scored by log-likelihood, per-word" in default.notes
    raw = np.array([Captioner().log_likelihood(i, t) for i, t in zip(TRIALS.images.tolist(), TEXTS, strict=True)])
    assert np.array_equal(plain.parts[""].evidence.scores, raw.transpose(0, 2, 1))
    words = np.array([[len(text.split()) for text in texts] for texts in TEXTS])
    assert np.allclose(default.parts[""].evidence.scores, raw.transpose(0, 2, 1) / words[:, :, None])
    assert plain["t2i"].value == default["t2i"].value  # for one caption, its length changes nothing
    assert (plain.model, default.model) == ("Captioner+likelihood=plain", "Captioner")  # two systems under one protocol
    assert [c.first.key for c in compare(default, plain)] == ["i2t", "t2i", "group"]


def test_lengths_of_the_model_are_used():
    raw = Captioner().log_likelihood(["dog"], ["a dog"])[0][0]
    assert LikelihoodScorer(Counted()).score(["dog"], ["a dog"])[0, 0] == pytest.approx(raw / 3)
    bad = Counted()
    bad.lengths = lambda texts: [0 for _ in texts]
    with pytest.raises(CrossmatchError, match="above 0"):
        LikelihoodScorer(bad).score(["dog"], ["a dog"])


def test_wrong_likelihood_options_are_refused():
    assert list_abilities(Captioner()) == ("log-likelihood",)
    with pytest.raises(UsageError, match="not a captioner"):
        evaluate("random", BENCHMARK, likelihood="plain")
    with pytest.raises(UsageError, match="per-token, plain"):
        evaluate(Captioner(), BENCHMARK, likelihood="mean")
    wrong = Captioner()
    wrong.log_likelihood = lambda images, texts: [0.0]
    with pytest.raises(CrossmatchError, match="expected shape"):
        evaluate(wrong, BENCHMARK)


class Scorer:
    """Records each trial as it is presented."""

    signature = "scorer|v1"

    def __init__(self):
        self.seen = []

    def score(self, images, texts):
        self.seen.append((tuple(images), tuple(texts)))
        return [[len(text) + 0.1 * len(image) + 0.01 * ord(image[0]) for text in texts] for image in images]


def test_only_pairs_of_a_trial_are_scored_in_the_presented_order():
    model = Scorer()
    scores = get_trial_scores(model, TRIALS)
    images, captions = draw_presentation_order(TRIALS)
    presented = [
        (tuple(TRIALS.images[n][images[n]].tolist()), tuple(TRIALS.captions[n][captions[n]].tolist()))
        for n in range(len(TRIALS.ids))
    ]
    assert sorted(model.seen) == sorted(presented)
    slow = [
        [[len(text) + 0.1 * len(image) + 0.01 * ord(image[0]) for image in TRIALS.images[n]] for text in TRIALS.captions[n]]
        for n in range(3)
    ]
    assert np.allclose(scores, slow)


def test_score_pairs_gives_the_same_scores():
    class Bulk(Scorer):
        calls = 0

        def score(self, images, texts):
            raise AssertionError("score_pairs must be called instead")

        def score_pairs(self, images, texts):
            self.calls += 1
            return [len(t) + 0.1 * len(i) + 0.01 * ord(i[0]) for i, t in zip(images, texts, strict=True)]

    model = Bulk()
    assert np.allclose(get_trial_scores(model, TRIALS, batch=2), get_trial_scores(Scorer(), TRIALS))
    assert model.calls == 2


def test_captioner_without_signature_has_the_normalisation_in_its_system():
    class Nameless(Captioner):
        signature = None

    assert evaluate(Nameless(), BENCHMARK).system == "system|Nameless|likelihood:per-word"


def test_images_shared_by_trials_are_opened_once():
    opened = []
    n = 300
    far = Trials(
        [f"t{k:03d}" for k in range(2 * n)], [[f"{k % n}a", f"{k % n}b"] for k in range(2 * n)], [["x"]] * 2 * n, [""] * 2 * n,
        open_image=lambda name: opened.append(name) or name,
    )  # fmt: skip
    get_trial_scores(Scorer(), far)
    assert len(opened) == 2 * n  # though trials that share images are 300 trials apart


def test_position_bias_gains_nothing_from_the_order_of_the_file():
    n = 4000
    many = Trials(range(n), [[f"{k}a", f"{k}b"] for k in range(n)], [["x"]] * n, ["k"] * n, open_image=str)
    first = evaluate(
        lambda images, texts: -np.arange(len(images))[:, None] * np.ones(len(texts)), Benchmark("b", "", lambda: many, ("t2i",))
    )
    assert first["t2i"].low < 50 < first["t2i"].high


def test_trial_scores_are_cached(tmp_path):
    messages = []
    cache = Cache(tmp_path, messages.append)
    model = Scorer()
    first = get_trial_scores(model, TRIALS, cache=cache)
    again = get_trial_scores(model, TRIALS, cache=cache)
    assert len(model.seen) == 3
    assert np.array_equal(first, again)
    assert any("reusing all" in line for line in messages)
    changed = Trials(TRIALS.ids, TRIALS.images, [["a fox", "b"], *TEXTS[1:]], ["k"] * 3, open_image=str)
    get_trial_scores(model, changed, cache=cache)
    assert len(model.seen) == 6  # other captions, other scores


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (lambda images, texts: np.zeros(3), r"\(2, 2\) \(images x texts\)"),
        (lambda images, texts: [["a"] * len(texts)] * len(images), "real numbers"),
        (lambda images, texts: np.full((2, 2), np.nan), "NaN or infinity for trial 't0'"),
    ],
)
def test_error_for_wrong_scores_names_trial_or_shape(score, message):
    with pytest.raises(CrossmatchError, match=message):
        get_trial_scores(score, TRIALS)


def test_missing_images_are_an_error():
    bare = Trials(TRIALS.ids, TRIALS.images, TEXTS, ["k"] * 3)
    with pytest.raises(CrossmatchError, match="no image files"):
        get_trial_scores(Scorer(), bare)
