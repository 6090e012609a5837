"""Embeddings kept on disk by model and item: an image or a text that any benchmark has shown to a model is never embedded again.

    FOLDER/embeddings/KEY/about.json          the model's signature, for people; KEY is a hash of it
    FOLDER/embeddings/KEY/9f0c….vectors       the vectors of some items, as they came from the model in one batch
    FOLDER/embeddings/KEY/lock                held, together with others, by processes that embed

An item is known by a hash of its content, never by its name: of a file's bytes where the pictures are files, else of the pixels and
the regions that a picture carries; of a text's UTF-8. So all benchmarks share what is there, whatever they call an item.

A file begins with one line of text that says whose vectors it holds and how many, with checksums of the items' hashes and of the
numbers. What does not fit to the last bit is said, removed and computed again. A file takes its name only after it has reached the
disk, so a killed process loses the batch that it was computing and no other. Two processes may embed the same items at once: each
writes whole files, and either's vectors will do.

Kept is what is slow and known for sure. Not kept are the vectors of a model
- without a signature: under a mere name, those of a changed model would be taken for those of the old one;
- that is fitted to the texts of a collection first (`fitted`): the same text has another vector in every collection;
- that says `cached = False`: it is faster than the disk, or its signature does not show all that its vectors depend on.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch import __version__
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.whole import UNFINISHED, whole_file
from crossmatch.models.cache import ScoreCache
from crossmatch.models.shelf import locked, remove, share

FORMAT = 1  # counts up when a file is written in another way, or when a picture is decoded in another way
PLACE, SUFFIX = "embeddings", ".vectors"
DTYPES = {dtype.str: dtype for dtype in map(np.dtype, ("<f2", "<f4", "<f8"))}
HASH = 32  # bytes of an item's hash
AT_ONCE = 16  # files whose vectors stay in memory for the next batch
LONGEST_HEAD = 1000

Row = NDArray[Any]


def text_key(text: str) -> bytes:
    """The hash of a text.

    >>> text_key("a cat").hex()[:12]
    'e9a5831bd677'
    """
    return hashlib.sha256(b"text\0" + text.encode(errors="surrogatepass")).digest()


def key_of(system: str) -> str:
    """The name of a model's folder."""
    return hashlib.sha256(json.dumps(["crossmatch embeddings", FORMAT, system]).encode()).hexdigest()[:32]


def packed(keys: Sequence[bytes], vectors: NDArray[Any], key: str) -> bytes:
    """Some items and their vectors as the bytes of a file: one line of text, the hashes of the items, the numbers.

    >>> packed([b"." * 32], np.zeros((1, 2), "<f4"), "9f0c").partition(b"\\n")[0][:48]
    b'crossmatch embeddings 1 9f0c 1 x 2 <f4 items:...'
    """
    items, numbers = b"".join(keys), vectors.tobytes()
    begin = f"crossmatch embeddings {FORMAT} {key} {len(keys)} x {vectors.shape[1]} {vectors.dtype.str}"
    checks = (hashlib.sha256(begin.encode() + part).hexdigest() for part in (items, numbers))
    return "{} items:{} numbers:{}\n".format(begin, *checks).encode() + items + numbers


@dataclass(frozen=True)
class Head:
    """What the first line of a file says."""

    begin: str
    items: int
    dimensions: int
    dtype: np.dtype[Any]
    checks: tuple[str, str]  # of the items' hashes and of the numbers

    @classmethod
    def of(cls, line: bytes, key: str) -> Head | None:
        """Nothing where the line is damaged, or of another model."""
        try:
            begin, items, numbers = line.decode("ascii").removesuffix("\n").rsplit(" ", 2)
            *who, number, by, dimensions, dtype = begin.split(" ")
            found = cls(begin, int(number), int(dimensions), DTYPES[dtype], (items[6:], numbers[8:]))
        except (ValueError, KeyError):
            return None
        same = who == ["crossmatch", "embeddings", str(FORMAT), key] and by == "x" and found.items > 0 < found.dimensions
        return found if same and line == f"{begin} items:{items[6:]} numbers:{numbers[8:]}\n".encode() else None

    @property
    def size(self) -> int:
        """Bytes of the numbers."""
        return self.items * self.dimensions * self.dtype.itemsize

    def fits(self, which: int, part: bytes) -> bool:
        return hashlib.sha256(self.begin.encode() + part).hexdigest() == self.checks[which]


