"""Nearest neighbours equal those of sorting all exact scores, for any tile size, number of threads and code path."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.build import nearest_neighbours as module
from crossmatch.build.nearest_neighbours import (
    Neighbours,
    find_neighbours,
    find_neighbours_faiss,
    find_top_candidates,
    neighbour_recall,
)
from crossmatch.data.collection import SIDES
from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.scores import Embeddings, Matrix


def by_sorting(scores_of_model: Embeddings | Matrix, direction: str, k: int) -> tuple[list[list[str]], list[list[float]]]:
    """Ids and exact scores of the best candidates, sorted by score and id, without the query itself."""
    query_side, item_side = SIDES[direction]
    ids = {"image": scores_of_model.image_ids, "caption": scores_of_model.caption_ids}
    n, m = len(ids[query_side]), len(ids[item_side])
    best: tuple[list[list[str]], list[list[float]]] = ([], [])
    for q in range(n):
        scores = scores_of_model.score_pairs(np.full(m, q), np.arange(m), direction)
        order = sorted((c for c in range(m) if query_side != item_side or c != q), key=lambda c: (-scores[c], ids[item_side][c]))[
            :k
        ]
        best[0].append([str(ids[item_side][c]) for c in order])
        best[1].append([float(scores[c]) for c in order])
    return best


def ids_and_scores(
    scores_of_model: Embeddings | Matrix, direction: str, top: Neighbours
) -> tuple[list[list[str]], list[list[float]]]:
    ids = scores_of_model.image_ids if SIDES[direction][1] == "image" else scores_of_model.caption_ids
    return [[str(ids[c]) for c in row] for row in top.item.tolist()], top.score.tolist()


@st.composite
def embeddings(draw, sides=("image", "caption")):
    """Embeddings with repeated vectors, and with differences that only float64 resolves."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dimensions = draw(st.integers(1, 5))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    side_vectors = {}
    for side in ("image", "caption"):
        n = draw(st.integers(1, 14))
        vectors = rng.integers(-2, 3, (n, dimensions)).astype(np.float64)
        vectors[~vectors.any(axis=1)] = 1.0
        vectors *= 1 + draw(st.sampled_from([0.0, 1e-7, 1e-12])) * rng.standard_normal(vectors.shape)
        vectors *= 2.0 ** rng.integers(-3, 4, (n, 1))
        ids = rng.permutation([f"{side}{k}" for k in range(n)])
        side_vectors[side] = (ids, vectors.astype(dtype)) if side in sides else (None, None)
    return Embeddings(*side_vectors["image"], *side_vectors["caption"], draw(st.sampled_from(["cosine", "dot"])))


@st.composite
def matrices(draw):
    n, m = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = rng.integers(-2, 3, (n, m)).astype(draw(st.sampled_from([np.float64, np.float32, np.int64])))
    return Matrix(rng.permutation([f"i{k}" for k in range(n)]), rng.permutation([f"c{k}" for k in range(m)]), values)


search_options = st.fixed_dictionaries(
    {"tile": st.sampled_from([1, 4, 9, 30, 10_000]), "threads": st.integers(1, 3), "compiled": st.booleans()}
)


@given(embeddings(("image",)), st.integers(1, 16), search_options)
def test_nearest_images_equal_sorting_all_exact_scores(scores_of_model, k, options):
    assert ids_and_scores(scores_of_model, "i2i", find_neighbours(scores_of_model, "image", k, **options)) == by_sorting(
        scores_of_model, "i2i", k
    )


@given(st.one_of(embeddings(), matrices()), st.integers(1, 16), search_options)
def test_all_directions_equal_sorting_all_exact_scores(scores_of_model, k, options):
    top = find_top_candidates(scores_of_model, tuple(scores_of_model.directions), k, **options)
    for direction in scores_of_model.directions:
        assert ids_and_scores(scores_of_model, direction, top[direction]) == by_sorting(scores_of_model, direction, k)


@pytest.mark.parametrize("compiled", [True, False])
def test_scores_equal_in_float32_are_ordered_by_float64(compiled):
    rng = np.random.default_rng(0)
    centre = rng.standard_normal(64)
    vectors = centre + 1e-9 * rng.standard_normal((60, 64))
    scores_of_model = Embeddings([f"{n:02d}" for n in range(60)], vectors, None, None)
    top = find_neighbours(scores_of_model, "image", 4, tile=500, compiled=compiled)
    assert len(np.unique(top.score)) > 1
    assert ids_and_scores(scores_of_model, "i2i", top) == by_sorting(scores_of_model, "i2i", 4)


@pytest.mark.parametrize("spread", [1e-7, 1e-6])
@pytest.mark.parametrize(
    "options", [{"compiled": True, "tile": 300, "threads": 3}, {"compiled": True}, {"compiled": False, "tile": 900}]
)
def test_clusters_within_float32_rounding_are_ordered_by_float64(spread, options):
    """Some clusters fit into the places of a query, others do not, and each thread sees another part of them."""
    rng = np.random.default_rng(6)
    sizes = [2, 3, 4, 5, 7, 9, 11, 14, 20, 35]
    centres = rng.standard_normal((len(sizes), 48))
    vectors = np.repeat(centres, sizes, axis=0) * (1 + spread * rng.standard_normal((sum(sizes), 48)))
    order = rng.permutation(len(vectors))
    scores_of_model = Embeddings([f"{n:03d}" for n in range(len(vectors))], vectors[order], None, None)
    for k in (1, 2, 6):
        assert ids_and_scores(scores_of_model, "i2i", find_neighbours(scores_of_model, "image", k, **options)) == by_sorting(
            scores_of_model, "i2i", k
        )


