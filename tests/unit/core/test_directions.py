"""Four directions, folds and cuts: the sweep against loops over the full matrix of exact scores."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch.core.collection import SIDES
from crossmatch.core.cuts import Asked
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.judgements import Judgements, Listed
from crossmatch.core.plausible import Plausible
from crossmatch.core.scores import Embeddings, Matrix
from crossmatch.core.sweep import stand, sweep

COMPILED = [False, True]


def embeddings(rng, images=23, captions=61, d=7, levels=None, similarity="cosine", dtype=np.float32):
    """Vectors with many exact ties: small whole numbers, and some repeated."""
    sides = []
    for n in (images, captions):
        v = rng.integers(-2, 3, (n, d)) if levels else rng.standard_normal((n, d))
        v[v.any(axis=1) == 0] = 1
        v[rng.integers(0, n, n // 4)] = v[0]
        sides += [np.arange(n), v.astype(dtype)]
    return Embeddings(*sides, similarity)


def full(scores, direction):
    n, m = (len(scores.vectors(side)) for side in SIDES[direction])
    i, j = np.divmod(np.arange(n * m), m)
    return scores.pairs(i, j, direction).reshape(n, m)


def some_pairs(rng, direction, scores, share=0.2, folds=None):
    n, m = (len(scores.vectors(side)) for side in SIDES[direction])
    chosen = rng.random((n, m)) < share
    if n == m and SIDES[direction][0] == SIDES[direction][1]:
        np.fill_diagonal(chosen, False)
    if folds is not None:
        chosen &= folds[0][:, None] == folds[1][None]
    kind = {"i2t": "image-caption", "t2i": "image-caption", "t2t": "caption-caption", "i2i": "image-image"}[direction]
    rows, columns = np.nonzero(chosen.T if direction == "t2i" else chosen)
    shape = (m, n) if direction == "t2i" else (n, m)
    folds = folds[::-1] if folds and direction == "t2i" else folds
    return Judgements("x", rows, columns, np.ones(len(rows)), shape, kind=kind, folds=folds)


def expected(line, c, gallery):
    """Above and level, by looking at every candidate."""
    here = line[gallery]
    return int((here > line[c]).sum()), int((here == line[c]).sum())


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("levels", [None, True])
@pytest.mark.parametrize("direction", list(SIDES))
@pytest.mark.parametrize("tile", [1, 50, 10_000])
def test_standing_equals_a_loop_in_every_direction(direction, levels, compiled, tile):
    rng = np.random.default_rng(3)
    scores = embeddings(rng, levels=levels)
    listed = some_pairs(rng, direction, scores).listed(direction)
    found = stand(scores, {direction: listed}, compiled=compiled, tile=tile)[direction]
    matrix = full(scores, direction)
    same = SIDES[direction][0] == SIDES[direction][1]
    for n, (q, c) in enumerate(zip(listed.row, listed.item, strict=True)):
        gallery = np.arange(matrix.shape[1]) != (q if same else -1)
        assert (found.above[n], found.size[n]) == expected(matrix[q], c, gallery)
    assert (found.gallery == matrix.shape[1] - same).all()


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize(
    ("direction", "kind"), [*((d, "embeddings") for d in SIDES), ("i2t", "matrix"), ("t2i", "matrix")]
)  # fmt: skip
def test_a_gallery_is_the_querys_fold(direction, compiled, scattered, kind):
    rng = np.random.default_rng(5)
    scores = embeddings(rng, levels=True)
    of = {"image": np.repeat([0, 1, 2], [5, 10, 8]), "caption": np.repeat([0, 1, 2], [11, 20, 30])}
    if scattered:
        of = {side: rng.permutation(fold) for side, fold in of.items()}
    folds = tuple(of[side] for side in SIDES[direction])
    listed = some_pairs(rng, direction, scores, folds=folds).listed(direction)
    plain = some_pairs(rng, direction, scores).listed(direction)  # without folds, in the same sweep
    matrix = full(scores, direction)
    same = SIDES[direction][0] == SIDES[direction][1]
    if kind == "matrix":
        scores = Matrix(np.arange(23), np.arange(61), full(scores, "i2t"))
    both = stand(scores, {direction: listed, f"{direction}/plain": plain}, compiled=compiled, tile=70)
    assert np.array_equal(both[f"{direction}/plain"].above, stand(scores, {direction: plain})[direction].above)
    found = both[direction]
    at = 0
    for n, q in enumerate(listed.query):
        gallery = (folds[1] == folds[0][q]) & (np.arange(matrix.shape[1]) != (q if same else -1))
        assert found.gallery[n] == gallery.sum()
        for c in listed.item[listed.start[n] : listed.start[n + 1]]:
            assert (found.above[at], found.size[at]) == expected(matrix[q], c, gallery)
            at += 1


def test_folds_keep_their_pairs_and_are_divided_in_one_way():
    scores = embeddings(np.random.default_rng(0))
    scattered, other = (np.arange(23) % 2, np.arange(61) % 2), (np.arange(23) % 3, np.arange(61) % 3)
    one = np.array([0]), np.array([0, 1]), np.array([6]), np.ones(1)
    lists = {"i2t/2": Listed(*one, scattered), "i2t/3": Listed(*one, other)}
    with pytest.raises(CrossmatchError, match="in two ways"):
        stand(scores, lists)
    with pytest.raises(CrossmatchError, match="from one fold into another"):
        Judgements("x", [0], [1], [1], (23, 61), folds=scattered)


def test_nothing_is_compared_with_itself():
    with pytest.raises(CrossmatchError, match="never retrieves itself"):
        Judgements("x", [0, 3], [1, 3], [1, 1], (5, 5), kind="caption-caption")


def plausible(rng, images=23, captions=61, classes=3):
    labels = rng.random((images, classes)) < 0.4
    sets, member = np.unique(labels, axis=0, return_inverse=True)
    owner = rng.integers(0, images, captions)
    return Plausible("x", member, member[owner], sets, zetas=(0, 1, 2), caps=(4, 0)), labels, labels[owner]


@pytest.mark.parametrize("kind", ["embeddings", "ties", "dot", "matrix"])
@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("direction", ["i2t", "t2i"])
def test_cuts_equal_a_sort(direction, compiled, kind):
    rng = np.random.default_rng(7)
    scores = embeddings(rng, levels=kind == "ties", similarity="dot" if kind == "dot" else "cosine")
    if kind == "matrix":
        scores = Matrix(np.arange(23), np.arange(61), rng.integers(0, 9, (23, 61)))
    said, image_labels, caption_labels = plausible(rng)
    folds = (rng.permutation(np.arange(23) % 2), rng.permutation(np.arange(61) % 2))  # of another task, which stirs the items
    stirred = Listed(np.array([3]), np.array([0, 1]), np.flatnonzero(folds[1] == folds[0][3])[:1], np.ones(1), folds)
    found = sweep(scores, {"i2t": stirred}, {direction: Asked.of(said, direction)}, compiled=compiled, tile=200)[1][direction]
    matrix = scores.values.astype(float) if kind == "matrix" else full(scores, "i2t")
    apart = (image_labels[:, None] != caption_labels[None]).sum(axis=2)
    if direction == "t2i":
        matrix, apart = matrix.T, apart.T
    kept = np.flatnonzero((apart == 0).any(axis=1))
    assert found.k.shape == (2, 3, len(kept))
    for q, (line, apart_q) in enumerate(zip(matrix[kept], apart[kept], strict=True)):
        for z in range(3):
            positive = apart_q <= z
            assert found.positives[z, q] == positive.sum()
            for cap, most in enumerate((4, 10**9)):
                k = min(positive.sum(), most)
                t = np.sort(line)[::-1][k - 1]
                given = [a[cap, z, q] for a in (found.k, found.above, found.level, found.positive_above, found.positive_level)]
                above, level = line > t, line == t
                assert given == [k, above.sum(), level.sum(), positive[above].sum(), positive[level].sum()]


@pytest.mark.parametrize("ties", ["expected", "pessimistic", "optimistic"])
def test_found_under_each_policy_equals_all_orders(ties):
    from itertools import permutations

    from crossmatch.core.cuts import Cuts

    one = Cuts(*(np.array([[[n]]]) for n in (3, 1, 4, 1, 2)), np.array([[3]]), np.array([9])).settle(ties)
    outcomes = [1 + sum(order[:2]) for order in permutations([1, 1, 0, 0])]
    assert one.found[0, 0, 0] == {"expected": np.mean, "pessimistic": min, "optimistic": max}[ties](outcomes)
    assert one.tied.tolist() == [1.0]


def test_large_margins_and_wide_vectors_are_settled():
    """Half the candidates lie within the rounding margin of each other; the order is that of the exact scores all the same."""
    rng = np.random.default_rng(11)
    base = rng.standard_normal(300)
    sides = [(base + 1e-6 * rng.standard_normal((n, 300))).astype(np.float32) for n in (23, 61)]
    scores = Embeddings(np.arange(23), sides[0], np.arange(61), sides[1])
    said, *_ = plausible(rng)
    a, b = (sweep(scores, {}, {"i2t": Asked.of(said, "i2t")}, compiled=c)[1]["i2t"] for c in COMPILED)
    exact = full(scores, "i2t")
    for n, q in enumerate(Asked.of(said, "i2t").query):
        t = np.sort(exact[q])[::-1][a.k[1, 0, n] - 1]
        assert a.above[1, 0, n] == b.above[1, 0, n] == (exact[q] > t).sum()


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize(
    "values",
    [np.float32([[3e38, 2e38, -3e38, -2e38, 1, 0]]), np.array([[1.7e308, 1.2e308, -1.7e308, -1.2e308, 1, 0]]),
     np.array([[5, 4, -7, -6, 1, 0]]) * 2**50],
)  # fmt: skip
def test_cuts_of_a_matrix_with_the_widest_range(values, compiled):
    sets = np.array([[True], [False]])
    said = Plausible("x", [0], [0, 0, 1, 1, 1, 1], sets, zetas=(0,), caps=(0, 1))
    found = sweep(Matrix(["i"], list("abcdef"), values), {}, {"i2t": Asked.of(said, "i2t")}, compiled=compiled)[1]["i2t"]
    assert found.found[:, 0, 0].tolist() == [2, 1]


def test_whole_numbers_that_no_float_tells_apart_are_refused():
    with pytest.raises(CrossmatchError, match="beyond 2"):
        Matrix(["i"], ["a", "b"], np.array([[2**62, 2**62 - 1]]))


def test_lists_that_share_only_the_folds_of_their_queries_are_not_one():
    scores = Matrix(list("abcd"), list("wxyz"), np.arange(16.0).reshape(4, 4))
    queries = np.array([0, 0, 1, 1])
    one = np.array([0]), np.array([0, 1]), np.array([0]), np.ones(1)
    lists = {"i2t/a": Listed(*one, (queries, np.array([0, 0, 1, 1]))), "i2t/b": Listed(*one, (queries, np.array([0, 1, 1, 1])))}
    both = stand(scores, lists)
    assert [int(both[key].gallery[0]) for key in lists] == [2, 1]
    assert [int(both[key].above[0]) for key in lists] == [1, 0]
