"""What cannot become a result is refused before anybody works; what can, is not: all presets with items of the embedded world."""

from dataclasses import replace

import pytest

from crossmatch.data.errors import CrossmatchError
from crossmatch.study.design.add_study import add_study
from crossmatch.study.design.data_source import world_of
from crossmatch.study.design.declaration import load_design, preset_names
from crossmatch.study.design.item_files import read_items
from crossmatch.study.design.new_items import NewItem
from crossmatch.study.design.result_requirements import require_result
from crossmatch.study.simulation.diorama_items import DEFAULT_DATA, world_items
from crossmatch.study.simulation.item_generators import ItemFactory


@pytest.fixture(scope="module")
def shop():
    return ItemFactory(world_of(DEFAULT_DATA))


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_meets_the_requirements_of_its_result(shop, name):
    design = load_design(name)
    require_result(design, world_items(design, DEFAULT_DATA, 4, shop).items)


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
PAIR = NewItem("a", ("x",), ("A cat.",), details={"image_id": "x", "caption_id": "c"})
PICTURE = NewItem("a", ("x",), (), details={"image_id": "x"})
TWO = NewItem("a", ("x", "y"), ("A cat.",), details={"image_ids": ["x", "y"]})


@pytest.mark.parametrize(
    ("question", "result", "items", "message"),
    [
        (GRADED, 'yields = "ratings"', [PICTURE], "'a' has 0 captions, but a rating is of one caption"),
        (
            IMAGES,
            'yields = "trials"\ncombine = "majority"\nwanted = "image-0"',
            [PICTURE],
            "but a trial needs at least one of each",
        ),
        (GRADED, 'yields = "trials"\ncombine = "majority"\nwanted = "1"', [PAIR], "but a trial needs at least one of each"),
        (GRADED, 'yields = "trials"\ncombine = "majority"', [TWO], "does not name the answer that accepts"),
        (
            IMAGES,
            'yields = "trials"\ncombine = "majority"\nwanted = "image-2"',
            [TWO],
            "'image-2', which is not an answer to item 'a'. Set it to one of image-0",
        ),
        (IMAGES, 'yields = "trials"\ncombine = "unanimous"', [TWO], "does not name the accepting answer"),
        (IMAGES, 'yields = "trials"\ncombine = "mean"', [TWO], "cannot make trials by mean. Set result.combine=majority"),
        (GRADED, "", [PICTURE], "a judgement needs an image and a caption, two captions, two images"),
        (GRADED, "", [PAIR, replace(TWO, key="b")], "'b' has 2 images and 1 captions, but a judgement needs an image and"),
        (GRADED, "", [replace(PAIR, details={})], "'a' has no ids for its images and captions"),
        (GRADED, "", [PAIR, replace(PAIR, key="b")], "has the same pair as item 'a' .* Keep one"),
        (GRADED, "", [NewItem("a", ("x", "x"), (), details={"image_ids": ["x", "x"]})], "compares image 'x' with itself"),
        (PLAIN, "", [PAIR], "option 'yes' of question 'q' has no grade"),
        (PLAIN, 'combine = "majority"', [PAIR], "no option of question 'q' has a grade"),
        (IMAGES, "", [TWO], "the chosen value of question 'q' has no grade"),
        (PLAIN, 'yields = "ratings"', [PAIR], "option 'yes' of question 'q' has no grade"),
        (GRADED, 'combine = "unanimous"\nwanted = "1"', [PAIR], "cannot make judgements by unanimous"),
        (SLIDER, 'combine = "majority"', [PAIR], "majority counts equal answers, but answers on the slider 'q' are rarely equal"),
        (PLAIN, 'yields = "preferences"\ncombine = "majority"', [PAIR], "preferences need a choice between two lists"),
        (PLAIN, 'yields = "choices"\ncombine = "mean"', [PAIR], "cannot make choices by mean"),
    ],
)
def test_items_unfit_for_the_result_are_refused(tmp_path, question, result, items, message):
    (tmp_path / "mine.toml").write_text(MINE.format(shows="", question=question, result=result))
    with pytest.raises(CrossmatchError, match=message):
        require_result(load_design(tmp_path / "mine.toml"), items)


def test_lists_must_name_their_systems():
    item = NewItem("q", ("x", "y"), ("A query.",), details={"systems": ["A", "A"]})
    with pytest.raises(CrossmatchError, match="does not name its two `systems`"):
        require_result(load_design("ranking-preference"), [item])


def test_choices_in_blocks_need_complete_trials(shop):
    design = load_design("bivlc-human")
    work = [item for item in world_items(design, DEFAULT_DATA, 8, shop).items if item.gold is None]
    with pytest.raises(CrossmatchError, match="has 3 of its 4 choices"):
        require_result(design, work[1:])
    with pytest.raises(CrossmatchError, match="is not one of the four choices of a trial"):
        require_result(design, [replace(work[0], details={}), *work[1:]])


def test_trials_of_two_shapes_are_refused():
    whole = {"captions": ["A cat.", "A dog."]}
    items = [TWO, replace(TWO, key="b", details={**TWO.details, "trial_of": whole})]
    with pytest.raises(CrossmatchError, match="trials of 2x1 and 2x2, but all trials of a file have one shape"):
        require_result(load_design("bivlc-ambiguity"), items)


def test_gold_items_need_no_result():
    gold = replace(PICTURE, key="g", captions=("x",), gold={"q": ("1",)}, kind="positive", details={})
    require_result(load_design("sits"), [PAIR, gold])


def test_study_without_a_valid_result_is_not_created(small, tmp_path):
    (tmp_path / "mine.toml").write_text(MINE.format(shows=ONE_IMAGE, question=GRADED, result='yields = "ratings"'))
    design = load_design(tmp_path / "mine.toml")
    (tmp_path / "items.jsonl").write_text('{"image": "cat.jpg"}\n')
    (tmp_path / "cat.jpg").write_bytes(b"never opened")
    with pytest.raises(CrossmatchError, match="a rating is of one caption"):
        add_study(small, design, read_items(tmp_path / "items.jsonl", design))
    assert not any(small.images_folder.iterdir())
