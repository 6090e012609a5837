"""Hard negatives that replace: a thing by another of its family, a quality by one that excludes it, a relation by another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from crossmatch.build.negative_contrasts import FIGURES, NUMBERS, PLACES, contrasts, deeds, kinds, near
from crossmatch.build.negative_kinds import NO_THING, Mentioned, kind_of, of_kind
from crossmatch.build.negative_objects import above, aliases, groups_of, sex, siblings
from crossmatch.build.phrases import Phrase, Reading, listed
from crossmatch.language.forms import inflected, lemma, uncounted
from crossmatch.language.tags import VERBS, describes
from crossmatch.language.wordnet import meaning
from crossmatch.language.words import Edit


class Option(NamedTuple):
    """Something that a rule could do: where (options for the same place are alternatives), how, and what changes into what."""

    place: int
    edits: tuple[Edit, ...]
    before: str
    after: str


# Families whose members fit only after some verbs, and those whose members fit no longer after some words.
ONLY_AFTER = {
    "ridden": {"ride"},
    "flown": {"fly"},
    "on waves": {"ride", "on"},
    "in snow": {"ride", "on"},
    "carried": {"hold", "carry"},
}
NOT_AFTER = {"furniture": {"at"}, "gadget": {"on"}, "eaten": {"a", "an"}}
WITHOUT_ARTICLE = frozenset({"bed", "home", "school", "church", "town", "court"})  # "in bed", "at home": no place for another noun
PLACE_FAMILIES = frozenset({"land", "shore", "way", "water", "rise", "ground", "court"})
OF = frozenset({"container", "vase", "luggage", "drink"})  # what may be full of something
NAMING = frozenset({"polar", "hot", "remote", "electric", "digital", "cellular", "mobile", "stuffed", "rubber"})  # part of a name
SWARMS = frozenset({"herd", "flock", "group", "bunch", "pack", "crowd", "pile", "row", "pair", "lot", "couple", "number"})
CHILDREN = frozenset({"boy", "girl", "child", "kid", "baby", "infant", "toddler"})
SEXED = frozenset({"bearded", "bald", "balding", "pregnant", "shirtless", "male", "female"})
HE = {"he": "she", "his": "her", "him": "her", "himself": "herself"}
SHE = {"she": "he", "her": "his", "hers": "his", "herself": "himself"}
PHOTOS = frozenset({"photo", "photograph", "picture", "image", "shot", "film", "photography"})
SHADES = frozenset({"light", "dark", "bright", "pale", "deep", "neon"})
MOVED = frozenset({"down", "up", "across", "along", "around", "through"})
PARTICLES = MOVED | {"out", "off", "over", "away", "back", "together", "about"}


# -- things


def replace_object(reading: Reading, known: Mentioned) -> Iterator[Option]:
    """A thing becomes another of the same family that no caption mentions, in the same number: "a cat" becomes "a rabbit"."""
    for phrase in reading.phrases:
        start, name = listed_name(reading, phrase)
        if [other.name for other in reading.phrases].count(phrase.name) > 1:  # "a cat … the cat's eyes" is one cat
            continue
        joined = reading.words[phrase.last + 1 : phrase.last + 2] == ["and"] and name in contrasts()  # an orange and blue hydrant
        if "NNS" in reading.tags[start : phrase.last] and not phrase.whole:  # "the yield to pedestrians sign"
            continue
        if name in WITHOUT_ARTICLE and not phrase.determiner and not phrase.many:
            continue
        if phrase.owned or joined or name in NO_THING or "NNP" in reading.tags[phrase.nouns : phrase.last + 1]:
            continue
        several = _several(reading, phrase)
        for new in siblings(name):
            if not _fits_family(reading, phrase, name, new) or related(new, name) or not known.absent(new, name):
                continue
            if uncounted(new) != uncounted(name) and (several or uncounted(new) or phrase.determiner == ""):
                continue
            turned = _turned(reading, phrase, name, new, known)
            if turned is None:
                continue
            form = inflected(new, "NNS" if several else "NN")
            edits = reading.put(start, phrase.last, form)
            yield Option(phrase.last, (*edits, *turned), reading.said(start, phrase.last), form)


def listed_name(reading: Reading, phrase: Phrase) -> tuple[int, str]:
    """Where the name of a phrase's thing begins, and the name, with the words that belong to it: "stop sign", "polar bear"."""
    head = lemma(reading.words[phrase.last], "n")
    adjective = phrase.nouns - 1
    if adjective in phrase.adjectives:
        full = " ".join([*reading.words[adjective : phrase.last], head])
        if any(full in group.names for group in groups_of(full)) or reading.words[adjective] in NAMING:
            return adjective, full
    full = " ".join([*reading.words[phrase.nouns : phrase.last], head])
    return phrase.nouns, full if any(full in group.names for group in groups_of(full)) else phrase.name


