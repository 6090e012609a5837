"""Hard negatives that replace an object, an attribute or a relation by one that contradicts it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from crossmatch.build.negatives.caption_context import CaptionContext
from crossmatch.build.negatives.contrasts import (
    NUMBER_OF_DIGIT,
    NUMBERS,
    SPATIAL_RELATIONS,
    compatible_attributes,
    contrasting_attributes,
    object_names,
    verb_alternatives,
)
from crossmatch.build.negatives.noun_categories import NOT_OBJECTS, is_of_kind, object_kind
from crossmatch.build.negatives.replacement_objects import aliases, find_groups, gender_of, hypernyms_of, replacement_objects
from crossmatch.text.inflection import inflect, is_uncountable, lemmatise
from crossmatch.text.noun_phrases import NounPhrase, TaggedCaption, word_set
from crossmatch.text.part_of_speech import VERB_TAGS, is_attributive
from crossmatch.text.tokens_and_edits import TokenEdit
from crossmatch.text.wordnet import caption_sense


class EditOption(NamedTuple):
    """A possible edit of a caption: position, edits, and the words before and after. Options at one position are alternatives."""

    position: int
    edits: tuple[TokenEdit, ...]
    before: str
    after: str


# Families whose objects fit only after these words, and families whose objects do not fit after these words.
ONLY_AFTER = {
    "ridden": {"ride"},
    "flown": {"fly"},
    "on waves": {"ride", "on"},
    "in snow": {"ride", "on"},
    "carried": {"hold", "carry"},
}
NOT_AFTER = {"furniture": {"at"}, "gadget": {"on"}, "eaten": {"a", "an"}}
NOUNS_WITHOUT_ARTICLE = frozenset({"bed", "home", "school", "church", "town", "court"})  # "in bed", "at home": no other noun fits
PLACE_FAMILIES = frozenset({"land", "shore", "way", "water", "rise", "ground", "court"})
CONTAINER_FAMILIES = frozenset({"container", "vase", "luggage", "drink"})  # may be followed by "of"
NAME_ADJECTIVES = frozenset(
    {"polar", "hot", "remote", "electric", "digital", "cellular", "mobile", "stuffed", "rubber"}
)  # part of an object name
GROUP_NOUNS = frozenset({"herd", "flock", "group", "bunch", "pack", "crowd", "pile", "row", "pair", "lot", "couple", "number"})
CHILDREN = frozenset({"boy", "girl", "child", "kid", "baby", "infant", "toddler"})
GENDERED_ADJECTIVES = frozenset({"bearded", "bald", "balding", "pregnant", "shirtless", "male", "female"})
FEMALE_PRONOUNS = {"he": "she", "his": "her", "him": "her", "himself": "herself"}
MALE_PRONOUNS = {"she": "he", "her": "his", "hers": "his", "herself": "himself"}
PHOTO_WORDS = frozenset({"photo", "photograph", "picture", "image", "shot", "film", "photography"})
NOT_ANIMAL_COLOURS = frozenset({"red", "blue", "green", "yellow", "purple", "pink", "orange", "turquoise"})
SHADE_WORDS = frozenset({"light", "dark", "bright", "pale", "deep", "neon"})
DIRECTION_PARTICLES = frozenset({"down", "up", "across", "along", "around", "through"})
PARTICLES = DIRECTION_PARTICLES | {"out", "off", "over", "away", "back", "together", "about"}


# -- objects


def replace_object(caption: TaggedCaption, context: CaptionContext) -> Iterator[EditOption]:
    """Replace an object by another of its family that no caption mentions: "a cat" becomes "a rabbit"."""
    for phrase in caption.phrases:
        start, name = object_name(caption, phrase)
        if sum(mention.name == phrase.name for mention in caption.phrases) > 1:  # "a cat … the cat's eyes" is one cat
            continue
        is_colour_pair = (
            caption.words[phrase.head + 1 : phrase.head + 2] == ["and"] and name in contrasting_attributes()
        )  # an orange and blue hydrant
        if "NNS" in caption.tags[start : phrase.head] and not phrase.is_single_name:  # "the yield to pedestrians sign"
            continue
        if name in NOUNS_WITHOUT_ARTICLE and not phrase.determiner and not phrase.is_plural:
            continue
        if (
            phrase.is_possessive
            or is_colour_pair
            or name in NOT_OBJECTS
            or "NNP" in caption.tags[phrase.noun_start : phrase.head + 1]
        ):
            continue
        is_several = _is_several(caption, phrase)
        for new in replacement_objects(name):
            if not _fits_family(caption, phrase, name, new) or is_related(new, name) or not context.is_absent(new, name):
                continue
            if is_uncountable(new) != is_uncountable(name) and (is_several or is_uncountable(new) or phrase.determiner == ""):
                continue
            pronoun_edits = _gender_edits(caption, phrase, name, new, context)
            if pronoun_edits is None:
                continue
            form = inflect(new, "NNS" if is_several else "NN")
            edits = caption.replace(start, phrase.head, form)
            yield EditOption(phrase.head, (*edits, *pronoun_edits), caption.text_between(start, phrase.head), form)


def object_name(caption: TaggedCaption, phrase: NounPhrase) -> tuple[int, str]:
    """Start and full name of the object of a phrase, such as "stop sign" or "polar bear"."""
    head = lemmatise(caption.words[phrase.head], "n")
    adjective = phrase.noun_start - 1
    if adjective in phrase.adjectives:
        full = " ".join([*caption.words[adjective : phrase.head], head])
        if any(full in group.names for group in find_groups(full)) or caption.words[adjective] in NAME_ADJECTIVES:
            return adjective, full
    full = " ".join([*caption.words[phrase.noun_start : phrase.head], head])
    return phrase.noun_start, full if any(full in group.names for group in find_groups(full)) else phrase.name


def _is_several(caption: TaggedCaption, phrase: NounPhrase) -> bool:
    """Whether a phrase is about several objects: by its form, its determiner, or a preceding "a herd of"."""
    word, at = caption.words[phrase.head], phrase.first
    follows_group_noun = at > 1 and caption.words[at - 1] == "of" and caption.words[at - 2] in GROUP_NOUNS
    is_singular = phrase.determiner in ("a", "an", "one", "this", "that", "each")
    return phrase.is_plural or follows_group_noun or (word in ("sheep", "deer", "cattle", "fish") and not is_singular)


def _fits_family(caption: TaggedCaption, phrase: NounPhrase, name: str, new: str) -> bool:
    """Whether the replacement fits the words around the phrase."""
    before = caption.words[phrase.first - 1] if phrase.first else ""
    verb = lemmatise(before, "v") if before.isalpha() else ""
    shared = {group.family for group in find_groups(name)} & {group.family for group in find_groups(new)}
    return any(
        (family not in ONLY_AFTER or {verb, before} & ONLY_AFTER[family])
        and before not in NOT_AFTER.get(family, ())
        and not (family == "eaten" and (phrase.determiner in ("a", "an", "one") or phrase.is_plural))
        and (family in CONTAINER_FAMILIES or caption.words[phrase.head + 1 : phrase.head + 2] != ["of"])  # not "a cactus of birds"
        and not (family in PLACE_FAMILIES and phrase.adjectives)  # not "a grassy cave"
        and not (family == "dish" and phrase.determiner == "" and not phrase.is_plural)
        for family in shared
    )


def is_related(first: str, second: str) -> bool:
    """Whether two nouns are synonyms, or one is a hypernym of the other.

    >>> is_related("dog", "animal"), is_related("dog", "cat"), is_related("couch", "sofa")
    (True, False, True)
    """
    senses = caption_sense(first, "n"), caption_sense(second, "n")
    return bool(aliases(first) & aliases(second)) or senses[0] in hypernyms_of(second) or senses[1] in hypernyms_of(first)


def _gender_edits(
    caption: TaggedCaption, phrase: NounPhrase, name: str, new: str, context: CaptionContext
) -> list[TokenEdit] | None:
    """Edits of pronouns if the gender changes, as in "his hat" to "her hat"; None if the change is not safe."""
    old_gender, new_gender = gender_of(name), gender_of(new)
    if not old_gender and not new_gender:
        return []
    people = [mention for mention in caption.phrases if object_kind(mention.name) == "person"]
    gendered = {caption.words[at] for at in phrase.adjectives} & GENDERED_ADJECTIVES
    if (
        old_gender == new_gender
        or context.may_have_both_genders
        or gendered
        or any(gender_of(noun) == new_gender for noun in context.nouns)
    ):
        return None
    if new in CHILDREN and any(noun in CHILDREN for noun in context.nouns):
        return None
    pronouns = FEMALE_PRONOUNS if old_gender == "he" else MALE_PRONOUNS
    positions = [at for at, word in enumerate(caption.words) if word in pronouns]
    if set(pronouns.values()) & context.words and not positions:
        return None
    if positions and len(people) > 1:
        return None
    return [edit for at in positions for edit in caption.replace(at, at, _pronoun(caption, at, pronouns))]


def _pronoun(caption: TaggedCaption, at: int, pronouns: dict[str, str]) -> str:
    """The pronoun of the other gender; "her" becomes "his" before a noun and "him" elsewhere."""
    word = caption.words[at]
    precedes_noun = any(phrase.first == at + 1 or phrase.first == at for phrase in caption.phrases)
    return "him" if word == "her" and not precedes_noun else pronouns[word]


# -- attributes


def replace_attribute(caption: TaggedCaption, context: CaptionContext) -> Iterator[EditOption]:
    """Replace an attribute by a contradicting one, or a number by a larger one: "a wooden bench" becomes "a metal bench".

    A smaller number would not contradict: three dogs include two dogs.
    """
    for phrase in caption.phrases:
        if phrase.name in PHOTO_WORDS or caption.words[phrase.head] in PHOTO_WORDS:
            continue
        for at in (*phrase.adjectives, *range(phrase.noun_start, phrase.head)):
            for new in _opposites(caption, phrase, at, context):
                yield EditOption(at, tuple(caption.replace(at, at, new)), caption.words[at], new)
        if phrase.is_plural and phrase.name not in NOT_OBJECTS and caption.tags[phrase.head] == "NNS":
            yield from _larger_numbers(caption, phrase, context)


def _opposites(caption: TaggedCaption, phrase: NounPhrase, at: int, context: CaptionContext) -> Iterator[str]:
    word = caption.words[at]
    next_word = caption.words[at + 1] if at + 1 < len(caption.words) else ""
    if (word in SHADE_WORDS and next_word in contrasting_attributes()) or (at and caption.tags[at - 1] == "RB"):
        return
    for kind, opposites in contrasting_attributes().get(word, ()):
        if at >= phrase.noun_start and kind != "material":
            continue
        if accepts_attribute(kind, phrase.name):
            yield from (
                opposite
                for opposite in opposites
                if not compatible_attributes(opposite) & context.words and accepts_value(opposite, phrase.name)
            )


# Which objects accept attributes of a kind: kinds of objects, and single names.
ATTRIBUTE_OWNERS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "colour": (
        word_set("clothing toy vehicle furniture container device thing building room animal"),
        frozenset({"flower"}),
    ),
    "size": (word_set("toy vehicle furniture container device thing building room animal food plant"), frozenset()),
    "tallness": (word_set("building plant"), frozenset()),
    "age": (frozenset({"animal"}), frozenset({"man", "woman", "person", "lady", "couple", "guy", "gentleman"})),
    "material": (word_set("furniture container thing building"), frozenset({"floor", "fence", "wall"})),
    "fullness": (word_set("container furniture room vehicle"), frozenset({"parking lot", "street", "glass", "stadium"})),
    "wetness": (frozenset({"place"}), frozenset({"dog", "street", "road", "sidewalk"})),
    "cleanness": (word_set("room furniture container device"), frozenset({"toilet", "floor", "sink", "street"})),
    "weather": (frozenset(), frozenset({"day", "sky", "afternoon", "morning", "weather"})),
    "openness": (
        word_set("container device"),
        frozenset({"door", "window", "umbrella", "book", "gate", "curtain", "laptop"}),
    ),
    "pattern": (word_set("clothing furniture"), frozenset({"umbrella"})),
    "length": (word_set("furniture"), frozenset({"train", "hair", "line", "road"})),
    "mood": (frozenset({"person"}), frozenset()),
    "traffic": (frozenset(), frozenset({"street", "road", "intersection", "highway", "restaurant", "airport", "beach", "city"})),
    "shape": (word_set("furniture container thing device"), frozenset({"pizza"})),
    "newness": (word_set("vehicle building furniture device room"), frozenset()),
    "ground": (frozenset({"place"}), frozenset({"hill", "field", "area"})),
    "raw": (frozenset({"food"}), frozenset()),
    "opposed": (word_set("person place vehicle furniture container device thing building room clothing"), frozenset()),
}


def accepts_attribute(kind: str, noun: str) -> bool:
    """Whether an object accepts attributes of a kind.

    >>> accepts_attribute("colour", "bus"), accepts_attribute("colour", "woman"), accepts_attribute("age", "woman")
    (True, False, True)
    """
    kinds, names = ATTRIBUTE_OWNERS[kind]
    return object_kind(noun) in kinds or noun in names


def accepts_value(value: str, noun: str) -> bool:
    """Whether an attribute value fits an object; for example, animals are not green."""
    return object_kind(noun) != "animal" or value not in NOT_ANIMAL_COLOURS


def _larger_numbers(caption: TaggedCaption, phrase: NounPhrase, context: CaptionContext) -> Iterator[EditOption]:
    at = phrase.first
    word = caption.words[at]
    name = NUMBER_OF_DIGIT.get(word, word)
    if caption.tags[at] != "CD" or name not in NUMBERS:
        return
    digit_of = {number: figure for figure, number in NUMBER_OF_DIGIT.items()}
    index = NUMBERS.index(name)
    for number in NUMBERS[index + 2 : index + 4]:
        if not {number, digit_of[number]} & context.words:
            new = digit_of[number] if word in NUMBER_OF_DIGIT else number
            yield EditOption(at, tuple(caption.replace(at, at, new)), word, new)


# -- relations


def replace_relation(caption: TaggedCaption, context: CaptionContext) -> Iterator[EditOption]:
    """Replace a spatial relation ("on the bed" by "under the bed") or a verb ("riding a horse" by "feeding a horse")."""
    starts = {phrase.first: phrase for phrase in caption.phrases}
    matched: set[int] = set()
    for relation, kind, alternatives in SPATIAL_RELATIONS:
        size = len(relation.split())
        for at in range(1, len(caption.words) - size):
            target = starts.get(at + size)
            if at in matched or target is None or caption.words[at : at + size] != relation.split():
                continue
            if not _accepts_relation(target, kind, caption) or _belongs_to_verb(caption, at):
                continue
            if size > 1:
                matched.update(range(at, at + size))
            for new in alternatives:
                if not set(new.split()) <= context.words:
                    yield EditOption(at, tuple(caption.replace(at, at + size - 1, new)), relation, new)
    yield from _other_verbs(caption, context, starts)


def _belongs_to_verb(caption: TaggedCaption, at: int) -> bool:
    """Whether a preposition belongs to the verb before it and names no place: "looking out over", "watching over"."""
    before, tag = caption.words[at - 1], caption.tags[at - 1]
    is_watching = (
        caption.words[at] == "over" and tag in VERB_TAGS and lemmatise(before, "v") not in ("fly", "hang", "jump", "hover", "float")
    )
    return tag == "RP" or before in PARTICLES or is_watching


def _accepts_relation(target: NounPhrase, kind: str, caption: TaggedCaption) -> bool:
    if target.is_possessive or target.name in NOT_OBJECTS or caption.words[target.head] in NOT_OBJECTS:
        return False
    if kind == "worn":
        after = list(caption.tags[target.head + 1 : target.head + 2])
        is_whole_phrase = target.determiner in ("a", "an", "his", "her", "") and after not in (["VBG"], ["VBN"], ["CC"], [","])
        return is_whole_phrase and any(aliases(target.name) & aliases(name) for name in object_names(kind))
    if kind == "seen":
        return object_kind(target.name) not in ("", "clothing", "game")
    return any(aliases(target.name) & aliases(name) for name in object_names(kind))


def _other_verbs(caption: TaggedCaption, context: CaptionContext, starts: dict[int, NounPhrase]) -> Iterator[EditOption]:
    for at, tag in enumerate(caption.tags):
        if tag not in VERB_TAGS or is_attributive(caption.words, caption.tags, at):
            continue
        base = lemmatise(caption.words[at], "v")
        subject = _subject(caption, at)
        for subject_kind, object_kind_wanted, alternatives in verb_alternatives().get(base, ()):
            if (
                subject is None
                or not is_of_kind(subject.name, subject_kind)
                or not _object_fits(caption, at, object_kind_wanted, starts)
            ):
                continue
            for new in alternatives:
                if lemmatise(new.removeprefix("="), "v") in context.words:
                    continue
                form = new[1:] if new.startswith("=") else inflect(new, tag)
                yield EditOption(at, tuple(caption.replace(at, at, form)), caption.words[at], form)


def _subject(caption: TaggedCaption, at: int) -> NounPhrase | None:
    """The subject of a verb: the phrase before it, or the first of two if the second is clothing ("a man in a hat riding")."""
    before = [phrase for phrase in caption.phrases if phrase.head < at]
    if not before or before[-1].is_possessive:
        return None
    last = before[-1]
    if set(caption.words[last.head + 1 : at]) & {"and", ",", "while", "as", "that", "who", "which", "to"}:
        return None
    if len(before) == 2 and object_kind(last.name) == "clothing" and caption.words[last.first - 1] in ("in", "with"):
        return before[0]
    return last


def _object_fits(caption: TaggedCaption, at: int, kind: str, starts: dict[int, NounPhrase]) -> bool:
    """Whether the words after a verb are an object of the kind, or no object if the kind is empty."""
    after = caption.words[at + 1] if at + 1 < len(caption.words) else ""
    target = starts.get(at + 1)
    if kind:
        return target is not None and not target.is_possessive and target.name not in NOT_OBJECTS and is_of_kind(target.name, kind)
    is_direction = after in DIRECTION_PARTICLES and at + 2 in starts
    return target is None and (after not in PARTICLES or is_direction) and after not in ("for", "to", "with", "like")
