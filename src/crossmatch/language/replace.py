"""Nouns and verbs of a caption, what WordNet has in their place, and the caption with one of them replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crossmatch.language.forms import inflected, lemma, plural, uncounted
from crossmatch.language.tags import NOUNS, VERBS, describes
from crossmatch.language.wordnet import IN_CAPTIONS, Synset, knows, meaning, met, often, understood
from crossmatch.language.words import Edit, Token, article, capitalised, edited, loud

PARTS = frozenset({"NN", "NNS", "JJ", "VBG", "VBN"})  # what a compound noun is made of
OBJECT = frozenset({"DT", "PRP$", "PRP", "CD", *NOUNS})  # what an object begins with
FOLLOWS = OBJECT | {"JJ", "VBN", "VBG"}  # what may come after a preposition; after a particle comes something else
LONGEST = 3  # words of a compound that are looked up together
HIGHEST = {"n": 4, "v": 1}  # steps up to a broader meaning; further up, little is said any more
# Words that mean little alone: helping and light verbs; "lay", which captions write for "lie", and what signs do; nouns as in
# "on top of", "a lot of"; and words that mean too many things, or are mostly tagged wrongly.
LIGHT = {
    "v": frozenset(
        {
            "be", "have", "do", "get", "take", "make", "hold", "go", "lay", "let", "say", "read", "seat", "consist", "stick",
            "point", "picture", "bear", "pan", "'s", "'re", "’s", "’re",
        }
    ),
    "n": frozenset(
        {
            "couple", "lot", "number", "variety", "kind", "type", "sort", "top", "front", "back", "close", "part", "way", "other",
            "side", "body", "pack", "left", "right", "half", "rest", "time", "day", "thing", "style", "shape", "turn", "someone",
            "something", "anyone", "everyone", "everything", "outside", "inside", "outdoors", "indoors", "while", "standing",
            "wait", "graze", "play", "drive", "trick", "roll", "wing", "boarder", "baseball", "baseball game", "graffito",
            "stand", "trunk", "spot", "course",
        }
    ),
}  # fmt: skip
TOO_BROAD = {
    "n": frozenset(
        {
            "entity", "abstraction", "physical entity", "abstract entity", "object", "whole", "thing", "matter", "attribute",
            "measure", "artifact", "organism", "causal agent", "natural object", "instrumentality", "instrumentation",
            "psychological feature", "unit", "communication", "property", "state", "part", "relation", "group", "occurrence",
            "happening", "solid", "flat solid", "substance", "region", "location", "stuff", "commodity", "nutrient", "quantity",
            "space", "human action", "action", "datum", "treasure", "placement", "perception", "physical phenomenon",
            "organization", "piece", "visual percept", "chemical",
        }
    ),
    "v": LIGHT["v"] | {"act", "change", "touch", "put", "rest", "compete", "grimace"},
}  # fmt: skip
# What WordNet has and nobody says of a picture.
UNSAID = frozenset(
    {
        "aliment", "apply", "athletics", "backstop", "ball game", "basidiomycete", "binary compound", "blue air",
        "caprine animal", "cater", "cervix", "commuter", "computing machine", "court game", "covert", "curtilage", "demo",
        "disunite", "face fungus", "fast one", "friedcake", "gadget", "glossa", "gramineous plant", "herb", "hombre", "human face",
        "kine", "lingua", "manus", "mitt", "moo-cow", "mouth", "moving ridge", "murphy", "neighborhood", "nutriment", "oculus",
        "olfactory organ", "optic", "oral cavity", "oral fissure", "paseo", "pectus", "pipage", "plant life", "pollex",
        "posting", "red hot", "reproductive structure", "rima", "room access", "rosebush", "snowfall", "solid food",
        "true cat", "twenty-four hours", "wear", "wild blue yonder", "wing", "young buck",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Grounded:
    """A noun or verb of a text, from token `first` to token `last`, as WordNet lists it, and its meaning."""

    first: int
    last: int
    lemma: str
    pos: str
    tag: str
    meaning: Synset
    with_object: bool = False  # of a verb: whether an object follows, or is what a participle is about ("a car parked there")


def ground(words: Sequence[str], tags: Sequence[str]) -> list[Grounded]:
    """The nouns and verbs of a tokenised text that WordNet knows, from left to right; a compound ("fire hydrant") is one noun.

    A noun in front of a noun ("stop sign", "cell phone") belongs to a name that WordNet has not, and is left out.

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
    if tags[at] not in PARTS or (tags[at] in ("VBG", "VBN") and not describes(words, tags, at)):
        return None
    for last in range(min(at + LONGEST, len(words)) - 1, at - 1, -1):
        head_follows = last + 1 < len(tags) and (tags[last + 1] in NOUNS or describes(words, tags, last + 1))  # a snow covered hill
        if tags[last] in ("NN", "NNS") and not head_follows and PARTS.issuperset(tags[at:last]):
            head = lemma(words[last], "n")
            name = " ".join([*words[at:last], head])
            seen = meaning(name, "n")
            literal = at == last or "JJ" not in tags[at:last] or name in IN_CAPTIONS["n"] or (seen and _is_a(seen, head))
            quality = at == last and often(name, "a") > often(name, "n")  # "dressed in red"
            if seen and literal and not quality and name not in LIGHT["n"]:
                return Grounded(at, last, name, "n", tags[last], seen)
    return None


