"""Hard negatives that add: a thing that fits the scene, or a quality, that no caption of the image mentions."""

from __future__ import annotations

from collections.abc import Iterator

from crossmatch.build.negative_additions import fitting, may_be_there, qualities
from crossmatch.build.negative_contrasts import contrasts, near
from crossmatch.build.negative_kinds import NO_THING, Mentioned, kind_of
from crossmatch.build.negative_replace import PHOTOS, Option, suits, suits_word
from crossmatch.build.phrases import Phrase, Reading, listed
from crossmatch.language.tags import NOUNS
from crossmatch.language.words import article, is_word

NEARBY = ("next to {}", "near {}", "beside {}", "with {} nearby", "with {} in the background")
PLACED = listed("on in near by under at beside next")
DETERMINED = frozenset({"a", "an", "the", "two", "three", "four", "his", "her", ""})
MORE_COLOURS = listed("burgundy ivory khaki magenta mustard olive rust charcoal bronze copper")  # as nouns
ENDS = NOUNS | {"VBG", "VBN", "RB", "PRP", "RP"}


def add_object(reading: Reading, known: Mentioned) -> Iterator[Option]:
    """A thing that fits the scene and that no caption mentions stands beside what there is: "… next to a windmill"."""
    absent = [thing for thing in fitting(known.nouns.keys()) if known.absent(thing)]
    last = _last_word(reading)
    for thing in absent:
        named = f"{article(thing)} {thing}"
        if last is not None:
            for near_to in NEARBY:
                if not set(near_to.split()) & set(reading.words):
                    new = near_to.format(named)
                    yield Option(last, tuple(reading.appended(last, new)), "", new)
        if (first := _may_be_joined(reading)) is not None:
            yield Option(first.last, tuple(reading.appended(first.last, f"and {named}")), "", f"and {named}")


def _last_word(reading: Reading) -> int | None:
    """The last word, if a place may follow it."""
    at = max((n for n, word in enumerate(reading.words) if is_word(word)), default=-1)
    if at < 1 or reading.tags[at] not in ENDS or any(is_word(word) for word in reading.words[at + 1 :]):
        return None
    return at if "?" not in reading.words and len(reading.phrases) > 0 else None


def _may_be_joined(reading: Reading) -> Phrase | None:
    """The first phrase, if another may stand beside it: a thing with an article, then a place, and no verb that has to agree."""
    if reading.finite or not reading.phrases:
        return None
    first = reading.phrases[0]
    after = reading.words[first.last + 1 : first.last + 2]
    thing = kind_of(first.name) not in ("", "room", "building", "place", "person")
    alone = first.first == 0 and first.determiner in ("a", "an") and not first.owned
    return first if thing and alone and after and after[0] in PLACED else None


def add_attribute(reading: Reading, known: Mentioned) -> Iterator[Option]:
    """A thing gets a quality: one that excludes what another caption says of it, or else one that no caption tells of.

    "A man" whom another caption calls young becomes "an elderly man"; "a bus" of which nothing is said becomes "a purple bus".
    """
    for phrase in reading.phrases:
        if not _takes_a_quality(reading, phrase):
            continue
        opposed = list(_opposed(phrase, known))
        told = {adjective for noun, adjective in known.qualities if noun == phrase.name}
        rare = [new for new in qualities(kind_of(phrase.name)) if not near(new) & told and not may_be_there(new, known.words)]
        for new in opposed or rare:
            if not near(new) & known.words:
                yield Option(phrase.nouns, tuple(reading.inserted(phrase.nouns, new)), "", new)


def _takes_a_quality(reading: Reading, phrase: Phrase) -> bool:
    """Whether an adjective can stand before the nouns of a phrase: it has none yet, and is no name and no colour."""
    tags, first = reading.tags, phrase.first
    named = "NNP" in tags[phrase.nouns : phrase.last + 1] or phrase.name in NO_THING | PHOTOS or phrase.name in contrasts()
    coloured = bool(MORE_COLOURS & set(reading.words[phrase.nouns : phrase.last]))
    headless = phrase.determiner == "" and not phrase.many
    participle = (
        first > 1 and tags[first - 1] == "VBG" and tags[first - 2] == "IN" and phrase.determiner == ""
    )  # near moving trucks
    return phrase.determiner in DETERMINED and not (
        phrase.adjectives or phrase.owned or named or coloured or headless or participle
    )


def _opposed(phrase: Phrase, known: Mentioned) -> Iterator[str]:
    """Qualities that exclude what some caption says of the same thing; none where there may be several of it."""
    if phrase.many or known.nouns.get(phrase.name, False):
        return
    for noun, said in sorted(known.qualities):
        if noun == phrase.name:
            for kind, others in contrasts().get(said, ()):
                if suits(kind, noun):
                    yield from (new for new in others if suits_word(new, noun))
