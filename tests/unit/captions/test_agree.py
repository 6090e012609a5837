"""Agreement of metrics with people: the rules, the tests between metrics, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from crossmatch.captions.agree import PreferenceAgreement, RatingAgreement, accurate, agree, correlated
from crossmatch.captions.bleu import bleu
from crossmatch.captions.candidates import rated, scored
from crossmatch.captions.cider import cider_d
from crossmatch.captions.corpus import Corpus
from crossmatch.captions.frequencies import Frequencies
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.ratings import Preferences, Ratings
from crossmatch.metrics.correlation import kendall, pearson, spearman
from crossmatch.metrics.significance import holm

WORDS = ["a", "the", "dog", "cat", "man", "woman", "red", "blue", "car", "runs", "sits", "on", "in", "grass", "street", "two"]
METRICS = ["bleu-1", "rouge-l", "cider-d"]


def made(images: int = 30, captions: int = 3, seed: int = 0) -> Ratings:
    """Captions that keep more or fewer words of a reference; the share of kept words is what people rate, with some noise."""
    rng = np.random.default_rng(seed)
    references, candidates = {}, []
    for n in range(images):
        texts = [[str(word) for word in rng.choice(WORDS, 7)] for _ in range(3)]
        references[f"im{n}"] = [" ".join(text) for text in texts]
        for _ in range(captions):
            kept = rng.random(7) < rng.random()
            words = np.where(kept, texts[0], rng.choice(WORDS, 7))
            candidates.append((f"im{n}", " ".join(words), np.clip(1 + 4 * kept.mean() + rng.normal(0, 0.7, 3), 1, 5).round()))
    return Ratings.gathered("made", candidates, references, scale=(1, 5), equal="keep")


SAID = made()


def test_values_equal_the_coefficients_of_the_library() -> None:
    for rating in ("each", "mean"):
        found = correlated(SAID, METRICS, rating=rating, samples=20)
        human, each = (SAID.values, SAID.of) if rating == "each" else (SAID.mean, np.arange(len(SAID)))
        for values, scores in zip(found.values, found.scores, strict=True):
            for at, slow in ((0, kendall), (2, spearman), (3, pearson)):
                assert values[at] == pytest.approx(slow(human, scores[each]), abs=1e-12)
        assert (found.low <= found.values).all()
        assert (found.values <= found.high).all()


def test_the_mean_rating_agrees_better_than_single_ones() -> None:
    each, mean = (correlated(SAID, ["bleu-1"], rating=rating, samples=2) for rating in ("each", "mean"))
    assert mean.values[0, 3] > each.values[0, 3]


def test_intervals_are_over_images() -> None:
    """Each caption told four times over is four ratings, not four times as many images: the intervals stay."""
    told = [
        (image, text, np.tile(SAID.values[SAID.of == n], 4))
        for n, (image, text) in enumerate(zip(SAID.images, SAID.captions, strict=True))
    ]
    often = Ratings.gathered("made", told, SAID.references, scale=(1, 5), equal="keep")
    once, more = (correlated(said, ["bleu-1"], samples=200) for said in (SAID, often))
    np.testing.assert_allclose(once.low, more.low, atol=0.01)  # level pairs of equal ratings weigh a little more
    np.testing.assert_allclose(once.high, more.high, atol=0.01)


def test_the_interval_narrows_with_more_images() -> None:
    few, many = (correlated(made(images), ["bleu-1"], samples=200) for images in (15, 240))
    assert ((many.high - many.low)[0] < 0.5 * (few.high - few.low)[0]).all()


def test_the_seed_changes_the_interval_and_nothing_else() -> None:
    """It deals 30 images to ten groups; of 30 groups and more each holds one image, and there is nothing to deal."""
    first, again, other = (correlated(SAID, ["bleu-1"], samples=10, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.low, again.low)
    assert (first.low != other.low).any()
    np.testing.assert_array_equal(first.values, other.values)
    assert "|interval:jackknife/images/10|seed:1|" in other.signature
    once, twice = (correlated(SAID, ["bleu-1"], samples=samples, seed=samples) for samples in (30, 1000))
    np.testing.assert_array_equal(once.low, twice.low)
    assert "|interval:jackknife/images/30|" in twice.signature


def shared(images: int, rng: np.random.Generator) -> Ratings:
    """Three captions of each image, two ratings each; people find whole images better or worse, which no metric sees."""
    references, candidates = {}, []
    for n in range(images):
        texts = [[str(word) for word in rng.choice(WORDS, 7)] for _ in range(2)]
        references[f"im{n}"] = [" ".join(text) for text in texts]
        ease, liked = rng.random(), rng.normal(0, 0.7)
        for _ in range(3):
            kept = rng.random(7) < (ease + rng.random()) / 2
            words = np.where(kept, texts[0], rng.choice(WORDS, 7))
            ratings = np.clip(1 + 4 * kept.mean() + liked + rng.normal(0, 0.5, 2), 1, 5).round()
            candidates.append((f"im{n}", " ".join(words), ratings))
    return Ratings.gathered("shared", candidates, references, scale=(1, 5), equal="keep")


def test_intervals_hold_the_truth() -> None:
    """Ten images, two metrics: correlations and their differences; the truth is that of 4,000 images."""
    rng = np.random.default_rng(7)
    names, trials = ["bleu-1", "bleu-2"], 200
    truth = correlated(shared(4000, rng), names, samples=2)
    held, apart = np.zeros(truth.values.shape), np.zeros(truth.gaps.value.shape)
    for _ in range(trials):
        found = correlated(shared(10, rng), names)
        held += (found.low <= truth.values) & (truth.values <= found.high)
        apart += (found.gaps.low <= truth.gaps.value) & (truth.gaps.value <= found.gaps.high)
    least = 0.9 - 3 * np.sqrt(0.9 * 0.1 / trials)  # of eight numbers, and four differences, three standard errors below 90 %
    assert (held / trials >= least).all()
    assert (apart / trials >= least).all()


def test_the_order_of_candidates_does_not_matter() -> None:
    order = np.random.default_rng(5).permutation(len(SAID))
    first, second = correlated(SAID, METRICS, samples=30), correlated(SAID.among(order), METRICS, samples=30)
    np.testing.assert_allclose(first.values, second.values, rtol=0, atol=1e-12)
    np.testing.assert_allclose(first.low, second.low, rtol=0, atol=1e-12)
    np.testing.assert_allclose(first.t, second.t, rtol=1e-9, atol=1e-9)


def test_williams_is_on_the_mean_rating_whatever_is_counted() -> None:
    each, mean = (correlated(SAID, METRICS, rating=rating, samples=2) for rating in ("each", "mean"))
    np.testing.assert_allclose(each.t, mean.t)
    assert each.freedom == len(SAID) - 3
    assert each.pairs.tolist() == [[0, 1], [0, 2], [1, 2]]
    np.testing.assert_allclose(each.williams_r, [pearson(SAID.mean, scores) for scores in each.scores])
    np.testing.assert_allclose(each.williams_r, mean.values[:, 3])
    assert (each.williams_r != each.values[:, 3]).all()
    gap = [each.williams_r[a] - each.williams_r[b] for a, b in each.pairs]
    assert np.sign(gap).tolist() == np.sign(each.t).tolist()


def test_gaps_are_first_less_second_and_corrected_together() -> None:
    found = correlated(SAID, METRICS, samples=100)
    for (a, b), value, low, high in zip(found.pairs, found.gaps.value, found.gaps.low, found.gaps.high, strict=True):
        np.testing.assert_allclose(value, found.values[a] - found.values[b])
        assert ((low <= value) & (value <= high)).all()
    assert found.gaps.test == "Student's t from the jackknife over images"
    assert found.gaps.floor == 1e-6
    alone = [correlated(SAID, [METRICS[a], METRICS[b]], samples=100).gaps.p[0] for a, b in found.pairs]
    np.testing.assert_allclose(found.gaps.p, np.array([holm([row[c] for row in alone]) for c in range(4)]).T)


def test_many_metrics_can_be_told_apart() -> None:
    """Holm's correction of 28 pairs leaves a p below 5 % where metrics differ plainly."""
    names = ["bleu-1", "bleu-2", "bleu-3", "bleu-4", "rouge-l", "cider-d", "cider-d+sigma=3", "cider-d+sigma=1"]
    found = correlated(made(300), names)
    assert len(found.pairs) == 28
    first, second = found.pairs.tolist().index([0, 4]), found.pairs.tolist().index([1, 2])
    assert found.gaps.value[first, 0] < -0.15  # rouge-l sees the order of words
    assert 0 < found.gaps.p[first, 0] < 1e-4
    assert abs(found.gaps.value[second, 0]) < 0.01
    assert found.gaps.p[second, 0] > 0.05


