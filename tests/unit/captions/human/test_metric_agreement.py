"""Agreement of metrics with people: rules, tests between metrics, and invalid input."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from crossmatch.captions.bleu import bleu
from crossmatch.captions.cider import cider_d
from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.captions.document_frequencies import DocumentFrequencies
from crossmatch.captions.human.metric_agreement import (
    PreferenceAgreement,
    RatingAgreement,
    measure_accuracy,
    measure_agreement,
    measure_correlation,
)
from crossmatch.captions.human.score_judged_captions import prepare_ratings, score_judged_captions
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.ratings import Preferences, Ratings
from crossmatch.metrics.paired_tests import holm_correction

WORDS = ["a", "the", "dog", "cat", "man", "woman", "red", "blue", "car", "runs", "sits", "on", "in", "grass", "street", "two"]
METRICS = ["bleu-1", "rouge-l", "cider-d"]


def make_study(images: int = 30, captions: int = 3, seed: int = 0) -> Ratings:
    """Captions that share some words with a reference; ratings are the share of these words, with noise."""
    rng = np.random.default_rng(seed)
    references, candidates = {}, []
    for n in range(images):
        texts = [[str(word) for word in rng.choice(WORDS, 7)] for _ in range(3)]
        references[f"im{n}"] = [" ".join(text) for text in texts]
        for _ in range(captions):
            is_shared = rng.random(7) < rng.random()
            words = np.where(is_shared, texts[0], rng.choice(WORDS, 7))
            candidates.append((f"im{n}", " ".join(words), np.clip(1 + 4 * is_shared.mean() + rng.normal(0, 0.7, 3), 1, 5).round()))
    return Ratings.from_rows("made", candidates, references, scale=(1, 5), reference_rule="keep")


STUDY = make_study()


def test_values_equal_scipy() -> None:
    for rating in ("each", "mean"):
        result = measure_correlation(STUDY, METRICS, rating=rating, samples=20)
        human, by_rating = (STUDY.values, STUDY.candidate_of_rating) if rating == "each" else (STUDY.mean, np.arange(len(STUDY)))
        for values, scores in zip(result.values, result.scores, strict=True):
            for at, slow in ((0, stats.kendalltau), (2, stats.spearmanr), (3, stats.pearsonr)):
                assert values[at] == pytest.approx(slow(human, scores[by_rating]).statistic, abs=1e-12)
        assert (result.low <= result.values).all()
        assert (result.values <= result.high).all()


def test_mean_rating_agrees_better_than_single_ratings() -> None:
    by_rating, mean = (measure_correlation(STUDY, ["bleu-1"], rating=rating, samples=2) for rating in ("each", "mean"))
    assert mean.values[0, 3] > by_rating.values[0, 3]


def test_intervals_are_over_images() -> None:
    """Four times as many ratings are not four times as many images: the intervals stay."""
    repeated_rows = [
        (image, text, np.tile(STUDY.values[STUDY.candidate_of_rating == n], 4))
        for n, (image, text) in enumerate(zip(STUDY.images, STUDY.captions, strict=True))
    ]
    repeated = Ratings.from_rows("made", repeated_rows, STUDY.references, scale=(1, 5), reference_rule="keep")
    single, repeated_result = (measure_correlation(judged, ["bleu-1"], samples=200) for judged in (STUDY, repeated))
    np.testing.assert_allclose(single.low, repeated_result.low, atol=0.01)  # tied pairs of equal ratings weigh a little more
    np.testing.assert_allclose(single.high, repeated_result.high, atol=0.01)


def test_more_images_narrow_the_interval() -> None:
    few, many = (measure_correlation(make_study(images), ["bleu-1"], samples=200) for images in (15, 240))
    assert ((many.high - many.low)[0] < 0.5 * (few.high - few.low)[0]).all()


def test_seed_changes_only_the_interval() -> None:
    """The seed assigns 30 images to ten groups; with 30 groups or more each image is a group."""
    first, same_seed, other_seed = (measure_correlation(STUDY, ["bleu-1"], samples=10, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.low, same_seed.low)
    assert (first.low != other_seed.low).any()
    np.testing.assert_array_equal(first.values, other_seed.values)
    assert "|interval:jackknife/images/10|seed:1|" in other_seed.signature
    thirty_groups, many_groups = (measure_correlation(STUDY, ["bleu-1"], samples=samples, seed=samples) for samples in (30, 1000))
    np.testing.assert_array_equal(thirty_groups.low, many_groups.low)
    assert "|interval:jackknife/images/30|" in many_groups.signature


def test_order_of_candidates_does_not_matter() -> None:
    order = np.random.default_rng(5).permutation(len(STUDY))
    first, second = measure_correlation(STUDY, METRICS, samples=30), measure_correlation(STUDY.select(order), METRICS, samples=30)
    np.testing.assert_allclose(first.values, second.values, rtol=0, atol=1e-12)
    np.testing.assert_allclose(first.low, second.low, rtol=0, atol=1e-12)
    np.testing.assert_allclose(first.williams_t, second.williams_t, rtol=1e-9, atol=1e-9)


def test_williams_test_always_uses_mean_ratings() -> None:
    by_rating, mean = (measure_correlation(STUDY, METRICS, rating=rating, samples=2) for rating in ("each", "mean"))
    np.testing.assert_allclose(by_rating.williams_t, mean.williams_t)
    assert by_rating.degrees_of_freedom == len(STUDY) - 3
    assert by_rating.metric_pairs.tolist() == [[0, 1], [0, 2], [1, 2]]
    np.testing.assert_allclose(by_rating.williams_r, [stats.pearsonr(STUDY.mean, scores).statistic for scores in by_rating.scores])
    np.testing.assert_allclose(by_rating.williams_r, mean.values[:, 3])
    assert (by_rating.williams_r != by_rating.values[:, 3]).all()
    gap = [by_rating.williams_r[a] - by_rating.williams_r[b] for a, b in by_rating.metric_pairs]
    assert np.sign(gap).tolist() == np.sign(by_rating.williams_t).tolist()


def test_differences_are_first_minus_second_with_holm() -> None:
    result = measure_correlation(STUDY, METRICS, samples=100)
    for (a, b), value, low, high in zip(
        result.metric_pairs, result.differences.value, result.differences.low, result.differences.high, strict=True
    ):
        np.testing.assert_allclose(value, result.values[a] - result.values[b])
        assert ((low <= value) & (value <= high)).all()
    assert result.differences.test == "Student's t from the jackknife over images"
    assert result.differences.min_p == 1e-6
    alone = [measure_correlation(STUDY, [METRICS[a], METRICS[b]], samples=100).differences.p[0] for a, b in result.metric_pairs]
    np.testing.assert_allclose(result.differences.p, np.array([holm_correction([row[c] for row in alone]) for c in range(4)]).T)


def test_holm_leaves_clear_differences_significant() -> None:
    """Holm's correction of 28 pairs leaves a p below 5 % where metrics differ plainly."""
    names = ["bleu-1", "bleu-2", "bleu-3", "bleu-4", "rouge-l", "cider-d", "cider-d+sigma=3", "cider-d+sigma=1"]
    result = measure_correlation(make_study(300), names)
    assert len(result.metric_pairs) == 28
    first, second = result.metric_pairs.tolist().index([0, 4]), result.metric_pairs.tolist().index([1, 2])
    assert result.differences.value[first, 0] < -0.15  # rouge-l sees the order of words
    assert 0 < result.differences.p[first, 0] < 1e-4
    assert abs(result.differences.value[second, 0]) < 0.01
    assert result.differences.p[second, 0] > 0.05


