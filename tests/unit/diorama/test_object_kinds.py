"""The table of object kinds: unique words, a tree of categories, and enough of everything."""

from __future__ import annotations

from collections import Counter

import pytest

from crossmatch.diorama.object_kinds import CATEGORIES, CATEGORY, KIND, KINDS, ancestors, kinds_of
from crossmatch.diorama.scenes import COLOURS, RELATIONS, SETTINGS, SIZES, TEXTURES


def test_names_are_unique_and_canonical():
    entries = (*KINDS, *CATEGORIES)
    assert len({entry.name for entry in entries}) == len(entries)
    assert all(entry.name == entry.words[0].singular for entry in entries)
    assert len(KIND) == len(KINDS)
    assert len(CATEGORY) == len(CATEGORIES)


def test_no_noun_belongs_to_two_entries():
    forms = Counter(form for e in (*KINDS, *CATEGORIES) for w in e.words for form in {w.singular, w.plural})
    assert [form for form, count in forms.items() if count > 1] == []


def test_no_noun_is_an_attribute_setting_or_relation():
    reserved = {*COLOURS, *TEXTURES, *SIZES, *SETTINGS, *RELATIONS}
    assert not [w for e in (*KINDS, *CATEGORIES) for w in e.words if reserved & {w.singular, w.plural}]


def test_every_chain_of_parents_ends_at_thing():
    assert all(kind.parent in CATEGORY for kind in KINDS)
    assert [c.name for c in CATEGORIES if c.parent is None] == ["thing"]
    assert all(ancestors(entry.name)[-1] == "thing" for entry in (*KINDS, *CATEGORIES) if entry.name != "thing")
    assert all(kinds_of(category.name) for category in CATEGORIES), "a category without kinds"


@pytest.mark.parametrize(
    ("noun", "included", "excluded"),
    [
        ("animal", {"dog", "duck", "beetle", "fish"}, {"teddy bear", "ghost"}),
        ("vehicles", {"car", "ship", "plane"}, {"shopping cart", "skateboard"}),
        ("food item", {"apple", "cake", "burger"}, {"cup", "bone"}),
        ("tool", {"hammer"}, {"spoon"}),
        ("piece of furniture", {"sofa", "table"}, {"toilet"}),
        ("airplane", {"plane"}, {"helicopter"}),
    ],
)
def test_nouns_are_true_of_the_kinds_below_them(noun, included, excluded):
    assert included <= kinds_of(noun)
    assert not excluded & kinds_of(noun)


def test_every_kind_is_a_thing():
    assert kinds_of("thing") == set(KIND)


def test_unknown_noun_is_rejected():
    with pytest.raises(KeyError, match="griffin"):
        kinds_of("griffin")


def test_table_has_enough_kinds_of_every_sort():
    assert len(KINDS) >= 80
    kinds_at = Counter(place for kind in KINDS for place in kind.places)
    assert set(kinds_at) == {"land", "indoors", "water", "air"}
    for place, least in {"air": 8, "water": 8, "indoors": 25, "land": 50}.items():
        assert kinds_at[place] >= least
    assert sum(kind.supports for kind in KINDS) >= 8
    assert sum(kind.perches for kind in KINDS) >= 30


def test_places_and_aspects_are_in_range():
    for kind in KINDS:
        assert kind.places, kind.name
        assert len(set(kind.places)) == len(kind.places)
        assert 0.3 <= kind.aspect <= 3, kind.name


def test_both_styles_have_their_own_glyph_for_every_kind():
    glyphs = [glyph for kind in KINDS for glyph in (kind.camera, kind.generator)]
    assert len(set(glyphs)) == len(glyphs)
    assert all(kind.camera.startswith("mdi6:") for kind in KINDS)
    assert all(kind.generator.split(":")[0] in {"fa6", "ph", "ri", "own"} for kind in KINDS)