def test_a_metric_and_itself_do_not_differ() -> None:
    found = correlated(SAID, ["cider-d", "cider-d+sigma=6"], samples=50)
    assert found.t[0] == 0
    assert found.t_p[0] == 1
    assert found.gaps.value.tolist() == [[0, 0, 0, 0]]
    assert found.gaps.p.tolist() == [[1, 1, 1, 1]]


def test_mean_score_at_each_rating() -> None:
    found = correlated(SAID, ["bleu-1"], samples=2)
    assert found.levels.tolist() == sorted(set(SAID.values.tolist()))
    for level, count, mean in zip(found.levels, found.level_counts, found.level_means[0], strict=True):
        at = SAID.of[SAID.values == level]
        assert (count, mean) == (len(at), pytest.approx(found.scores[0, at].mean()))
    assert (np.diff(found.level_means[0]) > 0).all()


def test_documents_are_images_or_candidates() -> None:
    corpus = Corpus.of(dict(zip(SAID.ids.tolist(), SAID.captions, strict=True)), rated(SAID)[1].references)
    once = Frequencies.of(Corpus.of(dict.fromkeys(SAID.references, ""), SAID.references))
    by_images, by_candidates = (
        correlated(SAID, ["cider-d"], documents=documents, samples=2) for documents in ("images", "candidates")
    )
    np.testing.assert_allclose(by_images.scores[0], cider_d(corpus, once)[0].values, rtol=1e-11)
    np.testing.assert_allclose(by_candidates.scores[0], cider_d(corpus)[0].values, rtol=1e-11)
    assert (by_images.scores != by_candidates.scores).any()
    assert "|df:images|" in by_images.signature
    assert "|df:candidates|" in by_candidates.signature
    none = correlated(SAID, ["cider-d"], frequencies=None, samples=2)
    np.testing.assert_array_equal(none.scores, by_images.scores)
    assert none.signature == by_images.signature
    given = correlated(SAID, ["cider-d"], frequencies=once, samples=2)
    np.testing.assert_array_equal(given.scores, by_images.scores)
    assert f"|df:{once.digest}/30|" in given.signature


