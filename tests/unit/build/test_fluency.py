"""Scores of captions: held-out trigrams against models fitted by hand, words, any function, a language model of transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crossmatch.build.difficulty import mean_of, similarity
from crossmatch.build.fluency import HeldOut, Plain, as_scorer, meant, said, scorer
from crossmatch.build.logistic import parts, weights
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.models.ngram import NgramModel

CAPTIONS = [
    "A dog sits on a couch.",
    "A cat sits on a mat.",
    "Two dogs run in a park.",
    "A bus on a street.",
    "A man rides a horse.",
] * 4
IMAGES = [f"i{n}" for n in range(len(CAPTIONS))]


def test_a_text_is_scored_by_captions_of_other_images_alone() -> None:
    found = HeldOut("x", said).score(CAPTIONS, IMAGES, [True] * len(CAPTIONS))
    part = parts(IMAGES, 5)
    for n, text in enumerate(CAPTIONS):
        model = NgramModel.fit([CAPTIONS[m] for m in range(len(CAPTIONS)) if part[m] != part[n]])
        assert found[n] == pytest.approx(model.log_likelihood(text) / model.length(text), rel=1e-12)


def test_negatives_teach_nothing() -> None:
    natural = [True] * len(CAPTIONS) + [False]
    alone = HeldOut("x", said).score(CAPTIONS, IMAGES, natural[:-1])
    beside = HeldOut("x", said).score([*CAPTIONS, "Zebra zebra zebra."], [*IMAGES, "i0"], natural)
    assert np.array_equal(alone, beside[:-1])


def test_an_odd_text_is_less_fluent_and_less_plausible() -> None:
    texts = [*CAPTIONS, "A dog sits on a park.", "Dog a on couch sits a."]
    groups, natural = [*IMAGES, "i0", "i0"], [True] * len(CAPTIONS) + [False, False]
    fluent = scorer("fluency").score(texts, groups, natural)
    assert fluent[-1] < fluent[-2] < fluent[0]
    plausible = scorer("plausibility").score(texts, groups, natural)
    assert plausible[0] > plausible[-2]


def test_grammar_words_name_nothing() -> None:
    assert meant("A dog is sitting on the couch with another one.") == "dog sitting couch"
    assert meant("It is on the.") == ""


def test_empty_texts_have_a_score() -> None:
    assert np.isfinite(scorer("plausibility").score([*CAPTIONS, "", "on the"], [*IMAGES, "a", "b"], [True] * 22)).all()


def test_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(CrossmatchError, match="no captions of other images"):
        scorer("fluency").score(["A dog.", "A cat."], ["i", "i"], [True, False])


def test_scorers_come_by_name_by_file_or_as_functions(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def length(texts):\n    return [len(t) for t in texts]\nnumber = 3\n")
    own = scorer(f"{tmp_path / 'mine.py'}:length")
    assert own.score(["ab", "c"], ["", ""], [True, True]).tolist() == [2.0, 1.0]
    assert own.name.startswith("mine.py:length|file:")
    assert as_scorer("fluency").name == "ngram-fluency"
    assert as_scorer(own) is own
    for words in ("fluent", "lm:", "x.txt:y", ""):
        with pytest.raises(WrongWords, match="no scorer"):
            scorer(words)
    with pytest.raises(WrongWords, match="no function"):
        scorer(f"{tmp_path / 'mine.py'}:number")
    with pytest.raises(WrongWords, match="a name, or a function"):
        as_scorer(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", [[1.0], [[1.0, 2.0]], [1.0, np.inf], [np.nan, 1.0]])
def test_scorers_that_answer_oddly_are_refused(answer: list) -> None:
    with pytest.raises(CrossmatchError, match="odd gave"):
        Plain("odd", lambda texts: np.asarray(answer)).score(["a", "b"], ["", ""], [True, True])


def test_weights_minimise_the_loss() -> None:
    from scipy import optimize

    rows = np.random.default_rng(0).normal(0.3, 1.0, (60, 3))
    slow = optimize.minimize(
        lambda w: np.logaddexp(0, -rows @ w).sum() + w @ w / 2,
        np.zeros(3),
        method="Nelder-Mead",
        options={"xatol": 1e-8, "fatol": 1e-10},
    )
    assert weights(rows) == pytest.approx(slow.x, abs=1e-3)


# -- how near negatives are to their captions


class Letters:
    """Counts of letters as vectors."""

    signature = "letters"

    def embed_texts(self, texts):
        return np.array([[text.lower().count(letter) + 0.1 for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts])


def test_capitals_and_periods_do_not_count_in_similarity() -> None:
    found = similarity(["a dog", "A dog."], ["A dog.", "A bird."], Letters())
    assert found[0] == pytest.approx(1.0)
    assert found[1] < 0.95
    with pytest.raises(CrossmatchError, match="2 captions and 1 negatives"):
        similarity(["a", "b"], ["a"], Letters())


def test_the_interval_of_a_mean_is_students_where_clusters_are_single() -> None:
    from scipy import stats

    values = np.random.default_rng(0).normal(0.5, 0.1, 40)
    found = mean_of(values, [str(n) for n in range(40)])
    low, high = stats.t.interval(0.95, 39, values.mean(), stats.sem(values))
    assert (found.value, found.low, found.high) == pytest.approx((values.mean(), low, high))
    alike = mean_of(np.repeat(values, 3), [str(n // 3) for n in range(120)])
    assert (alike.low, alike.high) == pytest.approx((low, high)), "three copies of a value say no more than one"
    with pytest.raises(CrossmatchError, match="at least two images"):
        mean_of(values[:3], ["a", "a", "a"])
