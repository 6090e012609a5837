"""Parts of speech of captions, as Penn Treebank tags (marcus1993building)."""

from __future__ import annotations

from collections.abc import Sequence

from crossmatch.language.forms import impossible, inflected, lemma, possible, uncounted
from crossmatch.language.perceptron import perceptron
from crossmatch.language.wordnet import ACT, ATTRIBUTE, THINGS, knows, meaning, often
from crossmatch.language.words import is_word

VERBS = frozenset({"VB", "VBD", "VBG", "VBN", "VBP", "VBZ"})
NOUNS = frozenset({"NN", "NNS", "NNP", "NNPS"})
PLACE = frozenset({"IN", "TO", "RB", "RP"})  # what begins "on the street", "to the left", "quickly"
OBJECT = frozenset({"DT", "PRP$", "CD"})  # what begins "a bus", "his bat", "two dogs"
MARKS = {
    mark: tag
    for marks, tag in (
        (".!?", "."),
        (",", ","),
        (":;-–—…/", ":"),
        ("([{", "-LRB-"),
        (")]}", "-RRB-"),
        ("\"'‘’“”`", "''"),
        ("$£€", "$"),
        ("#", "#"),
    )
    for mark in marks
}
ENDS = frozenset({".", ",", "CC", ":"})


def tag(words: Sequence[str]) -> list[str]:
    """The Penn Treebank tag of each token of one caption.

    >>> tag(["A", "man", "riding", "a", "wave", "."])
    ['DT', 'NN', 'VBG', 'DT', 'NN', '.']
    """
    return tag_all([words])[0]


def tag_all(texts: Sequence[Sequence[str]]) -> list[list[str]]:
    """The tags of many captions at once, much faster than one after the other; the same tags.

    Dictionaries rule out what a word cannot be, and rules mend what a model of newspaper text gets wrong in captions.

    >>> tag_all([["Two", "dogs", "sit"], ["Sheep", "grazing", "outside", "a", "barn"]])
    [['CD', 'NNS', 'VBP'], ['NN', 'VBG', 'IN', 'DT', 'NN']]
    """
    plain = [as_in_a_sentence(text) for text in texts]
    return [repaired(text, marked(text, tags)) for text, tags in zip(plain, perceptron().tag(plain, impossible), strict=True)]


def as_in_a_sentence(words: Sequence[str]) -> list[str]:
    """The words without capitals that say nothing: of the first word, and of all where most have one (a title, or capitals only).

    >>> as_in_a_sentence(["Stop", "sign", "in", "London"])
    ['stop', 'sign', 'in', 'London']
    >>> as_in_a_sentence(["A", "MAN", "RIDING", "a", "WAVE"])
    ['a', 'man', 'riding', 'a', 'wave']
    """
    lettered = [word for word in words if word[:1].isalpha()]
    if len(lettered) > 2 and 2 * sum(word[0].isupper() for word in lettered) > len(lettered):
        return [word.lower() for word in words]
    return [word.lower() if at == 0 and word != "I" else word for at, word in enumerate(words)]


def marked(words: Sequence[str], tags: Sequence[str]) -> list[str]:
    """The tags with those of punctuation marks set right: the model has seen few of them.

    >>> marked(["dogs", ")", "…"], ["NNS", "VBP", "NN"])
    ['NNS', '-RRB-', ':']
    """
    return [tag if is_word(word) else MARKS.get(word[:1], "SYM") for word, tag in zip(words, tags, strict=True)]


def repaired(words: Sequence[str], tags: Sequence[str]) -> list[str]:
    """The tags after rules for what captions are full of and newspapers are not: clauses without "is", scenes in the present.

    After a noun, what was taken for a noun or an adjective is a verb if a dictionary allows it and what follows fits a verb better:
    "an elephant standing in", "a hydrant protected by", "a man boards a bus", "a seabird hunts at", "motorbikes race quickly".
    """
    out = list(tags)
    for at in range(len(words)):
        if tags[at] == "NN" and _colour(words, out, at):
            out[at] = "JJ"
        elif tags[at] in ("NN", "NNS", "JJ") and at > 0:
            out[at] = _verb(words, out, at) or tags[at]
        elif tags[at] in ("VB", "VBP", "VBZ") and _noun(words, out, at):
            out[at] = "NNS" if tags[at] == "VBZ" else "NN"
    return out


def _verb(words: Sequence[str], tags: Sequence[str], at: int) -> str | None:
    """The verb tag of a word taken for a noun or an adjective, if it is a verb."""
    word, tag = words[at].lower(), tags[at]
    before, after = tags[at - 1], tags[at + 1] if at + 1 < len(tags) else "."
    can = possible(word)
    if before == "CC" and at > 1 and tags[at - 2] in can & {"VBG", "VBZ"}:  # grazing and playing
        return tags[at - 2]
    if before not in NOUNS:
        return None
    if "VBG" in can:  # a building, a parking lot, a gaming console; but: playing tennis, wearing suits
        follows = after not in ("NN", "NNP") or (not knows(f"{word} {words[at + 1]}", "n") and _topic(words[at + 1]) == ACT)
        return "VBG" if _topic(word) not in THINGS and follows else None
    if tag == "JJ" and "VBN" in can and after in PLACE:
        return "VBN"
    if tag == "NNS" and "VBZ" in can and before == "NN" and after in OBJECT | PLACE | ENDS:
        return (
            "VBZ"
            if after in OBJECT or _one(words, tags, at) or (_rather_verb(word) and after in PLACE and _first(tags, at))
            else None
        )
    if tag == "NN" and "VBD" in can and after in OBJECT:  # a couple cut a cake
        return "VBD"
    if tag == "NN" and "VBP" in can and after in OBJECT | PLACE:
        if before == "NNS":
            return "VBP" if after in OBJECT or _rather_verb(word) else None
        return "VBP" if _many(words, tags, at) and _mostly_verb(word) else None
    return None


