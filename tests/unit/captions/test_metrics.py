"""Caption metrics against slow versions, and laws that all of them obey."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.captions.bleu import bleu
from crossmatch.captions.caption_metric_table import CAPTION_METRICS, compute_metrics
from crossmatch.captions.cider import cider, cider_d
from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.captions.document_frequencies import DocumentFrequencies
from crossmatch.captions.rouge import lcs_lengths, rouge_l

captions = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=8)
corpora = st.lists(st.tuples(captions, st.lists(captions, min_size=1, max_size=3)), min_size=2, max_size=5).map(
    lambda pairs: ([candidate for candidate, _ in pairs], [texts for _, texts in pairs])
)
READ = [metric for metric in CAPTION_METRICS if set(metric.needs) <= {"frequencies"}]  # those that look at no picture
TEXTS = [name for metric in READ for name in metric.names]
NAMES = [name for name in TEXTS if name not in ("meteor", "spice")]  # to which a word is any string: they know no language


def counts(tokens: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def cider_by_the_paper(candidates: list[list[str]], references: list[list[list[str]]]) -> list[float]:
    """Equations 1 to 3, with the term frequency as a share of the caption's n-grams."""

    def vector(tokens: list[str], n: int) -> dict[tuple[str, ...], float]:
        h = counts(tokens, n)
        result = {}
        for gram, times in h.items():
            images = sum(any(gram in counts(s, n) for s in texts) for texts in references)
            result[gram] = times / sum(h.values()) * math.log(len(references) / max(1, images))
        return result

    def cosine(g: dict[tuple[str, ...], float], h: dict[tuple[str, ...], float]) -> float:
        norms = math.sqrt(sum(v * v for v in g.values())) * math.sqrt(sum(v * v for v in h.values()))
        return sum(v * h.get(k, 0.0) for k, v in g.items()) / norms if norms else 0.0

    return [
        sum(sum(cosine(vector(c, n), vector(s, n)) for s in texts) / len(texts) / 4 for n in (1, 2, 3, 4))
        for c, texts in zip(candidates, references, strict=True)
    ]


@given(corpora)
def test_cider_equals_the_paper(pair: tuple[list[list[str]], list[list[list[str]]]]) -> None:
    np.testing.assert_allclose(cider(CaptionCorpus.from_tokens(*pair))[0].values, cider_by_the_paper(*pair), rtol=0, atol=1e-9)


@given(corpora)
def test_longest_common_subsequence_equals_recursion(pair: tuple[list[list[str]], list[list[list[str]]]]) -> None:
    @cache
    def longest(x: tuple[str, ...], y: tuple[str, ...]) -> int:
        if not x or not y:
            return 0
        return longest(x[1:], y[1:]) + 1 if x[0] == y[0] else max(longest(x[1:], y), longest(x, y[1:]))

    slow = [longest(tuple(c), tuple(r)) for c, texts in zip(*pair, strict=True) for r in texts]
    assert lcs_lengths(CaptionCorpus.from_tokens(*pair)).tolist() == slow


@given(corpora)
def test_ngrams_equal_plain_counts(pair: tuple[list[list[str]], list[list[list[str]]]]) -> None:
    corpus = CaptionCorpus.from_tokens(*pair)
    texts = [tokens for candidate, references in zip(*pair, strict=True) for tokens in (candidate, *references)]
    for grams in corpus.ngrams:
        names = corpus.ngram_texts(grams)
        assert len(set(names)) == len(names)
        of_entry = grams.block_ngram[grams.block]
        result = {(int(c), names[g]): int(k) for c, g, k in zip(grams.caption, of_entry, grams.count, strict=True)}
        assert result == {(c, " ".join(g)): k for c, tokens in enumerate(texts) for g, k in counts(tokens, grams.n).items()}