@dataclass(eq=False)
class EmbeddingShelf:
    """The vectors of one model: `find` those that are there, `keep` those that had to be computed. Threads may share it."""

    folder: Path
    system: str
    tell: Callable[[str], object]
    _where: dict[bytes, tuple[Path, int]] | None = field(default=None, repr=False)
    _open: OrderedDict[Path, NDArray[Any]] = field(default_factory=OrderedDict, repr=False)
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _lock: int | None = None  # the open lock, once something is kept

    @property
    def key(self) -> str:
        return self.folder.name

    def find(self, keys: Iterable[bytes]) -> dict[bytes, Row]:
        """The vectors of those items that are there, undamaged."""
        with self._guard:
            if self._where is None:
                self._where = {}
                for path in sorted(self.folder.glob(f"*{SUFFIX}")):
                    self._where |= {item: (path, n) for n, item in enumerate(self._items(path)) if item not in self._where}
            found = {}
            for key in keys:
                at = self._where.get(key)
                vectors = self._vectors(at[0]) if at else None
                if at and vectors is not None:
                    found[key] = vectors[at[1]]
            return found

    def keep(self, keys: Sequence[bytes], vectors: NDArray[Any]) -> None:
        """Write the vectors of these items, one row each, for shelves that are opened later."""
        name = hashlib.sha256(b"".join(keys)).hexdigest()[:32]
        with self._writing():
            if self._lock is None:
                self._begin()
            with whole_file(self.folder / f"{name}{SUFFIX}", durable=True) as file:
                file.write(packed(keys, vectors, self.key))

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _items(self, path: Path) -> list[bytes]:
        """The hashes of the items in a file, or none where it is damaged."""
        try:
            with path.open("rb") as file:
                line = file.readline(LONGEST_HEAD)
                head = Head.of(line, self.key)
                items = file.read(head.items * HASH) if head else b""
                whole = head is not None and os.fstat(file.fileno()).st_size == len(line) + head.items * HASH + head.size
        except OSError:  # gone meanwhile, or unreadable, which is as good as absent
            return []
        if head is None or not whole or not head.fits(0, items):
            self._discard(path)
            return []
        return [items[at : at + HASH] for at in range(0, len(items), HASH)]

    def _vectors(self, path: Path) -> NDArray[Any] | None:
        if path not in self._open:
            vectors = self._read(path)
            if vectors is None:
                self._discard(path)
                assert self._where is not None
                self._where = {key: at for key, at in self._where.items() if at[0] != path}
                return None
            self._open[path] = vectors
            while len(self._open) > AT_ONCE:
                self._open.popitem(last=False)
        self._open.move_to_end(path)
        return self._open[path]

    def _read(self, path: Path) -> NDArray[Any] | None:
        try:
            with path.open("rb") as file:
                head = Head.of(file.readline(LONGEST_HEAD), self.key)
                items = file.read(head.items * HASH) if head else b""
                numbers = file.read(head.size + 1) if head else b""
        except OSError:
            return None
        if head is None or len(numbers) != head.size or not head.fits(0, items) or not head.fits(1, numbers):
            return None
        return np.frombuffer(numbers, head.dtype).reshape(head.items, head.dimensions)

    def _discard(self, path: Path) -> None:
        if path.exists():  # else somebody has cleared the folder meanwhile
            self.tell(f"{path} is damaged or of another origin; its items are embedded anew")
        with suppress(OSError):
            path.unlink()

    def _begin(self) -> None:
        """Make the folder, share the lock, and, where nobody else embeds, sweep up after killed processes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        alone = locked(self._lock)
        for left in self.folder.glob(f".*{UNFINISHED}") if alone else ():
            left.unlink(missing_ok=True)
        if alone is not None:
            share(self._lock)
        about = {"format": FORMAT, "version": __version__, "key": self.key, "system": self.system}
        with whole_file(self.folder / "about.json", durable=True) as file:
            file.write((json.dumps(about, indent=1) + "\n").encode())

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CrossmatchError(
                f"embeddings cannot be kept in {self.folder} ({error.strerror or error}). Those that are there stay valid. Make "
                "room, or name another folder with --cache DIR, or do without: --no-cache."
            ) from None


@contextmanager
def kept_embeddings(cache: ScoreCache | None, system: str | None) -> Iterator[EmbeddingShelf | None]:
    """The shelf for a model's vectors, or nothing where they are not to be kept."""
    if cache is None or system is None:
        if cache is not None:
            cache.tell(
                "embeddings are not kept: the model has no signature to know it by. Give it one that changes with its weights: "
                'signature = "mine-1"'
            )
        yield None
        return
    shelf = EmbeddingShelf(cache.folder / PLACE / key_of(system), system, cache.tell)
    try:
        yield shelf
    finally:
        shelf.close()


@dataclass(frozen=True)
class HeldEmbeddings:
    """The vectors of one model."""

    folder: Path
    system: str
    items: int
    bytes: int


def held_embeddings(folder: Path) -> list[HeldEmbeddings]:
    """What a cache folder holds, by the model's signature. Folders of other origin are left out."""
    found = []
    for path in folder.glob(f"{PLACE}/*/about.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            about = json.loads(path.read_text(encoding="utf-8"))
            if about["key"] == path.parent.name:
                files = list(path.parent.glob(f"*{SUFFIX}"))
                heads = [Head.of(_first_line(file), about["key"]) for file in files]
                items, size = sum(head.items for head in heads if head), sum(file.stat().st_size for file in files)
                found.append(HeldEmbeddings(path.parent, str(about["system"]), items, size))
    return sorted(found, key=lambda h: (h.system, h.folder.name))


def clear_embeddings(folder: Path, system: str | None = None) -> list[HeldEmbeddings]:
    """Remove the vectors of one model or of all; gives what was removed. Nothing else is touched."""
    gone = [h for h in held_embeddings(folder) if system in (None, h.system)]
    for h in gone:
        remove(h.folder)
    return gone


def _first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline(LONGEST_HEAD)