def test_equal_metrics_do_not_differ() -> None:
    result = measure_correlation(STUDY, ["cider-d", "cider-d+sigma=6"], samples=50)
    assert result.williams_t[0] == 0
    assert result.williams_p[0] == 1
    assert result.differences.value.tolist() == [[0, 0, 0, 0]]
    assert result.differences.p.tolist() == [[1, 1, 1, 1]]


def test_level_means_equal_a_loop() -> None:
    result = measure_correlation(STUDY, ["bleu-1"], samples=2)
    assert result.levels.tolist() == sorted(set(STUDY.values.tolist()))
    for level, count, mean in zip(result.levels, result.level_counts, result.level_means[0], strict=True):
        at = STUDY.candidate_of_rating[STUDY.values == level]
        assert (count, mean) == (len(at), pytest.approx(result.scores[0, at].mean()))
    assert (np.diff(result.level_means[0]) > 0).all()


def test_documents_are_images_or_candidates() -> None:
    corpus = CaptionCorpus.from_texts(
        dict(zip(STUDY.ids.tolist(), STUDY.captions, strict=True)), prepare_ratings(STUDY)[1].references
    )
    image_frequencies = DocumentFrequencies.from_corpus(
        CaptionCorpus.from_texts(dict.fromkeys(STUDY.references, ""), STUDY.references)
    )
    by_images, by_candidates = (
        measure_correlation(STUDY, ["cider-d"], documents=documents, samples=2) for documents in ("images", "candidates")
    )
    np.testing.assert_allclose(by_images.scores[0], cider_d(corpus, image_frequencies)[0].values, rtol=1e-11)
    np.testing.assert_allclose(by_candidates.scores[0], cider_d(corpus)[0].values, rtol=1e-11)
    assert (by_images.scores != by_candidates.scores).any()
    assert "|df:images|" in by_images.signature
    assert "|df:candidates|" in by_candidates.signature
    none = measure_correlation(STUDY, ["cider-d"], frequencies=None, samples=2)
    np.testing.assert_array_equal(none.scores, by_images.scores)
    assert none.signature == by_images.signature
    explicit = measure_correlation(STUDY, ["cider-d"], frequencies=image_frequencies, samples=2)
    np.testing.assert_array_equal(explicit.scores, by_images.scores)
    assert f"|df:{image_frequencies.digest}/30|" in explicit.signature


