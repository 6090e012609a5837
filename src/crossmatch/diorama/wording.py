"""Sentences before they are written: which word says what, so that a part can be exchanged and the rest stays.

A `Wording` knows the word for every part of a caption's meaning. The describer makes them (`grammar`), the edits change
one part of them (`edits`), and the text and the meaning of a caption both follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from .kinds import KIND, Noun, kinds_of
from .meaning import Caption, Meaning, Phrase
from .scenes import COLOURS

if TYPE_CHECKING:
    from collections.abc import Sequence

Relation = tuple[str, int, int]

NUMERALS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
TEXTURE_WORDS = {"plain": ("plain",), "striped": ("striped",), "dotted": ("dotted", "spotted", "polka-dot")}
TEXTURE_TAILS = {"striped": ("with stripes",), "dotted": ("with dots", "with spots")}
SIZE_WORDS = {"small": ("small", "little", "tiny"), "medium": ("medium-sized",), "large": ("large", "big", "huge")}
ATTRIBUTE_WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "size": SIZE_WORDS,
    "colour": {name: (name,) for name in COLOURS},
    "texture": TEXTURE_WORDS,
}
# How a relation is worded, and which of its subject and object the sentence is then about.
RELATION_WORDS: dict[str, tuple[tuple[str, str], ...]] = {
    "left of": (("to the left of", "subject"), ("left of", "subject"), ("on the left side of", "subject")),
    "right of": (("to the right of", "subject"), ("right of", "subject"), ("on the right side of", "subject")),
    # "over" and "under" would say more: straight above, straight below
    "above": (("above", "subject"), ("above", "subject"), ("higher up than", "subject")),
    "below": (("below", "subject"), ("below", "subject"), ("lower down than", "subject")),
    "on": (("on", "subject"), ("on", "subject"), ("on top of", "subject")),
    "behind": (("behind", "subject"), ("behind", "subject"), ("in front of", "object")),
}
WORDED = {words: (name, about) for name, forms in RELATION_WORDS.items() for words, about in forms}
VERBS: tuple[tuple[str, str, tuple[str, ...]], ...] = (  # the first row whose category and places cover all kinds meant
    ("aircraft", "air", ("flies", "is flying")),
    ("toy", "air", ("flies", "is flying")),
    ("boat", "water", ("floats", "is floating")),
    ("animal", "water", ("swims", "is swimming")),
    ("bug", "land indoors air water", ("is",)),
    ("animal", "land indoors", ("stands", "is standing", "is")),
    ("vehicle", "land", ("is parked", "stands", "is")),
    ("piece of furniture", "land indoors", ("stands", "is")),
    ("building", "land", ("stands", "is")),
    ("tree", "land", ("stands", "is")),
    ("thing", "land indoors air water", ("is",)),
)
VERBS_ON = ("is", "sits", "rests", "is")
PLURAL = {"flies": "fly", "swims": "swim", "floats": "float", "stands": "stand", "sits": "sit", "rests": "rest"}


@dataclass(frozen=True)
class Spoken:
    """A phrase in words; `tail` comes after the noun ("with stripes")."""

    phrase: Phrase
    number: str
    adjectives: tuple[str, ...]
    noun: Noun
    tail: str = ""

    @property
    def plural(self) -> bool:
        return self.phrase.count not in (None, 1)

    @property
    def text(self) -> str:
        words = " ".join((*self.adjectives, self.noun.plural if self.plural else self.noun.singular))
        number = article(words) if self.number == "a" else self.number
        return f"{number} {words} {self.tail}".strip()

    def the(self, others: Sequence[Spoken]) -> str:
        """The definite form, as short as the other phrases of the caption allow.

        >>> dog = Noun("dog", "dogs")
        >>> red, blue = (Spoken(Phrase("dog", colour), "a", ("small", colour), dog) for colour in ("red", "blue"))
        >>> red.the([]), red.the([blue])
        ('the dog', 'the red dog')
        """
        kinds, colour = kinds_of(self.phrase.noun), self.phrase.colour
        twins = [other.phrase for other in others if kinds & kinds_of(other.phrase.noun)]
        words = self.adjectives if twins else ()
        if colour in words and all(twin.colour not in (None, colour) for twin in twins):
            words = tuple(word for word in words if word == colour)
        return " ".join(("the", *words, self.noun.plural if self.plural else self.noun.singular))

    def word_of(self, attribute: str) -> str:
        """The word that says the colour, texture or size; nothing where it is unsaid."""
        value = getattr(self.phrase, attribute)
        if attribute == "texture" and self.tail:
            return self.tail
        return next((word for word in self.adjectives if word in ATTRIBUTE_WORDS[attribute].get(value, ())), "")

    def saying(self, attribute: str, value: str, word: str) -> Spoken:
        """The phrase with this value of an attribute, said as `word`, in the place of the word that said the old one.

        >>> dog = Spoken(Phrase("dog", "red"), "a", ("red",), Noun("dog", "dogs"))
        >>> dog.saying("colour", "orange", "orange").text, dog.saying("texture", "striped", "with stripes").text
        ('an orange dog', 'a red dog with stripes')
        """
        old = self.word_of(attribute)
        kept = [said for said in self.adjectives if said != old]
        at = {"size": 0, "colour": bool(self.phrase.size), "texture": len(kept)}[attribute]
        at = self.adjectives.index(old) if old in self.adjectives else at
        if value == "plain" and self.phrase.colour:  # "plain red", but "red striped"
            at = kept.index(self.phrase.colour)
        tail = "" if attribute == "texture" else self.tail
        if word.startswith("with "):
            tail = word
        else:
            kept.insert(at, word)
        changed = replace(self.phrase, **{attribute: value})  # type: ignore[arg-type]  # all three attributes are texts
        return replace(self, phrase=changed, adjectives=tuple(kept), tail=tail)


@dataclass(frozen=True)
class Wording:
    """A caption as words for its parts. `claims` are the relations as said: (words, place of the first, of the second).

    >>> dog, cat = (Spoken(Phrase(name), "a", (), Noun(name, name + "s")) for name in ("dog", "cat"))
    >>> said = Wording("{a} {verb} {rel} {b} {here}", (dog, cat), (("in front of", 0, 1),), "is", "beach", "at the beach")
    >>> said.text, said.relations
    ('A dog is in front of a cat at the beach.', (('behind', 1, 0),))
    """

    template: str
    spoken: tuple[Spoken, ...]
    claims: tuple[tuple[str, int, int], ...] = ()
    verb: str = "is"
    setting: str | None = None
    here: str = ""
    picture: str = ""

    @property
    def relations(self) -> tuple[Relation, ...]:
        named = [(*WORDED[words], first, second) for words, first, second in self.claims]
        return tuple((name, s, o) if about == "subject" else (name, o, s) for name, about, s, o in named)

    @property
    def caption(self) -> Caption:
        return Caption(self.text, Meaning(tuple(s.phrase for s in self.spoken), self.relations, self.setting))

    @property
    def text(self) -> str:
        spoken = self.spoken
        rel, a, b = self.claims[0] if self.claims else ("", 0, 0)
        facts, claims = [], []
        for words, *pair in self.claims:
            the = [spoken[i].the([s for s in spoken if s is not spoken[i]]) for i in pair]
            facts.append(f"{the[0]} {words} {the[1]}")
            claims.append(f"{the[0]} {_inflected('is', spoken[pair[0]].plural)} {words} {the[1]}")
        rest = [s for i, s in enumerate(spoken) if i not in (a, b)]
        text = self.template.format(
            all=listed([s.text for s in spoken]),
            a=spoken[a].text,
            b=spoken[b].text,
            rest=listed([s.text for s in rest]) if rest else "",
            rel=rel,
            verb=_inflected(self.verb, spoken[a].plural),
            there=_there(spoken[a if "{a}" in self.template else 0]),
            there_also=_there(rest[0], " also") if rest else "",
            here=self.here,
            picture=self.picture,
            the_facts=listed(facts) if facts else "",
            the_claims=listed(claims) if claims else "",
        )
        return _sentence(text)

    def replaced(self, places: Sequence[int], phrases: Sequence[Spoken]) -> Wording:
        """With other phrases at these places. The verb stays if it suits its new subject."""
        changed = list(self.spoken)
        for place, phrase in zip(places, phrases, strict=True):
            changed[place] = phrase
        return replace(self, spoken=tuple(changed)).suited()

    def claiming(self, at: int, words: str) -> Wording:
        """With other words for the relation number `at`."""
        claims = list(self.claims)
        claims[at] = (words, *claims[at][1:])
        return replace(self, claims=tuple(claims)).suited()

    def along_with(self, phrase: Spoken) -> Wording:
        """With one more phrase: at the end of the list if the sentence has one, else after the sentence.

        >>> dog, cat = (Spoken(Phrase(name), "a", (), Noun(name, name + "s")) for name in ("dog", "cat"))
        >>> Wording("{there} {all} {here}", (dog,), here="at night").along_with(cat).text
        'There is a dog and a cat at night.'
        >>> Wording("{all} {verb} {here}", (dog,), verb="stands", here="at night").along_with(cat).text
        'A dog stands at night, and there is also a cat.'
        """
        template, verb = self.template, "{verb}" in self.template
        if "{rest}" not in template and (verb or "{all}" not in template):
            template = template.replace("{all}", "{a}") + (", and {there_also} {rest}" if verb else ", along with {rest}")
        return replace(self, template=template, spoken=(*self.spoken, phrase))

    def suited(self) -> Wording:
        """With a verb that says no more of its subject than is true of its whole kind: the same one if it can be."""
        rel, a, _ = self.claims[0] if self.claims else ("", 0, 0)
        verbs = VERBS_ON if rel in ("on", "on top of") else verbs_of(self.spoken[a].phrase.noun)
        return self if self.verb in verbs else replace(self, verb="is" if "is" in verbs else verbs[0])


def article(words: str) -> str:
    """`a` or `an`, by sound.

    >>> [article(words) for words in ("dog", "umbrella", "hourglass", "TV")]
    ['a', 'an', 'an', 'a']
    """
    return "an" if words[0] in "aeiou" or words.startswith("hour") else "a"


def listed(items: Sequence[str]) -> str:
    """
    >>> listed(["a dog"]), listed(["a dog", "two cats"]), listed(["a dog", "two cats", "a car"])
    ('a dog', 'a dog and two cats', 'a dog, two cats and a car')
    """
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


@cache
def verbs_of(noun: str) -> tuple[str, ...]:
    kinds = kinds_of(noun)
    places = {place for kind in kinds for place in KIND[kind].places}
    return next(verbs for name, only, verbs in VERBS if kinds <= kinds_of(name) and places <= set(only.split()))


def _inflected(verb: str, plural: bool) -> str:
    return PLURAL.get(verb, verb.replace("is", "are", 1)) if plural else verb


def _there(spoken: Spoken, also: str = "") -> str:
    return f"there {'are' if spoken.plural else 'is'}{also}"


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text[0].upper() + text[1:] + "."
