"""Checks of the input: unreadable images, truncated captions, animated images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from crossmatch.data.errors import CrossmatchError, SkippedItem
from crossmatch.data.loaded_data import LoadedData, drop_images
from crossmatch.evaluation.data_shapes import shape_of
from crossmatch.models.abilities import uses_images
from crossmatch.models.embedding_pipeline import find_unreadable_images
from crossmatch.models.likelihood_scoring import LikelihoodScorer


class CheckedData(NamedTuple):
    """Data without unusable items, these items, and notes about them."""

    data: LoadedData
    skipped: tuple[SkippedItem, ...]
    notes: tuple[str, ...]


def drop_unreadable_images(datasets: Sequence[LoadedData], workers: int | None = None) -> list[CheckedData]:
    """Remove images that cannot be opened from data. Every image is opened once.

    The result does not depend on a model, so that all models are evaluated on the same items. The skipped items include those
    that were left out on loading.
    """
    images_by_opener: dict[int, tuple[Any, set[str]]] = {}
    for data in datasets:
        shape = shape_of(data)
        opener = shape.image_opener(data)
        if opener is not None:
            images_by_opener.setdefault(id(opener), (opener, set()))[1].update(shape.image_ids(data))
    unreadable = {key: find_unreadable_images(opener, sorted(names), workers) for key, (opener, names) in images_by_opener.items()}
    return [_drop_images(data, unreadable.get(id(shape_of(data).image_opener(data)), {})) for data in datasets]


def _drop_images(data: LoadedData, reasons: dict[str, str]) -> CheckedData:
    shape, notes = shape_of(data), []
    empty: tuple[SkippedItem, ...] = getattr(data, "skipped", ())
    images = shape.image_ids(data)
    bad_images = tuple(SkippedItem("image", name, reasons[name]) for name in images if name in reasons)
    if bad_images and len(bad_images) == len(images):
        raise CrossmatchError(f"none of the {len(bad_images):,} images can be opened; the first: {bad_images[0].reason}")
    remaining = drop_images(data, reasons)
    if empty:
        items = "captions" if empty[0].kind == "caption" else "trials with a caption"
        ids = _first_ids([item.id for item in empty])
        notes.append(f"skipped: {len(empty):,} {items} that are empty ({ids}); not comparable with complete results")
    if bad_images:
        lost = shape.item_count(data) - shape.item_count(remaining)
        notes.append(
            f"skipped: {len(bad_images):,} of {len(images):,} images cannot be opened, and were left out with {lost:,} "
            f"{shape.item_noun} ({_first_ids([item.id for item in bad_images])}); not comparable with complete results"
        )
    return CheckedData(remaining, empty + bad_images, tuple(notes))


def count_truncated_captions(model: object, data: LoadedData) -> tuple[tuple[str, ...], dict[str, int]]:
    """Count the captions that the model's tokenizer truncates, if the model has `truncated(texts)`; return notes and counts."""
    inner = model.model if isinstance(model, LikelihoodScorer) else model
    truncated = getattr(inner, "truncated", None)
    captions = shape_of(data).captions(data)
    if truncated is None or not captions:
        return (), {}
    distinct, times = np.unique(np.asarray(captions, dtype=object), return_counts=True)
    is_truncated = np.asarray(truncated(distinct.tolist()))
    if is_truncated.shape != distinct.shape or is_truncated.dtype != bool:
        raise CrossmatchError(
            f"truncated(texts) must return true or false for each of {len(distinct):,} texts "
            f"(got {is_truncated.dtype} of shape {is_truncated.shape})."
        )
    count = int(times[is_truncated].sum())
    if not count:
        return (), {}
    longest = getattr(inner, "longest", None)
    limit = f"the {longest:,} tokens" if isinstance(longest, int) else "what"
    note = f"{count:,} of {len(captions):,} captions are longer than {limit} that the model reads; the rest was cut off"
    return (note,), {"truncated-captions": count}


def note_animated_images(model: object, data: LoadedData) -> tuple[str, ...]:
    """Return a note about images with several frames, of which the model gets the first."""
    shape = shape_of(data)
    find_animated = getattr(shape.image_opener(data), "animated", None) if uses_images(model) else None
    animated: list[str] = find_animated(shape.image_ids(data)) if find_animated else []
    note = f"{len(animated):,} pictures have several frames, and the first was taken ({_first_ids(animated)})"
    return (note,) if animated else ()


def _first_ids(ids: Sequence[str]) -> str:
    return ", ".join(ids[:3]) + ", …" * (len(ids) > 3)
