"""Four directions, folds and cutoffs: the sweep equals loops over the full matrix of exact scores."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch.data.collection import SIDES
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.judgements import Judgements
from crossmatch.data.plausible_matches import PlausibleMatches
from crossmatch.data.rank_counts import CandidateLists, RankRequest
from crossmatch.data.scores import Embeddings, Matrix
from crossmatch.ranking.sweep import count_ranks, sweep

COMPILED = [False, True]


def embeddings(rng, images=23, captions=61, d=7, levels=None, similarity="cosine", dtype=np.float32):
    """Vectors with many exact ties: small integers, and some repeated."""
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
    return scores.score_pairs(i, j, direction).reshape(n, m)


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
    """Number of candidates above and tied, from every candidate."""
    here = line[gallery]
    return int((here > line[c]).sum()), int((here == line[c]).sum())


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("levels", [None, True])
@pytest.mark.parametrize("direction", list(SIDES))
@pytest.mark.parametrize("tile", [1, 50, 10_000])
def test_counts_equal_a_loop_in_every_direction(direction, levels, compiled, tile):
    rng = np.random.default_rng(3)
    scores = embeddings(rng, levels=levels)
    listed = some_pairs(rng, direction, scores).candidate_lists(direction)
    counts = count_ranks(scores, {direction: listed}, compiled=compiled, tile=tile)[direction]
    matrix = full(scores, direction)
    same_side = SIDES[direction][0] == SIDES[direction][1]
    for n, (q, c) in enumerate(zip(listed.pair_query, listed.item, strict=True)):
        gallery = np.arange(matrix.shape[1]) != (q if same_side else -1)
        assert (counts.above[n], counts.tie_size[n]) == expected(matrix[q], c, gallery)
    assert (counts.gallery_size == matrix.shape[1] - same_side).all()


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize(
    ("direction", "kind"), [*((d, "embeddings") for d in SIDES), ("i2t", "matrix"), ("t2i", "matrix")]
)  # fmt: skip
def test_gallery_is_the_fold_of_the_query(direction, compiled, scattered, kind):
    rng = np.random.default_rng(5)
    scores = embeddings(rng, levels=True)
    folds_by_side = {"image": np.repeat([0, 1, 2], [5, 10, 8]), "caption": np.repeat([0, 1, 2], [11, 20, 30])}
    if scattered:
        folds_by_side = {side: rng.permutation(fold) for side, fold in folds_by_side.items()}
    folds = tuple(folds_by_side[side] for side in SIDES[direction])
    listed = some_pairs(rng, direction, scores, folds=folds).candidate_lists(direction)
    without_folds = some_pairs(rng, direction, scores).candidate_lists(direction)  # without folds, in the same sweep
    matrix = full(scores, direction)
    same_side = SIDES[direction][0] == SIDES[direction][1]
    if kind == "matrix":
        scores = Matrix(np.arange(23), np.arange(61), full(scores, "i2t"))
    requests = {"folds": RankRequest(direction, listed), "plain": RankRequest(direction, without_folds)}
    both = sweep(scores, requests, compiled=compiled, tile=70)
    assert np.array_equal(both["plain"].above, count_ranks(scores, {direction: without_folds})[direction].above)
    counts = both["folds"]
    at = 0
    for n, q in enumerate(listed.query):
        gallery = (folds[1] == folds[0][q]) & (np.arange(matrix.shape[1]) != (q if same_side else -1))
        assert counts.gallery_size[n] == gallery.sum()
        for c in listed.item[listed.start[n] : listed.start[n + 1]]:
            assert (counts.above[at], counts.tie_size[at]) == expected(matrix[q], c, gallery)
            at += 1


def test_conflicting_folds_are_an_error():
    scores = embeddings(np.random.default_rng(0))
    scattered, other = (np.arange(23) % 2, np.arange(61) % 2), (np.arange(23) % 3, np.arange(61) % 3)
    fields = np.array([0]), np.array([0, 1]), np.array([6]), np.ones(1)
    requests = {n: RankRequest("i2t", CandidateLists(*fields, folds)) for n, folds in ((2, scattered), (3, other))}
    with pytest.raises(CrossmatchError, match="different folds"):
        sweep(scores, requests)
    with pytest.raises(CrossmatchError, match="from one fold into another"):
        Judgements("x", [0], [1], [1], (23, 61), folds=scattered)


def test_pair_of_an_item_with_itself_is_an_error():
    with pytest.raises(CrossmatchError, match="never retrieves itself"):
        Judgements("x", [0, 3], [1, 3], [1, 1], (5, 5), kind="caption-caption")


def plausible(rng, images=23, captions=61, classes=3):
    labels = rng.random((images, classes)) < 0.4
    sets, member = np.unique(labels, axis=0, return_inverse=True)
    owner = rng.integers(0, images, captions)
    return PlausibleMatches("x", member, member[owner], sets, zetas=(0, 1, 2), caps=(4, 0)), labels, labels[owner]


@pytest.mark.parametrize("kind", ["embeddings", "ties", "dot", "matrix"])
@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("direction", ["i2t", "t2i"])
def test_cutoff_counts_equal_sorting(direction, compiled, kind):
    rng = np.random.default_rng(7)
    scores = embeddings(rng, levels=kind == "ties", similarity="dot" if kind == "dot" else "cosine")
    if kind == "matrix":
        scores = Matrix(np.arange(23), np.arange(61), rng.integers(0, 9, (23, 61)))
    matches, image_labels, caption_labels = plausible(rng)
    folds = (rng.permutation(np.arange(23) % 2), rng.permutation(np.arange(61) % 2))  # of another task, which stirs the items
    other_task = CandidateLists(np.array([3]), np.array([0, 1]), np.flatnonzero(folds[1] == folds[0][3])[:1], np.ones(1), folds)
    requests = {"folds": RankRequest("i2t", other_task), "cutoffs": matches.request(direction)}
    counts = sweep(scores, requests, compiled=compiled, tile=200)["cutoffs"]
    matrix = scores.values.astype(float) if kind == "matrix" else full(scores, "i2t")
    distance = (image_labels[:, None] != caption_labels[None]).sum(axis=2)
    if direction == "t2i":
        matrix, distance = matrix.T, distance.T
    queries = np.flatnonzero((distance == 0).any(axis=1))
    assert counts.k.shape == (2, 3, len(queries))
    for q, (line, query_distance) in enumerate(zip(matrix[queries], distance[queries], strict=True)):
        for z in range(3):
            positive = query_distance <= z
            assert counts.positive_counts[z, q] == positive.sum()
            for cap, limit in enumerate((4, 10**9)):
                k = min(positive.sum(), limit)
                t = np.sort(line)[::-1][k - 1]
                actual = [
                    a[cap, z, q] for a in (counts.k, counts.above, counts.tie_size, counts.positives_above, counts.positives_in_tie)
                ]
                above, level = line > t, line == t
                assert actual == [k, above.sum(), level.sum(), positive[above].sum(), positive[level].sum()]


@pytest.mark.parametrize("ties", ["expected", "pessimistic", "optimistic"])
def test_tie_policy_equals_all_orders_of_tied_candidates(ties):
    from itertools import permutations

    from crossmatch.data.rank_counts import CountsAtK

    counts = CountsAtK(*(np.array([[[n]]]) for n in (3, 1, 4, 1, 2)), np.array([[3]]), np.array([9]), (0,)).break_ties(ties)
    outcomes = [1 + sum(order[:2]) for order in permutations([1, 1, 0, 0])]
    assert counts.positives_in_top_k[0, 0, 0] == {"expected": np.mean, "pessimistic": min, "optimistic": max}[ties](outcomes)
    assert counts.is_tied.tolist() == [1.0]


@pytest.mark.parametrize(("scores", "is_tied"), [([2.0, 2, 1], 0.0), ([2.0, 2, 2], 1.0), ([2.0, 1, 1], 1.0), ([3.0, 2, 1], 0.0)])
def test_only_ties_with_negatives_count(scores, is_tied):
    from crossmatch.ranking.ranks import rank

    assert rank([scores], [[1, 1, 0]]).is_tied.tolist() == [is_tied]


def test_nearly_equal_scores_are_ranked_exactly():
    """Half of the candidates are within the rounding margin of each other."""
    rng = np.random.default_rng(11)
    base = rng.standard_normal(300)
    sides = [(base + 1e-6 * rng.standard_normal((n, 300))).astype(np.float32) for n in (23, 61)]
    scores = Embeddings(np.arange(23), sides[0], np.arange(61), sides[1])
    matches, *_ = plausible(rng)
    request = matches.request("i2t")
    a, b = (sweep(scores, {"x": request}, compiled=c)["x"] for c in COMPILED)
    exact = full(scores, "i2t")
    for n, q in enumerate(request.query):
        t = np.sort(exact[q])[::-1][a.k[1, 0, n] - 1]
        assert a.above[1, 0, n] == b.above[1, 0, n] == (exact[q] > t).sum()


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize(
    "values",
    [np.float32([[3e38, 2e38, -3e38, -2e38, 1, 0]]), np.array([[1.7e308, 1.2e308, -1.7e308, -1.2e308, 1, 0]]),
     np.array([[5, 4, -7, -6, 1, 0]]) * 2**50],
)  # fmt: skip
def test_cutoffs_of_extreme_scores(values, compiled):
    sets = np.array([[True], [False]])
    matches = PlausibleMatches("x", [0], [0, 0, 1, 1, 1, 1], sets, zetas=(0,), caps=(0, 1))
    request = matches.request("i2t")
    counts = sweep(Matrix(["i"], list("abcdef"), values), {"x": request}, compiled=compiled)["x"]
    assert counts.positives_in_top_k[:, 0, 0].tolist() == [2, 1]
    assert counts.caps == matches.caps


def test_integers_beyond_float_precision_are_an_error():
    with pytest.raises(CrossmatchError, match="beyond 2"):
        Matrix(["i"], ["a", "b"], np.array([[2**62, 2**62 - 1]]))


def test_lists_with_different_item_folds_are_not_merged():
    scores = Matrix(list("abcd"), list("wxyz"), np.arange(16.0).reshape(4, 4))
    queries = np.array([0, 0, 1, 1])
    fields = np.array([0]), np.array([0, 1]), np.array([0]), np.ones(1)
    lists = [CandidateLists(*fields, (queries, np.array(folds))) for folds in ([0, 0, 1, 1], [0, 1, 1, 1])]
    both = sweep(scores, {n: RankRequest("i2t", listed) for n, listed in enumerate(lists)})
    assert [int(both[n].gallery_size[0]) for n in range(2)] == [2, 1]
    assert [int(both[n].above[0]) for n in range(2)] == [1, 0]
