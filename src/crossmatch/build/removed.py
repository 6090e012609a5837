"""What does not belong in a benchmark: captions that describe nothing, wrong captions, and pictures that are there twice.

The authors of ECCV Caption removed 18 meaningless captions, 14 wrong ones and a picture that the training set has too
(chun2022eccv, sec. 3.3 and app. C.1). Meaningless captions and equal pictures are found here; which captions are wrong is for
people to say, in a list. Who the suspects are, `merge` writes down: links that people or raters called wrong.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from crossmatch.benchmarks.formats.table import text_of
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.progress import track

PICTURE = r"(?:image|picture|photo|photograph)s?"
SEE = r"(?:see|view|load)"
# What people write where no picture was shown to them. All 18 meaningless captions of chun2022eccv, app. C.1, are found by these,
# and none of the other 24,982 captions of that split.
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
class Removed:
    """What leaves a collection, and why: ids with a reason each. `twins` are pictures that are another one: theirs becomes its."""

    captions: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    twins: Mapping[str, str] = field(default_factory=dict)

    def rows(self) -> list[tuple[str, str, str]]:
        """Kind, id and reason, of everything."""
        twins = {name: f"the same picture as {kept}" for name, kept in self.twins.items()}
        return [
            (kind, name, why)
            for kind, listed in (("caption", self.captions), ("image", {**twins, **self.images}))
            for name, why in sorted(listed.items())
        ]


def removed(
    collection: Collection,
    *,
    invalid: Iterable[str] = (),
    wrong: Iterable[str] = (),
    images: Iterable[str] = (),
    find: bool = True,
    against: Collection | None = None,
) -> Removed:
    """What leaves: the lists of ids, with `find` what can be found, and with `against` what another collection has too.

    Found are captions that are meaningless, and equal pictures, of which the first by id stays. Pictures that `against` has too, a
    training set perhaps, leave altogether. Pictures are equal if their files are, or, where there are no files, their pixels.
    """
    captions = dict.fromkeys(_known(collection, "caption", wrong), "wrong")
    captions |= dict.fromkeys(_known(collection, "caption", invalid), "invalid")
    gone = dict.fromkeys(_known(collection, "image", images), "listed")
    if find:
        texts = zip(collection.caption_ids.tolist(), collection.captions, strict=False)
        captions |= {name: "meaningless" for name, text in texts if name not in captions and is_meaningless(text)}
    if against is None and (not find or collection.open_image is None):
        return Removed(captions, gone)
    of = contents(collection, [name for name in sorted(collection.image_ids.tolist()) if name not in gone])
    if against is not None:
        elsewhere = set(contents(against, against.image_ids.tolist()).values())
        gone |= {name: "a picture of the other collection" for name, content in of.items() if content in elsewhere}
    first: dict[bytes, str] = {}
    twins = {}
    for name, content in of.items() if find else ():
        if name not in gone and first.setdefault(content, name) != name:
            twins[name] = first[content]
    return Removed(captions, gone, twins)


def contents(collection: Collection, names: Sequence[str]) -> dict[str, bytes]:
    """What each picture is known by: the hash of its file, or of its pixels where there is none."""
    opener = collection.open_image
    if opener is None:
        raise CrossmatchError("a collection has no pictures to compare. Put them into its folder, or do not look for equal ones.")
    content: Callable[[str], bytes] = getattr(opener, "content", None) or (lambda name: _pixels(collection, name))
    return {name: content(name) for name in track(names, "comparing pictures")}


def _pixels(collection: Collection, name: str) -> bytes:
    assert collection.open_image is not None
    pixels = np.asarray(collection.open_image(name).convert("RGB"))
    return hashlib.sha256(str(pixels.shape).encode() + pixels.tobytes()).digest()


def _known(collection: Collection, side: str, ids: Iterable[str]) -> list[str]:
    known, listed = set(collection.ids(side).tolist()), list(ids)
    strange = next((name for name in listed if name not in known), None)
    if strange is not None:
        close = get_close_matches(strange, known, n=1, cutoff=0.7)
        hint = f"Did you mean {close[0]!r}?" if close else f"Name one such as {next(iter(sorted(known)), '')!r}."
        raise CrossmatchError(f"there is no {side} {strange!r:.60} in the collection that could be removed. {hint}")
    return listed


def read_ids(path: Path) -> list[str]:
    """The ids of a text file, one on each line; what follows a tab or `#` and a blank is a remark."""
    if not path.is_file():
        raise WrongWords(f"{path} is not there. Check the path.")
    lines = text_of(path.read_bytes(), str(path)).splitlines()
    ids = (re.split(r"\t|(?:^|\s)#\s", line, maxsplit=1)[0].strip() for line in lines)
    return list(dict.fromkeys(name for name in ids if name))


def without(collection: Collection, gone: Removed) -> Collection:
    """The collection without what leaves it; links of a twin go to the picture that stays; captions without a picture go too."""
    place = {name: n for n, name in enumerate(collection.image_ids.tolist())}
    kept_as = np.arange(collection.shape[0])
    for twin, kept in gone.twins.items():
        kept_as[place[twin]] = place[kept]
    links = np.unique(np.stack([kept_as[collection.links[:, 0]], collection.links[:, 1]], axis=1), axis=0)
    joined = Collection(collection.image_ids, collection.caption_ids, collection.captions, links, collection.open_image)
    images = ~np.isin(joined.image_ids, [*gone.images, *gone.twins])
    captions = ~np.isin(joined.caption_ids, list(gone.captions))
    owned = np.zeros(joined.shape[1], dtype=bool)
    owned[links[images[links[:, 0]], 1]] = True
    out = joined.reordered(np.flatnonzero(images), np.flatnonzero(captions & owned))
    if not all(out.shape):
        raise CrossmatchError("nothing is left of the collection after what was to be removed. Shorten the lists.")
    return out
