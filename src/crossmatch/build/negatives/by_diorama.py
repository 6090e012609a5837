"""Hard negatives of the embedded world: edits of a scene and its caption, whose truth is known.

Rows are those of `by_rules`. Each negative is false of its scene, and a similar scene exists of which it is true and the caption is
false, so that `generate` can draw it. Additions need numbers (`diorama.edits`), because "a dog and a cat" implies "a dog".
Source: miranda2024bivlc, sec. 3.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from crossmatch.benchmarks.sugarcrepe import CATEGORIES
from crossmatch.build.negatives.by_rules import (
    STEP,
    NegativeCaption,
    check_categories,
    negative_row,
    normalise_text,
    select_captions,
)
from crossmatch.build.step_files import Row, StepOutput, StepSpec, write_step
from crossmatch.build.step_inputs import collection_hash, sort_by_id
from crossmatch.data.io.progress import track
from crossmatch.diorama.caption_parsing import find_wording
from crossmatch.diorama.edits import IMAGE_EDITS, Edit, is_true_negative, realise_edit
from crossmatch.diorama.random_choices import Dice
from crossmatch.diorama.scenes import Scene
from crossmatch.diorama.wording import Wording
from crossmatch.diorama.world import Diorama


def write_diorama_negatives(
    world: Diorama, output: Path, *, seed: int = 0, categories: Sequence[str] = CATEGORIES, captions: int = 0
) -> dict[str, Any]:
    """Write hard negatives of the captions of a world into a folder, by edits of its scenes.

    Args:
        world: The embedded world.
        output: Folder of the step.
        seed: Seed of the selection of captions and edits.
        categories: Categories to write.
        captions: Number of random captions; 0 for all.

    Returns:
        The manifest.

    >>> from crossmatch import Diorama
    >>> world = Diorama.make("test", size="tiny")
    >>> manifest = write_diorama_negatives(world, folder / "negatives", captions=20, categories=["replace/att", "swap/obj"])
    >>> manifest["counts"]["replace/att"], manifest["counts"]["swap/obj"]
    (9, 4)
    """
    data, chosen = sort_by_id(world.collection), check_categories(categories)
    options = {"by": "diorama", "world": world.digest(), "categories": list(chosen), "captions": captions}

    def make_rows(step: StepOutput) -> Iterator[Row]:
        positions, texts = {name: n for n, name in enumerate(world.collection.image_ids.tolist())}, data.texts()
        selected = select_captions(data, seed, captions)
        step.count("captions", len(selected))
        for caption in track(selected, "editing the world"):
            scene, wording = find_wording(world, positions[caption.image], caption.id)
            existing = {normalise_text(texts[n]) for n in caption.image_captions}
            for category in chosen:
                edit = _find_edit(scene, wording, category, Dice("negatives", seed, category, caption.id), existing)
                if edit is None:
                    step.count(f"no edit holds: {category}")
                else:
                    step.count(category)
                    changed = changed_words(edit.positive.text, edit.negative.text)
                    yield negative_row(caption, category, NegativeCaption(edit.negative.text, *changed))

    return write_step(output, StepSpec(STEP, {"collection": collection_hash(data)}, options, seed), make_rows)


def _find_edit(scene: Scene, wording: Wording, category: str, dice: Dice, existing: set[str]) -> Edit | None:
    """The first edit that is false of the scene, drawable, and not one of the captions."""
    for edit in IMAGE_EDITS[category](dice, scene, wording):
        if is_true_negative(scene, edit) and normalise_text(edit.negative.text) not in existing and realise_edit(scene, edit, dice):
            return edit
    return None


def changed_words(before: str, after: str) -> tuple[str, str]:
    """The words that differ between two texts, from the first to the last difference.

    >>> changed_words("A red dog by a lake.", "A blue dog by a lake."), changed_words("A dog.", "A dog and a cat.")
    (('red', 'blue'), ('dog.', 'dog and a cat.'))
    """
    old, new = before.split(), after.split()
    shorter = min(len(old), len(new))
    start = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), shorter)
    end = next((n for n, (a, b) in enumerate(zip(old[::-1], new[::-1], strict=False)) if a != b), shorter)
    end = min(end, shorter - start)
    return " ".join(old[start : len(old) - end]), " ".join(new[start : len(new) - end])
