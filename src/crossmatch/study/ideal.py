"""How each study of the papers would be answered by somebody who makes no mistake, where the truth is known.

What is seen are images by id and captions by their text, in the order in which they are shown; an answer names them by that order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from crossmatch.benchmarks.formats.table import read_table
from crossmatch.core.errors import CrossmatchError
from crossmatch.diorama.edits import holds
from crossmatch.diorama.meaning import Meaning
from crossmatch.diorama.scenes import Scene
from crossmatch.diorama.similarity import BEST, caption_similarity, scene_caption_similarity, scene_similarity

K = TypeVar("K")
V = TypeVar("V")
Right = tuple[str, ...] | float  # values that are right, the best first; or a place on a slider
Side = Literal["image", "caption"]
CLEAR, PARTLY = 0.75, 0.25  # from these grades on a caption fits, or fits in part
RELATED = 2.0  # from here on a wrong caption is mostly wrong, and not all of it


class Unknown(LookupError):  # noqa: N818 - it says what something is
    """Nothing is known of an image or a caption."""


class Known(Protocol):
    """The truth about images and captions. What it does not know is `Unknown`."""

    def grade(self, image: str, caption: str) -> float:
        """How far a caption fits an image, from 0 to 1."""

    def alike(self, one: tuple[Side, str], other: tuple[Side, str]) -> float:
        """How alike two things are, from 0 to 5."""

    def quality(self, image: str, caption: str) -> int:
        """How correct a caption is, from 1 to 5."""

    def detail(self, caption: str) -> int:
        """How detailed a caption is, from 1 to 5."""


@dataclass(frozen=True)
class Seen:
    """An item as a person sees it."""

    images: tuple[str, ...]
    captions: tuple[str, ...]
    lists: int = 0
    block: str = ""


# -- what is known


@dataclass(frozen=True, eq=False)
class WorldTruth:
    """The truth about drawn scenes and their captions."""

    scenes: Mapping[str, Scene]
    meanings: Mapping[str, Meaning | None]  # of texts; None: a text that means nothing
    qualities: Mapping[tuple[str, str], int] = field(default_factory=dict)
    details: Mapping[str, int] = field(default_factory=dict)

    def grade(self, image: str, caption: str) -> float:
        meaning = self._meaning(caption)
        return float(meaning is not None and holds(meaning, self._scene(image)))

    def alike(self, one: tuple[Side, str], other: tuple[Side, str]) -> float:
        (side, a), (with_, b) = sorted((one, other), reverse=True)  # images first
        if side == "caption":
            texts = [self._meaning(a), self._meaning(b)]
            return 0.0 if None in texts else float(caption_similarity([texts[0]], [texts[1]])[0, 0])  # type: ignore[list-item]
        if with_ == "image":
            return float(scene_similarity([self._scene(a)], [self._scene(b)])[0, 0])
        meaning = self._meaning(b)
        return 0.0 if meaning is None else float(scene_caption_similarity([self._scene(a)], [meaning])[0, 0])

    def quality(self, image: str, caption: str) -> int:
        return _found(self.qualities, (image, caption))

    def detail(self, caption: str) -> int:
        return _found(self.details, caption)

    def _scene(self, image: str) -> Scene:
        return _found(self.scenes, image)

    def _meaning(self, caption: str) -> Meaning | None:
        return _found(self.meanings, caption)


@dataclass(frozen=True, eq=False)
class FileTruth:
    """Grades of pairs from a file; a caption goes by its text or its id. Of everything else nothing is known."""

    grades: Mapping[tuple[str, str], float]
    best: float

    def grade(self, image: str, caption: str) -> float:
        return _found(self.grades, (image, caption)) / self.best

    def alike(self, one: tuple[Side, str], other: tuple[Side, str]) -> float:
        (side, a), (with_, b) = sorted((one, other), reverse=True)
        if (side, with_) != ("image", "caption"):
            raise Unknown(f"{a}, {b}")
        return BEST * self.grade(a, b)

    def quality(self, image: str, caption: str) -> int:
        return 1 + round(4 * self.grade(image, caption))

    def detail(self, caption: str) -> int:
        raise Unknown(caption)


@dataclass(frozen=True, eq=False)
class ToldTruth:
    """Whether pairs fit, as the items of a study tell it themselves (`fits`); all else is what the `rest` knows.

    Of what nobody knows, a trial has it that its first image and its first caption belong together, and so on (`paired`).
    """

    fits: Mapping[tuple[str, str], bool]
    rest: Known
    paired: Mapping[tuple[str, str], bool] = field(default_factory=dict)

    def grade(self, image: str, caption: str) -> float:
        told = self.fits.get((image, caption))
        if told is not None:
            return float(told)
        try:
            return self.rest.grade(image, caption)
        except Unknown:
            return float(_found(self.paired, (image, caption)))

    def alike(self, one: tuple[Side, str], other: tuple[Side, str]) -> float:
        return self.rest.alike(one, other)

    def quality(self, image: str, caption: str) -> int:
        return self.rest.quality(image, caption)

    def detail(self, caption: str) -> int:
        return self.rest.detail(caption)


NOTHING = FileTruth({}, 1.0)  # is known


def read_truth(path: Path, caption_ids: Mapping[str, str] | None = None) -> FileTruth:
    """What a csv with the columns image, caption (or caption_id) and grade tells.

    `caption_ids` are the texts by id: what people see are texts.
    """
    found: dict[tuple[str, str], float] = {}
    try:
        rows = read_table(path, (("image", "image_id"), ("caption", "caption_id"), ("grade",)))
    except OSError as error:
        raise CrossmatchError(f"the truth {path} cannot be read ({error.strerror or error}). Check the path.") from None
    for row in rows:
        image = row.cells.get("image") or row.cells.get("image_id", "")
        caption = row.cells.get("caption") or row.cells.get("caption_id", "")
        try:
            grade = float(row.cells["grade"])
        except ValueError:
            grade = -1.0
        if not 0 <= grade < float("inf"):
            raise CrossmatchError(f"{row.where}: the grade is {row.cells['grade']!r}; a number from 0 on was expected. Mend it.")
        found[image, (caption_ids or {}).get(caption, caption)] = grade
    return FileTruth(found, max(found.values()) or 1.0)


def _found(known: Mapping[K, V], key: K) -> V:
    if key not in known:
        raise Unknown(key)
    return known[key]


# -- the answers


def fitting(known: Known, images: Sequence[str], captions: Sequence[str]) -> list[bool]:
    """Whether each pair fits: one image and several captions, or the other way round."""
    return [known.grade(image, caption) >= CLEAR for image in images for caption in captions]


def _telling(seen: Seen, known: Known) -> Right:
    left, right = (fitting(known, [image], seen.captions) for image in seen.images)
    telling = tuple(f"caption-{n}" for n, (here, there) in enumerate(zip(left, right, strict=True)) if here and not there)
    return telling or ("none",)


def _which(seen: Seen, known: Known) -> Right:
    fits = fitting(known, seen.images, seen.captions)
    return ("both",) if all(fits) else (f"image-{fits.index(True)}",) if any(fits) else ("neither",)


def _better(seen: Seen, known: Known) -> Right:
    fits = fitting(known, seen.images, seen.captions)
    if any(fits):
        return ("both",) if all(fits) else (f"image-{fits.index(True)}",)
    near = [known.alike(("image", image), ("caption", seen.captions[0])) for image in seen.images]
    return ("both",) if near[0] == near[1] else (f"image-{near.index(max(near))}",)


def _best(seen: Seen, known: Known) -> Right:
    fits = fitting(known, seen.images, seen.captions)
    return tuple(f"image-{n}" for n, fine in enumerate(fits) if fine) or ("none",)


def _two_way(seen: Seen, known: Known) -> Right:
    fits = fitting(known, seen.images, seen.captions)
    side = "caption" if len(seen.captions) > 1 else "image"
    return tuple(f"{side}-{n}" for n, fine in enumerate(fits) if fine) or tuple(f"{side}-{n}" for n in range(len(fits)))


def _match(seen: Seen, known: Known) -> Right:
    image, caption = seen.images[0], seen.captions[0]
    grade = known.grade(image, caption)
    if grade >= PARTLY:
        return ("yes",) if grade >= CLEAR else ("weak-yes",)
    return ("weak-no",) if known.alike(("image", image), ("caption", caption)) >= RELATED else ("no",)


def _alike(seen: Seen, known: Known) -> Right:
    images: list[tuple[Side, str]] = [("image", image) for image in seen.images]
    captions: list[tuple[Side, str]] = [("caption", text) for text in seen.captions]
    one, other = images + captions
    return known.alike(one, other)


def _preferred(seen: Seen, known: Known) -> Right:
    size = len(seen.images) // seen.lists
    worth = [average_precision(fitting(known, seen.images[n * size : (n + 1) * size], seen.captions)) for n in range(seen.lists)]
    return tuple(f"list-{n}" for n, value in enumerate(worth) if value == max(worth))


def average_precision(fits: Sequence[bool]) -> float:
    """The precision at each place that fits, over the length of the list: AP@R where a list is as long as there are positives.

    >>> average_precision([False, True, True, True, True, True, True, True]).__round__(3)    # chun2022eccv, sec. D.1: (A) 66.0
    0.66
    """
    return sum(sum(fits[: n + 1]) / (n + 1) for n, fine in enumerate(fits) if fine) / len(fits)


IDEAL: Mapping[str, Callable[[Seen, Known], Right]] = {
    "bison-select": _telling,
    "bison-verify": _which,
    "caption-correctness": lambda seen, known: (str(known.quality(seen.images[0], seen.captions[0])),),
    "caption-detail": lambda seen, known: (str(known.detail(seen.captions[0])),),
    "sts": _alike,
    "sis": _alike,
    "sits": _alike,
    "eccv-hit": _match,
    "ranking-preference": _preferred,
    "bivlc-choose": _best,
    "bivlc-ambiguity": _better,
    "bivlc-human": _two_way,
}


def ideal(study: str, seen: Seen, known: Known | None) -> Right | None:
    """The right answer to the main question of a preset; nothing where it is not known."""
    if known is None or study not in IDEAL:
        return None
    try:
        return IDEAL[study](seen, known)
    except Unknown:
        return None
