"""What cannot become a result is refused before anybody works; what can, is not: all presets with items of the embedded world."""

from dataclasses import replace

import pytest

from crossmatch.core.errors import CrossmatchError
from crossmatch.study.begin import NewItem
from crossmatch.study.design import load_design, names
from crossmatch.study.items import begin_study, read_items
from crossmatch.study.makers import Shop
from crossmatch.study.promise import require_result
from crossmatch.study.sources import world_of
from crossmatch.study.worlds import WORDS, world_items


@pytest.fixture(scope="module")
def shop():
    return Shop(world_of(WORDS))


@pytest.mark.parametrize("name", names())
def test_every_preset_can_make_what_it_promises(shop, name):
    design = load_design(name)
    require_result(design, world_items(design, WORDS, 4, shop).items)


MINE = """
title = "t"
about = "a"
{shows}
[[questions]]
name = "q"
text = "?"
{question}
[result]
{result}
"""
GRADED = 'options = [{ value = "1", text = "1", grade = 1 }, { value = "0", text = "0", grade = 0 }]'
PLAIN = 'options = [{ value = "yes", text = "Yes" }, { value = "no", text = "No" }]'
SLIDER = 'kind = "slider"'
IMAGES = 'among = "images"'
ONE_IMAGE = "[shows]\nimages = 1\ncaptions = 0"
PAIR = NewItem("a", ("x",), ("A cat.",), body={"image_id": "x", "caption_id": "c"})
PICTURE = NewItem("a", ("x",), (), body={"image_id": "x"})
TWO = NewItem("a", ("x", "y"), ("A cat.",), body={"image_ids": ["x", "y"]})


@pytest.mark.parametrize(
    ("question", "result", "items", "says"),
    [
        (GRADED, 'yields = "ratings"', [PICTURE], "'a' has 0 captions, but ratings are of one caption"),
        (IMAGES, 'yields = "trials"\ncombine = "majority"\nwanted = "image-0"', [PICTURE], "which make no trial"),
        (GRADED, 'yields = "trials"\ncombine = "majority"\nwanted = "1"', [PAIR], "which make no trial"),
        (GRADED, 'yields = "trials"\ncombine = "majority"', [TWO], "does not say which answer accepts"),
        (IMAGES, 'yields = "trials"\ncombine = "majority"\nwanted = "image-2"', [TWO], "'image-2', which nobody can give; image-0"),
        (IMAGES, 'yields = "trials"\ncombine = "unanimous"', [TWO], "which answer all must give"),
        (IMAGES, 'yields = "trials"\ncombine = "mean"', [TWO], "cannot make trials by mean. Set result.combine=majority"),
        (GRADED, "", [PICTURE], "a judgement is of an image and a caption, two captions, two images"),
        (GRADED, "", [PAIR, replace(TWO, key="b")], "'b' has 2 images and 1 captions, but a judgement is of an image and"),
        (GRADED, "", [replace(PAIR, body={})], "'a' has no ids of what it shows"),
        (GRADED, "", [PAIR, replace(PAIR, key="b")], "is about the same as item 'a'. Keep one"),
        (GRADED, "", [NewItem("a", ("x", "x"), (), body={"image_ids": ["x", "x"]})], "compares it with itself"),
        (PLAIN, "", [PAIR], "option 'yes' of 'q' has no grade"),
        (PLAIN, 'combine = "majority"', [PAIR], "no option of 'q' has a grade"),
        (IMAGES, "", [TWO], "what is chosen of 'q' has no grade"),
        (PLAIN, 'yields = "ratings"', [PAIR], "option 'yes' of 'q' has no grade"),
        (GRADED, 'combine = "unanimous"\nwanted = "1"', [PAIR], "cannot make judgements by unanimous"),
        (SLIDER, 'combine = "majority"', [PAIR], "hardly ever equal, and majority counts equal ones"),
        (PLAIN, 'yields = "preferences"\ncombine = "majority"', [PAIR], "preferences are choices of two lists"),
        (PLAIN, 'yields = "choices"\ncombine = "mean"', [PAIR], "cannot make choices by mean"),
    ],
)
def test_what_cannot_become_a_result_is_refused_with_a_remedy(tmp_path, question, result, items, says):
    (tmp_path / "mine.toml").write_text(MINE.format(shows="", question=question, result=result))
    with pytest.raises(CrossmatchError, match=says):
        require_result(load_design(tmp_path / "mine.toml"), items)


def test_lists_must_name_their_systems():
    one = NewItem("q", ("x", "y"), ("A query.",), body={"systems": ["A", "A"]})
    with pytest.raises(CrossmatchError, match="does not name its two `systems`"):
        require_result(load_design("ranking-preference"), [one])


def test_choices_in_blocks_are_of_whole_trials(shop):
    design = load_design("bivlc-human")
    work = [one for one in world_items(design, WORDS, 8, shop).items if one.gold is None]
    with pytest.raises(CrossmatchError, match="has 3 of its 4 choices"):
        require_result(design, work[1:])
    with pytest.raises(CrossmatchError, match="is no choice of a trial"):
        require_result(design, [replace(work[0], body={}), *work[1:]])


def test_trials_of_two_shapes_are_two_studies():
    whole = {"captions": ["A cat.", "A dog."]}
    items = [TWO, replace(TWO, key="b", body={**TWO.body, "trial_of": whole})]
    with pytest.raises(CrossmatchError, match="trials of 2x1 and 2x2, and a file of trials has one shape"):
        require_result(load_design("bivlc-ambiguity"), items)


def test_gold_is_no_part_of_the_result():
    gold = replace(PICTURE, key="g", captions=("x",), gold={"q": ("1",)}, kind="positive", body={})
    require_result(load_design("sits"), [PAIR, gold])


def test_a_study_that_cannot_be_exported_is_not_begun(small, tmp_path):
    (tmp_path / "mine.toml").write_text(MINE.format(shows=ONE_IMAGE, question=GRADED, result='yields = "ratings"'))
    design = load_design(tmp_path / "mine.toml")
    (tmp_path / "items.jsonl").write_text('{"image": "cat.jpg"}\n')
    (tmp_path / "cat.jpg").write_bytes(b"never opened")
    with pytest.raises(CrossmatchError, match="ratings are of one caption each"):
        begin_study(small, design, read_items(tmp_path / "items.jsonl", design))
    assert not any(small.pictures.iterdir())
