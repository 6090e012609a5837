"""Designs: every preset can be read and kept; what does not fit is refused with a remedy; answers are options, or nothing."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.study.design import Design, Option, Question, check_answer, choices, from_told, load_design, names, presets

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
    assert tuple(names()) == PRESETS
    assert all(design.name == name and design.paper and design.instructions for name, design in presets().items())


@pytest.mark.parametrize("name", PRESETS)
def test_a_design_comes_back_from_the_database_as_it_was(name):
    design = load_design(name)
    assert from_told(design.told()) == design
    assert from_told(json.loads(json.dumps(design.told()))) == design


def test_the_recipes_are_those_of_the_papers():
    hit = load_design("eccv-hit").recipe
    assert (hit.batch, hit.gold_positive, hit.gold_negative) == (18, 1, 1)
    people = {"bison-verify": 2, "sts": 5, "sis": 5, "sits": 5, "ranking-preference": 8}
    assert {name: load_design(name).recipe.people for name in people} == people
    assert load_design("bison-select").recipe.batch == 10
    grades = [option.grade for option in load_design("eccv-hit").main.options]
    assert grades == [1, 0.5, 0, 0]


def test_a_design_of_ones_own_has_the_same_words(tmp_path):
    design = load_design(mine(tmp_path), ["recipe.people=4", "recipe.currency=EUR", "result.combine=majority"])
    assert (design.name, design.recipe.people, design.recipe.currency, design.result.combine) == ("mine", 4, "EUR", "majority")
    assert from_told(json.loads(json.dumps(design.told()))) == design


# What does not fit


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("recipe.peple=3", "Did you mean 'people'"),
        ("recipe.people=0", "1 to 1,?000|at least 1|from 1"),
        ("recipe.people=2.5", "a whole number was expected"),
        ("recipe.lease_minutes=0", "lease_minutes"),
        ("recipe.lease_minutes=nan", "lease_minutes"),
        ("recipe.quiz_share=1.5", "quiz_share"),
        ("recipe.reasons=perhaps", "true or false was expected"),
        ("result.combine=median", "one of mean, majority"),
        ("result.question=nosuch", "the result counts question 'nosuch'"),
        ("shows.images=3", "recipe.KEY=VALUE or result.KEY=VALUE was expected"),
        ("people=3", "recipe.KEY=VALUE"),
        ("recipe.people", "recipe.KEY=VALUE"),
        ("recipe.completion_url=javascript:alert(1)", "https?://"),
        ("recipe.completion_url=data:text/html,x", "https?://"),
    ],
)
def test_an_override_that_cannot_be_used_says_what_was_expected(word, says):
    with pytest.raises(WrongWords, match=says):
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
    ("more", "says"),
    [
        ("colour = 3", "Did you mean|Known:"),
        ('kind = "sider"', "slider"),
        ('block = "first"', "the block 'first', which \\[shows\\] has not"),
        ('after = "red"', "needs both `after` and `when`"),
        (FOLLOW.format(after="nosuch", when="yes"), "comes after 'nosuch', which is not asked before it"),
        (FOLLOW.format(after="red", when="maybe"), "'maybe', which is no option of 'red'"),
        ('[[questions]]\nname = "red"\ntext = "Again?"\noptions = [{ value = "a", text = "A" }]', "asks 'red' twice"),
        ('[[questions]]\nname = "b"\ntext = "B?"', "has no options"),
        ('[[questions]]\nname = "b"\ntext = "B?"\nkind = "slider"\nlow = 5\nhigh = 5', "two ends were expected"),
        ('[[questions]]\nname = "b"\ntext = "B?"\noptions = [{ value = "a" }]', "value and text were expected"),
        ('[[questions]]\nname = "b"\ntext = "B?"\noptions = [{ value = "a", text = "A", grade = nan }]', "a number was expected"),
        ('[[questions]]\nname = "b"\ntext = "B?"\noptions = ["a"]', "options that are no tables"),
        ('[[questions]]\nname = "b"\ntext = "B?"\noptions = [{value="a",text="A"},{value="a",text="B"}]', "the same value"),
        ('[[questions]]\nname = "b"\ntext = "B?"\namong = "images"\noptions = [{value="image-0",text="A"}]', "image-0"),
        ('[recipe]\npeople = "many"', "a whole number was expected"),
        ("[strange]\na = 1", "no key 'strange'"),
        ('[result]\nquestion = "blue"', "the result counts question 'blue'"),
    ],
)
def test_a_design_whose_parts_do_not_fit_says_which(tmp_path, more, says):
    with pytest.raises(WrongWords, match=says):
        load_design(mine(tmp_path, more))


def test_only_what_is_shown_can_be_shuffled(tmp_path):
    with pytest.raises(WrongWords, match="shuffles 'texts'; one of images, captions, lists was expected"):
        load_design(mine(tmp_path, shows='shuffle = ["texts"]'))


def test_nothing_can_be_asked_after_a_slider(tmp_path):
    slider = '[[questions]]\nname = "far"\ntext = "How far?"\nkind = "slider"\noptions = [{ value = "0", text = "near" }]'
    with pytest.raises(WrongWords, match="slider"):
        load_design(mine(tmp_path, slider + FOLLOW.format(after="far", when="0")))


@pytest.mark.parametrize(
    ("name", "says"),
    [("eccv-hits", "Did you mean 'eccv-hit'"), ("/no/where.toml", "cannot be read"), ("../secret", "there is no study")],
)
def test_a_design_that_is_not_there_names_the_remedy(name, says):
    with pytest.raises(WrongWords, match=says):
        load_design(name)


def test_a_file_that_is_no_toml_says_where(tmp_path):
    (tmp_path / "bad.toml").write_bytes(b"title = \xff")
    with pytest.raises(CrossmatchError, match="is not TOML"):
        load_design(tmp_path / "bad.toml")


# Answers

YES_NO = Question("match", "Does it fit?", options=(Option("yes", "Yes"), Option("no", "No")))
WHY = Question(
    "why", "Why?", kind="several", after="match", when=("no",), options=tuple(Option(v, v) for v in ("colour", "number", "kind"))
)
SLIDER = Question("far", "How far?", kind="slider", low=-1.0, high=5.0)


@pytest.mark.parametrize("given", [None, "", "Yes", " yes", "maybe", ["yes"], {"yes": 1}, 1, True, 0, "yes\x00"])
def test_what_is_no_option_is_refused(given):
    with pytest.raises(CrossmatchError, match=r"'match'.*(Choose one|Answer it)\."):
        check_answer((YES_NO,), {}, {"match": given})


@pytest.mark.parametrize("given", [None, [], "yes", 3, [{"match": "yes"}]])
def test_an_answer_is_a_value_for_each_question(given):
    with pytest.raises(CrossmatchError, match="a value for each question was expected"):
        check_answer((YES_NO,), {}, given)


def test_a_question_that_is_not_asked_cannot_be_answered():
    with pytest.raises(CrossmatchError, match="there is no question 'gold'"):
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


@pytest.mark.parametrize("given", [[], ["kind", "kind"], ["kind", "size"], "kind", [["kind"]], ["kind"] * 51, [None]])
def test_several_answers_are_different_options(given):
    with pytest.raises(CrossmatchError, match=r"Choose at least one\.|Answer it\."):
        check_answer((YES_NO, WHY), {}, {"match": "no", "why": given})


def test_follow_ups_of_follow_ups_are_asked_in_turn():
    asked = load_design("eccv-hit").asked("")
    full = {"match": "weak-no", "reason": ["wrong", "grammar"], "error": ["colour"]}
    assert check_answer(asked, {}, full) == full
    assert check_answer(asked, {}, {"match": "weak-no", "reason": ["grammar"]}) == {"match": "weak-no", "reason": ["grammar"]}
    with pytest.raises(CrossmatchError, match="'error' has no answer"):
        check_answer(asked, {}, {"match": "weak-no", "reason": ["wrong"]})
    with pytest.raises(CrossmatchError, match="'error' was answered, but is not asked"):
        check_answer(asked, {}, {"match": "no", "error": ["colour"]})


def test_reasons_can_be_switched_off_as_in_the_second_round():
    asked = load_design("eccv-hit", ["recipe.reasons=false"]).asked("")
    assert [q.name for q in asked] == ["match"]
    with pytest.raises(CrossmatchError, match="there is no question 'reason'"):
        check_answer(asked, {}, {"match": "weak-no", "reason": ["grammar"]})


@pytest.mark.parametrize("given", [math.nan, math.inf, -math.inf, 5.0001, -1.5, 10**400, -(10**400), "3", True, [3], {}])
def test_a_slider_takes_numbers_within_its_ends(given):
    with pytest.raises(CrossmatchError, match=r"a number from -1 to 5 was expected\. Move the slider\."):
        check_answer((SLIDER,), {}, {"far": given})


@pytest.mark.parametrize("given", [-1, 0, 5, 2.5, -0.25])
def test_a_slider_gives_a_float(given):
    found = check_answer((SLIDER,), {}, {"far": given})["far"]
    assert found == given
    assert isinstance(found, float)


def test_what_is_shown_can_be_chosen_and_nothing_beyond():
    best = load_design("bivlc-choose").main
    assert choices(best, {"images": 4, "captions": 1, "lists": 0}) == ("image-0", "image-1", "image-2", "image-3", "none")
    with pytest.raises(CrossmatchError, match="one of image-0, image-1, image-2, image-3, none was expected"):
        check_answer((best,), {"images": 4}, {"best": "image-4"})


words = st.text(max_size=8) | st.sampled_from(["yes", "no", "match", "why", "far", "kind"])
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(anything)
def test_any_answer_is_either_what_was_asked_or_refused(given):
    asked = (YES_NO, WHY, SLIDER)
    try:
        found = check_answer(asked, {}, given)
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


@pytest.mark.parametrize("name", names())
def test_a_preset_promises_nobody_money(name):
    """What people are paid, if anything, is the owner's word; the page says it to them."""
    recipe = load_design(name).recipe
    assert (recipe.pay, recipe.fee) == (0, 0)
    assert load_design(name, ["recipe.pay=1.4"]).recipe.pay == 1.4


def test_words_that_belong_together_may_come_one_after_the_other():
    held = load_design("eccv-hit", ["result.combine=dawid-skene", "recipe.people=3"])
    assert (held.result.combine, held.recipe.people) == ("dawid-skene", 3)


def test_a_model_of_who_errs_needs_two_people_for_each_item():
    with pytest.raises(WrongWords, match=r"one answer does not tell who errs .* recipe.people=3; or take result.combine=majority"):
        load_design("eccv-hit", ["result.combine=dawid-skene"])


def test_what_counts_must_be_asked_of_every_item():
    with pytest.raises(WrongWords, match=r"counts question 'reason', which is asked only after some answers to 'match'"):
        load_design("eccv-hit", ["result.question=reason"])
