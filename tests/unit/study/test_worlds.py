"""Items of every preset from the embedded world: they fit their design, their truth is known, and it can be made again."""

import hashlib
import json

import numpy as np
import pytest

from crossmatch.core.errors import WrongWords
from crossmatch.study import assign, people
from crossmatch.study.annotators import is_right
from crossmatch.study.begin import require_items
from crossmatch.study.demo import KEPT_APART, make_demo
from crossmatch.study.design import load_design, names, presets
from crossmatch.study.ideal import IDEAL, FileTruth, Seen, Unknown, average_precision, ideal, read_truth
from crossmatch.study.items import begin_study, placed
from crossmatch.study.makers import AGAIN, MAKERS, SYSTEMS, USUAL, Shop
from crossmatch.study.said import studies, things
from crossmatch.study.sources import world_of
from crossmatch.study.verify import verify
from crossmatch.study.worlds import WHY, known_of, world_items
from study_lab import link_of

ALL = sorted(presets())


@pytest.fixture(scope="module")
def shop():
    return Shop(world_of("diorama:tiny"))


@pytest.fixture(scope="module")
def made(shop):
    return {name: world_items(load_design(name), shop=shop) for name in ALL}


def work_of(material):
    return [one for one in material.items if one.gold is None]


def answer(name, one, truth):
    return ideal(name, Seen(one.images, one.captions, load_design(name).shows.lists, one.block), truth)


def test_every_preset_has_a_maker_an_answer_and_words_for_its_examples():
    assert sorted(MAKERS) == sorted(USUAL) == sorted(IDEAL) == sorted(WHY) == ALL


@pytest.mark.parametrize("name", ALL)
def test_the_items_fit_the_design(made, name):
    require_items(load_design(name), made[name].items)
    assert len(work_of(made[name])) == USUAL[name]


@pytest.mark.parametrize("name", ALL)
def test_no_item_is_made_twice(shop, name):
    keys = [one.key for one in MAKERS[name](shop)]
    assert len(set(keys)) == len(keys) >= USUAL[name]


@pytest.mark.parametrize("name", ALL)
def test_the_same_words_give_the_same_items(made, name):
    again = world_items(load_design(name))
    assert again.items == made[name].items
    assert again.origin == made[name].origin
    json.dumps(again.origin)


@pytest.mark.parametrize("name", ALL)
def test_the_truth_is_known_and_can_be_made_again_from_where_the_items_came(made, shop, name):
    known = known_of(made[name].origin)
    for one in made[name].items:
        right = answer(name, one, known)
        assert right is not None
        assert right == answer(name, one, shop.truth)


@pytest.mark.parametrize("name", ALL)
def test_not_all_answers_are_the_same(made, shop, name):
    assert len({str(answer(name, one, shop.truth)) for one in work_of(made[name])}) > 1


@pytest.mark.parametrize("name", ALL)
def test_examples_are_answered_as_they_should_be_and_say_why(made, shop, name):
    examples = [one for one in made[name].items if one.kind == "example"]
    assert examples
    for one in examples:
        assert one.body["why"]
        right = answer(name, one, shop.truth)
        assert isinstance(right, float) or all(is_right(value, right) for values in one.gold.values() for value in values)


@pytest.mark.parametrize("name", ALL)
def test_every_image_can_be_drawn(made, name):
    images = sorted({image for one in made[name].items for image in one.images})
    for image in images[:2] + images[-1:]:
        assert made[name].open_image(image).size == (512, 512)


def test_gold_is_there_where_the_preset_asks_for_it(made):
    kinds = {name: {one.kind for one in made[name].items} & {"positive", "negative"} for name in ALL}
    assert kinds == {name: {"positive", "negative"} if name == "eccv-hit" else set() for name in ALL}


def test_gold_can_be_asked_for_in_other_studies():
    design = load_design("bison-select", ["recipe.gold_positive=1", "recipe.gold_negative=1"])
    kinds = {one.kind: one.gold["telling"] for one in world_items(design, n=4).items if one.kind in ("positive", "negative")}
    assert kinds["negative"] == ("none",)
    assert all(value.startswith("caption-") for value in kinds["positive"])


def test_gold_negatives_are_far_from_true(made, shop):
    for one in made["eccv-hit"].items:
        if one.kind in ("positive", "negative"):
            assert shop.truth.grade(one.images[0], one.captions[0]) == (one.kind == "positive")
            assert answer("eccv-hit", one, shop.truth) == (("yes",) if one.kind == "positive" else ("no",))


def test_judged_pairs_have_ids_of_the_collection(made, shop):
    collection = shop.world.collection
    for one in made["eccv-hit"].items:
        assert one.body["image_id"] in collection.image_ids
        column = collection.caption_ids.tolist().index(one.body["caption_id"])
        assert collection.captions[column] == one.body["caption"] == one.captions[0]


def test_the_first_image_of_a_pair_to_verify_is_the_right_one_or_both_are(made, shop):
    said = {answer("bison-verify", one, shop.truth) for one in made["bison-verify"].items}
    assert said == {("image-0",), ("both",)}


