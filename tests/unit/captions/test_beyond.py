"""Beyond the agreement: the curve obeys the same options as `agree`, and ends at the very numbers that are found there."""

from itertools import product

import numpy as np
import pytest

from crossmatch.captions.agree import COUNTED, TIES, agree
from crossmatch.captions.beyond import by_references, by_words, on_their_scale
from crossmatch.captions.candidates import DOCUMENTS
from crossmatch.captions.judgements import study
from crossmatch.core.errors import WrongWords
from crossmatch.core.ratings import Preferences, Ratings
from crossmatch.metrics.concordance import COEFFICIENTS

WORDS = ["a", "the", "dog", "cat", "man", "runs", "sits", "on", "grass", "red", "big", "small", "near", "two"]
NAMES = ["bleu", "rouge-l", "cider-d", "cider"]


def texts(rng, many):
    return [" ".join(rng.choice(WORDS, rng.integers(2, 7))) for _ in range(many)]


@pytest.fixture(scope="module")
def ratings():
    rng = np.random.default_rng(1)
    rated = [(f"i{n // 3}", text, rng.integers(1, 5, 3).tolist()) for n, text in enumerate(texts(rng, 60))]
    return Ratings.gathered("mine", rated, {f"i{n}": texts(rng, 4) for n in range(20)}, scale=(1, 4))


@pytest.fixture(scope="module")
def preferences():
    rng = np.random.default_rng(2)
    pairs = [*(tuple(texts(rng, 2)) for _ in range(38)), ("a dog", "a dog"), ("zz yy", "xx ww")]
    images, groups = [f"i{n // 2}" for n in range(40)], ["x", "y", "y", "x"] * 10
    references, preferred = [texts(rng, 3) for _ in range(40)], rng.integers(0, 2, 40)
    return Preferences("mine", [str(n) for n in range(40)], images, pairs, references, preferred, groups)


def last(curve):
    most = max(point.references for point in curve.points)
    return {(point.metric, point.group): point for point in curve.points if point.references == most}


@pytest.mark.parametrize(("rating", "documents", "coefficient"), list(product(COUNTED, DOCUMENTS, COEFFICIENTS)))
def test_all_references_are_what_agree_says_of_ratings(ratings, rating, documents, coefficient):
    """To the last digit: scores that differ by rounding are made equal in both."""
    whole = agree(ratings, NAMES, rating=rating, documents=documents, samples=2)
    curve = by_references(ratings, NAMES, 2, rating=rating, documents=documents, coefficient=coefficient)
    found = last(curve)
    for name, row, signature in zip(whole.metrics, whole.values, whole.signatures, strict=True):
        assert found[name, "mean"].value == row[whole.coefficients.index(coefficient)]
        if documents == "images":
            assert curve.signatures[name] == signature
    assert curve.measure == coefficient
    told = f"|ratings:{rating}|equal:leave-out|coefficient:{coefficient}|df:{documents}|refs:1-4|draws:2|"
    assert curve.signature.startswith(f"agreement-curve|mine|data:{ratings.digest}{told}")


@pytest.mark.parametrize(("ties", "documents"), list(product(TIES, DOCUMENTS)))
def test_all_references_are_what_agree_says_of_preferences(preferences, ties, documents):
    whole = agree(preferences, NAMES, ties=ties, documents=documents)
    curve = by_references(preferences, NAMES, 2, ties=ties, documents=documents)
    found = last(curve)
    for name, *rows in zip(whole.metrics, whole.values, whole.low, whole.high, whole.tied, strict=True):
        for group, value, low, high, tied in zip(whole.groups, *rows, strict=True):
            mine = found[name, group]
            assert (mine.value, mine.low, mine.high, round(mine.ties * mine.items)) == (value, low, high, tied)
    assert f"|data:{preferences.digest}|ties:{ties}|df:{documents}|" in curve.signature
    assert (whole.tied[:, -1] > 0).all()


def test_rules_change_the_curve(ratings, preferences):
    """What was ignored would make these equal."""
    assert by_references(preferences, NAMES, 2).points != by_references(preferences, NAMES, 2, ties="half").points
    curves = [by_references(ratings, ["cider-d"], 2, **change).points for change in
              ({}, {"rating": "mean"}, {"documents": "candidates"}, {"coefficient": "tau-b"}, {"seed": 1})]  # fmt: skip
    assert len({points[0].value for points in curves}) == len(curves)


def test_a_reference_that_every_candidate_is_still_counts_as_a_document():
    """The image's only candidate is one of its references, and is not compared with itself."""
    rated = [("7", "a dog", [4]), ("8", "a cat", [1]), ("8", "the cats", [2]), ("9", "a man", [3])]
    said = Ratings.gathered("mine", rated, {"7": ["a dog", "two dogs"], "8": ["cats"], "9": ["one man"]})
    whole, curve = agree(said, ["cider-d"], samples=2), by_references(said, ["cider-d"], 2)
    df = next(fact for fact in whole.signatures[0].split("|") if fact.startswith("df:"))
    assert f"|{df}|" in curve.signatures["cider-d"]


def test_wrong_words_are_refused(ratings):
    with pytest.raises(WrongWords, match="there are each and mean"):
        by_references(ratings, NAMES, rating="median")
    with pytest.raises(WrongWords, match="no correlation coefficient 'kendall'"):
        by_references(ratings, NAMES, coefficient="kendall")


def test_real_ratings_end_at_the_numbers_of_the_table(real_data_folder):
    """BLEU-1 has sums that differ by rounding: tau-b was 1e-5 apart. And changed words: documents are the study's images."""
    said = study("flickr8k-expert", real_data_folder)
    said = said.among(np.arange(0, len(said), 6))
    whole = agree(said, ["bleu-1", "cider-d"], samples=2)
    for coefficient in ("tau-b", "tau-c"):
        found = last(by_references(said, ["bleu-1", "cider-d"], 2, coefficient=coefficient))
        column = whole.values[:, whole.coefficients.index(coefficient)]
        assert [found[name, "mean"].value for name in whole.metrics] == column.tolist()
    few = said.among(np.arange(40))
    images = len(set(few.images.tolist()))
    changed = by_words(few, ["cider-d"])
    assert f"/{images}|" in changed.signatures["cider-d"]
    assert changed.signature.startswith(f"sensitivity|flickr8k-expert|data:{few.digest}|seed:0|ties:wrong|df:images|probes:")


def test_every_metric_is_put_on_their_scale(ratings):
    found = on_their_scale(agree(ratings, ["bleu-1", "rouge-l"], samples=2))
    assert list(found) == ["bleu-1", "rouge-l"]
    assert [one.levels.tolist() for one in found.values()] == [[1, 2, 3, 4]] * 2