def test_tiles_and_threads_do_not_change_large_searches():
    rng = np.random.default_rng(2)
    vectors = rng.standard_normal((2000, 40), dtype=np.float32)
    vectors[1500:] = vectors[:500]
    scores_of_model = Embeddings(np.arange(2000), vectors, None, None)
    default = find_neighbours(scores_of_model, "image", 5)
    for options in ({"tile": 10_000}, {"tile": 333_333, "threads": 3}, {"compiled": False, "tile": 250_000}, {"threads": 1}):
        variant = find_neighbours(scores_of_model, "image", 5, **options)
        assert (default.item == variant.item).all()
        assert (default.score == variant.score).all()


def test_result_is_equal_without_blas_thread_control(monkeypatch):
    rng = np.random.default_rng(3)
    scores_of_model = Embeddings(np.arange(500), rng.standard_normal((500, 20), dtype=np.float32), None, None)
    default = find_neighbours(scores_of_model, "image", 3, compiled=True)
    monkeypatch.setattr(module, "blas_thread_controller", lambda: None)
    assert (default.item == find_neighbours(scores_of_model, "image", 3, compiled=True, tile=9_999).item).all()


def test_single_item_has_no_neighbour():
    assert find_neighbours(Embeddings(["a"], [[1.0, 2.0]], None, None), "image").item.shape == (1, 0)


def test_invalid_requests_are_rejected():
    scores_of_model = Embeddings(["a", "b"], [[1.0, 0.0], [0.0, 1.0]], None, None)
    with pytest.raises(CrossmatchError, match="no direction t2t, only i2i"):
        find_neighbours(scores_of_model, "caption")
    with pytest.raises(UsageError, match="Unknown direction 'up'"):
        find_top_candidates(scores_of_model, ("up",), 1)
    with pytest.raises(UsageError, match=r"k must be at least 1 \(got 0\)"):
        find_neighbours(scores_of_model, "image", 0)
    with pytest.raises(CrossmatchError, match="only i2t, t2i"):
        find_top_candidates(Matrix(["a"], ["b"], [[1.0]]), ("i2i",), 1)


# -- FAISS, replaced by a fake module


class FlatIndex:
    """Searches everything in float32, returns items in a different order than their exact scores, and leaves a place empty."""

    def __init__(self, *_: object) -> None:
        self.nprobe = 0

    def train(self, vectors) -> None:
        assert vectors.dtype == np.float32

    def add(self, vectors) -> None:
        self.vectors = vectors

    def search(self, queries, k):
        order = np.argsort(-(queries @ self.vectors.T).round(2), axis=1, kind="stable")[:, :k]
        order = order[:, ::-1].copy()
        order[:, 0] = np.where(np.arange(len(order)) % 2, order[:, 0], -1) if k > 10 else order[:, 0]
        return np.zeros(order.shape, np.float32), order


@pytest.fixture
def fake_faiss(monkeypatch):
    side_vectors = SimpleNamespace(IndexFlatIP=FlatIndex, IndexIVFFlat=FlatIndex, METRIC_INNER_PRODUCT=0)
    monkeypatch.setitem(sys.modules, "faiss", side_vectors)


def test_faiss_candidates_are_rescored_and_reordered(fake_faiss):
    rng = np.random.default_rng(4)
    scores_of_model = Embeddings(rng.permutation(400), rng.standard_normal((400, 16), dtype=np.float32), None, None)
    exact, approximate = find_neighbours(scores_of_model, "image", 2), find_neighbours_faiss(scores_of_model, "image", 2)
    assert (
        approximate.score
        == scores_of_model.score_pairs(np.repeat(np.arange(400), 2), approximate.item.ravel(), "i2i").reshape(400, 2)
    ).all()
    assert (np.diff(approximate.score, axis=1) <= 0).all()
    assert not (approximate.item == np.arange(400)[:, None]).any()
    equal_share = (exact.item == approximate.item).mean()
    assert equal_share > 0.9
    assert neighbour_recall(scores_of_model, "image", approximate, sample=400) == pytest.approx(
        np.mean([len(set(a) & set(b)) / 2 for a, b in zip(exact.item.tolist(), approximate.item.tolist(), strict=True)])
    )


def test_exact_search_has_full_recall():
    rng = np.random.default_rng(5)
    vectors = np.repeat(rng.standard_normal((40, 6)), 3, axis=0)  # with ties
    scores_of_model = Embeddings(np.arange(120), vectors, None, None)
    assert neighbour_recall(scores_of_model, "image", find_neighbours(scores_of_model, "image", 4), sample=60) == 1.0


def test_missing_faiss_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingDependencyError, match=r"faiss-cpu.*crossmatch\[faiss\]"):
        find_neighbours_faiss(Embeddings(["a", "b"], np.eye(2), None, None), "image")
