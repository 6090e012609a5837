"""What people said of captions: scores of single captions, and which of two they preferred."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crossmatch.core.arrays import FloatArray, IdArray, IntArray, as_ids, as_whole, frozen
from crossmatch.core.errors import CrossmatchError, WrongWords

EQUAL = ("exclude", "leave-out", "keep")


@dataclass(frozen=True, eq=False)
class Ratings:
    """Candidate captions of images, each scored by one person or more.

    `equal` is what happens to a candidate that is one of the references of its own image: `exclude` leaves the candidate out,
    `leave-out` compares it with the other references, `keep` does nothing. `unreferenced` counts the candidates of the source that
    are not here, because the references of their image are not known.

    >>> said = Ratings.gathered("mine", [("7", "a dog", [4, 3]), ("7", "a cat", [1])], {"7": ["the dog"]}, scale=(1, 4))
    >>> said.ids, said.mean, said.of
    (array(['7#0', '7#1'], dtype='<U3'), array([3.5, 1. ]), array([0, 0, 1]))
    """

    name: str
    ids: IdArray
    images: IdArray  # of each candidate
    captions: tuple[str, ...]
    values: FloatArray  # of each single rating
    of: IntArray  # of each single rating: the position of its candidate
    references: Mapping[str, Sequence[str]]  # of each image
    scale: tuple[float, float]
    equal: str = "leave-out"
    unreferenced: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", as_ids(self.ids, "candidate"))
        object.__setattr__(self, "images", np.asarray(self.images, dtype=np.str_))
        object.__setattr__(self, "captions", tuple(self.captions))
        object.__setattr__(self, "of", as_whole(self.of, "positions of candidates"))
        object.__setattr__(self, "values", np.array(self.values, dtype=np.float64))
        n = len(self.ids)
        if len(self.images) != n or len(self.captions) != n or len(self.of) != len(self.values):
            raise CrossmatchError(
                f"{n:,} candidates, {len(self.images):,} images and {len(self.captions):,} captions; {len(self.values):,} ratings "
                f"of {len(self.of):,}. One image and caption for each candidate, and one candidate for each rating were expected."
            )
        if self.equal not in EQUAL:
            raise WrongWords(f"there is no rule {self.equal!r} for candidates that are references; there are {', '.join(EQUAL)}.")
        for i, text in zip(self.ids.tolist(), self.captions, strict=True):
            if not isinstance(text, str):
                raise CrossmatchError(f"the caption of candidate {i!r} is {text!r:.60}; a text was expected. Mend it.")
        self._check_values()
        _check_references(self.images, self.ids, self.references)
        for array in (self.ids, self.images, self.of, self.values):
            frozen(array)

    def _check_values(self) -> None:
        wrong = (self.of < 0) | (self.of >= len(self.ids))
        if wrong.any():
            raise CrossmatchError(
                f"a rating is of candidate {self.of[wrong][0]}; 0 to {len(self.ids) - 1} was expected, its position."
            )
        unrated = np.flatnonzero(np.bincount(self.of, minlength=len(self.ids)) == 0)
        if len(unrated):
            raise CrossmatchError(
                f"candidate {str(self.ids[unrated[0]])!r} has no rating, one of {len(unrated):,} such. Add one, or remove it."
            )
        low, high = self.scale
        off = ~((self.values >= low) & (self.values <= high))
        if off.any():
            at = int(off.argmax())
            raise CrossmatchError(
                f"candidate {str(self.ids[self.of[at]])!r} is rated {self.values[at]:g}; {low:g} to {high:g} was expected. "
                "Mend the rating, or the scale."
            )

    @classmethod
    def gathered(
        cls,
        name: str,
        rated: Iterable[tuple[str, str, Sequence[float]]],
        references: Mapping[str, Sequence[str]],
        *,
        scale: tuple[float, float] | None = None,
        equal: str = "leave-out",
        unreferenced: int = 0,
    ) -> Ratings:
        """From image, caption and ratings of each candidate. Without a scale, it is what the ratings span."""
        ids, images, captions = [], [], []
        values: list[float] = []
        at: list[int] = []
        seen: dict[str, int] = {}
        for n, (image, caption, ratings) in enumerate(rated):
            ids.append(f"{image}#{seen.setdefault(image, 0)}")
            seen[image] += 1
            images.append(image)
            captions.append(caption)
            values.extend(ratings)
            at.extend([n] * len(ratings))
        if not values:
            raise CrossmatchError(f"{name} holds no ratings; at least one was expected. Check that the file is not empty.")
        given = np.array(values, dtype=np.float64)
        return cls(
            name, np.array(ids), np.array(images), tuple(captions), given, np.array(at), references,
            scale or (float(given.min()), float(given.max())), equal, unreferenced,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def mean(self) -> FloatArray:
        """Of each candidate: the mean of its ratings."""
        return np.asarray(np.bincount(self.of, self.values) / np.bincount(self.of), dtype=np.float64)

    @property
    def digest(self) -> str:
        """Eight signs that tell these ratings from others, for signatures."""
        return _digest([self.ids.tolist(), self.captions, self.of.tolist(), self.values.tolist(), _texts(self.references)])

    def among(self, candidates: IntArray) -> Ratings:
        """These candidates alone, in this order.

        >>> said = Ratings.gathered("mine", [("7", "a dog", [4, 3]), ("7", "a cat", [1])], {"7": ["the dog"]})
        >>> said.among(np.array([1])).values
        array([1.])
        """
        place = np.full(len(self), -1)
        place[candidates] = np.arange(len(candidates))
        at = place[self.of]
        order = np.flatnonzero(at >= 0)
        order = order[np.argsort(at[order], kind="stable")]
        return replace(
            self,
            ids=self.ids[candidates],
            images=self.images[candidates],
            captions=tuple(self.captions[n] for n in candidates),
            values=self.values[order],
            of=at[order],
        )


@dataclass(frozen=True, eq=False)
class Preferences:
    """Pairs of captions of one image, and which of the two people preferred: 0 the first, 1 the second.

    `groups` name the kind of each pair, such as HC, HI, HM and MM in PASCAL-50S.

    >>> said = Preferences("mine", ["0"], ["7"], [("a dog", "a cat")], [["the dog"]], [0], ["HI"])
    >>> len(said), said.preferred
    (1, array([0]))
    """

    name: str
    ids: IdArray
    images: IdArray
    captions: tuple[tuple[str, str], ...]
    references: tuple[tuple[str, ...], ...]  # of each pair
    preferred: IntArray
    groups: IdArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", as_ids(self.ids, "pair"))
        for name in ("images", "groups"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.str_))
        object.__setattr__(self, "preferred", as_whole(self.preferred, "preferred captions"))
        sizes = {name: len(getattr(self, name)) for name in ("images", "captions", "references", "preferred", "groups")}
        if set(sizes.values()) != {len(self.ids)}:
            told = ", ".join(f"{size:,} {name}" for name, size in sizes.items())
            raise CrossmatchError(f"{len(self.ids):,} pairs have {told}; one of each for every pair was expected.")
        for i, pair, texts in zip(self.ids.tolist(), self.captions, self.references, strict=True):
            if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
                raise CrossmatchError(f"the captions of pair {i!r} are {pair!r:.60}; two texts were expected. Mend them.")
            _require_texts(texts, f"pair {i!r}")
        object.__setattr__(self, "captions", tuple((first, second) for first, second in self.captions))
        object.__setattr__(self, "references", tuple(tuple(texts) for texts in self.references))
        wrong = ~np.isin(self.preferred, (0, 1))
        if wrong.any():
            at = int(wrong.argmax())
            raise CrossmatchError(
                f"pair {str(self.ids[at])!r} prefers caption {self.preferred[at]}; 0 or 1 was expected, its place in the pair."
            )
        for array in (self.ids, self.images, self.preferred, self.groups):
            frozen(array)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def digest(self) -> str:
        """Eight signs that tell these preferences from others, for signatures."""
        return _digest([self.ids.tolist(), self.captions, self.references, self.preferred.tolist(), self.groups.tolist()])


def _check_references(images: IdArray, ids: IdArray, references: Mapping[str, Sequence[str]]) -> None:
    lone = next((n for n, image in enumerate(images.tolist()) if image not in references), None)
    if lone is not None:
        missing = sum(image not in references for image in images.tolist())
        raise CrossmatchError(
            f"candidate {str(ids[lone])!r} is of image {str(images[lone])!r}, which has no references, one of {missing:,} such "
            f"among {len(ids):,}. Add references, or remove these candidates."
        )
    for image in dict.fromkeys(images.tolist()):
        _require_texts(references[image], f"image {image!r}")


def _require_texts(texts: object, whose: str) -> None:
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not texts:
        raise CrossmatchError(f"the references of {whose} are {texts!r:.60}; a list of one text or more was expected. Mend it.")
    wrong = next((text for text in texts if not isinstance(text, str)), None)
    if wrong is not None or None in texts:
        raise CrossmatchError(f"a reference of {whose} is {wrong!r:.60}; a text was expected. Mend it.")


def _texts(references: Mapping[str, Sequence[str]]) -> list[tuple[str, list[str]]]:
    return sorted((image, list(texts)) for image, texts in references.items())


def _digest(held: object) -> str:
    return hashlib.sha256(json.dumps(held).encode()).hexdigest()[:8]
