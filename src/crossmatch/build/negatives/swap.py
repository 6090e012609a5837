"""Hard negatives that swap two objects, or the attributes of two objects."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from crossmatch.build.negatives.caption_context import CaptionContext
from crossmatch.build.negatives.contrasts import NUMBERS, compatible_attributes, contrasting_attributes
from crossmatch.build.negatives.noun_categories import HANDLED_KINDS, NOT_OBJECTS, is_animate, object_kind
from crossmatch.build.negatives.replace import PHOTO_WORDS, SHADE_WORDS, EditOption, accepts_attribute, is_related
from crossmatch.build.negatives.replacement_objects import aliases
from crossmatch.text.inflection import inflect, is_uncountable, lemmatise
from crossmatch.text.noun_phrases import NounPhrase, TaggedCaption, word_set
from crossmatch.text.part_of_speech import VERB_TAGS, is_attributive
from crossmatch.text.tokens_and_edits import TokenEdit, capitalise, indefinite_article, is_mostly_upper_case, uncapitalise

# Relations that do not hold in reverse.
ONE_WAY = word_set("on in under behind above below over inside beneath atop underneath onto into")
ONE_WAY_PHRASES = ("on top of", "in front of", "on the back of", "outside of", "inside of")
TRANSITIVE_VERBS = word_set(
    """
    approach bite brush carry catch chase contain cut drive eat face feed follow herd hit hold hug kiss lead lick overlook pet
    photograph pull push ride sniff support throw tow walk wash watch
    """
)
FIXED_OBJECTS = frozenset(
    {"track", "train station", "station", "platform", "wall", "floor", "sink", "stove", "ceiling", "window", "door"}
)
POSITION_VERBS = word_set("place park seat perch mount set stack display attach install hang position sit stand lay lie lean be")
PLURAL_WORDS = frozenset({"together", "each", "other", "both", "between", "among", "another"})  # need several objects
CONJUNCTIONS = frozenset({",", "and", "or", "while", "as", "that", "which", "who", "with", "of", "than", "both", "for"})
SWAPPED_KINDS = ("colour", "size", "tallness", "age", "material", "pattern", "fullness", "newness")


# -- objects


def swap_object(caption: TaggedCaption, context: CaptionContext) -> Iterator[EditOption]:
    """Swap two objects in a relation that does not hold in reverse: "a dog chasing a cat" becomes "a cat chasing a dog"."""
    if any(tag in ("PRP", "PRP$") for tag in caption.tags):
        return
    for first_extended, second_extended in pairwise(_extended_phrases(caption)):
        first, second = first_extended[0], second_extended[0]
        before = first.first - 1
        if before >= 0 and (caption.words[before] in ("of", "and", "or", ",") or caption.tags[before] in VERB_TAGS):
            continue
        if not _can_exchange(caption, first, second) or not _is_one_way(caption, first_extended[1], second.first):
            continue
        spans = (first.first, first_extended[1]), (second.first, second_extended[1])
        texts = [caption.text_between(*span) for span in spans]
        edits = [_move_text(caption, spans[0], texts[1]), _move_text(caption, spans[1], texts[0], spans[0][0] == 0)]
        yield EditOption(first.first, tuple(edits), " … ".join(texts), " … ".join(reversed(texts)))


def _extended_phrases(caption: TaggedCaption) -> list[tuple[NounPhrase, int]]:
    """The phrases, each with its last position; "a bowl of fruit" is one phrase."""
    extended: list[tuple[NounPhrase, int]] = []
    for phrase in caption.phrases:
        if extended and caption.words[extended[-1][1] + 1 : phrase.first] == ["of"]:
            extended[-1] = extended[-1][0], phrase.head
        else:
            extended.append((phrase, phrase.head))
    return extended


def _can_exchange(caption: TaggedCaption, first: NounPhrase, second: NounPhrase) -> bool:
    """Whether two phrases can be exchanged: both animate or both things, and without a change of verb agreement."""
    if any(phrase.is_possessive or phrase.name in NOT_OBJECTS or phrase.determiner in NOT_OBJECTS for phrase in (first, second)):
        return False
    if is_related(first.name, second.name) or (caption.has_finite_verb and first.is_plural != second.is_plural):
        return False
    if any(FIXED_OBJECTS & aliases(phrase.name) for phrase in (first, second)):
        return False
    are_animate = [is_animate(phrase.name) for phrase in (first, second)]
    are_things = [object_kind(phrase.name) in HANDLED_KINDS - {"clothing"} for phrase in (first, second)]
    are_bare = [phrase.determiner == "" and not phrase.is_plural and not is_uncountable(phrase.name) for phrase in (first, second)]
    return (all(are_animate) or all(are_things)) and are_bare[0] == are_bare[1]


def _is_one_way(caption: TaggedCaption, end: int, start: int) -> bool:
    """Whether the words between two phrases are a relation that does not hold in reverse."""
    between = caption.words[end + 1 : start]
    if not between or CONJUNCTIONS & set(between) - (
        {"of"} if any(phrase in " ".join(between) for phrase in ONE_WAY_PHRASES) else set()
    ):
        return False
    participles = [
        lemmatise(word, "v") for word, tag in zip(between, caption.tags[end + 1 : start], strict=True) if tag in ("VBN", "VBD")
    ]
    if any(verb not in POSITION_VERBS for verb in participles):
        return False
    if " ".join(between).endswith(ONE_WAY_PHRASES):
        return True
    at = start - 1
    if caption.tags[at] in VERB_TAGS:
        return lemmatise(caption.words[at], "v") in TRANSITIVE_VERBS and not is_attributive(caption.words, caption.tags, at)
    return between[-1] in ONE_WAY


def _move_text(caption: TaggedCaption, span: tuple[int, int], new: str, from_start: bool = False) -> TokenEdit:
    """Edit that puts other words of the caption into a span, with the capital at the start of the sentence."""
    start, end = caption.tokens[span[0]].start, caption.tokens[span[1]].end
    if not is_mostly_upper_case(caption.text):
        first, _, rest = new.partition(" ")
        word = uncapitalise(first) if from_start else first
        new = f"{capitalise(word) if span[0] == 0 and caption.text[start].isupper() else word} {rest}".rstrip()
    return TokenEdit(start, end, new)


# -- attributes


def swap_attribute(caption: TaggedCaption, context: CaptionContext) -> Iterator[EditOption]:
    """Swap attributes of one kind, or numbers: "a red bus near a blue car" becomes "a blue bus near a red car"."""
    phrases = [phrase for phrase in caption.phrases if not phrase.is_possessive and phrase.name not in NOT_OBJECTS | PHOTO_WORDS]
    for n, first in enumerate(phrases):
        for second in phrases[n + 1 :]:
            if is_related(first.name, second.name):
                continue
            for at, kind in _attributes(caption, first):
                for second_at, second_kind in _attributes(caption, second):
                    if kind == second_kind and _can_swap_attributes(caption, context, (first, at), (second, second_at), kind):
                        words = caption.words[at], caption.words[second_at]
                        edits = (*caption.replace(at, at, words[1]), *caption.replace(second_at, second_at, words[0]))
                        yield EditOption(at, edits, " … ".join(words), " … ".join(reversed(words)))
            yield from _swap_numbers(caption, first, second)


def _attributes(caption: TaggedCaption, phrase: NounPhrase) -> list[tuple[int, str]]:
    """Positions and kinds of the attributes of a phrase; kinds that occur twice are left out."""
    attributes = [
        (at, kind)
        for at in phrase.adjectives
        for kind, _ in contrasting_attributes().get(caption.words[at], ())
        if kind in SWAPPED_KINDS and caption.tags[at] == "JJ" and not SHADE_WORDS & set(caption.words[max(0, at - 1) : at])
    ]
    kinds = [kind for _, kind in attributes]
    return [(at, kind) for at, kind in attributes if kinds.count(kind) == 1]


def _can_swap_attributes(
    caption: TaggedCaption, context: CaptionContext, first: tuple[NounPhrase, int], second: tuple[NounPhrase, int], kind: str
) -> bool:
    words = caption.words[first[1]], caption.words[second[1]]
    if words[1] in compatible_attributes(words[0]) or words[0] in compatible_attributes(words[1]) or words[0] == words[1]:
        return False
    if not (accepts_attribute(kind, first[0].name) and accepts_attribute(kind, second[0].name)):
        return False
    mentioned = context.attributes
    return not any((first[0].name, word) in mentioned for word in compatible_attributes(words[1])) and not any(
        (second[0].name, word) in mentioned for word in compatible_attributes(words[0])
    )


def _swap_numbers(caption: TaggedCaption, first: NounPhrase, second: NounPhrase) -> Iterator[EditOption]:
    """Swap the numbers of two objects: "a woman with two dogs" becomes "two women with a dog"."""
    if caption.has_finite_verb or any(tag in ("PRP", "PRP$") for tag in caption.tags) or PLURAL_WORDS & set(caption.words):
        return
    numbers = [_number_of(caption, phrase) for phrase in (first, second)]
    if not all(numbers) or numbers[0] == numbers[1] or "a" not in numbers or set(numbers) == {"a"}:
        return
    edits: list[TokenEdit] = []
    for phrase, number in ((first, numbers[1]), (second, numbers[0])):
        noun = inflect(lemmatise(caption.words[phrase.head], "n"), "NN" if number == "a" else "NNS")
        tail = " ".join([*(token.text for token in caption.tokens[phrase.first + 1 : phrase.head]), noun])
        determiner = indefinite_article(tail) if number == "a" else number
        edits.append(_move_text(caption, (phrase.first, phrase.head), f"{determiner} {tail}"))
    yield EditOption(first.first, tuple(edits), " … ".join(numbers), " … ".join(reversed(numbers)))


def _number_of(caption: TaggedCaption, phrase: NounPhrase) -> str:
    """The number of a phrase: `a`, a number word, or empty."""
    word, tag = caption.words[phrase.first], caption.tags[phrase.head]
    if not object_kind(phrase.name) or is_uncountable(phrase.name):
        return ""
    if word in ("a", "an") and tag == "NN" and phrase.determiner in ("a", "an"):
        return "a"
    return word if word in NUMBERS and tag == "NNS" and phrase.determiner == word else ""