def test_frequencies_are_not_counted_for_metrics_that_do_not_weigh() -> None:
    """One image has no document frequencies; BLEU does not ask for them."""
    _, found = rated(SAID.among(np.arange(3)))
    assert len(scored(found, ["bleu-1"])["bleu-1"].scores.values) == 3
    with pytest.raises(CrossmatchError, match="document frequencies of 1 image"):
        scored(found, ["cider-d"])


REFERENCES = {"7": ["a dog runs", "the dog is out", "dogs run"], "8": ["a red car", "the car"]}
CANDIDATES = [("7", "A dog runs.", [4]), ("7", "a cat", [1]), ("8", "a blue car", [3]), ("8", "a man", [1])]


@pytest.mark.parametrize(("equal", "kept", "counts"), [("exclude", 3, (1, 0)), ("leave-out", 4, (0, 1)), ("keep", 4, (0, 0))])
def test_candidates_that_are_references(equal: str, kept: int, counts: tuple[int, int]) -> None:
    found = correlated(Ratings.gathered("mine", CANDIDATES, REFERENCES, equal=equal), ["bleu-1"], samples=10)
    assert len(found.said) == found.scores.shape[1] == kept
    assert (found.excluded, found.left_out) == counts
    assert f"|equal:{equal}|" in found.signature
    if equal == "leave-out":
        others = bleu(Corpus.of({"7": "A dog runs."}, {"7": REFERENCES["7"][1:]}))[0].value
        assert found.scores[0, 0] == pytest.approx(others)
        assert others < 1


def test_a_lone_reference_cannot_be_left_out() -> None:
    said = Ratings.gathered("mine", [("7", "a dog", [4]), ("8", "a cat", [1])], {"7": ["A dog!"], "8": ["the cat"]})
    with pytest.raises(CrossmatchError, match="candidate '7#0' is the only reference of image '7'"):
        correlated(said, ["bleu-1"])
    with pytest.raises(CrossmatchError, match="all 1 candidates of mine are references"):
        correlated(replace(said.among(np.array([0])), equal="exclude"), ["bleu-1"])


def test_one_image_has_a_value_but_no_interval() -> None:
    found = correlated(Ratings.gathered("mine", CANDIDATES[2:], REFERENCES), ["bleu-1", "rouge-l"], samples=50)
    assert found.values[0, 0] == 1
    assert (found.low[0, 0], found.high[0, 0]) == (-1, 1)
    assert (found.gaps.low[0, 0], found.gaps.high[0, 0], found.gaps.p[0, 0]) == (-2, 2, 1)
    assert (found.t.tolist(), found.t_p.tolist()) == ([0], [1])  # two captions are too few for Williams' test


