"""Noun phrases of captions by token position, so that their words can be replaced, swapped and added.

The word classes and tests at the top are shared with `caption_chunks`, which parses whole clauses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from crossmatch.text.inflection import lemmatise
from crossmatch.text.part_of_speech import NOUN_TAGS, VERB_TAGS, is_attributive, tag_texts
from crossmatch.text.tokens_and_edits import (
    Token,
    TokenEdit,
    apply_edits,
    capitalise,
    indefinite_article,
    is_mostly_upper_case,
    uncapitalise,
)
from crossmatch.text.wordnet import is_lemma

ADJECTIVE_TAGS = frozenset({"JJ", "JJR", "JJS"})
# "a couple of dogs" are dogs; the word gives the quantity. But a bowl of fruit is a bowl.
QUANTITY_NOUNS = frozenset(
    {
        "array", "assortment", "bit", "bunch", "cluster", "collection", "couple", "dozen", "dozens", "form", "gathering",
        "group", "groups", "handful", "hundreds", "kind", "kinds", "loads", "lot", "lots", "multitude", "number", "numbers",
        "pair", "pairs", "plenty", "range", "series", "set", "sets", "sort", "thousands", "ton", "tons", "trio", "type",
        "types", "variety",
    }
)  # fmt: skip

DETERMINER_TAGS = frozenset({"DT", "PDT", "PRP$", "WP$", "CD"})
PLURAL_ADJECTIVES = frozenset({"few", "many", "multiple", "numerous", "several", "various"})
FINITE_TAGS = frozenset({"VBZ", "VBP", "VBD", "MD"})
PREMODIFIER_TAGS = ADJECTIVE_TAGS | {"RB", "VBN", "VBG", "CC", ","}
MAX_COMPOUND = 3  # words of a compound that are looked up together
# Words that captions use as prepositions or adverbs, whatever their tag is.
NEVER_NOUNS = frozenset({"front", "next", "top", "while", "down", "up", "outside", "inside", "near", "past", "like", "back"})


def word_set(text: str) -> frozenset[str]:
    """Words separated by spaces, as a set.

    >>> sorted(word_set("on in"))
    ['in', 'on']
    """
    return frozenset(text.split())


def noun_follows(tags: Sequence[str], start: int, between: frozenset[str], window: int) -> bool:
    """Whether a noun is among the next `window` tags, with only tags of `between` before it."""
    for tag in tags[start : start + window]:
        if tag in NOUN_TAGS:
            return True
        if tag not in between:
            return False
    return False


def is_plural_head(word: str, tag: str) -> bool:
    """Whether the main noun of a phrase is plural."""
    return tag in ("NNS", "NNPS") or word == "people"


@dataclass(frozen=True)
class NounPhrase:
    """A noun phrase by the positions of its tokens: "two small brown dogs", "a group of tennis players".

    Attributes:
        first: Position of the first token.
        noun_start: Position of the first noun.
        head: Position of the main noun, which is the last token.
        name: Lemma of the main noun, with the nouns before it if WordNet has the compound: "fire hydrant".
        name_start: Position of the first token of the name.
        is_plural: Whether the phrase refers to several things.
        determiner: Lower-case determiner: "a", "the", "two", "his", "group" of "a group of"; or "".
        adjectives: Positions of adjectives and participles.
        is_possessive: Whether 's follows, as for "dog" in "the dog's bed".
    """

    first: int
    noun_start: int
    head: int
    name: str
    name_start: int
    is_plural: bool
    determiner: str = ""
    adjectives: tuple[int, ...] = ()
    is_possessive: bool = False

    @property
    def is_single_name(self) -> bool:
        """Whether all nouns belong to the name, with no other noun before it."""
        return self.name_start == self.noun_start


@dataclass(frozen=True, eq=False)
class TaggedCaption:
    """A caption with its tokens, their part-of-speech tags, and its noun phrases. Edit methods return edits."""

    text: str
    tokens: tuple[Token, ...]
    tags: tuple[str, ...]

    @cached_property
    def words(self) -> list[str]:
        return [token.text.lower() for token in self.tokens]

    @cached_property
    def phrases(self) -> list[NounPhrase]:
        return noun_phrases(self.words, self.tags)

    @cached_property
    def has_finite_verb(self) -> bool:
        """Whether a verb agrees with a subject: "a dog sits", "dogs are sitting"; not "a dog sitting"."""
        return any(tag in FINITE_TAGS for tag in self.tags)

    def text_between(self, first: int, last: int) -> str:
        """The caption's text from one token to another."""
        return self.text[self.tokens[first].start : self.tokens[last].end]

    def replace(self, first: int, last: int, new: str) -> list[TokenEdit]:
        """Replace the tokens from first to last; "a" or "an" before them is adjusted."""
        start, end = self.tokens[first].start, self.tokens[last].end
        return [TokenEdit(start, end, self._match_case(new, first)), *self._adjust_article(first, new)]

    def insert_before(self, position: int, new: str) -> list[TokenEdit]:
        """Insert words before a token; "a" or "an" before them is adjusted."""
        start = self.tokens[position].start
        if position == 0:
            first_word = self.tokens[0].text
            plain = first_word if is_mostly_upper_case(self.text) else uncapitalise(first_word)
            return [TokenEdit(start, self.tokens[0].end, f"{self._match_case(new, 0)} {plain}")]
        return [TokenEdit(start, start, f"{self._match_case(new, position)} "), *self._adjust_article(position, new)]

    def insert_after(self, position: int, new: str) -> list[TokenEdit]:
        """Insert words after a token."""
        end = self.tokens[position].end
        return [TokenEdit(end, end, f" {new.upper() if is_mostly_upper_case(self.text) else new}")]

    def apply(self, edits: Sequence[TokenEdit]) -> str:
        return apply_edits(self.text, edits)

    def _adjust_article(self, position: int, new: str) -> list[TokenEdit]:
        if not position or self.words[position - 1] not in ("a", "an"):
            return []
        article = self.tokens[position - 1]
        return [TokenEdit(article.start, article.end, self._match_case(indefinite_article(new), position - 1))]

    def _match_case(self, new: str, position: int) -> str:
        """Capitalise new words at the start of a capitalised caption; write all in capitals if the caption is."""
        if is_mostly_upper_case(self.text):
            return new.upper()
        return capitalise(new) if position == 0 and self.tokens[0].text[:1].isupper() else new