def _several(reading: Reading, phrase: Phrase) -> bool:
    """Whether a phrase is about several things: by its form, its determiner, or "a herd of" before it."""
    word, at = reading.words[phrase.last], phrase.first
    herd = at > 1 and reading.words[at - 1] == "of" and reading.words[at - 2] in SWARMS
    same = word in ("sheep", "deer", "cattle", "fish") and phrase.determiner not in ("a", "an", "one", "this", "that", "each")
    return phrase.many or herd or same


def _fits_family(reading: Reading, phrase: Phrase, name: str, new: str) -> bool:
    """Whether the place of a thing allows what the family offers."""
    before = reading.words[phrase.first - 1] if phrase.first else ""
    verb = lemma(before, "v") if before.isalpha() else ""
    shared = {group.family for group in groups_of(name)} & {group.family for group in groups_of(new)}
    return any(
        (family not in ONLY_AFTER or {verb, before} & ONLY_AFTER[family])
        and before not in NOT_AFTER.get(family, ())
        and not (family == "eaten" and (phrase.determiner in ("a", "an", "one") or phrase.many))
        and (family in OF or reading.words[phrase.last + 1 : phrase.last + 2] != ["of"])  # no cactus of birds
        and not (family in PLACE_FAMILIES and phrase.adjectives)  # no grassy cave
        and not (family == "dish" and phrase.determiner == "" and not phrase.many)
        for family in shared
    )


def related(one: str, other: str) -> bool:
    """Whether one noun is a kind of the other, or means the same.

    >>> related("dog", "animal"), related("dog", "cat"), related("couch", "sofa")
    (True, False, True)
    """
    meanings = meaning(one, "n"), meaning(other, "n")
    return bool(aliases(one) & aliases(other)) or meanings[0] in above(other) or meanings[1] in above(one)


def _turned(reading: Reading, phrase: Phrase, name: str, new: str, known: Mentioned) -> list[Edit] | None:
    """What else must change where a man becomes a woman: his hat is her hat. None where that cannot be told."""
    old_sex, new_sex = sex(name), sex(new)
    if not old_sex and not new_sex:
        return []
    people = [other for other in reading.phrases if kind_of(other.name) == "person"]
    marked = {reading.words[at] for at in phrase.adjectives} & SEXED
    if old_sex == new_sex or known.crowd or marked or any(sex(noun) == new_sex for noun in known.nouns):
        return None
    if new in CHILDREN and any(noun in CHILDREN for noun in known.nouns):
        return None
    pronouns = HE if old_sex == "he" else SHE
    places = [at for at, word in enumerate(reading.words) if word in pronouns]
    if set(pronouns.values()) & known.words and not places:
        return None
    if places and len(people) > 1:
        return None
    return [edit for at in places for edit in reading.put(at, at, _pronoun(reading, at, pronouns))]


def _pronoun(reading: Reading, at: int, pronouns: dict[str, str]) -> str:
    """The pronoun of the other sex: "her" is "his" before a noun and "him" elsewhere."""
    word = reading.words[at]
    follows = any(phrase.first == at + 1 or phrase.first == at for phrase in reading.phrases)
    return "him" if word == "her" and not follows else pronouns[word]


# -- qualities


