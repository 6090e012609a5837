"""Cosines of vectors of whole numbers against exact rational arithmetic: parallel vectors tie, and no order is wrong."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crossmatch.data.rank_counts import CandidateLists
from crossmatch.data.scores import Embeddings
from crossmatch.ranking.sweep import count_ranks

PATHS = pytest.mark.parametrize("compiled", [False, True], ids=["numpy", "numba"])


def squared_cosine(query, item):
    """sign(cos) · cos² of two vectors of whole numbers, without rounding: it orders pairs as the cosine does."""
    dot = sum(a * b for a, b in zip(query, item, strict=True))
    return Fraction(dot * abs(dot), sum(a * a for a in query) * sum(b * b for b in item))


def are_parallel(a, b):
    return (
        all(a[n] * b[m] == a[m] * b[n] for n in range(len(a)) for m in range(n))
        and sum(x * y for x, y in zip(a, b, strict=True)) > 0
    )


def vectors(low, high):
    """Rows of one width without a row of zeros."""
    width = st.shared(st.integers(1, 7), key="width")
    row = width.flatmap(lambda d: st.lists(st.integers(low, high), min_size=d, max_size=d).filter(any))
    return st.lists(row, min_size=1, max_size=6)


@PATHS
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int64])
@given(st.one_of(vectors(0, 1), vectors(-9, 9)), st.data())
@example([[1, 1]], None)
def test_order_of_cosines_equals_rational_arithmetic(compiled, dtype, items, data):
    if data is None:  # the example of the documentation
        queries, factors = [[1, 0]], [3]
    else:
        queries = data.draw(vectors(-9, 9).filter(lambda rows: len(rows[0]) == len(items[0])))
        factors = data.draw(st.lists(st.integers(1, 7), min_size=len(items), max_size=len(items)))
    items = items + [[factor * x for x in row] for factor, row in zip(factors, items, strict=True)]
    embeddings = Embeddings(range(len(queries)), np.array(queries, dtype), range(len(items)), np.array(items, dtype))
    candidates = np.tile(np.arange(len(items)), len(queries))
    lists = CandidateLists(np.arange(len(queries)), np.arange(len(queries) + 1) * len(items), candidates, np.ones(len(candidates)))
    counts = count_ranks(embeddings, {"i2t": lists}, compiled=compiled)["i2t"]
    scores = embeddings.score_pairs(np.repeat(np.arange(len(queries)), len(items)), candidates).reshape(-1, len(items))
    for q, query in enumerate(queries):
        exact = [squared_cosine(query, item) for item in items]
        for c, item in enumerate(items):
            row = q * len(items) + c
            above, at_least = (sum(x > exact[c] for x in exact), sum(x >= exact[c] for x in exact))
            parallel = sum(are_parallel(item, other) for other in items)
            assert above <= counts.above[row]  # equal cosines of vectors that are not parallel may differ in the last bit
            assert counts.above[row] + counts.tie_size[row] <= at_least
            assert counts.tie_size[row] >= parallel
            equal = [x == exact[c] for x in exact]
            assert np.ptp(scores[q][equal]) <= 4 * np.finfo(np.float64).eps


@PATHS
@given(st.integers(0, 2**32 - 1), st.integers(1, 2**20))
def test_multiples_tie_for_any_query(compiled, seed, factor):
    """Also for queries with fractions, whose products with the items are rounded."""
    rng = np.random.default_rng(seed)
    items = rng.integers(-3, 4, (1, 40))
    items[0, rng.integers(40)] = 1
    embeddings = Embeddings([0], rng.normal(size=(1, 40)), [0, 1], np.concatenate([items, factor * items]))
    lists = CandidateLists(np.array([0]), np.array([0, 2]), np.arange(2), np.ones(2))
    counts = count_ranks(embeddings, {"i2t": lists}, compiled=compiled)["i2t"]
    assert counts.above.tolist() == [0, 0]
    assert counts.tie_size.tolist() == [2, 2]


@pytest.mark.parametrize(
    "row",
    [
        [0.5, 1.0, 1.5],  # a fraction in the first column
        [2.0] * 40 + [0.5],  # in a later one
        [2.0, 0.0, 3.0],  # no common divisor
        [2.0**60, 2.0**61, 0.0],  # too large to be exact whole numbers
    ],
)
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_other_vectors_are_not_changed(row, similarity):
    values = np.array([row])
    assert np.array_equal(Embeddings([0], values, None, None, similarity).image_vectors, values)


def test_dot_products_keep_the_length_of_whole_numbers():
    embeddings = Embeddings([0], [[1, 1]], [0, 1], [[1, 1], [3, 3]], "dot")
    assert embeddings.score_pairs(np.zeros(2, np.int64), np.arange(2)).tolist() == [2, 6]


def test_input_is_not_changed():
    values = np.array([[6.0, -9.0], [1.0, 0.5]])
    assert Embeddings([0, 1], values, None, None).image_vectors.tolist() == [[2, -3], [1, 0.5]]
    assert values.tolist() == [[6, -9], [1, 0.5]]
