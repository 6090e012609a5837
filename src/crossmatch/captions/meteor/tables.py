"""The tables of METEOR 1.5, read from the files that pycocoevalcap installs; Java is not needed.

The program's archive is a zip with the function words, WordNet's synonyms and the abbreviations. The paraphrases of Denkowski and
Lavie are a compressed file of 272 MB. Only their hashes (52 MB) are saved in the user's cache folder, so the file is read once.
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

from crossmatch.data.arrays import IntArray
from crossmatch.data.errors import CrossmatchError, MissingDependencyError
from crossmatch.data.io.atomic_write import atomic_write
from crossmatch.data.io.dataset_files import DataFile, describe_mismatch, find_file
from crossmatch.data.io.paths import data_folder

HashArray = NDArray[np.uint64]

VERSION = "meteor-1.5"  # the name in signatures; the files are checked against the hashes below
EXTRA = "captions"
PROGRAM_FILE = DataFile(
    "meteor/meteor-1.5.jar",
    "1e57b4c72c0830ebe68558f1c799a624e96cbc1b6045c9f6330e26dcff6eafc2",
    6_318_693,
    package_path="pycocoevalcap/meteor/meteor-1.5.jar",
)
PARAPHRASE_FILE = DataFile(
    "meteor/paraphrase-en.gz",
    "c147ac7d2c91f2fbb3ad31e4b352235061eb83145e0434daf217ee9ca5975f48",
    61_813_011,
    package_path="pycocoevalcap/meteor/data/paraphrase-en.gz",
)
MAX_PHRASE_WORDS = 7  # of a phrase in the table
PIECE_BYTES = 1 << 20  # of the table, hashed at a time


@dataclass(frozen=True, eq=False)
class MeteorLexicon:
    """METEOR's data about single words."""

    function_words: frozenset[str]
    abbreviations: Mapping[str, bool]  # True: always keeps its full stop; False: only before a number
    bases: Mapping[str, tuple[str, ...]]  # of irregular forms
    synsets: Mapping[str, str]  # synset numbers of each word, separated by spaces


@dataclass(frozen=True, eq=False)
class ParaphraseTable:
    """Hashes of phrases and their paraphrases; the paraphrases of a phrase are adjacent, in the order of the file."""

    phrases: HashArray  # ascending
    starts: IntArray  # of each phrase: its first paraphrase
    ends: IntArray  # of each phrase: the end of its paraphrases
    paraphrases: HashArray


@cache
def load_lexicon() -> MeteorLexicon:
    """Load the tables in the program's archive.

    >>> lexicon = load_lexicon()
    >>> "the" in lexicon.function_words, lexicon.bases["mice"], lexicon.abbreviations["vs"]
    (True, ('mouse',), True)
    """
    path = _locate(PROGRAM_FILE)
    mismatch = describe_mismatch(PROGRAM_FILE, path)
    if mismatch:
        raise _damaged(path, mismatch)
    with zipfile.ZipFile(path) as archive:
        lines = {name: archive.read(name).decode().split("\n") for name in _TABLES}
    function_words, prefixes, irregular, synsets = lines.values()
    bases: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
    for base, forms in zip(irregular[::2], irregular[1::2], strict=False):
        for form in forms.split():
            bases[form] += (base,)
    abbreviations = [line.split() for line in prefixes if line.strip() and not line.startswith("#")]
    return MeteorLexicon(
        frozenset(function_words) - {""},
        {words[0]: "#NUMERIC_ONLY#" not in words for words in abbreviations},
        dict(bases),
        dict(zip(synsets[::2], synsets[1::2], strict=False)),
    )


_TABLES = ("function/english.words", "nonbreaking/english.prefixes", "synonym/english.exceptions", "synonym/english.synsets")

# WordNet's detachment rules, tried in this order for every part of speech.
_DETACHMENT_RULES = (
    ("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man"), ("ies", "y"),
    ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", ""), ("er", ""), ("est", ""), ("er", "e"), ("est", "e"),
)  # fmt: skip


def word_synsets(word: str) -> set[int]:
    """The synsets of a word and of its base forms: those of an irregular form, or the first one that a rule finds.

    >>> bool(word_synsets("sofa") & word_synsets("couches")), word_synsets("qwerty")
    (True, set())
    """
    lexicon = load_lexicon()
    bases = lexicon.bases.get(word)
    if bases is None:
        is_base = word.endswith("ss") or len(word) < 3
        forms = (word[: -len(old)] + new for old, new in _DETACHMENT_RULES if word.endswith(old) and not is_base)
        bases = tuple(next(([form] for form in forms if form in lexicon.synsets), []))
    return {int(number) for form in (word, *bases) for number in lexicon.synsets.get(form, "").split()}


@cache
def load_paraphrases() -> ParaphraseTable:
    """Load the table of paraphrases from the cache, or create it. Without a writable cache, every process creates it."""
    source = _locate(PARAPHRASE_FILE)
    cached = paraphrase_cache_path()
    with suppress(OSError, ValueError, EOFError):  # missing, truncated or damaged
        return _unpack(_verify_checksum(np.load(cached, mmap_mode="r", allow_pickle=False)))
    packed = _hash_table(source)
    with suppress(OSError):
        cached.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(cached) as file:
            np.save(file, np.append(packed, np.uint64(zlib.crc32(packed.data))))
    return _unpack(packed)


