"""Hard negatives of the embedded world: edits of a scene and of one of its captions, whose truth is known.

Rows are those of `negatives`. Each negative is false of its scene, and there is a scene near it of which it is true and the caption
is false, so that `generate` can draw it. ADD is made with numbers alone (`diorama.edits`): "a dog and a cat" implies "a dog".
Source: miranda2024bivlc, sec. 3.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from crossmatch.benchmarks.sugarcrepe import CATEGORIES
from crossmatch.build.files import Asked, Output, Row, written
from crossmatch.build.material import collection_hash, in_order
from crossmatch.build.negatives import STEP, given, named_categories, plain, row_of
from crossmatch.core.progress import track
from crossmatch.diorama.dice import Dice
from crossmatch.diorama.edits import IN_PICTURES, Edit, misleading, realised
from crossmatch.diorama.reading import worded
from crossmatch.diorama.scenes import Scene
from crossmatch.diorama.wording import Wording
from crossmatch.diorama.world import Diorama


def world_negatives(
    world: Diorama, output: Path, *, seed: int = 0, categories: Sequence[str] = CATEGORIES, captions: int = 0
) -> dict[str, Any]:
    """Write hard negatives of the captions of a world into a folder, by edits of the world itself; the manifest."""
    held, chosen = in_order(world.collection), named_categories(categories)
    options = {"by": "diorama", "world": world.digest(), "categories": list(chosen), "captions": captions}

    def rows(made: Output) -> Iterator[Row]:
        places, texts = {name: n for n, name in enumerate(world.collection.image_ids.tolist())}, held.texts()
        asked = given(held, seed, captions)
        made.count("captions", len(asked))
        for one in track(asked, "editing the world"):
            scene, said = worded(world, places[one.image], one.id)
            others = {plain(texts[n]) for n in one.others}
            for category in chosen:
                edit = _edited(scene, said, category, Dice("negatives", seed, category, one.id), others)
                if edit is None:
                    made.count(f"no edit holds: {category}")
                else:
                    made.count(category)
                    yield row_of(one, category, edit.negative.text, changed(edit.positive.text, edit.negative.text))

    return written(output, Asked(STEP, {"collection": collection_hash(held)}, options, seed), rows)


def _edited(scene: Scene, said: Wording, category: str, dice: Dice, others: set[str]) -> Edit | None:
    """The first edit that the truth confirms, in words that none of the captions has."""
    for edit in IN_PICTURES[category](dice, scene, said):
        if misleading(scene, edit) and plain(edit.negative.text) not in others and realised(scene, edit, dice):
            return edit
    return None


def changed(before: str, after: str) -> tuple[str, str]:
    """What differs between two texts, from the first to the last word that does.

    >>> changed("A red dog by a lake.", "A blue dog by a lake."), changed("A dog.", "A dog and a cat.")
    (('red', 'blue'), ('dog.', 'dog and a cat.'))
    """
    one, other = before.split(), after.split()
    start = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    end = next((n for n, (a, b) in enumerate(zip(one[::-1], other[::-1], strict=False)) if a != b), min(len(one), len(other)))
    end = min(end, min(len(one), len(other)) - start)
    return " ".join(one[start : len(one) - end]), " ".join(other[start : len(other) - end])
