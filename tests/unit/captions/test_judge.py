"""Intervals of corpus values, and candidates compared with others."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch.captions.bleu import bleu
from crossmatch.captions.corpus import Corpus
from crossmatch.captions.judge import compare, judge
from crossmatch.captions.leave_out import leave_own_out
from crossmatch.captions.scores import replicates
from crossmatch.captions.table import chosen, score
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.metrics.significance import Draws

WORDS = ["a", "the", "dog", "cat", "runs", "sleeps", "on", "under", "table", "red"]


def made(n: int, seed: int, wrong: float = 0.3) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Candidates that copy a reference, some words of which are replaced."""
    rng = np.random.default_rng(seed)
    references = {str(i): [" ".join(rng.choice(WORDS, rng.integers(3, 9))) for _ in range(3)] for i in range(n)}
    candidates = {
        i: " ".join(str(rng.choice(WORDS)) if rng.random() < wrong else word for word in texts[0].split())
        for i, texts in references.items()
    }
    return candidates, references


def test_a_replicate_is_the_corpus_value_of_the_captions_drawn() -> None:
    candidates, references = made(8, 0)
    corpus = Corpus.of(candidates, references)
    draws = Draws.of(np.arange(8), samples=20, seed=3)
    times = np.concatenate(list(draws)).astype(int)
    for n, scores in enumerate(bleu(corpus)):
        found = replicates(scores, draws)
        for sample, counts in enumerate(times):
            drawn = [(i, k) for i, many in enumerate(counts) for k in range(many)]
            again = Corpus.of(
                {f"{i} {k}": candidates[str(i)] for i, k in drawn}, {f"{i} {k}": references[str(i)] for i, k in drawn}
            )
            assert found[sample] == pytest.approx(bleu(again)[n].value, rel=1e-9)


def test_replicates_of_a_mean_are_means_of_the_values_drawn() -> None:
    corpus = Corpus.of(*made(8, 1))
    result = score(corpus, ["rouge-l"])["rouge-l"].scores
    draws = Draws.of(np.arange(8), samples=20)
    times = np.concatenate(list(draws))
    assert replicates(result, draws) == pytest.approx(times @ result.values / 8, rel=1e-12)


def test_the_interval_holds_the_value_and_the_order_of_images_is_of_no_account() -> None:
    candidates, references = made(200, 2)
    one = judge("one", Corpus.of(candidates, references), ["bleu", "rouge-l", "cider-d"])
    for name, told in one.as_json().items():
        low, value, high = (told[key] for key in ("low", "value", "high"))
        assert low < value < high, name
    turned = dict(reversed(list(references.items())))
    other = judge("other", Corpus.of(candidates, turned), ["bleu", "rouge-l", "cider-d"])
    for name in one.results:
        assert other.results[name].scores.value == pytest.approx(one.results[name].scores.value, rel=1e-12)


def test_better_candidates_are_found_better_and_equal_ones_are_not() -> None:
    candidates, references = made(150, 3)
    better, _ = made(150, 3, wrong=0.0)
    poor, good, same = (
        judge(name, Corpus.of(said, references), ["bleu-4", "cider-d"])
        for name, said in (("poor", candidates), ("good", better), ("same", candidates))
    )
    found = {(one.second, one.metric): one for one in compare([poor, good, same])}
    assert all(found["good", metric].p < 0.05 and found["good", metric].difference.low > 0 for metric in ("bleu-4", "cider-d"))
    assert all(found["same", metric].p == 1 and found["same", metric].difference.value == 0 for metric in ("bleu-4", "cider-d"))


def test_only_the_same_images_are_compared() -> None:
    candidates, references = made(5, 4)
    fewer = {i: texts for i, texts in references.items() if i != "0"}
    one, other = (judge("x", Corpus.of({i: candidates[i] for i in kept}, kept), ["bleu-1"]) for kept in (references, fewer))
    with pytest.raises(CrossmatchError, match="caption different images"):
        compare([one, other])


def test_leaving_out_the_candidate_itself() -> None:
    assert leave_own_out({"7": "A dog."}, {"7": ["a cat", "a dog", "A dog!"]}) == {"7": ["a cat", "A dog!"]}
    assert leave_own_out({"7": "A bird."}, {"7": ["a cat"], "8": ["a dog"]}) == {"7": ["a cat"], "8": ["a dog"]}
    with pytest.raises(CrossmatchError, match="the only reference of '7' is its candidate"):
        leave_own_out({"7": "A dog."}, {"7": ["a dog"]})


def test_options_are_read_and_told() -> None:
    corpus = Corpus.of(*made(10, 5))
    wide, usual = score(corpus, ["cider-d+sigma=60", "cider-d"]).values()
    assert wide.scores.value > usual.scores.value
    assert "|sigma:60.0|" in wide.signature
    for words, message in (
        ("cider-d+sigma=wide", "was given sigma='wide'; something like 6.0"),
        ("cider-d+tau=1", "cider-d has no option 'tau'; there are sigma"),
        ("rouge-l+beta=1", "rouge-l has no option 'beta'; there are no options"),
        ("rouge", "there is no caption metric 'rouge'"),
    ):
        with pytest.raises(WrongWords, match=message):
            chosen([words])
    with pytest.raises(WrongWords, match="no caption metric was named"):
        chosen([])