def test_frequencies_are_counted_only_if_needed() -> None:
    """One image has no document frequencies; BLEU does not need them."""
    _, judged = prepare_ratings(STUDY.select(np.arange(3)))
    assert len(score_judged_captions(judged, ["bleu-1"])["bleu-1"].scores.values) == 3
    with pytest.raises(CrossmatchError, match="document frequencies of at least 2 images, got 1"):
        score_judged_captions(judged, ["cider-d"])


REFERENCES = {"7": ["a dog runs", "the dog is out", "dogs run"], "8": ["a red car", "the car"]}
CANDIDATES = [("7", "A dog runs.", [4]), ("7", "a cat", [1]), ("8", "a blue car", [3]), ("8", "a man", [1])]


@pytest.mark.parametrize(
    ("equal", "remaining_count", "counts"), [("exclude", 3, (1, 0)), ("leave-out", 4, (0, 1)), ("keep", 4, (0, 0))]
)
def test_rule_for_candidates_that_are_references(equal: str, remaining_count: int, counts: tuple[int, int]) -> None:
    result = measure_correlation(Ratings.from_rows("mine", CANDIDATES, REFERENCES, reference_rule=equal), ["bleu-1"], samples=10)
    assert len(result.study) == result.scores.shape[1] == remaining_count
    assert (result.excluded, result.left_out) == counts
    assert f"|equal:{equal}|" in result.signature
    if equal == "leave-out":
        remaining = bleu(CaptionCorpus.from_texts({"7": "A dog runs."}, {"7": REFERENCES["7"][1:]}))[0].value
        assert result.scores[0, 0] == pytest.approx(remaining)
        assert remaining < 1


def test_only_reference_cannot_be_left_out() -> None:
    judged = Ratings.from_rows("mine", [("7", "a dog", [4]), ("8", "a cat", [1])], {"7": ["A dog!"], "8": ["the cat"]})
    with pytest.raises(CrossmatchError, match="'7#0' is the only reference of image '7'"):
        measure_correlation(judged, ["bleu-1"])
    with pytest.raises(CrossmatchError, match="mine: all 1 candidates are references"):
        measure_correlation(replace(judged.select(np.array([0])), reference_rule="exclude"), ["bleu-1"])


def test_one_image_has_no_interval() -> None:
    result = measure_correlation(Ratings.from_rows("mine", CANDIDATES[2:], REFERENCES), ["bleu-1", "rouge-l"], samples=50)
    assert result.values[0, 0] == 1
    assert (result.low[0, 0], result.high[0, 0]) == (-1, 1)
    assert (result.differences.low[0, 0], result.differences.high[0, 0], result.differences.p[0, 0]) == (-2, 2, 1)
    assert (result.williams_t.tolist(), result.williams_p.tolist()) == ([0], [1])  # two captions are too few for Williams' test


