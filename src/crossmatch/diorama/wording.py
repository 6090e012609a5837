"""Wordings: captions as words for each part of their meaning, so that a part can be exchanged and the rest stays.

`caption_writer` generates wordings, and `edits` changes a part of them; the text and the meaning of a caption both follow from
its wording.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from crossmatch.diorama.caption_meaning import Caption, Meaning, Phrase
from crossmatch.diorama.object_kinds import KIND, Noun, kinds_of
from crossmatch.diorama.scenes import COLOURS

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
# Words for a relation, and whether they describe its subject or its object.
RELATION_WORDS: dict[str, tuple[tuple[str, str], ...]] = {
    "left of": (("to the left of", "subject"), ("left of", "subject"), ("on the left side of", "subject")),
    "right of": (("to the right of", "subject"), ("right of", "subject"), ("on the right side of", "subject")),
    # not "over" and "under", which mean directly above and below
    "above": (("above", "subject"), ("above", "subject"), ("higher up than", "subject")),
    "below": (("below", "subject"), ("below", "subject"), ("lower down than", "subject")),
    "on": (("on", "subject"), ("on", "subject"), ("on top of", "subject")),
    "behind": (("behind", "subject"), ("behind", "subject"), ("in front of", "object")),
}
RELATION_OF_WORDS = {words: (name, about) for name, forms in RELATION_WORDS.items() for words, about in forms}
VERBS: tuple[tuple[str, str, tuple[str, ...]], ...] = (  # the first row whose category and places cover all kinds of the noun
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
class WordedPhrase:
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
        number = choose_article(words) if self.number == "a" else self.number
        return f"{number} {words} {self.tail}".strip()

    def the(self, others: Sequence[WordedPhrase]) -> str:
        """The definite form, as short as the other phrases of the caption allow.

        >>> dog = Noun("dog", "dogs")
        >>> red, blue = (WordedPhrase(Phrase("dog", colour), "a", ("small", colour), dog) for colour in ("red", "blue"))
        >>> red.the([]), red.the([blue])
        ('the dog', 'the red dog')
        """
        kinds, colour = kinds_of(self.phrase.noun), self.phrase.colour
        twins = [spoken.phrase for spoken in others if kinds & kinds_of(spoken.phrase.noun)]
        words = self.adjectives if twins else ()
        if colour in words and all(twin.colour not in (None, colour) for twin in twins):
            words = tuple(word for word in words if word == colour)
        return " ".join(("the", *words, self.noun.plural if self.plural else self.noun.singular))

    def word_of(self, attribute: str) -> str:
        """The word for the colour, texture or size; "" if it is not named."""
        value = getattr(self.phrase, attribute)
        if attribute == "texture" and self.tail:
            return self.tail
        return next((word for word in self.adjectives if word in ATTRIBUTE_WORDS[attribute].get(value, ())), "")

    def with_attribute(self, attribute: str, value: str, word: str) -> WordedPhrase:
        """The phrase with a new value of an attribute, worded as `word`, in the place of the old word.

        >>> dog = WordedPhrase(Phrase("dog", "red"), "a", ("red",), Noun("dog", "dogs"))
        >>> dog.with_attribute("colour", "orange", "orange").text, dog.with_attribute("texture", "striped", "with stripes").text
        ('an orange dog', 'a red dog with stripes')
        """
        old = self.word_of(attribute)
        adjectives = [adjective for adjective in self.adjectives if adjective != old]
        position = {"size": 0, "colour": bool(self.phrase.size), "texture": len(adjectives)}[attribute]
        position = self.adjectives.index(old) if old in self.adjectives else position
        if value == "plain" and self.phrase.colour:  # "plain red", but "red striped"
            position = adjectives.index(self.phrase.colour)
        tail = "" if attribute == "texture" else self.tail
        if word.startswith("with "):
            tail = word
        else:
            adjectives.insert(position, word)
        changed = replace(self.phrase, **{attribute: value})  # type: ignore[arg-type]  # all three attributes are texts
        return replace(self, phrase=changed, adjectives=tuple(adjectives), tail=tail)


@dataclass(frozen=True)
class Wording:
    """A caption as words for its parts. `claims` are the relations as worded: (words, first phrase, second phrase).

    >>> dog, cat = (WordedPhrase(Phrase(name), "a", (), Noun(name, name + "s")) for name in ("dog", "cat"))
    >>> wording = Wording("{a} {verb} {rel} {b} {here}", (dog, cat), (("in front of", 0, 1),), "is", "beach", "at the beach")
    >>> wording.text, wording.relations
    ('A dog is in front of a cat at the beach.', (('behind', 1, 0),))
    """

    template: str
    spoken: tuple[WordedPhrase, ...]
    claims: tuple[tuple[str, int, int], ...] = ()
    verb: str = "is"
    setting: str | None = None
    setting_words: str = ""
    picture: str = ""

    @property
    def relations(self) -> tuple[Relation, ...]:
        named = [(*RELATION_OF_WORDS[words], first, second) for words, first, second in self.claims]
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
            claims.append(f"{the[0]} {_inflect_verb('is', spoken[pair[0]].plural)} {words} {the[1]}")
        rest = [s for i, s in enumerate(spoken) if i not in (a, b)]
        text = self.template.format(
            all=join_list([s.text for s in spoken]),
            a=spoken[a].text,
            b=spoken[b].text,
            rest=join_list([s.text for s in rest]) if rest else "",
            rel=rel,
            verb=_inflect_verb(self.verb, spoken[a].plural),
            there=_there_is(spoken[a if "{a}" in self.template else 0]),
            there_also=_there_is(rest[0], " also") if rest else "",
            here=self.setting_words,
            picture=self.picture,
            the_facts=join_list(facts) if facts else "",
            the_claims=join_list(claims) if claims else "",
        )
        return _sentence(text)

    def replace_phrases(self, positions: Sequence[int], phrases: Sequence[WordedPhrase]) -> Wording:
        """Replace the phrases at these positions. The verb stays if it suits its new subject."""
        changed = list(self.spoken)
        for position, phrase in zip(positions, phrases, strict=True):
            changed[position] = phrase
        return replace(self, spoken=tuple(changed)).fit_verb()

    def replace_relation(self, at: int, words: str) -> Wording:
        """Replace the words of relation number `at`."""
        claims = list(self.claims)
        claims[at] = (words, *claims[at][1:])
        return replace(self, claims=tuple(claims)).fit_verb()

    def add_phrase(self, phrase: WordedPhrase) -> Wording:
        """Add a phrase: at the end of the list if the sentence has one, else after the sentence.

        >>> dog, cat = (WordedPhrase(Phrase(name), "a", (), Noun(name, name + "s")) for name in ("dog", "cat"))
        >>> Wording("{there} {all} {here}", (dog,), setting_words="at night").add_phrase(cat).text
        'There is a dog and a cat at night.'
        >>> Wording("{all} {verb} {here}", (dog,), verb="stands", setting_words="at night").add_phrase(cat).text
        'A dog stands at night, and there is also a cat.'
        """
        template, verb = self.template, "{verb}" in self.template
        if "{rest}" not in template and (verb or "{all}" not in template):
            template = template.replace("{all}", "{a}") + (", and {there_also} {rest}" if verb else ", along with {rest}")
        return replace(self, template=template, spoken=(*self.spoken, phrase))

    def fit_verb(self) -> Wording:
        """The wording with a verb that is true of every object of its subject's kind; unchanged if possible."""
        relation, a, _ = self.claims[0] if self.claims else ("", 0, 0)
        verbs = verbs_of(self.spoken[a].phrase.noun, relation)
        return self if self.verb in verbs else replace(self, verb="is" if "is" in verbs else verbs[0])