def test_similarities_cover_the_scale(made, shop):
    for name in ("sts", "sis", "sits"):
        grades = [answer(name, one, shop.truth) for one in work_of(made[name])]
        assert min(grades) < 0.7
        assert max(grades) > 4


def test_ranked_lists_are_right_where_their_system_is(made, shop):
    for one in made["ranking-preference"].items:
        size = len(one.images) // 2
        for system, images in zip(one.body["systems"], (one.images[:size], one.images[size:]), strict=True):
            fits = [shop.truth.grade(image, one.captions[0]) == 1 for image in images]
            assert fits == [SYSTEMS[system](place, size) for place in range(size)]


def test_the_systems_rank_as_in_the_paper():
    worth = [average_precision([fits(place, 8) for place in range(8)]) for fits in SYSTEMS.values()]
    assert np.allclose(np.round(100 * np.array(worth), 1), [66.0, 12.5, 10.3, 2.5, 0.0])  # chun2022eccv, sec. D.1


def test_choices_among_four_have_one_two_or_no_right_image(made, shop):
    found = {len([v for v in answer("bivlc-choose", one, shop.truth) if v != "none"]) for one in work_of(made["bivlc-choose"])}
    assert found == {0, 1, 2}
    assert all(one.body["original"]["caption"] for one in made["bivlc-choose"].items)


def test_whole_trials_stay_together(made):
    groups = {}
    for one in work_of(made["bivlc-human"]):
        groups.setdefault(one.group, []).append(one.body["query"])
    assert all(sorted(queries) == [0, 1, 2, 3] for queries in groups.values())


def test_the_same_scene_by_the_other_artist_looks_different(shop):
    assert shop.picture(shop.ids[0]).tobytes() != shop.picture(shop.ids[0] + AGAIN).tobytes()


def test_more_items_than_the_world_has_are_refused():
    with pytest.raises(WrongWords, match="Take a larger world, or fewer items"):
        world_items(load_design("bison-verify"), n=10_000)


def test_a_design_of_ones_own_needs_items_of_its_own(tmp_path):
    (tmp_path / "mine.toml").write_text('title="t"\nabout="a"\n[[questions]]\nname="q"\ntext="?"\namong="images"\n')
    with pytest.raises(WrongWords, match=r"has no items for 'mine'.*Give a file of items"):
        world_items(load_design(tmp_path / "mine.toml"))


def test_of_other_data_nothing_is_known():
    assert known_of({"data": "collection:pets"}) is None
    assert known_of({}) is None


# A truth from a file


def test_a_truth_file_knows_the_pairs_it_names(tmp_path):
    (tmp_path / "truth.csv").write_text("image,caption,grade\na,A cat.,2\nb,c7,0\na,c7,1\n")
    truth = read_truth(tmp_path / "truth.csv", {"c7": "A dog."})
    assert [truth.grade("a", "A cat."), truth.grade("b", "A dog."), truth.grade("a", "A dog.")] == [1, 0, 0.5]
    said = [
        ideal("eccv-hit", Seen((image,), (text,)), truth) for image, text in (("a", "A cat."), ("b", "A dog."), ("a", "A dog."))
    ]
    assert said == [("yes",), ("no",), ("weak-yes",)]
    assert ideal("eccv-hit", Seen(("z",), ("A cat.",)), truth) is None


def test_a_truth_file_knows_nothing_of_two_captions():
    with pytest.raises(Unknown):
        FileTruth({("a", "A cat."): 1.0}, 1.0).alike(("caption", "A cat."), ("caption", "A dog."))


# The demonstration


def test_the_demonstration_has_a_study_of_each_preset_and_is_made_once(tmp_path):
    campaign = make_demo(tmp_path / "demo")
    found = {one.name: one for one in studies(campaign)}
    assert sorted(found) == names()
    for path in campaign.pictures.iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.stem
    with campaign.reading() as connection:
        for one in found.values():
            for thing in things(connection, one.id).values():
                assert all((campaign.pictures / image).is_file() for image in thing.images)
    assert {one.study for one in verify(campaign)} == set(found)
    assert set(KEPT_APART) <= set(found)
    campaign.close()
    again = make_demo(tmp_path / "demo")
    assert len(studies(again)) == len(found)
    again.close()


def test_items_are_placed_by_the_files_of_their_pictures(made, tmp_path):
    items = placed(tmp_path, made["caption-correctness"])
    assert [one.key for one in items] == [one.key for one in made["caption-correctness"].items]
    assert all((tmp_path / image).is_file() for one in items for image in one.images)


def test_who_selected_captions_does_not_verify_them_without_a_word(small):
    """hu2019bison, sec. 3; the studies go by any names."""
    select, verify_ = load_design("bison-select"), load_design("bison-verify")
    first = begin_study(small, select, world_items(select, n=2), name="stage-one")
    second = begin_study(small, verify_, world_items(verify_, n=2), name="stage-two")
    _, anna = people.join(small, link_of(small, first), "anna")
    for study_id in (first, second):
        people.agree(small, study_id, anna.id)
    assign.claim_hit(small, first, anna.id)
    with pytest.raises(assign.Nothing) as told:
        assign.claim_hit(small, second, anna.id)
    assert told.value.why == "excluded"
