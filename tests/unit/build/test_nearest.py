"""The nearest of everything: against sorting all exact scores, for any tile, thread count, order of the items and path."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.build import nearest as module
from crossmatch.build.nearest import Nearest, approximate, best, nearest, share_found
from crossmatch.core.collection import SIDES
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.core.scores import Embeddings, Matrix


def by_sorting(said: Embeddings | Matrix, direction: str, k: int) -> tuple[list[list[str]], list[list[float]]]:
    """Score every pair exactly, sort by score and id, leave the query out: the ids and the scores."""
    query_side, item_side = SIDES[direction]
    ids = {"image": said.image_ids, "caption": said.caption_ids}
    n, m = len(ids[query_side]), len(ids[item_side])
    out: tuple[list[list[str]], list[list[float]]] = ([], [])
    for q in range(n):
        scores = said.pairs(np.full(m, q), np.arange(m), direction)
        order = sorted((c for c in range(m) if query_side != item_side or c != q), key=lambda c: (-scores[c], ids[item_side][c]))[
            :k
        ]
        out[0].append([str(ids[item_side][c]) for c in order])
        out[1].append([float(scores[c]) for c in order])
    return out


def found_by(said: Embeddings | Matrix, direction: str, found: Nearest) -> tuple[list[list[str]], list[list[float]]]:
    ids = said.image_ids if SIDES[direction][1] == "image" else said.caption_ids
    return [[str(ids[c]) for c in row] for row in found.item.tolist()], found.score.tolist()


@st.composite
def embeddings(draw, sides=("image", "caption")):
    """Few directions, so that vectors repeat, with nudges that only float64 can see."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dimensions = draw(st.integers(1, 5))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    made = {}
    for side in ("image", "caption"):
        n = draw(st.integers(1, 14))
        vectors = rng.integers(-2, 3, (n, dimensions)).astype(np.float64)
        vectors[~vectors.any(axis=1)] = 1.0
        vectors *= 1 + draw(st.sampled_from([0.0, 1e-7, 1e-12])) * rng.standard_normal(vectors.shape)
        vectors *= 2.0 ** rng.integers(-3, 4, (n, 1))
        ids = rng.permutation([f"{side}{k}" for k in range(n)])
        made[side] = (ids, vectors.astype(dtype)) if side in sides else (None, None)
    return Embeddings(*made["image"], *made["caption"], draw(st.sampled_from(["cosine", "dot"])))


@st.composite
def matrices(draw):
    n, m = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = rng.integers(-2, 3, (n, m)).astype(draw(st.sampled_from([np.float64, np.float32, np.int64])))
    return Matrix(rng.permutation([f"i{k}" for k in range(n)]), rng.permutation([f"c{k}" for k in range(m)]), values)


ways = st.fixed_dictionaries(
    {"tile": st.sampled_from([1, 4, 9, 30, 10_000]), "threads": st.integers(1, 3), "compiled": st.booleans()}
)


@settings(deadline=None, max_examples=150)
@given(embeddings(("image",)), st.integers(1, 16), ways)
def test_nearest_images_are_those_of_sorting_all_exact_scores(said, k, how):
    assert found_by(said, "i2i", nearest(said, "image", k, **how)) == by_sorting(said, "i2i", k)


@settings(deadline=None, max_examples=150)
@given(st.one_of(embeddings(), matrices()), st.integers(1, 16), ways)
def test_one_sweep_gives_the_best_of_both_directions(said, k, how):
    found = best(said, ("i2t", "t2i"), k, **how)
    for direction in ("i2t", "t2i"):
        assert found_by(said, direction, found[direction]) == by_sorting(said, direction, k)


@settings(deadline=None, max_examples=50)
@given(embeddings(), st.integers(1, 4), ways)
def test_all_four_directions_may_be_asked_at_once(said, k, how):
    found = best(said, tuple(SIDES), k, **how)
    assert list(found) == list(SIDES)
    for direction in SIDES:
        assert found_by(said, direction, found[direction]) == by_sorting(said, direction, k)


@pytest.mark.parametrize("compiled", [True, False])
def test_scores_that_float32_cannot_tell_apart_are_ordered_by_float64(compiled):
    rng = np.random.default_rng(0)
    centre = rng.standard_normal(64)
    vectors = centre + 1e-9 * rng.standard_normal((60, 64))
    said = Embeddings([f"{n:02d}" for n in range(60)], vectors, None, None)
    found = nearest(said, "image", 4, tile=500, compiled=compiled)
    assert len(np.unique(found.score)) > 1
    assert found_by(said, "i2i", found) == by_sorting(said, "i2i", 4)


@pytest.mark.parametrize("spread", [1e-7, 1e-6])
@pytest.mark.parametrize(
    "how", [{"compiled": True, "tile": 300, "threads": 3}, {"compiled": True}, {"compiled": False, "tile": 900}]
)
def test_clusters_of_all_sizes_within_the_rounding_of_float32_are_ordered_by_float64(spread, how):
    """Some fit among the candidates that a query keeps until the end, some do not, and threads see different parts of them."""
    rng = np.random.default_rng(6)
    sizes = [2, 3, 4, 5, 7, 9, 11, 14, 20, 35]
    centres = rng.standard_normal((len(sizes), 48))
    vectors = np.repeat(centres, sizes, axis=0) * (1 + spread * rng.standard_normal((sum(sizes), 48)))
    order = rng.permutation(len(vectors))
    said = Embeddings([f"{n:03d}" for n in range(len(vectors))], vectors[order], None, None)
    for k in (1, 2, 6):
        assert found_by(said, "i2i", nearest(said, "image", k, **how)) == by_sorting(said, "i2i", k)


