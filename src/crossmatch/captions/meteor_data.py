"""The tables of METEOR 1.5, read where pycocoevalcap has brought them: no Java, and the package is never imported.

The program's archive is a zip with the function words, WordNet's synonyms and the abbreviations; the paraphrases (Denkowski and
Lavie's, from parallel texts) are a file of 272 MB, packed. Of those only hashes are kept, in the user's cache folder, so that they
are read once: 52 MB, of which a run touches little.
"""

from __future__ import annotations

import gzip
import os
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import IntArray
from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.core.files import DataFile, complaint, find
from crossmatch.core.places import data_folder
from crossmatch.core.whole import whole_file

HashArray = NDArray[np.uint64]

VERSION = "meteor-1.5"  # the name in signatures; the files are checked against the hashes below
EXTRA = "captions"
PROGRAM = DataFile(
    "meteor/meteor-1.5.jar",
    "1e57b4c72c0830ebe68558f1c799a624e96cbc1b6045c9f6330e26dcff6eafc2",
    6_318_693,
    package="pycocoevalcap/meteor/meteor-1.5.jar",
)
PARAPHRASES = DataFile(
    "meteor/paraphrase-en.gz",
    "c147ac7d2c91f2fbb3ad31e4b352235061eb83145e0434daf217ee9ca5975f48",
    61_813_011,
    package="pycocoevalcap/meteor/data/paraphrase-en.gz",
)
LONGEST = 7  # words of a phrase in the table
PIECE = 1 << 20  # bytes of the table that are hashed at a time


@dataclass(frozen=True, eq=False)
class Lexicon:
    """What METEOR knows about single words."""

    function_words: frozenset[str]
    abbreviations: Mapping[str, bool]  # keep their full stop: always, or before a number
    bases: Mapping[str, tuple[str, ...]]  # of irregular forms
    synsets: Mapping[str, str]  # numbers of the synsets of a word, as written


@dataclass(frozen=True, eq=False)
class Paraphrases:
    """Phrases and their paraphrases as hashes (`hashes`); those of a phrase stand together, in the order of the file."""

    phrases: HashArray  # ascending
    begin: IntArray  # of each phrase: its first paraphrase
    end: IntArray
    paraphrases: HashArray


@cache
def lexicon() -> Lexicon:
    """The tables inside the program's archive.

    >>> words = lexicon()
    >>> "the" in words.function_words, words.bases["mice"], words.abbreviations["vs"]
    (True, ('mouse',), True)
    """
    place = _place(PROGRAM)
    wrong = complaint(PROGRAM, place)
    if wrong:
        raise _damaged(place, wrong)
    with zipfile.ZipFile(place) as archive:
        lines = {name: archive.read(name).decode().split("\n") for name in _TABLES}
    functions, prefixes, irregular, synsets = lines.values()
    bases: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
    for base, forms in zip(irregular[::2], irregular[1::2], strict=False):
        for form in forms.split():
            bases[form] += (base,)
    marked = [line.split() for line in prefixes if line.strip() and not line.startswith("#")]
    return Lexicon(
        frozenset(functions) - {""},
        {words[0]: "#NUMERIC_ONLY#" not in words for words in marked},
        dict(bases),
        dict(zip(synsets[::2], synsets[1::2], strict=False)),
    )


_TABLES = ("function/english.words", "nonbreaking/english.prefixes", "synonym/english.exceptions", "synonym/english.synsets")

# WordNet's rules of detachment, tried in this order whatever the part of speech.
_DETACHED = (
    ("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man"), ("ies", "y"),
    ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", ""), ("er", ""), ("est", ""), ("er", "e"), ("est", "e"),
)  # fmt: skip


def synsets(word: str) -> set[int]:
    """The synsets of a word and of its base: an irregular form's bases, or else the first rule that gives a known word.

    >>> bool(synsets("sofa") & synsets("couches")), synsets("qwerty")
    (True, set())
    """
    words = lexicon()
    bases = words.bases.get(word)
    if bases is None:
        whole = word.endswith("ss") or len(word) < 3
        forms = (word[: -len(old)] + new for old, new in _DETACHED if word.endswith(old) and not whole)
        bases = tuple(next(([form] for form in forms if form in words.synsets), []))
    return {int(number) for form in (word, *bases) for number in words.synsets.get(form, "").split()}


@cache
def paraphrases() -> Paraphrases:
    """The table of paraphrases, from the cache or made anew. Where the cache cannot be written, it is made for every process."""
    packed = _place(PARAPHRASES)
    kept = cache_file()
    with suppress(OSError, ValueError, EOFError):  # not there, cut short or damaged
        return _unpacked(_sealed(np.load(kept, mmap_mode="r", allow_pickle=False)))
    whole = _compiled(packed)
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(kept) as file:
            np.save(file, np.append(whole, np.uint64(zlib.crc32(whole.data))))
    return _unpacked(whole)