def _noun(words: Sequence[str], tags: Sequence[str], at: int) -> bool:
    """Whether what was taken for a plain verb is a noun.

    Captions give no orders ("stop sign"), "shirt and tie" joins nouns, "various angle shots" and "with silver pillows on it" have
    no verb.
    """
    word, before = words[at].lower(), tags[at - 1] if at else ""
    after = tags[at + 1] if at + 1 < len(tags) else "."
    if ("NNS" if tags[at] == "VBZ" else "NN") not in possible(word):
        return False
    begins = at == 0 and after in ("NN", "NNS", "IN") and tags[at] != "VBZ"
    joins = at > 1 and tags[at] == "VB" and before == "CC" and tags[at - 2] in NOUNS
    modifies = tags[at] == "VBP" and before in ("JJ", "CC") and after in NOUNS
    return begins or joins or modifies or (after not in OBJECT and not _one(words, tags, at) and _rather_thing(word))


def _colour(words: Sequence[str], tags: Sequence[str], at: int) -> bool:
    """Whether a noun for a quality is the adjective: "a blue and white bus", "pink frosting"."""
    after, later = [*tags[at + 1 : at + 3], "", ""][:2]
    return (
        (after in NOUNS or (after in ("CC", ",") and later == "JJ"))
        and "JJ" in possible(words[at])
        and _topic(words[at]) == ATTRIBUTE
    )


def describes(words: Sequence[str], tags: Sequence[str], at: int) -> bool:
    """Whether a participle belongs to the noun after it, as an adjective does: "two parked cars", "a snow covered hill".

    >>> describes(["a", "parked", "car"], ["DT", "VBN", "NN"], 1)
    True
    >>> describes(["a", "car", "parked", "there"], ["DT", "NN", "VBN", "RB"], 2)
    False
    """
    before, (after, later) = tags[at - 1] if at else "", [*tags[at + 1 : at + 3], "", ""][:2]
    if tags[at] not in ("VBG", "VBN", "VBD") or words[at - 1 : at] in (["all"], ["both"], ["each"]):
        return False
    if tags[at] == "VBG" and before not in NOUNS and after in NOUNS and knows(f"{words[at]} {words[at + 1]}", "n"):  # a living room
        return True
    if before in ("DT", "PRP$", "POS", "JJ", "JJR", "JJS", "CD"):
        fenced_off = after in ("RP", "IN", "RB") and later in (*NOUNS, "JJ")
        return fenced_off or after in (*NOUNS, "JJ", "VBN", "VBG", ",", "CC")
    if before == "RB":
        return at > 1 and tags[at - 2] in ("DT", "PRP$", "IN", "CD", "CC", "JJ") and after in (*NOUNS, "JJ", "VBN")
    if tags[at] == "VBG":  # with peeling paint; but: after eating pizza
        return words[at - 1 : at] == ["with"] and after in NOUNS
    thing = after in NOUNS or (after == "JJ" and later in NOUNS)  # an oven fired traditional pizza
    return before in ("", "IN", "CC", ",", "NN", "NNS", "VBN", "VBG") and thing


def _mostly_verb(word: str) -> bool:
    return often(lemma(word, "v"), "v") > 3 * often(lemma(word, "n"), "n")


def _rather_verb(word: str) -> bool:
    return _mostly_verb(word) and _topic(word) not in THINGS


def _rather_thing(word: str) -> bool:
    return often(lemma(word, "n"), "n") >= 3 * often(lemma(word, "v"), "v") and _topic(word) in THINGS


def _many(words: Sequence[str], tags: Sequence[str], at: int) -> bool:
    """Whether nothing but several things come before: "a man and a woman", "two sheep"."""
    last = words[at - 1].lower()
    same = inflected(last, "NNS") == last and not uncounted(last)
    phrase = all(tag in ("DT", "JJ", "NN", "NNS", "PRP$", "CD", "CC", "VBN") for tag in tags[:at])
    return phrase and (same or ("CC" in tags[:at] and "DT" in tags[1:at]))


def _first(tags: Sequence[str], at: int) -> bool:
    """Whether only the parts of one noun phrase in the singular come before."""
    return all(tag in ("DT", "JJ", "NN", "PRP$") for tag in tags[:at])


def _topic(word: str) -> int | None:
    """The lexicographers' file of the noun."""
    found = meaning(word, "n") or meaning(lemma(word, "n"), "n")
    return found.topic if found else None


def _one(words: Sequence[str], tags: Sequence[str], at: int) -> bool:
    """Whether the noun phrase before `at` begins as that of one thing, so that no plural can end it: "a wooden clock" + "ticks"."""
    for n in range(at - 1, -1, -1):
        if words[n].lower() in ("a", "an", "one", "another", "each", "every"):
            return True
        pair = tags[n] in ("CC", ",") and tags[n - 1 : n] == ["JJ"] and tags[n + 1] == "JJ"  # black and white
        if tags[n] not in ("NN", "JJ", "JJR", "VBN", "RB", "NNP") and not pair:
            return False
    return False
