"""The sweep equals counting one by one, for any tile, thread count and order, and for nearly tied scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.data.errors import CrossmatchError
from crossmatch.data.rank_counts import CandidateLists, RankRequest
from crossmatch.data.scores import Embeddings, Matrix, exact_dot
from crossmatch.ranking.sweep import count_ranks, sweep

PATHS = pytest.mark.parametrize("compiled", [False, True], ids=["numpy", "numba"])


def ids(prefix, n):
    return [f"{prefix}{k}" for k in range(n)]


def random_lists(rng, queries, items, most):
    """Random lists of positives for a random subset of the queries."""
    chosen = np.flatnonzero(rng.random(queries) < 0.8)
    chosen = chosen if len(chosen) else np.array([0])
    rows = [np.sort(rng.choice(items, size=rng.integers(1, min(most, items) + 1), replace=False)) for _ in chosen]
    start = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
    item = np.concatenate(rows).astype(np.int64)
    return CandidateLists(chosen.astype(np.int64), start, item, np.ones(len(item)))


def count_by_hand(scores, lists, rows):
    matrix = scores if rows else scores.T
    above, size = [], []
    for n, q in enumerate(lists.query):
        for c in lists.item[lists.start[n] : lists.start[n + 1]]:
            above.append(int((matrix[q] > matrix[q, c]).sum()))
            size.append(int((matrix[q] == matrix[q, c]).sum()))
    return above, size


def all_scores(embeddings):
    i, j = np.indices(embeddings.shape)
    return embeddings.score_pairs(i.ravel(), j.ravel()).reshape(embeddings.shape)


def clustered(rng, n, d, dtype, repeats):
    """Vectors with exact copies and copies that differ in the last bit, which float32 products cannot distinguish."""
    base = rng.standard_normal((max(1, n // repeats), d)).astype(dtype)
    vectors = base[rng.integers(len(base), size=n)].copy()
    is_nudged = rng.random(n) < 0.3
    vectors[is_nudged, 0] = np.nextafter(vectors[is_nudged, 0], dtype(9))
    return vectors


@PATHS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize(("most", "d"), [(4, 5), (70, 16), (70, 33)])
def test_counts_are_those_of_the_exact_scores(compiled, dtype, similarity, most, d):
    rng = np.random.default_rng(most + d)
    embeddings = Embeddings(
        ids("i", 60), clustered(rng, 60, d, dtype, 3), ids("c", 130), clustered(rng, 130, d, dtype, 4), similarity
    )
    lists = [
        ("i2t", random_lists(rng, 60, 130, most)),
        ("t2i", random_lists(rng, 130, 60, most)),
        ("t2i", random_lists(rng, 130, 60, 3)),
    ]
    requests = {n: RankRequest(*request) for n, request in enumerate(lists)}
    scores = all_scores(embeddings)
    for tile, threads in ((10**6, 1), (777, 3), (64, 2), (1, 1)):
        results = sweep(embeddings, requests, tile=tile, threads=threads, compiled=compiled)
        for key, counts in results.items():
            above, size = count_by_hand(scores, requests[key].lists, requests[key].direction == "i2t")
            assert counts.above.tolist() == above
            assert counts.tie_size.tolist() == size


@pytest.mark.parametrize("d", [1, 5, 64])
@pytest.mark.parametrize("spread", [0.0, 1e-7, 1.0], ids=["constant", "nearly constant", "spread"])
def test_compiled_counts_equal_numpy_over_several_chunks(d, spread):
    """Several chunks and many listed scores: the compiled path equals NumPy, which the tests above check."""
    rng = np.random.default_rng(d)
    images = (1 + spread * rng.standard_normal((90, d))).astype(np.float32)
    captions = (1 + spread * rng.standard_normal((2100, d))).astype(np.float32)
    embeddings = Embeddings(ids("i", 90), images, ids("c", 2100), captions)
    lists = {"i2t": random_lists(rng, 90, 2100, 130), "t2i": random_lists(rng, 2100, 90, 20)}
    fast, slow = (count_ranks(embeddings, lists, compiled=compiled) for compiled in (True, False))
    for key in lists:
        assert fast[key].above.tolist() == slow[key].above.tolist()
        assert fast[key].tie_size.tolist() == slow[key].tie_size.tolist()


@PATHS
@pytest.mark.parametrize("dtype", [bool, np.uint8, np.float16, np.float32, np.float64, np.int64])
def test_matrix_of_any_dtype_is_ranked(compiled, dtype):
    rng = np.random.default_rng(5)
    values = (rng.integers(0, 4, (30, 80)) / (1 if np.issubdtype(dtype, np.integer) else 3)).astype(dtype)
    lists = {"i2t": random_lists(rng, 30, 80, 50), "t2i": random_lists(rng, 80, 30, 5)}
    results = count_ranks(Matrix(ids("i", 30), ids("c", 80), values), lists, tile=200, compiled=compiled)
    for key, counts in results.items():
        assert (counts.above.tolist(), counts.tie_size.tolist()) == count_by_hand(values, lists[key], key == "i2t")


@PATHS
def test_large_integers_keep_their_order(compiled):
    values = np.array([[2**53, 2**53 - 1, 2**24 + 1, 2**24]])
    lists = CandidateLists(np.array([0]), np.array([0, 4]), np.arange(4), np.ones(4))
    results = count_ranks(Matrix(["i"], ids("c", 4), values), {"i2t": lists}, compiled=compiled)["i2t"]
    assert results.above.tolist() == [0, 1, 2, 3]
    assert results.tie_size.tolist() == [1, 1, 1, 1]


@PATHS
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_dot_products_of_any_magnitude(compiled, scale):
    rng = np.random.default_rng(8)
    images, captions = (rng.standard_normal((20, 6)) * scale, rng.standard_normal((50, 6)) * rng.choice([1e-6, 1, 1e6], (50, 1)))
    embeddings = Embeddings(ids("i", 20), images, ids("c", 50), captions, "dot")
    lists = {"i2t": random_lists(rng, 20, 50, 40), "t2i": random_lists(rng, 50, 20, 9)}
    for key, counts in count_ranks(embeddings, lists, compiled=compiled).items():
        assert (counts.above.tolist(), counts.tie_size.tolist()) == count_by_hand(all_scores(embeddings), lists[key], key == "i2t")


@PATHS
@given(seed=st.integers(0, 2**32 - 1))
def test_order_of_items_does_not_matter(compiled, seed):
    rng = np.random.default_rng(seed)
    images, captions = clustered(rng, 12, 8, np.float32, 2), clustered(rng, 40, 8, np.float32, 3)
    lists = random_lists(rng, 12, 40, 38)
    before = count_ranks(Embeddings(ids("i", 12), images, ids("c", 40), captions), {"i2t": lists}, compiled=compiled)["i2t"]
    order = rng.permutation(40)
    place = np.argsort(order)
    moved = CandidateLists(lists.query, lists.start, place[lists.item], lists.grade)
    after = count_ranks(
        Embeddings(ids("i", 12), images, [f"c{k}" for k in order], captions[order]), {"i2t": moved}, tile=100, compiled=compiled
    )["i2t"]
    assert before.above.tolist() == after.above.tolist()
    assert before.tie_size.tolist() == after.tie_size.tolist()


@given(d=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
def test_compiled_dot_product_equals_numpy_bit_for_bit(d, seed):
    from crossmatch.ranking import rank_count_kernels

    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, d)).astype(np.float32)
    assert rank_count_kernels.exact_dot(a, b, np.empty(d)) == exact_dot(a, b)


@PATHS
def test_cancellation_is_resolved_in_float64(compiled):
    """Large terms cancel: float32 sums lose the small difference that decides."""
    image = np.array([[1.0, 1.0, 1.0]], dtype=np.float32)
    captions = np.array([[1, -1, 0], [1, -1, 2**-20], [1, -1, 2**-21], [-1, 1, 2**-21]], dtype=np.float32)
    lists = CandidateLists(np.array([0]), np.array([0, 4]), np.arange(4), np.ones(4))
    results = count_ranks(Embeddings(["i"], image, ids("c", 4), captions, "dot"), {"i2t": lists}, compiled=compiled)["i2t"]
    assert results.above.tolist() == [3, 0, 1, 1]
    assert results.tie_size.tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Embeddings(["a", "a"], np.ones((2, 2)), ["c"], np.ones((1, 2))), "occurs 2 times"),
        (lambda: Embeddings(["a"], [[np.nan, 1]], ["c"], np.ones((1, 2))), "NaN or infinite"),
        (lambda: Embeddings(["a"], np.ones((1, 3)), ["c"], np.ones((1, 2))), "one space"),
        (lambda: Embeddings(["a"], np.zeros((1, 2)), ["c"], np.ones((1, 2))), "all zeros"),
        (lambda: Embeddings(["a"], np.ones(2), ["c"], np.ones((1, 2))), "one row per id"),
        (lambda: Embeddings(["a"], np.ones((1, 2)), ["c"], np.ones((1, 2)), "euclid"), "'cosine' or 'dot'"),
        (lambda: Embeddings([], np.ones((0, 2)), ["c"], np.ones((1, 2))), "no image ids"),
        (lambda: Matrix(["a"], ["c", "d"], np.ones((2, 1))), "images x captions"),
        (lambda: Matrix(["a"], ["c"], [[np.inf]]), "NaN or infinite"),
        (lambda: Matrix(["a"], ["c"], [["x"]]), "real numbers"),
    ],
)
def test_invalid_scores_are_an_error(make, says):
    with pytest.raises(CrossmatchError, match=says):
        make()
