"""Positions of words and tokens, and edits that leave the rest of a text unchanged."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from crossmatch.text.tokens_and_edits import (
    apply_edits,
    capitalise,
    indefinite_article,
    replace_words,
    split_words,
    tokenise,
    uncapitalise,
)


@given(st.text())
def test_tokens_are_pieces_of_the_text_in_order(text):
    found = tokenise(text)
    assert all(text[token.start : token.end] == token.text != "" for token in found)
    assert all(before.end <= after.start for before, after in pairwise(found))


@given(st.text())
def test_only_spaces_are_between_tokens(text):
    assert "".join(token.text for token in tokenise(text)) == "".join(text.split())


@given(st.text())
def test_replacing_words_by_themselves_changes_nothing(text):
    assert replace_words(text, split_words(text)) == text
    assert apply_edits(text, []) == text


@given(st.text(min_size=1))
def test_capitalisation_keeps_the_length(word):
    assert len(capitalise(word)) == len(uncapitalise(word)) == len(word)


def test_contractions_are_split_as_in_the_treebank():
    text = "The girl's dog can't see a T-shirt at 10:30 p.m. in the U.S. today, it's black/white (sort of)..."
    assert [token.text for token in tokenise(text)] == [
        *("The", "girl", "'s", "dog", "ca", "n't", "see", "a", "T-shirt", "at", "10:30", "p.m.", "in", "the", "U.S.", "today", ","),
        *("it", "'s", "black/white", "(", "sort", "of", ")", "..."),
    ]


def test_missing_space_after_a_period_is_recognised():
    assert [token.text for token in tokenise("On the wall.The cat.")] == ["On", "the", "wall", ".", "The", "cat", "."]


def test_curly_apostrophes_are_apostrophes():
    assert [token.text for token in tokenise("It’s not, isn’t it")] == ["It", "’s", "not", ",", "is", "n’t", "it"]


def test_articles_follow_the_sound():
    a = (
        "dog",
        "unicorn",
        "university",
        "uniform",
        "user",
        "utensil",
        "European",
        "ewe",
        "one-eyed cat",
        "horse",
        "house",
        "UFO",
        "U-turn",
    )
    an = (
        "apple",
        "hour",
        "honest man",
        "heirloom",
        "umbrella",
        "uninvited guest",
        "unimportant man",
        "SUV",
        "X-ray",
        "8",
        "18",
        "orange",
    )
    assert {word: indefinite_article(word) for word in a} == dict.fromkeys(a, "a")
    assert {word: indefinite_article(word) for word in an} == dict.fromkeys(an, "an")


def test_combining_accent_belongs_to_its_letter():
    assert split_words("A cafe\u0301 sits.") == ["A", "cafe\u0301", "sits"]
