"""The uniform form of captions: what changes, what is kept, that it changes nothing twice, and the step."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.build.files import Asked, read_rows, written
from crossmatch.build.format import common, formatted, latin, name, uniform, uniform_all
from crossmatch.build.negatives import negatives
from crossmatch.core.collection import Collection
from crossmatch.core.errors import WrongWords
from crossmatch.language.words import words


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a man  on a mat", "A man on a mat."),
        ("A MAN IN LONDON", "A man in London."),
        ("A Man Riding A Wave", "A man riding a wave."),
        ("The Dog sits on a Couch", "The dog sits on a couch."),
        ("a boy in a Red Sox shirt", "A boy in a Red Sox shirt."),
        ("A New York street", "A New York street."),
        ("some French toast on a plate", "Some French toast on a plate."),
        ("a BMW and an iPod and a TV", "A BMW and an iPod and a TV."),
        ("A STOP sign", "A stop sign."),
        ('a sign that reads "STOP HERE"', 'A sign that reads "STOP HERE".'),
        ("A flag of the U.S. on a wall", "A flag of the U.S. on a wall."),
        ("a man at St. Mary's", "A man at St. Mary's."),
        ("I see a dog", "I see a dog."),
        ("A cow in it .", "A cow in it."),
        ("A dog , a cat !", "A dog, a cat!"),
        ("A dog..", "A dog."),
        ("A dog...", "A dog..."),
        ("A dog,", "A dog."),
        ("A dog -", "A dog."),
        ("A cat (asleep)", "A cat (asleep)."),
        ("Is it a dog?", "Is it a dog?"),
        ("iPod on a table", "iPod on a table."),
        ("10 dogs", "10 dogs."),
        ("A dog 🐕", "A dog 🐕."),
        ("A wall. the cat", "A wall. the cat."),
    ],
)
def test_a_caption_gets_the_form(given: str, expected: str) -> None:
    assert uniform(given) == expected


@pytest.mark.parametrize("text", ["", "   ", "🐕", "123", "Собака  сидит", "一只狗 ", "A dog and 一只狗", "ΑΒΓ"])
def test_other_scripts_and_what_has_no_letters_are_left_alone(text: str) -> None:
    assert uniform(text) == text


def test_a_very_long_caption_is_put_into_form_too() -> None:
    assert uniform("a Dog " * 10_000).startswith("A dog a dog ")


@settings(max_examples=400, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_the_form_of_a_form_is_itself_for_any_text(text: str) -> None:
    once = uniform(text)
    assert uniform(once) == once


PIECES = [
    *(
        "A",
        "The",
        "the",
        "Dog",
        "dogs",
        "STOP",
        "stop",
        "New",
        "York",
        "I",
        "U.S.",
        "St.",
        "iPod",
        "TV",
        "No",
        "Me",
        "Burger",
        "King",
    ),
    *('"', "“", "”", ".", "..", "...", "!", "?", ",", "-", "(", ")", "'s"),
]


@settings(max_examples=600, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=9).map(" ".join))
def test_the_form_of_a_form_is_itself_for_any_heap_of_words(text: str) -> None:
    once = uniform(text)
    assert uniform(once) == once


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=9).map(" ".join))
def test_the_words_stay_the_same_but_for_capitals(text: str) -> None:
    assert [word.lower().rstrip(".") for word in words(uniform(text))] == [word.lower().rstrip(".") for word in words(text)]


def test_many_are_put_into_form_as_one_by_one() -> None:
    texts = ["a dog", "A CAT IN PARIS", "狗", ""]
    assert uniform_all(texts) == [uniform(text) for text in texts]


def test_names_and_common_words() -> None:
    assert latin("Ein Bär")
    assert not latin("медведь")
    assert name("london")
    assert name("asian")
    assert not name("it")
    assert common("giraffes")
    assert not common("wrigley")


# -- the step


def test_captions_of_a_collection_are_put_into_form(tmp_path: Path) -> None:
    told = formatted(Collection.of({"1": ["a dog", "A cat."], "2": ["狗"]}), tmp_path / "a")
    rows = read_rows(tmp_path / "a", "format")
    assert [(row["id"], row["caption"], row["was"], row["image_id"]) for row in rows] == [
        ("1#0", "A dog.", "a dog", "1"),
        ("1#1", "A cat.", "A cat.", "1"),
        ("2#0", "狗", "狗", "2"),
    ]
    assert told["counts"] == {"caption: changed": 1, "caption: was uniform": 1, "caption: left alone": 1}


def test_negatives_are_put_into_form_on_both_sides(tmp_path: Path) -> None:
    negatives(Collection.of({"1": ["a dog chasing a cat"]}), tmp_path / "n")
    told = formatted(tmp_path / "n", tmp_path / "f")
    rows = read_rows(tmp_path / "f")
    assert rows
    assert all(row["caption"] == "A dog chasing a cat." and row["negative"].endswith(".") for row in rows)
    assert told["rows"] == len(rows) == len(read_rows(tmp_path / "n"))
    again = formatted(tmp_path / "f", tmp_path / "g")
    assert again["counts"] == {"caption: was uniform": len(rows), "negative: was uniform": len(rows)}


def test_a_negative_that_differs_in_form_alone_is_dropped(tmp_path: Path) -> None:
    row = {
        "id": "1",
        "caption_id": "c",
        "image_id": "i",
        "caption": "a Dog",
        "negative": "A dog",
        "category": "x",
        "changed": ["", ""],
    }
    written(tmp_path / "n", Asked("negatives", {}), lambda made: [row])
    assert formatted(tmp_path / "n", tmp_path / "f")["counts"]["same but for the form"] == 1


def test_a_folder_of_another_step_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "n", Asked("mine", {}), lambda made: [])
    with pytest.raises(WrongWords, match="made by mine"):
        formatted(tmp_path / "n", tmp_path / "f")


def test_all_captions_of_coco_keep_their_form(real_data: Path) -> None:
    from crossmatch.benchmarks.coco import collection

    once = uniform_all(collection("test").texts()[::5])
    assert uniform_all(once) == once
    assert all(text.endswith((".", "!", "?", '"', "'", ")", "…", "”")) for text in once)
