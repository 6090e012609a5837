"""Nouns and verbs of a caption, what WordNet has in their place, and the caption with one of them replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crossmatch.language.forms import inflected, lemma, uncounted
from crossmatch.language.tags import NOUNS, VERBS, describes
from crossmatch.language.wordnet import IN_CAPTIONS, Synset, meaning
from crossmatch.language.words import Edit, Token, article, capitalised, edited

PARTS = frozenset({"NN", "NNS", "JJ", "VBG", "VBN"})  # what a compound noun is made of
LONGEST = 3  # words of a compound that are looked up together
# Words that mean little alone: helping and light verbs; "lay", which captions write for "lie"; nouns as in "on top of", "a lot of".
LIGHT = {
    "v": frozenset({"be", "have", "do", "get", "take", "make", "hold", "lay", "'s", "'re", "’s", "’re"}),
    "n": frozenset(
        {"couple", "lot", "number", "variety", "kind", "type", "sort", "top", "front", "back", "close", "part", "way", "other"}
    ),
}
TOO_BROAD = frozenset(
    {"entity", "abstraction", "physical entity", "abstract entity", "object", "whole", "thing", "matter", "attribute", "measure"}
)


@dataclass(frozen=True)
class Grounded:
    """A noun or verb of a text, from token `first` to token `last`, as WordNet lists it, and its meaning."""

    first: int
    last: int
    lemma: str
    pos: str
    tag: str
    meaning: Synset


def ground(words: Sequence[str], tags: Sequence[str]) -> list[Grounded]:
    """The nouns and verbs of a tokenised text that WordNet knows, from left to right; a compound ("fire hydrant") is one noun.

    >>> [found.lemma for found in ground(["Two", "fire", "hydrants", "standing", "there"], ["CD", "NN", "NNS", "VBG", "RB"])]
    ['fire hydrant', 'stand']
    """
    lower = [word.lower() for word in words]
    found: list[Grounded] = []
    for at, tag in enumerate(tags):
        if found and at <= found[-1].last:
            continue
        unit = _noun(lower, tags, at) or (_verb(lower, tags, at) if tag in VERBS and not describes(lower, tags, at) else None)
        if unit:
            found.append(unit)
    return found


def _noun(words: Sequence[str], tags: Sequence[str], at: int) -> Grounded | None:
    """The longest noun of WordNet that begins at `at`."""
    if tags[at] not in PARTS:
        return None
    for last in range(min(at + LONGEST, len(words)) - 1, at - 1, -1):
        if tags[last] in ("NN", "NNS") and PARTS.issuperset(tags[at:last]):
            head = lemma(words[last], "n")
            name = " ".join([*words[at:last], head])
            seen = meaning(name, "n")
            literal = at == last or "JJ" not in tags[at:last] or name in IN_CAPTIONS["n"] or (seen and _is_a(seen, head))
            if seen and literal and name not in LIGHT["n"]:
                return Grounded(at, last, name, "n", tags[last], seen)
    return None


def _is_a(synset: Synset, lemma: str) -> bool:
    """Whether a synset is a kind of `lemma`: a polar bear is a bear, but WordNet's white horse is a wave."""
    above = synset.related("@", "@i")
    return any(lemma in broader.lemmas or _is_a(broader, lemma) for broader in above)


def _verb(words: Sequence[str], tags: Sequence[str], at: int) -> Grounded | None:
    """The verb at `at`, with its particle if it has one."""
    base = lemma(words[at], "v")
    particle = tags[at + 1 : at + 2] == ["RP"]
    name = f"{base} {words[at + 1]}" if particle else base
    seen = meaning(name, "v")
    return Grounded(at, at + particle, name, "v", tags[at], seen) if seen and base not in LIGHT["v"] else None


def synonym(found: Grounded) -> str | None:
    """The first lemma of the same meaning that is another word; names and formulas ("Equus caballus", "H2O") are passed over.

    >>> synonym(ground(["bus"], ["NN"])[0])
    'autobus'
    """
    return next((name for name in found.meaning.lemmas if _another(name, found.lemma)), None)


def hypernym(found: Grounded) -> str | None:
    """The first lemma of the nearest broader meaning that is another word.

    >>> hypernym(ground(["bus"], ["NN"])[0])
    'public transport'
    """
    above = found.meaning.related("@", "@i")
    while above and not _another(above[0].lemmas[0], found.lemma):
        above = above[0].related("@", "@i")
    return above[0].lemmas[0] if above and above[0].lemmas[0] not in TOO_BROAD else None


def _another(name: str, old: str) -> bool:
    """Whether a lemma is plain words, and other words."""
    return name.islower() and name.replace(" ", "").replace("-", "").isalpha() and name.replace("-", " ") != old.replace("-", " ")


def replaced(text: str, found: Sequence[Token], tags: Sequence[str], instead: Callable[[Grounded], str | None], draw: int) -> str:
    """The text with one of its nouns or verbs replaced, drawn by 64 random bits; unchanged where `instead` has nothing for any.

    The replacement takes the form of the word (plural, tense) and its capitals, and the article before it is mended: "a", "an",
    or "some" before what cannot be counted.
    """
    units = [(unit, new) for unit in ground([token.text for token in found], tags) if (new := instead(unit)) is not None]
    if not units:
        return text
    unit, new = units[(draw * len(units)) >> 64]
    old = text[found[unit.first].start : found[unit.last].end]
    new = _cased(inflected(new, unit.tag), old)
    edits = [Edit(found[unit.first].start, found[unit.last].end, new)]
    at = unit.first - 1
    while at >= 0 and tags[at] in ("JJ", "NN", "RB", "VBN", "VBG"):
        at -= 1
    if unit.tag == "NN" and at >= 0 and found[at].text.lower() in ("a", "an"):
        head = unit.last + 1 == len(tags) or tags[unit.last + 1] not in NOUNS
        some = head and uncounted(new.lower()) and not uncounted(old.lower())
        right = "some" if some else article(new if at == unit.first - 1 else found[at + 1].text)
        edits.append(Edit(found[at].start, found[at].end, _cased(right, found[at].text)))
    return edited(text, edits)


def _cased(new: str, old: str) -> str:
    """The new words with the capitals of the old."""
    if old.isupper() and len(old) > 1:
        return new.upper()
    return capitalised(new) if old[:1].isupper() else new
