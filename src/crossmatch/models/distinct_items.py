"""The distinct items of trials, which a model scores once, and a check that their images exist."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crossmatch.data.arrays import IntArray
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.trials import Trials


def require_images(collection: Collection) -> None:
    """Raise an error if images of the collection are known to be missing, before anything is computed."""
    find_absent = getattr(collection.open_image, "absent", None)
    absent: list[str] = find_absent(collection.image_ids.tolist()) if find_absent else []
    if absent:
        raise CrossmatchError(
            f"{len(absent):,} of {collection.shape[0]:,} image files are missing; the first is image {absent[0]!r}. Get them "
            "(`crossmatch list data` says how for public benchmarks), or use precomputed scores: -m precomputed:FILE"
        )


def collect_items(tasks: Sequence[Trials]) -> tuple[Collection, list[tuple[IntArray, IntArray]]]:
    """Collect each distinct image and text of trials that share one way of opening images.

    Returns a collection of the distinct items, and for each task the positions of the images (N, I) and captions (N, C) of its
    trials in that collection.
    """
    images, captions = (np.unique(np.concatenate([getattr(t, name).ravel() for t in tasks])) for name in ("images", "captions"))
    texts = tuple(captions.tolist())
    opener = tasks[0].open_image
    items = Collection(images, np.arange(len(texts)), texts, np.zeros((0, 2)), opener)  # type: ignore[arg-type]
    return items, [(np.searchsorted(images, t.images), np.searchsorted(captions, t.captions)) for t in tasks]