@pytest.mark.parametrize("compiled", [True, False])
def test_equal_vectors_tie_and_the_first_id_wins(compiled):
    said = Embeddings(["d", "a", "c", "b"], np.ones((4, 7), np.float32), None, None)
    found = nearest(said, "image", 2, compiled=compiled)
    assert found_by(said, "i2i", found)[0] == [["a", "b"], ["b", "c"], ["a", "b"], ["a", "c"]]


def test_the_order_of_the_items_changes_nothing():
    rng = np.random.default_rng(1)
    vectors, ids = rng.standard_normal((300, 20), dtype=np.float32), np.array([f"{n:03d}" for n in range(300)])
    vectors[200:] = vectors[:100]
    said, order = Embeddings(ids, vectors, None, None), rng.permutation(300)
    here, there = nearest(said, "image", 3), nearest(said.permuted({"image": order}), "image", 3)
    assert (ids[here.item][order] == ids[order][there.item]).all()
    assert (here.score[order] == there.score).all()


def test_tiles_and_threads_change_nothing_at_a_size_worth_compiling():
    rng = np.random.default_rng(2)
    vectors = rng.standard_normal((2000, 40), dtype=np.float32)
    vectors[1500:] = vectors[:500]
    said = Embeddings(np.arange(2000), vectors, None, None)
    usual = nearest(said, "image", 5)
    for how in ({"tile": 10_000}, {"tile": 333_333, "threads": 3}, {"compiled": False, "tile": 250_000}, {"threads": 1}):
        other = nearest(said, "image", 5, **how)
        assert (usual.item == other.item).all()
        assert (usual.score == other.score).all()


def test_without_control_over_the_threads_of_blas_the_result_is_the_same(monkeypatch):
    rng = np.random.default_rng(3)
    said = Embeddings(np.arange(500), rng.standard_normal((500, 20), dtype=np.float32), None, None)
    usual = nearest(said, "image", 3, compiled=True)
    monkeypatch.setattr(module, "blas_threads", lambda: None)
    assert (usual.item == nearest(said, "image", 3, compiled=True, tile=9_999).item).all()


def test_one_item_alone_has_no_neighbour():
    assert nearest(Embeddings(["a"], [[1.0, 2.0]], None, None), "image").item.shape == (1, 0)


def test_what_cannot_be_searched_is_refused():
    said = Embeddings(["a", "b"], [[1.0, 0.0], [0.0, 1.0]], None, None)
    with pytest.raises(CrossmatchError, match="no direction t2t; they have i2i"):
        nearest(said, "caption")
    with pytest.raises(WrongWords, match="no direction 'up'"):
        best(said, ("up",), 1)
    with pytest.raises(WrongWords, match="the 0 best"):
        nearest(said, "image", 0)
    with pytest.raises(CrossmatchError, match="they have i2t, t2i"):
        best(Matrix(["a"], ["b"], [[1.0]]), ("i2i",), 1)


# -- FAISS, or something in its place


class FlatIndex:
    """Searches everything in float32, but gives items in another order than their exact scores, and one place unfilled."""

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
def stand_in(monkeypatch):
    made = SimpleNamespace(IndexFlatIP=FlatIndex, IndexIVFFlat=FlatIndex, METRIC_INNER_PRODUCT=0)
    monkeypatch.setitem(sys.modules, "faiss", made)


def test_what_an_index_finds_is_scored_again_exactly_and_ordered_by_it(stand_in):
    rng = np.random.default_rng(4)
    said = Embeddings(rng.permutation(400), rng.standard_normal((400, 16), dtype=np.float32), None, None)
    exact, rough = nearest(said, "image", 2), approximate(said, "image", 2)
    assert (rough.score == said.pairs(np.repeat(np.arange(400), 2), rough.item.ravel(), "i2i").reshape(400, 2)).all()
    assert (np.diff(rough.score, axis=1) <= 0).all()
    assert not (rough.item == np.arange(400)[:, None]).any()
    same = (exact.item == rough.item).mean()
    assert same > 0.9
    assert share_found(said, "image", rough, sample=400) == pytest.approx(
        np.mean([len(set(a) & set(b)) / 2 for a, b in zip(exact.item.tolist(), rough.item.tolist(), strict=True)])
    )


def test_an_exact_search_finds_all():
    rng = np.random.default_rng(5)
    vectors = np.repeat(rng.standard_normal((40, 6)), 3, axis=0)  # with ties
    said = Embeddings(np.arange(120), vectors, None, None)
    assert share_found(said, "image", nearest(said, "image", 4), sample=60) == 1.0


def test_without_faiss_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingDependency, match=r"faiss-cpu.*crossmatch\[faiss\]"):
        approximate(Embeddings(["a", "b"], np.eye(2), None, None), "image")
