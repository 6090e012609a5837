"""People's ratings and preferences: what is refused, and that the message names the id."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crossmatch.core.errors import CrossmatchError
from crossmatch.core.ratings import Preferences, Ratings

RATED = [("7", "a dog", [4, 3]), ("8", "a cat", [1]), ("7", "two dogs", [2, 2, 1])]
REFERENCES = {"7": ["the dog"], "8": ["the cat", "a cat"]}


def test_ratings() -> None:
    said = Ratings.gathered("mine", RATED, REFERENCES, scale=(1, 4))
    assert said.ids.tolist() == ["7#0", "8#0", "7#1"]
    assert said.images.tolist() == ["7", "8", "7"]
    assert said.of.tolist() == [0, 0, 1, 2, 2, 2]
    np.testing.assert_allclose(said.mean, [3.5, 1, 5 / 3])
    with pytest.raises(ValueError, match="read-only"):
        said.values[0] = 5


def test_without_a_scale_it_is_what_the_ratings_span() -> None:
    assert Ratings.gathered("mine", RATED, REFERENCES).scale == (1, 4)


def test_some_of_them_in_another_order() -> None:
    some = Ratings.gathered("mine", RATED, REFERENCES).among(np.array([2, 0]))
    assert some.ids.tolist() == ["7#1", "7#0"]
    assert some.captions == ("two dogs", "a dog")
    assert some.of.tolist() == [0, 0, 0, 1, 1]
    assert some.values.tolist() == [2, 2, 1, 4, 3]


def test_the_digest_tells_data_apart() -> None:
    first = Ratings.gathered("mine", RATED, REFERENCES)
    assert first.digest == Ratings.gathered("yours", RATED, dict(reversed(REFERENCES.items()))).digest
    assert first.digest != Ratings.gathered("mine", [*RATED[:2], ("7", "two dogs", [2, 2, 2])], REFERENCES).digest
    assert first.digest != Ratings.gathered("mine", RATED, {**REFERENCES, "8": ["the cat"]}).digest


@pytest.mark.parametrize(
    ("rated", "references", "options", "message"),
    [
        (RATED, {"7": ["the dog"]}, {}, "candidate '8#0' is of image '8', which has no references, one of 1"),
        (RATED, {"7": ["the dog"], "8": []}, {}, "references of image '8' are \\[\\]"),
        (RATED, {"7": ["the dog"], "8": "a cat"}, {}, "references of image '8' are 'a cat'"),
        (RATED, {"7": ["the dog"], "8": [None]}, {}, "a reference of image '8' is None"),
        (RATED, REFERENCES, {"scale": (1, 3)}, "candidate '7#0' is rated 4; 1 to 3"),
        (RATED, REFERENCES, {"equal": "perhaps"}, "no rule 'perhaps'"),
        ([("7", "a dog", [])], REFERENCES, {}, "mine holds no ratings"),
        ([*RATED, ("8", "cats", [])], REFERENCES, {}, "candidate '8#1' has no rating"),
        ([("7", 5, [1, 2])], REFERENCES, {}, "caption of candidate '7#0' is 5"),
        ([("7", "a dog", [float("nan")])], REFERENCES, {"scale": (1, 4)}, "candidate '7#0' is rated nan"),
    ],
)
def test_wrong_ratings(rated: Any, references: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CrossmatchError, match=message):
        Ratings.gathered("mine", rated, references, **options)


def test_wrong_shapes() -> None:
    with pytest.raises(CrossmatchError, match="2 candidates, 1 images"):
        Ratings("mine", ["a", "b"], ["7"], ("a dog", "b"), [1.0, 2.0], [0, 1], REFERENCES, (1, 4))
    with pytest.raises(CrossmatchError, match="a rating is of candidate 2; 0 to 0"):
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
    said = Preferences("mine", **PAIR)
    assert len(said) == 2
    assert said.captions == (("a dog", "a cat"), ("a cat", "a bat"))
    assert said.digest != Preferences("mine", **{**PAIR, "preferred": [1, 1]}).digest


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"preferred": [0, 2]}, "pair 'p1' prefers caption 2"),
        ({"captions": [("a dog", "a cat"), ("a bat",)]}, "captions of pair 'p1' are"),
        ({"captions": [("a dog", "a cat"), ("a bat", 4)]}, "captions of pair 'p1' are"),
        ({"captions": [("a dog", "a cat"), "ab"]}, "captions of pair 'p1' are 'ab'"),
        ({"references": [["the dog"], []]}, "references of pair 'p1'"),
        ({"references": [["the dog"], [3]]}, "a reference of pair 'p1' is 3"),
        ({"groups": ["HI"]}, "1 groups"),
        ({"ids": ["p0", "p0"]}, "'p0' occurs 2 times"),
    ],
)
def test_wrong_preferences(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(CrossmatchError, match=message):
        Preferences("mine", **{**PAIR, **wrong})
