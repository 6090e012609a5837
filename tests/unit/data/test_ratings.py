"""Human ratings and preferences: selection, digests, and errors that name the id."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crossmatch.data.errors import CrossmatchError
from crossmatch.data.ratings import Preferences, Ratings

RATED = [("7", "a dog", [4, 3]), ("8", "a cat", [1]), ("7", "two dogs", [2, 2, 1])]
REFERENCES = {"7": ["the dog"], "8": ["the cat", "a cat"]}


def test_ratings() -> None:
    ratings = Ratings.from_rows("mine", RATED, REFERENCES, scale=(1, 4))
    assert ratings.ids.tolist() == ["7#0", "8#0", "7#1"]
    assert ratings.images.tolist() == ["7", "8", "7"]
    assert ratings.candidate_of_rating.tolist() == [0, 0, 1, 2, 2, 2]
    np.testing.assert_allclose(ratings.mean, [3.5, 1, 5 / 3])
    with pytest.raises(ValueError, match="read-only"):
        ratings.values[0] = 5


def test_default_scale_is_the_range_of_ratings() -> None:
    assert Ratings.from_rows("mine", RATED, REFERENCES).scale == (1, 4)


def test_select_reorders_ratings() -> None:
    selected = Ratings.from_rows("mine", RATED, REFERENCES).select(np.array([2, 0]))
    assert selected.ids.tolist() == ["7#1", "7#0"]
    assert selected.captions == ("two dogs", "a dog")
    assert selected.candidate_of_rating.tolist() == [0, 0, 0, 1, 1]
    assert selected.values.tolist() == [2, 2, 1, 4, 3]


def test_digest_changes_with_the_data() -> None:
    first = Ratings.from_rows("mine", RATED, REFERENCES)
    assert first.digest == Ratings.from_rows("yours", RATED, dict(reversed(REFERENCES.items()))).digest
    assert first.digest != Ratings.from_rows("mine", [*RATED[:2], ("7", "two dogs", [2, 2, 2])], REFERENCES).digest
    assert first.digest != Ratings.from_rows("mine", RATED, {**REFERENCES, "8": ["the cat"]}).digest


@pytest.mark.parametrize(
    ("rows", "references", "options", "message"),
    [
        (RATED, {"7": ["the dog"]}, {}, "1 of 3 candidates are of an image without references.*'8#0' of image '8'"),
        (RATED, {"7": ["the dog"], "8": []}, {}, "references of image '8' are \\[\\]"),
        (RATED, {"7": ["the dog"], "8": "a cat"}, {}, "references of image '8' are 'a cat'"),
        (RATED, {"7": ["the dog"], "8": [None]}, {}, "A reference of image '8' is None"),
        (RATED, REFERENCES, {"scale": (1, 3)}, "Candidate '7#0' has the rating 4, expected 1 to 3"),
        (RATED, REFERENCES, {"reference_rule": "perhaps"}, "Unknown rule 'perhaps'"),
        ([("7", "a dog", [])], REFERENCES, {}, "mine has no ratings"),
        ([*RATED, ("8", "cats", [])], REFERENCES, {}, "have no rating, the first is '8#1'"),
        ([("7", 5, [1, 2])], REFERENCES, {}, "caption of candidate '7#0' is 5"),
        ([("7", "a dog", [float("nan")])], REFERENCES, {"scale": (1, 4)}, "Candidate '7#0' has the rating nan"),
    ],
)
def test_invalid_ratings_are_an_error(rows: Any, references: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CrossmatchError, match=message):
        Ratings.from_rows("mine", rows, references, **options)


def test_invalid_shapes_are_an_error() -> None:
    with pytest.raises(CrossmatchError, match="2 candidates have 1 images"):
        Ratings("mine", ["a", "b"], ["7"], ("a dog", "b"), [1.0, 2.0], [0, 1], REFERENCES, (1, 4))
    with pytest.raises(CrossmatchError, match="A rating refers to candidate 2; expected its position, 0 to 0"):
        Ratings("mine", ["a"], ["7"], ("a dog",), [1.0, 2.0], [0, 2], REFERENCES, (1, 4))
    with pytest.raises(CrossmatchError, match="'a' occurs 2 times"):
        Ratings("mine", ["a", "a"], ["7", "7"], ("a dog", "b"), [1.0, 2.0], [0, 1], REFERENCES, (1, 4))


PAIR: dict[str, Any] = {
    "ids": ["p0", "p1"],
    "images": ["7", "8"],
    "captions": [("a dog", "a cat"), ["a cat", "a bat"]],
    "references": [["the dog"], ["the cat"]],
    "preferred": [0, 1],
    "groups": ["HI", "HC"],
}


def test_preferences() -> None:
    preferences = Preferences("mine", **PAIR)
    assert len(preferences) == 2
    assert preferences.captions == (("a dog", "a cat"), ("a cat", "a bat"))
    assert preferences.digest != Preferences("mine", **{**PAIR, "preferred": [1, 1]}).digest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"preferred": [0, 2]}, "Pair 'p1' prefers caption 2"),
        ({"captions": [("a dog", "a cat"), ("a bat",)]}, "captions of pair 'p1' are"),
        ({"captions": [("a dog", "a cat"), ("a bat", 4)]}, "captions of pair 'p1' are"),
        ({"captions": [("a dog", "a cat"), "ab"]}, "captions of pair 'p1' are 'ab'"),
        ({"references": [["the dog"], []]}, "references of pair 'p1'"),
        ({"references": [["the dog"], [3]]}, "A reference of pair 'p1' is 3"),
        ({"groups": ["HI"]}, "1 groups"),
        ({"ids": ["p0", "p0"]}, "'p0' occurs 2 times"),
    ],
)
def test_invalid_preferences_are_an_error(change: dict[str, Any], message: str) -> None:
    with pytest.raises(CrossmatchError, match=message):
        Preferences("mine", **{**PAIR, **change})
