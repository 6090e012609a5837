"""Hard negatives by rules: each category on sentences whose negatives can be foreseen, what must never come out, and bad input."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.benchmarks.sugarcrepe import CATEGORIES
from crossmatch.build.files import read_rows
from crossmatch.build.negative_add import add_attribute, add_object
from crossmatch.build.negative_additions import QUALITIES, SCENES, qualities
from crossmatch.build.negative_contrasts import CONTRASTS, DEEDS, KINDS, PLACES, contrasts, deeds, near
from crossmatch.build.negative_kinds import Mentioned, kind_of
from crossmatch.build.negative_objects import FAMILIES, aliases, groups, groups_of, siblings
from crossmatch.build.negative_replace import SUITS, replace_attribute, replace_object, replace_relation
from crossmatch.build.negative_rules import RULES, negative
from crossmatch.build.negative_swap import SWAPPED, swap_attribute, swap_object
from crossmatch.build.negatives import negatives, plain, unreadable
from crossmatch.build.phrases import read_all
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.language.forms import inflected, lemma
from crossmatch.language.wordnet import meaning, synsets


def options(rule, caption: str, *others: str) -> dict[str, str]:
    """Everything that a rule could make of a caption: {what is put in: the negative}."""
    read = read_all([caption, *others])
    return {option.after: read[0].made(option.edits) for option in rule(read[0], Mentioned(tuple(read)))}


# -- replacing


def test_a_thing_becomes_another_of_its_family() -> None:
    found = options(replace_object, "Two zebras graze.")
    assert found["elephants"] == "Two elephants graze."
    assert not {"zebra", "horse", "animals"} & found.keys()


def test_articles_follow_what_they_stand_before() -> None:
    assert options(replace_object, "A zebra walks.")["elephant"] == "An elephant walks."
    assert options(replace_attribute, "An old car.")["new"] == "A new car."
    assert options(add_attribute, "An umbrella there.")["purple"] == "A purple umbrella there."


def test_compounds_are_one_thing() -> None:
    assert options(replace_object, "A stop sign near a wall.")["mailbox"] == "A mailbox near a wall."
    assert options(replace_object, "A polar bear stands.")["camel"] == "A camel stands."


def test_what_another_caption_mentions_is_not_put_in() -> None:
    assert "giraffe" in options(replace_object, "A zebra stands.")
    assert "giraffe" not in options(replace_object, "A zebra stands.", "A zebra and a giraffe.")
    assert "rabbit" not in options(replace_object, "A dog sits.", "Two bunnies and a dog."), "by another name"
    assert "elephant" not in options(replace_object, "A zebra stands.", "Several animals in a field."), "it may be among them"
    assert "elephant" in options(replace_object, "A zebra stands.", "An animal in a field."), "the animal is the zebra"


def test_nothing_broader_narrower_or_equal_takes_the_place_of_a_thing() -> None:
    for noun in ("dog", "sofa", "bird", "car", "boat", "street", "woman", "pizza", "cup", "laptop", "horse", "truck"):
        for new in siblings(noun):
            if new not in options(replace_object, f"There is a {noun}."):
                continue
            assert not {new} & aliases(noun)
            up = [set(synset.lemmas) for synset in _above(noun)], [set(synset.lemmas) for synset in _above(new)]
            assert not any(new in names for names in up[0]), (noun, new)
            assert not any(noun in names for names in up[1]), (noun, new)


def _above(noun: str) -> list:
    level, found = [meaning(noun, "n")], []
    while any(level):
        found += [synset for synset in level if synset]
        level = [up for synset in level if synset for up in synset.related("@", "@i")]
    return found


def test_pronouns_turn_with_their_person() -> None:
    found = options(replace_object, "A man walks his dog while he talks.")
    assert found["woman"] == "A woman walks her dog while she talks."
    assert options(replace_object, "A woman looks at her phone.")["man"] == "A man looks at his phone."
    assert options(replace_object, "A woman with a dog behind her.")["man"] == "A man with a dog behind him."


def test_the_sex_stays_where_there_may_be_both() -> None:
    for other in ("A woman and a man on a bench.", "A couple on a bench.", "Some people.", "She sits there."):
        assert "woman" not in options(replace_object, "A man sits on a bench.", other), other
    assert "woman" not in options(replace_object, "A bearded man sits.")


def test_a_thing_named_twice_stays() -> None:
    assert not options(replace_object, "A cat looks at the cat.")


def test_qualities_become_what_excludes_them() -> None:
    found = options(replace_attribute, "A wooden bench near a red car.")
    assert found["metal"] == "A metal bench near a red car."
    assert found["blue"] == "A wooden bench near a blue car."
    assert not {"pink", "orange", "maroon", "wood", "red"} & found.keys(), "too near to exclude red"


def test_numbers_only_grow() -> None:
    found = options(replace_attribute, "Three dogs on 2 beds.")
    assert set(found) == {"five", "six", "4", "5"}
    assert found["five"] == "Five dogs on 2 beds."
    assert "five" not in options(replace_attribute, "Three dogs.", "There are five dogs.")


@pytest.mark.parametrize("caption", ["A black and white photo of a dog.", "A partly cloudy day.", "A young boy."])
def test_qualities_that_cannot_be_exchanged_stay(caption: str) -> None:
    assert not options(replace_attribute, caption)


def test_places_and_deeds_become_others() -> None:
    assert options(replace_relation, "A cat sleeps on the bed.")["under"] == "A cat sleeps under the bed."
    assert options(replace_relation, "A man in front of a bus.")["behind"] == "A man behind a bus."
    assert options(replace_relation, "A man riding a horse.")["feeding"] == "A man feeding a horse."
    assert options(replace_relation, "A woman holds an umbrella.")["drops"] == "A woman drops an umbrella."


def test_relations_of_things_that_say_no_place_stay() -> None:
    assert not options(replace_relation, "A man in a suit.")
    assert not options(replace_relation, "A vase standing there."), "a vase that stands does not sit"
    assert "under" not in options(replace_relation, "A man looking out over a house.")


# -- swapping


def test_things_swap_where_the_relation_has_a_direction() -> None:
    assert list(options(swap_object, "A dog chasing a cat.").values()) == ["A cat chasing a dog."]
    assert list(options(swap_object, "An orange cup on a plate.").values()) == ["A plate on an orange cup."]


@pytest.mark.parametrize(
    "caption",
    [
        "A dog and a cat.",
        "A dog next to a cat.",
        "A dog with a cat.",
        "A man holding his dog.",
        "Dogs are chasing a cat.",
        "A cat on a street.",
        "A man holding a cup holds a plate.",
        "A plate full of cake on a table.",
    ],
)
def test_things_stay_where_a_swap_says_the_same_or_breaks_the_sentence(caption: str) -> None:
    assert not options(swap_object, caption)


def test_qualities_and_numbers_swap() -> None:
    assert options(swap_attribute, "A red bus near a blue car.")["blue … red"] == "A blue bus near a red car."
    assert options(swap_attribute, "A woman with two dogs.")["two … a"] == "Two women with a dog."
    assert options(swap_attribute, "An old man with two apples.")["two … a"] == "Two old men with an apple."


@pytest.mark.parametrize(
    "caption",
    ["A red bus near a red car.", "A red bus near a wooden car.", "A red bus near a blue bus.", "A woman is with two dogs."],
)
def test_qualities_stay_where_a_swap_may_be_true(caption: str) -> None:
    assert not options(swap_attribute, caption)


def test_a_swap_that_another_caption_says_is_not_made() -> None:
    assert not options(swap_attribute, "A red bus near a blue car.", "A blue bus.")


# -- adding


def test_what_is_added_fits_the_scene_and_nobody_mentions_it() -> None:
    found = options(add_object, "A skier on a slope.")
    assert found["next to a snowman"] == "A skier on a slope next to a snowman."
    assert not any("snowman" in text for text in options(add_object, "A skier on a slope.", "A snowman in the snow.").values())


def test_an_added_quality_contradicts_what_another_caption_says() -> None:
    found = options(add_attribute, "A man walks.", "A young man in a park.")
    assert found["elderly"] == "An elderly man walks."
    assert "young" not in found
    assert "blindfolded" not in found


def test_an_added_quality_may_not_be_there_unmentioned() -> None:
    assert "masked" in options(add_attribute, "A man walks.")
    assert "masked" not in options(add_attribute, "A man walks.", "A skier in the snow.")


# -- the tables


def test_every_listed_thing_is_known_and_takes_its_forms() -> None:
    for group in groups():
        assert group.family in FAMILIES
        for name in group.names:
            assert name == name.strip()
            assert name
            assert inflected(name, "NNS").strip()
        assert group in groups_of(group.name)


def test_groups_of_a_family_share_no_name() -> None:
    for family in FAMILIES:
        names = Counter(name for group in groups() if group.family == family for name in group.names)
        assert names.most_common(1)[0][1] == 1, (family, names.most_common(1))


def test_kinds_of_qualities_are_declared_for_things() -> None:
    used = {kind for its in contrasts().values() for kind, _ in its}
    assert used == set(SUITS)
    assert set(SWAPPED) <= used
    assert set(CONTRASTS) <= used
    assert all(kind in {kind_of(noun) for noun in ("man", "dog", "bus")} or qualities(kind) for kind in QUALITIES)


def test_no_quality_contradicts_itself_or_its_neighbours() -> None:
    for quality, its in contrasts().items():
        for _, others in its:
            assert quality not in others
            assert kind_is_opposed(quality) or not set(others) & near(quality)


def kind_is_opposed(quality: str) -> bool:
    return any(kind == "opposed" for kind, _ in contrasts()[quality])


def test_no_deed_means_what_it_replaces() -> None:
    for verb, its in deeds().items():
        for _, _, others in its:
            for other in others:
                base = lemma(other.removeprefix("="), "v")
                assert base != verb
                first, second = (next(iter(synsets(word, "v")), None) for word in (verb, base))
                if first is not None and second is not None:
                    assert first != second, (verb, base)
    assert len(DEEDS) > 20
    assert all(kind in KINDS or kind == "seen" for _, kind, _ in PLACES)


def test_scenes_add_nothing_that_tells_of_them() -> None:
    for told, held in SCENES.values():
        assert not set(told.split()) & {name.strip() for name in held.split(";")}


# -- the step


PETS = {
    "1": ["A dog chasing a cat.", "A brown dog and a cat in a garden."],
    "2": ["Two zebras near a tree.", "Zebras."],
    "3": ["A red bus near a blue car.", "A bus on a street."],
}


def test_the_categories_are_those_of_sugarcrepe() -> None:
    assert set(RULES) == set(CATEGORIES)


def test_rows_tell_what_was_changed(tmp_path: Path) -> None:
    told = negatives(Collection.of(PETS), tmp_path / "a")
    rows = read_rows(tmp_path / "a", "negatives")
    assert told["finished"]
    assert told["rows"] == len(rows) > 15
    assert len({row["id"] for row in rows}) == len(rows)
    for row in rows:
        assert set(row) == {"id", "caption_id", "image_id", "caption", "negative", "category", "changed"}
        assert row["category"] in CATEGORIES
        assert row["negative"] != row["caption"]
        assert row["caption_id"].startswith(row["image_id"])
        before, after = row["changed"]
        assert after.split(" … ")[0].lower() in row["negative"].lower()
        assert before.split(" … ")[0].lower() in row["caption"].lower()
    assert told["counts"]["captions"] == 6
    for category in CATEGORIES:
        assert told["counts"].get(category, 0) + told["counts"].get(f"no rule applies: {category}", 0) == 6


def test_the_order_of_captions_and_the_company_do_not_matter(tmp_path: Path) -> None:
    negatives(Collection.of(PETS), tmp_path / "a", seed=3)
    turned = Collection.of(PETS).reordered(np.array([2, 0, 1]), np.array([5, 3, 1, 0, 4, 2]))
    negatives(turned, tmp_path / "b", seed=3)
    assert (tmp_path / "a" / "rows.jsonl").read_bytes() == (tmp_path / "b" / "rows.jsonl").read_bytes()
    negatives(Collection.of(PETS), tmp_path / "c", seed=3, captions=2, categories=["swap/obj", "add/att"])
    every = {row["id"]: row for row in read_rows(tmp_path / "a")}
    assert all(every[row["id"]] == row for row in read_rows(tmp_path / "c"))


def test_another_seed_draws_others(tmp_path: Path) -> None:
    for seed in (1, 2):
        negatives(Collection.of(PETS), tmp_path / str(seed), seed=seed)
    first, second = (read_rows(tmp_path / name) for name in "12")
    assert [row["negative"] for row in first] != [row["negative"] for row in second]


def test_a_step_that_was_broken_off_goes_on(tmp_path: Path) -> None:
    negatives(Collection.of(PETS), tmp_path / "whole")
    told = (tmp_path / "whole" / "manifest.json").read_text().replace('"finished": true', '"finished": false')
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "manifest.json").write_text(told)
    lines = (tmp_path / "whole" / "rows.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "half" / "rows.jsonl").write_text("".join(lines[:4]) + lines[4][:20])
    done = negatives(Collection.of(PETS), tmp_path / "half")
    assert sorted((tmp_path / "half" / "rows.jsonl").read_text().splitlines(keepends=True)) == sorted(lines)
    assert done["counts"] == negatives(Collection.of(PETS), tmp_path / "whole")["counts"]


def test_unknown_categories_and_too_many_captions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongWords, match="Did you mean 'swap/obj'"):
        negatives(Collection.of(PETS), tmp_path / "a", categories=["swap/object"])
    with pytest.raises(WrongWords, match="no category"):
        negatives(Collection.of(PETS), tmp_path / "a", categories=[])
    with pytest.raises(WrongWords, match="the collection has 6"):
        negatives(Collection.of(PETS), tmp_path / "a", captions=7)


def test_a_collection_without_texts_is_refused(tmp_path: Path) -> None:
    bare = Collection(np.array(["i"]), np.array(["c"]), (), np.array([[0, 0]]))
    with pytest.raises(CrossmatchError, match="no texts"):
        negatives(bare, tmp_path / "a")


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


def test_captions_that_no_rule_can_read_are_counted_by_reason(tmp_path: Path) -> None:
    told = negatives(Collection.of({str(n): [text, "A dog."] for n, text in enumerate(BAD)}), tmp_path / "a")
    reasons = {key.removeprefix("passed over: "): n for key, n in told["counts"].items() if key.startswith("passed over")}
    assert reasons == dict(Counter(BAD.values()))
    assert {row["caption"] for row in read_rows(tmp_path / "a")} == {"A dog."}


@pytest.mark.parametrize(
    "text", ["Dog", "dog.", "A", "the the the", "Los Angeles", "A dog 🐕 on a bed", "A DOG ON A BED", "\tA dog\n\n sits\x00."]
)
def test_odd_captions_crash_nothing_and_say_what_they_said_but_for_one_thing(text: str, tmp_path: Path) -> None:
    negatives(Collection.of({"1": [text]}), tmp_path / "a")
    for row in read_rows(tmp_path / "a"):
        assert plain(row["negative"]) != plain(text)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200))
def test_no_text_crashes_a_rule(text: str) -> None:
    if unreadable(text):
        return
    read = read_all([text])
    for category in CATEGORIES:
        found = negative(category, read[0], Mentioned(tuple(read)), 0, "c")
        assert found is None or found.text != text


WORDS = [
    *("a", "an", "the", "two", "red", "large", "his", "dog", "cat", "man", "woman", "bus", "street", "table"),
    *("on", "in", "near", "of", "and", "with", "riding", "sitting", "is", "are", ".", ",", "'s"),
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=14).map(" ".join))
def test_no_heap_of_common_words_crashes_a_rule(text: str) -> None:
    read = read_all([text])
    for category in CATEGORIES:
        found = negative(category, read[0], Mentioned(tuple(read)), 0, "c")
        assert found is None or found.text != text


# -- on real captions


def test_a_thousand_captions_of_coco_take_seconds_and_the_sheet_is_about_them(real_data: Path, tmp_path: Path) -> None:
    import make_negatives_sheet as sheet
    from crossmatch.benchmarks.coco import collection

    start = time.process_time()
    rows = sheet.made(collection("test"), sheet.SEED, sheet.CAPTIONS)
    assert time.process_time() - start < 60
    counts = Counter(row["category"] for row in rows)
    assert counts["replace/obj"] > 800
    assert counts["add/obj"] > 800
    assert counts["replace/att"] > 250
    assert counts["swap/att"] > 20
    said = sheet.verdicts()
    drawn = sheet.drawn(rows, sheet.SEED)
    assert [[said[row["caption_id"], row["category"]][name] for name in ("before", "after")] for row in drawn] == [
        row["changed"] for row in drawn
    ]
    good = [row for row in said.values() if row["grammatical"] == row["false"] == "yes"]
    assert len(good) / len(said) >= 0.8
    assert len(said) == 50
    assert all(tuple(row) == sheet.COLUMNS for row in said.values()), "and no caption is among what is published"
