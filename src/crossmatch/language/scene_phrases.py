"""A tagged caption cut into the parts that a scene graph is built from: things, deeds, links, qualities and marks of clauses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import NamedTuple

from crossmatch.language.forms import lemma, possible
from crossmatch.language.tags import NOUNS, VERBS, describes
from crossmatch.language.wordnet import knows, meaning, often

ANIMAL, PERSON = 5, 18  # numbers of the lexicographers' files
ADJECTIVES = frozenset({"JJ", "JJR", "JJS"})
BEFORE_NOUN = frozenset({"DT", "PDT", "PRP$", "WP$"})
# "a couple of dogs" are dogs; the word says how many. A bowl of fruit is a bowl.
QUANTITIES = frozenset(
    {
        "array", "assortment", "bit", "bunch", "cluster", "collection", "couple", "dozen", "dozens", "form", "gathering",
        "group", "groups", "handful", "hundreds", "kind", "kinds", "loads", "lot", "lots", "multitude", "number", "numbers",
        "pair", "pairs", "plenty", "range", "series", "set", "sets", "sort", "thousands", "ton", "tons", "trio", "type",
        "types", "variety",
    }
)  # fmt: skip
SOME = frozenset({"all", "both", "each", "few", "many", "most", "none", "one", "several", "some"})  # "some of the dogs"
# "in the middle of the road" is one relation, as "on top of" is in the paper; the middle is no thing of its own.
SIDES = frozenset(
    {
        "back", "bottom", "center", "centre", "edge", "end", "front", "inside", "left", "middle", "midst", "outside", "rear",
        "right", "side", "sides", "top",
    }
)  # fmt: skip
PLACES = frozenset({"around", "behind", "beside", "down", "inside", "near", "off", "opposite", "outside", "over", "past", "up"})
STARTS = frozenset({"along", "around", "at", "by", "from", "in", "into", "near", "off", "on", "onto", "over", "to", "towards"})
AWAY = frozenset({"across", "ahead", "along", "away", "because", "close", "inside", "next", "off", "out", "outside"})
CLAUSES = frozenset({"although", "as", "because", "if", "since", "so", "though", "when", "where", "whereas", "while", "whilst"})
PEOPLE_BEFORE_NOUNS = frozenset({"adult", "baby", "boy", "child", "fellow", "female", "girl", "male", "pet", "police", "woman"})


class Thing(NamedTuple):
    """A noun phrase: the lemma of its main noun and what is said about it; or a pronoun, whose noun is found later."""

    name: str
    traits: tuple[str, ...] = ()
    owner: str | None = None  # "his", "whose"; or the lemma of a noun with 's
    many: bool = False
    pronoun: bool = False


class Deed(NamedTuple):
    """A verb with its helpers taken off."""

    name: str
    tag: str  # of the main verb
    finite: bool  # "rides", "is riding"; not "riding" alone
    passive: bool = False  # "is eaten"
    particle: str = ""


class Link(NamedTuple):
    """A preposition."""

    name: str


class Quality(NamedTuple):
    """An adjective without a noun after it."""

    name: str


class Mark(NamedTuple):
    """What joins phrases: `and`, a word that starts a clause (`while`), or one that goes on with the last noun (`who`)."""

    name: str


Part = Thing | Deed | Link | Quality | Mark


def parts(words: Sequence[str], tags: Sequence[str]) -> list[Part]:
    """The parts of one caption, from its lower-case words and their Penn Treebank tags.

    >>> parts("a young girl standing on top of a tennis court".split(), "DT JJ NN VBG IN NN IN DT NN NN".split())[:3]
    [Thing(name='girl', traits=('young',), ...), Deed(name='stand', tag='VBG', ...), Link(name='on top of')]
    """
    words = list(words)  # what follows compares slices
    return list(_parts(words, _mended(words, tags)))


def _parts(words: list[str], tags: list[str]) -> Iterator[Part]:
    at, quantity = 0, ""
    last: Part | None = None
    while at < len(words):
        end = at + 1
        found: Sequence[Part] = ()
        if words[at : at + 2] in (["each", "other"], ["one", "another"]):
            end, found = at + 2, (Thing("each other", pronoun=True),)
        elif words[at : at + 3] == ["side", "by", "side"]:
            end = at + 3
        elif many := _quantity(words, tags, at):
            end, quantity = many
        elif link := _link(words, tags, at):
            end, found = link[0], (Link(link[1]),)
        elif (phrase := _phrase(words, tags, at))[1]:
            end, found = phrase
        elif tags[at] in VERBS or tags[at] == "MD":
            end, found = _deed(words, tags, at)
        elif tags[at] == "TO":
            infinitive = at + 1 < len(tags) and tags[at + 1] in ("VB", "VBP")
            found = () if infinitive else (Link("to"),)
        elif tags[at] in ADJECTIVES:
            alone = isinstance(last, Link) and knows(words[at], "n")  # a man in red
            other = words[at] == "other" and at > 0 and tags[at - 1] == "DT"
            found = (Thing(words[at], pronoun=other) if alone or other else Quality(_trait(words[at], tags[at])),)
        elif tags[at] == "PRP":
            found = (Thing(words[at], pronoun=True),)
        elif tags[at] == "CC":
            found = (Mark("and"),)
        elif (words[at] in CLAUSES or tags[at] == "WRB") and not _like(words, tags, at):
            found = (Mark("while"),)
        elif tags[at] in ("WDT", "WP") or (words[at] == "that" and tags[at + 1 : at + 2] and tags[at + 1] in VERBS | {"MD"}):
            found = (Mark("who"),)
        elif tags[at] == "IN":
            found = (Link(words[at]),)
        if quantity and found:
            if isinstance(found[0], Thing):
                found = (found[0]._replace(traits=(quantity, *found[0].traits)), *found[1:])
            quantity = ""
        yield from found
        last = found[-1] if found else last
        at = end


def _mended(words: Sequence[str], tags: Sequence[str]) -> list[str]:
    """The tags with words of place made prepositions or adverbs, and adverbs that are none made what they are."""
    out = list(tags)
    for at, word in enumerate(words):
        after = tags[at + 1] if at + 1 < len(tags) else ""
        if word in PLACES:
            begins = after in BEFORE_NOUN or after in NOUNS or after in ADJECTIVES or after in ("CD", "PRP")
            noun = at > 0 and tags[at] in NOUNS | ADJECTIVES and tags[at - 1] in BEFORE_NOUN | ADJECTIVES
            particle = tags[at] == "RP" and word in ("up", "off")  # holding up a camera
            if begins and not noun and not particle:
                out[at] = "IN"
            elif not noun and tags[at] in ("IN", "NN", "JJ"):
                out[at] = "RB"
        elif tags[at] in ("RB", "RBR", "RBS", "FW", "UH", "SYM") and word.isalpha():
            out[at] = _rather(word, tags[at], tags[at - 1] if at else "", after)
        elif word == "her" and (after in NOUNS or after in ADJECTIVES):
            out[at] = "PRP$"
        elif word in ("while", "whilst"):
            out[at] = "WRB"
        elif word == "like" and tags[at] in ("VB", "VBP"):
            out[at] = "IN"
    return out


@lru_cache(1 << 16)
def _rather(word: str, tag: str, before: str, after: str) -> str:
    """The tag of what was taken for an adverb: one that no dictionary has as an adverb ("frisbee") is something else."""
    if not knows(word, "r") and word != "upside":
        if possible(word) and not possible(word) & NOUNS:
            return next((other for other in ("JJ", "VBZ", "VBG", "VBN") if other in possible(word)), tag)
        return "NN" if lemma(word, "n") == word else "NNS"
    ends = before in ("VBZ", "VBP") and after not in VERBS | ADJECTIVES | {"IN", "RB", "TO", "DT"}  # its tail is long
    return "JJ" if ends and often(word, "a") > often(word, "r") else tag


def _link(words: Sequence[str], tags: Sequence[str], at: int) -> tuple[int, str] | None:
    """Where a preposition of several words ends, and its name without articles and adjectives."""
    first = words[at]
    if first in AWAY and at + 1 < len(words) and words[at + 1] in ("of", "to", "from", "with") and tags[at + 2 : at + 3] != ["VB"]:
        return at + 2, f"{first} {words[at + 1]}"
    if first in STARTS:
        side = at + 1 + len(list(takewhile(lambda tag: tag in ("DT", "PRP$", "JJ", "RB", "CD"), tags[at + 1 : at + 4])))
        for place in range(at + 1, min(side + 1, len(words) - 1)):
            if words[place] in SIDES and words[place + 1] == "of":
                return place + 2, f"{first} {words[place]} of"
    return (at + 2, "on top of") if words[at : at + 2] == ["top", "of"] else None


def _like(words: Sequence[str], tags: Sequence[str], at: int) -> bool:
    """Whether "as" is a preposition: "dressed as a clown"; but "as a clown looks on"."""
    return words[at] == "as" and not VERBS.intersection(tags[at + 1 : at + 7])


def _quantity(words: Sequence[str], tags: Sequence[str], at: int) -> tuple[int, str] | None:
    """Where "a large group of" ends, and "group"; "some of the" says nothing that is kept, numbers are."""
    place = at + len(list(takewhile(lambda tag: tag in ("DT", "JJ", "PDT", "RB"), tags[at : at + 3])))
    for here in range(at, min(place + 1, len(words) - 1)):
        if words[here + 1] == "of" and (words[here] in QUANTITIES or words[here] in SOME or tags[here] == "CD"):
            if here + 2 >= len(words) or tags[here + 2] not in BEFORE_NOUN | ADJECTIVES | NOUNS | VERBS | {"CD", "PRP", "RB"}:
                return None
            kept = words[here] in QUANTITIES or (tags[here] == "CD" and words[here] != "one")
            return here + 2, lemma(words[here], "n") if kept else ""
    return None


def _phrase(words: Sequence[str], tags: Sequence[str], at: int) -> tuple[int, Sequence[Thing]]:
    """Where the noun phrase that starts here ends, and its things; none where no noun comes."""
    traits: list[str] = []
    number = ""
    nouns: list[int] = []
    owner: str | None = None
    place = at
    while place < len(words):
        tag, word = tags[place], words[place]
        if tag in NOUNS:
            nouns.append(place)
        elif tag == "POS" or (word in ("'s", "'") and nouns):
            if not nouns or not _goes_on(tags, place + 1):
                break
            owner = lemma(words[nouns[-1]], "n")
            traits, nouns, number = [], [], ""
        elif nouns and tag == "VBN" and describes(words, tags, place) and tags[place + 1 : place + 2] != ["IN"]:
            traits += [lemma(words[n], "n") for n in nouns] + [_trait(word, tag)]  # a snow covered hill
            nouns = []
        elif nouns or (tag in BEFORE_NOUN and place > at and tags[place - 1] != "PDT" and words[place - 1] not in SOME):
            break
        elif tag in ("PRP$", "WP$"):
            owner = word
        elif tag in ADJECTIVES:
            traits.append(_trait(word, tag))
        elif tag == "CD":
            number = word
        elif tag in VERBS and describes(words, tags, place) and (place > at or _goes_on(tags, place + 1)):
            traits.append(_trait(word, tag))
        elif not (tag in ("DT", "PDT") or (tag in ("RB", "RBR", "RBS", "CC") and place > at and _goes_on(tags, place + 1))):
            break
        place += 1
    if not nouns:
        return at, ()
    things = [_thing(words, tags, run) for run in _runs(words, tags, nouns)]
    same = lemma(words[nouns[-1]], "n") == words[nouns[-1]] and number != "one"  # two sheep
    if number and (same or things[0].many):
        traits.append(number)
    first = things[0]._replace(traits=(*dict.fromkeys((*traits, *things[0].traits)),), owner=owner)
    return place, (first, *things[1:])


def _goes_on(tags: Sequence[str], at: int) -> bool:
    """Whether a noun follows after nothing but what may stand before it."""
    for tag in tags[at : at + 8]:
        if tag in NOUNS:
            return True
        if tag not in ADJECTIVES | {"RB", "VBN", "VBG", "CD", "CC"}:
            return False
    return False


def _runs(words: Sequence[str], tags: Sequence[str], nouns: list[int]) -> list[list[int]]:
    """The nouns of a phrase, parted where a list has lost its commas: "carrots broccoli and rice", "a man woman and child"."""
    found = [[nouns[0]]]
    listed = nouns[-1] + 1 < len(tags) and tags[nouns[-1] + 1] == "CC"
    for before, noun in pairwise(nouns):
        first, second = words[before], words[noun]
        known = knows(f"{first} {lemma(second, 'n')}", "n") or knows(f"{lemma(first, 'n')} {lemma(second, 'n')}", "n")
        plural = tags[before] == "NNS" and first not in ("sports", "people", "men", "women")
        both = animate(lemma(first, "n")) and animate(lemma(second, "n")) and first not in PEOPLE_BEFORE_NOUNS
        if not known and listed and (plural or both):
            found.append([noun])
        else:
            found[-1].append(noun)
    return found


def _thing(words: Sequence[str], tags: Sequence[str], nouns: list[int]) -> Thing:
    """A run of nouns: the last is the thing, those before describe it, as in the paper: a tennis court is a court."""
    *before, last = nouns
    many = tags[last] in ("NNS", "NNPS") or words[last] == "people"
    return Thing(lemma(words[last], "n"), tuple(lemma(words[n], "n") for n in before), many=many)


# Above those files in WordNet, or many of what is in them.
LIVING = frozenset({"animal", "couple", "crowd", "family", "flock", "group", "herd", "individual", "person", "someone", "team"})


@lru_cache(1 << 16)
def animate(name: str) -> bool:
    """Whether it is a person or an animal, or many of them.

    >>> [name for name in ("man", "dog", "bench", "crowd", "someone") if animate(name)]
    ['man', 'dog', 'crowd', 'someone']
    """
    found = meaning(name, "n")
    return name in LIVING or (found is not None and found.topic in (ANIMAL, PERSON))


@lru_cache(1 << 16)
def _trait(word: str, tag: str) -> str:
    """An adjective without its degree, a participle as its verb, so that "parked cars" are those that "are parked"."""
    if tag in ("JJR", "JJS"):
        return lemma(word, "a")
    if possible(word) & {"VBG", "VBN"}:
        base = lemma(word, "v")
        return base if knows(base, "v") and base != word else word
    return word


def _deed(words: Sequence[str], tags: Sequence[str], at: int) -> tuple[int, Sequence[Deed]]:
    """Where the verbs that start here end, and the main one: "has been riding" is to ride."""
    place, main, helped, passive = at, at, False, False
    while place < len(words):
        tag, base = tags[place], lemma(words[place], "v")
        if tag == "MD" or (tag in VERBS and base in ("be", "have", "do") and _verb_follows(words, tags, place, base)):
            helped, passive = True, base == "be"
            place += 1
        elif tag in ("RB", "RBR", "EX") or words[place] == "not":
            place += 1
        else:
            break
    if place >= len(words) or tags[place] not in VERBS:
        return max(place, at + 1), ()
    main = place
    base = lemma(words[main], "v")
    finite = helped or tags[main] in ("VBZ", "VBP", "VBD", "VB")
    end = main + 1
    particle = words[end] if end < len(words) and tags[end] == "RP" else ""
    name = "be" if words[main] in ("'s", "'re", "'m") else base
    return end + bool(particle), (Deed(name, tags[main], finite, passive and tags[main] in ("VBN", "VBD"), particle),)


def _verb_follows(words: Sequence[str], tags: Sequence[str], at: int, base: str) -> bool:
    """Whether a verb that may be a helper is one."""
    forms = {"be": ("VBG", "VBN", "VBD"), "have": ("VBN", "VBD"), "do": ("VB", "VBP")}[base]
    for place in range(at + 1, min(at + 4, len(words))):
        if tags[place] in forms and not (tags[place] != "VBD" and describes(words, tags, place) and tags[place - 1] in BEFORE_NOUN):
            return True
        if tags[place] not in ("RB", "RBR", "EX", "VB", "VBN"):
            return False
    return False