def _is_a(synset: Synset, lemma: str) -> bool:
    """Whether a synset is a kind of `lemma`: a polar bear is a bear, but WordNet's white horse is a wave."""
    above = synset.related("@", "@i")
    return any(lemma in broader.lemmas or _is_a(broader, lemma) for broader in above)


def _verb(words: Sequence[str], tags: Sequence[str], at: int) -> Grounded | None:
    """The verb at `at`, if its meaning fits what follows; with a particle, it says something else ("look up") and is left out."""
    base = lemma(words[at], "v")
    after, later = [*tags[at + 1 : at + 3], "", ""][:2]
    if (
        base in LIGHT["v"]
        or after == "RP"
        or (after in ("RB", "IN") and later not in FOLLOWS and knows(f"{base} {words[at + 1]}", "v"))
    ):
        return None
    with_object = tags[at] == "VBN" or after in OBJECT or (after in ("JJ", "VBN", "VBG") and later in NOUNS)
    seen = meaning(base, "v")
    return Grounded(at, at, base, "v", tags[at], seen, with_object) if seen and seen.fits(base, with_object) else None


def synonym(found: Grounded) -> str | None:
    """The commonest other lemma of the same meaning; names and formulas ("Equus caballus", "H2O") are passed over.

    >>> synonym(ground(["bus"], ["NN"])[0])
    'autobus'
    """
    return _best(found.meaning, found)


def hypernym(found: Grounded) -> str | None:
    """The commonest lemma of the nearest broader meaning, passing over those that no text uses ("gramineous plant").

    None where the nearest one says nothing any more.

    >>> hypernym(ground(["bus"], ["NN"])[0]), hypernym(ground(["airplane"], ["NN"])[0])
    ('conveyance', 'aircraft')
    """
    level = [found.meaning]
    rare: list[str] = []
    for _ in range(HIGHEST[found.pos]):
        level = [broader for synset in level for broader in synset.related("@", "@i")]
        names = [(broader, name) for broader in level if (name := _best(broader, found))]
        used = [name for broader, name in names if met(name, broader) or found.lemma.endswith(f" {name}")]
        if used:
            said = [name for name in used if name not in TOO_BROAD[found.pos]]
            return min(
                said, key=lambda name: (not found.lemma.endswith(f" {name}"), name.count(" ")), default=next(iter(rare), None)
            )
        rare += [name for _, name in names if name not in TOO_BROAD[found.pos]]
    return next(iter(rare), None)


def _best(synset: Synset, found: Grounded) -> str | None:
    """The commonest lemma of a meaning that can stand in the place of a word.

    A reader has to take it in this meaning: "can" is in the synset of "toilet", but nobody would think of that. It is counted if
    the word is ("a table", "a piece of furniture"), and one word if it is a verb, that takes an object if the verb does.
    """
    fits = _noun_fits if found.pos == "n" else _verb_fits
    names = [name for name in synset.lemmas if _another(name, found.lemma) and fits(name, synset, found)]
    return max(names, key=lambda name: met(name, synset), default=None)


def _noun_fits(name: str, synset: Synset, found: Grounded) -> bool:
    same_number = uncounted(name) == uncounted(found.lemma) and (found.tag == "NNS" or not plural(name))
    return same_number and meaning(name, "n") == synset


def _verb_fits(name: str, synset: Synset, found: Grounded) -> bool:
    alone = " " not in name and name not in LIGHT["v"]
    return alone and synset.fits(name, found.with_object) and understood(name, found.with_object) == synset


def _another(name: str, old: str) -> bool:
    """Whether a lemma is plain words, and other words."""
    plain = name.islower() and name.replace(" ", "").replace("-", "").isalpha()
    return plain and old.replace("-", " ") not in (name.replace("-", " "), lemma(name, "n")) and name not in UNSAID


def replaced(text: str, found: Sequence[Token], tags: Sequence[str], instead: Callable[[Grounded], str | None], draw: int) -> str:
    """The text with one of its nouns or verbs replaced, drawn by 64 random bits; unchanged where `instead` has nothing for any.

    The replacement takes the form of the word (plural, tense) and its capitals, and "a" or "an" right before it is mended.
    """
    units = [(unit, new) for unit in ground([token.text for token in found], tags) if (new := instead(unit)) is not None]
    if not units:
        return text
    unit, new = units[(draw * len(units)) >> 64]
    start, end = found[unit.first].start, found[unit.last].end
    new = inflected(new, unit.tag)
    edits = [Edit(start, end, _cased(new, text[start:end], text))]
    before = found[unit.first - 1] if unit.first else None
    if before and before.text.lower() in ("a", "an"):
        edits.append(Edit(before.start, before.end, _cased(article(new), before.text, text)))
    return edited(text, edits)


def _cased(new: str, old: str, text: str) -> str:
    """The new words with the capitals of the old, in a text that may be in capitals throughout."""
    if loud(text):
        return new.upper()
    acronym = len(old) > 1 and old.isupper() and not text.startswith(old)  # a TV is a television
    return capitalised(new) if old[:1].isupper() and not acronym else new
