"""Captions from any model that tells them: one for each image of a collection, and a file of them as COCO has it."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.core.arrays import IntArray
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.pictures import opened
from crossmatch.core.progress import announce, steps
from crossmatch.core.whole import whole_file
from crossmatch.models.abilities import Teller, abilities
from crossmatch.models.cache import require_pictures
from crossmatch.models.pipeline import ahead, usual_workers

EVERY = 10.0  # seconds between two lines about how far it is, where there is no terminal
IMAGES = 64  # that are told of at a time; always, where words are drawn
DRAWN = "sampled"  # the decoding that depends on chance


def require_teller(model: object, name: str) -> Teller:
    """The model, if it tells captions; else an error that says which models do."""
    if isinstance(model, Teller):
        return model
    from crossmatch.models import families

    known = [each for each, family in families().items() if "caption" in family.abilities.split(", ") and each != "hf"]
    can = ", ".join(abilities(model)) or "nothing"
    raise WrongWords(
        f"{name} tells no captions: it has no caption(images), only: {can}. Those of {', '.join(known)} and the "
        "image-to-text models of hf: do. Train one: crossmatch train updown -o runs/updown"
    )


def told_captions(
    model: Teller, collection: Collection, *, batch: int = IMAGES, workers: int | None = None, **how: Any
) -> dict[str, str]:
    """A caption for each image, by its id, in the order of the collection.

    `how` goes to the model: options of `crossmatch.models.telling`. Where words are drawn, images are told of in groups of one
    size, each with a seed that follows from `seed` and its place: neither the batch nor how many images there are changes what is
    said of one.

    >>> class Size:
    ...     def caption(self, images):
    ...         return [f"a picture of {len(image)} pixels" for image in images]
    >>> told_captions(Size(), Collection.of({"a": ["dots"], "b": ["a dot"]}, {"a": "...", "b": "."}.get))
    {'a': 'a picture of 3 pixels', 'b': 'a picture of 1 pixels'}
    """
    _require_takes(model, how)
    require_pictures(collection)
    ids, open_image = collection.image_ids.tolist(), collection.open_image
    assert open_image is not None
    drawn = how.get("decoding") == DRAWN
    size = IMAGES if drawn else batch
    cuts = [ids[at : at + size] for at in range(0, len(ids), size)]
    threads = usual_workers(open_image) if workers is None else workers
    pictures = ahead(lambda names: [opened(open_image, name) for name in names], cuts, threads)
    found: dict[str, str] = {}
    told = time.monotonic()
    try:
        with steps(len(ids), "captioning") as show:
            for n, names in enumerate(cuts):
                seed = {"seed": _seed(int(how.get("seed", 0)), n)} if drawn else {}
                found |= zip(names, _checked(model.caption(next(pictures), **{**how, **seed}), names), strict=True)
                show(len(found), "")
                if time.monotonic() - told >= EVERY and len(found) < len(ids):
                    announce(f"captioned {len(found):,} of {len(ids):,} images")
                    told = time.monotonic()
    finally:
        pictures.close()  # type: ignore[attr-defined]
    return found


def _seed(seed: int, group: int) -> int:
    """The seed of a group of images: another one for each."""
    return int(np.random.SeedSequence([seed, group]).generate_state(1)[0])


def _require_takes(model: Teller, how: Mapping[str, Any]) -> None:
    """Refuse an option that the model's `caption` has no place for."""
    takes = inspect.signature(model.caption).parameters
    if any(each.kind is each.VAR_KEYWORD for each in takes.values()):
        return
    foreign = [key for key in how if key not in takes]
    if foreign:  # the decoding comes first, and may have been concluded from what comes after it
        option, there = foreign[-1], ", ".join(name for name in list(takes)[1:]) or "nothing beside the images"
        raise WrongWords(
            f"{type(model).__name__} cannot be told its {option.replace('_', ' ')}: its caption(images, …) takes {there}. "
            f"Leave --{option.replace('_', '-')} out."
        )


def _checked(given: Any, names: Sequence[str]) -> list[str]:
    """A text for each image, which can be written to a file."""
    said = list(given) if isinstance(given, list | tuple | np.ndarray) else given
    if not isinstance(said, list) or len(said) != len(names):
        shown = f"{len(said)} captions" if isinstance(said, list) else f"a {type(given).__name__}"
        raise CrossmatchError(f"caption(images) gave {shown} for {len(names)} images; a list with a text for each was expected.")
    for name, text in zip(names, said, strict=True):
        if not isinstance(text, str) or text != text.encode(errors="replace").decode():
            raise CrossmatchError(f"caption(images) gave {text!r:.60} for image {name!r}; a text was expected.")
    return [" ".join(text.split()) for text in said]


def cut_short(model: object, captions: Mapping[str, str]) -> int:
    """How many of its captions did not end and were cut by a model, if it can say (`cut_short`); else none."""
    return _counted(model, "cut_short", captions)


def filled(model: object, captions: Mapping[str, str]) -> int:
    """How many of its captions ended with the last word that the model's limit allows, if it can say (`filled`); else none."""
    return _counted(model, "filled", captions)


def _counted(model: object, which: str, captions: Mapping[str, str]) -> int:
    asked = getattr(model, which, None)
    return 0 if asked is None else int(np.sum(asked(list(captions.values()))))


def chosen_images(collection: Collection, limit: int | None) -> Collection:
    """The first images of a collection, or all."""
    which: IntArray = np.arange(collection.shape[0] if limit is None else min(limit, collection.shape[0]))
    captions = np.unique(collection.links[np.isin(collection.links[:, 0], which), 1])
    return collection.reordered(which, captions)


def write_results(path: Path, captions: Mapping[str, str]) -> None:
    """COCO's file of results: `[{"image_id": …, "caption": …}]`, at once. Ids are numbers where all of them are."""
    numbers = all(name.isascii() and name.isdecimal() and str(int(name)) == name for name in captions)
    rows = [{"image_id": int(name) if numbers else name, "caption": text} for name, text in captions.items()]
    with whole_file(path, durable=True) as file:
        file.write((json.dumps(rows, indent=0, ensure_ascii=False) + "\n").encode())
