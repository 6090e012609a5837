"""The curve over numbers of references: against a loop over every draw, and its last point against `measure_agreement`."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from crossmatch.captions.caption_metric_table import compute_metrics
from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.captions.document_frequencies import DocumentFrequencies
from crossmatch.captions.human.metric_agreement import GROUP_MEAN, TIE_CREDIT, measure_agreement
from crossmatch.captions.human.published_ratings import load_pascal_50s, load_ratings
from crossmatch.captions.human.reference_curve import _prediction_interval, draw_reference_orders, measure_reference_curve
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.ratings import Preferences, Ratings

WORDS = ["a", "the", "dog", "cat", "man", "runs", "sits", "on", "grass", "red", "big", "small", "near", "two"]
NAMES = ["bleu-2", "rouge-l", "cider-d"]


def texts(rng, count):
    return [" ".join(rng.choice(WORDS, rng.integers(2, 7))) for _ in range(count)]


def make_preferences(references=lambda n: 3, order=1):
    rng = np.random.default_rng(5)
    pairs = [*(tuple(texts(rng, 2)) for _ in range(12)), ("a dog", "a dog"), ("zz yy", "xx ww")]  # the last two pairs tie
    rows = [
        (f"p{n}", f"i{n // 2}", pair, texts(rng, references(n)), int(rng.integers(0, 2)), "xyyx"[n % 4])
        for n, pair in enumerate(pairs)
    ]
    return Preferences("mine", *zip(*rows[::order], strict=True))


@pytest.fixture(scope="module")
def preferences():
    return make_preferences()


@pytest.fixture(scope="module")
def ratings():
    rng = np.random.default_rng(1)
    rated = [(f"i{n // 3}", text, rng.integers(1, 5, 2).tolist()) for n, text in enumerate(texts(rng, 60))]
    return Ratings.from_rows("mine", rated, {f"i{n}": texts(rng, 3) for n in range(20)}, scale=(1, 4))


def last_points(curve):
    most = max(point.references for point in curve.points)
    return {(point.metric, point.group): point for point in curve.points if point.references == most}


@pytest.mark.parametrize("ties", TIE_CREDIT)
def test_every_point_is_the_mean_over_draws_scored_one_by_one(ties):
    study = make_preferences(lambda n: 3 + n % 3)
    points = measure_reference_curve(study, NAMES, 4, 3, ties=ties).points
    documents = {}
    for image, references in zip(study.images.tolist(), study.references, strict=True):
        documents[image] = list(dict.fromkeys([*documents.get(image, []), *references]))
    frequencies = DocumentFrequencies.from_references(documents)
    orders = draw_reference_orders(study.ids.tolist(), [len(references) for references in study.references], 4, 3)
    for k in (1, 2, 3):
        credit = {name: np.zeros((4, len(study))) for name in NAMES}
        for draw in range(4):
            for n, (pair, references) in enumerate(zip(study.captions, study.references, strict=True)):
                drawn = [references[r] for r in orders[n][draw][:k]]
                results = [
                    compute_metrics(CaptionCorpus.from_texts({"c": text}, {"c": drawn}), NAMES, frequencies=frequencies)
                    for text in pair
                ]
                for name in NAMES:
                    scores = [result[name].scores.values[0] for result in results]
                    differ = abs(scores[0] - scores[1]) > 1e-12 * max(scores)
                    preferred = study.preferred[n]
                    credit[name][draw, n] = scores[preferred] > scores[1 - preferred] if differ else TIE_CREDIT[ties]
        for name in NAMES:
            by_group = {point.group: point for point in points if (point.metric, point.references) == (name, k)}
            expected = {group: credit[name][:, study.groups == group].mean() for group in ("x", "y")}
            assert {group: by_group[group].value for group in expected} == pytest.approx(expected)
            mean = by_group[GROUP_MEAN]
            assert mean.value == pytest.approx(np.mean(list(expected.values())))
            assert mean.low < mean.value < mean.high
            assert mean.ties > 0
            of_draws = np.mean([credit[name][:, study.groups == group].mean(axis=1) for group in ("x", "y")], axis=0)
            margin = stats.t(3).ppf(0.975) * of_draws.std(ddof=1) * np.sqrt(1 + 1 / 4)
            ends = max(0.0, of_draws.mean() - margin), min(1.0, of_draws.mean() + margin)
            assert (mean.draw_low, mean.draw_high) == pytest.approx(ends)


def test_all_references_give_one_draw_without_spread(preferences):
    for point in measure_reference_curve(preferences, NAMES, 5).points:
        assert point.draws == (1 if point.references == 3 else 5)
        if point.references == 3:
            assert point.draw_low == point.draw_high == pytest.approx(point.value)
        else:
            assert point.draw_low <= point.value <= point.draw_high


def test_single_draw_has_no_prediction_interval(preferences):
    points = [p for p in measure_reference_curve(preferences, ["bleu-2"], 1).points if p.group == GROUP_MEAN]
    assert [np.isfinite(point.draw_low) for point in points] == [False, False, True]
    assert [point.as_json()["most"] for point in points[:2]] == [None, None]
    assert all(point.draws == 1 and np.isfinite(point.value) for point in points)


@pytest.mark.parametrize("n", [2, 5, 20])
def test_prediction_interval_contains_one_more_draw_in_95_percent(n):
    drawn = np.random.default_rng(n).normal(0.5, 0.01, (4000, n + 1))
    ends = np.array([_prediction_interval(row[:n], False, 0.0) for row in drawn])
    is_inside = (ends[:, 0] <= drawn[:, n]) & (drawn[:, n] <= ends[:, 1])
    assert is_inside.mean() == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 4000))  # four standard errors of the count


def test_order_of_pairs_and_size_of_blocks_do_not_matter(preferences, monkeypatch):
    plain = measure_reference_curve(preferences, NAMES, 3).points
    monkeypatch.setattr("crossmatch.captions.human.reference_curve.CORPUS_SIZE", 7)
    for first, second in zip(plain, measure_reference_curve(make_preferences(order=-1), NAMES, 3).points, strict=True):
        assert (first.metric, first.group, first.references) == (second.metric, second.group, second.references)
        assert (first.value, first.low, first.draw_high, first.ties) == pytest.approx(
            (second.value, second.low, second.draw_high, second.ties), abs=1e-12
        )


def test_draws_are_uniform_over_references():
    first = draw_reference_orders(["a", "b"], [4, 4], 4000)[0][:, 0]
    assert np.bincount(first, minlength=4) / 4000 == pytest.approx([0.25] * 4, abs=0.03)
    assert (draw_reference_orders(["b"], [4], 5)[0] == draw_reference_orders(["a", "b"], [4, 4], 5)[1]).all()


@pytest.mark.parametrize(
    ("rating", "documents", "coefficient"),
    [
        ("each", "images", "tau-b"),
        ("mean", "candidates", "tau-c"),
        ("mean", "images", "spearman"),
        ("each", "candidates", "pearson"),
    ],
)
def test_all_references_give_the_correlations_of_measure_agreement(ratings, rating, documents, coefficient):
    """To the last digit: scores that differ by rounding are equal in both."""
    names = ["bleu", "rouge-l", "cider-d", "cider"]
    agreement = measure_agreement(ratings, names, rating=rating, documents=documents, samples=20)
    curve = measure_reference_curve(ratings, names, 2, rating=rating, documents=documents, coefficient=coefficient)
    column = agreement.coefficients.index(coefficient)
    for n, metric in enumerate(agreement.metrics):
        point = last_points(curve)[metric, GROUP_MEAN]
        assert point.value == agreement.values[n, column]
        assert (point.low, point.high) == pytest.approx((agreement.low[n, column], agreement.high[n, column]))
        assert documents == "candidates" or curve.signatures[metric] == agreement.signatures[n]
    assert curve.measure == coefficient
    facts = f"|ratings:{rating}|equal:leave-out|coefficient:{coefficient}|df:{documents}|refs:1-3|draws:2|"
    assert curve.signature.startswith(f"agreement-curve|mine|data:{ratings.digest}{facts}")


@pytest.mark.parametrize(("ties", "documents"), [("wrong", "images"), ("half", "candidates"), ("right", "images")])
def test_all_references_give_the_accuracies_of_measure_agreement(preferences, ties, documents):
    agreement = measure_agreement(preferences, NAMES, ties=ties, documents=documents)
    curve = measure_reference_curve(preferences, NAMES, 2, ties=ties, documents=documents)
    for metric, *rows in zip(agreement.metrics, agreement.values, agreement.low, agreement.high, agreement.tie_counts, strict=True):
        for group, *numbers in zip(agreement.groups, *rows, strict=True):
            point = last_points(curve)[metric, group]
            assert [point.value, point.low, point.high, round(point.ties * point.items)] == numbers
    assert f"|data:{preferences.digest}|ties:{ties}|df:{documents}|" in curve.signature
    assert (agreement.tie_counts[:, -1] > 0).all()


def test_every_option_changes_points_and_signature(ratings, preferences):
    options = ({}, {"rating": "mean"}, {"documents": "candidates"}, {"coefficient": "tau-b"}, {"seed": 1})
    curves = [measure_reference_curve(ratings, ["cider-d"], 2, **option) for option in options]
    assert len({curve.points[0].value for curve in curves}) == len({curve.signature for curve in curves}) == len(options)
    frequencies = DocumentFrequencies.from_references({"1": ["a dog"], "2": ["a cat"]})
    changed = replace(preferences, preferred=1 - preferences.preferred)
    curves = [
        measure_reference_curve(preferences, ["cider-d"], 2),
        measure_reference_curve(preferences, ["cider-d"], 3),
        measure_reference_curve(preferences, ["cider-d"], 2, ties="half"),
        measure_reference_curve(preferences, ["cider-d"], 2, frequencies=frequencies),
        measure_reference_curve(changed, ["cider-d"], 2),
    ]
    assert len({curve.points for curve in curves}) == len({curve.signature for curve in curves}) == len(curves)


def test_reference_that_equals_the_only_candidate_counts_as_document():
    """The only candidate of the image is one of its references, and is not compared with itself."""
    rated = [("7", "a dog", [4]), ("8", "a cat", [1]), ("8", "the cats", [2]), ("9", "a man", [3])]
    study = Ratings.from_rows("mine", rated, {"7": ["a dog", "two dogs"], "8": ["cats"], "9": ["one man"]})
    agreement, curve = measure_agreement(study, ["cider-d"], samples=2), measure_reference_curve(study, ["cider-d"], 2)
    frequencies = next(fact for fact in agreement.signatures[0].split("|") if fact.startswith("df:"))
    assert f"|{frequencies}|" in curve.signatures["cider-d"]


def rate(captions, values, references):
    rows = [(str(n), text, [value]) for n, (text, value) in enumerate(zip(captions, values, strict=True))]
    return Ratings.from_rows("mine", rows, {str(n): texts for n, texts in enumerate(references)}, reference_rule="keep")


def test_constant_scores_in_a_draw_give_a_point_without_value():
    study = rate(["a dog", "a cat", "two cats"], [3, 2, 1], [["a dog", "zz"], ["the cat", "yy"], ["a man", "xx"]])
    curve = measure_reference_curve(study, ["rouge-l", "bleu-1"], 40)
    for name in ("rouge-l", "bleu-1"):
        single, double = (point for point in curve.points if point.metric == name)
        assert np.isnan([single.value, single.low, single.high, single.draw_low, single.draw_high]).all()
        assert double.value > 0
        assert -1 <= double.low <= double.value <= double.high <= 1
    points = json.loads(json.dumps(curve.as_json(), allow_nan=False))["points"]
    assert [(point["references"], point["value"] is None) for point in points] == [(1, True), (2, False)] * 2


def test_score_that_is_not_finite_is_refused_by_name(monkeypatch):
    def compute_with_nan(corpus, names, **resources):
        results = compute_metrics(corpus, names, **resources)
        results["rouge-l"].scores.values[0] = np.nan
        return results

    monkeypatch.setattr("crossmatch.captions.human.reference_curve.compute_metrics", compute_with_nan)
    with pytest.raises(CrossmatchError, match=r"rouge-l of a caption with 1 reference\(s\) is not a finite number"):
        measure_reference_curve(rate(["a", "b"], [1, 2], [["a"], ["b"]]), ["bleu-1", "rouge-l"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": 0}, "at least 1"),
        ({"names": ["blue"]}, "Unknown caption metric"),
        ({"documents": "pages"}, "Choose from: images, candidates"),
        ({"rating": "median"}, "Choose from: each, mean"),
        ({"coefficient": "kendall"}, "Unknown correlation coefficient 'kendall'"),
    ],
)
def test_invalid_options_are_refused(ratings, options, message):
    with pytest.raises(UsageError, match=message):
        measure_reference_curve(ratings, **{"names": NAMES} | options)


def test_invalid_tie_rule_and_constant_ratings_are_refused(preferences):
    with pytest.raises(UsageError, match="Choose from: wrong, half, right"):
        measure_reference_curve(preferences, NAMES, ties="even")
    with pytest.raises(CrossmatchError, match="2 ratings are 3"):
        measure_reference_curve(rate(["a", "b"], [3, 3], [["a"], ["b"]]), ["bleu-1"])


@pytest.mark.slow
def test_flickr8k_ends_at_the_numbers_of_measure_agreement(real_data_folder):
    """BLEU-1 has sums that differ by rounding: without merging them, tau-b differed by 1e-5."""
    study = load_ratings("flickr8k-expert", real_data_folder)
    study = study.select(np.arange(0, len(study), 6))
    agreement = measure_agreement(study, ["bleu-1", "cider-d"], samples=2)
    for coefficient in ("tau-b", "tau-c"):
        points = last_points(measure_reference_curve(study, ["bleu-1", "cider-d"], 2, coefficient=coefficient))
        column = agreement.values[:, agreement.coefficients.index(coefficient)]
        assert [points[metric, GROUP_MEAN].value for metric in agreement.metrics] == column.tolist()


@pytest.mark.slow
def test_pascal_50s_improves_with_references_and_ends_at_the_accuracy(real_data_folder, tmp_path):
    """A fifth of the pairs of each group."""
    pairs_by_group = json.loads((real_data_folder / "judgements/pascal_50s.json").read_text())
    (tmp_path / "few.json").write_text(json.dumps({group: pairs[::5] for group, pairs in pairs_by_group.items()}))
    study = load_pascal_50s(tmp_path / "few.json")
    names = ["bleu-4", "cider-d"]
    points = measure_reference_curve(study, names, 5).points
    agreement = measure_agreement(study, names)
    for name, values, low in zip(names, agreement.values, agreement.low, strict=True):
        means = [point for point in points if point.metric == name and point.group == GROUP_MEAN]
        assert [point.references for point in means] == [1, 2, 3, 4, 5]
        assert (means[-1].value, means[-1].low) == (values[-1], low[-1])
        assert means[0].value < means[1].value < means[2].value < means[-1].value
