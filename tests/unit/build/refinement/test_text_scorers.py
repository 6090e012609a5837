"""Scorers of captions: held-out trigrams against models fitted by hand, functions, and the difficulty of negatives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crossmatch.build.refinement.blind_classifier import assign_folds, fit_logistic
from crossmatch.build.refinement.text_scorers import FunctionScorer, HeldOutNgrams, as_scorer, content_words, load_scorer
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.models.baselines.ngram_language_model import NgramModel
from negative_difficulty import caption_similarity, clustered_mean

TEXTS = ("A dog sits on a couch.", "A cat sits on a mat.", "Two dogs run in a park.", "A bus on a street.", "A man rides a horse.")
CAPTIONS = [*TEXTS * 4]
IMAGES = [f"i{n}" for n in range(len(CAPTIONS))]


def test_text_is_scored_by_captions_of_other_images() -> None:
    result = HeldOutNgrams("x", str).score(CAPTIONS, IMAGES, [True] * len(CAPTIONS))
    fold = assign_folds(IMAGES, 5)
    for n, text in enumerate(CAPTIONS):
        model = NgramModel.fit([CAPTIONS[m] for m in range(len(CAPTIONS)) if fold[m] != fold[n]])
        assert result[n] == pytest.approx(model.log_likelihood(text) / model.length(text), rel=1e-12)


def test_negatives_are_not_trained_on() -> None:
    natural = [True] * len(CAPTIONS) + [False]
    alone = HeldOutNgrams("x", str).score(CAPTIONS, IMAGES, natural[:-1])
    beside = HeldOutNgrams("x", str).score([*CAPTIONS, "Zebra zebra zebra."], [*IMAGES, "i0"], natural)
    assert np.array_equal(alone, beside[:-1])


def test_odd_text_is_less_fluent_and_less_plausible() -> None:
    texts = [*CAPTIONS, "A dog sits on a park.", "Dog a on couch sits a."]
    groups, natural = [*IMAGES, "i0", "i0"], [True] * len(CAPTIONS) + [False, False]
    fluent = load_scorer("fluency").score(texts, groups, natural)
    assert fluent[-1] < fluent[-2] < fluent[0]
    plausible = load_scorer("plausibility").score(texts, groups, natural)
    assert plausible[0] > plausible[-2]


def test_content_words_exclude_function_words() -> None:
    assert content_words("A dog is sitting on the couch with another one.") == "dog sitting couch"
    assert content_words("It is on the.") == ""


def test_empty_texts_have_a_score() -> None:
    assert np.isfinite(load_scorer("plausibility").score([*CAPTIONS, "", "on the"], [*IMAGES, "a", "b"], [True] * 22)).all()


def test_scorer_needs_captions_of_other_images() -> None:
    with pytest.raises(CrossmatchError, match="no captions of other images"):
        load_scorer("fluency").score(["A dog.", "A cat."], ["i", "i"], [True, False])


def test_scorers_are_names_files_or_functions(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def length(texts):\n    return [len(t) for t in texts]\nnumber = 3\n")
    scorer = load_scorer(f"{tmp_path / 'mine.py'}:length")
    assert scorer.score(["ab", "c"], ["", ""], [True, True]).tolist() == [2.0, 1.0]
    assert scorer.name.startswith("mine.py:length|file:")
    assert as_scorer("fluency").name == "ngram-fluency"
    assert as_scorer(scorer) is scorer
    for name in ("fluent", "lm:", "x.txt:y", ""):
        with pytest.raises(UsageError, match="Unknown scorer"):
            load_scorer(name)
    with pytest.raises(UsageError, match="is not a function"):
        load_scorer(f"{tmp_path / 'mine.py'}:number")
    with pytest.raises(UsageError, match="a scorer name or a function"):
        as_scorer(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("returned", [[1.0], [[1.0, 2.0]], [1.0, np.inf], [np.nan, 1.0]])
def test_invalid_scores_are_rejected(returned: list) -> None:
    with pytest.raises(CrossmatchError, match="Scorer odd returned"):
        FunctionScorer("odd", lambda texts: np.asarray(returned)).score(["a", "b"], ["", ""], [True, True])


def test_weights_minimise_the_loss() -> None:
    from scipy import optimize

    rows = np.random.default_rng(0).normal(0.3, 1.0, (60, 3))
    options = {"xatol": 1e-8, "fatol": 1e-10}
    slow = optimize.minimize(
        lambda w: np.logaddexp(0, -rows @ w).sum() + w @ w / 2, np.zeros(3), method="Nelder-Mead", options=options
    )
    assert fit_logistic(rows) == pytest.approx(slow.x, abs=1e-3)


# -- similarity of negatives and captions


class LetterCounts:
    """A text encoder that counts letters."""

    signature = "letters"

    def embed_texts(self, texts):
        return np.array([[text.lower().count(letter) + 0.1 for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts])


def test_capitals_and_periods_do_not_count_in_similarity() -> None:
    result = caption_similarity(["a dog", "A dog."], ["A dog.", "A bird."], LetterCounts())
    assert result[0] == pytest.approx(1.0)
    assert result[1] < 0.95
    with pytest.raises(CrossmatchError, match="2 captions and 1 negatives"):
        caption_similarity(["a", "b"], ["a"], LetterCounts())


def test_interval_is_student_if_clusters_are_single() -> None:
    from scipy import stats

    values = np.random.default_rng(0).normal(0.5, 0.1, 40)
    result = clustered_mean(values, [str(n) for n in range(40)])
    low, high = stats.t.interval(0.95, 39, values.mean(), stats.sem(values))
    assert (result.value, result.low, result.high) == pytest.approx((values.mean(), low, high))
    repeated = clustered_mean(np.repeat(values, 3), [str(n // 3) for n in range(120)])
    assert (repeated.low, repeated.high) == pytest.approx((low, high)), "copies of a value add no information"
    with pytest.raises(CrossmatchError, match="at least two images"):
        clustered_mean(values[:3], ["a", "a", "a"])