def choose_article(words: str) -> str:
    """ "a" or "an", by sound.

    >>> [choose_article(words) for words in ("dog", "umbrella", "hourglass", "TV")]
    ['a', 'an', 'an', 'a']
    """
    return "an" if words[0] in "aeiou" or words.startswith("hour") else "a"


def join_list(items: Sequence[str]) -> str:
    """Join items with commas and "and".

    >>> join_list(["a dog"]), join_list(["a dog", "two cats"]), join_list(["a dog", "two cats", "a car"])
    ('a dog', 'a dog and two cats', 'a dog, two cats and a car')
    """
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


@cache
def verbs_of(noun: str, relation: str = "") -> tuple[str, ...]:
    """Verbs that are true of every object that the noun fits, in a sentence with these words for its relation."""
    if relation in ("on", "on top of"):
        return VERBS_ON
    kinds = kinds_of(noun)
    places = {place for kind in kinds for place in KIND[kind].places}
    return next(verbs for name, only, verbs in VERBS if kinds <= kinds_of(name) and places <= set(only.split()))


def _inflect_verb(verb: str, plural: bool) -> str:
    return PLURAL.get(verb, verb.replace("is", "are", 1)) if plural else verb


def _there_is(spoken: WordedPhrase, also: str = "") -> str:
    return f"there {'are' if spoken.plural else 'is'}{also}"


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text[0].upper() + text[1:] + "."
