"""A caption as its noun phrases, each known by the places of its words, so that they can be replaced, swapped and added to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from crossmatch.language.forms import lemma
from crossmatch.language.scene_phrases import QUANTITIES
from crossmatch.language.tags import NOUNS, VERBS, describes, tag_all
from crossmatch.language.wordnet import knows
from crossmatch.language.words import Edit, Token, article, capitalised, edited, loud, tokens, uncapitalised

ADJECTIVES = frozenset({"JJ", "JJR", "JJS"})
DETERMINERS = frozenset({"DT", "PDT", "PRP$", "WP$", "CD"})
MANY = frozenset({"few", "many", "multiple", "numerous", "several", "various"})
FINITE = frozenset({"VBZ", "VBP", "VBD", "MD"})
LONGEST = 3  # words of a compound that are looked up together
# Words that captions use as prepositions or adverbs, whatever the tagger took them for.
NEVER_NOUNS = frozenset({"front", "next", "top", "while", "down", "up", "outside", "inside", "near", "past", "like", "back"})


def listed(text: str) -> frozenset[str]:
    """Words that are written one after the other.

    >>> sorted(listed("on in"))
    ['in', 'on']
    """
    return frozenset(text.split())


@dataclass(frozen=True)
class Phrase:
    """A noun phrase by the places of its tokens: "two small brown dogs", "a group of tennis players"."""

    first: int
    nouns: int  # where its nouns begin
    last: int  # its main noun
    name: str  # the lemma of the main noun, with the words before it where WordNet has them together: "fire hydrant"
    compound: int  # where that name begins
    many: bool
    determiner: str = ""  # in lower case: "a", "the", "two", "his", "group" of "a group of"; or nothing
    adjectives: tuple[int, ...] = ()
    owned: bool = False  # "dog" in "the dog's bed"

    @property
    def whole(self) -> bool:
        """Whether its nouns are one name, with no noun before it that WordNet does not know to belong there."""
        return self.compound == self.nouns


@dataclass(frozen=True, eq=False)
class Reading:
    """A caption, its tokens, their parts of speech, and its noun phrases."""

    text: str
    found: tuple[Token, ...]
    tags: tuple[str, ...]

    @cached_property
    def words(self) -> list[str]:
        return [token.text.lower() for token in self.found]

    @cached_property
    def phrases(self) -> list[Phrase]:
        return noun_phrases(self.words, self.tags)

    @cached_property
    def finite(self) -> bool:
        """Whether a verb has to agree with something: "a dog sits", "dogs are sitting"; not "a dog sitting"."""
        return any(tag in FINITE for tag in self.tags)

    def said(self, first: int, last: int) -> str:
        """The words from one token to another as the caption has them."""
        return self.text[self.found[first].start : self.found[last].end]

    def put(self, first: int, last: int, new: str) -> list[Edit]:
        """The edits that put other words in the place of some; "a" or "an" before them is mended."""
        start, end = self.found[first].start, self.found[last].end
        edits = [Edit(start, end, self._cased(new, first))]
        if first and self.words[first - 1] in ("a", "an"):
            before = self.found[first - 1]
            edits.append(Edit(before.start, before.end, self._cased(article(new), first - 1)))
        return edits

    def inserted(self, before: int, new: str) -> list[Edit]:
        """The edits that put words before a token."""
        start = self.found[before].start
        if before == 0:
            old = self.found[0].text
            plain = old if loud(self.text) else uncapitalised(old)
            return [Edit(start, self.found[0].end, f"{self._cased(new, 0)} {plain}")]
        edits = [Edit(start, start, f"{self._cased(new, before)} ")]
        if self.words[before - 1] in ("a", "an"):
            mended = self.found[before - 1]
            edits.append(Edit(mended.start, mended.end, self._cased(article(new), before - 1)))
        return edits

    def appended(self, after: int, new: str) -> list[Edit]:
        """The edits that put words behind a token."""
        end = self.found[after].end
        return [Edit(end, end, f" {new.upper() if loud(self.text) else new}")]

    def made(self, edits: Sequence[Edit]) -> str:
        return edited(self.text, edits)

    def _cased(self, new: str, at: int) -> str:
        """New words with the capital of a sentence's start, or all in capitals where the caption is."""
        if loud(self.text):
            return new.upper()
        return capitalised(new) if at == 0 and self.found[0].text[:1].isupper() else new