def replace_attribute(reading: Reading, known: Mentioned) -> Iterator[Option]:
    """A quality becomes one that excludes it, a number a larger one: "a wooden bench" becomes "a metal bench".

    A smaller number would be no contradiction: where three dogs are, two are.
    """
    for phrase in reading.phrases:
        if phrase.name in PHOTOS or reading.words[phrase.last] in PHOTOS:
            continue
        for at in (*phrase.adjectives, *range(phrase.nouns, phrase.last)):
            for new in _opposites(reading, phrase, at, known):
                yield Option(at, tuple(reading.put(at, at, new)), reading.words[at], new)
        if phrase.many and phrase.name not in NO_THING and reading.tags[phrase.last] == "NNS":
            yield from _more(reading, phrase, known)


def _opposites(reading: Reading, phrase: Phrase, at: int, known: Mentioned) -> Iterator[str]:
    word = reading.words[at]
    later = reading.words[at + 1] if at + 1 < len(reading.words) else ""
    if (word in SHADES and later in contrasts()) or (at and reading.tags[at - 1] == "RB"):
        return
    for kind, others in contrasts().get(word, ()):
        if at >= phrase.nouns and kind != "material":
            continue
        if suits(kind, phrase.name):
            yield from (new for new in others if not near(new) & known.words and suits_word(new, phrase.name))


# Which things have a quality of a kind: by the kind of thing, and by name.
SUITS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "colour": (
        listed("clothing toy vehicle furniture container device thing building room animal"),
        frozenset({"flower"}),
    ),
    "size": (listed("toy vehicle furniture container device thing building room animal food plant"), frozenset()),
    "tallness": (listed("building plant"), frozenset()),
    "age": (frozenset({"animal"}), frozenset({"man", "woman", "person", "lady", "couple", "guy", "gentleman"})),
    "material": (listed("furniture container thing building"), frozenset({"floor", "fence", "wall"})),
    "fullness": (listed("container furniture room vehicle"), frozenset({"parking lot", "street", "glass", "stadium"})),
    "wetness": (frozenset({"place"}), frozenset({"dog", "street", "road", "sidewalk"})),
    "cleanness": (listed("room furniture container device"), frozenset({"toilet", "floor", "sink", "street"})),
    "weather": (frozenset(), frozenset({"day", "sky", "afternoon", "morning", "weather"})),
    "openness": (
        listed("container device"),
        frozenset({"door", "window", "umbrella", "book", "gate", "curtain", "laptop"}),
    ),
    "pattern": (listed("clothing furniture"), frozenset({"umbrella"})),
    "length": (listed("furniture"), frozenset({"train", "hair", "line", "road"})),
    "mood": (frozenset({"person"}), frozenset()),
    "traffic": (frozenset(), frozenset({"street", "road", "intersection", "highway", "restaurant", "airport", "beach", "city"})),
    "shape": (listed("furniture container thing device"), frozenset({"pizza"})),
    "newness": (listed("vehicle building furniture device room"), frozenset()),
    "ground": (frozenset({"place"}), frozenset({"hill", "field", "area"})),
    "raw": (frozenset({"food"}), frozenset()),
    "opposed": (listed("person place vehicle furniture container device thing building room clothing"), frozenset()),
}


def suits(kind: str, noun: str) -> bool:
    """Whether a thing can have qualities of a kind.

    >>> suits("colour", "bus"), suits("colour", "woman"), suits("age", "woman")
    (True, False, True)
    """
    kinds_of, names = SUITS[kind]
    return kind_of(noun) in kinds_of or noun in names


def suits_word(new: str, noun: str) -> bool:
    """Whether a word fits a thing: no animal is green, and an elephant is not little."""
    return not (kind_of(noun) == "animal" and new in ("red", "blue", "green", "yellow", "purple", "pink", "orange", "turquoise"))


def _more(reading: Reading, phrase: Phrase, known: Mentioned) -> Iterator[Option]:
    at = phrase.first
    word = reading.words[at]
    name = FIGURES.get(word, word)
    if reading.tags[at] != "CD" or name not in NUMBERS:
        return
    figures = {number: figure for figure, number in FIGURES.items()}
    place = NUMBERS.index(name)
    for number in NUMBERS[place + 2 : place + 4]:
        if not {number, figures[number]} & known.words:
            new = figures[number] if word in FIGURES else number
            yield Option(at, tuple(reading.put(at, at, new)), word, new)