def tag_captions(texts: Sequence[str]) -> list[TaggedCaption]:
    """Tokenise and tag many captions together.

    >>> [(p.determiner, p.name, p.is_plural) for p in tag_captions(["Two small dogs near a fire hydrant."])[0].phrases]
    [('two', 'dog', True), ('a', 'fire hydrant', False)]
    """
    return [TaggedCaption(text, tuple(tokens), tuple(tags)) for text, tokens, tags in tag_texts(texts)]


def noun_phrases(words: Sequence[str], tags: Sequence[str]) -> list[NounPhrase]:
    """Find the noun phrases of a tokenised caption, from left to right, without overlap.

    >>> phrases = noun_phrases("a group of people riding a blue bus".split(), "DT NN IN NNS VBG DT JJ NN".split())
    >>> [(phrase.first, phrase.head, phrase.name, phrase.determiner) for phrase in phrases]
    [(0, 3, 'person', 'group'), (5, 7, 'bus', 'a')]
    """
    phrases: list[NounPhrase] = []
    position = 0
    while position < len(words):
        phrase = _phrase_at(list(words), tags, position)
        if phrase is None:
            position += 1
            continue
        if phrase.determiner == "" and phrases and _is_quantity_of(words, phrases[-1], phrase):
            quantity = phrases.pop()
            phrase = NounPhrase(
                quantity.first, phrase.noun_start, phrase.head, phrase.name, phrase.name_start, True,
                quantity.name, phrase.adjectives, phrase.is_possessive,
            )  # fmt: skip
        phrases.append(phrase)
        position = phrase.head + 1
    return phrases


def _is_quantity_of(words: Sequence[str], quantity: NounPhrase, phrase: NounPhrase) -> bool:
    """Whether two phrases are one, such as "a group" and "people": only "of" is between them."""
    head = quantity.head
    return head + 2 == phrase.first and words[head + 1] == "of" and words[head] in QUANTITY_NOUNS


def _phrase_at(words: list[str], tags: Sequence[str], first: int) -> NounPhrase | None:
    """The noun phrase that starts at this position, if there is one."""
    position, determiner = first, ""
    adjectives: list[int] = []
    while (
        position < len(words) and tags[position] in DETERMINER_TAGS and not (position > first and tags[position] in ("DT", "PRP$"))
    ):
        determiner = words[position]
        position += 1
    while position < len(words) and _is_premodifier(words, tags, position):
        if tags[position] in ADJECTIVE_TAGS or tags[position] in VERB_TAGS:
            adjectives.append(position)
        position += 1
    noun_start = position
    while position < len(words) and tags[position] in NOUN_TAGS and words[position] not in NEVER_NOUNS:
        position += 1
    head = position - 1
    if head < noun_start:
        return None
    name_start, name = _name(words, noun_start, head)
    is_plural = is_plural_head(words[head], tags[head]) or (determiner not in ("a", "an", "one", "") and tags[first] == "CD")
    is_possessive = position < len(words) and tags[position] == "POS"
    if not determiner and adjectives and words[adjectives[0]] in PLURAL_ADJECTIVES:
        determiner = words[adjectives[0]]
    return NounPhrase(first, noun_start, head, name, name_start, is_plural, determiner, tuple(adjectives), is_possessive)


def _is_premodifier(words: Sequence[str], tags: Sequence[str], position: int) -> bool:
    """Whether a word belongs to nouns after it: an adjective, a participle, "very", or "and" between two adjectives."""
    if not noun_follows(tags, position + 1, PREMODIFIER_TAGS, 6):
        return False
    next_tags = list(tags[position + 1 : position + 2])
    if tags[position] in ADJECTIVE_TAGS:
        return words[position] not in NEVER_NOUNS
    if tags[position] in VERB_TAGS:
        return is_attributive(words, tags, position)
    if tags[position] in ("RB", "RBR", "RBS"):
        return next_tags in (["JJ"], ["VBN"])
    joins = tags[position] == "CC" or words[position] == ","
    return joins and position > 0 and tags[position - 1] in ADJECTIVE_TAGS and next_tags == ["JJ"]


def _name(words: Sequence[str], noun_start: int, head: int) -> tuple[int, str]:
    """Start and name of the main noun, with as many nouns before it as WordNet lists in a compound."""
    head_lemma = lemmatise(words[head], "n")
    for start in range(max(noun_start, head - MAX_COMPOUND + 1), head):
        name = " ".join([*words[start:head], head_lemma])
        if is_lemma(name, "n"):
            return start, name
    return head, head_lemma