def _sealed(kept: Any) -> HashArray:
    """An array without its last number, which must be the checksum of the others."""
    if not isinstance(kept, np.ndarray) or kept.dtype != np.uint64 or kept.ndim != 1 or len(kept) < 2:
        raise ValueError("not a table of paraphrases")
    if zlib.crc32(kept[:-1].data) != int(kept[-1]):
        raise ValueError("damaged")
    return kept[:-1]


def cache_file() -> Path:
    """Where the hashes of the paraphrases are kept."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return folder / "crossmatch" / "meteor" / f"paraphrases-{str(PARAPHRASES.sha256)[:8]}-2.npy"


def _place(file: DataFile) -> Path:
    place = find(file, data_folder())
    if place is None:
        raise MissingDependency("pycocoevalcap, whose METEOR files are read (Java is not needed)", EXTRA)
    if place.stat().st_size != file.size:
        raise _damaged(place, f"{place.stat().st_size:,} bytes, expected {file.size:,}")
    return place


def _damaged(place: Path, what: str) -> CrossmatchError:
    return CrossmatchError(
        f"{place} is not METEOR 1.5's: {what}. Install it again with: pip install --force-reinstall 'crossmatch[{EXTRA}]'"
    )


def _unpacked(whole: HashArray) -> Paraphrases:
    if whole.dtype != np.uint64 or whole.ndim != 1 or len(whole) < 1 or len(whole) < 1 + 3 * int(whole[0]):
        raise ValueError("not a table of paraphrases")
    n = int(whole[0])
    phrases, begin, end = (np.asarray(whole[1 + k * n : 1 + (k + 1) * n]) for k in range(3))
    return Paraphrases(phrases, begin.astype(np.int64), end.astype(np.int64), whole[1 + 3 * n :])


def _compiled(packed: Path) -> HashArray:
    """One array for all: the number of phrases, the phrases, where their paraphrases begin and end, and the paraphrases."""
    wrong = complaint(PARAPHRASES, packed)
    if wrong:
        raise _damaged(packed, wrong)
    pieces = list(_hashed_lines(packed))
    phrase, paraphrase = (np.concatenate([piece[side] for piece in pieces]) for side in (0, 1))
    begin = np.flatnonzero(np.concatenate([[True], phrase[1:] != phrase[:-1]]))  # the file is sorted by phrase
    end = np.append(begin[1:], len(phrase))
    order = np.argsort(phrase[begin])
    parts: list[NDArray[Any]] = [np.array([len(begin)]), phrase[begin][order], begin[order], end[order], paraphrase]
    return np.concatenate([part.astype(np.uint64) for part in parts])


def _hashed_lines(packed: Path) -> Iterator[tuple[HashArray, HashArray]]:
    """Hashes of phrases and paraphrases. The file has three lines for each: a probability, the phrase, the paraphrase."""
    power = _powers(2 * PIECE)
    inverse = _powers(2 * PIECE, pow(int(FACTOR), -1, 2**64))
    rest = b""
    with gzip.open(packed) as file:
        while piece := file.read(PIECE):
            text = rest + piece
            raw = np.frombuffer(text, dtype=np.uint8)
            end = np.flatnonzero(raw == ord("\n"))
            end = end[: len(end) // 3 * 3]
            if not len(end):
                rest = text
                continue
            begin = np.concatenate([[0], end[:-1] + 1])
            bounds = np.stack([begin, end], axis=1).reshape(-1, 6)[:, 2:]  # of the phrase and of its paraphrase
            found = np.add.reduceat(raw * power[: len(raw)], bounds.ravel())[::2].reshape(-1, 2) * inverse[bounds[:, ::2]]
            rest = text[end[-1] + 1 :]
            yield found[:, 0], found[:, 1]


# A text's hash is Σ byte k · factor^k in 64 bits: of all lines at once, and of a phrase from those of its words.
FACTOR = np.uint64(0xD1342543DE82EF95)


def _powers(size: int, factor: int = int(FACTOR)) -> HashArray:
    """1, f, f², … in 64 bits.

    >>> _powers(3, 5).tolist()
    [1, 5, 25]
    """
    factors = np.full(size, factor, dtype=np.uint64)
    factors[0] = 1
    return np.multiply.accumulate(factors)


def hashes(words: Iterable[str]) -> tuple[HashArray, HashArray]:
    """The hash of each word, and factor^(its length in bytes).

    >>> (dog, shift), (phrase, _) = hashes(["dog"]), hashes(["dog runs"])
    >>> bool(dog + shift * joined(hashes(["runs"])[0]) == phrase)
    True
    """
    raw = [word.encode() for word in words]
    lengths = np.array([len(word) for word in raw], dtype=np.int64)
    power = _powers(int(lengths.max(initial=0)) + 1)
    found = np.array([(np.frombuffer(word, dtype=np.uint8) * power[: len(word)]).sum() for word in raw], dtype=np.uint64)
    return found, power[lengths]


def joined(following: HashArray) -> HashArray:
    """What a word adds to the hash of the phrase before it, a space between them, before it is shifted to its place."""
    return np.uint64(ord(" ")) + FACTOR * following
