"""Designs: every preset can be read and kept; what does not fit is refused with a remedy; answers are options, or nothing."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.study.design.declaration import (
    Design,
    Option,
    Question,
    allowed_values,
    check_answer,
    design_from_dict,
    load_design,
    load_presets,
    preset_names,
)

PRESETS = (
    "bison-select", "bison-verify", "bivlc-ambiguity", "bivlc-choose", "bivlc-human", "caption-correctness", "caption-detail",
    "eccv-hit", "ranking-preference", "sis", "sits", "sts",
)  # fmt: skip
MINE = """
title = "Is it red?"
about = "one image: red or not"
[shows]
images = 1
{shows}
[[questions]]
name = "red"
text = "Is it red?"
options = [{{ value = "yes", text = "Yes" }}, {{ value = "no", text = "No" }}]
{more}
"""


def mine(tmp_path, more="", shows=""):
    path = tmp_path / "mine.toml"
    path.write_text(MINE.format(more=more, shows=shows), encoding="utf-8")
    return str(path)


# Presets


def test_the_presets_are_those_of_the_papers():
    assert tuple(preset_names()) == PRESETS
    assert all(design.name == name and design.paper and design.instructions for name, design in load_presets().items())


@pytest.mark.parametrize("name", PRESETS)
def test_design_survives_the_database(name):
    design = load_design(name)
    assert design_from_dict(design.to_dict()) == design
    assert design_from_dict(json.loads(json.dumps(design.to_dict()))) == design


def test_the_recipes_are_those_of_the_papers():
    hit = load_design("eccv-hit").recipe
    assert (hit.batch, hit.gold_positive, hit.gold_negative) == (18, 1, 1)
    people = {"bison-verify": 2, "sts": 5, "sis": 5, "sits": 5, "ranking-preference": 8}
    assert {name: load_design(name).recipe.people for name in people} == people
    assert load_design("bison-select").recipe.batch == 10
    grades = [option.grade for option in load_design("eccv-hit").main_question.options]
    assert grades == [1, 0.5, 0, 0]


def test_custom_design_accepts_the_same_overrides(tmp_path):
    design = load_design(mine(tmp_path), ["recipe.people=4", "recipe.currency=EUR", "result.combine=majority"])
    assert (design.name, design.recipe.people, design.recipe.currency, design.result.combine) == ("mine", 4, "EUR", "majority")
    assert design_from_dict(json.loads(json.dumps(design.to_dict()))) == design


# What does not fit


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("recipe.peple=3", "Did you mean 'people'"),
        ("recipe.people=0", "1 to 1,?000|at least 1|from 1"),
        ("recipe.people=2.5", "expected a whole number"),
        ("recipe.lease_minutes=0", "lease_minutes"),
        ("recipe.lease_minutes=nan", "lease_minutes"),
        ("recipe.quiz_share=1.5", "quiz_share"),
        ("recipe.reasons=perhaps", "expected true or false"),
        ("result.combine=median", "one of mean, majority"),
        ("result.question=nosuch", "result.question is 'nosuch'"),
        ("shows.images=3", "expected recipe.KEY=VALUE or result.KEY=VALUE"),
        ("people=3", "recipe.KEY=VALUE"),
        ("recipe.people", "recipe.KEY=VALUE"),
        ("recipe.completion_url=javascript:alert(1)", "https?://"),
        ("recipe.completion_url=data:text/html,x", "https?://"),
    ],
)
def test_invalid_override_names_the_expected_value(word, message):
    with pytest.raises(UsageError, match=message):
        load_design("sts", [word])


FOLLOW = """
[[questions]]
name = "why"
text = "Why?"
after = "{after}"
when = ["{when}"]
options = [{{ value = "a", text = "A" }}]
"""


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("colour = 3", "Did you mean|Known:"),
        ('kind = "sider"', "slider"),
        ('block = "first"', "the block 'first', which is not in \\[shows\\]"),
        ('after = "red"', "needs both `after` and `when`"),
        (FOLLOW.format(after="nosuch", when="yes"), "comes after 'nosuch', which is not an earlier question"),
        (FOLLOW.format(after="red", when="maybe"), "'maybe', which is not an option of 'red'"),
        ('[[questions]]\nname = "red"\ntext = "Again?"\noptions = [{ value = "a", text = "A" }]', "has two questions 'red'"),
        ('[[questions]]\nname = "b"\ntext = "B?"', "has no options"),
        ('[[questions]]\nname = "b"\ntext = "B?"\nkind = "slider"\nlow = 5\nhigh = 5', "a slider needs low < high"),
        ('[[questions]]\nname = "b"\ntext = "B?"\noptions = [{ value = "a" }]', "expected value and text"),
        (
            '[[questions]]\nname = "b"\ntext = "B?"\noptions = [{ value = "a", text = "A", grade = nan }]',
            "expected a number for grade",
        ),
        ('[[questions]]\nname = "b"\ntext = "B?"\noptions = ["a"]', "`options` must be tables"),
        ('[[questions]]\nname = "b"\ntext = "B?"\noptions = [{value="a",text="A"},{value="a",text="B"}]', "the same value"),
        ('[[questions]]\nname = "b"\ntext = "B?"\namong = "images"\noptions = [{value="image-0",text="A"}]', "image-0"),
        ('[recipe]\npeople = "many"', "expected a whole number"),
        ("[strange]\na = 1", "no key 'strange'"),
        ('[result]\nquestion = "blue"', "result.question is 'blue'"),
    ],
)
def test_inconsistent_design_names_the_problem(tmp_path, more, message):
    with pytest.raises(UsageError, match=message):
        load_design(mine(tmp_path, more))


def test_only_known_sides_can_be_shuffled(tmp_path):
    with pytest.raises(UsageError, match="cannot shuffle 'texts'; expected one of images, captions, lists"):
        load_design(mine(tmp_path, shows='shuffle = ["texts"]'))


def test_slider_cannot_have_follow_ups(tmp_path):
    slider = '[[questions]]\nname = "far"\ntext = "How far?"\nkind = "slider"\noptions = [{ value = "0", text = "near" }]'
    with pytest.raises(UsageError, match="slider"):
        load_design(mine(tmp_path, slider + FOLLOW.format(after="far", when="0")))


@pytest.mark.parametrize(
    ("name", "message"),
    [("eccv-hits", "Did you mean 'eccv-hit'"), ("/no/where.toml", "cannot be read"), ("../secret", "there is no study")],
)
def test_unknown_design_suggests_a_name(name, message):
    with pytest.raises(UsageError, match=message):
        load_design(name)


def test_invalid_toml_names_the_place(tmp_path):
    (tmp_path / "bad.toml").write_bytes(b"title = \xff")
    with pytest.raises(CrossmatchError, match="is not TOML"):
        load_design(tmp_path / "bad.toml")


# Answers

YES_NO = Question("match", "Does it fit?", options=(Option("yes", "Yes"), Option("no", "No")))
WHY = Question(
    "why", "Why?", kind="several", after="match", when=("no",), options=tuple(Option(v, v) for v in ("colour", "number", "kind"))
)
SLIDER = Question("far", "How far?", kind="slider", low=-1.0, high=5.0)


@pytest.mark.parametrize("value", [None, "", "Yes", " yes", "maybe", ["yes"], {"yes": 1}, 1, True, 0, "yes\x00"])
def test_unknown_option_is_refused(value):
    with pytest.raises(CrossmatchError, match=r"'match'.*(Choose one of|Answer it)"):
        check_answer((YES_NO,), {}, {"match": value})


@pytest.mark.parametrize("value", [None, [], "yes", 3, [{"match": "yes"}]])
def test_an_answer_is_a_value_for_each_question(value):
    with pytest.raises(CrossmatchError, match="expected a value for each question"):
        check_answer((YES_NO,), {}, value)


def test_answer_to_an_unknown_question_is_refused():
    with pytest.raises(CrossmatchError, match="There is no question 'gold'"):
        check_answer((YES_NO,), {}, {"match": "yes", "gold": True})


def test_follow_ups_are_asked_only_after_certain_answers():
    asked = (YES_NO, WHY)
    assert check_answer(asked, {}, {"match": "yes"}) == {"match": "yes"}
    assert check_answer(asked, {}, {"match": "yes", "why": []}) == {"match": "yes"}
    assert check_answer(asked, {}, {"match": "no", "why": ["kind", "colour"]}) == {"match": "no", "why": ["colour", "kind"]}
    with pytest.raises(CrossmatchError, match="'why' has no answer"):
        check_answer(asked, {}, {"match": "no"})
    with pytest.raises(CrossmatchError, match="'why' was answered, but is not asked"):
        check_answer(asked, {}, {"match": "yes", "why": ["kind"]})


@pytest.mark.parametrize("value", [[], ["kind", "kind"], ["kind", "size"], "kind", [["kind"]], ["kind"] * 51, [None]])
def test_several_answers_are_different_options(value):
    with pytest.raises(CrossmatchError, match=r"Choose one or more of|Answer it\."):
        check_answer((YES_NO, WHY), {}, {"match": "no", "why": value})


def test_follow_ups_can_be_nested():
    loaded = load_design("eccv-hit").questions_for("")
    full = {"match": "weak-no", "reason": ["wrong", "grammar"], "error": ["colour"]}
    assert check_answer(loaded, {}, full) == full
    assert check_answer(loaded, {}, {"match": "weak-no", "reason": ["grammar"]}) == {"match": "weak-no", "reason": ["grammar"]}
    with pytest.raises(CrossmatchError, match="'error' has no answer"):
        check_answer(loaded, {}, {"match": "weak-no", "reason": ["wrong"]})
    with pytest.raises(CrossmatchError, match="'error' was answered, but is not asked"):
        check_answer(loaded, {}, {"match": "no", "error": ["colour"]})


def test_reasons_can_be_switched_off_as_in_the_second_round():
    loaded = load_design("eccv-hit", ["recipe.reasons=false"]).questions_for("")
    assert [q.name for q in loaded] == ["match"]
    with pytest.raises(CrossmatchError, match="There is no question 'reason'"):
        check_answer(loaded, {}, {"match": "weak-no", "reason": ["grammar"]})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 5.0001, -1.5, 10**400, -(10**400), "3", True, [3], {}])
def test_a_slider_takes_numbers_within_its_ends(value):
    with pytest.raises(CrossmatchError, match=r"not a number from -1 to 5\. Move the slider\."):
        check_answer((SLIDER,), {}, {"far": value})


@pytest.mark.parametrize("value", [-1, 0, 5, 2.5, -0.25])
def test_a_slider_gives_a_float(value):
    number = check_answer((SLIDER,), {}, {"far": value})["far"]
    assert number == value
    assert isinstance(number, float)


def test_only_displayed_images_can_be_chosen():
    best = load_design("bivlc-choose").main_question
    assert allowed_values(best, {"images": 4, "captions": 1, "lists": 0}) == ("image-0", "image-1", "image-2", "image-3", "none")
    with pytest.raises(CrossmatchError, match="Choose one of: image-0, image-1, image-2, image-3, none"):
        check_answer((best,), {"images": 4}, {"best": "image-4"})


words = st.text(max_size=8) | st.sampled_from(["yes", "no", "match", "why", "far", "kind"])
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner),
    max_leaves=12,
)


@given(anything)
def test_any_answer_is_valid_or_refused(value):
    asked = (YES_NO, WHY, SLIDER)
    try:
        found = check_answer(asked, {}, value)
    except CrossmatchError:
        pass
    else:
        assert found["match"] in ("yes", "no")
        assert ("why" in found) == (found["match"] == "no")
        assert -1 <= found["far"] <= 5


def test_a_design_is_frozen():
    with pytest.raises(AttributeError):
        load_design("sts").title = "other"
    assert isinstance(load_design("sts"), Design)


@pytest.mark.parametrize("name", preset_names())
def test_presets_declare_no_pay(name):
    """What people are paid, if anything, is the owner's word; the page says it to them."""
    recipe = load_design(name).recipe
    assert (recipe.pay, recipe.fee) == (0, 0)
    assert load_design(name, ["recipe.pay=1.4"]).recipe.pay == 1.4


def test_overrides_are_checked_together():
    loaded = load_design("eccv-hit", ["result.combine=dawid-skene", "recipe.people=3"])
    assert (loaded.result.combine, loaded.recipe.people) == ("dawid-skene", 3)


def test_dawid_skene_needs_two_people_per_item():
    with pytest.raises(UsageError, match=r"dawid-skene needs two or more answers .* recipe.people=3, or result.combine=majority"):
        load_design("eccv-hit", ["result.combine=dawid-skene"])


def test_main_question_must_not_be_a_follow_up():
    with pytest.raises(UsageError, match=r"result.question is 'reason', which is asked only after some answers to 'match'"):
        load_design("eccv-hit", ["result.question=reason"])
