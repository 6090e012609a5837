"""What the captions of an image mention together, so that a negative caption does not state it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from crossmatch.build.negatives.noun_categories import PEOPLE
from crossmatch.build.negatives.replacement_objects import aliases, hypernyms_of
from crossmatch.text.inflection import is_uncountable, lemmatise
from crossmatch.text.noun_phrases import TaggedCaption
from crossmatch.text.wordnet import Synset, caption_sense


@dataclass(frozen=True, eq=False)
class CaptionContext:
    """What the captions of an image mention together, and what a negative therefore must not say."""

    captions: tuple[TaggedCaption, ...]

    @cached_property
    def nouns(self) -> dict[str, bool]:
        """Every noun as a lemma, alone and as a compound, and whether it ever is plural or uncountable."""
        nouns: dict[str, bool] = {}
        for caption in self.captions:
            for phrase in caption.phrases:
                lemmas = [lemmatise(word, "n") for word in caption.words[phrase.noun_start : phrase.head + 1]]
                for name in (*lemmas, phrase.name, " ".join([*caption.words[phrase.noun_start : phrase.head], lemmas[-1]])):
                    nouns[name] = nouns.get(name, False) or phrase.is_plural or is_uncountable(name)
        return nouns

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word, as written and as a lemma."""
        written = {word for caption in self.captions for word in caption.words}
        return frozenset(written | {lemmatise(word, pos) for word in written for pos in ("n", "v") if word.isalpha()})

    @cached_property
    def attributes(self) -> frozenset[tuple[str, str]]:
        """Pairs of noun and adjective of all phrases."""
        return frozenset(
            (phrase.name, caption.words[at]) for caption in self.captions for phrase in caption.phrases for at in phrase.adjectives
        )

    @cached_property
    def hypernyms(self) -> dict[Synset, str]:
        """The senses of all nouns and their hypernyms, with the noun."""
        return {synset: noun for noun in self.nouns for synset in hypernyms_of(noun)}

    @cached_property
    def senses(self) -> dict[Synset, str]:
        """The senses of all nouns, with the noun."""
        return {sense: noun for noun in self.nouns if (sense := caption_sense(noun, "n")) is not None}

    def is_absent(self, noun: str, replaced: str = "") -> bool:
        """Whether no caption mentions the object, a hyponym or a hypernym of it.

        A replacement of a singular noun may share its hypernyms: "an animal" is the dog that becomes a cat. Plural "animals" may
        have been dogs and cats.
        """
        head = noun.split(" ")[-1]
        is_agent = head.endswith("er") and len(head) > 4
        if is_agent and any(word.startswith(head[:-2]) for word in self.words):  # "hiking" mentions a hiker
            return False
        if aliases(noun) & self.nouns.keys() or noun in self.words or (head in self.nouns and " " in noun):
            return False
        sense = caption_sense(noun, "n") or caption_sense(head, "n")
        if sense is None:
            return True
        if sense in self.hypernyms:  # a hyponym is mentioned
            return False
        shared = hypernyms_of(replaced) if replaced else frozenset()
        return not any(
            synset in self.senses and (synset not in shared or self.nouns[self.senses[synset]])
            for synset in hypernyms_of(noun if caption_sense(noun, "n") else head)
        )

    @cached_property
    def may_have_both_genders(self) -> bool:
        """Whether there may be people of both genders: several are mentioned, or some without a gender."""
        return any(self.nouns.get(name, False) for name in PEOPLE) or bool(
            {"group", "couple", "crowd", "family", "team", "pair", "people"} & self.words
        )
