"""The pool: against sorting every model's scores for every query, with gold pairs and priority pairs."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.build import pooling as module
from crossmatch.build.pooling import PoolOptions, build_pool, read_pair_list
from crossmatch.build.step_files import ROWS, read_rows
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.scores import Embeddings, Matrix, Run
from crossmatch.study.design.data_source import Source, collection_of, source_of
from crossmatch.study.design.declaration import load_design
from crossmatch.study.design.hit_packing import pack_hits
from crossmatch.study.design.item_files import read_pool


class PrecomputedModel:
    """A model with precomputed scores."""

    def __init__(self, scores, signature: str = "saved|test") -> None:
        self.saved_scores, self.signature = scores, signature

    def scores(self, data):
        return self.saved_scores


def world(images: int, captions: int, models: int, seed: int, kinds=("matrix", "vectors", "run")):
    """A collection, models with many equal scores, and their score matrices."""
    rng = np.random.default_rng(seed)
    data = Collection.from_captions({f"i{n}": [f"text {n} {k}" for k in range(captions)] for n in range(images)})
    values, saved = {}, {}
    for n in range(models):
        if kinds[n % len(kinds)] == "vectors":
            a, b = (rng.integers(1, 3, (size, 3)).astype(np.float32) for size in data.shape)
            scores = Embeddings(data.image_ids, a, data.caption_ids, b)
            matrix = scores.score_pairs(*np.indices(data.shape).reshape(2, -1)).reshape(data.shape)
        else:
            matrix = rng.integers(0, 4, data.shape).astype(float)
            scores = Matrix(data.image_ids, data.caption_ids, matrix)
        if kinds[n % len(kinds)] == "run":
            i, c = np.indices(data.shape).reshape(2, -1)
            ids = data.image_ids[i], data.caption_ids[c]
            columns = (np.concatenate(ids), np.concatenate(ids[::-1]), np.tile(matrix.ravel(), 2))
            scores = Run(*columns, direction_marks=np.repeat(["i2t", "t2i"], len(i)))
        values[f"m{n}"] = matrix
        saved[f"m{n}"] = PrecomputedModel(scores, f"m{n}")
    return data, saved, values


def by_sorting(data: Collection, values, queries: dict[str, set[str]], k: int) -> dict:
    """(image id, caption id) -> direction -> model -> rank."""
    ranks: dict = defaultdict(lambda: defaultdict(dict))
    images, captions = data.image_ids.tolist(), data.caption_ids.tolist()
    for name, matrix in values.items():
        for i, image in enumerate(images):
            if image in queries["i2t"]:
                for rank, c in enumerate(sorted(range(len(captions)), key=lambda c: (-matrix[i, c], captions[c]))[:k], 1):
                    ranks[image, captions[c]]["i2t"][name] = rank
        for c, caption in enumerate(captions):
            if caption in queries["t2i"]:
                for rank, i in enumerate(sorted(range(len(images)), key=lambda i: (-matrix[i, c], images[i]))[:k], 1):
                    ranks[images[i], caption]["t2i"][name] = rank
    return {
        pair: {direction: dict(models) for direction, models in ranks_by_direction.items()}
        for pair, ranks_by_direction in ranks.items()
    }


def pooled(data, models, **options) -> tuple[list[dict], dict]:
    with TemporaryDirectory() as folder:
        manifest = build_pool(data, models, Path(folder) / "out", **options)
        return read_rows(Path(folder) / "out", "pool"), manifest


def kinds_of(rows: list[dict]) -> dict[str, list[tuple[str, str]]]:
    pairs_by_kind: dict[str, list[tuple[str, str]]] = {"candidate": [], "positive": [], "negative": []}
    for row in rows:
        pairs_by_kind[row["kind"]].append((row["image_id"], row["caption_id"]))
    return pairs_by_kind


@given(
    st.integers(1, 6), st.integers(1, 3), st.integers(1, 4), st.integers(1, 7), st.integers(0, 9), st.integers(0, 99), st.booleans()
)
def test_candidates_equal_sorting_all_scores(images, captions, models, top, certain, seed, is_subset):
    data, saved, values = world(images, captions, models, seed)
    rng = np.random.default_rng(seed)
    queries = {"i2t": set(data.image_ids.tolist()), "t2i": set(data.caption_ids.tolist())}
    options: dict = {}
    if is_subset:
        queries = {
            direction: set(rng.choice(sorted(ids), max(1, len(ids) // 2), replace=False).tolist())
            for direction, ids in queries.items()
        }
        options = {"image_queries": sorted(queries["i2t"]), "caption_queries": sorted(queries["t2i"])}
    rows, manifest = pooled(data, saved, options=PoolOptions(top=top, certain=certain), seed=seed, **options)
    expected = by_sorting(data, values, queries, top)
    ranks = {(row["image_id"], row["caption_id"]): row["retrieved"] for row in rows if row["kind"] == "candidate"}
    assert ranks == expected
    links = {(str(data.image_ids[i]), str(data.caption_ids[c])) for i, c in data.links.tolist()}
    assert {(r["image_id"], r["caption_id"]) for r in rows if r.get("known")} == links & set(expected)
    kinds = kinds_of(rows)
    assert set(kinds["positive"]) <= {(i, c) for i, c in links if i in queries["i2t"] or c in queries["t2i"]}
    within_safe_depth = by_sorting(data, values, queries, max(top, certain))
    assert not set(kinds["negative"]) & (set(within_safe_depth) | links)
    assert all(i in queries["i2t"] and c in queries["t2i"] for i, c in kinds["negative"])
    assert all(len(set(pairs)) == len(pairs) for pairs in kinds.values())
    counts = manifest["counts"]
    assert counts["pairs"] == counts["candidates"] == len(expected)
    assert counts["retrieved"] == sum(len(ranks_by_direction) for pair in expected.values() for ranks_by_direction in pair.values())
    assert counts["retrieved"] == models * (
        len(queries["i2t"]) * min(top, data.shape[1]) + len(queries["t2i"]) * min(top, data.shape[0])
    )


@settings(max_examples=20)
@given(st.integers(2, 6), st.integers(0, 9), st.randoms(use_true_random=False))
def test_rows_do_not_depend_on_the_order_of_items(images, seed, random):
    data, saved, _ = world(images, 2, 3, seed)
    image, caption = (np.asarray(random.sample(range(n), n)) for n in data.shape)
    assert pooled(data, saved)[0] == pooled(data.select(image, caption), saved)[0]


def test_each_hit_gets_one_gold_pair_of_each_kind():
    data, saved, _ = world(40, 2, 2, 0, kinds=("matrix",))
    rows, manifest = pooled(data, saved, options=PoolOptions(certain=8))
    hits = -(-manifest["counts"]["candidates"] // 18)
    assert manifest["counts"]["positive"] == manifest["counts"]["negative"] == hits > 2
    _, manifest = pooled(data, saved, options=PoolOptions(certain=8, gold=3))
    assert manifest["counts"]["positive"] == manifest["counts"]["negative"] == 3
    assert len({row["id"] for row in rows}) == len(rows)


def test_negative_gold_is_not_a_text_of_the_image():
    data = Collection.from_captions({f"i{n}": ["the same", f"own {n}"] for n in range(8)})
    equal_scores = Matrix(data.image_ids, data.caption_ids, np.zeros(data.shape))
    rows, _ = pooled(data, {"flat": PrecomputedModel(equal_scores)}, options=PoolOptions(top=1, certain=1, gold=20))
    negatives = [row for row in rows if row["kind"] == "negative"]
    assert negatives
    assert all(row["caption"] != "the same" for row in negatives)


def test_small_collection_has_no_negative_gold():
    data, saved, _ = world(5, 1, 1, 0)
    _, manifest = pooled(data, saved)
    assert manifest["counts"]["negative"] == 0


def test_links_can_be_left_out():
    data, saved, _ = world(4, 2, 1, 1, kinds=("matrix",))
    rows, manifest = pooled(data, saved, options=PoolOptions(judge_links=False))
    candidates = kinds_of(rows)["candidate"]
    assert all(not caption.startswith(image + "#") for image, caption in candidates)
    assert manifest["counts"]["candidates"] < manifest["counts"]["pairs"]


def test_priority_pairs_come_first_and_once():
    data, saved, _ = world(9, 2, 2, 2)
    first = [("i8", "i0#1"), ("i3", "i3#0"), ("i8", "i0#1"), ("i1", "i0#0")]
    rows, manifest = pooled(data, saved, first=first, options=PoolOptions(top=1))
    pairs = kinds_of(rows)
    assert pairs["candidate"][:3] == list(dict.fromkeys(first))
    assert [row.get("first", False) for row in rows[:4]] == [True, True, True, False]
    assert len(set(pairs["candidate"])) == len(pairs["candidate"])
    assert not set(pairs["negative"]) & set(first)
    assert "first" in manifest["inputs"]


def test_pair_list_is_read_from_files(tmp_path):
    (tmp_path / "first.jsonl").write_text(
        '{"image_id": 3, "caption_id": "x", "gain": 0.5}\n\n{"image_id": "b", "caption_id": "y"}\n'
    )
    assert read_pair_list(tmp_path / "first.jsonl") == [("3", "x"), ("b", "y")]
    (tmp_path / "first.csv").write_text("image_id,caption_id\na,b\n")
    assert read_pair_list(tmp_path / "first.csv") == [("a", "b")]
    (tmp_path / "wrong.jsonl").write_text('{"image_id": "a"}\n')
    with pytest.raises(CrossmatchError, match=r"line 1: expected ids, got image_id 'a' and caption_id None"):
        read_pair_list(tmp_path / "wrong.jsonl")
    with pytest.raises(UsageError, match="does not exist"):
        read_pair_list(tmp_path / "none.csv")
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(UsageError, match=r"expected a .jsonl"):
        read_pair_list(tmp_path / "a.txt")


def test_single_direction():
    data, saved, values = world(6, 2, 2, 3)
    rows, _ = pooled(data, saved, options=PoolOptions(top=2, certain=3, directions=("t2i",)), caption_queries=["i0#0", "i4#1"])
    expected = by_sorting(data, values, {"i2t": set(), "t2i": {"i0#0", "i4#1"}}, 2)
    kinds = kinds_of(rows)
    assert set(kinds["candidate"]) == set(expected)
    assert {caption for kind in kinds.values() for _, caption in kind} == {"i0#0", "i4#1"}


# -- bad input


def test_invalid_pools_are_rejected(tmp_path):
    data, saved, _ = world(3, 1, 1, 0)
    with pytest.raises(UsageError, match="no model"):
        build_pool(data, [], tmp_path / "1")
    with pytest.raises(UsageError, match="random is listed twice"):
        build_pool(data, ["random", "random"], tmp_path / "2")
    with pytest.raises(CrossmatchError, match="image ids are not in the collection; first unknown: 'x'"):
        build_pool(data, saved, tmp_path / "3", image_queries=["x"])
    with pytest.raises(CrossmatchError, match="occurs 2 times"):
        build_pool(data, saved, tmp_path / "4", image_queries=["i0", "i0"])
    with pytest.raises(CrossmatchError, match="caption ids are not in the collection"):
        build_pool(data, saved, tmp_path / "5", first=[("i0", "nothing")])
    with pytest.raises(CrossmatchError, match="only t2t"):
        build_pool(data, ["tfidf"], tmp_path / "6")
    for options in ({"top": 0}, {"certain": -1}, {"gold": -1}, {"directions": ()}, {"directions": ("i2i",)}):
        with pytest.raises(UsageError):
            PoolOptions(**options)


def test_shallow_run_is_rejected(tmp_path):
    data, _, _ = world(4, 1, 1, 0)
    shallow = Run(np.repeat(data.image_ids, 2), np.tile(data.caption_ids[:2], 4), np.tile([2.0, 1.0], 4))
    with pytest.raises(CrossmatchError, match="The run lists 2 items for 'i0' in i2t; 4 are needed"):
        build_pool(data, {"run": PrecomputedModel(shallow)}, tmp_path / "out", options=PoolOptions(directions=("i2t",)))
    rows, _ = pooled(data, {"run": PrecomputedModel(shallow)}, options=PoolOptions(top=2, certain=2, directions=("i2t",)))
    assert len(kinds_of(rows)["candidate"]) == 8


# -- finished folders, studies, the embedded world


def test_finished_pool_is_not_repeated_and_other_options_are_rejected(tmp_path, monkeypatch):
    data, saved, _ = world(6, 2, 2, 4)
    manifest = build_pool(data, saved, tmp_path / "out")
    monkeypatch.setattr(module, "_pool_rows", lambda *_: pytest.fail("a finished step was repeated"))
    assert build_pool(data, saved, tmp_path / "out") == manifest
    with pytest.raises(UsageError, match="other options: top was 5, now 4"):
        build_pool(data, saved, tmp_path / "out", options=PoolOptions(top=4))


def test_diorama_pool_packs_into_hits_of_twenty(tmp_path):
    data = collection_of("diorama:tiny")
    manifest = build_pool(data, ["random:1", "random:2"], tmp_path / "out", options=PoolOptions(top=2, certain=5))
    design = load_design("eccv-hit")
    material = read_pool(tmp_path / "out" / ROWS, design, source_of("diorama:tiny"))
    assert len(material.items) == manifest["rows"]
    candidates = [item for item in material.items if item.gold is None]
    assert len(candidates) == manifest["counts"]["candidates"]
    gold = {kind: [item for item in material.items if item.kind == kind] for kind in ("positive", "negative")}
    hits = pack_hits(design, candidates, gold, "seed")
    assert len(hits) == manifest["counts"]["positive"] == manifest["counts"]["negative"]
    assert {len(hit) for hit in hits[:-1]} == {20}
    assert len({item.key for hit in hits for item in hit if item.gold is not None}) == 2 * len(hits)  # no gold pair is used twice
    assert set(candidates[0].details["retrieved"]) <= {"i2t", "t2i"}


def test_embeddings_of_a_larger_collection_are_accepted(tmp_path):
    rng = np.random.default_rng(0)
    data, _, _ = world(4, 1, 1, 0)
    np.savez(
        tmp_path / "e.npz",
        image_ids=["i0", "i1", "i2", "i3", "i9"],
        image_embeddings=rng.standard_normal((5, 3)),
        caption_ids=["i0#0", "i1#0", "i2#0", "i3#0", "i9#0"],
        caption_embeddings=rng.standard_normal((5, 3)),
    )
    manifest = build_pool(data, [f"precomputed:{tmp_path / 'e.npz'}"], tmp_path / "out", options=PoolOptions(top=1))
    assert manifest["counts"]["retrieved"] == 8
    assert "file:" in next(value for key, value in manifest["inputs"].items() if key.startswith("model"))
    assert read_pool(tmp_path / "out" / ROWS, load_design("eccv-hit"), Source.of("here", data, lambda name: None)).items
