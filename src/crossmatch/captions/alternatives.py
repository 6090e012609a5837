"""Words that could stand in a caption's place: a near one, of almost the same meaning, and a far one that says something else.

Both come from WordNet and from what captions say, and differ in nothing but their meaning: same part of speech, inflection, number
of words and article, and about as frequent. A metric that prefers frequent words, or short ones, gains nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice

from crossmatch.core.presented import uniform
from crossmatch.language.alter import tagged
from crossmatch.language.forms import inflected, plural, uncounted
from crossmatch.language.replace import LIGHT, TOO_BROAD, UNSAID, Grounded, ground
from crossmatch.language.wordnet import SEEN, Synset, meaning, often, synsets, understood
from crossmatch.language.words import Edit, Token, article, capitalised, edited, loud

OBJECT, ACTION, PROPERTY = COMPONENTS = ("object", "action", "property")
COMPONENT = {"n": OBJECT, "v": ACTION, "a": PROPERTY}
ATTRIBUTES = ("counting", "colour", "size", "state", "other")
ALIKE = 20  # the far word is drawn among at most so many that are closest to the near one in frequency,
TWICE = math.log(2)  # and not twice or half as frequent; if there are none, of those that come closest
MOSTLY = 4  # a lemma that is so many times as often another part of speech was perhaps tagged wrongly
FEELING, STATE, PARTICIPLE = 12, 26, 44  # numbers of the lexicographers' files
COLOURS = frozenset({"chromatic color", "achromatic color"})
SIZES = frozenset({"size", "stature", "height", "length", "width", "thickness", "depth"})
# Of these, WordNet does not say what they are a value of.
STATES = frozenset({"asleep", "awake", "broken", "busy", "closed", "crowded", "lit", "open", "parked", "shut"})
NUMBERS = ("two", "2", "three", "3", "four", "4", "five", "5", "six", "6", "seven", "7", "eight", "8", "nine", "9", "ten", "10")
# Heads of WordNet's clusters that are kinds of properties: red and green are both chromatic, and that makes them no more alike.
KINDS = frozenset({"chromatic", "achromatic", "cardinal", "ordinal"})
# Nouns that name the picture, or no thing in it.
NO_OBJECT = frozenset(
    {
        "area", "background", "foreground", "image", "item", "middle", "photo", "photograph", "picture", "piece", "place", "scene",
        "shot", "view",
    }
)  # fmt: skip
# Adjectives that name no property of the thing: its place, its number, or which one it is.
NO_PROPERTY = frozenset(
    {
        "back", "close", "different", "few", "front", "full", "last", "many", "mid", "more", "most", "much", "multiple", "next",
        "numerous", "opposite", "other", "own", "ready", "right", "left", "same", "separate", "several", "similar", "single",
        "some", "such", "top", "various", "very",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Vocabulary:
    """How often captions have each lemma, by part of speech: n, v, a; numbers are adjectives, as in WordNet."""

    times: Mapping[tuple[str, str], int]

    @classmethod
    def of(cls, captions: Iterable[str]) -> Vocabulary:
        """
        >>> Vocabulary.of(["Two dogs sit.", "A big dog on a couch."]).times["n", "dog"]
        2
        """
        return cls.counted(unit for *_, units in taken_apart(captions) for unit in units)

    @classmethod
    def counted(cls, units: Iterable[Grounded]) -> Vocabulary:
        """From the components of captions."""
        return cls(Counter((unit.pos, unit.lemma) for unit in units))

    def frequency(self, lemma: str, pos: str) -> int:
        """How often captions say the lemma; never, if it is mostly another part of speech, and so perhaps never this one."""
        times = self.times.get((pos, lemma), 0)
        return times if times * MOSTLY >= sum(self.times.get((other, lemma), 0) for other in COMPONENT if other != pos) else 0

    @cached_property
    def as_frequent(self) -> dict[str, dict[int, list[str]]]:
        """By part of speech and frequency: the lemmas, shuffled once and for all. Small numbers are there even if unsaid."""
        found: dict[str, dict[int, list[str]]] = {}
        for pos, lemma in sorted(self.times):
            if times := self.frequency(lemma, pos):
                found.setdefault(pos, {}).setdefault(times, []).append(lemma)
        said = {lemma for lemmas in found.setdefault("a", {}).values() for lemma in lemmas}
        found["a"].setdefault(0, []).extend(number for number in NUMBERS if number not in said)
        for by_times in found.values():
            for lemmas in by_times.values():
                lemmas.sort(key=dict(zip(lemmas, uniform(lemmas, 1, "vocabulary")[:, 0].tolist(), strict=True)).__getitem__)
        return found

    def from_frequency(self, times: int, pos: str, drawn: float) -> Iterator[tuple[float, str]]:
        """All lemmas, those closest to a frequency first, and how far from it they are; `drawn`, from 0 to 1, is where to begin
        among equally frequent ones."""
        by_times = self.as_frequent.get(pos, {})
        for off, each in sorted((abs(math.log1p(n) - math.log1p(times)), n) for n in by_times):
            lemmas = by_times[each]
            start = int(drawn * len(lemmas))
            yield from ((off, lemma) for lemma in lemmas[start:] + lemmas[:start])


def taken_apart(captions: Iterable[str]) -> Iterator[tuple[str, list[Token], list[str], list[Grounded]]]:
    """Each caption with its tokens, their tags, and its components from left to right.

    >>> [[(COMPONENT[u.pos], u.lemma) for u in units] for *_, units in taken_apart(["Two red fire hydrants stand there."])]
    [[('property', 'two'), ('property', 'red'), ('object', 'fire hydrant'), ('action', 'stand')]]
    """
    for text, found, tags in tagged(list(captions)):
        words = [token.text for token in found]
        units = [unit for unit in ground(words, tags) if unit.pos == "v" or _is_object(unit)]
        inside = {at for unit in units for at in range(unit.first, unit.last + 1)}  # the "hot" of a hot dog
        units += [unit for at in range(len(words)) if at not in inside and (unit := _property(words, tags, at))]
        yield text, found, tags, sorted(units, key=lambda unit: unit.first)


def _is_object(unit: Grounded) -> bool:
    return unit.meaning.topic in SEEN and unit.lemma not in NO_OBJECT


def _property(words: Sequence[str], tags: Sequence[str], at: int) -> Grounded | None:
    """The adjective or the number at `at`."""
    word = words[at].lower()
    seen = meaning(word, "a") if tags[at] in ("JJ", "CD") and word not in NO_PROPERTY else None
    if seen is None or (tags[at] == "CD") != _is_number(seen) or word in ("one", "1"):  # "one" is often no number at all
        return None
    counts = tags[at + 1 : at + 2] and tags[at + 1] in ("NNS", "JJ", "VBN", "NN")  # "two dogs", not "one of them"
    return Grounded(at, at, word, "a", tags[at], seen) if tags[at] == "JJ" or counts else None


def attribute(unit: Grounded) -> str:
    """Which kind of property: counting, colour, size, state or other; "" for what is none.

    By what WordNet says that an adjective, or the head of its cluster, is a value of (largeness of size, wetness of state).

    >>> said = ["two large tables", "a red boat", "a wooden table", "a wet dog"]
    >>> [[attribute(unit) for unit in units] for *_, units in taken_apart(said)]
    [['counting', 'size', ''], ['colour', ''], ['other', ''], ['state', '']]
    """
    if unit.pos != "a":
        return ""
    if unit.tag == "CD":
        return "counting"
    return _kind(unit.lemma, unit.meaning)


@lru_cache(1 << 12)
def _kind(lemma: str, seen: Synset) -> str:
    around = [seen, *seen.related("&")] if not seen.related("!") else [seen]
    if any(COLOURS & set(above.lemmas) for noun in synsets(lemma, "n") for above in noun.related("@", "@i")) or any(
        {"chromatic", "achromatic"} & set(near.lemmas) for near in around
    ):
        return "colour"
    values = [noun for near in around for noun in near.related("=")]
    if any(SIZES & set(noun.lemmas) for noun in values):
        return "size"
    nouns = values or [noun for near in around for noun in near.related("+") if noun.pos == "n"]
    if lemma in STATES or any(near.topic == PARTICIPLE for near in around) or any(noun.topic in (FEELING, STATE) for noun in nouns):
        return "state"
    return "other"


@dataclass(frozen=True)
class Alternatives:
    """A near and a far lemma in place of a component, and how the near one is related to it."""

    near: str
    far: str
    relation: str  # synonym, broader, narrower, similar or sibling


@dataclass(frozen=True)
class Mentioned:
    """What the captions of an image say, and so what may be true of it: no far word."""

    lemmas: frozenset[str]
    meanings: frozenset[Synset]
    broader: frozenset[Synset]

    @classmethod
    def by(cls, units: Iterable[Grounded], words: Iterable[str] = ()) -> Mentioned:
        """By the components of its captions, and all of their words."""
        units = list(units)
        meanings = frozenset(unit.meaning for unit in units)
        lemmas = {unit.lemma for unit in units} | {word.lower() for word in words}
        return cls(frozenset(lemmas), meanings, frozenset(up for seen in meanings for up in above(seen)))

    def has(self, lemma: str, seen: Synset) -> bool:
        """Whether a word, a broader or a narrower one is mentioned.

        >>> units = [unit for *_, units in taken_apart(["A dog on a couch."]) for unit in units]
        >>> [Mentioned.by(units).has(name, meaning(name, "n")) for name in ("sofa", "animal", "puppy", "cat")]
        [True, True, True, False]
        """
        return lemma in self.lemmas or seen in self.broader or not self.meanings.isdisjoint(above(seen))


@lru_cache(1 << 14)
def above(synset: Synset) -> frozenset[Synset]:
    """A meaning and all broader ones.

    >>> sorted(up.lemmas[0] for up in above(meaning("stroll", "v")))
    ['stroll', 'travel', 'walk']
    """
    return frozenset({synset}.union(*(above(up) for up in synset.related("@", "@i"))))


def alternatives(
    unit: Grounded, vocabulary: Vocabulary, mentioned: Mentioned, with_article: bool, drawn: tuple[float, float]
) -> Alternatives | None:
    """The near and the far word for a component, or None where there is no such pair.

    Near is the closest in WordNet that captions say, the more frequent of two as close: a synonym, then a broader or narrower
    meaning, then one with the same broader meaning; a synonym that captions do not say comes last. Far is drawn among the
    words of the vocabulary that are closest to the near one in frequency, of another lexicographers' file (nouns, verbs) or of the
    same kind of property and no relation (adjectives), and nothing that the image's captions mention.
    """
    for relation, name in _near(unit, vocabulary):
        far = _far(unit, name, vocabulary, mentioned, with_article, drawn)
        if far is not None:
            return Alternatives(name, far, relation)
    return None


def _near(unit: Grounded, vocabulary: Vocabulary) -> list[tuple[str, str]]:
    said, unsaid = [], []
    for relation, synset in related(unit.meaning):
        names = [name for name in synset.lemmas if _fits(name, synset, unit)]
        names.sort(key=lambda name: (-vocabulary.frequency(name, unit.pos), -often(name, unit.pos), name))
        said += [(relation, name) for name in names[:1] if vocabulary.frequency(name, unit.pos)]
        known = names[:1] if unit.tag == "CD" or (names and often(names[0], unit.pos)) else []
        unsaid += [(relation, name) for name in known if relation == "synonym"]
    order = {relation: n for n, relation in enumerate(dict.fromkeys(relation for relation, _ in related(unit.meaning)))}
    said.sort(key=lambda each: (order[each[0]], -vocabulary.frequency(each[1], unit.pos), each[1]))
    return said + unsaid


@lru_cache(1 << 12)
def related(synset: Synset) -> tuple[tuple[str, Synset], ...]:
    """The meanings around one, the closest first, and how they are related.

    >>> [(relation, near.lemmas[0]) for relation, near in related(meaning("bus", "n"))][:4]
    [('synonym', 'bus'), ('broader', 'public transport'), ('narrower', 'minibus'), ('narrower', 'school bus')]
    """
    found: list[tuple[str, Synset]] = [("synonym", synset)]
    if synset.pos == "a":
        similar = [near for near in synset.related("&") if not KINDS & set(near.lemmas)]
        found += [("similar", near) for near in similar]
        found += [("sibling", other) for head in similar for other in head.related("&")]
    else:
        above = synset.related("@", "@i")
        found += [("broader", near) for near in above] + [("narrower", near) for near in synset.related("~")]
        found += [("sibling", other) for broader in above for other in broader.related("~")]
    closest: dict[Synset, str] = {}
    for relation, near in found:
        closest.setdefault(near, relation)  # a meaning is its own sibling
    return tuple((relation, near) for near, relation in closest.items())


def _fits(name: str, synset: Synset, unit: Grounded) -> bool:
    """Whether a lemma can stand in the component's place and would be taken in this meaning."""
    if not _plain(name, unit) or unit.lemma in (name, *name.split(" ")):  # a tennis ball is a ball with something added
        return False
    if unit.pos == "v":
        return synset.fits(name, unit.with_object) and understood(name, unit.with_object) == synset
    return meaning(name, unit.pos) == synset


