"""Merging: rules against a slow version, removed items, the folder, and Table 3 of the paper from the released data."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from crossmatch.benchmarks import coco
from crossmatch.benchmarks.cxc import cxc_ratings
from crossmatch.benchmarks.datasets.dataset_table import require_data_file
from crossmatch.benchmarks.user_collection import load_collection_folder
from crossmatch.build.merging.merge import MergeOptions, count_positives, merge_sources, write_merge
from crossmatch.build.merging.pair_verdicts import (
    RULES,
    JudgementSource,
    count_disagreements,
    decide_pairs,
    links_as_source,
    read_source,
)
from crossmatch.build.merging.removed_items import RemovedItems, find_removals, is_meaningless, read_ids, remove_items
from crossmatch.build.step_files import StepSpec, read_manifest, read_rows, write_step
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError

PAIRS = [(f"i{i}", f"i{c}#0") for i in range(3) for c in range(3)]


def picture(name: str) -> Image.Image:
    """Images whose names start with the same letter have equal pictures."""
    return Image.new("RGB", (4, 4), (ord(name[0]), 0, 0))


def pets(open_image=None) -> Collection:
    return Collection.from_captions(
        {"a1": ["A cat.", "There is no image here."], "a2": ["A pet.", "A tom."], "b": ["A dog."], "c": ["A cow."]}, open_image
    )


# -- verdicts


def slow_verdict(rule: str, people, ratings, links, pair) -> bool | None:
    answers = [(source[pair] >= threshold) for source, threshold in ((people, 0.5), (ratings, 3.0)) if pair in source]
    if not answers:
        return True if pair in links else None
    if rule == "first":
        return answers[0]
    return max(answers) if rule == "any" else min(answers)


GRADED = [st.dictionaries(st.sampled_from(PAIRS), st.sampled_from(grades)) for grades in ((0.0, 0.5, 1.0), (0.0, 2.9, 3.0, 5.0))]


@given(*GRADED, st.sets(st.sampled_from(PAIRS)), st.sampled_from(sorted(RULES)))
def test_verdicts_equal_the_slow_version(people, ratings, links, rule):
    sources = [
        JudgementSource("us", "people", people, 0.5),
        JudgementSource("cxc", "ratings", ratings, 3.0),
        JudgementSource("links", "links", dict.fromkeys(links, 1.0), 1),
    ]
    result = decide_pairs(sources, rule)
    assert {pair: v.positive for pair, v in result.items()} == {
        pair: verdict for pair in PAIRS if (verdict := slow_verdict(rule, people, ratings, links, pair)) is not None
    }
    for pair, v in result.items():
        assert v.votes[v.decided_by] == v.positive
        assert set(v.grades) == {source.name for source in sources if pair in source.grades}
        assert v.is_conflict == (len({source.is_positive(pair) for source in sources if pair in source.grades}) == 2)
    assert sum(count_disagreements(result).values()) >= sum(v.is_conflict for v in result.values())


def test_unknown_rule_is_rejected():
    with pytest.raises(UsageError, match="any, all, first"):
        decide_pairs([], "majority")


# -- removed items


def test_equal_pictures_are_merged_with_links_and_answers():
    data = pets(picture)
    removed = find_removals(data, wrong=["c#0"], images=["b"])
    assert removed.rows() == [
        ("caption", "a1#1", "meaningless"), ("caption", "c#0", "wrong"),
        ("image", "a2", "the same picture as a1"), ("image", "b", "listed"),
    ]  # fmt: skip
    people = JudgementSource(
        "us", "people", {("a2", "a1#0"): 0.0, ("a1", "a1#0"): 1.0, ("a2", "a2#0"): 0.0, ("c", "a1#1"): 1.0}, 0.5
    )
    result = merge_sources(data, [people], removed=removed)
    assert result.collection.image_ids.tolist() == ["a1", "c"]
    assert result.collection.caption_ids.tolist() == ["a1#0", "a2#0", "a2#1"]
    assert {pair: v.grades for pair, v in result.verdicts.items()} == {
        ("a1", "a1#0"): {"us": 0.5, "links": 1.0}, ("a1", "a2#0"): {"us": 0.0, "links": 1.0}, ("a1", "a2#1"): {"links": 1.0},
    }  # fmt: skip
    assert list(result.suspects()) == [("a1", "a2#0")]


def test_pictures_of_a_training_set_are_removed():
    removed = find_removals(pets(picture), against=Collection.from_captions({"b-train": ["x"]}, picture))
    assert removed.images == {"b": "a picture of the other collection"}
    assert "b#0" not in remove_items(pets(picture), removed).caption_ids
    assert find_removals(pets(picture), find=False, against=Collection.from_captions({"b-train": ["x"]}, picture)) == RemovedItems(
        {}, removed.images
    )
    with pytest.raises(CrossmatchError, match="no pictures to compare"):
        find_removals(pets(), against=Collection.from_captions({"b-train": ["x"]}, picture))


def test_nothing_is_detected_without_find():
    assert find_removals(pets(picture), find=False) == RemovedItems()


def test_unknown_ids_cannot_be_removed():
    with pytest.raises(CrossmatchError, match=r"Cannot remove caption 'a1#9': .* Did you mean"):
        find_removals(pets(), invalid=["a1#9"])
    with pytest.raises(CrossmatchError, match="Nothing is left of the collection"):
        remove_items(pets(), find_removals(pets(), images=["a1", "a2", "b", "c"]))


def test_id_lists_may_have_comments(tmp_path: Path):
    (tmp_path / "ids.txt").write_text("# wrong ones\na1#1 # kites\nb#0\tno dog\n\na1#1\n")
    assert read_ids(tmp_path / "ids.txt") == ["a1#1", "b#0"]
    with pytest.raises(UsageError, match="does not exist"):
        read_ids(tmp_path / "none.txt")


# -- sources


def test_exports_and_official_files_are_read(tmp_path: Path):
    data = Collection(np.array(["205866"]), np.array(["411553", "7"]), ("A.", "B."), np.array([[0, 0]]))
    (tmp_path / "judgements.csv").write_text(
        "image_id,caption_id,grade,answers,source,by\n205866,7,1,1,x,people\n205866,7,0,1,x,people\n205866,411553,1,0,x,links\n"
    )
    (tmp_path / "provenance.json").write_text('{"study": "eccv-hit"}')
    source = read_source(tmp_path, data, "people")
    assert (source.name, source.grades, source.positive) == ("eccv-hit", {("205866", "7"): 0.5}, 0.5), "links are skipped"
    graded = tmp_path / "graded.csv"
    graded.write_text("image_id,caption_id,grade,by,positive_from\n205866,7,1,people,3\n")
    assert read_source(graded, data, "people").positive == 3.0, "as the file declares"
    assert read_source(graded, data, "people", positive=1.0).positive == 1.0
    official = tmp_path / "more" / "sits_test.csv"
    official.parent.mkdir()
    official.write_text(
        "caption,image,agg_score,sampling_method\nCOCO_val2014:sentid:411553,COCO_val2014_000000205866.jpg,4.2,c2i_original\n"
    )
    ratings = read_source(official, data, "ratings")
    assert (ratings.name, ratings.grades, ratings.positive) == ("sits_test", {("205866", "411553"): 4.2}, 3.0)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.csv", "image_id,caption_id,grade\na1,b#7,1\n", r"line 2: caption_id 'b#7' is not in the collection"),
        ("x.csv", "image_id,caption_id,grade\na1,b#0,good\n", r"line 2: expected a number as the rating, got 'good'"),
        ("x.txt", "a1 b#0 1", r"got '.txt'"),
        ("none.csv", None, "does not exist"),
    ],
)
def test_invalid_sources_are_rejected(tmp_path: Path, name, text, message):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(CrossmatchError, match=message):
        read_source(tmp_path / name, pets(), "people")


# -- the folder


def answers(tmp_path: Path) -> Path:
    path = tmp_path / "answers.csv"
    path.write_text("image_id,caption_id,grade\na1,b#0,0\nb,a1#0,0.5\nb,b#0,0\nc,c#0,1\n")
    return path


def test_folder_is_a_collection_with_provenance(tmp_path: Path):
    data = pets(picture)
    manifest = write_merge(data, [read_source(answers(tmp_path), data, "people")], tmp_path / "out")
    loaded = load_collection_folder(tmp_path / "out")
    assert loaded.collection.image_ids.tolist() == ["a1", "b", "c"]
    source = loaded.judgements["merged"]
    names = zip(loaded.collection.image_ids[source.rows], loaded.collection.caption_ids[source.columns], source.grades, strict=True)
    assert set(names) == {
        ("a1", "a1#0", 1), ("a1", "a2#0", 1), ("a1", "a2#1", 1), ("a1", "b#0", 0), ("b", "a1#0", 1), ("b", "b#0", 0),
        ("c", "c#0", 1),
    }  # fmt: skip
    assert manifest["counts"] == {
        "images": 3, "captions": 5, "removed captions, meaningless": 1, "removed images, the same picture": 1,
        "i2t queries": 3, "i2t positives links": 5, "i2t positives answers": 2, "i2t positives merged": 5, "i2t new": 1,
        "i2t negatives": 2, "t2i queries": 4, "t2i positives links": 5, "t2i positives answers": 2, "t2i positives merged": 5,
        "t2i new": 1, "t2i negatives": 2, "conflicts": 1, "conflicts, links yes and answers no": 1,
    }  # fmt: skip
    assert read_rows(tmp_path / "out", "merge")[-2] == {
        "id": "b~b#0", "image_id": "b", "caption_id": "b#0", "grade": 0, "said": {"answers": 0.0, "links": 1.0}, "by": "answers",
        "conflict": True,
    }  # fmt: skip
    suspects = list(csv.DictReader((tmp_path / "out" / "suspects.csv").read_text().splitlines()))
    assert suspects == [{"caption_id": "b#0", "image_id": "b", "called_wrong_by": "answers", "caption": "A dog."}]
    assert write_merge(data, [read_source(answers(tmp_path), data, "people")], tmp_path / "out") == manifest
    with pytest.raises(UsageError, match="rule was 'any'"):
        write_merge(data, [read_source(answers(tmp_path), data, "people")], tmp_path / "out", options=MergeOptions("all"))


def save_collection(folder: Path, *names: str) -> Collection:
    (folder / "images").mkdir(parents=True)
    for name in names:
        picture(name).save(folder / "images" / name)
    (folder / "captions.csv").write_text("image,caption\n" + "".join(f"{name},A {name[0]}.\n" for name in names))
    return load_collection_folder(folder).collection


def test_picture_files_are_copied_unchanged(tmp_path: Path):
    write_merge(save_collection(tmp_path / "in", "x.png", "y.png", "z.png"), [], tmp_path / "out")
    for old, new in (("x.png", "000000.png"), ("y.png", "000001.png")):
        assert (tmp_path / "out" / "images" / new).read_bytes() == (tmp_path / "in" / "images" / old).read_bytes()
    assert load_collection_folder(tmp_path / "out").collection.image_ids.tolist() == ["x.png", "y.png", "z.png"]


def test_changed_pictures_or_answers_are_changed_inputs(tmp_path: Path):
    data = save_collection(tmp_path / "in", "x.png", "y.png")
    write_merge(data, [JudgementSource("us", "people", {("x.png", data.caption_ids[1]): 1.0}, 0.5)], tmp_path / "out")
    with pytest.raises(UsageError, match="people us was"):
        write_merge(data, [JudgementSource("us", "people", {("x.png", data.caption_ids[1]): 0.0}, 0.5)], tmp_path / "out")
    write_merge(data, [], tmp_path / "links")
    picture("x.png").save(tmp_path / "in" / "images" / "y.png")  # now a duplicate
    with pytest.raises(UsageError, match="pictures was"):
        write_merge(data, [], tmp_path / "links")


def test_only_queries_of_the_pool_count(tmp_path: Path):
    data = pets(picture)
    rows = [{"id": "1", "image_id": "b", "caption_id": "a1#0", "retrieved": {"i2t": {"m": 1}}},
            {"id": "2", "image_id": "b", "caption_id": "c#0", "retrieved": {"t2i": {"m": 1}, "i2t": {"m": 2}}}]  # fmt: skip
    write_step(tmp_path / "pool", StepSpec("pool", {}), lambda step: rows)
    manifest = write_merge(data, [read_source(answers(tmp_path), data, "people")], tmp_path / "out", pool=tmp_path / "pool")
    assert (manifest["counts"]["i2t queries"], manifest["counts"]["t2i queries"]) == (1, 1)
    result = load_collection_folder(tmp_path / "out").judgements
    assert {name: (judged.only_direction, len(judged.rows), judged.positive_count) for name, judged in result.items()} == {
        "links": ("", 5, 5), "merged-i2t": ("i2t", 2, 1), "merged-t2i": ("t2i", 1, 1),
    }  # fmt: skip


def test_unknown_direction_is_rejected(tmp_path: Path):
    write_merge(pets(picture), [], tmp_path / "out")
    (tmp_path / "out" / "judgements.csv").write_text("image_id,caption_id,grade,direction\nb,b#0,1,sideways\n")
    with pytest.raises(CrossmatchError, match="the direction must be i2t or t2i"):
        load_collection_folder(tmp_path / "out")


def test_merge_needs_sources_and_a_positive():
    with pytest.raises(UsageError, match="Nothing to merge"):
        merge_sources(pets(), [], links=False)
    with pytest.raises(CrossmatchError, match="No pair is positive"):
        merge_sources(pets(), [JudgementSource("us", "people", {("b", "b#0"): 0.0}, 0.5)], links=False)


def test_collection_without_pictures_is_merged(tmp_path: Path):
    write_merge(pets(), [], tmp_path / "out")
    assert not list((tmp_path / "out" / "images").iterdir())
    assert len(json.loads((tmp_path / "out" / "captions.json").read_text())["annotations"]) == 5
    assert read_manifest(tmp_path / "out")["finished"]


# -- the paper


def official(name: str) -> set[tuple[str, str]]:
    """Pairs (image, caption) of a file of the official package."""
    data = json.loads(require_data_file(f"eccv_caption/{name}.json").read_bytes())
    pairs = ((str(query), str(item)) for query, items in data.items() for item in items)
    return {pair if name.endswith("image_to_caption") else pair[::-1] for pair in pairs}


def cxc_source(data: Collection) -> JudgementSource:
    source = cxc_ratings(data, "sits", "test").judgements()
    ids = zip(data.image_ids[source.rows].tolist(), data.caption_ids[source.columns].tolist(), strict=True)
    return JudgementSource("cxc", "ratings", dict(zip(ids, source.grades.tolist(), strict=True)), 3.0)


@pytest.mark.usefixtures("real_data")
def test_table_3_of_the_paper():
    """Merges the released matches, CxC's ratings and COCO's links for the queries of both directions.

    Of the human-verified pairs (16,990 and 10,814) only those outside CxC are known. Of the 22,550 published captions two are not in
    the split. With meaningless captions there is one more: raters of CxC gave 3.75 to "I really cant see this image very well."
    Without these captions the merged pairs equal the published ones.
    """
    data = coco.coco_collection("test")
    released = {"i2t": official("eccv_image_to_caption"), "t2i": official("eccv_caption_to_image")}
    caption_ids, ratings = set(data.caption_ids.tolist()), cxc_source(data)
    in_split = {pair for pairs in released.values() for pair in pairs if pair[1] in caption_ids}
    verified = {pair: 1.0 for pair in in_split if not (pair in ratings.grades and ratings.is_positive(pair))}
    queries = {d: frozenset(pair[d == "t2i"] for pair in pairs) for d, pairs in released.items()}
    result = merge_sources(data, [JudgementSource("people", "people", verified, 0.5), ratings], queries=queries)
    lines = {(line.direction, line.source): line for line in count_positives(result)}
    table = {source: tuple(lines[d, source].positives for d in ("t2i", "i2t")) for source in ("links", "cxc", "people", "merged")}
    assert table == {"links": (1_332, 6_305), "cxc": (1_895, 8_906), "people": (9_384, 13_643), "merged": (11_279, 22_549)}
    assert {(line.direction, line.queries) for line in lines.values()} == {("t2i", 1_332), ("i2t", 1_261)}
    positive = {pair for pair, v in result.verdicts.items() if v.positive}
    for direction, extra in (("i2t", {("325211", "462530")}), ("t2i", set())):
        merged_pairs = {pair for pair in positive if result.is_query_pair(direction, pair)}
        assert {pair for pair in released[direction] if pair[1] in caption_ids} <= merged_pairs
        assert merged_pairs - released[direction] == extra
        assert {int(caption) for _, caption in extra} <= set(coco.MEANINGLESS)
    without_meaningless = merge_sources(
        data, [JudgementSource("people", "people", verified, 0.5), ratings], queries=queries, removed=find_removals(data)
    )
    positive = {pair for pair, v in without_meaningless.verdicts.items() if v.positive}
    for direction, number in (("i2t", 22_548), ("t2i", 11_279)):
        merged_pairs = {pair for pair in positive if without_meaningless.is_query_pair(direction, pair)}
        assert merged_pairs == {pair for pair in released[direction] if pair[1] in caption_ids}
        assert len(merged_pairs) == number


@pytest.mark.usefixtures("real_data")
def test_meaningless_captions_equal_those_of_the_paper():
    data = coco.coco_collection("test")
    result = {int(name) for name, text in zip(data.caption_ids, data.captions, strict=True) if is_meaningless(text)}
    assert result == set(coco.MEANINGLESS)


def test_meaningless_captions_of_another_split(real_data: Path):
    """The patterns were written for the test split; among other captions of COCO they match nine, all meaningless."""
    caption_ids = set(coco.coco_collection("test").caption_ids.tolist())
    rows = json.loads((real_data / "coco" / "captions_val2017.json").read_bytes())["annotations"]
    result = [row["caption"] for row in rows if str(row["id"]) not in caption_ids and is_meaningless(row["caption"])]
    assert len(result) == 9
    assert all("unable to see" in text or "There is no image" in text for text in result)


@pytest.mark.usefixtures("real_data")
def test_suspects_are_links_that_raters_reject():
    """All 13 are among the 14 captions that the authors called wrong; their own annotators found the last one."""
    data = coco.coco_collection("test")
    result = merge_sources(data, [cxc_source(data)], removed=find_removals(data)).suspects()
    assert len(result) == 13
    assert len({int(caption) for _, caption in result} & set(coco.WRONG)) == 13
    assert set(result) <= set(links_as_source(data).grades)