def test_undefined_jackknife_has_no_interval() -> None:
    """Two captions with equal ratings in each of two images: one image alone has no correlation. Two more images give an interval."""
    alike = [("7", "a dog", [4]), ("7", "the dog", [4]), ("8", "x", [1]), ("8", "y", [1])]
    two_images = measure_correlation(Ratings.from_rows("mine", alike, REFERENCES), ["bleu-1", "bleu-2"])
    assert two_images.values[0, 0] > 0.8
    assert (two_images.low.tolist(), two_images.high.tolist()) == ([[-1.0] * 4] * 2, [[1.0] * 4] * 2)
    assert (two_images.differences.low.tolist(), two_images.differences.p.tolist()) == ([[-2.0] * 4], [[1.0] * 4])
    more = {**REFERENCES, "9": ["a bus", "the bus"], "10": ["a tree", "the tree"]}
    wide = [*alike, ("9", "the bus", [3]), ("9", "z", [2]), ("10", "one tree", [3]), ("10", "w", [1])]
    four_images = measure_correlation(Ratings.from_rows("mine", wide, more), ["bleu-1"])
    assert ((four_images.low > -1) & (four_images.low < four_images.values)).all()


def test_perfect_metric_has_zero_width() -> None:
    """Every caption is a prefix of the reference, and its rating is its length."""
    rated_ = [(f"im{n}", " ".join(WORDS[: 4 + n]), [n]) for n in range(8)]
    result = measure_correlation(
        Ratings.from_rows("mine", rated_, {f"im{n}": [" ".join(WORDS)] for n in range(8)}), ["rouge-l"], samples=100
    )
    assert (result.values[0, 0], result.low[0, 0], result.high[0, 0]) == (1, 1, 1)


def test_invalid_options_are_refused() -> None:
    for options, message in (
        ({"rating": "median"}, "value 'median' for rating"),
        ({"documents": "pages"}, "Unknown value 'pages' for documents"),
        ({"samples": 1}, "at least 2 groups of images, got 1"),
    ):
        with pytest.raises(UsageError, match=message):
            measure_correlation(STUDY, ["bleu-1"], **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="Unknown caption metric 'blue'"):
        measure_correlation(STUDY, ["blue"])


def test_constant_scores_are_refused() -> None:
    judged = Ratings.from_rows("mine", [("7", "x", [4]), ("7", "y", [1]), ("8", "z", [3])], REFERENCES)
    with pytest.raises(CrossmatchError, match="3 scores by rouge-l are 0"):
        measure_correlation(judged, ["rouge-l"])
    judged = Ratings.from_rows("mine", [(image, text, [3]) for image, text, _ in CANDIDATES], REFERENCES)
    with pytest.raises(CrossmatchError, match="4 scores by people are 3"):
        measure_correlation(judged, ["rouge-l"])


PAIRS: dict[str, Any] = {
    "ids": ["p0", "p1", "p2", "p3", "p4"],
    "images": ["7", "7", "8", "8", "9"],
    "captions": [("a dog runs", "a cat"), ("the man", "the dog"), ("a red car", "a red car"), ("x", "y"), ("a bus", "two trains")],
    "references": [("a dog runs",), ("a dog runs",), ("the red car",), ("the red car",), ("trains",)],
    "preferred": [0, 1, 1, 0, 0],
    "groups": ["HI", "HI", "HC", "HC", "HC"],
}
PREFERRED = Preferences("pairs", **PAIRS)


@pytest.mark.parametrize(("ties", "hc"), [("wrong", 0.0), ("half", 1 / 3), ("right", 2 / 3)])
def test_accuracy_and_ties(ties: str, hc: float) -> None:
    """HI: both right. HC: two ties (equal captions, and two without a match), and one wrong."""
    result = measure_accuracy(PREFERRED, ["rouge-l"], ties=ties)
    assert result.groups == ("HC", "HI", "mean")
    np.testing.assert_allclose(result.values, [[hc, 1.0, (hc + 1) / 2]])
    assert result.tie_counts.tolist() == [[2, 0, 2]]
    assert result.counts.tolist() == [3, 2, 5]
    assert ((result.low <= result.values) & (result.values <= result.high)).all()
    assert f"|ties:{ties}|" in result.signature


def test_order_within_pairs_does_not_matter() -> None:
    swapped = Preferences(
        "pairs",
        **{**PAIRS, "captions": [pair[::-1] for pair in PAIRS["captions"]], "preferred": [1 - p for p in PAIRS["preferred"]]},
    )
    for ties in ("wrong", "half", "right"):
        np.testing.assert_array_equal(
            measure_accuracy(PREFERRED, ["rouge-l", "bleu-1"], ties=ties).values,
            measure_accuracy(swapped, ["rouge-l", "bleu-1"], ties=ties).values,
        )


