"""Caption generation: a caption for each image of a collection, and COCO's file of results."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.data.arrays import IntArray
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.grounding import takes_image_ids
from crossmatch.data.io.atomic_write import atomic_write
from crossmatch.data.io.image_loading import load_image
from crossmatch.data.io.progress import announce, progress_bar
from crossmatch.models.abilities import CaptionGenerator, list_abilities
from crossmatch.models.distinct_items import require_images
from crossmatch.models.embedding_pipeline import default_workers, prefetch

PROGRESS_INTERVAL = 10.0  # seconds between progress lines where there is no terminal
IMAGES_PER_GROUP = 64  # images captioned at a time; a fixed number when words are sampled
SAMPLED = "sampled"  # the decoding that depends on chance


def require_captioner(model: object, name: str) -> CaptionGenerator:
    """Return the model if it generates captions; if not, raise an error that lists the models that do."""
    if isinstance(model, CaptionGenerator):
        return model
    from crossmatch.models import families

    captioners = [key for key, family in families().items() if "caption" in family.abilities.split(", ") and key != "hf"]
    abilities = ", ".join(list_abilities(model)) or "nothing"
    raise UsageError(
        f"{name} generates no captions: it has no caption(images), only: {abilities}. Use a model of {', '.join(captioners)}, an "
        "image-to-text model of hf:, or train one: crossmatch train updown -o runs/updown"
    )


def generate_captions(
    model: CaptionGenerator, collection: Collection, *, batch: int = IMAGES_PER_GROUP, workers: int | None = None, **options: Any
) -> dict[str, str]:
    """Generate a caption for each image.

    When words are sampled, images are captioned in groups of a fixed size, each with a seed that follows from `seed` and its
    position. So neither the batch size nor the number of images changes a caption. `options` are those of
    `crossmatch.models.decoding_options`. Captions are returned by image id, in the collection's order.

    >>> class Size:
    ...     def caption(self, images):
    ...         return [f"an image of {len(image)} pixels" for image in images]
    >>> generate_captions(Size(), Collection.from_captions({"a": ["dots"], "b": ["a dot"]}, {"a": "...", "b": "."}.get))
    {'a': 'an image of 3 pixels', 'b': 'an image of 1 pixels'}
    """
    _require_supported(model, options)
    opener: Callable[[str], Any] = str
    if not takes_image_ids(model):
        require_images(collection)
        opener = collection.image_opener()
    ids = collection.image_ids.tolist()
    is_sampled = options.get("decoding") == SAMPLED
    size = IMAGES_PER_GROUP if is_sampled else batch
    groups = [ids[start : start + size] for start in range(0, len(ids), size)]
    threads = default_workers(opener) if workers is None else workers
    images = prefetch(lambda names: [load_image(opener, name) for name in names], groups, threads)
    captions: dict[str, str] = {}
    announced = time.monotonic()
    try:
        with progress_bar(len(ids), "captioning") as show:
            for n, names in enumerate(groups):
                state = np.random.SeedSequence([int(options.get("seed", 0)), n]).generate_state(1)
                seed = {"seed": int(state[0])} if is_sampled else {}
                texts = _check_captions(model.caption(next(images), **{**options, **seed}), names)
                captions |= zip(names, texts, strict=True)
                show(len(captions), "")
                if time.monotonic() - announced >= PROGRESS_INTERVAL and len(captions) < len(ids):
                    announce(f"captioned {len(captions):,} of {len(ids):,} images")
                    announced = time.monotonic()
    finally:
        images.close()  # type: ignore[attr-defined]
    return captions


def _require_supported(model: CaptionGenerator, options: Mapping[str, Any]) -> None:
    """Raise an error for an option that the model's `caption` does not accept."""
    parameters = inspect.signature(model.caption).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    unsupported = [name for name in options if name not in parameters]
    if unsupported:  # the decoding comes first, and may only be implied by the options after it
        option, supported = unsupported[-1], ", ".join(list(parameters)[1:]) or "no options"
        raise UsageError(
            f"{type(model).__name__} does not support the option {option.replace('_', ' ')}: its caption(images, …) takes "
            f"{supported}. Remove --{option.replace('_', '-')}."
        )


def _check_captions(values: Any, names: Sequence[str]) -> list[str]:
    """Return one text per image, with normalised white space, that can be written as UTF-8."""
    texts = list(values) if isinstance(values, list | tuple | np.ndarray) else values
    if not isinstance(texts, list) or len(texts) != len(names):
        got = f"{len(texts)} captions" if isinstance(texts, list) else f"a {type(values).__name__}"
        raise CrossmatchError(f"caption(images) returned {got} for {len(names)} images; expected a list with one text per image.")
    for name, text in zip(names, texts, strict=True):
        if not isinstance(text, str) or text != text.encode(errors="replace").decode():
            raise CrossmatchError(f"caption(images) returned {text!r:.60} for image {name!r}; expected a text.")
    return [" ".join(text.split()) for text in texts]


def count_captions(model: object, method: str, captions: Mapping[str, str]) -> int:
    """Count the captions for which a method of the model is true; 0 if it has no such method.

    `cut_short(captions)` tells which were cut before their end, `filled(captions)` which have as many words as the model allows.
    """
    test = getattr(model, method, None)
    return 0 if test is None else int(np.sum(test(list(captions.values()))))


def take_first_images(collection: Collection, limit: int | None) -> Collection:
    """Return the first `limit` images of a collection with their captions; all if `limit` is None."""
    images: IntArray = np.arange(collection.shape[0] if limit is None else min(limit, collection.shape[0]))
    captions = np.unique(collection.links[np.isin(collection.links[:, 0], images), 1])
    return collection.select(images, captions)


def write_coco_results(path: Path, captions: Mapping[str, str]) -> None:
    """Write COCO's file of results, `[{"image_id": …, "caption": …}]`; ids are numbers if all of them are."""
    are_numbers = all(name.isascii() and name.isdecimal() and str(int(name)) == name for name in captions)
    rows = [{"image_id": int(name) if are_numbers else name, "caption": text} for name, text in captions.items()]
    with atomic_write(path, durable=True) as file:
        file.write((json.dumps(rows, indent=0, ensure_ascii=False) + "\n").encode())
