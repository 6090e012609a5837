"""New studies: items are packed into HITs with their gold, groups stay together, and what cannot be asked is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func, select

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.study.assignment.claims import claim_hit, submit
from crossmatch.study.database.schema import exclusion, hit, hit_item, item, slot, study
from crossmatch.study.database.verification import verify
from crossmatch.study.design.add_study import create_study
from crossmatch.study.design.declaration import load_design
from crossmatch.study.design.hit_packing import pack_hits
from crossmatch.study.design.new_items import NewItem
from study_lab import (
    WITH_GOLD,
    add_annotator,
    add_small_study,
    design_of,
    gold,
    in_parallel,
    pairs,
    read_submissions,
    refusal_reason,
    submit_hit,
)


def hits_of(campaign, study_id, quiz=False):
    """The names of the items of each HIT."""
    query = (
        select(hit_item.c.hit, item.c.key).join(item, item.c.id == hit_item.c.item).join(hit, hit.c.id == hit_item.c.hit)
        .where(hit.c.study == study_id, hit.c.quiz if quiz else ~hit.c.quiz).order_by(hit_item.c.hit, hit_item.c.place)
    )  # fmt: skip
    out = {}
    with campaign.read_transaction() as connection:
        for row in connection.execute(query):
            out.setdefault(row.hit, []).append(row.key)
    return list(out.values())


def count(campaign, table):
    with campaign.read_transaction() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


# Packing


def test_study_has_a_slot_for_every_required_answer(campaign):
    study_id = add_small_study(campaign, "recipe.people=4", items=7)
    assert [len(keys) for keys in hits_of(campaign, study_id)] == [3, 3, 1]
    assert count(campaign, slot) == 3 * 4
    assert verify(campaign)[0].events == 1


def test_every_hit_has_distinct_gold_items(small):
    study_id = add_small_study(small, "recipe.gold_positive=2", items=12, gold_per_kind=4)
    for keys in hits_of(small, study_id):
        assert len(set(keys)) == len(keys) == 3 + 2 + 1
        assert sum(key.startswith("positive") for key in keys) == 2
        assert sum(key.startswith("negative") for key in keys) == 1


def test_all_gold_is_used_before_any_is_used_again():
    design = design_of(*WITH_GOLD, "recipe.batch=1")
    bag = {kind: [study_item for study_item in gold(5) if study_item.kind == kind] for kind in ("positive", "negative")}
    hits = pack_hits(design, pairs(10), bag, "seed")
    used = [one.key for each in hits for one in each if one.kind == "positive"]
    assert sorted(used[:5]) == sorted(used[5:]) == sorted(one.key for one in bag["positive"])


def test_quiz_gold_is_not_used_in_hits(small):
    study_id = add_small_study(small, "recipe.quiz=3", items=6, gold_per_kind=3)
    (quiz,) = hits_of(small, study_id, quiz=True)
    assert sorted(key.partition("-")[0] for key in quiz) == ["negative", "positive", "positive"]
    assert not set(quiz) & {key for keys in hits_of(small, study_id) for key in keys}
    assert count(small, slot) == 2  # none for the quiz, which everybody takes


def test_groups_stay_together_in_any_order(small):
    names = ["a", "b", "a", "c", "b", "a", "c", ""]
    items = [NewItem(f"{group or 'single'}-{n}", (), (f"text {n}",), group=group) for n, group in enumerate(names)]
    study_id = create_study(small, load_design("caption-detail", ["recipe.batch=3"]), items)
    where = {key: n for n, keys in enumerate(hits_of(small, study_id)) for key in keys}
    for group in "abc":
        assert len({place for key, place in where.items() if key.startswith(group)}) == 1
    assert len(where) == 8


def test_an_item_named_like_a_group_is_not_of_it(small):
    items = [NewItem("a", (), ("one",)), NewItem("b", (), ("two",), group="a"), NewItem("c", (), ("three",), group="a")]
    study_id = create_study(small, load_design("caption-detail", ["recipe.batch=2"]), items)
    assert sorted(map(sorted, hits_of(small, study_id))) == [["a"], ["b", "c"]]


@given(st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=1, max_size=12), st.integers(4, 12), st.integers(0, 2))
def test_packing_loses_nothing_and_repeats_nothing(groups, batch, positives):
    submit_hit = [NewItem(f"item-{n}", (), ("text",), group=group) for n, group in enumerate(groups)]
    design = design_of(f"recipe.batch={batch}", f"recipe.gold_positive={positives}")
    if max(groups.count(group) for group in "abc") > batch:
        with pytest.raises(CrossmatchError, match="items, but a HIT has"):
            pack_hits(design, submit_hit, {"positive": gold(3, ("positive",))}, "seed")
        return
    hits = pack_hits(design, submit_hit, {"positive": gold(3, ("positive",))}, "seed")
    asked = [one.key for each in hits for one in each if not one.kind]
    assert sorted(asked) == sorted(study_item.key for study_item in submit_hit)
    assert all(len({one.key for one in each}) == len(each) <= batch + positives for each in hits)


# Refused


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "All items are gold questions"),
        (gold(2), "All items are gold questions"),
        ([*pairs(2), *pairs(1)], "'pair-0' is listed twice"),
        ([NewItem("", ("a.jpg",), ("x",))], "an id of 0 characters"),
        ([NewItem("k" * 301, ("a.jpg",), ("x",))], "an id of 301 characters"),
        ([NewItem("k", ("a.jpg", "b.jpg"), ("x",))], "has 2 images, but eccv-hit shows 1"),
        ([NewItem("k", (), ("x",))], "has 0 images"),
        ([NewItem("k", ("a.jpg",), (" \n",))], "a caption of 2 characters"),
        ([NewItem("k", ("a.jpg",), ("x" * 10_001,))], "a caption of 10,001 characters"),
        ([NewItem("k", ("a.jpg",), ("x\x00y",))], "characters that cannot be stored"),
        ([NewItem("k", ("a.jpg",), ("\ud800",))], "characters that cannot be stored"),
        ([NewItem("k\x00", ("a.jpg",), ("x",))], "characters that cannot be stored"),
        ([NewItem("k", ("../secret",), ("x",))], "'../secret' is not an image file of the campaign"),
        ([NewItem("k", ("/etc/passwd",), ("x",))], "is not an image file of the campaign"),
        ([NewItem("k", ("",), ("x",))], "is not an image file of the campaign"),
        ([NewItem("k", ("a.jpg",), ("x",), block="first")], "has the block 'first'"),
        ([*pairs(1), NewItem("g", ("a.jpg",), ("x",), gold={"match": ("yes",)})], "has gold answers but the kind ''"),
        ([*pairs(1), NewItem("g", ("a.jpg",), ("x",), gold={"match": ("yes",)}, kind="sure")], "the kind 'sure'"),
        (
            [*pairs(1), NewItem("g", ("a.jpg",), ("x",), gold={"match": ("maybe",)}, kind="positive")],
            "Choose one of: yes, weak-yes",
        ),
        ([*pairs(1), NewItem("g", ("a.jpg",), ("x",), gold={"match": ()}, kind="positive")], "gold for 'match'"),
        ([*pairs(1), NewItem("g", ("a.jpg",), ("x",), gold={"colour": ("red",)}, kind="positive")], "gold for 'colour'"),
        ([*pairs(1), NewItem("g", ("a.jpg",), ("x",), gold={}, kind="positive")], "but no accepted answer"),
        ([*pairs(1), NewItem("g", ("a.jpg",), ("x",), kind="positive")], "but no accepted answer"),
        ([*pairs(1), NewItem("g", ("a.jpg",), ("x",), kind="example")], "but no accepted answer"),
    ],
)
def test_invalid_items_are_refused(small, items, message):
    with pytest.raises(CrossmatchError, match=message):
        create_study(small, design_of(), items)
    assert count(small, study) == count(small, item) == 0


def test_missing_gold_is_an_error(small):
    with pytest.raises(CrossmatchError, match=r"needs 1 gold items of kind negative, but there are 0.*recipe\.gold_negative=0"):
        create_study(small, design_of(*WITH_GOLD), [*pairs(3), *gold(2, ("positive",))])
    with pytest.raises(CrossmatchError, match="a quiz of 4 needs 2 gold items of kind positive; there are 1"):
        add_small_study(small, "recipe.quiz=4", gold_per_kind=1)


SEVERAL = """
title = "What is there?"
about = "things in a text"
[shows]
images = 0
captions = 1
[[questions]]
name = "things"
kind = "several"
text = "What is there?"
options = [{ value = "cat", text = "A cat" }, { value = "dog", text = "A dog" }]
[recipe]
batch = 1
gold_positive = 1
"""


def test_gold_of_several_answers_may_name_them_in_any_order(small, tmp_path):
    (tmp_path / "things.toml").write_text(SEVERAL)
    both = NewItem("gold", (), ("a cat and a dog",), gold={"things": (["dog", "cat"],)}, kind="positive")
    study_id = create_study(small, load_design(tmp_path / "things.toml"), [NewItem("work", (), ("a cat",)), both])
    who = add_annotator(small, study_id)
    claim = claim_hit(small, study_id, who)
    submit(small, claim, who, [{"things": ["cat", "dog"]}] * 2)
    assert read_submissions(small, study_id).bodies[claim]["wrong"] == []


def test_follow_up_question_cannot_be_gold(small):
    gold_reason = NewItem("g", ("a.jpg",), ("x",), gold={"match": ("weak-no",), "reason": (["wrong"],)}, kind="positive")
    with pytest.raises(CrossmatchError, match="'reason'"):
        create_study(small, design_of("recipe.gold_positive=1"), [*pairs(1), gold_reason])


def test_a_group_that_is_larger_than_a_hit_is_refused(small):
    with pytest.raises(CrossmatchError, match=r"has 4 items, but a HIT has 3\. Set recipe\.batch"):
        create_study(small, design_of(), pairs(4, group="all"))


@pytest.mark.parametrize("name", ["Über", "a b", "-a", "a/b", "..", "a" * 62, "a\n", "%00"])
def test_study_name_must_be_valid_in_a_url(small, name):
    with pytest.raises(UsageError, match="lower-case letters, digits and hyphens"):
        create_study(small, design_of(), pairs(1), name=name)


def test_two_studies_have_two_names(small):
    add_small_study(small)
    with pytest.raises(UsageError, match="already has a study 'eccv-hit'"):
        add_small_study(small)


def test_concurrent_creation_of_a_study_succeeds_once(campaign):
    outcomes = in_parallel([lambda: add_small_study(campaign, items=300)] * 3)
    assert sum(isinstance(one, int) for one in outcomes) == 1
    assert sum(isinstance(one, UsageError) and "already" in str(one) for one in outcomes) == 2
    assert count(campaign, study) == 1
    assert verify(campaign)


def test_studies_created_during_work_are_complete(campaign):
    """On PostgreSQL nobody waits for them; their numbers may stand among each other's."""
    first = add_small_study(campaign, "recipe.batch=1", items=30)
    who = [add_annotator(campaign, first) for _ in range(3)]
    jobs = [lambda name=name: add_small_study(campaign, items=300, name=name, excludes=["eccv-hit"]) for name in ("a", "b")]
    jobs += [lambda person=person: [submit_hit(campaign, first, person) for _ in range(5)] for person in who]
    outcomes = in_parallel(jobs)
    assert not [one for one in outcomes if isinstance(one, Exception)]
    for number in outcomes[:2]:
        assert hits_of(campaign, number) == [[f"pair-{n + k}" for k in range(3)] for n in range(0, 300, 3)]
        assert refusal_reason(campaign, number, who[0]) == "agree"
    assert verify(campaign)


def test_exclusions_go_both_ways_and_need_a_study_that_is_there(small):
    first, second = add_small_study(small, name="first"), add_small_study(small, name="second", excludes=["first", "first"])
    with small.read_transaction() as connection:
        query = {tuple(row) for row in connection.execute(select(exclusion.c.study, exclusion.c.other))}
    assert query == {(first, second), (second, first)}
    for other in ("third", "nosuch"):
        with pytest.raises(UsageError, match=f"has no study {other!r}"):
            add_small_study(small, name="third", excludes=[other])
    assert count(small, study) == 2


def test_a_study_that_fails_leaves_nothing_behind(campaign):
    with pytest.raises(UsageError):
        add_small_study(campaign, excludes=["nosuch"])
    assert count(campaign, study) == count(campaign, item) == count(campaign, slot) == 0
    add_small_study(campaign)
    verify(campaign)
