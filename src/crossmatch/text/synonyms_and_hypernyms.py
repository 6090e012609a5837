"""Replacement of a noun or verb of a caption by a synonym or hypernym from WordNet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crossmatch.text.inflection import inflect, is_plural_noun, is_uncountable, lemmatise
from crossmatch.text.part_of_speech import NOUN_TAGS, VERB_TAGS, is_attributive
from crossmatch.text.tokens_and_edits import Token, TokenEdit, apply_edits, capitalise, indefinite_article, is_mostly_upper_case
from crossmatch.text.wordnet import CAPTION_SENSES, Synset, caption_sense, is_lemma, lemma_frequency, sense_frequency, verb_sense

COMPOUND_TAGS = frozenset({"NN", "NNS", "JJ", "VBG", "VBN"})  # tags in compound nouns
OBJECT_STARTS = frozenset({"DT", "PRP$", "PRP", "CD", *NOUN_TAGS})
PREPOSITION_FOLLOWERS = OBJECT_STARTS | {"JJ", "VBN", "VBG"}  # after a preposition, but not after a particle
MAX_COMPOUND = 3  # words of a compound that are looked up together
MAX_STEPS = {"n": 4, "v": 1}  # steps to broader senses; beyond, they are too general
# Words that are not replaced: auxiliary and light verbs; "lay", written for "lie"; verbs of signs; nouns of "on top of" and "a
# lot of"; and words that are ambiguous or often tagged wrongly.
LIGHT_WORDS = {
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
    "v": LIGHT_WORDS["v"] | {"act", "change", "touch", "put", "rest", "compete", "grimace"},
}  # fmt: skip
# Lemmas of WordNet that captions do not use.
UNNATURAL_LEMMAS = frozenset(
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
class WordSense:
    """A noun or verb of a text, from token `first` to token `last`, with its lemma and sense.

    `with_object` is true for verbs with an object, and for passive participles ("a car parked there").
    """

    first: int
    last: int
    lemma: str
    pos: str
    tag: str
    synset: Synset
    with_object: bool = False


def find_word_senses(words: Sequence[str], tags: Sequence[str]) -> list[WordSense]:
    """Nouns and verbs of a tokenised text that WordNet has, from left to right; a compound ("fire hydrant") is one noun.

    A noun before a noun ("stop sign", "cell phone") is part of a name that WordNet does not have, and is left out.

    >>> words, tags = ["Two", "fire", "hydrants", "standing", "there"], ["CD", "NN", "NNS", "VBG", "RB"]
    >>> [word.lemma for word in find_word_senses(words, tags)]
    ['fire hydrant', 'stand']
    """
    lower = [word.lower() for word in words]
    senses: list[WordSense] = []
    for at, tag in enumerate(tags):
        if senses and at <= senses[-1].last:
            continue
        sense = _noun_at(lower, tags, at) or (
            _verb_at(lower, tags, at) if tag in VERB_TAGS and not is_attributive(lower, tags, at) else None
        )
        if sense:
            senses.append(sense)
    return senses


def _noun_at(words: Sequence[str], tags: Sequence[str], at: int) -> WordSense | None:
    """The longest noun of WordNet that starts at this position."""
    if tags[at] not in COMPOUND_TAGS or (tags[at] in ("VBG", "VBN") and not is_attributive(words, tags, at)):
        return None
    for last in range(min(at + MAX_COMPOUND, len(words)) - 1, at - 1, -1):
        head_follows = last + 1 < len(tags) and (
            tags[last + 1] in NOUN_TAGS or is_attributive(words, tags, last + 1)
        )  # a snow covered hill
        if tags[last] in ("NN", "NNS") and not head_follows and COMPOUND_TAGS.issuperset(tags[at:last]):
            head = lemmatise(words[last], "n")
            name = " ".join([*words[at:last], head])
            synset = caption_sense(name, "n")
            is_literal = at == last or "JJ" not in tags[at:last] or name in CAPTION_SENSES["n"] or (synset and _is_a(synset, head))
            is_quality = at == last and lemma_frequency(name, "a") > lemma_frequency(name, "n")  # "dressed in red"
            if synset and is_literal and not is_quality and name not in LIGHT_WORDS["n"]:
                return WordSense(at, last, name, "n", tags[last], synset)
    return None


def _is_a(synset: Synset, lemma: str) -> bool:
    """Whether a synset is a kind of `lemma`: a polar bear is a bear, but the white horse of WordNet is a wave."""
    above = synset.related("@", "@i")
    return any(lemma in broader.lemmas or _is_a(broader, lemma) for broader in above)


def _verb_at(words: Sequence[str], tags: Sequence[str], at: int) -> WordSense | None:
    """The verb at this position, if its sense fits the next words; verbs with a particle ("look up") are left out."""
    base = lemmatise(words[at], "v")
    after, later = [*tags[at + 1 : at + 3], "", ""][:2]
    if (
        base in LIGHT_WORDS["v"]
        or after == "RP"
        or (after in ("RB", "IN") and later not in PREPOSITION_FOLLOWERS and is_lemma(f"{base} {words[at + 1]}", "v"))
    ):
        return None
    with_object = tags[at] == "VBN" or after in OBJECT_STARTS or (after in ("JJ", "VBN", "VBG") and later in NOUN_TAGS)
    synset = caption_sense(base, "v")
    return (
        WordSense(at, at, base, "v", tags[at], synset, with_object) if synset and synset.allows_object(base, with_object) else None
    )


def synonym(word: WordSense) -> str | None:
    """The most frequent other lemma of the same sense, without names and formulas ("Equus caballus", "H2O").

    >>> synonym(find_word_senses(["bus"], ["NN"])[0])
    'autobus'
    """
    return _best_lemma(word.synset, word)


def hypernym(word: WordSense) -> str | None:
    """The most frequent lemma of the nearest broader sense, without lemmas that texts do not use ("gramineous plant").

    None if the nearest one is too general.

    >>> hypernym(find_word_senses(["bus"], ["NN"])[0]), hypernym(find_word_senses(["airplane"], ["NN"])[0])
    ('conveyance', 'aircraft')
    """
    synsets = [word.synset]
    rare: list[str] = []
    for _ in range(MAX_STEPS[word.pos]):
        synsets = [broader for synset in synsets for broader in synset.related("@", "@i")]
        names = [(broader, name) for broader in synsets if (name := _best_lemma(broader, word))]
        frequent = [name for broader, name in names if sense_frequency(name, broader) or word.lemma.endswith(f" {name}")]
        if frequent:
            specific = [name for name in frequent if name not in TOO_BROAD[word.pos]]
            return min(
                specific, key=lambda name: (not word.lemma.endswith(f" {name}"), name.count(" ")), default=next(iter(rare), None)
            )
        rare += [name for _, name in names if name not in TOO_BROAD[word.pos]]
    return next(iter(rare), None)


def _best_lemma(synset: Synset, word: WordSense) -> str | None:
    """The most frequent lemma of a synset that can replace a word.

    Readers must understand it in this sense: "can" is in the synset of "toilet", but is not understood so. It must be countable
    if the word is, and for a verb it must be one word that takes an object if the verb does.
    """
    fits = _noun_fits if word.pos == "n" else _verb_fits
    names = [name for name in synset.lemmas if _is_different_word(name, word.lemma) and fits(name, synset, word)]
    return max(names, key=lambda name: sense_frequency(name, synset), default=None)


def _noun_fits(name: str, synset: Synset, word: WordSense) -> bool:
    same_number = is_uncountable(name) == is_uncountable(word.lemma) and (word.tag == "NNS" or not is_plural_noun(name))
    return same_number and caption_sense(name, "n") == synset


def _verb_fits(name: str, synset: Synset, word: WordSense) -> bool:
    is_single_word = " " not in name and name not in LIGHT_WORDS["v"]
    return is_single_word and synset.allows_object(name, word.with_object) and verb_sense(name, word.with_object) == synset


def _is_different_word(name: str, old: str) -> bool:
    """Whether a lemma is in plain letters, and different."""
    is_plain = name.islower() and name.replace(" ", "").replace("-", "").isalpha()
    return is_plain and old.replace("-", " ") not in (name.replace("-", " "), lemmatise(name, "n")) and name not in UNNATURAL_LEMMAS


def replace_one_word(
    text: str, tokens: Sequence[Token], tags: Sequence[str], substitute: Callable[[WordSense], str | None], draw: int
) -> str:
    """Replace one random noun or verb of a text; unchanged if `substitute` has none for any.

    `draw` is 64 random bits that select the word.
    """
    options = [
        (word, new) for word in find_word_senses([token.text for token in tokens], tags) if (new := substitute(word)) is not None
    ]
    if not options:
        return text
    word, new = options[(draw * len(options)) >> 64]
    return replace_word(text, tokens, word, new)


def replace_word(text: str, tokens: Sequence[Token], word: WordSense, lemma: str) -> str:
    """The text with another lemma in the position of a word, inflected, capitalised and with the right article.

    >>> from crossmatch.text.tokens_and_edits import tokenise
    >>> text, (car,) = "A red car.", find_word_senses(["A", "red", "car"], ["DT", "JJ", "NN"])
    >>> replace_word(text, tokenise(text), car, "bus")
    'A red bus.'
    """
    new = inflect(lemma, word.tag) if word.pos != "a" else lemma
    start, end = tokens[word.first].start, tokens[word.last].end
    edits = [TokenEdit(start, end, _match_case(new, text[start:end], text))]
    if article := find_article(tokens, word):
        edits.append(TokenEdit(article.start, article.end, _match_case(indefinite_article(new), article.text, text)))
    return apply_edits(text, edits)


def find_article(tokens: Sequence[Token], word: WordSense) -> Token | None:
    """The "a" or "an" directly before a word."""
    before = tokens[word.first - 1] if word.first else None
    return before if before and before.text.lower() in ("a", "an") else None


def _match_case(new: str, old: str, text: str) -> str:
    """Apply the case of the old words to the new ones."""
    if is_mostly_upper_case(text):
        return new.upper()
    is_acronym = len(old) > 1 and old.isupper() and not text.startswith(old)  # a TV is a television
    return capitalise(new) if old[:1].isupper() and not is_acronym else new
