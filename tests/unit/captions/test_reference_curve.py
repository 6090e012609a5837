"""The curve over numbers of references: against a loop over every draw, and the point with all references against `score`."""

import json

import numpy as np
import pytest
from scipy import stats

from crossmatch.captions.agree import EVERY, TIES, accurate
from crossmatch.captions.corpus import Corpus
from crossmatch.captions.frequencies import Frequencies
from crossmatch.captions.judgements import pascal_50s
from crossmatch.captions.reference_curve import _another, accuracy_curve, correlation_curve
from crossmatch.captions.reference_draws import orders
from crossmatch.captions.table import score
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.metrics.correlation import estimate

WORDS = ["a", "the", "dog", "cat", "man", "runs", "sits", "on", "grass", "red", "big", "small", "near", "two"]
NAMES = ["bleu-2", "rouge-l", "cider-d"]


def texts(rng, many):
    return [" ".join(rng.choice(WORDS, rng.integers(2, 7))) for _ in range(many)]


@pytest.fixture
def study():
    rng = np.random.default_rng(5)
    n = 14
    pairs = [tuple(texts(rng, 2)) for _ in range(n - 1)] + [("a dog", "a dog")]  # the last pair ties
    references = [texts(rng, 3 + (at % 3)) for at in range(n)]
    return pairs, rng.integers(0, 2, n).tolist(), references, ["x", "y"] * (n // 2), [f"i{at // 2}" for at in range(n)]


def frequencies(references, names):
    documents = {}
    for name, mine in zip(names, references, strict=True):
        documents[name] = list(dict.fromkeys([*documents.get(name, []), *mine]))
    return Frequencies.of(Corpus.of(dict.fromkeys(documents, ""), documents))


@pytest.mark.parametrize("ties", TIES)
def test_every_point_is_the_mean_over_draws_scored_one_by_one(study, ties):
    pairs, preferred, references, groups, image = study
    found = accuracy_curve(pairs, preferred, references, NAMES, ties=ties, groups=groups, image=image, draws=4, seed=3).points
    kept = frequencies(references, image)
    ids = [str(n) for n in range(len(pairs))]
    order = orders(ids, [len(mine) for mine in references], 4, 3)
    for k in (1, 2, 3):
        right = {name: np.zeros((4, len(pairs))) for name in NAMES}
        for draw in range(4):
            for n, (pair, mine) in enumerate(zip(pairs, references, strict=True)):
                taken = [mine[r] for r in order[n][draw][:k]]
                values = [score(Corpus.of({"c": text}, {"c": taken}), NAMES, frequencies=kept) for text in pair]
                for name in NAMES:
                    both = [value[name].scores.values[0] for value in values]
                    apart = abs(both[0] - both[1]) > 1e-12 * max(both)
                    right[name][draw, n] = both[preferred[n]] > both[1 - preferred[n]] if apart else TIES[ties]
        for name in NAMES:
            mine = {point.group: point for point in found if (point.metric, point.references) == (name, k)}
            by_group = {group: right[name][:, np.array(groups) == group].mean() for group in ("x", "y")}
            assert {group: mine[group].value for group in by_group} == pytest.approx(by_group)
            assert mine[EVERY].value == pytest.approx(np.mean(list(by_group.values())))
            assert mine[EVERY].low < mine[EVERY].value < mine[EVERY].high
            assert mine[EVERY].ties > 0
            of_draws = np.mean([right[name][:, np.array(groups) == group].mean(axis=1) for group in ("x", "y")], axis=0)
            reach = stats.t(3).ppf(0.975) * of_draws.std(ddof=1) * np.sqrt(1 + 1 / 4)
            ends = max(0.0, of_draws.mean() - reach), min(1.0, of_draws.mean() + reach)
            assert (mine[EVERY].least, mine[EVERY].most) == pytest.approx(ends)


def test_with_every_reference_there_is_one_draw_and_no_spread(study):
    pairs, preferred, references, _, _ = study
    whole = [mine[:3] for mine in references]
    for point in accuracy_curve(pairs, preferred, whole, NAMES, draws=5).points:
        assert point.draws == (1 if point.references == 3 else 5)
        if point.references == 3:
            assert point.least == point.most == pytest.approx(point.value)
        else:
            assert point.least <= point.value <= point.most


def test_one_draw_of_several_tells_nothing_of_others(study):
    pairs, preferred, references, _, _ = study
    found = accuracy_curve(pairs, preferred, [mine[:3] for mine in references], ["bleu-2"], draws=1).points
    assert [np.isfinite(point.least) for point in found] == [False, False, True]
    assert [point.as_json()["most"] for point in found[:2]] == [None, None]
    assert all(point.draws == 1 and np.isfinite(point.value) for point in found)


@pytest.mark.parametrize("n", [2, 5, 20])
def test_one_more_draw_lies_in_the_band_in_95_of_100_cases(n):
    drawn = np.random.default_rng(n).normal(0.5, 0.01, (4000, n + 1))
    ends = np.array([_another(row[:n], False, 0.0) for row in drawn])
    held = (ends[:, 0] <= drawn[:, n]) & (drawn[:, n] <= ends[:, 1])
    assert held.mean() == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 4000))  # four standard errors of the count


