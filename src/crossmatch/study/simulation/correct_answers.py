"""The correct answers to the main question of each preset, if the truth is known.

Images are given by id and captions by text, in the displayed order. The values of an answer refer to that order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from crossmatch.benchmarks.formats.csv_tables import read_table
from crossmatch.data.errors import CrossmatchError
from crossmatch.diorama.caption_meaning import Meaning
from crossmatch.diorama.edits import is_true_of
from crossmatch.diorama.graded_similarity import BEST, caption_similarity, scene_caption_similarity, scene_similarity
from crossmatch.diorama.scenes import Scene
from crossmatch.study.design.places import Place, parse_place

K = TypeVar("K")
V = TypeVar("V")
CorrectAnswer = tuple[str, ...] | float  # correct values, the best first; or the value of a slider
Side = Literal["image", "caption"]
CLEAR, PARTLY = 0.75, 0.25  # the lowest grades of a caption that fits, or fits in part
RELATED = 2.0  # the lowest similarity of a wrong caption that is not completely wrong


class UnknownTruthError(LookupError):
    """The truth about an image or a caption is not known."""


class TruthSource(Protocol):
    """The truth about images and captions. Unknown ones raise `UnknownTruthError`."""

    def grade(self, image: str, caption: str) -> float:
        """How far a caption fits an image, from 0 to 1."""

    def similarity(self, first: tuple[Side, str], second: tuple[Side, str]) -> float:
        """The similarity of two images or captions, from 0 to 5."""

    def quality(self, image: str, caption: str) -> int:
        """How correct a caption is, from 1 to 5."""

    def detail(self, caption: str) -> int:
        """How detailed a caption is, from 1 to 5."""


@dataclass(frozen=True)
class ViewedItem:
    """An item as a person sees it."""

    images: tuple[str, ...]
    captions: tuple[str, ...]
    lists: int = 0

    @property
    def contents(self) -> frozenset[str]:
        """The images and captions, independent of their order."""
        return frozenset((*(f"i{name}" for name in self.images), *(f"c{text}" for text in self.captions)))

    def content_of(self, value: str) -> str:
        """The image, caption or list that a value refers to; the value of an option stays as it is.

        >>> ViewedItem(("cat", "dog"), ("A pet.",)).content_of("image-1"), ViewedItem((), ("A pet.",)).content_of("both")
        ('dog', 'both')
        """
        place = parse_place(value)
        if place is None:
            return value
        if place.side == "lists":
            size = len(self.images) // max(1, self.lists)
            return "|".join(self.images[place.n * size : (place.n + 1) * size])
        return (self.images if place.side == "images" else self.captions)[place.n]


# -- sources of the truth


@dataclass(frozen=True, eq=False)
class WorldTruth:
    """The truth about drawn scenes and their captions."""

    scenes: Mapping[str, Scene]
    meanings: Mapping[str, Meaning | None]  # by text; None: a text without meaning
    qualities: Mapping[tuple[str, str], int] = field(default_factory=dict)
    details: Mapping[str, int] = field(default_factory=dict)

    def grade(self, image: str, caption: str) -> float:
        meaning = self._meaning(caption)
        return float(meaning is not None and is_true_of(meaning, self._scene(image)))

    def similarity(self, first: tuple[Side, str], second: tuple[Side, str]) -> float:
        (first_side, a), (second_side, b) = sorted((first, second), reverse=True)  # images first
        if first_side == "caption":
            texts = [self._meaning(a), self._meaning(b)]
            return 0.0 if None in texts else float(caption_similarity([texts[0]], [texts[1]])[0, 0])  # type: ignore[list-item]
        if second_side == "image":
            return float(scene_similarity([self._scene(a)], [self._scene(b)])[0, 0])
        meaning = self._meaning(b)
        return 0.0 if meaning is None else float(scene_caption_similarity([self._scene(a)], [meaning])[0, 0])

    def quality(self, image: str, caption: str) -> int:
        return _look_up(self.qualities, (image, caption))

    def detail(self, caption: str) -> int:
        return _look_up(self.details, caption)

    def _scene(self, image: str) -> Scene:
        return _look_up(self.scenes, image)

    def _meaning(self, caption: str) -> Meaning | None:
        return _look_up(self.meanings, caption)


@dataclass(frozen=True, eq=False)
class FileTruth:
    """Grades of pairs from a file, with captions by text or id."""

    grades: Mapping[tuple[str, str], float]
    best: float

    def grade(self, image: str, caption: str) -> float:
        return _look_up(self.grades, (image, caption)) / self.best

    def similarity(self, first: tuple[Side, str], second: tuple[Side, str]) -> float:
        (first_side, a), (second_side, b) = sorted((first, second), reverse=True)
        if (first_side, second_side) != ("image", "caption"):
            raise UnknownTruthError(f"{a}, {b}")
        return BEST * self.grade(a, b)

    def quality(self, image: str, caption: str) -> int:
        return 1 + round(4 * self.grade(image, caption))

    def detail(self, caption: str) -> int:
        raise UnknownTruthError(caption)


@dataclass(frozen=True, eq=False)
class ItemTruth:
    """Whether pairs fit, as the items of a study declare it (`fits`); everything else comes from `fallback`.

    Where neither knows a pair, image n and caption n of a trial belong together (`paired`).
    """

    fits: Mapping[tuple[str, str], bool]
    fallback: TruthSource
    paired: Mapping[tuple[str, str], bool] = field(default_factory=dict)

    def grade(self, image: str, caption: str) -> float:
        fits = self.fits.get((image, caption))
        if fits is not None:
            return float(fits)
        try:
            return self.fallback.grade(image, caption)
        except UnknownTruthError:
            return float(_look_up(self.paired, (image, caption)))

    def similarity(self, first: tuple[Side, str], second: tuple[Side, str]) -> float:
        return self.fallback.similarity(first, second)

    def quality(self, image: str, caption: str) -> int:
        return self.fallback.quality(image, caption)

    def detail(self, caption: str) -> int:
        return self.fallback.detail(caption)


NO_TRUTH = FileTruth({}, 1.0)


def read_truth(path: Path, caption_ids: Mapping[str, str] | None = None) -> FileTruth:
    """Read a csv with the columns image, caption (or caption_id) and grade. `caption_ids` maps ids to the displayed texts."""
    grades: dict[tuple[str, str], float] = {}
    try:
        rows = read_table(path, (("image", "image_id"), ("caption", "caption_id"), ("grade",)))
    except OSError as error:
        raise CrossmatchError(f"Cannot read the truth {path} ({error.strerror or error}). Check the path.") from None
    for row in rows:
        image = row.cells.get("image") or row.cells.get("image_id", "")
        caption = row.cells.get("caption") or row.cells.get("caption_id", "")
        try:
            grade = float(row.cells["grade"])
        except ValueError:
            grade = -1.0
        if not 0 <= grade < float("inf"):
            raise CrossmatchError(f"{row.where}: expected a grade of at least 0, got {row.cells['grade']!r}.")
        grades[image, (caption_ids or {}).get(caption, caption)] = grade
    return FileTruth(grades, max(grades.values()) or 1.0)


def _look_up(table: Mapping[K, V], key: K) -> V:
    if key not in table:
        raise UnknownTruthError(key)
    return table[key]


# -- the answers


def fitting(truth: TruthSource, images: Sequence[str], captions: Sequence[str]) -> list[bool]:
    """Whether each pair fits: one image and several captions, or one caption and several images."""
    return [truth.grade(image, caption) >= CLEAR for image in images for caption in captions]


def _chosen(side: str, is_chosen: Sequence[bool]) -> tuple[str, ...]:
    """The values of the images, captions or lists that are chosen."""
    return tuple(Place(side, n).value for n, chosen in enumerate(is_chosen) if chosen)


def _distinguishing_captions(item: ViewedItem, truth: TruthSource) -> CorrectAnswer:
    left, right = (fitting(truth, [image], item.captions) for image in item.images)
    distinguishing = [fits_left and not fits_right for fits_left, fits_right in zip(left, right, strict=True)]
    return _chosen("captions", distinguishing) or ("none",)


def _matching_image(item: ViewedItem, truth: TruthSource) -> CorrectAnswer:
    fits = fitting(truth, item.images, item.captions)
    return ("both",) if all(fits) else _chosen("images", fits) or ("neither",)


def _better_image(item: ViewedItem, truth: TruthSource) -> CorrectAnswer:
    fits = fitting(truth, item.images, item.captions)
    if any(fits):
        return ("both",) if all(fits) else _chosen("images", fits)
    similarities = [truth.similarity(("image", image), ("caption", item.captions[0])) for image in item.images]
    best = [similarity == max(similarities) for similarity in similarities]
    return ("both",) if all(best) else _chosen("images", best)


def _fitting_images(item: ViewedItem, truth: TruthSource) -> CorrectAnswer:
    fits = fitting(truth, item.images, item.captions)
    return _chosen("images", fits) or ("none",)


def _two_way(item: ViewedItem, truth: TruthSource) -> CorrectAnswer:
    fits = fitting(truth, item.images, item.captions)
    return _chosen("captions" if len(item.captions) > 1 else "images", fits if any(fits) else [True] * len(fits))


def _match(item: ViewedItem, truth: TruthSource) -> CorrectAnswer:
    image, caption = item.images[0], item.captions[0]
    grade = truth.grade(image, caption)
    if grade >= PARTLY:
        return ("yes",) if grade >= CLEAR else ("weak-yes",)
    return ("weak-no",) if truth.similarity(("image", image), ("caption", caption)) >= RELATED else ("no",)


def _similarity(item: ViewedItem, truth: TruthSource) -> CorrectAnswer:
    images: list[tuple[Side, str]] = [("image", image) for image in item.images]
    captions: list[tuple[Side, str]] = [("caption", text) for text in item.captions]
    first, second = images + captions
    return truth.similarity(first, second)


def _preferred_lists(item: ViewedItem, truth: TruthSource) -> CorrectAnswer:
    size = len(item.images) // item.lists
    lists = [item.images[n * size : (n + 1) * size] for n in range(item.lists)]
    precisions = [average_precision(fitting(truth, images, item.captions)) for images in lists]
    return _chosen("lists", [precision == max(precisions) for precision in precisions])


def average_precision(fits: Sequence[bool]) -> float:
    """The sum of the precision at each fitting place, divided by the length of the list: AP@R for a list of length R.

    >>> average_precision([False, True, True, True, True, True, True, True]).__round__(3)    # chun2022eccv, sec. D.1: (A) 66.0
    0.66
    """
    return sum(sum(fits[: n + 1]) / (n + 1) for n, is_fitting in enumerate(fits) if is_fitting) / len(fits)


CORRECT_ANSWERS: Mapping[str, Callable[[ViewedItem, TruthSource], CorrectAnswer]] = {
    "bison-select": _distinguishing_captions,
    "bison-verify": _matching_image,
    "caption-correctness": lambda item, truth: (str(truth.quality(item.images[0], item.captions[0])),),
    "caption-detail": lambda item, truth: (str(truth.detail(item.captions[0])),),
    "sts": _similarity,
    "sis": _similarity,
    "sits": _similarity,
    "eccv-hit": _match,
    "ranking-preference": _preferred_lists,
    "bivlc-choose": _fitting_images,
    "bivlc-ambiguity": _better_image,
    "bivlc-human": _two_way,
}


def correct_answer(study: str, item: ViewedItem, truth: TruthSource | None) -> CorrectAnswer | None:
    """The correct answer to the main question of a preset; None if it is not known."""
    if truth is None or study not in CORRECT_ANSWERS:
        return None
    try:
        return CORRECT_ANSWERS[study](item, truth)
    except UnknownTruthError:
        return None
