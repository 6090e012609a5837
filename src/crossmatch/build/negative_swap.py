"""Hard negatives that swap: two things, or what two things are like."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from crossmatch.build.negative_contrasts import NUMBERS, contrasts, near
from crossmatch.build.negative_kinds import NO_THING, THINGS, Mentioned, animate, kind_of
from crossmatch.build.negative_objects import aliases
from crossmatch.build.negative_replace import PHOTOS, SHADES, Option, related, suits
from crossmatch.build.phrases import Phrase, Reading, listed
from crossmatch.language.forms import inflected, lemma, uncounted
from crossmatch.language.tags import VERBS, describes
from crossmatch.language.words import Edit, article, capitalised, loud, uncapitalised

# Relations that do not hold the other way round.
ONE_WAY = listed("on in under behind above below over inside beneath atop underneath onto into")
SIDED = ("on top of", "in front of", "on the back of", "outside of", "inside of")
DONE_TO = listed(
    """
    approach bite brush carry catch chase contain cut drive eat face feed follow herd hit hold hug kiss lead lick overlook pet
    photograph pull push ride sniff support throw tow walk wash watch
    """
)
FIXED = frozenset({"track", "train station", "station", "platform", "wall", "floor", "sink", "stove", "ceiling", "window", "door"})
PUT = listed("place park seat perch mount set stack display attach install hang position sit stand lay lie lean be")
TOGETHER = frozenset({"together", "each", "other", "both", "between", "among", "another"})  # what takes several
JOINS = frozenset({",", "and", "or", "while", "as", "that", "which", "who", "with", "of", "than", "both", "for"})
SWAPPED = ("colour", "size", "tallness", "age", "material", "pattern", "fullness", "newness")


# -- things


def swap_object(reading: Reading, known: Mentioned) -> Iterator[Option]:
    """Two things change places in a relation that does not hold the other way round: "a dog chasing a cat" becomes its reverse."""
    if any(tag in ("PRP", "PRP$") for tag in reading.tags):
        return
    for one, other in pairwise(_extended(reading)):
        first, second = one[0], other[0]
        before = first.first - 1
        if before >= 0 and (reading.words[before] in ("of", "and", "or", ",") or reading.tags[before] in VERBS):
            continue
        if not _exchangeable(reading, first, second) or not _one_way(reading, one[1], second.first):
            continue
        spans = (first.first, one[1]), (second.first, other[1])
        said = [reading.said(*span) for span in spans]
        edits = [_moved(reading, spans[0], said[1]), _moved(reading, spans[1], said[0], spans[0][0] == 0)]
        yield Option(first.first, tuple(edits), " … ".join(said), " … ".join(reversed(said)))


def _extended(reading: Reading) -> list[tuple[Phrase, int]]:
    """The phrases, each with the place where it ends: "a bowl of fruit" is one."""
    found: list[tuple[Phrase, int]] = []
    for phrase in reading.phrases:
        if found and reading.words[found[-1][1] + 1 : phrase.first] == ["of"]:
            found[-1] = found[-1][0], phrase.last
        else:
            found.append((phrase, phrase.last))
    return found


def _exchangeable(reading: Reading, one: Phrase, other: Phrase) -> bool:
    """Whether either may stand in the other's place: both living, or both things; and no verb has to agree with another number."""
    if any(phrase.owned or phrase.name in NO_THING or phrase.determiner in NO_THING for phrase in (one, other)):
        return False
    if related(one.name, other.name) or (reading.finite and one.many != other.many):
        return False
    if any(FIXED & aliases(phrase.name) for phrase in (one, other)):
        return False
    living = [animate(phrase.name) for phrase in (one, other)]
    things = [kind_of(phrase.name) in THINGS - {"clothing"} for phrase in (one, other)]
    bare = [phrase.determiner == "" and not phrase.many and not uncounted(phrase.name) for phrase in (one, other)]
    return (all(living) or all(things)) and bare[0] == bare[1]


def _one_way(reading: Reading, end: int, start: int) -> bool:
    """Whether what stands between two phrases is a relation that does not hold the other way round."""
    between = reading.words[end + 1 : start]
    if not between or JOINS & set(between) - ({"of"} if any(side in " ".join(between) for side in SIDED) else set()):
        return False
    states = [lemma(word, "v") for word, tag in zip(between, reading.tags[end + 1 : start], strict=True) if tag in ("VBN", "VBD")]
    if any(verb not in PUT for verb in states):
        return False
    if " ".join(between).endswith(SIDED):
        return True
    at = start - 1
    if reading.tags[at] in VERBS:
        return lemma(reading.words[at], "v") in DONE_TO and not describes(reading.words, reading.tags, at)
    return between[-1] in ONE_WAY


