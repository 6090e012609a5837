"""Replace a word of a caption by a near word with almost the same meaning, and by a far word with another meaning.

Both words come from WordNet and from the vocabulary of captions. They have the same part of speech, inflection, number of words and
article, and similar frequency, so a metric that prefers frequent or short words gains nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice

from crossmatch.data.hashed_random_numbers import hash_uniform
from crossmatch.text.inflection import inflect, is_plural_noun, is_uncountable
from crossmatch.text.part_of_speech import tag_texts
from crossmatch.text.synonyms_and_hypernyms import LIGHT_WORDS, TOO_BROAD, UNNATURAL_LEMMAS, WordSense, find_word_senses
from crossmatch.text.tokens_and_edits import Token, indefinite_article
from crossmatch.text.wordnet import VISIBLE_FILES, Synset, caption_sense, lemma_frequency, synsets, verb_sense

OBJECT, ACTION, PROPERTY = COMPONENTS = ("object", "action", "property")
COMPONENT = {"n": OBJECT, "v": ACTION, "a": PROPERTY}
PROPERTY_KINDS = ("counting", "colour", "size", "state", "other")
# The far word is drawn from at most this many words that are closest to the near word in frequency and at most twice or half as
# frequent. If there is none, it is drawn from the closest ones.
MAX_FAR_WORDS = 20
MAX_LOG_RATIO = math.log(2)
OTHER_POS_RATIO = 4  # a lemma that is this much more frequent as another part of speech may be tagged wrongly
FEELING, STATE, PARTICIPLE = 12, 26, 44  # numbers of WordNet's lexicographer files
COLOURS = frozenset({"chromatic color", "achromatic color"})
SIZES = frozenset({"size", "stature", "height", "length", "width", "thickness", "depth"})
# States for which WordNet does not list the attribute.
STATES = frozenset({"asleep", "awake", "broken", "busy", "closed", "crowded", "lit", "open", "parked", "shut"})
NUMBERS = ("two", "2", "three", "3", "four", "4", "five", "5", "six", "6", "seven", "7", "eight", "8", "nine", "9", "ten", "10")
# Heads of WordNet's adjective clusters that name a kind of property: red and green are both chromatic, but not similar.
CLUSTER_KINDS = frozenset({"chromatic", "achromatic", "cardinal", "ordinal"})
# Nouns that name the image itself, or no object in it.
NO_OBJECT = frozenset(
    {
        "area", "background", "foreground", "image", "item", "middle", "photo", "photograph", "picture", "piece", "place", "scene",
        "shot", "view",
    }
)  # fmt: skip
# Adjectives that name no property of an object, but its position, its number, or which object it is.
NO_PROPERTY = frozenset(
    {
        "back", "close", "different", "few", "front", "full", "last", "many", "mid", "more", "most", "much", "multiple", "next",
        "numerous", "opposite", "other", "own", "ready", "right", "left", "same", "separate", "several", "similar", "single",
        "some", "such", "top", "various", "very",
    }
)  # fmt: skip


@dataclass(frozen=True)
class CaptionVocabulary:
    """How often each lemma occurs in captions, by part of speech (n, v, a). Numbers are adjectives, as in WordNet."""

    counts: Mapping[tuple[str, str], int]  # of (part of speech, lemma)

    @classmethod
    def from_captions(cls, captions: Iterable[str]) -> CaptionVocabulary:
        """Count the lemmas of captions.

        >>> CaptionVocabulary.from_captions(["Two dogs sit.", "A big dog on a couch."]).counts["n", "dog"]
        2
        """
        return cls.from_components(component for *_, components in extract_components(captions) for component in components)

    @classmethod
    def from_components(cls, components: Iterable[WordSense]) -> CaptionVocabulary:
        """Count the lemmas of components that were extracted before."""
        return cls(Counter((component.pos, component.lemma) for component in components))

    def frequency(self, lemma: str, pos: str) -> int:
        """How often the lemma occurs; 0 if it mostly occurs as another part of speech."""
        count = self.counts.get((pos, lemma), 0)
        as_other_pos = sum(self.counts.get((other_pos, lemma), 0) for other_pos in COMPONENT if other_pos != pos)
        return count if count * OTHER_POS_RATIO >= as_other_pos else 0

    @cached_property
    def lemmas_by_count(self) -> dict[str, dict[int, list[str]]]:
        """The lemmas by part of speech and frequency, in a fixed random order. Small numbers are always included."""
        by_pos: dict[str, dict[int, list[str]]] = {}
        for pos, lemma in sorted(self.counts):
            if count := self.frequency(lemma, pos):
                by_pos.setdefault(pos, {}).setdefault(count, []).append(lemma)
        adjectives = {lemma for lemmas in by_pos.setdefault("a", {}).values() for lemma in lemmas}
        by_pos["a"].setdefault(0, []).extend(number for number in NUMBERS if number not in adjectives)
        for by_count in by_pos.values():
            for lemmas in by_count.values():
                sort_keys = dict(zip(lemmas, hash_uniform(lemmas, 1, "vocabulary")[:, 0].tolist(), strict=True))
                lemmas.sort(key=sort_keys.__getitem__)
        return by_pos

    def nearest_in_frequency(self, count: int, pos: str, random: float) -> Iterator[tuple[float, str]]:
        """All lemmas with the distance of their log frequency, nearest first.

        `random`, from 0 to 1, selects where to start among equally frequent lemmas.
        """
        by_count = self.lemmas_by_count.get(pos, {})
        for distance, n in sorted((abs(math.log1p(n) - math.log1p(count)), n) for n in by_count):
            lemmas = by_count[n]
            start = int(random * len(lemmas))
            yield from ((distance, lemma) for lemma in lemmas[start:] + lemmas[:start])


def extract_components(captions: Iterable[str]) -> Iterator[tuple[str, list[Token], list[str], list[WordSense]]]:
    """Each caption with its tokens, their tags, and its objects, actions and properties from left to right.

    >>> [[(COMPONENT[c.pos], c.lemma) for c in found] for *_, found in extract_components(["Two red fire hydrants stand there."])]
    [[('property', 'two'), ('property', 'red'), ('object', 'fire hydrant'), ('action', 'stand')]]
    """
    for text, tokens, tags in tag_texts(list(captions)):
        words = [token.text for token in tokens]
        components = [sense for sense in find_word_senses(words, tags) if sense.pos == "v" or _is_object(sense)]
        covered = {n for sense in components for n in range(sense.first, sense.last + 1)}  # the "hot" of a hot dog
        components += [sense for n in range(len(words)) if n not in covered and (sense := _property_at(words, tags, n))]
        yield text, tokens, tags, sorted(components, key=lambda sense: sense.first)


def _is_object(sense: WordSense) -> bool:
    return sense.synset.lexicographer_file in VISIBLE_FILES and sense.lemma not in NO_OBJECT


def _property_at(words: Sequence[str], tags: Sequence[str], n: int) -> WordSense | None:
    """The adjective or number at a position."""
    word = words[n].lower()
    synset = caption_sense(word, "a") if tags[n] in ("JJ", "CD") and word not in NO_PROPERTY else None
    if synset is None or (tags[n] == "CD") != _is_number(synset) or word in ("one", "1"):  # "one" is often a pronoun
        return None
    counts_objects = tags[n + 1 : n + 2] and tags[n + 1] in ("NNS", "JJ", "VBN", "NN")  # "two dogs", not "two of them"
    return WordSense(n, n, word, "a", tags[n], synset) if tags[n] == "JJ" or counts_objects else None


def property_kind(component: WordSense) -> str:
    """The kind of a property: counting, colour, size, state or other; "" for other components.

    It follows from the attribute that WordNet lists for an adjective or the head of its cluster (size for large, wetness for wet).

    >>> captions = ["two large tables", "a red boat", "a wooden table", "a wet dog"]
    >>> [[property_kind(component) for component in components] for *_, components in extract_components(captions)]
    [['counting', 'size', ''], ['colour', ''], ['other', ''], ['state', '']]
    """
    if component.pos != "a":
        return ""
    if component.tag == "CD":
        return "counting"
    return _adjective_kind(component.lemma, component.synset)


@lru_cache(1 << 12)
def _adjective_kind(lemma: str, synset: Synset) -> str:
    cluster = [synset] if synset.related("!") else [synset, *synset.related("&")]
    is_colour_noun = any(COLOURS & set(broader.lemmas) for noun in synsets(lemma, "n") for broader in noun.related("@", "@i"))
    if is_colour_noun or any({"chromatic", "achromatic"} & set(member.lemmas) for member in cluster):
        return "colour"
    attributes = [noun for member in cluster for noun in member.related("=")]
    if any(SIZES & set(noun.lemmas) for noun in attributes):
        return "size"
    nouns = attributes or [noun for member in cluster for noun in member.related("+") if noun.pos == "n"]
    is_participle = any(member.lexicographer_file == PARTICIPLE for member in cluster)
    if lemma in STATES or is_participle or any(noun.lexicographer_file in (FEELING, STATE) for noun in nouns):
        return "state"
    return "other"


@dataclass(frozen=True)
class WordAlternatives:
    """A near and a far lemma that can replace a component, and the relation of the near one to it."""

    near: str
    far: str
    relation: str  # synonym, broader, narrower, similar or sibling


@dataclass(frozen=True)
class MentionedMeanings:
    """What the captions of an image mention. It may be true of the image, so it is no far word."""

    lemmas: frozenset[str]
    synsets: frozenset[Synset]
    broader: frozenset[Synset]

    @classmethod
    def from_components(cls, components: Iterable[WordSense], words: Iterable[str] = ()) -> MentionedMeanings:
        """From the components and the words of the captions."""
        components = list(components)
        mentioned = frozenset(component.synset for component in components)
        lemmas = {component.lemma for component in components} | {word.lower() for word in words}
        broader = frozenset(meaning for synset in mentioned for meaning in broader_meanings(synset))
        return cls(frozenset(lemmas), mentioned, broader)

    def includes(self, lemma: str, synset: Synset) -> bool:
        """Whether the captions mention a word, a broader or a narrower one.

        >>> components = [component for *_, found in extract_components(["A dog on a couch."]) for component in found]
        >>> mentioned = MentionedMeanings.from_components(components)
        >>> [mentioned.includes(lemma, caption_sense(lemma, "n")) for lemma in ("sofa", "animal", "puppy", "cat")]
        [True, True, True, False]
        """
        return lemma in self.lemmas or synset in self.broader or not self.synsets.isdisjoint(broader_meanings(synset))


@lru_cache(1 << 14)
def broader_meanings(synset: Synset) -> frozenset[Synset]:
    """A meaning and all broader meanings.

    >>> sorted(meaning.lemmas[0] for meaning in broader_meanings(caption_sense("stroll", "v")))
    ['stroll', 'travel', 'walk']
    """
    return frozenset({synset}.union(*(broader_meanings(parent) for parent in synset.related("@", "@i"))))


def find_alternatives(
    component: WordSense,
    vocabulary: CaptionVocabulary,
    mentioned: MentionedMeanings,
    with_article: bool,
    random: tuple[float, float],
) -> WordAlternatives | None:
    """Find a near and a far word for a component.

    The near word is the closest in WordNet that occurs in the vocabulary; of two equally close words, the more frequent one. A
    synonym comes first, then a broader or narrower meaning, then one with the same broader meaning; a synonym outside the
    vocabulary comes last. The far word is drawn from the words that are closest to the near word in frequency. It belongs to
    another lexicographer file (nouns, verbs), or to the same kind of property without a relation (adjectives), and the image's
    captions do not mention it.
    """
    for relation, near in _near_words(component, vocabulary):
        far = _far_word(component, near, vocabulary, mentioned, with_article, random)
        if far is not None:
            return WordAlternatives(near, far, relation)
    return None


def _near_words(component: WordSense, vocabulary: CaptionVocabulary) -> list[tuple[str, str]]:
    """Pairs of relation and lemma, the best first."""
    pos = component.pos
    in_vocabulary, outside = [], []
    for relation, synset in related_meanings(component.synset):
        lemmas = [lemma for lemma in synset.lemmas if _can_replace(lemma, synset, component)]
        lemmas.sort(key=lambda lemma: (-vocabulary.frequency(lemma, pos), -lemma_frequency(lemma, pos), lemma))
        for lemma in lemmas[:1]:
            if vocabulary.frequency(lemma, pos):
                in_vocabulary.append((relation, lemma))
            if relation == "synonym" and (component.tag == "CD" or lemma_frequency(lemma, pos)):
                outside.append((relation, lemma))
    relations = list(dict.fromkeys(relation for relation, _ in related_meanings(component.synset)))
    in_vocabulary.sort(key=lambda word: (relations.index(word[0]), -vocabulary.frequency(word[1], pos), word[1]))
    return in_vocabulary + outside


@lru_cache(1 << 12)
def related_meanings(synset: Synset) -> tuple[tuple[str, Synset], ...]:
    """Pairs of relation and related meaning, the closest first.

    >>> [(relation, near.lemmas[0]) for relation, near in related_meanings(caption_sense("bus", "n"))][:4]
    [('synonym', 'bus'), ('broader', 'public transport'), ('narrower', 'minibus'), ('narrower', 'school bus')]
    """
    pairs: list[tuple[str, Synset]] = [("synonym", synset)]
    if synset.pos == "a":
        similar = [near for near in synset.related("&") if not CLUSTER_KINDS & set(near.lemmas)]
        pairs += [("similar", near) for near in similar]
        pairs += [("sibling", sibling) for head in similar for sibling in head.related("&")]
    else:
        parents = synset.related("@", "@i")
        pairs += [("broader", parent) for parent in parents] + [("narrower", child) for child in synset.related("~")]
        pairs += [("sibling", sibling) for parent in parents for sibling in parent.related("~")]
    closest: dict[Synset, str] = {}
    for relation, near in pairs:
        closest.setdefault(near, relation)  # a meaning is also its own sibling
    return tuple((relation, near) for near, relation in closest.items())


def _can_replace(lemma: str, synset: Synset, component: WordSense) -> bool:
    """Whether a lemma can replace the component and would be understood in this meaning."""
    if not _has_right_form(lemma, component) or component.lemma in (lemma, *lemma.split(" ")):  # a tennis ball is still a ball
        return False
    if component.pos == "v":
        return synset.allows_object(lemma, component.with_object) and verb_sense(lemma, component.with_object) == synset
    return caption_sense(lemma, component.pos) == synset


def _has_right_form(lemma: str, component: WordSense) -> bool:
    """Whether a lemma has the form that the component's position needs."""
    if component.tag == "CD":
        return lemma.isdigit() or (lemma.isalpha() and len(lemma) > 2)  # no Roman numbers
    if not (lemma.islower() and lemma.replace(" ", "").replace("-", "").isalpha()) or lemma in UNNATURAL_LEMMAS:
        return False
    if component.pos != "a" and "'" in inflect(lemma, component.tag):  # "ski'd"
        return False
    if component.pos == "n":
        same_number = is_uncountable(lemma) == is_uncountable(component.lemma)
        same_number &= component.tag == "NNS" or not is_plural_noun(lemma)
        return same_number and lemma not in LIGHT_WORDS["n"] | TOO_BROAD["n"] | NO_OBJECT
    return " " not in lemma and (component.pos == "a" or lemma not in TOO_BROAD["v"])