@given(corpora, st.randoms())
def test_laws(pair: tuple[list[list[str]], list[list[list[str]]]], random: object) -> None:
    """Values are between 0 and best; order of items and references and spelling of words do not matter; inputs stay unchanged."""
    candidates, references = pair
    result = compute_metrics(CaptionCorpus.from_tokens(candidates, references), NAMES)
    order = list(range(len(candidates)))
    random.shuffle(order)  # type: ignore[attr-defined]
    reordered = compute_metrics(
        CaptionCorpus.from_tokens(
            [[w * 2 for w in candidates[i]] for i in order], [[[w * 2 for w in t] for t in reversed(references[i])] for i in order]
        ),
        NAMES,
    )
    for name in NAMES:
        values = result[name].scores.values
        assert ((values >= 0) & (values <= result[name].best * (1 + 1e-12))).all(), name
        np.testing.assert_allclose(reordered[name].scores.values, values[order], rtol=0, atol=1e-12)
        np.testing.assert_allclose(reordered[name].scores.value, result[name].scores.value, rtol=0, atol=1e-12)
        assert np.isfinite(result[name].scores.value)


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "meteor"])  # whose best is below 1: one chunk has a penalty
def test_candidate_equal_to_its_only_reference_gets_the_best_value(name: str) -> None:
    texts = [["a", "big", "dog", "runs", "home"], ["the", "sun", "is", "up", "now"]]
    result = compute_metrics(CaptionCorpus.from_tokens(texts, [[t] for t in texts]), [name])[name]
    assert result.scores.values == pytest.approx([result.best] * 2)
    assert result.scores.value == pytest.approx(result.best)


def test_corpus_value_of_bleu_is_not_the_mean() -> None:
    scores = bleu(CaptionCorpus.from_tokens([["a"], ["b"] * 9], [[["a"]], [["c"] * 9]]))
    assert scores[0].value == pytest.approx(0.1)
    assert scores[0].values.mean() == pytest.approx(0.5)


def test_closest_reference_is_the_shorter_of_two() -> None:
    tokens = ["a", "b", "c"]
    closer = bleu(CaptionCorpus.from_tokens([tokens], [[[*tokens, "d"], ["a", "b"]]]))[0].value
    assert closer == pytest.approx(1.0)  # no penalty: two words, not four


def test_rouge_takes_precision_and_recall_from_different_references() -> None:
    (scores,) = rouge_l(CaptionCorpus.from_tokens([["a", "b", "c", "d"]], [[["a", "b", "c", "x", "y", "z"], ["d"]]]))
    precision, recall = 3 / 4, 1.0
    assert scores.value == pytest.approx((1 + 1.44) * precision * recall / (recall + 1.44 * precision))


def test_only_cider_d_penalises_length() -> None:
    refs = [[["a", "dog", "runs"]], [["the", "sun"]]]
    single, twice = (CaptionCorpus.from_tokens([["a", "dog", "runs"] * k, ["the"]], refs) for k in (1, 3))
    assert cider_d(twice)[0].values[0] < 0.5 * cider_d(single)[0].values[0]
    assert cider(twice)[0].values[0] > 0.5 * cider(single)[0].values[0]


def test_empty_captions_score_zero() -> None:
    corpus = CaptionCorpus.from_texts({"1": "...", "2": "a dog", "3": ""}, {"1": ["a dog"], "2": ["!", "a dog"], "3": [""]})
    for name, result in compute_metrics(corpus, TEXTS).items():
        assert result.scores.values[[0, 2]] == pytest.approx([0, 0], abs=1e-5), name
        assert result.scores.values[1] > 0


def test_caption_of_ten_thousand_words() -> None:
    rng = np.random.default_rng(0)
    long = [str(word) for word in rng.integers(0, 500, 10_000)]
    corpus = CaptionCorpus.from_tokens([long, ["a", "dog"]], [[long[:5_000], ["1"]], [long]])
    results = compute_metrics(corpus, TEXTS)
    assert results["rouge-l"].scores.values[0] > 0.5
    assert all(np.isfinite(result.scores.values).all() for result in results.values())


def test_saved_frequencies_are_used() -> None:
    many = CaptionCorpus.from_tokens([["x"]] * 3, [[["a", "dog"]], [["a", "cat"]], [["the", "sun"]]])
    frequencies = DocumentFrequencies.from_corpus(many)
    assert frequencies.counts["a"] == 2
    single = CaptionCorpus.from_tokens([["a", "sun"]], [[["the", "sun"]]])
    assert cider(single, frequencies)[0].value > 0
    with pytest.raises(ValueError, match=r"of at least 2 images, got 1"):
        cider_d(single)
