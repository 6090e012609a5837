"""Words are found where they are, and an edit leaves the rest alone."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from crossmatch.language.words import article, capitalised, edited, refilled, tokens, uncapitalised, words


@given(st.text())
def test_tokens_are_pieces_of_the_text_in_order(text):
    found = tokens(text)
    assert all(text[token.start : token.end] == token.text != "" for token in found)
    assert all(before.end <= after.start for before, after in pairwise(found))


@given(st.text())
def test_nothing_but_space_is_between_tokens(text):
    assert "".join(token.text for token in tokens(text)) == "".join(text.split())


@given(st.text())
def test_refilling_with_the_same_words_changes_nothing(text):
    assert refilled(text, words(text)) == text
    assert edited(text, []) == text


@given(st.text(min_size=1))
def test_capitals_come_and_go_without_a_change_in_length(word):
    assert len(capitalised(word)) == len(uncapitalised(word)) == len(word)


def test_tokens_split_what_the_treebank_splits():
    text = "The girl's dog can't see a T-shirt at 10:30 p.m. in the U.S. today, it's black/white (sort of)..."
    assert [token.text for token in tokens(text)] == [
        *("The", "girl", "'s", "dog", "ca", "n't", "see", "a", "T-shirt", "at", "10:30", "p.m.", "in", "the", "U.S.", "today", ","),
        *("it", "'s", "black/white", "(", "sort", "of", ")", "..."),
    ]


def test_a_missing_space_after_a_period_is_seen():
    assert [token.text for token in tokens("On the wall.The cat.")] == ["On", "the", "wall", ".", "The", "cat", "."]


def test_curly_apostrophes_are_apostrophes():
    assert [token.text for token in tokens("It’s not, isn’t it")] == ["It", "’s", "not", ",", "is", "n’t", "it"]


def test_articles_go_by_sound():
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
    assert {word: article(word) for word in a} == dict.fromkeys(a, "a")
    assert {word: article(word) for word in an} == dict.fromkeys(an, "an")


def test_an_accent_of_its_own_belongs_to_its_letter():
    assert words("A cafe\u0301 sits.") == ["A", "cafe\u0301", "sits"]