def _verify_checksum(array: Any) -> HashArray:
    """The array without its last number, which is the checksum of the others."""
    if not isinstance(array, np.ndarray) or array.dtype != np.uint64 or array.ndim != 1 or len(array) < 2:
        raise ValueError("not a table of paraphrases")
    if zlib.crc32(array[:-1].data) != int(array[-1]):
        raise ValueError("damaged")
    return array[:-1]


def paraphrase_cache_path() -> Path:
    """The file in the user's cache folder with the hashes of the paraphrases."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return folder / "crossmatch" / "meteor" / f"paraphrases-{str(PARAPHRASE_FILE.sha256)[:8]}-2.npy"


def _locate(file: DataFile) -> Path:
    path = find_file(file, data_folder())
    if path is None:
        raise MissingDependencyError("pycocoevalcap (for its METEOR files; Java is not needed)", EXTRA)
    if path.stat().st_size != file.size:
        raise _damaged(path, f"{path.stat().st_size:,} bytes, expected {file.size:,}")
    return path


def _damaged(path: Path, reason: str) -> CrossmatchError:
    return CrossmatchError(
        f"{path} is not the file of METEOR 1.5: {reason}. Reinstall it with: pip install --force-reinstall 'crossmatch[{EXTRA}]'"
    )


def _unpack(packed: HashArray) -> ParaphraseTable:
    if packed.dtype != np.uint64 or packed.ndim != 1 or len(packed) < 1 or len(packed) < 1 + 3 * int(packed[0]):
        raise ValueError("not a table of paraphrases")
    n = int(packed[0])
    phrases, starts, ends = (np.asarray(packed[1 + k * n : 1 + (k + 1) * n]) for k in range(3))
    return ParaphraseTable(phrases, starts.astype(np.int64), ends.astype(np.int64), packed[1 + 3 * n :])


def _hash_table(path: Path) -> HashArray:
    """The table in one array: the number of phrases, the phrases, the starts and ends of their paraphrases, the paraphrases."""
    mismatch = describe_mismatch(PARAPHRASE_FILE, path)
    if mismatch:
        raise _damaged(path, mismatch)
    pieces = list(_hash_lines(path))
    phrase, paraphrase = (np.concatenate([piece[side] for piece in pieces]) for side in (0, 1))
    starts = np.flatnonzero(np.concatenate([[True], phrase[1:] != phrase[:-1]]))  # the file is sorted by phrase
    ends = np.append(starts[1:], len(phrase))
    order = np.argsort(phrase[starts])
    parts: list[NDArray[Any]] = [np.array([len(starts)]), phrase[starts][order], starts[order], ends[order], paraphrase]
    return np.concatenate([part.astype(np.uint64) for part in parts])


def _hash_lines(path: Path) -> Iterator[tuple[HashArray, HashArray]]:
    """Hashes of phrases and paraphrases. An entry of the file has three lines: probability, phrase, paraphrase."""
    power = _powers(2 * PIECE_BYTES)
    inverse = _powers(2 * PIECE_BYTES, pow(int(HASH_FACTOR), -1, 2**64))
    rest = b""
    with gzip.open(path) as file:
        while piece := file.read(PIECE_BYTES):
            text = rest + piece
            raw = np.frombuffer(text, dtype=np.uint8)
            end = np.flatnonzero(raw == ord("\n"))
            end = end[: len(end) // 3 * 3]
            if not len(end):
                rest = text
                continue
            begin = np.concatenate([[0], end[:-1] + 1])
            bounds = np.stack([begin, end], axis=1).reshape(-1, 6)[:, 2:]  # of the phrase and of its paraphrase
            sums = np.add.reduceat(raw * power[: len(raw)], bounds.ravel())[::2].reshape(-1, 2)
            hashes = sums * inverse[bounds[:, ::2]]
            rest = text[end[-1] + 1 :]
            yield hashes[:, 0], hashes[:, 1]


# The hash of a text is Σ_k byte_k · factor^k in 64 bits. It can be computed for all lines at once, and for a phrase from its words.
HASH_FACTOR = np.uint64(0xD1342543DE82EF95)


def _powers(size: int, factor: int = int(HASH_FACTOR)) -> HashArray:
    """1, f, f², … in 64 bits.

    >>> _powers(3, 5).tolist()
    [1, 5, 25]
    """
    factors = np.full(size, factor, dtype=np.uint64)
    factors[0] = 1
    return np.multiply.accumulate(factors)


def hash_words(words: Iterable[str]) -> tuple[HashArray, HashArray]:
    """The hash of each word, and factor^n where n is its length in bytes.

    >>> (dog, shift), (phrase, _) = hash_words(["dog"]), hash_words(["dog runs"])
    >>> bool(dog + shift * hash_following(hash_words(["runs"])[0]) == phrase)
    True
    """
    raw = [word.encode() for word in words]
    lengths = np.array([len(word) for word in raw], dtype=np.int64)
    power = _powers(int(lengths.max(initial=0)) + 1)
    hashes = np.array([(np.frombuffer(word, dtype=np.uint8) * power[: len(word)]).sum() for word in raw], dtype=np.uint64)
    return hashes, power[lengths]


def hash_following(following: HashArray) -> HashArray:
    """What a space and a following word add to the hash of a phrase, before the shift to their position."""
    return np.uint64(ord(" ")) + HASH_FACTOR * following
