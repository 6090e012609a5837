"""New studies: items are packed into HITs with their gold, groups stay together, and what cannot be asked is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.study.assign import claim_hit, submit
from crossmatch.study.begin import NewItem, create_study, packed
from crossmatch.study.design import load_design
from crossmatch.study.schema import exclusion, hit, hit_item, item, slot, study
from crossmatch.study.verify import verify
from study_lab import GOLDEN, a_study, book, design_of, gold, in_parallel, pairs, refused, someone, work


def hits_of(campaign, study_id, quiz=False):
    """The names of the items of each HIT."""
    asked = (
        select(hit_item.c.hit, item.c.key).join(item, item.c.id == hit_item.c.item).join(hit, hit.c.id == hit_item.c.hit)
        .where(hit.c.study == study_id, hit.c.quiz if quiz else ~hit.c.quiz).order_by(hit_item.c.hit, hit_item.c.place)
    )  # fmt: skip
    out = {}
    with campaign.reading() as connection:
        for row in connection.execute(asked):
            out.setdefault(row.hit, []).append(row.key)
    return list(out.values())


def count(campaign, table):
    with campaign.reading() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


# Packing


def test_a_study_has_a_slot_for_every_answer_that_is_wanted(campaign):
    made = a_study(campaign, "recipe.people=4", items=7)
    assert [len(keys) for keys in hits_of(campaign, made)] == [3, 3, 1]
    assert count(campaign, slot) == 3 * 4
    assert verify(campaign)[0].events == 1


def test_every_hit_has_its_gold_and_none_twice(small):
    made = a_study(small, "recipe.gold_positive=2", items=12, golden=4)
    for keys in hits_of(small, made):
        assert len(set(keys)) == len(keys) == 3 + 2 + 1
        assert sum(key.startswith("positive") for key in keys) == 2
        assert sum(key.startswith("negative") for key in keys) == 1


def test_all_gold_is_used_before_any_is_used_again():
    design = design_of(*GOLDEN, "recipe.batch=1")
    bag = {kind: [one for one in gold(5) if one.kind == kind] for kind in ("positive", "negative")}
    hits = packed(design, pairs(10), bag, "seed")
    used = [one.key for each in hits for one in each if one.kind == "positive"]
    assert sorted(used[:5]) == sorted(used[5:]) == sorted(one.key for one in bag["positive"])


def test_the_quiz_has_gold_of_its_own(small):
    made = a_study(small, "recipe.quiz=3", items=6, golden=3)
    (quiz,) = hits_of(small, made, quiz=True)
    assert sorted(key.partition("-")[0] for key in quiz) == ["negative", "positive", "positive"]
    assert not set(quiz) & {key for keys in hits_of(small, made) for key in keys}
    assert count(small, slot) == 2  # none for the quiz, which everybody takes


def test_groups_stay_together_wherever_they_stand_in_the_file(small):
    names = ["a", "b", "a", "c", "b", "a", "c", ""]
    items = [NewItem(f"{group or 'single'}-{n}", (), (f"text {n}",), group=group) for n, group in enumerate(names)]
    made = create_study(small, load_design("caption-detail", ["recipe.batch=3"]), items)
    where = {key: n for n, keys in enumerate(hits_of(small, made)) for key in keys}
    for group in "abc":
        assert len({place for key, place in where.items() if key.startswith(group)}) == 1
    assert len(where) == 8


def test_an_item_named_like_a_group_is_not_of_it(small):
    items = [NewItem("a", (), ("one",)), NewItem("b", (), ("two",), group="a"), NewItem("c", (), ("three",), group="a")]
    made = create_study(small, load_design("caption-detail", ["recipe.batch=2"]), items)
    assert sorted(map(sorted, hits_of(small, made))) == [["a"], ["b", "c"]]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=1, max_size=12), st.integers(4, 12), st.integers(0, 2))
def test_packing_loses_nothing_and_repeats_nothing(groups, batch, positives):
    work = [NewItem(f"item-{n}", (), ("text",), group=group) for n, group in enumerate(groups)]
    design = design_of(f"recipe.batch={batch}", f"recipe.gold_positive={positives}")
    if max(groups.count(group) for group in "abc") > batch:
        with pytest.raises(CrossmatchError, match="belong together"):
            packed(design, work, {"positive": gold(3, ("positive",))}, "seed")
        return
    hits = packed(design, work, {"positive": gold(3, ("positive",))}, "seed")
    asked = [one.key for each in hits for one in each if not one.kind]
    assert sorted(asked) == sorted(one.key for one in work)
    assert all(len({one.key for one in each}) == len(each) <= batch + positives for each in hits)


# Refused


@pytest.mark.parametrize(
    ("items", "says"),
    [
        ([], "no item is to be judged"),
        (gold(2), "no item is to be judged"),
        ([*pairs(2), *pairs(1)], "'pair-0' is listed twice"),
        ([NewItem("", ("a.jpg",), ("x",))], "a name of 0 signs"),
        ([NewItem("k" * 301, ("a.jpg",), ("x",))], "a name of 301 signs"),
        ([NewItem("k", ("a.jpg", "b.jpg"), ("x",))], "has 2 images, but eccv-hit shows 1"),
        ([NewItem("k", (), ("x",))], "has 0 images"),
        ([NewItem("k", ("a.jpg",), (" \n",))], "a caption of 2 signs"),
        ([NewItem("k", ("a.jpg",), ("x" * 10_001,))], "a caption of 10,001 signs"),
        ([NewItem("k", ("a.jpg",), ("x\x00y",))], "signs that cannot be kept"),
        ([NewItem("k", ("a.jpg",), ("\ud800",))], "signs that cannot be kept"),
        ([NewItem("k\x00", ("a.jpg",), ("x",))], "signs that cannot be kept"),
        ([NewItem("k", ("../secret",), ("x",))], "'../secret' is no picture of the campaign"),
        ([NewItem("k", ("/etc/passwd",), ("x",))], "is no picture of the campaign"),
        ([NewItem("k", ("",), ("x",))], "is no picture of the campaign"),
        ([NewItem("k", ("a.jpg",), ("x",), block="first")], "is of block 'first'"),
        ([*pairs(1), NewItem("g", ("a.jpg",), ("x",), gold={"match": ("yes",)})], "gold of kind ''"),
        ([*pairs(1), NewItem("g", ("a.jpg",), ("x",), gold={"match": ("yes",)}, kind="sure")], "gold of kind 'sure'"),
        ([*pairs(1), NewItem("g", ("a.jpg",), ("x",), gold={"match": ("maybe",)}, kind="positive")], "one of yes, weak-yes"),
        ([*pairs(1), NewItem("g", ("a.jpg",), ("x",), gold={"match": ()}, kind="positive")], "gold for 'match'"),
        ([*pairs(1), NewItem("g", ("a.jpg",), ("x",), gold={"colour": ("red",)}, kind="positive")], "gold for 'colour'"),
        ([*pairs(1), NewItem("g", ("a.jpg",), ("x",), gold={}, kind="positive")], "does not say how it must be answered"),
        ([*pairs(1), NewItem("g", ("a.jpg",), ("x",), kind="positive")], "does not say how it must be answered"),
        ([*pairs(1), NewItem("g", ("a.jpg",), ("x",), kind="example")], "does not say how it must be answered"),
    ],
)
def test_items_that_cannot_be_asked_are_refused(small, items, says):
    with pytest.raises(CrossmatchError, match=says):
        create_study(small, design_of(), items)
    assert count(small, study) == count(small, item) == 0


def test_gold_that_is_missing_is_asked_for(small):
    with pytest.raises(CrossmatchError, match=r"needs 1 gold items of kind negative, but there are 0.*recipe\.gold_negative=0"):
        create_study(small, design_of(*GOLDEN), [*pairs(3), *gold(2, ("positive",))])
    with pytest.raises(CrossmatchError, match="a quiz of 4 needs 2 gold items of kind positive; there are 1"):
        a_study(small, "recipe.quiz=4", golden=1)


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
    made = create_study(small, load_design(tmp_path / "things.toml"), [NewItem("work", (), ("a cat",)), both])
    who = someone(small, made)
    claim = claim_hit(small, made, who)
    submit(small, claim, who, [{"things": ["cat", "dog"]}] * 2)
    assert book(small, made).bodies[claim]["wrong"] == []


def test_a_follow_up_cannot_be_gold_since_it_is_not_always_asked(small):
    gold_reason = NewItem("g", ("a.jpg",), ("x",), gold={"match": ("weak-no",), "reason": (["wrong"],)}, kind="positive")
    with pytest.raises(CrossmatchError, match="'reason'"):
        create_study(small, design_of("recipe.gold_positive=1"), [*pairs(1), gold_reason])


def test_a_group_that_is_larger_than_a_hit_is_refused(small):
    with pytest.raises(CrossmatchError, match=r"4 items belong together, but a HIT has 3\. Set recipe\.batch"):
        create_study(small, design_of(), pairs(4, group="all"))


@pytest.mark.parametrize("name", ["Über", "a b", "-a", "a/b", "..", "a" * 62, "a\n", "%00"])
def test_a_study_has_a_name_that_can_stand_in_an_address(small, name):
    with pytest.raises(WrongWords, match="small letters, digits and hyphens"):
        create_study(small, design_of(), pairs(1), name=name)


def test_two_studies_have_two_names(small):
    a_study(small)
    with pytest.raises(WrongWords, match="has a study called 'eccv-hit' already"):
        a_study(small)


def test_of_two_who_begin_the_same_study_at_once_one_is_told(campaign):
    made = in_parallel([lambda: a_study(campaign, items=300)] * 3)
    assert sum(isinstance(one, int) for one in made) == 1
    assert sum(isinstance(one, WrongWords) and "already" in str(one) for one in made) == 2
    assert count(campaign, study) == 1
    assert verify(campaign)


def test_studies_that_are_begun_while_people_work_are_whole(campaign):
    """On PostgreSQL nobody waits for them; their numbers may stand among each other's."""
    first = a_study(campaign, "recipe.batch=1", items=30)
    who = [someone(campaign, first) for _ in range(3)]
    jobs = [lambda name=name: a_study(campaign, items=300, name=name, excludes=["eccv-hit"]) for name in ("a", "b")]
    jobs += [lambda person=person: [work(campaign, first, person) for _ in range(5)] for person in who]
    made = in_parallel(jobs)
    assert not [one for one in made if isinstance(one, Exception)]
    for number in made[:2]:
        assert hits_of(campaign, number) == [[f"pair-{n + k}" for k in range(3)] for n in range(0, 300, 3)]
        assert refused(campaign, number, who[0]) == "agree"
    assert verify(campaign)


def test_exclusions_go_both_ways_and_need_a_study_that_is_there(small):
    first, second = a_study(small, name="first"), a_study(small, name="second", excludes=["first", "first"])
    with small.reading() as connection:
        found = {tuple(row) for row in connection.execute(select(exclusion.c.study, exclusion.c.other))}
    assert found == {(first, second), (second, first)}
    for other in ("third", "nosuch"):
        with pytest.raises(WrongWords, match=f"has no study {other!r}"):
            a_study(small, name="third", excludes=[other])
    assert count(small, study) == 2


def test_a_study_that_fails_leaves_nothing_behind(campaign):
    with pytest.raises(WrongWords):
        a_study(campaign, excludes=["nosuch"])
    assert count(campaign, study) == count(campaign, item) == count(campaign, slot) == 0
    a_study(campaign)
    verify(campaign)