# -- relations


def replace_relation(reading: Reading, known: Mentioned) -> Iterator[Option]:
    """A place becomes another ("on the bed", "under the bed"), a deed another ("riding a horse", "feeding a horse")."""
    starts = {phrase.first: phrase for phrase in reading.phrases}
    taken: set[int] = set()
    for relation, kind, others in PLACES:
        size = len(relation.split())
        for at in range(1, len(reading.words) - size):
            thing = starts.get(at + size)
            if at in taken or thing is None or reading.words[at : at + size] != relation.split():
                continue
            if not _can_be_at(thing, kind, reading) or _of_the_verb(reading, at):
                continue
            if size > 1:
                taken.update(range(at, at + size))
            for new in others:
                if not set(new.split()) <= known.words:
                    yield Option(at, tuple(reading.put(at, at + size - 1, new)), relation, new)
    yield from _other_deeds(reading, known, starts)


def _of_the_verb(reading: Reading, at: int) -> bool:
    """Whether a preposition belongs to the verb before it, and says no place: "looking out over", "watching over"."""
    before, tag = reading.words[at - 1], reading.tags[at - 1]
    watched = reading.words[at] == "over" and tag in VERBS and lemma(before, "v") not in ("fly", "hang", "jump", "hover", "float")
    return tag == "RP" or before in PARTICLES or watched


def _can_be_at(thing: Phrase, kind: str, reading: Reading) -> bool:
    if thing.owned or thing.name in NO_THING or reading.words[thing.last] in NO_THING:
        return False
    if kind == "worn":
        after = list(reading.tags[thing.last + 1 : thing.last + 2])
        alone = thing.determiner in ("a", "an", "his", "her", "") and after not in (["VBG"], ["VBN"], ["CC"], [","])
        return alone and any(aliases(thing.name) & aliases(name) for name in kinds(kind))
    if kind == "seen":
        return kind_of(thing.name) not in ("", "clothing", "game")
    return any(aliases(thing.name) & aliases(name) for name in kinds(kind))


def _other_deeds(reading: Reading, known: Mentioned, starts: dict[int, Phrase]) -> Iterator[Option]:
    for at, tag in enumerate(reading.tags):
        if tag not in VERBS or describes(reading.words, reading.tags, at):
            continue
        base = lemma(reading.words[at], "v")
        doer = _doer(reading, at)
        for who, what, others in deeds().get(base, ()):
            if doer is None or not of_kind(doer.name, who) or not _object_fits(reading, at, what, starts):
                continue
            for new in others:
                if lemma(new.removeprefix("="), "v") in known.words:
                    continue
                form = new[1:] if new.startswith("=") else inflected(new, tag)
                yield Option(at, tuple(reading.put(at, at, form)), reading.words[at], form)


def _doer(reading: Reading, at: int) -> Phrase | None:
    """Whose a verb is: the phrase right before it, or the first where the second only tells more of it: "a man in a hat riding"."""
    before = [phrase for phrase in reading.phrases if phrase.last < at]
    if not before or before[-1].owned:
        return None
    last = before[-1]
    if set(reading.words[last.last + 1 : at]) & {"and", ",", "while", "as", "that", "who", "which", "to"}:
        return None
    if len(before) == 2 and kind_of(last.name) == "clothing" and reading.words[last.first - 1] in ("in", "with"):
        return before[0]
    return last


def _object_fits(reading: Reading, at: int, what: str, starts: dict[int, Phrase]) -> bool:
    """Whether what comes after a verb is what the deed is done to; nothing, where it is done to nothing."""
    after = reading.words[at + 1] if at + 1 < len(reading.words) else ""
    thing = starts.get(at + 1)
    if what:
        return thing is not None and not thing.owned and thing.name not in NO_THING and of_kind(thing.name, what)
    moves = after in MOVED and at + 2 in starts
    return thing is None and (after not in PARTICLES or moves) and after not in ("for", "to", "with", "like")
