"""The kind of object that a noun names: person, animal, food and others."""

from __future__ import annotations

from functools import lru_cache

from crossmatch.build.negatives.replacement_objects import find_groups, hypernyms_of
from crossmatch.text.caption_chunks import LIVING_NAMES
from crossmatch.text.noun_phrases import word_set
from crossmatch.text.wordnet import caption_sense

# Kinds of objects with the WordNet lemmas of their hypernyms; the first match counts.
KINDS = (
    ("person", ("person",)),
    ("animal", ("animal",)),
    ("clothing", ("clothing", "garment", "headdress", "footwear", "neckwear", "jewelry", "spectacles")),
    ("toy", ("plaything", "toy")),
    ("vehicle", ("vehicle", "public transport", "skateboard", "surfboard", "ski", "snowboard")),
    ("furniture", ("furniture", "floor cover", "bedclothes", "curtain")),
    ("room", ("room",)),
    ("food", ("food", "foodstuff", "nutriment", "produce", "edible fruit", "fruit", "vegetable")),
    ("building", ("building", "house", "tower")),
    ("luggage", ("luggage", "bag")),
    ("container", ("container", "vessel", "tableware", "crockery")),
    ("game", ("athletic game", "game", "sport")),
    (
        "device",
        ("electronic equipment", "machine", "appliance", "computer", "telephone", "instrument", "timepiece", "sports implement"),
    ),
    (
        "place",
        ("road", "tract", "body of water", "geological formation", "park", "path", "land", "forest", "court", "shore", "field"),
    ),
)
FOODS = frozenset({"dish", "eaten", "fruit", "vegetable", "vegetables", "drink"})
KIND_EXCEPTIONS = {
    "office": "room", "fire hydrant": "thing", "hydrant": "thing", "garage": "room", "airport": "building", "hay": "thing",
}  # fmt: skip
KIND_BY_TOPIC = {6: "thing", 20: "plant"}  # numbers of WordNet's lexicographer files
PEOPLE = frozenset(
    {"person", "people", "group", "couple", "crowd", "family", "team", "child", "kid", "adult", "someone", "pair", "friend"}
)
HANDLED_KINDS = frozenset({"clothing", "toy", "vehicle", "furniture", "food", "luggage", "container", "device", "thing"})
ANIMATE = frozenset({"person", "animal"})
# Nouns that name no object of their own: pictures, sides, times, amounts, surroundings.
NOT_OBJECTS = word_set(
    """
    air amount area arm arrangement assortment back background base bit body bottom bunch center centre cityscape close
    close-up closeup collection color colour corner couple crowd day daytime display distance ear edge end eye face family
    foot foreground front game group hair half hand head herd image inside item kind landscape lap left leg light line lot
    match middle motion mouth name neck night nighttime nose number object other outdoors outside pair part paw photo
    photograph picture piece pile place portion portrait race reflection rest right row scene section series set setting
    shade shadow shape shot shoulder show side sideline size sky skyline slice someone something space spot stack style sun
    sunset surface tail team teddy thing things time top trick trip trunk type use variety view way weather work world
    """
)


@lru_cache(1 << 14)
def object_kind(noun: str) -> str:
    """The kind of object that a lemma names: one of `KINDS`, `thing` for another artifact, or empty.

    >>> [object_kind(noun) for noun in ("woman", "zebra", "bus", "couch", "kitchen", "banana", "idea")]
    ['person', 'animal', 'vehicle', 'furniture', 'room', 'food', '']
    """
    if noun in NOT_OBJECTS:
        return ""
    names = {name for synset in hypernyms_of(noun) for name in synset.lemmas}
    if any(group.family in FOODS for group in find_groups(noun)):
        return "food"
    kind = KIND_EXCEPTIONS.get(noun) or next((name for name, lemmas in KINDS if names.intersection(lemmas)), "")
    synset = caption_sense(noun, "n")
    return kind or (KIND_BY_TOPIC.get(synset.lexicographer_file, "") if synset is not None else "")


def is_animate(noun: str) -> bool:
    """Whether a noun names a person, an animal, or a group of them.

    >>> is_animate("zebra"), is_animate("crowd"), is_animate("bus")
    (True, True, False)
    """
    return noun in LIVING_NAMES or object_kind(noun) in ANIMATE


def is_of_kind(noun: str, kind: str) -> bool:
    """Whether a noun has the kind that a rule requires.

    `animate` means persons and animals, `thing` anything that can be handled, empty anything.

    >>> is_of_kind("dog", "animate"), is_of_kind("dog", "thing"), is_of_kind("cup", "thing")
    (True, False, True)
    """
    if kind == "animate":
        return is_animate(noun)
    return not kind or object_kind(noun) in (HANDLED_KINDS if kind == "thing" else {kind})
