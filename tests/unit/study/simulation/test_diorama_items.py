"""Items of every preset from the embedded world: they fit their design, their truth is known, and it can be made again."""

import hashlib
import json

import numpy as np
import pytest

from crossmatch.data.errors import UsageError
from crossmatch.study.assignment import claims, people
from crossmatch.study.database.verification import verify
from crossmatch.study.demo_campaign import EXCLUDES, make_demo
from crossmatch.study.design.add_study import add_study, store_images
from crossmatch.study.design.data_source import world_of
from crossmatch.study.design.declaration import load_design, load_presets, preset_names
from crossmatch.study.design.new_items import require_items
from crossmatch.study.results.answers import load_items
from crossmatch.study.simulation.correct_answers import (
    CORRECT_ANSWERS,
    FileTruth,
    UnknownTruthError,
    ViewedItem,
    average_precision,
    correct_answer,
    read_truth,
)
from crossmatch.study.simulation.diorama_items import EXPLANATIONS, truth_of, world_items
from crossmatch.study.simulation.item_generators import DEFAULT_COUNTS, GENERATORS, OTHER_STYLE, SYSTEMS, ItemFactory
from crossmatch.study.simulation.simulated_annotators import is_right
from crossmatch.study.study import list_studies
from study_lab import link_of

ALL = sorted(load_presets())


@pytest.fixture(scope="module")
def shop():
    return ItemFactory(world_of("diorama:tiny"))


@pytest.fixture(scope="module")
def made(shop):
    return {name: world_items(load_design(name), factory=shop) for name in ALL}


def work_of(material):
    return [item for item in material.items if item.gold is None]


def answer(name, one, truth):
    return correct_answer(name, ViewedItem(one.images, one.captions, load_design(name).shows.lists), truth)


def test_every_preset_has_items_answers_and_explanations():
    assert sorted(GENERATORS) == sorted(DEFAULT_COUNTS) == sorted(CORRECT_ANSWERS) == sorted(EXPLANATIONS) == ALL


@pytest.mark.parametrize("name", ALL)
def test_the_items_fit_the_design(made, name):
    require_items(load_design(name), made[name].items)
    assert len(work_of(made[name])) == DEFAULT_COUNTS[name]


@pytest.mark.parametrize("name", ALL)
def test_items_are_distinct(shop, name):
    keys = [one.key for one in GENERATORS[name](shop)]
    assert len(set(keys)) == len(keys) >= DEFAULT_COUNTS[name]


@pytest.mark.parametrize("name", ALL)
def test_items_are_reproducible(made, name):
    again = world_items(load_design(name))
    assert again.items == made[name].items
    assert again.origin == made[name].origin
    json.dumps(again.origin)


@pytest.mark.parametrize("name", ALL)
def test_truth_can_be_rebuilt_from_the_origin(made, shop, name):
    known = truth_of(made[name].origin)
    for item in made[name].items:
        right = answer(name, item, known)
        assert right is not None
        assert right == answer(name, item, shop.truth)


@pytest.mark.parametrize("name", ALL)
def test_not_all_answers_are_the_same(made, shop, name):
    assert len({str(answer(name, one, shop.truth)) for one in work_of(made[name])}) > 1


@pytest.mark.parametrize("name", ALL)
def test_examples_have_correct_answers_and_explanations(made, shop, name):
    examples = [item for item in made[name].items if item.kind == "example"]
    assert examples
    for one in examples:
        assert one.details["why"]
        right = answer(name, one, shop.truth)
        assert isinstance(right, float) or all(is_right(value, right) for values in one.gold.values() for value in values)


@pytest.mark.parametrize("name", ALL)
def test_every_image_can_be_drawn(made, name):
    images = sorted({image for item in made[name].items for image in item.images})
    for image in images[:2] + images[-1:]:
        assert made[name].open_image(image).size == (512, 512)


def test_presets_with_gold_get_gold_items(made):
    kinds = {name: {item.kind for item in made[name].items} & {"positive", "negative"} for name in ALL}
    assert kinds == {name: {"positive", "negative"} if name == "eccv-hit" else set() for name in ALL}


def test_gold_is_available_for_other_presets():
    design = load_design("bison-select", ["recipe.gold_positive=1", "recipe.gold_negative=1"])
    kinds = {item.kind: item.gold["telling"] for item in world_items(design, n=4).items if item.kind in ("positive", "negative")}
    assert kinds["negative"] == ("none",)
    assert all(value.startswith("caption-") for value in kinds["positive"])


def test_gold_negatives_are_far_from_true(made, shop):
    for item in made["eccv-hit"].items:
        if item.kind in ("positive", "negative"):
            assert shop.truth.grade(item.images[0], item.captions[0]) == (item.kind == "positive")
            assert answer("eccv-hit", item, shop.truth) == (("yes",) if item.kind == "positive" else ("no",))


def test_judged_pairs_have_ids_of_the_collection(made, shop):
    collection = shop.world.collection
    for item in made["eccv-hit"].items:
        assert item.details["image_id"] in collection.image_ids
        column = collection.caption_ids.tolist().index(item.details["caption_id"])
        assert collection.captions[column] == item.details["caption"] == item.captions[0]


def test_the_first_image_of_a_pair_to_verify_is_the_right_one_or_both_are(made, shop):
    values = {answer("bison-verify", item, shop.truth) for item in made["bison-verify"].items}
    assert values == {("image-0",), ("both",)}


