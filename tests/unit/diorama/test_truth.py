"""The fast truth against the definition."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.data.errors import CrossmatchError
from crossmatch.diorama.caption_meaning import SOME, Caption, Meaning, Phrase, disjoint
from crossmatch.diorama.caption_writer import describe
from crossmatch.diorama.object_kinds import kinds_of
from crossmatch.diorama.scene_sampling import all_relations, sample_scene
from crossmatch.diorama.scenes import RELATIONS, Box, Scene, SceneObject
from crossmatch.diorama.truth import truth

NOUNS, COLOURS, TEXTURES = ("dog", "cat", "car", "animal", "vehicle", "thing"), ("red", "blue"), ("plain", "striped")


def truth_by_definition(scene: Scene, meaning: Meaning) -> bool:
    """Enumerate every choice of a set for each phrase."""
    choices = []
    for phrase in meaning.phrases:
        fitting = [
            i
            for i, item in enumerate(scene.objects)
            if item.kind in kinds_of(phrase.noun)
            and phrase.colour in (None, item.colour)
            and phrase.texture in (None, item.texture)
            and phrase.size in (None, item.size)
        ]
        if phrase.count is None:
            choices.append([[i] for i in fitting])
        elif phrase.count == SOME:
            choices.append([fitting] if len(fitting) >= 2 else [])
        else:
            choices.append([fitting] if len(fitting) == phrase.count else [])
    indoors = scene.setting == "room"
    if meaning.setting not in (None, scene.setting, "indoors" if indoors else "outdoors"):
        return False
    return any(
        all((name, i, j) in scene.relations for name, s, o in meaning.relations for i in chosen[s] for j in chosen[o])
        for chosen in product(*choices)
    )


@st.composite
def any_scenes(draw: st.DrawFn) -> Scene:
    """Few words and arbitrary relations, so that many captions are true."""
    n = draw(st.integers(0, 8))
    objects = tuple(
        SceneObject(kind, colour, texture, "small", Box(0, 0, 1, 1), 0, "ground")
        for kind, colour, texture in draw(
            st.lists(st.tuples(*map(st.sampled_from, (NOUNS[:3], COLOURS, TEXTURES))), min_size=n, max_size=n)
        )
    )
    relation_bits = {
        name: draw(st.integers(0, 2 ** (n * n) - 1)) | draw(st.integers(0, 2 ** (n * n) - 1)) for name in RELATIONS[:3]
    }
    related = {(name, i, j) for name, bits in relation_bits.items() for i in range(n) for j in range(n) if bits >> (n * i + j) & 1}
    return Scene(draw(st.sampled_from(("beach", "room", "snow"))), objects, frozenset(related), 100, 0)


@st.composite
def meanings(draw: st.DrawFn) -> Meaning:
    """Up to four phrases that cannot fit the same object, and a random forest of relations over them."""
    words = st.tuples(
        st.sampled_from(NOUNS),
        st.sampled_from((None, *COLOURS)),
        st.sampled_from((None, *TEXTURES)),
        st.none(),
        st.sampled_from((None, None, None, 1, 2, 3, SOME)),
    )
    phrases: list[Phrase] = []
    for phrase in draw(st.lists(words.map(lambda w: Phrase(*w)), min_size=1, max_size=6)):
        if len(phrases) < 4 and all(disjoint(phrase, earlier) for earlier in phrases):
            phrases.append(phrase)
    relatable = draw(st.permutations([i for i, phrase in enumerate(phrases) if phrase.count != SOME]))
    relations = []  # from the leaves to the roots: every phrase but the last may point to a later one
    for at, subject in enumerate(relatable[:-1]):
        object_ = draw(st.sampled_from([None, *relatable[at + 1 :], *relatable[at + 1 :]]))
        if object_ is not None:
            relations.append((draw(st.sampled_from(RELATIONS[:3])), subject, object_))
    return Meaning(tuple(phrases), tuple(relations), draw(st.sampled_from((None, None, "beach", "indoors", "outdoors"))))


@given(st.lists(any_scenes(), min_size=1, max_size=6), st.lists(meanings(), min_size=1, max_size=25))
def test_truth_equals_the_definition(scenes: list[Scene], all_meanings: list[Meaning]) -> None:
    expected = [[truth_by_definition(scene, meaning) for meaning in all_meanings] for scene in scenes]
    assert truth(scenes, all_meanings).tolist() == expected


def test_truth_equals_the_definition_for_sampled_scenes_and_their_captions() -> None:
    scenes = [sample_scene("truth", i) for i in range(150)]
    captions = [caption for scene in scenes for caption in describe(scene)]
    fast = truth(scenes, captions)
    assert fast.tolist() == [[truth_by_definition(scene, caption.meaning) for caption in captions] for scene in scenes]
    assert fast[np.arange(150).repeat(5), np.arange(750)].all()  # each caption is true of its own scene
    assert 0.01 < fast.mean() < 0.2


def make_object(kind: str, colour: str, x: int, y: int, footing: str = "ground") -> SceneObject:
    return SceneObject(kind, colour, "plain", "small", Box(x, y, x + 150, y + 150), 0, footing)


YARD = (
    make_object("dog", "red", 0, 700),
    make_object("dog", "red", 200, 700),
    make_object("cat", "blue", 400, 700),
    make_object("dog", "blue", 600, 700),
    make_object("plane", "white", 400, 100, "air"),
)
SCENE = Scene("meadow", YARD, all_relations(YARD), 100, 0)


@pytest.mark.parametrize(
    ("expected", "phrases", "relations", "setting"),
    [
        (True, [Phrase("dog")], [], None),
        (True, [Phrase("dog", count=3)], [], "outdoors"),
        (False, [Phrase("dog", count=2)], [], None),  # numerals are exact
        (True, [Phrase("dog", "red", count=2)], [], "meadow"),
        (False, [Phrase("dog", "red", count=2)], [], "beach"),
        (False, [Phrase("dog", "red", count=2)], [], "indoors"),
        (True, [Phrase("animal", count=4)], [], None),
        (True, [Phrase("dog", count=SOME)], [], None),
        (False, [Phrase("cat", count=SOME)], [], None),
        (True, [Phrase("cat", count=1)], [], None),
        (True, [Phrase("dog"), Phrase("cat")], [("left of", 0, 1)], None),
        (True, [Phrase("dog"), Phrase("cat")], [("right of", 0, 1)], None),  # true of one dog
        (False, [Phrase("dog", count=3), Phrase("cat")], [("left of", 0, 1)], None),  # not true of all dogs
        (True, [Phrase("dog", "red", count=2), Phrase("cat")], [("left of", 0, 1)], None),
        (True, [Phrase("cat"), Phrase("dog", "red", count=2)], [("right of", 0, 1)], None),
        (False, [Phrase("cat"), Phrase("dog", count=3)], [("right of", 0, 1)], None),
        (True, [Phrase("plane"), Phrase("dog", count=3)], [("above", 0, 1)], None),
        (True, [Phrase("plane"), Phrase("cat"), Phrase("dog", "blue")], [("above", 0, 1), ("left of", 1, 2)], None),
        (False, [Phrase("plane"), Phrase("cat"), Phrase("dog", "red")], [("above", 0, 1), ("left of", 1, 2)], None),
        (True, [], [], "outdoors"),
        (False, [Phrase("car")], [], None),
    ],
)
def test_captions_with_known_truth(
    expected: bool, phrases: list[Phrase], relations: list[tuple[str, int, int]], setting: str | None
) -> None:
    meaning = Meaning(tuple(phrases), tuple(relations), setting)
    assert truth_by_definition(SCENE, meaning) is expected
    assert truth([SCENE], [meaning, Caption("", meaning)]).tolist() == [[expected, expected]]


def test_counted_objects_need_one_common_partner() -> None:
    """ "a cat left of two dogs": each dog has a cat to its left, but no cat is left of both."""
    objects = tuple(make_object(kind, "red", 200 * i, 700) for i, kind in enumerate(("cat", "dog", "cat", "dog")))
    relations = frozenset({("left of", 0, 1), ("left of", 2, 3)})
    meaning = Meaning((Phrase("cat"), Phrase("dog", count=2)), (("left of", 0, 1),))
    assert not truth([Scene("snow", objects, relations, 100, 0)], [meaning])[0, 0]
    assert truth([Scene("snow", objects, relations | {("left of", 0, 3)}, 100, 0)], [meaning])[0, 0]


def test_truth_accepts_no_scenes_and_no_captions() -> None:
    assert truth([], [Meaning((Phrase("dog"),), (), "beach")]).shape == (0, 1)
    assert truth([SCENE], []).shape == (1, 0)
    assert truth([SCENE], [Meaning((Phrase("dog"),))]).dtype == bool


def test_more_than_eight_objects_are_rejected() -> None:
    with pytest.raises(CrossmatchError, match="9 objects"):
        truth([Scene("beach", YARD + YARD[:4], frozenset(), 100, 0)], [])