def test_neither_the_order_of_pairs_nor_of_blocks_changes_anything(study, monkeypatch):
    pairs, preferred, references, groups, image = study
    ids = [f"p{n}" for n in range(len(pairs))]
    given = {"groups": groups, "image": image, "ids": ids, "draws": 3}
    plain = accuracy_curve(pairs, preferred, references, NAMES, **given).points
    monkeypatch.setattr("crossmatch.captions.reference_draws.AT_ONCE", 7)
    back = {"groups": groups[::-1], "image": image[::-1], "ids": ids[::-1], "draws": 3}
    turned = accuracy_curve(pairs[::-1], preferred[::-1], references[::-1], NAMES, **back).points
    assert [(p.metric, p.group, p.references) for p in plain] == [(p.metric, p.group, p.references) for p in turned]
    for one, two in zip(plain, turned, strict=True):
        assert (one.value, one.low, one.most, one.ties) == pytest.approx((two.value, two.low, two.most, two.ties), abs=1e-12)


def test_draws_are_uniform_over_references():
    first = orders(["a", "b"], [4, 4], 4000)[0][:, 0]
    assert np.bincount(first, minlength=4) / 4000 == pytest.approx([0.25] * 4, abs=0.03)
    assert (orders(["b"], [4], 5)[0] == orders(["a", "b"], [4, 4], 5)[1]).all()


SCIPY = {
    "tau-b": lambda a, b: stats.kendalltau(a, b).statistic,
    "tau-c": lambda a, b: stats.kendalltau(a, b, variant="c").statistic,
    "spearman": lambda a, b: stats.spearmanr(a, b).statistic,
    "pearson": lambda a, b: stats.pearsonr(a, b).statistic,
}


@pytest.mark.parametrize("coefficient", SCIPY)
def test_correlation_with_all_references_is_the_plain_one(coefficient):
    rng = np.random.default_rng(2)
    captions, references = texts(rng, 30), [texts(rng, 3) for _ in range(30)]
    ids = [f"c{n}" for n in range(30) for _ in range(2)]  # two ratings each
    ratings = rng.integers(1, 5, 60).astype(float)
    image = [f"i{n // 3}" for n in range(30) for _ in range(2)]
    twice = [text for text in captions for _ in range(2)], [mine for mine in references for _ in range(2)]
    given = {"image": image, "ids": ids, "draws": 6, "coefficient": coefficient}
    curve = correlation_curve(twice[0], ratings, twice[1], ["rouge-l"], **given)
    found = curve.points
    assert (curve.measure, [(point.references, point.draws) for point in found]) == (coefficient, [(1, 6), (2, 6), (3, 1)])
    scores = score(
        Corpus.of({str(n): text for n, text in enumerate(captions)}, {str(n): mine for n, mine in enumerate(references)}),
        ["rouge-l"],
    )["rouge-l"].scores.values.repeat(2)
    assert found[-1].value == pytest.approx(SCIPY[coefficient](ratings, scores))
    if coefficient != "tau-c":  # the other module has none
        other = {"tau-b": "kendall"}.get(coefficient, coefficient)
        plain = estimate(other, np.unique(image, return_inverse=True)[1], ratings, scores, groups=20)
        assert (found[-1].low, found[-1].high) == pytest.approx((plain.low, plain.high))


