from __future__ import annotations

from collections import Counter

import pytest

from crossmatch.diorama.kinds import CATEGORIES, CATEGORY, KIND, KINDS, PLACES, ancestors, kinds_of
from crossmatch.diorama.scenes import COLOURS, RELATIONS, SETTINGS, SIZES, TEXTURES


def test_names_are_unique_and_canonical():
    entries = (*KINDS, *CATEGORIES)
    assert len({entry.name for entry in entries}) == len(entries)
    assert all(entry.name == entry.words[0].singular for entry in entries)
    assert len(KIND) == len(KINDS)
    assert len(CATEGORY) == len(CATEGORIES)


def test_no_noun_belongs_to_two_entries():
    forms = Counter(form for e in (*KINDS, *CATEGORIES) for w in e.words for form in {w.singular, w.plural})
    assert [form for form, times in forms.items() if times > 1] == []


def test_no_noun_is_a_word_of_the_scenes():
    taken = {*COLOURS, *TEXTURES, *SIZES, *SETTINGS, *RELATIONS}
    assert not [w for e in (*KINDS, *CATEGORIES) for w in e.words if taken & {w.singular, w.plural}]


def test_every_chain_of_parents_ends_at_thing():
    assert all(kind.parent in CATEGORY for kind in KINDS)
    assert [c.name for c in CATEGORIES if c.parent is None] == ["thing"]
    assert all(ancestors(entry.name)[-1] == "thing" for entry in (*KINDS, *CATEGORIES) if entry.name != "thing")
    assert all(kinds_of(category.name) for category in CATEGORIES), "a category without kinds"


@pytest.mark.parametrize(
    ("noun", "some", "none"),
    [
        ("animal", {"dog", "duck", "beetle", "fish"}, {"teddy bear", "ghost"}),
        ("vehicles", {"car", "ship", "plane"}, {"shopping cart", "skateboard"}),
        ("food item", {"apple", "cake", "burger"}, {"cup", "bone"}),
        ("tool", {"hammer"}, {"spoon"}),
        ("piece of furniture", {"sofa", "table"}, {"toilet"}),
        ("airplane", {"plane"}, {"helicopter"}),
    ],
)
def test_kinds_of(noun, some, none):
    assert some <= kinds_of(noun)
    assert not none & kinds_of(noun)


def test_every_kind_is_a_thing():
    assert kinds_of("thing") == set(KIND)


def test_an_unknown_noun_is_an_error():
    with pytest.raises(KeyError, match="griffin"):
        kinds_of("griffin")


def test_there_is_enough_of_everything():
    assert len(KINDS) >= 80
    at = Counter(place for kind in KINDS for place in kind.places)
    assert set(at) == set(PLACES)
    assert at["air"] >= 8
    assert at["water"] >= 8
    assert at["indoors"] >= 25
    assert at["land"] >= 50
    assert sum(kind.supports for kind in KINDS) >= 8
    assert sum(kind.perches for kind in KINDS) >= 30


def test_fields_are_sensible():
    for kind in KINDS:
        assert kind.places, kind.name
        assert len(set(kind.places)) == len(kind.places)
        assert 0.3 <= kind.aspect <= 3, kind.name


def test_two_artists_draw_every_kind_and_none_draws_two():
    glyphs = [glyph for kind in KINDS for glyph in (kind.camera, kind.generator)]
    assert len(set(glyphs)) == len(glyphs)
    assert all(kind.camera.startswith("mdi6:") for kind in KINDS)
    assert all(kind.generator.split(":")[0] in {"fa6", "ph", "ri", "own"} for kind in KINDS)