def read_all(texts: Sequence[str]) -> list[Reading]:
    """Many captions, tagged together.

    >>> [(p.determiner, p.name, p.many) for p in read_all(["Two small dogs near a fire hydrant."])[0].phrases]
    [('two', 'dog', True), ('a', 'fire hydrant', False)]
    """
    found = [tuple(tokens(text)) for text in texts]
    tagged = tag_all([[token.text for token in text] for text in found])
    return [Reading(text, each, tuple(tags)) for text, each, tags in zip(texts, found, tagged, strict=True)]


def noun_phrases(words: Sequence[str], tags: Sequence[str]) -> list[Phrase]:
    """The noun phrases of a tokenised caption from left to right; they do not overlap.

    >>> found = noun_phrases("a group of people riding a blue bus".split(), "DT NN IN NNS VBG DT JJ NN".split())
    >>> [(phrase.first, phrase.last, phrase.name, phrase.determiner) for phrase in found]
    [(0, 3, 'person', 'group'), (5, 7, 'bus', 'a')]
    """
    found: list[Phrase] = []
    at = 0
    while at < len(words):
        phrase = _phrase(list(words), tags, at)
        if phrase is None:
            at += 1
            continue
        if phrase.determiner == "" and found and _quantity(words, found[-1], phrase):
            before = found.pop()
            phrase = Phrase(
                before.first, phrase.nouns, phrase.last, phrase.name, phrase.compound, True,
                before.name, phrase.adjectives, phrase.owned,
            )  # fmt: skip
        found.append(phrase)
        at = phrase.last + 1
    return found


def _quantity(words: Sequence[str], before: Phrase, phrase: Phrase) -> bool:
    """Whether "a group" and "people" are one phrase: nothing but "of" between them."""
    return before.last + 2 == phrase.first and words[before.last + 1] == "of" and words[before.last] in QUANTITIES


def _phrase(words: list[str], tags: Sequence[str], first: int) -> Phrase | None:
    """The phrase that begins at a token, if one does."""
    place, determiner = first, ""
    adjectives: list[int] = []
    while place < len(words) and tags[place] in DETERMINERS and not (place > first and tags[place] in ("DT", "PRP$")):
        determiner = words[place]
        place += 1
    while place < len(words) and _qualifies(words, tags, place):
        if tags[place] in ADJECTIVES or tags[place] in VERBS:
            adjectives.append(place)
        place += 1
    nouns = place
    while place < len(words) and tags[place] in NOUNS and words[place] not in NEVER_NOUNS:
        place += 1
    last = place - 1
    if last < nouns:
        return None
    compound, name = _name(words, tags, nouns, last)
    many = (
        tags[last] in ("NNS", "NNPS")
        or (determiner not in ("a", "an", "one", "") and tags[first] == "CD")
        or words[last] == "people"
    )
    owned = place < len(words) and tags[place] == "POS"
    if not determiner and adjectives and words[adjectives[0]] in MANY:
        determiner = words[adjectives[0]]
    return Phrase(first, nouns, last, name, compound, many, determiner, tuple(adjectives), owned)


def _qualifies(words: Sequence[str], tags: Sequence[str], at: int) -> bool:
    """Whether a word before the nouns belongs to them: an adjective, a participle, "very", or the "and" between two adjectives."""
    later = list(tags[at + 1 : at + 3])
    if tags[at] in ADJECTIVES:
        return words[at] not in NEVER_NOUNS and _goes_on(tags, at + 1)
    if tags[at] in VERBS:
        return describes(words, tags, at) and _goes_on(tags, at + 1)
    if tags[at] in ("RB", "RBR", "RBS"):
        return later[:1] in (["JJ"], ["VBN"]) and _goes_on(tags, at + 1)
    joins = tags[at] == "CC" or words[at] == ","
    return joins and at > 0 and tags[at - 1] in ADJECTIVES and later[:1] == ["JJ"] and _goes_on(tags, at + 1)


def _goes_on(tags: Sequence[str], at: int) -> bool:
    """Whether a noun follows after nothing but what may stand before it."""
    for tag in tags[at : at + 6]:
        if tag in NOUNS:
            return True
        if tag not in ADJECTIVES | {"RB", "VBN", "VBG", "CC", ","}:
            return False
    return False


def _name(words: Sequence[str], tags: Sequence[str], nouns: int, last: int) -> tuple[int, str]:
    """Where the name of the main noun begins, and the name: with as many nouns before it as WordNet knows to belong to it."""
    head = lemma(words[last], "n")
    for first in range(max(nouns, last - LONGEST + 1), last):
        name = " ".join([*words[first:last], head])
        if knows(name, "n"):
            return first, name
    return last, head