def test_images_that_cannot_be_left_out_have_no_interval() -> None:
    """Two captions rated alike in each of two images: either image alone has no correlation. Two more mend it."""
    alike = [("7", "a dog", [4]), ("7", "the dog", [4]), ("8", "x", [1]), ("8", "y", [1])]
    two = correlated(Ratings.gathered("mine", alike, REFERENCES), ["bleu-1", "bleu-2"])
    assert two.values[0, 0] > 0.8
    assert (two.low.tolist(), two.high.tolist()) == ([[-1.0] * 4] * 2, [[1.0] * 4] * 2)
    assert (two.gaps.low.tolist(), two.gaps.p.tolist()) == ([[-2.0] * 4], [[1.0] * 4])
    more = {**REFERENCES, "9": ["a bus", "the bus"], "10": ["a tree", "the tree"]}
    wide = [*alike, ("9", "the bus", [3]), ("9", "z", [2]), ("10", "one tree", [3]), ("10", "w", [1])]
    four = correlated(Ratings.gathered("mine", wide, more), ["bleu-1"])
    assert ((four.low > -1) & (four.low < four.values)).all()


def test_a_metric_that_is_always_right_has_no_width() -> None:
    """Every caption is a prefix of the reference, and people rate its length."""
    rated_ = [(f"im{n}", " ".join(WORDS[: 4 + n]), [n]) for n in range(8)]
    found = correlated(Ratings.gathered("mine", rated_, {f"im{n}": [" ".join(WORDS)] for n in range(8)}), ["rouge-l"], samples=100)
    assert (found.values[0, 0], found.low[0, 0], found.high[0, 0]) == (1, 1, 1)


def test_wrong_words_for_ratings() -> None:
    for options, message in (
        ({"rating": "median"}, "counted as 'median'"),
        ({"documents": "pages"}, "documents are 'pages'"),
        ({"samples": 1}, "1 groups of images"),
    ):
        with pytest.raises(WrongWords, match=message):
            correlated(SAID, ["bleu-1"], **options)  # type: ignore[arg-type]
    with pytest.raises(WrongWords, match="no caption metric 'blue'"):
        correlated(SAID, ["blue"])


def test_scores_that_never_differ() -> None:
    said = Ratings.gathered("mine", [("7", "x", [4]), ("7", "y", [1]), ("8", "z", [3])], REFERENCES)
    with pytest.raises(CrossmatchError, match="all 3 scores by rouge-l are 0"):
        correlated(said, ["rouge-l"])
    said = Ratings.gathered("mine", [(image, text, [3]) for image, text, _ in CANDIDATES], REFERENCES)
    with pytest.raises(CrossmatchError, match="all 4 scores by people are 3"):
        correlated(said, ["rouge-l"])


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
    """HI: both right. HC: the same caption twice and two without a match are level, and one is wrong."""
    found = accurate(PREFERRED, ["rouge-l"], ties=ties)
    assert found.groups == ("HC", "HI", "mean")
    np.testing.assert_allclose(found.values, [[hc, 1.0, (hc + 1) / 2]])
    assert found.tied.tolist() == [[2, 0, 2]]
    assert found.counts.tolist() == [3, 2, 5]
    assert ((found.low <= found.values) & (found.values <= found.high)).all()
    assert f"|ties:{ties}|" in found.signature


def test_turning_all_pairs_around_changes_nothing() -> None:
    turned = Preferences(
        "pairs",
        **{**PAIRS, "captions": [pair[::-1] for pair in PAIRS["captions"]], "preferred": [1 - p for p in PAIRS["preferred"]]},
    )
    for ties in ("wrong", "half", "right"):
        np.testing.assert_array_equal(
            accurate(PREFERRED, ["rouge-l", "bleu-1"], ties=ties).values, accurate(turned, ["rouge-l", "bleu-1"], ties=ties).values
        )


def test_gaps_of_accuracy() -> None:
    for ties in ("wrong", "half", "right"):
        found = accurate(PREFERRED, ["rouge-l", "bleu-4"], ties=ties)
        np.testing.assert_allclose(found.gaps.value, found.values[0, -1] - found.values[1, -1])
        assert found.gaps.p.shape == (1,)
        assert (found.gaps.low <= found.gaps.value).all()
        assert (found.gaps.value <= found.gaps.high).all()


