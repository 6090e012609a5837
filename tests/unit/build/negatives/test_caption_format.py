"""The uniform caption format: what changes, what stays, idempotence, and the step."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.build.negatives.by_rules import write_rule_negatives
from crossmatch.build.negatives.caption_format import (
    format_caption,
    is_common_word,
    is_latin,
    is_proper_name,
    write_formatted,
)
from crossmatch.build.step_files import StepSpec, read_rows, write_step
from crossmatch.data.collection import Collection
from crossmatch.data.errors import UsageError
from crossmatch.text.tokens_and_edits import split_words


@pytest.mark.parametrize(
    ("caption", "expected"),
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
def test_caption_is_formatted(caption: str, expected: str) -> None:
    assert format_caption(caption) == expected


@pytest.mark.parametrize("text", ["", "   ", "🐕", "123", "Собака  сидит", "一只狗 ", "A dog and 一只狗", "ΑΒΓ"])
def test_other_scripts_and_texts_without_letters_are_unchanged(text: str) -> None:
    assert format_caption(text) == text


def test_very_long_caption_is_formatted() -> None:
    assert format_caption("a Dog " * 10_000).startswith("A dog a dog ")


PIECES = [
    *("A", "The", "the", "Dog", "dogs", "STOP", "stop", "New", "York", "I", "U.S.", "St.", "iPod", "TV", "No", "Me", "Burger"),
    *("King", '"', "“", "”", ".", "..", "...", "!", "?", ",", "-", "(", ")", "'s"),
]
PHRASES = st.lists(st.sampled_from(PIECES), max_size=9).map(" ".join)


@given(st.one_of(PHRASES, st.text(st.characters(codec="utf-8"), max_size=60)))
def test_formatting_is_idempotent(text: str) -> None:
    once = format_caption(text)
    assert format_caption(once) == once


@given(PHRASES)
def test_formatting_changes_only_capitals_and_punctuation(text: str) -> None:
    assert [word.lower().rstrip(".") for word in split_words(format_caption(text))] == [
        word.lower().rstrip(".") for word in split_words(text)
    ]


def test_names_and_common_words() -> None:
    assert is_latin("Ein Bär")
    assert not is_latin("медведь")
    assert is_proper_name("london")
    assert is_proper_name("asian")
    assert not is_proper_name("it")
    assert is_common_word("giraffes")
    assert not is_common_word("wrigley")


# -- the step


def test_step_formats_a_collection(tmp_path: Path) -> None:
    manifest = write_formatted(Collection.from_captions({"1": ["a dog", "A cat."], "2": ["狗"]}), tmp_path / "a")
    rows = read_rows(tmp_path / "a", "format")
    assert [(row["id"], row["caption"], row["was"], row["image_id"]) for row in rows] == [
        ("1#0", "A dog.", "a dog", "1"),
        ("1#1", "A cat.", "A cat.", "1"),
        ("2#0", "狗", "狗", "2"),
    ]
    assert manifest["counts"] == {"caption: changed": 1, "caption: was uniform": 1, "caption: left alone": 1}


def test_step_formats_captions_and_negatives(tmp_path: Path) -> None:
    write_rule_negatives(Collection.from_captions({"1": ["a dog chasing a cat"]}), tmp_path / "n")
    manifest = write_formatted(tmp_path / "n", tmp_path / "f")
    rows = read_rows(tmp_path / "f")
    assert rows
    assert all(row["caption"] == "A dog chasing a cat." and row["negative"].endswith(".") for row in rows)
    assert manifest["rows"] == len(rows) == len(read_rows(tmp_path / "n"))
    reformatted = write_formatted(tmp_path / "f", tmp_path / "g")
    assert reformatted["counts"] == {"caption: was uniform": len(rows), "negative: was uniform": len(rows)}


def test_negative_that_differs_in_format_only_is_dropped(tmp_path: Path) -> None:
    row = {"id": "1", "caption_id": "c", "image_id": "i", "caption": "a Dog", "negative": "A dog", "category": "x"}
    write_step(tmp_path / "n", StepSpec("negatives", {}), lambda step: [row])
    assert write_formatted(tmp_path / "n", tmp_path / "f")["counts"]["same but for the form"] == 1


def test_folder_of_another_step_is_rejected(tmp_path: Path) -> None:
    write_step(tmp_path / "n", StepSpec("lookalikes", {}), lambda step: [])
    with pytest.raises(UsageError, match="made by step lookalikes"):
        write_formatted(tmp_path / "n", tmp_path / "f")


def test_formatting_coco_captions_is_idempotent(real_data: Path) -> None:
    from crossmatch.benchmarks.coco import coco_collection

    once = [format_caption(text) for text in coco_collection("test").texts()[::5]]
    assert [format_caption(text) for text in once] == once
    assert all(text.endswith((".", "!", "?", '"', "'", ")", "…", "”")) for text in once)
