"""Human ratings of captions, and human preferences between two captions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crossmatch.data.arrays import FloatArray, IdArray, IntArray, as_ids, as_integers, make_read_only
from crossmatch.data.errors import CrossmatchError, UsageError

REFERENCE_RULES = ("exclude", "leave-out", "keep")


@dataclass(frozen=True, eq=False)
class Ratings:
    """Candidate captions of images, each rated by one person or more.

    Attributes:
        name: The name of the data.
        ids: The ids of the candidates.
        images: The image of each candidate.
        captions: The text of each candidate.
        values: All single ratings.
        candidate_of_rating: For each single rating the position of its candidate.
        references: The references of each image.
        scale: The lowest and the highest possible rating.
        reference_rule: What happens to a candidate that equals a reference of its image: `exclude` removes the candidate,
            `leave-out` compares it with the other references, `keep` does nothing.
        unreferenced: Number of candidates of the source that were left out because their image has no known references.

    >>> ratings = Ratings.from_rows("mine", [("7", "a dog", [4, 3]), ("7", "a cat", [1])], {"7": ["the dog"]}, scale=(1, 4))
    >>> ratings.ids, ratings.mean, ratings.candidate_of_rating
    (array(['7#0', '7#1'], dtype='<U3'), array([3.5, 1. ]), array([0, 0, 1]))
    """

    name: str
    ids: IdArray
    images: IdArray
    captions: tuple[str, ...]
    values: FloatArray
    candidate_of_rating: IntArray
    references: Mapping[str, Sequence[str]]
    scale: tuple[float, float]
    reference_rule: str = "leave-out"
    unreferenced: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", as_ids(self.ids, "candidate"))
        object.__setattr__(self, "images", np.asarray(self.images, dtype=np.str_))
        object.__setattr__(self, "captions", tuple(self.captions))
        object.__setattr__(self, "candidate_of_rating", as_integers(self.candidate_of_rating, "positions of candidates"))
        object.__setattr__(self, "values", np.array(self.values, dtype=np.float64))
        n = len(self.ids)
        if len(self.images) != n or len(self.captions) != n:
            raise CrossmatchError(
                f"{n:,} candidates have {len(self.images):,} images and {len(self.captions):,} captions; expected one of each per "
                "candidate."
            )
        if len(self.candidate_of_rating) != len(self.values):
            raise CrossmatchError(
                f"{len(self.values):,} ratings have {len(self.candidate_of_rating):,} candidates; expected one per rating."
            )
        if self.reference_rule not in REFERENCE_RULES:
            raise UsageError(
                f"Unknown rule {self.reference_rule!r} for candidates that equal a reference. Use one of "
                f"{', '.join(REFERENCE_RULES)}."
            )
        for i, text in zip(self.ids.tolist(), self.captions, strict=True):
            if not isinstance(text, str):
                raise CrossmatchError(f"The caption of candidate {i!r} is {text!r:.60}, expected a text. Correct it.")
        self._check_values()
        self._check_references()
        for array in (self.ids, self.images, self.candidate_of_rating, self.values):
            make_read_only(array)

    def _check_values(self) -> None:
        candidate = self.candidate_of_rating
        is_outside = (candidate < 0) | (candidate >= len(self.ids))
        if is_outside.any():
            raise CrossmatchError(
                f"A rating refers to candidate {candidate[is_outside][0]}; expected its position, 0 to {len(self.ids) - 1}."
            )
        unrated = np.flatnonzero(np.bincount(candidate, minlength=len(self.ids)) == 0)
        if len(unrated):
            raise CrossmatchError(
                f"{len(unrated):,} candidates have no rating, the first is {str(self.ids[unrated[0]])!r}. Rate or remove them."
            )
        low, high = self.scale
        is_off_scale = ~((self.values >= low) & (self.values <= high))
        if is_off_scale.any():
            n = int(is_off_scale.argmax())
            raise CrossmatchError(
                f"Candidate {str(self.ids[candidate[n]])!r} has the rating {self.values[n]:g}, expected {low:g} to {high:g}. "
                "Correct the rating or the scale."
            )

    def _check_references(self) -> None:
        images = self.images.tolist()
        missing = [n for n, image in enumerate(images) if image not in self.references]
        if missing:
            raise CrossmatchError(
                f"{len(missing):,} of {len(self.ids):,} candidates are of an image without references; the first is candidate "
                f"{str(self.ids[missing[0]])!r} of image {images[missing[0]]!r}. Add references, or remove these candidates."
            )
        for image in dict.fromkeys(images):
            _require_texts(self.references[image], f"image {image!r}")

    @classmethod
    def from_rows(
        cls,
        name: str,
        rows: Iterable[tuple[str, str, Sequence[float]]],
        references: Mapping[str, Sequence[str]],
        *,
        scale: tuple[float, float] | None = None,
        reference_rule: str = "leave-out",
        unreferenced: int = 0,
    ) -> Ratings:
        """From the image, the caption and the ratings of each candidate; the default scale is the range of the ratings."""
        ids, images, captions = [], [], []
        values: list[float] = []
        candidates: list[int] = []
        captions_of_image: dict[str, int] = {}
        for n, (image, caption, ratings) in enumerate(rows):
            ids.append(f"{image}#{captions_of_image.setdefault(image, 0)}")
            captions_of_image[image] += 1
            images.append(image)
            captions.append(caption)
            values.extend(ratings)
            candidates.extend([n] * len(ratings))
        if not values:
            raise CrossmatchError(f"{name} has no ratings; at least one is needed. Check that the file is not empty.")
        numbers = np.array(values, dtype=np.float64)
        return cls(
            name, np.array(ids), np.array(images), tuple(captions), numbers, np.array(candidates), references,
            scale or (float(numbers.min()), float(numbers.max())), reference_rule, unreferenced,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def mean(self) -> FloatArray:
        """The mean rating of each candidate."""
        candidate = self.candidate_of_rating
        return np.asarray(np.bincount(candidate, self.values) / np.bincount(candidate), dtype=np.float64)

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that change with any rating, caption or reference, for signatures."""
        references = sorted((image, list(texts)) for image, texts in self.references.items())
        return _digest([self.ids.tolist(), self.captions, self.candidate_of_rating.tolist(), self.values.tolist(), references])

    def select(self, candidates: IntArray) -> Ratings:
        """The candidates at these positions, in this order.

        >>> ratings = Ratings.from_rows("mine", [("7", "a dog", [4, 3]), ("7", "a cat", [1])], {"7": ["the dog"]})
        >>> ratings.select(np.array([1])).values
        array([1.])
        """
        new_position = np.full(len(self), -1)
        new_position[candidates] = np.arange(len(candidates))
        candidate = new_position[self.candidate_of_rating]
        order = np.flatnonzero(candidate >= 0)
        order = order[np.argsort(candidate[order], kind="stable")]
        return replace(
            self,
            ids=self.ids[candidates],
            images=self.images[candidates],
            captions=tuple(self.captions[n] for n in candidates),
            values=self.values[order],
            candidate_of_rating=candidate[order],
        )


