"""Embeddings cached by model and item: an image or a text that any benchmark has shown to a model is not embedded again.

An item is identified by a hash of its content, never by its name: of a file's bytes if images are files, else of the pixels and the
regions that an image carries; of a text's UTF-8. So all benchmarks share the cached embeddings. A block of the cache entry has the
hashes and vectors of one batch. Several processes may embed the same items at once; the vectors of either are valid.

Not cached are the embeddings of a model
- without a signature: those of a changed model could not be told from those of the old one;
- that is fitted to the texts of a collection (`fitted`): the same text has another vector in every collection;
- with `cached = False`: it is faster than the disk, or its signature does not show everything that its vectors depend on.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.models.cache.blocks import content_key, read_header
from crossmatch.models.cache.store import SUFFIX, Cache, CacheEntry, EntrySummary

KIND = "embeddings"
HASH_SIZE = 32  # bytes of an item's hash
OPEN_BLOCKS = 16  # blocks whose vectors stay in memory for the next batch

Row = NDArray[Any]


def text_key(text: str) -> bytes:
    """Return the hash of a text.

    >>> text_key("a cat").hex()[:12]
    'e9a5831bd677'
    """
    return hashlib.sha256(b"text\0" + text.encode(errors="surrogatepass")).digest()


def embedding_key(system: str) -> str:
    """Return the key of a model's cache entry."""
    return content_key(KIND, system)


@dataclass(eq=False)
class EmbeddingCache:
    """The cached vectors of one model. Threads may share it."""

    entry: CacheEntry
    _rows: dict[bytes, tuple[str, int]] | None = field(default=None, repr=False)  # block and row of each item
    _vectors: OrderedDict[str, NDArray[Any]] = field(default_factory=OrderedDict, repr=False)  # of the blocks used last
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @classmethod
    def open(cls, cache: Cache, system: str) -> EmbeddingCache:
        return cls(cache.entry(KIND, embedding_key(system), system))

    def get(self, keys: Iterable[bytes]) -> dict[bytes, Row]:
        """Return the vectors of those items that are cached and undamaged."""
        with self._guard:
            if self._rows is None:
                self._rows = {}
                for block in self.entry.blocks():
                    self._rows |= {item: (block, n) for n, item in enumerate(self._read_items(block)) if item not in self._rows}
            cached = {}
            for key in keys:
                if key in self._rows:
                    block, row = self._rows[key]
                    vectors = self._read_vectors(block)
                    if vectors is not None:
                        cached[key] = vectors[row]
            return cached

    def put(self, keys: Sequence[bytes], vectors: NDArray[Any]) -> None:
        """Write the vectors of these items, one row each, for caches that are opened later."""
        if not self.entry.is_locked:
            self.entry.lock(shared=True)
        items = b"".join(keys)
        name = hashlib.sha256(items).hexdigest()[:32]
        self.entry.write(name, {"items": np.frombuffer(items, np.uint8).reshape(-1, HASH_SIZE), "vectors": vectors})

    def close(self) -> None:
        self.entry.close()

    def _read_items(self, block: str) -> list[bytes]:
        """Return the hashes of the items of a block; a damaged block is discarded."""
        arrays = self.entry.read(block, only=("items",))
        if arrays is None or "items" not in arrays:
            self.entry.discard(block)
            return []
        items = arrays["items"].tobytes()
        return [items[start : start + HASH_SIZE] for start in range(0, len(items), HASH_SIZE)]

    def _read_vectors(self, block: str) -> NDArray[Any] | None:
        if block not in self._vectors:
            arrays = self.entry.read(block)
            if arrays is None:
                self.entry.discard(block)
                assert self._rows is not None
                self._rows = {key: row for key, row in self._rows.items() if row[0] != block}
                return None
            self._vectors[block] = arrays["vectors"]
            while len(self._vectors) > OPEN_BLOCKS:
                self._vectors.popitem(last=False)
        self._vectors.move_to_end(block)
        return self._vectors[block]


@contextmanager
def open_embeddings(cache: Cache | None, system: str | None) -> Iterator[EmbeddingCache | None]:
    """Open the cached embeddings of the model with this signature; None if they are not to be cached."""
    if cache is None or system is None:
        if cache is not None:
            cache.notify_unsigned(KIND)
        yield None
        return
    embeddings = EmbeddingCache.open(cache, system)
    try:
        yield embeddings
    finally:
        embeddings.close()


def count_items(summary: EntrySummary) -> int:
    """Count the items of an entry of embeddings; damaged blocks count 0."""
    count = 0
    for path in summary.folder.glob(f"*{SUFFIX}"):
        with path.open("rb") as file:
            header = read_header(file, summary.key, path.name.removesuffix(SUFFIX))
            count += header["items"][1][0] if header and "items" in header else 0
    return count