def _plain(name: str, unit: Grounded) -> bool:
    """Whether a lemma has the form that the component's place asks for."""
    if unit.tag == "CD":
        return name.isdigit() or (name.isalpha() and len(name) > 2)  # no Roman numbers
    if not (name.islower() and name.replace(" ", "").replace("-", "").isalpha()) or name in UNSAID:
        return False
    if unit.pos != "a" and "'" in inflected(name, unit.tag):  # "ski'd"
        return False
    if unit.pos == "n":
        same_number = uncounted(name) == uncounted(unit.lemma) and (unit.tag == "NNS" or not plural(name))
        return same_number and name not in LIGHT["n"] | TOO_BROAD["n"] | NO_OBJECT
    return " " not in name and (unit.pos == "a" or name not in TOO_BROAD["v"])


def _far(
    unit: Grounded, near: str, vocabulary: Vocabulary, mentioned: Mentioned, with_article: bool, drawn: tuple[float, float]
) -> str | None:
    kin = {synset for _, synset in related(unit.meaning)} | set(synsets(unit.lemma, unit.pos)) | set(synsets(near, unit.pos))
    sound = article(near) if with_article else None
    fits = (
        (off, name)
        for off, name in vocabulary.from_frequency(vocabulary.frequency(near, unit.pos), unit.pos, drawn[0])
        if name.count(" ") == near.count(" ")
        and sound in (None, article(name))
        and _plain(name, unit)
        and _says_else(name, unit, near, kin, mentioned)
    )
    closest = list(islice(fits, ALIKE))
    found = [name for off, name in closest if off <= max(TWICE, closest[0][0])]
    return found[int(drawn[1] * len(found))] if found else None


