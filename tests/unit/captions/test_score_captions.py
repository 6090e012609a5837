"""Intervals of corpus values, and comparison of sets of candidates."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch.captions.bleu import bleu
from crossmatch.captions.caption_metric_table import compute_metrics, parse_metric_names
from crossmatch.captions.corpus import CaptionCorpus, leave_one_out
from crossmatch.captions.score_captions import bootstrap_replicates, compare_captions, score_captions
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.metrics.cluster_bootstrap import ClusterBootstrap

WORDS = ["a", "the", "dog", "cat", "runs", "sleeps", "on", "under", "table", "red"]


def make_corpus(n: int, seed: int, wrong: float = 0.3) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Candidates that are references with some words replaced."""
    rng = np.random.default_rng(seed)
    references = {str(i): [" ".join(rng.choice(WORDS, rng.integers(3, 9))) for _ in range(3)] for i in range(n)}
    candidates = {
        i: " ".join(str(rng.choice(WORDS)) if rng.random() < wrong else word for word in texts[0].split())
        for i, texts in references.items()
    }
    return candidates, references


def test_replicate_is_the_corpus_value_of_the_drawn_captions() -> None:
    candidates, references = make_corpus(8, 0)
    corpus = CaptionCorpus.from_texts(candidates, references)
    draws = ClusterBootstrap.from_clusters(np.arange(8), samples=20, seed=3)
    times = np.concatenate(list(draws)).astype(int)
    for n, scores in enumerate(bleu(corpus)):
        replicates = bootstrap_replicates(scores, draws)
        for sample, counts in enumerate(times):
            drawn = [(i, k) for i, many in enumerate(counts) for k in range(many)]
            drawn_corpus = CaptionCorpus.from_texts(
                {f"{i} {k}": candidates[str(i)] for i, k in drawn}, {f"{i} {k}": references[str(i)] for i, k in drawn}
            )
            assert replicates[sample] == pytest.approx(bleu(drawn_corpus)[n].value, rel=1e-9)


def test_replicates_of_a_mean_are_means_of_drawn_values() -> None:
    corpus = CaptionCorpus.from_texts(*make_corpus(8, 1))
    result = compute_metrics(corpus, ["rouge-l"])["rouge-l"].scores
    draws = ClusterBootstrap.from_clusters(np.arange(8), samples=20)
    times = np.concatenate(list(draws))
    assert bootstrap_replicates(result, draws) == pytest.approx(times @ result.values / 8, rel=1e-12)


def test_interval_contains_the_value_and_order_does_not_matter() -> None:
    candidates, references = make_corpus(200, 2)
    first = score_captions("one", CaptionCorpus.from_texts(candidates, references), ["bleu", "rouge-l", "cider-d"])
    for name, entry in first.as_json().items():
        low, value, high = (entry[key] for key in ("low", "value", "high"))
        assert low < value < high, name
    reversed_references = dict(reversed(list(references.items())))
    second = score_captions("other", CaptionCorpus.from_texts(candidates, reversed_references), ["bleu", "rouge-l", "cider-d"])
    for name in first.results:
        assert second.results[name].scores.value == pytest.approx(first.results[name].scores.value, rel=1e-12)


def test_only_better_candidates_are_significantly_better() -> None:
    candidates, references = make_corpus(150, 3)
    better, _ = make_corpus(150, 3, wrong=0.0)
    poor, good, same = (
        score_captions(name, CaptionCorpus.from_texts(texts, references), ["bleu-4", "cider-d"])
        for name, texts in (("poor", candidates), ("good", better), ("same", candidates))
    )
    by_name = {(comparison.second, comparison.metric): comparison for comparison in compare_captions([poor, good, same])}
    assert all(by_name["good", metric].p < 0.05 and by_name["good", metric].difference.low > 0 for metric in ("bleu-4", "cider-d"))
    assert all(by_name["same", metric].p == 1 and by_name["same", metric].difference.value == 0 for metric in ("bleu-4", "cider-d"))


def test_only_the_same_images_are_compared() -> None:
    candidates, references = make_corpus(5, 4)
    fewer = {i: texts for i, texts in references.items() if i != "0"}
    first, second = (
        score_captions("x", CaptionCorpus.from_texts({i: candidates[i] for i in selected}, selected), ["bleu-1"])
        for selected in (references, fewer)
    )
    with pytest.raises(CrossmatchError, match="have different images"):
        compare_captions([first, second])


def test_leave_one_out_removes_the_candidate() -> None:
    assert leave_one_out([{"7": "A dog."}], {"7": ["a cat", "a dog", "A dog!"]}) == {"7": ["a cat", "A dog!"]}
    assert leave_one_out([{"7": "A bird."}], {"7": ["a cat"], "8": ["a dog"]}) == {"7": ["a cat"], "8": ["a dog"]}
    with pytest.raises(CrossmatchError, match="Image '7': its only reference equals the candidate"):
        leave_one_out([{"7": "A dog."}], {"7": ["a dog"]})


def test_leave_one_out_leaves_all_sets_the_same_references() -> None:
    references = {"7": ["a cat", "a dog", "a horse"], "8": ["a bird", "a fish"]}
    sets = [{"7": "A dog.", "8": "a snake"}, {"7": "A horse.", "8": "a snake"}, {"7": "a dog", "8": "a snake"}]
    assert leave_one_out(sets, references) == {"7": ["a cat"], "8": ["a bird", "a fish"]}
    with pytest.raises(CrossmatchError, match="Image '8': each of its references equals a candidate"):
        leave_one_out([{"8": "a bird"}, {"8": "a fish"}], references)


@pytest.mark.parametrize("other", [{"7": ["a cat"], "8": ["a dog", "one dog"]}, {"7": ["a cat", "a lion"], "8": ["a dog"]}])
def test_only_the_same_references_are_compared(other: dict[str, list[str]]) -> None:
    references = {"7": ["a cat", "one cat"], "8": ["a dog"]}
    candidates = {"7": "cats", "8": "dogs"}
    first, second, reordered = (
        score_captions(name, CaptionCorpus.from_texts(candidates, texts), ["bleu-1"])
        for name, texts in (("x", references), ("y", other), ("z", {**references, "7": references["7"][::-1]}))
    )
    assert compare_captions([first, reordered])[0].p == 1
    with pytest.raises(CrossmatchError, match=r"^x and y were scored with different references \(3 and 3\)"):
        compare_captions([first, second])


def test_options_are_parsed_and_in_signatures() -> None:
    corpus = CaptionCorpus.from_texts(*make_corpus(10, 5))
    wide, usual = compute_metrics(corpus, ["cider-d+sigma=60", "cider-d"]).values()
    assert wide.scores.value > usual.scores.value
    assert "|sigma:60.0|" in wide.signature
    for words, message in (
        ("cider-d+sigma=wide", "expected a value such as 6.0 for sigma, got 'wide'"),
        ("cider-d+tau=1", "cider-d: unknown option 'tau'; its options are sigma"),
        ("rouge-l+beta=1", "rouge-l: unknown option 'beta'; it has no options"),
        ("rouge", "Unknown caption metric 'rouge'"),
    ):
        with pytest.raises(UsageError, match=message):
            parse_metric_names([words])
    with pytest.raises(UsageError, match="No caption metric was named"):
        parse_metric_names([])