def test_a_draw_in_which_all_scores_are_equal_gives_a_point_without_a_value():
    captions, references = ["a dog", "a cat", "two cats"], [["a dog", "zz"], ["the cat", "yy"], ["a man", "xx"]]
    found = correlation_curve(captions, [3, 2, 1], references, ["rouge-l", "bleu-1"], draws=40)
    for name in ("rouge-l", "bleu-1"):
        one, two = (point for point in found.points if point.metric == name)
        assert np.isnan([one.value, one.low, one.high, one.least, one.most]).all()
        assert two.value > 0
        assert -1 <= two.low <= two.value <= two.high <= 1
    told = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert [(p["references"], p["value"] is None) for p in told["points"]] == [(1, True), (2, False)] * 2


def test_a_score_that_is_no_number_is_refused_by_name(monkeypatch):
    def broken(corpus, names, **given):
        found = score(corpus, names, **given)
        found["rouge-l"].scores.values[0] = np.nan
        return found

    monkeypatch.setattr("crossmatch.captions.reference_draws.score", broken)
    with pytest.raises(CrossmatchError, match=r"rouge-l of a caption with 1 reference\(s\) is not a number"):
        correlation_curve(["a", "b"], [1, 2], [["a"], ["b"]], ["bleu-1", "rouge-l"])


def test_people_who_always_say_the_same_are_refused():
    with pytest.raises(CrossmatchError, match="all 2 ratings are 3"):
        correlation_curve(["a", "b"], [3, 3], [["a"], ["b"]], ["bleu-1"])


def test_signatures_tell_what_was_done(study):
    pairs, preferred, references, groups, image = study

    def signature(**change):
        given = {"groups": groups, "image": image, "draws": 2, "counts": [1]} | change
        return accuracy_curve(pairs, change.pop("preferred", preferred), references, ["cider-d"], **given).signature

    plain = signature()
    assert "|ties:wrong|df:images|refs:1|draws:2|interval:wilson/images|seed:0|v" in plain
    others = [{"ties": "half"}, {"documents": "candidates"}, {"draws": 3}, {"seed": 1}, {"counts": [1, 2]}, {"groups": image}]
    kept = {"frequencies": frequencies(references[:4], image[:4])}
    assert len({plain, *(signature(**change) for change in (*others, kept))}) == len(others) + 2


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"preferred": [0]}, CrossmatchError, "2 pairs, 1 preferred"),
        ({"preferred": [0, 2]}, CrossmatchError, "0 or 1 was expected"),
        ({"references": [["a"], []]}, CrossmatchError, "item '1' has no references"),
        ({"counts": [3]}, WrongWords, "Ask for 1 to 1"),
        ({"counts": []}, WrongWords, "no number"),
        ({"draws": 0}, WrongWords, "at least one"),
        ({"names": ["blue"]}, WrongWords, "no caption metric"),
        ({"ties": "even"}, WrongWords, "there are wrong, half, right"),
        ({"documents": "pages"}, WrongWords, "there are images and candidates"),
    ],
)
def test_what_cannot_be_drawn_is_refused(change, error, said):
    given = {
        "pairs": [("a", "b"), ("c", "d")],
        "preferred": [0, 1],
        "references": [["a"], ["c", "d"]],
        "names": ["bleu-1"],
    } | change
    with pytest.raises(error, match=said):
        accuracy_curve(given.pop("pairs"), given.pop("preferred"), given.pop("references"), given.pop("names"), **given)


def test_pascal_50s_gets_better_with_references_and_ends_at_the_accuracy(real_data_folder, tmp_path):
    """A fifth of the pairs of each group: the last point is what `captions agree` says."""
    held = json.loads((real_data_folder / "judgements/pascal_50s.json").read_text())
    (tmp_path / "few.json").write_text(json.dumps({group: pairs[::5] for group, pairs in held.items()}))
    said = pascal_50s(tmp_path / "few.json")
    names = ["bleu-4", "cider-d"]
    found = accuracy_curve(
        said.captions, said.preferred, said.references, names, groups=said.groups, image=said.images, ids=said.ids, draws=5
    ).points
    whole = accurate(said, names)
    for name, row, low in zip(names, whole.values, whole.low, strict=True):
        mine = [point for point in found if point.metric == name and point.group == EVERY]
        assert [point.references for point in mine] == [1, 2, 3, 4, 5]
        assert (mine[-1].value, mine[-1].low) == (row[-1], low[-1])
        assert mine[0].value < mine[1].value < mine[2].value < mine[-1].value