def test_differences_of_accuracy() -> None:
    for ties in ("wrong", "half", "right"):
        result = measure_accuracy(PREFERRED, ["rouge-l", "bleu-4"], ties=ties)
        np.testing.assert_allclose(result.differences.value, result.values[0, -1] - result.values[1, -1])
        assert result.differences.p.shape == (1,)
        assert (result.differences.low <= result.differences.value).all()
        assert (result.differences.value <= result.differences.high).all()


# In ROUGE the first is better by rouge-l and the second by bleu-1, in BLEU vice versa; in LEVEL they tie by bleu-1.
ROUGE, BLEU, LEVEL = ("a b c d x y", "d c b a"), ("x c b a", "a q b"), ("a b c d", "b a d c")


def prefer_first(pairs: list[tuple[str, str]], images: list[int]) -> Preferences:
    n = len(pairs)
    return Preferences(
        "told", [f"p{k}" for k in range(n)], [f"im{k}" for k in images], pairs, [["a b c d"]] * n, [0] * n, ["all"] * n
    )


def test_example_pairs_have_the_intended_scores() -> None:
    result = measure_accuracy(prefer_first([ROUGE, BLEU, LEVEL], [0, 1, 2]), ["bleu-1", "rouge-l"])
    signs = np.sign(result.scores[..., 0] - result.scores[..., 1]).tolist()
    assert signs == [[-1, 1, 0], [1, -1, 1]]


def test_independent_pairs_use_mcnemars_test() -> None:
    """Each pair has its own image: of 24 pairs that only one metric gets right, 18 are the first metric's."""
    result = measure_accuracy(prefer_first([BLEU] * 18 + [ROUGE] * 6, list(range(24))), ["bleu-1", "rouge-l"])
    assert result.differences.test == "McNemar's exact test"
    assert result.differences.p[0] == pytest.approx(stats.binomtest(6, 24).pvalue)
    assert result.differences.value[0] == pytest.approx(0.5)
    middle, cells = 12 / 26, 26
    reach = stats.t.ppf(0.975, 23) * np.sqrt((25 / cells - middle**2) / cells)
    assert (result.differences.low[0], result.differences.high[0]) == pytest.approx((middle - reach, middle + reach))


def test_half_right_pairs_count_as_halves() -> None:
    """200 pairs that one metric gets right and that tie for the other: the difference is a half with a narrow interval."""
    result = measure_accuracy(prefer_first([LEVEL] * 200, list(range(200))), ["rouge-l", "bleu-1"], ties="half")
    assert result.differences.value[0] == pytest.approx(0.5)
    assert 0.47 < result.differences.low[0] < 0.5 < result.differences.high[0] < 0.53
    assert result.differences.p[0] == 1e-6  # the smallest reported p
    assert result.differences.test.startswith("sign-flip test")


def test_pairs_of_one_image_are_compared_by_the_cluster_test() -> None:
    """Four images with 20 equal pairs each: p is that of four signs."""
    result = measure_accuracy(prefer_first([BLEU] * 80, np.repeat(np.arange(4), 20).tolist()), ["bleu-1", "rouge-l"])
    assert result.differences.test.startswith("sign-flip test")
    assert result.differences.p[0] == pytest.approx(2 / 2**4)


def test_measure_agreement_takes_both_kinds_and_gives_json() -> None:
    rated, preferred = measure_agreement(STUDY, METRICS, samples=20), measure_agreement(PREFERRED, ["rouge-l"])
    assert isinstance(rated, RatingAgreement)
    assert isinstance(preferred, PreferenceAgreement)
    text, pairs = json.loads(json.dumps(rated.as_json(), allow_nan=False)), json.loads(json.dumps(preferred.as_json()))
    assert text["metrics"]["bleu-1"]["tau-b"]["value"] == round(float(rated.values[0, 0]), 6)
    assert text["metrics"]["bleu-1"]["signature"].startswith("bleu-1|tok:")
    assert [row["second"] for row in text["differences"]] == ["rouge-l", "cider-d", "cider-d"]
    assert text["differences"][0]["williams"]["r"] == [round(float(r), 6) for r in rated.williams_r[:2]]
    assert text["test"] == rated.differences.test
    assert pairs["metrics"]["rouge-l"]["HC"] == {"value": 0.0, "low": 0.0, "high": round(float(preferred.high[0, 0]), 6), "ties": 2}
    with pytest.raises(UsageError, match="Unknown rule 'lost'"):
        measure_agreement(PREFERRED, ["rouge-l"], ties="lost")