def _far_word(
    component: WordSense,
    near: str,
    vocabulary: CaptionVocabulary,
    mentioned: MentionedMeanings,
    with_article: bool,
    random: tuple[float, float],
) -> str | None:
    pos = component.pos
    related = {synset for _, synset in related_meanings(component.synset)}
    related |= {*synsets(component.lemma, pos), *synsets(near, pos)}
    article = indefinite_article(near) if with_article else None
    candidates = (
        (distance, lemma)
        for distance, lemma in vocabulary.nearest_in_frequency(vocabulary.frequency(near, pos), pos, random[0])
        if lemma.count(" ") == near.count(" ")
        and article in (None, indefinite_article(lemma))
        and _has_right_form(lemma, component)
        and _is_far(lemma, component, near, related, mentioned)
    )
    closest = list(islice(candidates, MAX_FAR_WORDS))
    lemmas = [lemma for distance, lemma in closest if distance <= max(MAX_LOG_RATIO, closest[0][0])]
    return lemmas[int(random[1] * len(lemmas))] if lemmas else None


def _is_far(lemma: str, component: WordSense, near: str, related: set[Synset], mentioned: MentionedMeanings) -> bool:
    """Whether all senses of a lemma are unrelated to the component, and it can take the component's position in a sentence."""
    synset = caption_sense(lemma, component.pos)
    if synset is None or lemma not in synset.lemmas:
        return False
    own_file = component.synset.lexicographer_file
    if component.pos == "n":
        differs = synset.lexicographer_file in VISIBLE_FILES and synset.lexicographer_file != own_file
    elif component.pos == "v":
        differs = synset.lexicographer_file != own_file and synset.allows_object(lemma, component.with_object)
    elif component.tag == "CD":
        differs = _is_number(synset) and lemma.isdigit() == near.isdigit()
    else:
        same_kind = _adjective_kind(lemma, synset) == _adjective_kind(component.lemma, component.synset)
        differs = not _is_number(synset) and lemma not in NO_PROPERTY and same_kind
    return differs and not mentioned.includes(lemma, synset) and related.isdisjoint(synsets(lemma, component.pos))


@lru_cache(1 << 14)
def _is_number(synset: Synset) -> bool:
    return any("cardinal" in head.lemmas for head in synset.related("&"))
