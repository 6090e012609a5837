"""Hard negatives by rules: expected negatives of each category, excluded ones, and bad input."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.benchmarks.sugarcrepe import CATEGORIES
from crossmatch.build.negatives.add import SCENE_OBJECTS, UNUSUAL_ATTRIBUTES, add_attribute, add_object, unmentioned_attributes
from crossmatch.build.negatives.by_rules import RULES, draw_negative, normalise_text, unreadable_reason, write_rule_negatives
from crossmatch.build.negatives.caption_context import CaptionContext
from crossmatch.build.negatives.contrasts import (
    CONTRASTS,
    OBJECT_NAMES,
    SPATIAL_RELATIONS,
    VERB_CLASSES,
    compatible_attributes,
    contrasting_attributes,
    verb_alternatives,
)
from crossmatch.build.negatives.noun_categories import object_kind
from crossmatch.build.negatives.replace import ATTRIBUTE_OWNERS, replace_attribute, replace_object, replace_relation
from crossmatch.build.negatives.replacement_objects import FAMILIES, aliases, all_groups, find_groups, replacement_objects
from crossmatch.build.negatives.swap import SWAPPED_KINDS, swap_attribute, swap_object
from crossmatch.build.step_files import read_rows
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.text.inflection import inflect, lemmatise
from crossmatch.text.noun_phrases import tag_captions
from crossmatch.text.wordnet import caption_sense, synsets


def options(rule, caption: str, *other_captions: str) -> dict[str, str]:
    """All negatives that a rule offers for a caption, by the inserted words."""
    tagged = tag_captions([caption, *other_captions])
    return {option.after: tagged[0].apply(option.edits) for option in rule(tagged[0], CaptionContext(tuple(tagged)))}


# -- replacing

EXPECTED = (
    # articles agree with the next word
    (replace_object, "A zebra walks.", "elephant", "An elephant walks."),
    (replace_attribute, "An old car.", "new", "A new car."),
    (add_attribute, "An umbrella there.", "purple", "A purple umbrella there."),
    # compound nouns are one object
    (replace_object, "A stop sign near a wall.", "mailbox", "A mailbox near a wall."),
    (replace_object, "A polar bear stands.", "camel", "A camel stands."),
    # pronouns change with the gender
    (replace_object, "A man walks his dog while he talks.", "woman", "A woman walks her dog while she talks."),
    (replace_object, "A woman looks at her phone.", "man", "A man looks at his phone."),
    (replace_object, "A woman with a dog behind her.", "man", "A man with a dog behind him."),
    (replace_relation, "A cat sleeps on the bed.", "under", "A cat sleeps under the bed."),
    (replace_relation, "A man in front of a bus.", "behind", "A man behind a bus."),
    (replace_relation, "A man riding a horse.", "feeding", "A man feeding a horse."),
    (replace_relation, "A woman holds an umbrella.", "drops", "A woman drops an umbrella."),
    (swap_attribute, "A red bus near a blue car.", "blue … red", "A blue bus near a red car."),
    (swap_attribute, "A woman with two dogs.", "two … a", "Two women with a dog."),
    (swap_attribute, "An old man with two apples.", "two … a", "Two old men with an apple."),
)


@pytest.mark.parametrize(("rule", "caption", "inserted", "negative"), EXPECTED)
def test_rule_offers_the_expected_negative(rule, caption: str, inserted: str, negative: str) -> None:
    assert options(rule, caption)[inserted] == negative


def test_object_is_replaced_by_another_of_its_family() -> None:
    negatives = options(replace_object, "Two zebras graze.")
    assert negatives["elephants"] == "Two elephants graze."
    assert not {"zebra", "horse", "animals"} & negatives.keys()


def test_objects_of_other_captions_are_not_inserted() -> None:
    assert "giraffe" in options(replace_object, "A zebra stands.")
    assert "giraffe" not in options(replace_object, "A zebra stands.", "A zebra and a giraffe.")
    assert "rabbit" not in options(replace_object, "A dog sits.", "Two bunnies and a dog."), "bunny is another name of a rabbit"
    assert "elephant" not in options(replace_object, "A zebra stands.", "Several animals in a field."), (
        "the animals may include an elephant"
    )
    assert "elephant" in options(replace_object, "A zebra stands.", "An animal in a field."), "the animal is the zebra"


def test_synonyms_hypernyms_and_hyponyms_are_not_inserted() -> None:
    for noun in ("dog", "sofa", "bird", "car", "boat", "street", "woman", "pizza", "cup", "laptop", "horse", "truck"):
        for new in replacement_objects(noun):
            if new not in options(replace_object, f"There is a {noun}."):
                continue
            assert not {new} & aliases(noun)
            hypernym_names = [set(synset.lemmas) for synset in hypernyms(noun)], [set(synset.lemmas) for synset in hypernyms(new)]
            assert not any(new in names for names in hypernym_names[0]), (noun, new)
            assert not any(noun in names for names in hypernym_names[1]), (noun, new)


def hypernyms(noun: str) -> list:
    level, all_levels = [caption_sense(noun, "n")], []
    while any(level):
        all_levels += [synset for synset in level if synset]
        level = [hypernym for synset in level if synset for hypernym in synset.related("@", "@i")]
    return all_levels


def test_gender_stays_if_both_may_be_present() -> None:
    for caption in ("A woman and a man on a bench.", "A couple on a bench.", "Some people.", "She sits there."):
        assert "woman" not in options(replace_object, "A man sits on a bench.", caption), caption
    assert "woman" not in options(replace_object, "A bearded man sits.")


def test_attributes_become_contradicting_ones() -> None:
    negatives = options(replace_attribute, "A wooden bench near a red car.")
    assert negatives["metal"] == "A metal bench near a red car."
    assert negatives["blue"] == "A wooden bench near a blue car."
    assert not {"pink", "orange", "maroon", "wood", "red"} & negatives.keys(), "too similar to contradict red"


def test_numbers_become_larger() -> None:
    negatives = options(replace_attribute, "Three dogs on 2 beds.")
    assert set(negatives) == {"five", "six", "4", "5"}
    assert negatives["five"] == "Five dogs on 2 beds."
    assert "five" not in options(replace_attribute, "Three dogs.", "There are five dogs.")


def test_prepositions_without_a_place_stay() -> None:
    assert not options(replace_relation, "A man in a suit.")
    assert not options(replace_relation, "A vase standing there.")
    assert "under" not in options(replace_relation, "A man looking out over a house.")


# -- swapping


def test_objects_of_a_one_way_relation_are_swapped() -> None:
    assert list(options(swap_object, "A dog chasing a cat.").values()) == ["A cat chasing a dog."]
    assert list(options(swap_object, "An orange cup on a plate.").values()) == ["A plate on an orange cup."]


NOT_OFFERED = (
    (swap_object, "A dog and a cat."),
    (swap_object, "A dog next to a cat."),
    (swap_object, "A dog with a cat."),
    (swap_object, "A man holding his dog."),
    (swap_object, "Dogs are chasing a cat."),
    (swap_object, "A cat on a street."),
    (swap_object, "A man holding a cup holds a plate."),
    (swap_object, "A plate full of cake on a table."),
    (swap_attribute, "A red bus near a red car."),
    (swap_attribute, "A red bus near a wooden car."),
    (swap_attribute, "A red bus near a blue bus."),
    (swap_attribute, "A woman is with two dogs."),
    (swap_attribute, "A red bus near a blue car.", "A blue bus."),
    (replace_attribute, "A black and white photo of a dog."),
    (replace_attribute, "A partly cloudy day."),
    (replace_attribute, "A young boy."),
    (replace_object, "A cat looks at the cat."),
)


@pytest.mark.parametrize("arguments", NOT_OFFERED, ids=lambda arguments: arguments[1])
def test_no_negative_is_offered_if_it_may_be_true_or_ungrammatical(arguments) -> None:
    assert not options(*arguments)


# -- adding


def test_added_object_fits_the_scene_and_is_not_mentioned() -> None:
    negatives = options(add_object, "A skier on a slope.")
    assert negatives["next to a snowman"] == "A skier on a slope next to a snowman."
    assert not any("snowman" in text for text in options(add_object, "A skier on a slope.", "A snowman in the snow.").values())


def test_added_attribute_contradicts_another_caption() -> None:
    negatives = options(add_attribute, "A man walks.", "A young man in a park.")
    assert negatives["elderly"] == "An elderly man walks."
    assert "young" not in negatives
    assert "blindfolded" not in negatives


def test_added_attribute_is_one_that_captions_would_mention() -> None:
    assert "masked" in options(add_attribute, "A man walks.")
    assert "masked" not in options(add_attribute, "A man walks.", "A skier in the snow.")


# -- the tables


def test_every_object_name_has_a_group_and_a_plural() -> None:
    for group in all_groups():
        assert group.family in FAMILIES
        for name in group.names:
            assert name == name.strip()
            assert name
            assert inflect(name, "NNS").strip()
        assert group in find_groups(group.name)


def test_groups_of_a_family_share_no_name() -> None:
    for family in FAMILIES:
        names = Counter(name for group in all_groups() if group.family == family for name in group.names)
        assert names.most_common(1)[0][1] == 1, (family, names.most_common(1))


def test_every_kind_of_attribute_has_owners() -> None:
    used = {kind for kinds in contrasting_attributes().values() for kind, _ in kinds}
    assert used == set(ATTRIBUTE_OWNERS)
    assert set(SWAPPED_KINDS) <= used
    assert set(CONTRASTS) <= used
    assert all(
        kind in {object_kind(noun) for noun in ("man", "dog", "bus")} or unmentioned_attributes(kind) for kind in UNUSUAL_ATTRIBUTES
    )


def test_no_attribute_contradicts_itself_or_similar_ones() -> None:
    for attribute, kinds in contrasting_attributes().items():
        for _, alternatives in kinds:
            assert attribute not in alternatives
            assert "opposed" in dict(kinds) or not set(alternatives) & compatible_attributes(attribute)


def test_no_verb_is_replaced_by_a_synonym() -> None:
    for verb, kinds in verb_alternatives().items():
        for _, _, alternatives in kinds:
            for alternative in alternatives:
                base = lemmatise(alternative.removeprefix("="), "v")
                assert base != verb
                first, second = (next(iter(synsets(word, "v")), None) for word in (verb, base))
                if first is not None and second is not None:
                    assert first != second, (verb, base)
    assert len(VERB_CLASSES) > 20
    assert all(kind in OBJECT_NAMES or kind == "seen" for _, kind, _ in SPATIAL_RELATIONS)


def test_added_objects_do_not_indicate_their_scene() -> None:
    for manifest, objects in SCENE_OBJECTS.values():
        assert not set(manifest.split()) & {name.strip() for name in objects.split(";")}


# -- the step


PETS = {
    "1": ["A dog chasing a cat.", "A brown dog and a cat in a garden."],
    "2": ["Two zebras near a tree.", "Zebras."],
    "3": ["A red bus near a blue car.", "A bus on a street."],
}


def test_categories_are_those_of_sugarcrepe() -> None:
    assert set(RULES) == set(CATEGORIES)


def test_rows_record_the_changed_words(tmp_path: Path) -> None:
    manifest = write_rule_negatives(Collection.from_captions(PETS), tmp_path / "a")
    rows = read_rows(tmp_path / "a", "negatives")
    assert manifest["finished"]
    assert manifest["rows"] == len(rows) > 15
    assert len({row["id"] for row in rows}) == len(rows)
    for row in rows:
        assert set(row) == {"id", "caption_id", "image_id", "caption", "negative", "category", "changed"}
        assert row["category"] in CATEGORIES
        assert row["negative"] != row["caption"]
        assert row["caption_id"].startswith(row["image_id"])
        before, after = row["changed"]
        assert after.split(" … ")[0].lower() in row["negative"].lower()
        assert before.split(" … ")[0].lower() in row["caption"].lower()
    assert manifest["counts"]["captions"] == 6
    for category in CATEGORIES:
        assert manifest["counts"].get(category, 0) + manifest["counts"].get(f"no rule applies: {category}", 0) == 6


def test_rows_do_not_depend_on_order_or_other_captions(tmp_path: Path) -> None:
    write_rule_negatives(Collection.from_captions(PETS), tmp_path / "a", seed=3)
    reordered = Collection.from_captions(PETS).select(np.array([2, 0, 1]), np.array([5, 3, 1, 0, 4, 2]))
    write_rule_negatives(reordered, tmp_path / "b", seed=3)
    assert (tmp_path / "a" / "rows.jsonl").read_bytes() == (tmp_path / "b" / "rows.jsonl").read_bytes()
    write_rule_negatives(Collection.from_captions(PETS), tmp_path / "c", seed=3, captions=2, categories=["swap/obj", "add/att"])
    rows_by_id = {row["id"]: row for row in read_rows(tmp_path / "a")}
    assert all(rows_by_id[row["id"]] == row for row in read_rows(tmp_path / "c"))


def test_seed_changes_the_negatives(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_rule_negatives(Collection.from_captions(PETS), tmp_path / str(seed), seed=seed)
    first, second = (read_rows(tmp_path / name) for name in "12")
    assert [row["negative"] for row in first] != [row["negative"] for row in second]


def test_unknown_categories_and_too_many_captions_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Did you mean 'swap/obj'"):
        write_rule_negatives(Collection.from_captions(PETS), tmp_path / "a", categories=["swap/object"])
    with pytest.raises(UsageError, match="no category"):
        write_rule_negatives(Collection.from_captions(PETS), tmp_path / "a", categories=[])
    with pytest.raises(UsageError, match=r"from 0 \(all\) to 6"):
        write_rule_negatives(Collection.from_captions(PETS), tmp_path / "a", captions=7)


def test_collection_without_texts_is_rejected(tmp_path: Path) -> None:
    without_texts = Collection(np.array(["i"]), np.array(["c"]), (), np.array([[0, 0]]))
    with pytest.raises(CrossmatchError, match="no texts"):
        write_rule_negatives(without_texts, tmp_path / "a")


# -- bad input


BAD = {
    "одна собака": "another script",
    "一只狗在沙发上": "another script",
    "🐕🐕🐕": "no words",
    "...": "no words",
    "un perro en la mesa con el gato": "another language",
    "dog " * 10_000: "too long",
    "x" * 100_000: "too long",
}


def test_unreadable_captions_are_counted_by_reason(tmp_path: Path) -> None:
    manifest = write_rule_negatives(
        Collection.from_captions({str(n): [text, "A dog."] for n, text in enumerate(BAD)}), tmp_path / "a"
    )
    reasons = {key.removeprefix("passed over: "): n for key, n in manifest["counts"].items() if key.startswith("passed over")}
    assert reasons == dict(Counter(BAD.values()))
    assert {row["caption"] for row in read_rows(tmp_path / "a")} == {"A dog."}


@pytest.mark.parametrize(
    "text", ["Dog", "dog.", "A", "the the the", "Los Angeles", "A dog 🐕 on a bed", "A DOG ON A BED", "\tA dog\n\n sits\x00."]
)
def test_odd_captions_give_different_negatives(text: str, tmp_path: Path) -> None:
    write_rule_negatives(Collection.from_captions({"1": [text]}), tmp_path / "a")
    for row in read_rows(tmp_path / "a"):
        assert normalise_text(row["negative"]) != normalise_text(text)


WORDS = [
    *("a", "an", "the", "two", "red", "large", "his", "dog", "cat", "man", "woman", "bus", "street", "table"),
    *("on", "in", "near", "of", "and", "with", "riding", "sitting", "is", "are", ".", ",", "'s"),
]


@given(st.one_of(st.lists(st.sampled_from(WORDS), min_size=1, max_size=14).map(" ".join), st.text(max_size=200)))
def test_no_text_crashes_a_rule(text: str) -> None:
    if unreadable_reason(text) not in ("", "another language"):
        return
    tagged = tag_captions([text])
    for category in CATEGORIES:
        negatives = draw_negative(category, tagged[0], CaptionContext(tuple(tagged)), 0, "c")
        assert negatives is None or negatives.text != text


# -- on real captions


def test_rules_on_coco_equal_the_published_sheet(real_data: Path, tmp_path: Path) -> None:
    import make_negatives_sheet as sheet
    from crossmatch.benchmarks.coco import coco_collection

    start = time.process_time()
    rows = sheet.made(coco_collection("test"), sheet.SEED, sheet.CAPTIONS)
    assert time.process_time() - start < 60
    counts = Counter(row["category"] for row in rows)
    assert counts["replace/obj"] > 800
    assert counts["add/obj"] > 800
    assert counts["replace/att"] > 250
    assert counts["swap/att"] > 20
    verdicts = sheet.verdicts()
    drawn = sheet.drawn(rows, sheet.SEED)
    assert [[verdicts[row["caption_id"], row["category"]][name] for name in ("before", "after")] for row in drawn] == [
        row["changed"] for row in drawn
    ]
    correct = [row for row in verdicts.values() if row["grammatical"] == row["false"] == "yes"]
    assert len(correct) / len(verdicts) >= 0.8
    assert len(verdicts) == 50
    assert all(tuple(row) == sheet.COLUMNS for row in verdicts.values()), "captions are not published"