@dataclass(frozen=True, eq=False)
class Preferences:
    """Pairs of captions of one image, and which of the two people preferred.

    Attributes:
        name: The name of the data.
        ids: The ids of the pairs.
        images: The image of each pair.
        captions: The two captions of each pair.
        references: The references of each pair.
        preferred: 0 for the first caption, 1 for the second.
        groups: The kind of each pair, such as HC, HI, HM and MM in PASCAL-50S.

    >>> preferences = Preferences("mine", ["0"], ["7"], [("a dog", "a cat")], [["the dog"]], [0], ["HI"])
    >>> len(preferences), preferences.preferred
    (1, array([0]))
    """

    name: str
    ids: IdArray
    images: IdArray
    captions: tuple[tuple[str, str], ...]
    references: tuple[tuple[str, ...], ...]
    preferred: IntArray
    groups: IdArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", as_ids(self.ids, "pair"))
        for name in ("images", "groups"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.str_))
        object.__setattr__(self, "preferred", as_integers(self.preferred, "preferred captions"))
        sizes = {name: len(getattr(self, name)) for name in ("images", "captions", "references", "preferred", "groups")}
        if set(sizes.values()) != {len(self.ids)}:
            counts = ", ".join(f"{size:,} {name}" for name, size in sizes.items())
            raise CrossmatchError(f"{len(self.ids):,} pairs have {counts}; expected one of each per pair.")
        for i, pair, texts in zip(self.ids.tolist(), self.captions, self.references, strict=True):
            if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
                raise CrossmatchError(f"The captions of pair {i!r} are {pair!r:.60}, expected two texts. Correct them.")
            _require_texts(texts, f"pair {i!r}")
        object.__setattr__(self, "captions", tuple((first, second) for first, second in self.captions))
        object.__setattr__(self, "references", tuple(tuple(texts) for texts in self.references))
        is_wrong = ~np.isin(self.preferred, (0, 1))
        if is_wrong.any():
            n = int(is_wrong.argmax())
            raise CrossmatchError(f"Pair {str(self.ids[n])!r} prefers caption {self.preferred[n]}; expected 0 or 1.")
        for array in (self.ids, self.images, self.preferred, self.groups):
            make_read_only(array)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that change with any preference, caption or reference, for signatures."""
        return _digest([self.ids.tolist(), self.captions, self.references, self.preferred.tolist(), self.groups.tolist()])


def _require_texts(texts: object, owner: str) -> None:
    """Raise if the references of an image or pair are not a list of texts."""
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not texts:
        raise CrossmatchError(f"The references of {owner} are {texts!r:.60}, expected a list of at least one text. Correct them.")
    for text in texts:
        if not isinstance(text, str):
            raise CrossmatchError(f"A reference of {owner} is {text!r:.60}, expected a text. Correct it.")


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:8]
