"""Items to remove from a benchmark: meaningless captions, wrong captions, and duplicate pictures.

The authors of ECCV Caption removed 18 meaningless captions, 14 wrong ones and a picture that also occurs in the training set
(chun2022eccv, sec. 3.3 and app. C.1). Meaningless captions and duplicate pictures are detected here. Wrong captions are listed by
people; `merge` writes the suspects, which are links that people or ratings called wrong.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from crossmatch.benchmarks.formats.csv_tables import decode_text
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.progress import track

PICTURE = r"(?:image|picture|photo|photograph)s?"
SEE = r"(?:see|view|load)"
# What annotators write if no picture was shown. These patterns match all 18 meaningless captions of chun2022eccv, app. C.1, and
# none of the other 24,982 captions of that split.
MEANINGLESS = (
    rf"\bthere (?:is|are|was) no {PICTURE}\b",
    rf"\b(?:un|not )able to {SEE}\b.*\b{PICTURE}\b",
    rf"\b(?:can ?not|can'?t|could ?not|couldn'?t) (?:really )?{SEE} (?:this|the|an|any) {PICTURE}\b",
    rf"\b(?:{PICTURE}|first one) (?:is|are|a) (?:a )?(?:blank|missing|broken|not (?:shown|showing|loading|available|visible))\b",
    rf"\bblank {PICTURE}\b",
    rf"\bno {PICTURE} (?:available|shown|provided|displayed|here)\b",
    r"^\W*$",
)
_MEANINGLESS = re.compile("|".join(MEANINGLESS), re.IGNORECASE)


def is_meaningless(caption: str) -> bool:
    """Whether a caption says that there is nothing to describe, by the patterns `MEANINGLESS`.

    >>> is_meaningless("I am unable to see an image above."), is_meaningless("A dog that is unable to see the ball.")
    (True, False)
    """
    return _MEANINGLESS.search(caption) is not None


@dataclass(frozen=True)
class RemovedItems:
    """Removed captions and images with the reason, by id. `twins` maps a duplicate picture to the one that stays."""

    captions: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    twins: Mapping[str, str] = field(default_factory=dict)

    def rows(self) -> list[tuple[str, str, str]]:
        """Kind, id and reason of every removed item."""
        twins = {name: f"the same picture as {original}" for name, original in self.twins.items()}
        return [
            (kind, name, reason)
            for kind, reasons in (("caption", self.captions), ("image", {**twins, **self.images}))
            for name, reason in sorted(reasons.items())
        ]


def find_removals(
    collection: Collection,
    *,
    invalid: Iterable[str] = (),
    wrong: Iterable[str] = (),
    images: Iterable[str] = (),
    find: bool = True,
    against: Collection | None = None,
) -> RemovedItems:
    """Determine the items to remove: the listed ids, pictures of the collection `against`, and what is detected with `find`.

    Pictures are equal if their files are equal, or, without files, their pixels. Of duplicates the first by id stays.
    """
    captions = dict.fromkeys(_check_ids(collection, "caption", wrong), "wrong")
    captions |= dict.fromkeys(_check_ids(collection, "caption", invalid), "invalid")
    removed_images = dict.fromkeys(_check_ids(collection, "image", images), "listed")
    if find:
        texts = zip(collection.caption_ids.tolist(), collection.captions, strict=False)
        captions |= {name: "meaningless" for name, text in texts if name not in captions and is_meaningless(text)}
    if against is None and (not find or collection.open_image is None):
        return RemovedItems(captions, removed_images)
    hashes = picture_hashes(collection, [name for name in sorted(collection.image_ids.tolist()) if name not in removed_images])
    if against is not None:
        elsewhere = set(picture_hashes(against, against.image_ids.tolist()).values())
        removed_images |= {name: "a picture of the other collection" for name, digest in hashes.items() if digest in elsewhere}
    first: dict[bytes, str] = {}
    twins = {}
    for name, digest in hashes.items() if find else ():
        if name not in removed_images and first.setdefault(digest, name) != name:
            twins[name] = first[digest]
    return RemovedItems(captions, removed_images, twins)


def picture_hashes(collection: Collection, names: Sequence[str]) -> dict[str, bytes]:
    """Hash of each picture's file, or of its pixels if there is no file."""
    opener = collection.open_image
    if opener is None:
        raise CrossmatchError("A collection has no pictures to compare. Add them to its folder, or use --as-is.")
    content: Callable[[str], bytes] = getattr(opener, "content", None) or (lambda name: _pixel_hash(collection, name))
    return {name: content(name) for name in track(names, "comparing pictures")}


def _pixel_hash(collection: Collection, name: str) -> bytes:
    assert collection.open_image is not None
    pixels = np.asarray(collection.open_image(name).convert("RGB"))
    return hashlib.sha256(str(pixels.shape).encode() + pixels.tobytes()).digest()


def _check_ids(collection: Collection, side: str, ids: Iterable[str]) -> list[str]:
    valid, listed = set(collection.ids(side).tolist()), list(ids)
    unknown = next((name for name in listed if name not in valid), None)
    if unknown is not None:
        close = get_close_matches(unknown, valid, n=1, cutoff=0.7)
        hint = f"Did you mean {close[0]!r}?" if close else f"An id looks like {next(iter(sorted(valid)), '')!r}."
        raise CrossmatchError(f"Cannot remove {side} {unknown!r:.60}: it is not in the collection. {hint}")
    return listed


def read_ids(path: Path) -> list[str]:
    """Read ids from a text file, one per line; text after a tab or after `# ` is a comment."""
    if not path.is_file():
        raise UsageError(f"{path} does not exist. Check the path.")
    lines = decode_text(path.read_bytes(), str(path)).splitlines()
    ids = (re.split(r"\t|(?:^|\s)#\s", line, maxsplit=1)[0].strip() for line in lines)
    return list(dict.fromkeys(name for name in ids if name))


def remove_items(collection: Collection, removed: RemovedItems) -> Collection:
    """The collection without removed items and without captions that have no image left.

    Links of a duplicate picture go to the picture that stays.
    """
    position = {name: n for n, name in enumerate(collection.image_ids.tolist())}
    replacement = np.arange(collection.shape[0])
    for twin, original in removed.twins.items():
        replacement[position[twin]] = position[original]
    links = np.unique(np.stack([replacement[collection.links[:, 0]], collection.links[:, 1]], axis=1), axis=0)
    relinked = Collection(collection.image_ids, collection.caption_ids, collection.captions, links, collection.open_image)
    keep_image = ~np.isin(relinked.image_ids, [*removed.images, *removed.twins])
    keep_caption = ~np.isin(relinked.caption_ids, list(removed.captions))
    has_image = np.zeros(relinked.shape[1], dtype=bool)
    has_image[links[keep_image[links[:, 0]], 1]] = True
    remaining = relinked.select(np.flatnonzero(keep_image), np.flatnonzero(keep_caption & has_image))
    if not all(remaining.shape):
        raise CrossmatchError("Nothing is left of the collection after the removals. Shorten the lists.")
    return remaining
