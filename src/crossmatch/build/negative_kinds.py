"""What kind of thing a noun names, and what the captions of an image mention between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from crossmatch.build.negative_objects import above, aliases, groups_of
from crossmatch.build.phrases import Reading, listed
from crossmatch.language.forms import lemma, uncounted
from crossmatch.language.scene_phrases import LIVING
from crossmatch.language.wordnet import Synset, meaning

# Kinds by the WordNet lemma of something above them; the first that fits. None of them stands for nothing in particular.
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
OTHERWISE = {"office": "room", "fire hydrant": "thing", "hydrant": "thing", "garage": "room", "airport": "building", "hay": "thing"}
TOPICS = {6: "thing", 20: "plant"}  # lexicographers' files
PEOPLE = frozenset(
    {"person", "people", "group", "couple", "crowd", "family", "team", "child", "kid", "adult", "someone", "pair", "friend"}
)
THINGS = frozenset({"clothing", "toy", "vehicle", "furniture", "food", "luggage", "container", "device", "thing"})
ANIMATE = frozenset({"person", "animal"})
# What is no thing of its own: pictures, sides, times, amounts, surroundings.
NO_THING = listed(
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
def kind_of(noun: str) -> str:
    """The kind of thing that a lemma names: one of `KINDS`, `thing` for another artifact, or nothing.

    >>> [kind_of(noun) for noun in ("woman", "zebra", "bus", "couch", "kitchen", "banana", "idea")]
    ['person', 'animal', 'vehicle', 'furniture', 'room', 'food', '']
    """
    if noun in NO_THING:
        return ""
    names = {name for synset in above(noun) for name in synset.lemmas}
    if any(group.family in FOODS for group in groups_of(noun)):
        return "food"
    found = OTHERWISE.get(noun) or next((kind for kind, marks in KINDS if names.intersection(marks)), "")
    synset = meaning(noun, "n")
    return found or (TOPICS.get(synset.topic, "") if synset is not None else "")


@dataclass(frozen=True, eq=False)
class Mentioned:
    """What the captions of an image mention between them: what a negative must not say."""

    readings: tuple[Reading, ...]

    @cached_property
    def nouns(self) -> dict[str, bool]:
        """Every noun as a lemma, alone and with the nouns before it, and whether it is ever several, or a mass."""
        found: dict[str, bool] = {}
        for reading in self.readings:
            for phrase in reading.phrases:
                heads = [lemma(word, "n") for word in reading.words[phrase.nouns : phrase.last + 1]]
                for name in (*heads, phrase.name, " ".join([*reading.words[phrase.nouns : phrase.last], heads[-1]])):
                    found[name] = found.get(name, False) or phrase.many or uncounted(name)
        return found

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word, as it stands and as a lemma of any kind."""
        plain = {word for reading in self.readings for word in reading.words}
        return frozenset(plain | {lemma(word, pos) for word in plain for pos in ("n", "v") if word.isalpha()})

    @cached_property
    def qualities(self) -> frozenset[tuple[str, str]]:
        """(noun, adjective) of every phrase."""
        return frozenset(
            (phrase.name, reading.words[at]) for reading in self.readings for phrase in reading.phrases for at in phrase.adjectives
        )

    @cached_property
    def broader(self) -> dict[Synset, str]:
        """The meanings of all nouns and of all that is above them, with the noun."""
        return {synset: noun for noun in self.nouns for synset in above(noun)}

    @cached_property
    def meanings(self) -> dict[Synset, str]:
        return {found: noun for noun in self.nouns if (found := meaning(noun, "n")) is not None}

    def absent(self, noun: str, instead: str = "") -> bool:
        """Whether no caption mentions such a thing, a kind of it, or something that it may be a kind of.

        What takes the place of a singular noun may be of the same kind ("an animal": the dog, which becomes a cat); but "animals"
        may have been dogs and cats.
        """
        head = noun.split(" ")[-1]
        if head.endswith("er") and len(head) > 4 and any(word.startswith(head[:-2]) for word in self.words):  # hikers go hiking
            return False
        if aliases(noun) & self.nouns.keys() or noun in self.words or (head in self.nouns and " " in noun):
            return False
        own = meaning(noun, "n") or meaning(head, "n")
        if own is None:
            return True
        if own in self.broader:  # a kind of it is mentioned
            return False
        shared = above(instead) if instead else frozenset()
        return not any(
            synset in self.meanings and (synset not in shared or self.nouns[self.meanings[synset]])
            for synset in above(noun if meaning(noun, "n") else head)
        )

    @cached_property
    def crowd(self) -> bool:
        """Whether there may be people of both sexes: several are mentioned, or some whose sex is not."""
        return any(self.nouns.get(name, False) for name in PEOPLE) or bool(
            {"group", "couple", "crowd", "family", "team", "pair", "people"} & self.words
        )


def animate(noun: str) -> bool:
    """Whether it is a person or an animal, or many of them.

    >>> animate("zebra"), animate("crowd"), animate("bus")
    (True, True, False)
    """
    return noun in LIVING or kind_of(noun) in ANIMATE


def of_kind(noun: str, wanted: str) -> bool:
    """Whether a noun is of a kind that a rule asks for: a kind, `animate`, `thing` for whatever can be handled, or nothing for all.

    >>> of_kind("dog", "animate"), of_kind("dog", "thing"), of_kind("cup", "thing")
    (True, False, True)
    """
    if wanted == "animate":
        return animate(noun)
    return not wanted or kind_of(noun) in (THINGS if wanted == "thing" else {wanted})