def test_similarities_cover_the_scale(made, shop):
    for name in ("sts", "sis", "sits"):
        grades = [answer(name, one, shop.truth) for one in work_of(made[name])]
        assert min(grades) < 0.7
        assert max(grades) > 4


def test_ranked_lists_are_right_where_their_system_is(made, shop):
    for item in made["ranking-preference"].items:
        size = len(item.images) // 2
        for system, images in zip(item.details["systems"], (item.images[:size], item.images[size:]), strict=True):
            fits = [shop.truth.grade(image, item.captions[0]) == 1 for image in images]
            assert fits == [SYSTEMS[system](place, size) for place in range(size)]


def test_the_systems_rank_as_in_the_paper():
    worth = [average_precision([fits(place, 8) for place in range(8)]) for fits in SYSTEMS.values()]
    assert np.allclose(np.round(100 * np.array(worth), 1), [66.0, 12.5, 10.3, 2.5, 0.0])  # chun2022eccv, sec. D.1


def test_choices_among_four_have_one_two_or_no_right_image(made, shop):
    values = {len([v for v in answer("bivlc-choose", one, shop.truth) if v != "none"]) for one in work_of(made["bivlc-choose"])}
    assert values == {0, 1, 2}
    assert all(item.details["original"]["caption"] for item in made["bivlc-choose"].items)


def test_whole_trials_stay_together(made):
    groups = {}
    for one in work_of(made["bivlc-human"]):
        groups.setdefault(one.group, []).append(one.details["query"])
    assert all(sorted(queries) == [0, 1, 2, 3] for queries in groups.values())


def test_the_same_scene_by_the_other_artist_looks_different(shop):
    assert shop.picture(shop.ids[0]).tobytes() != shop.picture(shop.ids[0] + OTHER_STYLE).tobytes()


def test_more_items_than_the_world_has_are_refused():
    with pytest.raises(UsageError, match="Choose a larger size, or fewer items"):
        world_items(load_design("bison-verify"), n=10_000)


def test_custom_design_needs_its_own_items(tmp_path):
    (tmp_path / "mine.toml").write_text('title="t"\nabout="a"\n[[questions]]\nname="q"\ntext="?"\namong="images"\n')
    with pytest.raises(UsageError, match=r"has no items for 'mine'.*Give a file: --items"):
        world_items(load_design(tmp_path / "mine.toml"))


def test_other_data_has_no_truth():
    assert truth_of({"data": "collection:pets"}) is None
    assert truth_of({}) is None


# A truth from a file


def test_a_truth_file_knows_the_pairs_it_names(tmp_path):
    (tmp_path / "truth.csv").write_text("image,caption,grade\na,A cat.,2\nb,c7,0\na,c7,1\n")
    truth = read_truth(tmp_path / "truth.csv", {"c7": "A dog."})
    assert [truth.grade("a", "A cat."), truth.grade("b", "A dog."), truth.grade("a", "A dog.")] == [1, 0, 0.5]
    said = [
        correct_answer("eccv-hit", ViewedItem((image,), (text,)), truth)
        for image, text in (("a", "A cat."), ("b", "A dog."), ("a", "A dog."))
    ]
    assert said == [("yes",), ("no",), ("weak-yes",)]
    assert correct_answer("eccv-hit", ViewedItem(("z",), ("A cat.",)), truth) is None


def test_a_truth_file_knows_nothing_of_two_captions():
    with pytest.raises(UnknownTruthError):
        FileTruth({("a", "A cat."): 1.0}, 1.0).similarity(("caption", "A cat."), ("caption", "A dog."))


# The demonstration


def test_demo_has_a_study_of_each_preset_and_is_created_once(tmp_path):
    campaign = make_demo(tmp_path / "demo")
    values = {study.name: study for study in list_studies(campaign)}
    assert sorted(values) == preset_names()
    for path in campaign.images_folder.iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.stem
    with campaign.read_transaction() as connection:
        for one in values.values():
            for thing in load_items(connection, one.id).values():
                assert all((campaign.images_folder / image).is_file() for image in thing.images)
    assert {verified.study for verified in verify(campaign)} == set(values)
    assert set(EXCLUDES) <= set(values)
    campaign.close()
    again = make_demo(tmp_path / "demo")
    assert len(list_studies(again)) == len(values)
    again.close()


def test_items_are_placed_by_the_files_of_their_pictures(made, tmp_path):
    items = store_images(tmp_path, made["caption-correctness"])
    assert [item.key for item in items] == [item.key for item in made["caption-correctness"].items]
    assert all((tmp_path / image).is_file() for item in items for image in item.images)


def test_verification_excludes_people_of_the_selection(small):
    """hu2019bison, sec. 3; the studies go by any names."""
    select, verify_ = load_design("bison-select"), load_design("bison-verify")
    first = add_study(small, select, world_items(select, n=2), name="stage-one")
    second = add_study(small, verify_, world_items(verify_, n=2), name="stage-two")
    _, anna = people.join_study(small, link_of(small, first), "anna")
    for study_id in (first, second):
        people.give_consent(small, study_id, anna.id)
    claims.claim_hit(small, first, anna.id)
    with pytest.raises(claims.NoHitAvailableError) as error:
        claims.claim_hit(small, second, anna.id)
    assert error.value.reason == "excluded"