def _moved(reading: Reading, span: tuple[int, int], new: str, from_start: bool = False) -> Edit:
    """A span with other words of the caption in it, and the capital of a sentence's start where it belongs."""
    start, end = reading.found[span[0]].start, reading.found[span[1]].end
    if not loud(reading.text):
        first, _, rest = new.partition(" ")
        plain = uncapitalised(first) if from_start else first
        new = f"{capitalised(plain) if span[0] == 0 and reading.text[start].isupper() else plain} {rest}".rstrip()
    return Edit(start, end, new)


# -- qualities


def swap_attribute(reading: Reading, known: Mentioned) -> Iterator[Option]:
    """Two things exchange qualities of one kind, or their numbers: "a red bus near a blue car", "a blue bus near a red car"."""
    phrases = [phrase for phrase in reading.phrases if not phrase.owned and phrase.name not in NO_THING | PHOTOS]
    for n, one in enumerate(phrases):
        for other in phrases[n + 1 :]:
            if related(one.name, other.name):
                continue
            for at, kind in _qualities(reading, one):
                for there, same in _qualities(reading, other):
                    if kind == same and _exchange(reading, known, (one, at), (other, there), kind):
                        words = reading.words[at], reading.words[there]
                        edits = (*reading.put(at, at, words[1]), *reading.put(there, there, words[0]))
                        yield Option(at, edits, " … ".join(words), " … ".join(reversed(words)))
            yield from _numbers(reading, one, other)


def _qualities(reading: Reading, phrase: Phrase) -> list[tuple[int, str]]:
    """Where a phrase has a quality, and of which kind; none of a kind of which it has two, or none that stands alone."""
    found = [
        (at, kind)
        for at in phrase.adjectives
        for kind, _ in contrasts().get(reading.words[at], ())
        if kind in SWAPPED and reading.tags[at] == "JJ" and not SHADES & set(reading.words[max(0, at - 1) : at])
    ]
    kinds = [kind for _, kind in found]
    return [(at, kind) for at, kind in found if kinds.count(kind) == 1]


def _exchange(reading: Reading, known: Mentioned, one: tuple[Phrase, int], other: tuple[Phrase, int], kind: str) -> bool:
    words = reading.words[one[1]], reading.words[other[1]]
    if words[1] in near(words[0]) or words[0] in near(words[1]) or words[0] == words[1]:
        return False
    if not (suits(kind, one[0].name) and suits(kind, other[0].name)):
        return False
    said = known.qualities
    return not any((one[0].name, word) in said for word in near(words[1])) and not any(
        (other[0].name, word) in said for word in near(words[0])
    )


def _numbers(reading: Reading, one: Phrase, other: Phrase) -> Iterator[Option]:
    """Numbers of two things change places: "a woman with two dogs", "two women with a dog"."""
    if reading.finite or any(tag in ("PRP", "PRP$") for tag in reading.tags) or TOGETHER & set(reading.words):
        return
    said = [_number(reading, phrase) for phrase in (one, other)]
    if not all(said) or said[0] == said[1] or "a" not in said or set(said) == {"a"}:
        return
    edits: list[Edit] = []
    for phrase, number in ((one, said[1]), (other, said[0])):
        noun = inflected(lemma(reading.words[phrase.last], "n"), "NN" if number == "a" else "NNS")
        tail = " ".join([*(token.text for token in reading.found[phrase.first + 1 : phrase.last]), noun])
        det = article(tail) if number == "a" else number
        edits.append(_moved(reading, (phrase.first, phrase.last), f"{det} {tail}"))
    yield Option(one.first, tuple(edits), " … ".join(said), " … ".join(reversed(said)))


def _number(reading: Reading, phrase: Phrase) -> str:
    """`a`, a number in words, or nothing."""
    word, tag = reading.words[phrase.first], reading.tags[phrase.last]
    if not kind_of(phrase.name) or uncounted(phrase.name):
        return ""
    if word in ("a", "an") and tag == "NN" and phrase.determiner in ("a", "an"):
        return "a"
    return word if word in NUMBERS and tag == "NNS" and phrase.determiner == word else ""