# By rouge-l the first is better and by bleu-1 the second, or the other way round; in the third, bleu-1 finds them equal.
ROUGE, BLEU, LEVEL = ("a b c d x y", "d c b a"), ("x c b a", "a q b"), ("a b c d", "b a d c")


def told(pairs: list[tuple[str, str]], images: list[int]) -> Preferences:
    n = len(pairs)
    return Preferences(
        "told", [f"p{k}" for k in range(n)], [f"im{k}" for k in images], pairs, [["a b c d"]] * n, [0] * n, ["all"] * n
    )


def test_the_pairs_of_these_tests_are_what_they_say() -> None:
    found = accurate(told([ROUGE, BLEU, LEVEL], [0, 1, 2]), ["bleu-1", "rouge-l"])
    signs = np.sign(found.scores[..., 0] - found.scores[..., 1]).tolist()
    assert signs == [[-1, 1, 0], [1, -1, 1]]


def test_p_and_interval_of_one_group_of_pairs_are_those_of_the_table() -> None:
    """Each pair has its own image: of 24 pairs that one metric has right alone, 18 are the first's."""
    found = accurate(told([BLEU] * 18 + [ROUGE] * 6, list(range(24))), ["bleu-1", "rouge-l"])
    assert found.gaps.test == "McNemar's exact test"
    assert found.gaps.p[0] == pytest.approx(stats.binomtest(6, 24).pvalue)
    assert found.gaps.value[0] == pytest.approx(0.5)
    middle, cells = 12 / 26, 26
    reach = stats.t.ppf(0.975, 23) * np.sqrt((25 / cells - middle**2) / cells)
    assert (found.gaps.low[0], found.gaps.high[0]) == pytest.approx((middle - reach, middle + reach))


def test_half_right_pairs_are_in_the_interval_as_halves() -> None:
    """200 pairs that one metric has right and the other finds equal: their difference is a half, and is surely about that."""
    found = accurate(told([LEVEL] * 200, list(range(200))), ["rouge-l", "bleu-1"], ties="half")
    assert found.gaps.value[0] == pytest.approx(0.5)
    assert 0.47 < found.gaps.low[0] < 0.5 < found.gaps.high[0] < 0.53
    assert found.gaps.p[0] == 1e-6  # no tail is told further
    assert found.gaps.test.startswith("the test that turns the signs")


def test_like_pairs_of_an_image_do_not_make_a_test_sure() -> None:
    """Ten images with 20 like pairs each, and metrics that are right in half of the images: 5 % of tests may tell them apart."""
    trials, wrong = 150, 0
    for seed in range(trials):
        better = np.random.default_rng(seed).random(10) < 0.5
        pairs = [BLEU if better[image] else ROUGE for image in range(10) for _ in range(20)]
        found = accurate(told(pairs, np.repeat(np.arange(10), 20).tolist()), ["bleu-1", "rouge-l"])
        assert found.gaps.test.startswith("the test that turns the signs")
        wrong += found.gaps.p[0] < 0.05
    assert wrong <= trials * 0.05 + 3 * np.sqrt(trials * 0.05 * 0.95)


def test_agree_takes_either_and_writes_json() -> None:
    one, two = agree(SAID, METRICS, samples=20), agree(PREFERRED, ["rouge-l"])
    assert isinstance(one, RatingAgreement)
    assert isinstance(two, PreferenceAgreement)
    text, pairs = json.loads(json.dumps(one.as_json(), allow_nan=False)), json.loads(json.dumps(two.as_json()))
    assert text["metrics"]["bleu-1"]["tau-b"]["value"] == round(float(one.values[0, 0]), 6)
    assert text["metrics"]["bleu-1"]["signature"].startswith("bleu-1|tok:")
    assert [row["second"] for row in text["differences"]] == ["rouge-l", "cider-d", "cider-d"]
    assert text["differences"][0]["williams"]["r"] == [round(float(r), 6) for r in one.williams_r[:2]]
    assert text["test"] == one.gaps.test
    assert pairs["metrics"]["rouge-l"]["HC"] == {"value": 0.0, "low": 0.0, "high": round(float(two.high[0, 0]), 6), "ties": 2}
    with pytest.raises(WrongWords, match="equal scores are 'lost'"):
        agree(PREFERRED, ["rouge-l"], ties="lost")
