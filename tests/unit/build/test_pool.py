"""The pool: against sorting every model's scores for every query, with gold that is certain, and what is asked first."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.build import pool as module
from crossmatch.build.files import ROWS, read_rows
from crossmatch.build.pool import Pooling, pool, read_pairs
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.scores import Embeddings, Matrix, Run
from crossmatch.study.begin import packed
from crossmatch.study.design import load_design
from crossmatch.study.items import read_pool
from crossmatch.study.sources import Source, collection_of, source_of


class Saved:
    """A model that has its scores ready, whatever the order of the collection."""

    def __init__(self, said, signature: str = "saved|test") -> None:
        self.said, self.signature = said, signature

    def scores(self, data):
        return self.said


def world(images: int, captions: int, models: int, seed: int, kinds=("matrix", "vectors", "run")):
    """A collection, and models with many equal scores: `values[name][image id, caption id]` beside them."""
    rng = np.random.default_rng(seed)
    held = Collection.of({f"i{n}": [f"text {n} {k}" for k in range(captions)] for n in range(images)})
    values, saved = {}, {}
    for n in range(models):
        if kinds[n % len(kinds)] == "vectors":
            a, b = (rng.integers(1, 3, (size, 3)).astype(np.float32) for size in held.shape)
            said = Embeddings(held.image_ids, a, held.caption_ids, b)
            scores = said.pairs(*np.indices(held.shape).reshape(2, -1)).reshape(held.shape)
        else:
            scores = rng.integers(0, 4, held.shape).astype(float)
            said = Matrix(held.image_ids, held.caption_ids, scores)
        if kinds[n % len(kinds)] == "run":
            i, c = np.indices(held.shape).reshape(2, -1)
            ids = held.image_ids[i], held.caption_ids[c]
            both = (np.concatenate(ids), np.concatenate(ids[::-1]), np.tile(scores.ravel(), 2))
            said = Run(*both, marks=np.repeat(["i2t", "t2i"], len(i)))
        values[f"m{n}"] = scores
        saved[f"m{n}"] = Saved(said, f"m{n}")
    return held, saved, values


def by_sorting(held: Collection, values, queries: dict[str, set[str]], k: int) -> dict:
    """(image id, caption id) -> direction -> model -> rank."""
    found: dict = defaultdict(lambda: defaultdict(dict))
    images, captions = held.image_ids.tolist(), held.caption_ids.tolist()
    for name, scores in values.items():
        for i, image in enumerate(images):
            if image in queries["i2t"]:
                for rank, c in enumerate(sorted(range(len(captions)), key=lambda c: (-scores[i, c], captions[c]))[:k], 1):
                    found[image, captions[c]]["i2t"][name] = rank
        for c, caption in enumerate(captions):
            if caption in queries["t2i"]:
                for rank, i in enumerate(sorted(range(len(images)), key=lambda i: (-scores[i, c], images[i]))[:k], 1):
                    found[images[i], caption]["t2i"][name] = rank
    return {pair: {direction: dict(models) for direction, models in by.items()} for pair, by in found.items()}


def pooled(held, models, **how) -> tuple[list[dict], dict]:
    with TemporaryDirectory() as folder:
        told = pool(held, models, Path(folder) / "out", **how)
        return read_rows(Path(folder) / "out", "pool"), told


def kinds_of(rows: list[dict]) -> dict[str, list[tuple[str, str]]]:
    out: dict[str, list[tuple[str, str]]] = {"candidate": [], "positive": [], "negative": []}
    for row in rows:
        out[row["kind"]].append((row["image_id"], row["caption_id"]))
    return out


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 6), st.integers(1, 3), st.integers(1, 4), st.integers(1, 7), st.integers(0, 9), st.integers(0, 99), st.booleans()
)
def test_candidates_are_the_best_of_every_model_with_who_retrieved_them(images, captions, models, top, certain, seed, some):
    held, saved, values = world(images, captions, models, seed)
    rng = np.random.default_rng(seed)
    queries = {"i2t": set(held.image_ids.tolist()), "t2i": set(held.caption_ids.tolist())}
    how: dict = {}
    if some:
        queries = {way: set(rng.choice(sorted(ids), max(1, len(ids) // 2), replace=False).tolist()) for way, ids in queries.items()}
        how = {"image_queries": sorted(queries["i2t"]), "caption_queries": sorted(queries["t2i"])}
    rows, told = pooled(held, saved, how=Pooling(top=top, certain=certain), seed=seed, **how)
    expected = by_sorting(held, values, queries, top)
    found = {(row["image_id"], row["caption_id"]): row["retrieved"] for row in rows if row["kind"] == "candidate"}
    assert found == expected
    links = {(str(held.image_ids[i]), str(held.caption_ids[c])) for i, c in held.links.tolist()}
    assert {(r["image_id"], r["caption_id"]) for r in rows if r.get("known")} == links & set(expected)
    kinds = kinds_of(rows)
    assert set(kinds["positive"]) <= {(i, c) for i, c in links if i in queries["i2t"] or c in queries["t2i"]}
    near = by_sorting(held, values, queries, max(top, certain))
    assert not set(kinds["negative"]) & (set(near) | links)
    assert all(i in queries["i2t"] and c in queries["t2i"] for i, c in kinds["negative"])
    assert all(len(set(pairs)) == len(pairs) for pairs in kinds.values())
    counts = told["counts"]
    assert counts["pairs"] == counts["candidates"] == len(expected)
    assert counts["retrieved"] == sum(len(by) for pair in expected.values() for by in pair.values())
    assert counts["retrieved"] == models * (
        len(queries["i2t"]) * min(top, held.shape[1]) + len(queries["t2i"]) * min(top, held.shape[0])
    )


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 6), st.integers(0, 9), st.randoms(use_true_random=False))
def test_the_order_of_the_items_changes_nothing(images, seed, random):
    held, saved, _ = world(images, 2, 3, seed)
    image, caption = (np.asarray(random.sample(range(n), n)) for n in held.shape)
    assert pooled(held, saved)[0] == pooled(held.reordered(image, caption), saved)[0]


def test_one_gold_pair_of_each_kind_comes_for_each_hit():
    held, saved, _ = world(40, 2, 2, 0, kinds=("matrix",))
    rows, told = pooled(held, saved, how=Pooling(certain=8))
    hits = -(-told["counts"]["candidates"] // 18)
    assert told["counts"]["positive"] == told["counts"]["negative"] == hits > 2
    _, told = pooled(held, saved, how=Pooling(certain=8, gold=3))
    assert told["counts"]["positive"] == told["counts"]["negative"] == 3
    assert len({row["id"] for row in rows}) == len(rows)


def test_negatives_are_never_a_text_that_the_image_has_itself():
    held = Collection.of({f"i{n}": ["the same", f"own {n}"] for n in range(8)})
    same = Matrix(held.image_ids, held.caption_ids, np.zeros(held.shape))
    rows, _ = pooled(held, {"flat": Saved(same)}, how=Pooling(top=1, certain=1, gold=20))
    negatives = [row for row in rows if row["kind"] == "negative"]
    assert negatives
    assert all(row["caption"] != "the same" for row in negatives)


def test_where_everything_is_near_no_negative_is_certain():
    held, saved, _ = world(5, 1, 1, 0)
    _, told = pooled(held, saved)
    assert told["counts"]["negative"] == 0


def test_links_need_not_be_judged():
    held, saved, _ = world(4, 2, 1, 1, kinds=("matrix",))
    rows, told = pooled(held, saved, how=Pooling(judge_links=False))
    candidates = kinds_of(rows)["candidate"]
    assert all(not caption.startswith(image + "#") for image, caption in candidates)
    assert told["counts"]["candidates"] < told["counts"]["pairs"]


def test_pairs_asked_for_by_name_come_first_in_their_order_and_once():
    held, saved, _ = world(9, 2, 2, 2)
    first = [("i8", "i0#1"), ("i3", "i3#0"), ("i8", "i0#1"), ("i1", "i0#0")]
    rows, told = pooled(held, saved, first=first, how=Pooling(top=1))
    pairs = kinds_of(rows)
    assert pairs["candidate"][:3] == list(dict.fromkeys(first))
    assert [row.get("first", False) for row in rows[:4]] == [True, True, True, False]
    assert len(set(pairs["candidate"])) == len(pairs["candidate"])
    assert not set(pairs["negative"]) & set(first)
    assert "first" in told["inputs"]


def test_pairs_to_judge_first_are_read_from_a_file(tmp_path):
    (tmp_path / "first.jsonl").write_text(
        '{"image_id": 3, "caption_id": "x", "gain": 0.5}\n\n{"image_id": "b", "caption_id": "y"}\n'
    )
    assert read_pairs(tmp_path / "first.jsonl") == [("3", "x"), ("b", "y")]
    (tmp_path / "first.csv").write_text("image_id,caption_id\na,b\n")
    assert read_pairs(tmp_path / "first.csv") == [("a", "b")]
    (tmp_path / "wrong.jsonl").write_text('{"image_id": "a"}\n')
    with pytest.raises(CrossmatchError, match=r"line 1 has image_id 'a' and caption_id None; two ids were expected"):
        read_pairs(tmp_path / "wrong.jsonl")
    with pytest.raises(WrongWords, match="not there"):
        read_pairs(tmp_path / "none.csv")
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(WrongWords, match=r"read from .jsonl"):
        read_pairs(tmp_path / "a.txt")


def test_one_direction_alone():
    held, saved, values = world(6, 2, 2, 3)
    rows, _ = pooled(held, saved, how=Pooling(top=2, certain=3, directions=("t2i",)), caption_queries=["i0#0", "i4#1"])
    expected = by_sorting(held, values, {"i2t": set(), "t2i": {"i0#0", "i4#1"}}, 2)
    kinds = kinds_of(rows)
    assert set(kinds["candidate"]) == set(expected)
    assert {caption for kind in kinds.values() for _, caption in kind} == {"i0#0", "i4#1"}


# -- bad input


def test_what_cannot_be_pooled_is_refused(tmp_path):
    held, saved, _ = world(3, 1, 1, 0)
    with pytest.raises(WrongWords, match="no model"):
        pool(held, [], tmp_path / "1")
    with pytest.raises(WrongWords, match="random is named twice"):
        pool(held, ["random", "random"], tmp_path / "2")
    with pytest.raises(CrossmatchError, match="image ids are not in the collection; first unknown: 'x'"):
        pool(held, saved, tmp_path / "3", image_queries=["x"])
    with pytest.raises(CrossmatchError, match="occurs 2 times"):
        pool(held, saved, tmp_path / "4", image_queries=["i0", "i0"])
    with pytest.raises(CrossmatchError, match="caption ids are not in the collection"):
        pool(held, saved, tmp_path / "5", first=[("i0", "nothing")])
    with pytest.raises(CrossmatchError, match="only t2t"):
        pool(held, ["tfidf"], tmp_path / "6")
    for wrong in ({"top": 0}, {"certain": -1}, {"gold": -1}, {"directions": ()}, {"directions": ("i2i",)}):
        with pytest.raises(WrongWords):
            Pooling(**wrong)


def test_a_run_that_does_not_reach_deep_enough_is_refused(tmp_path):
    held, _, _ = world(4, 1, 1, 0)
    shallow = Run(np.repeat(held.image_ids, 2), np.tile(held.caption_ids[:2], 4), np.tile([2.0, 1.0], 4))
    with pytest.raises(CrossmatchError, match="the run has 2 items for 'i0' in i2t; 4 are needed"):
        pool(held, {"run": Saved(shallow)}, tmp_path / "out", how=Pooling(directions=("i2t",)))
    rows, _ = pooled(held, {"run": Saved(shallow)}, how=Pooling(top=2, certain=2, directions=("i2t",)))
    assert len(kinds_of(rows)["candidate"]) == 8


# -- interrupted, studies, the embedded world


def test_a_pooling_that_was_broken_off_goes_on_and_ends_with_the_same_bytes(tmp_path, monkeypatch):
    held, saved, _ = world(6, 2, 2, 4)
    whole = pool(held, saved, tmp_path / "whole")
    make, made = module._row, []

    def broken(*given):
        if len(made) == 7:
            raise KeyboardInterrupt
        made.append(given)
        return make(*given)

    monkeypatch.setattr(module, "_row", broken)
    with pytest.raises(KeyboardInterrupt):
        pool(held, saved, tmp_path / "part")
    monkeypatch.setattr(module, "_row", make)
    assert pool(held, saved, tmp_path / "part") == whole
    assert (tmp_path / "part" / ROWS).read_bytes() == (tmp_path / "whole" / ROWS).read_bytes()
    monkeypatch.setattr(module, "_rows", lambda *_: pytest.fail("done again"))
    assert pool(held, saved, tmp_path / "part") == whole
    with pytest.raises(WrongWords, match="other options: top was 5, and is 4"):
        pool(held, saved, tmp_path / "part", how=Pooling(top=4))


def test_a_pool_of_the_embedded_world_packs_into_hits_of_twenty(tmp_path):
    held = collection_of("diorama:tiny")
    told = pool(held, ["random:1", "random:2"], tmp_path / "out", how=Pooling(top=2, certain=5))
    design = load_design("eccv-hit")
    material = read_pool(tmp_path / "out" / ROWS, design, source_of("diorama:tiny"))
    assert len(material.items) == told["rows"]
    work = [one for one in material.items if one.gold is None]
    assert len(work) == told["counts"]["candidates"]
    gold = {kind: [one for one in material.items if one.kind == kind] for kind in ("positive", "negative")}
    hits = packed(design, work, gold, "seed")
    assert len(hits) == told["counts"]["positive"] == told["counts"]["negative"]
    assert {len(hit) for hit in hits[:-1]} == {20}
    assert len({one.key for hit in hits for one in hit if one.gold is not None}) == 2 * len(hits)  # none is used twice
    assert set(work[0].body["retrieved"]) <= {"i2t", "t2i"}


def test_saved_embeddings_of_a_larger_collection_will_do(tmp_path):
    rng = np.random.default_rng(0)
    held, _, _ = world(4, 1, 1, 0)
    np.savez(
        tmp_path / "e.npz",
        image_ids=["i0", "i1", "i2", "i3", "i9"],
        image_embeddings=rng.standard_normal((5, 3)),
        caption_ids=["i0#0", "i1#0", "i2#0", "i3#0", "i9#0"],
        caption_embeddings=rng.standard_normal((5, 3)),
    )
    told = pool(held, [f"precomputed:{tmp_path / 'e.npz'}"], tmp_path / "out", how=Pooling(top=1))
    assert told["counts"]["retrieved"] == 8
    assert "file:" in next(value for key, value in told["inputs"].items() if key.startswith("model"))
    assert read_pool(tmp_path / "out" / ROWS, load_design("eccv-hit"), Source.of("here", held, lambda name: None)).items