def _says_else(name: str, unit: Grounded, near: str, kin: set[Synset], mentioned: Mentioned) -> bool:
    """Whether a word is far from the component in meaning, in all of its senses, and takes the same place in a sentence."""
    seen = meaning(name, unit.pos)
    if seen is None or name not in seen.lemmas:
        return False
    if unit.pos == "n":
        other = seen.topic in SEEN and seen.topic != unit.meaning.topic
    elif unit.pos == "v":
        other = seen.topic != unit.meaning.topic and seen.fits(name, unit.with_object)
    elif unit.tag == "CD":
        other = _is_number(seen) and name.isdigit() == near.isdigit()
    else:
        other = not _is_number(seen) and name not in NO_PROPERTY and _kind(name, seen) == _kind(unit.lemma, unit.meaning)
    return other and not mentioned.has(name, seen) and kin.isdisjoint(synsets(name, unit.pos))


@lru_cache(1 << 14)
def _is_number(synset: Synset) -> bool:
    return any("cardinal" in head.lemmas for head in synset.related("&"))


def put(text: str, found: Sequence[Token], unit: Grounded, new: str) -> str:
    """The caption with another lemma in the component's place: in its form, with its capitals, after the right article.

    >>> text, found, _, units = next(taken_apart(["A dog chasing two cars."]))
    >>> [put(text, found, unit, new) for unit, new in zip(units, ("animal", "follow", "3", "bus"))]
    ['An animal chasing two cars.', 'A dog following two cars.', 'A dog chasing 3 cars.', 'A dog chasing two buses.']
    """
    new = inflected(new, unit.tag) if unit.pos != "a" else new
    start, end = found[unit.first].start, found[unit.last].end
    edits = [Edit(start, end, _cased(new, text[start:end], text))]
    if before := article_before(found, unit):
        edits.append(Edit(before.start, before.end, _cased(article(new), before.text, text)))
    return edited(text, edits)


def article_before(found: Sequence[Token], unit: Grounded) -> Token | None:
    """The "a" or "an" right before a component."""
    before = found[unit.first - 1] if unit.first else None
    return before if before and before.text.lower() in ("a", "an") else None


def _cased(new: str, old: str, text: str) -> str:
    if loud(text):
        return new.upper()
    return capitalised(new) if old[:1].isupper() and (len(old) == 1 or not old.isupper()) else new
