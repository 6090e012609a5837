"""Elements of a tagged caption from which a scene graph is built: objects, verbs, prepositions, adjectives and connectives.

Words and tests for noun phrases come from `noun_phrases`. The chunking differs from it on purpose: here modifiers are lemmas,
numbers and owners are kept, lists without commas are split, and words of place are tagged again first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import NamedTuple

from crossmatch.text.inflection import lemmatise, possible_tags
from crossmatch.text.noun_phrases import ADJECTIVE_TAGS, QUANTITY_NOUNS, is_plural_head, noun_follows
from crossmatch.text.part_of_speech import NOUN_TAGS, VERB_TAGS, is_attributive
from crossmatch.text.wordnet import caption_sense, is_lemma, lemma_frequency

ANIMAL, PERSON = 5, 18  # lexicographers' files
DETERMINER_TAGS = frozenset({"DT", "PDT", "PRP$", "WP$"})
PARTITIVES = frozenset({"all", "both", "each", "few", "many", "most", "none", "one", "several", "some"})  # "some of the dogs"
# "in the middle of the road" is one relation, like "on top of" in the paper; the middle is not an object.
SIDE_NOUNS = frozenset(
    {
        "back", "bottom", "center", "centre", "edge", "end", "front", "inside", "left", "middle", "midst", "outside", "rear",
        "right", "side", "sides", "top",
    }
)  # fmt: skip
PLACE_WORDS = frozenset(
    {"around", "behind", "beside", "down", "inside", "near", "off", "opposite", "outside", "over", "past", "up"}
)
LINK_STARTS = frozenset({"along", "around", "at", "by", "from", "in", "into", "near", "off", "on", "onto", "over", "to", "towards"})
LINK_ADVERBS = frozenset({"across", "ahead", "along", "away", "because", "close", "inside", "next", "off", "out", "outside"})
CLAUSE_STARTS = frozenset(
    {"although", "as", "because", "if", "since", "so", "though", "when", "where", "whereas", "while", "whilst"}
)
PEOPLE_BEFORE_NOUNS = frozenset({"adult", "baby", "boy", "child", "fellow", "female", "girl", "male", "pet", "police", "woman"})
AFTER_QUANTITY_TAGS = DETERMINER_TAGS | ADJECTIVE_TAGS | NOUN_TAGS | VERB_TAGS | {"CD", "PRP", "RB"}
BEFORE_NOUN_TAGS = ADJECTIVE_TAGS | {"RB", "VBN", "VBG", "CD", "CC"}


class ObjectMention(NamedTuple):
    """A noun phrase: the lemma of its main noun and its modifiers; or a pronoun, which is resolved later.

    `owner` is a possessive pronoun ("his", "whose") or the lemma of a noun with 's.
    """

    name: str
    modifiers: tuple[str, ...] = ()
    owner: str | None = None
    is_plural: bool = False
    is_pronoun: bool = False


class VerbGroup(NamedTuple):
    """A main verb without its auxiliaries."""

    name: str
    tag: str  # of the main verb
    is_finite: bool  # "rides", "is riding"; not "riding"
    is_passive: bool = False  # "is eaten"
    particle: str = ""


class Preposition(NamedTuple):
    """A preposition of one or more words."""

    name: str


class PredicateAdjective(NamedTuple):
    """An adjective without a noun after it."""

    name: str


class Connective(NamedTuple):
    """A word that joins phrases: "and", the start of a clause ("while"), or of a relative clause ("who")."""

    name: str


SceneElement = ObjectMention | VerbGroup | Preposition | PredicateAdjective | Connective


def parse_scene(words: Sequence[str], tags: Sequence[str]) -> list[SceneElement]:
    """Elements of one caption, from its lower-case words and their Penn Treebank tags.

    >>> parse_scene("a young girl standing on top of a tennis court".split(), "DT JJ NN VBG IN NN IN DT NN NN".split())[:3]
    [ObjectMention(name='girl', modifiers=('young',), ...), VerbGroup(name='stand', tag='VBG', ...), Preposition(name='on top of')]
    """
    words = list(words)  # slices are compared below
    return list(_iterate_elements(words, _repair_place_tags(words, tags)))


def _iterate_elements(words: list[str], tags: list[str]) -> Iterator[SceneElement]:
    position, quantity = 0, ""
    previous: SceneElement | None = None
    while position < len(words):
        end = position + 1
        elements: Sequence[SceneElement] = ()
        if words[position : position + 2] in (["each", "other"], ["one", "another"]):
            end, elements = position + 2, (ObjectMention("each other", is_pronoun=True),)
        elif words[position : position + 3] == ["side", "by", "side"]:
            end = position + 3
        elif quantity_match := _quantity(words, tags, position):
            end, quantity = quantity_match
        elif preposition := _multiword_preposition(words, tags, position):
            end, elements = preposition[0], (Preposition(preposition[1]),)
        elif (noun_phrase := _object_phrase(words, tags, position))[1]:
            end, elements = noun_phrase
        elif tags[position] in VERB_TAGS or tags[position] == "MD":
            end, elements = _verb_group(words, tags, position)
        elif tags[position] == "TO":
            infinitive = position + 1 < len(tags) and tags[position + 1] in ("VB", "VBP")
            elements = () if infinitive else (Preposition("to"),)
        elif tags[position] in ADJECTIVE_TAGS:
            is_colour = isinstance(previous, Preposition) and is_lemma(words[position], "n")  # a man in red
            is_other = words[position] == "other" and position > 0 and tags[position - 1] == "DT"
            elements = (
                ObjectMention(words[position], is_pronoun=is_other)
                if is_colour or is_other
                else PredicateAdjective(_modifier_lemma(words[position], tags[position])),
            )
        elif tags[position] == "PRP":
            elements = (ObjectMention(words[position], is_pronoun=True),)
        elif tags[position] == "CC":
            elements = (Connective("and"),)
        elif (words[position] in CLAUSE_STARTS or tags[position] == "WRB") and not _is_preposition_as(words, tags, position):
            elements = (Connective("while"),)
        elif tags[position] in ("WDT", "WP") or (
            words[position] == "that" and tags[position + 1 : position + 2] and tags[position + 1] in VERB_TAGS | {"MD"}
        ):
            elements = (Connective("who"),)
        elif tags[position] == "IN":
            elements = (Preposition(words[position]),)
        if quantity and elements:
            if isinstance(elements[0], ObjectMention):
                elements = (elements[0]._replace(modifiers=(quantity, *elements[0].modifiers)), *elements[1:])
            quantity = ""
        yield from elements
        previous = elements[-1] if elements else previous
        position = end


def _repair_place_tags(words: Sequence[str], tags: Sequence[str]) -> list[str]:
    """Correct the tags of place words, and of words tagged as adverbs that are none."""
    repaired = list(tags)
    for position, word in enumerate(words):
        after = tags[position + 1] if position + 1 < len(tags) else ""
        if word in PLACE_WORDS:
            starts_phrase = after in DETERMINER_TAGS or after in NOUN_TAGS or after in ADJECTIVE_TAGS or after in ("CD", "PRP")
            is_noun = (
                position > 0
                and tags[position] in NOUN_TAGS | ADJECTIVE_TAGS
                and tags[position - 1] in DETERMINER_TAGS | ADJECTIVE_TAGS
            )
            is_particle = tags[position] == "RP" and word in ("up", "off")  # holding up a camera
            if starts_phrase and not is_noun and not is_particle:
                repaired[position] = "IN"
            elif not is_noun and tags[position] in ("IN", "NN", "JJ"):
                repaired[position] = "RB"
        elif tags[position] in ("RB", "RBR", "RBS", "FW", "UH", "SYM") and word.isalpha():
            repaired[position] = _repair_adverb_tag(word, tags[position], tags[position - 1] if position else "", after)
        elif word == "her" and (after in NOUN_TAGS or after in ADJECTIVE_TAGS):
            repaired[position] = "PRP$"
        elif word in ("while", "whilst"):
            repaired[position] = "WRB"
        elif word == "like" and tags[position] in ("VB", "VBP"):
            repaired[position] = "IN"
    return repaired


@lru_cache(1 << 16)
def _repair_adverb_tag(word: str, tag: str, before: str, after: str) -> str:
    """Tag of a word tagged as adverb: a word without an adverb entry in a dictionary ("frisbee") is something else."""
    if not is_lemma(word, "r") and word != "upside":
        if possible_tags(word) and not possible_tags(word) & NOUN_TAGS:
            return next((candidate for candidate in ("JJ", "VBZ", "VBG", "VBN") if candidate in possible_tags(word)), tag)
        return "NN" if lemmatise(word, "n") == word else "NNS"
    continues = VERB_TAGS | ADJECTIVE_TAGS | {"IN", "RB", "TO", "DT"}
    ends_clause = before in ("VBZ", "VBP") and after not in continues  # its tail is long
    return "JJ" if ends_clause and lemma_frequency(word, "a") > lemma_frequency(word, "r") else tag


def _multiword_preposition(words: Sequence[str], tags: Sequence[str], start: int) -> tuple[int, str] | None:
    """End position and name of a preposition of several words, without articles and adjectives."""
    word = words[start]
    if (
        word in LINK_ADVERBS
        and start + 1 < len(words)
        and words[start + 1] in ("of", "to", "from", "with")
        and tags[start + 2 : start + 3] != ["VB"]
    ):
        return start + 2, f"{word} {words[start + 1]}"
    if word in LINK_STARTS:
        side_limit = (
            start + 1 + len(list(takewhile(lambda tag: tag in ("DT", "PRP$", "JJ", "RB", "CD"), tags[start + 1 : start + 4])))
        )
        for position in range(start + 1, min(side_limit + 1, len(words) - 1)):
            if words[position] in SIDE_NOUNS and words[position + 1] == "of":
                return position + 2, f"{word} {words[position]} of"
    return (start + 2, "on top of") if words[start : start + 2] == ["top", "of"] else None


def _is_preposition_as(words: Sequence[str], tags: Sequence[str], at: int) -> bool:
    """Whether "as" is a preposition: "dressed as a clown"; but not in "as a clown looks on"."""
    return words[at] == "as" and not VERB_TAGS.intersection(tags[at + 1 : at + 7])


def _quantity(words: Sequence[str], tags: Sequence[str], at: int) -> tuple[int, str] | None:
    """End position of "a large group of", and "group"; for "some of the" the word is ""."""
    limit = at + len(list(takewhile(lambda tag: tag in ("DT", "JJ", "PDT", "RB"), tags[at : at + 3])))
    for position in range(at, min(limit + 1, len(words) - 1)):
        is_quantity = words[position] in QUANTITY_NOUNS or words[position] in PARTITIVES or tags[position] == "CD"
        if is_quantity and words[position + 1] == "of":
            if position + 2 >= len(words) or tags[position + 2] not in AFTER_QUANTITY_TAGS:
                return None
            has_word = words[position] in QUANTITY_NOUNS or (tags[position] == "CD" and words[position] != "one")
            return position + 2, lemmatise(words[position], "n") if has_word else ""
    return None


def _object_phrase(words: Sequence[str], tags: Sequence[str], start: int) -> tuple[int, Sequence[ObjectMention]]:
    """End position of the noun phrase that starts here, and its objects; none if there is no noun."""
    modifiers: list[str] = []
    number = ""
    noun_positions: list[int] = []
    owner: str | None = None
    position = start
    while position < len(words):
        tag, word = tags[position], words[position]
        if tag in NOUN_TAGS:
            noun_positions.append(position)
        elif tag == "POS" or (word in ("'s", "'") and noun_positions):
            if not noun_positions or not _noun_follows(tags, position + 1):
                break
            owner = lemmatise(words[noun_positions[-1]], "n")
            modifiers, noun_positions, number = [], [], ""
        elif (
            noun_positions
            and tag == "VBN"
            and is_attributive(words, tags, position)
            and tags[position + 1 : position + 2] != ["IN"]
        ):
            modifiers += [lemmatise(words[noun], "n") for noun in noun_positions]  # a snow covered hill
            modifiers.append(_modifier_lemma(word, tag))
            noun_positions = []
        elif noun_positions or (
            tag in DETERMINER_TAGS and position > start and tags[position - 1] != "PDT" and words[position - 1] not in PARTITIVES
        ):
            break
        elif tag in ("PRP$", "WP$"):
            owner = word
        elif tag in ADJECTIVE_TAGS:
            modifiers.append(_modifier_lemma(word, tag))
        elif tag == "CD":
            number = word
        elif tag in VERB_TAGS and is_attributive(words, tags, position) and (position > start or _noun_follows(tags, position + 1)):
            modifiers.append(_modifier_lemma(word, tag))
        elif not (
            tag in ("DT", "PDT") or (tag in ("RB", "RBR", "RBS", "CC") and position > start and _noun_follows(tags, position + 1))
        ):
            break
        position += 1
    if not noun_positions:
        return start, ()
    objects = [_object_of_run(words, tags, run) for run in _split_list(words, tags, noun_positions)]
    has_same_plural = lemmatise(words[noun_positions[-1]], "n") == words[noun_positions[-1]] and number != "one"  # two sheep
    if number and (has_same_plural or objects[0].is_plural):
        modifiers.append(number)
    first = objects[0]._replace(modifiers=(*dict.fromkeys((*modifiers, *objects[0].modifiers)),), owner=owner)
    return position, (first, *objects[1:])


def _noun_follows(tags: Sequence[str], start: int) -> bool:
    return noun_follows(tags, start, BEFORE_NOUN_TAGS, 8)


def _split_list(words: Sequence[str], tags: Sequence[str], nouns: list[int]) -> list[list[int]]:
    """Split the nouns of a phrase where a list has lost its commas: "carrots broccoli and rice", "a man woman and child"."""
    runs = [[nouns[0]]]
    is_list = nouns[-1] + 1 < len(tags) and tags[nouns[-1] + 1] == "CC"
    for before, noun in pairwise(nouns):
        first, second = words[before], words[noun]
        is_compound = is_lemma(f"{first} {lemmatise(second, 'n')}", "n") or is_lemma(
            f"{lemmatise(first, 'n')} {lemmatise(second, 'n')}", "n"
        )
        is_plural = tags[before] == "NNS" and first not in ("sports", "people", "men", "women")
        are_animate = is_animate(lemmatise(first, "n")) and is_animate(lemmatise(second, "n")) and first not in PEOPLE_BEFORE_NOUNS
        if not is_compound and is_list and (is_plural or are_animate):
            runs.append([noun])
        else:
            runs[-1].append(noun)
    return runs


def _object_of_run(words: Sequence[str], tags: Sequence[str], nouns: list[int]) -> ObjectMention:
    """The object of a run of nouns: the last noun; those before modify it, as in the paper: a tennis court is a court."""
    *before, last = nouns
    modifiers = tuple(lemmatise(words[n], "n") for n in before)
    return ObjectMention(lemmatise(words[last], "n"), modifiers, is_plural=is_plural_head(words[last], tags[last]))


# Hypernyms of people and animals, and names of groups of them.
LIVING_NAMES = frozenset(
    {"animal", "couple", "crowd", "family", "flock", "group", "herd", "individual", "person", "someone", "team"}
)


@lru_cache(1 << 16)
def is_animate(name: str) -> bool:
    """Whether a noun is a person, an animal, or a group of them.

    >>> [name for name in ("man", "dog", "bench", "crowd", "someone") if is_animate(name)]
    ['man', 'dog', 'crowd', 'someone']
    """
    synset = caption_sense(name, "n")
    return name in LIVING_NAMES or (synset is not None and synset.lexicographer_file in (ANIMAL, PERSON))


@lru_cache(1 << 16)
def _modifier_lemma(word: str, tag: str) -> str:
    """Adjective without its degree, or participle as its verb, so that "parked cars" and "cars are parked" agree."""
    if tag in ("JJR", "JJS"):
        return lemmatise(word, "a")
    if possible_tags(word) & {"VBG", "VBN"}:
        base = lemmatise(word, "v")
        return base if is_lemma(base, "v") and base != word else word
    return word


def _verb_group(words: Sequence[str], tags: Sequence[str], start: int) -> tuple[int, Sequence[VerbGroup]]:
    """End position of the verb group that starts here, and its main verb: "has been riding" is "ride"."""
    position, main, has_auxiliary, is_passive = start, start, False, False
    while position < len(words):
        tag, base = tags[position], lemmatise(words[position], "v")
        if tag == "MD" or (tag in VERB_TAGS and base in ("be", "have", "do") and _verb_follows(words, tags, position, base)):
            has_auxiliary, is_passive = True, base == "be"
            position += 1
        elif tag in ("RB", "RBR", "EX") or words[position] == "not":
            position += 1
        else:
            break
    if position >= len(words) or tags[position] not in VERB_TAGS:
        return max(position, start + 1), ()
    main = position
    base = lemmatise(words[main], "v")
    is_finite = has_auxiliary or tags[main] in ("VBZ", "VBP", "VBD", "VB")
    end = main + 1
    particle = words[end] if end < len(words) and tags[end] == "RP" else ""
    name = "be" if words[main] in ("'s", "'re", "'m") else base
    return end + bool(particle), (VerbGroup(name, tags[main], is_finite, is_passive and tags[main] in ("VBN", "VBD"), particle),)


def _verb_follows(words: Sequence[str], tags: Sequence[str], start: int, base: str) -> bool:
    """Whether a form of be, have or do is an auxiliary: a main verb follows."""
    forms = {"be": ("VBG", "VBN", "VBD"), "have": ("VBN", "VBD"), "do": ("VB", "VBP")}[base]
    for position in range(start + 1, min(start + 4, len(words))):
        if tags[position] in forms and not (
            tags[position] != "VBD" and is_attributive(words, tags, position) and tags[position - 1] in DETERMINER_TAGS
        ):
            return True
        if tags[position] not in ("RB", "RBR", "EX", "VB", "VBN"):
            return False
    return False
