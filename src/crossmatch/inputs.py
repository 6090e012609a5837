"""What is said about the input: items that cannot be used and are left out, captions that are cut off, pictures that move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crossmatch.core.benchmark import Loaded, without_images
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.skipped import Skipped
from crossmatch.core.trials import Trials
from crossmatch.models.abilities import looks
from crossmatch.models.likelihood import ByLikelihood
from crossmatch.models.pipeline import unusable


def _images(data: Loaded) -> list[str]:
    """The ids of all images, each once."""
    found: list[str] = np.unique(data.images if isinstance(data, Trials) else data.collection.image_ids).tolist()
    return found


def _opener(data: Loaded) -> Any:
    return data.open_image if isinstance(data, Trials) else data.collection.open_image


Left = tuple[Loaded, tuple[Skipped, ...], tuple[str, ...]]


def without_bad(tasks: Sequence[Loaded], workers: int | None = None) -> list[Left]:
    """The data of tasks without pictures that cannot be opened: all are tried, in one pass over each collection of pictures.

    With each come all items that were left out, on loading or now, and what must be said about it. Which pictures are left out
    does not depend on the model, so that two models are evaluated on the same items.
    """
    wanted: dict[int, tuple[Any, set[str]]] = {}
    for data in tasks:
        opener = _opener(data)
        if opener is not None:
            wanted.setdefault(id(opener), (opener, set()))[1].update(_images(data))
    bad = {key: unusable(opener, sorted(names), workers) for key, (opener, names) in wanted.items()}
    out: list[Left] = []
    for data in tasks:
        before: tuple[Skipped, ...] = getattr(data, "skipped", ())
        images, why = _images(data), bad.get(id(_opener(data)), {})
        here = tuple(Skipped("image", name, why[name]) for name in images if name in why)
        if here and len(here) == len(images):
            raise CrossmatchError(f"none of the {len(here):,} pictures can be opened; the first: {here[0].why}")
        kept = without_images(data, why)
        out.append((kept, before + here, _skipped(data, kept, before, here)))
    return out


def _skipped(data: Loaded, kept: Loaded, before: Sequence[Skipped], here: Sequence[Skipped]) -> tuple[str, ...]:
    notes = []
    if before:
        what = "captions" if before[0].kind == "caption" else "trials with a caption"
        notes.append(f"skipped: {len(before):,} {what} that are empty ({_few(before)}); never to be compared with all")
    if here:
        n, m = ((len(d.ids) if isinstance(d, Trials) else d.collection.shape[1]) for d in (data, kept))
        gone = f"{n - m:,} {'trials' if isinstance(data, Trials) else 'captions'}"
        notes.append(
            f"skipped: {len(here):,} of {len(_images(data)):,} images cannot be opened, and were left out with {gone} "
            f"({_few(here)}); never to be compared with all"
        )
    return tuple(notes)


def _few(items: Sequence[Skipped], most: int = 3) -> str:
    return ", ".join(one.id for one in items[:most]) + ", …" * (len(items) > most)


def truncated(model: object, data: Loaded) -> tuple[tuple[str, ...], dict[str, int]]:
    """How many captions the model's tokenizer cuts off, where it tells."""
    asked = model.model if isinstance(model, ByLikelihood) else model
    tell = getattr(asked, "truncated", None)
    captions = data.captions.ravel().tolist() if isinstance(data, Trials) else data.collection.captions
    if tell is None or not captions:
        return (), {}
    distinct, times = np.unique(np.asarray(captions, dtype=object), return_counts=True)
    cut = np.asarray(tell(distinct.tolist()))
    if cut.shape != distinct.shape or cut.dtype != bool:
        raise CrossmatchError(
            f"truncated(texts) gave {cut.dtype} of shape {cut.shape} for {len(distinct):,} texts; true or false was expected each."
        )
    count = int(times[cut].sum())
    if not count:
        return (), {}
    longest = getattr(asked, "longest", None)
    limit = f"the {longest:,} tokens" if isinstance(longest, int) else "what"
    note = f"{count:,} of {len(captions):,} captions are longer than {limit} that the model reads; the rest was cut off"
    return (note,), {"truncated-captions": count}


def animated(model: object, data: Loaded) -> tuple[str, ...]:
    """Pictures with several frames, of which the model sees the first."""
    find = getattr(_opener(data), "animated", None) if looks(model) else None
    found: list[str] = find(_images(data)) if find else []
    shown = ", ".join(found[:3]) + ", …" * (len(found) > 3)
    return (f"{len(found):,} pictures have several frames, and the first was taken ({shown})",) if found else ()
