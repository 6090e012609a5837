"""Hard negatives for training: a caption that is almost true of an image, and an image of which that caption is true.

On the embedded world they come from editing a scene and one of its captions, as `crossmatch.diorama.trials` does for the test
split; those of a user come from a file (`crossmatch.train.data.negative_files`). Both become a `TrainingSet` whose links are the
pairs with a negative, and whose `hard` contains the negatives.

    CACHE/crossmatch/features/edits-DIGEST.json    the edited captions
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.arrays import IntArray
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.atomic_write import atomic_write
from crossmatch.data.io.file_contents import UndecodableFileError, decode_json_file
from crossmatch.diorama.caption_writer import word_captions
from crossmatch.diorama.edited_scenes import edited_scenes, groups_of
from crossmatch.diorama.edits import CAPTION_EDITS, IMAGE_EDITS, TRIES, Edit, is_true_negative, is_true_of, realise_edit
from crossmatch.diorama.random_choices import Dice
from crossmatch.diorama.scene_sampling import sample_scene
from crossmatch.diorama.scenes import Scene
from crossmatch.diorama.world import CAPTIONS_PER_SCENE
from crossmatch.train.data.diorama_images import ScenePart, draw_pixels, map_scene_parts
from crossmatch.train.data.training_set import ImageStore, JoinedStore, PixelStore, TrainingSet
from crossmatch.train.recipe import NegativeSettings

if TYPE_CHECKING:
    from PIL.Image import Image

PARTS_PER_MILLION = 1_000_000
EDITED, UNEDITED = "edited", "unedited"  # what a negative image shows: the edit, or the scene without it


# -- training sets with negatives


def add_negatives(
    data: TrainingSet, links: IntArray, texts: Sequence[str], store: ImageStore | None = None, images: IntArray | None = None
) -> TrainingSet:
    """Return a training set of these links only, each with a negative caption and perhaps a negative image.

    `images` are the numbers of the negative images in `store`.

    >>> pets = TrainingSet(PixelStore(np.zeros((2, 8, 8, 3), np.uint8)), ("a cat", "a dog"), np.array([[0, 0], [1, 1]]))
    >>> with_negatives = add_negatives(pets, pets.links, ["a dog", "a red dog"])
    >>> with_negatives.captions, with_negatives.hard.tolist()
    (('a cat', 'a dog', 'a red dog'), [[-1, 1], [-1, 2]])
    """
    captions, caption = append_texts(data.captions, texts)
    if store is None or images is None:
        return TrainingSet(data.store, captions, links, np.stack([np.full(len(links), -1), caption], axis=1))
    hard = np.stack([len(data.store) + np.asarray(images, dtype=np.int64), caption], axis=1)
    return TrainingSet(JoinedStore((data.store, store)), captions, links, hard)


def append_texts(captions: tuple[str, ...], texts: Sequence[str]) -> tuple[tuple[str, ...], IntArray]:
    """Append new texts to captions; return all captions, and the number of each text among them.

    >>> append_texts(("a cat", "a dog"), ["a cow", "a cat", "a cow"])
    (('a cat', 'a dog', 'a cow'), array([2, 0, 2]))
    """
    existing = set(captions)
    all_captions = (*captions, *dict.fromkeys(text for text in texts if text not in existing))
    number = {text: n for n, text in reversed(list(enumerate(all_captions)))}
    return all_captions, np.asarray([number[text] for text in texts], dtype=np.int64)


def diorama_negatives(
    plain: TrainingSet, split: str, images: int, features: Mapping[str, Any], negatives: NegativeSettings
) -> TrainingSet:
    """Add an edit of each scene as hard negatives to a split of the embedded world; `plain` is the split itself.

    All kinds have the same links: the captions that an edit changes, with their images. The negatives differ:

        pairs     the caption and the scene after the edit, as in `trials.bivlc`
        texts     the caption after an edit as in `trials.sugarcrepe`, which may add other words (see `text_edit`)
        unused    none: only the other links of a batch are negatives

    The edits do not depend on the noise, and an image that is wrong at some noise is wrong at any higher noise.
    """
    edits = diorama_edits(split, images, negatives)
    if len(edits) < 2:
        raise CrossmatchError(
            f"{images} scenes of the split {split} allow only {len(edits)} edits; at least 2 are needed. Use more images."
        )
    links = np.asarray([(n, CAPTIONS_PER_SCENE * n + place) for n, place, _, _ in edits], dtype=np.int64)
    texts = [text for _, _, _, text in edits]
    if negatives.kind == "unused":
        return replace(plain, links=links)
    if negatives.kind == "texts":
        return add_negatives(plain, links, texts)
    is_wrong = np.asarray([is_wrong_image(negatives, split, n, category) for n, _, category, _ in edits])
    stores = [_negative_store(split, images, features, negatives, EDITED)]
    if is_wrong.any():
        stores.append(_negative_store(split, images, features, negatives, UNEDITED))
    return add_negatives(plain, links, texts, JoinedStore(tuple(stores)), np.arange(len(edits)) + len(edits) * is_wrong)


def diorama_trials(
    plain: TrainingSet, split: str, images: int, features: Mapping[str, Any], negatives: NegativeSettings
) -> TrainingSet:
    """Validation trials, the same for all kinds of negatives and all noise levels.

    Each has two images and two captions, as in `trials.bivlc`, and all images show their edits.
    """
    return diorama_negatives(plain, split, images, features, replace(negatives, kind="pairs", noise=0.0))


def is_wrong_image(negatives: NegativeSettings, split: str, n: int, category: str) -> bool:
    """Whether the negative image of an edit does not show the edit."""
    dice = Dice("wrong image", negatives.seed, split, n, category)
    return dice.below(PARTS_PER_MILLION) < round(negatives.noise * PARTS_PER_MILLION)


# -- edits of the embedded world


class SceneEdit(NamedTuple):
    """An edit of scene `number`: the place of the caption that it changes, and the scene after it."""

    number: int
    drawn: tuple[str, ...]  # the categories that were drawn: its own is the last, the ones before were not possible
    place: int
    edit: Edit
    scene: Scene


def edit_scene(split: str, n: int, count: int = 1, seed: int = 0) -> Iterator[SceneEdit]:
    """Make up to `count` edits of a scene, of different random categories. Each changes any of the five captions.

    Edits are as in `trials.bivlc`: the caption is true of the scene and false of the edited scene; the negative caption the
    reverse.

    >>> edit, = edit_scene("train", 0)
    >>> print(edit.edit.positive.caption.text, edit.edit.negative.caption.text, sep="\\n")
    A picture of an orange ship with stripes and a brown car by a lake.
    A picture of an orange ship with stripes and a green car by a lake.
    """
    dice, scene = Dice("hard", seed, split, n), sample_scene("diorama", 0, split, n)
    wordings, edit_count = word_captions(scene, "diorama", 0, split, n), 0
    drawn: list[str] = []
    for category in dice.shuffled(tuple(IMAGE_EDITS)):
        if edit_count == count:
            return
        drawn.append(category)
        proposal = next(_propose_edits(dice, scene, wordings, category), None)
        if proposal is not None:
            edit_count += 1
            yield SceneEdit(n, tuple(drawn), *proposal)
            drawn = []


def _propose_edits(dice: Dice, scene: Scene, wordings: Sequence[Any], category: str) -> Iterator[tuple[int, Edit, Scene]]:
    for place in dice.shuffled(range(len(wordings))):
        for edit in IMAGE_EDITS[category](dice, scene, wordings[place]):
            after = realise_edit(scene, edit, dice) if is_true_negative(scene, edit) else None
            if after is not None:
                yield place, edit, after


def text_edit(scene_edit: SceneEdit, split: str, seed: int = 0) -> Edit:
    """Return an edit of the same caption as in SugarCrepe: the first of the drawn categories that is possible in words.

    Words can be added to any caption if no image is edited; with an image, only to a caption with a number that becomes false. So
    some captions get an addition here instead of the replacement, swap or other addition of the pair; all others have the same
    edit.

    >>> edits = [edit for n in (0, 5, 8) for edit in edit_scene("train", n)]
    >>> [(edit.edit.category, text_edit(edit, "train").category) for edit in edits]
    [('replace/att', 'replace/att'), ('add/att', 'add/att'), ('swap/att', 'add/obj')]
    """
    scene = sample_scene("diorama", 0, split, scene_edit.number)
    for category in scene_edit.drawn:
        if CAPTION_EDITS[category] is not IMAGE_EDITS[category]:
            dice = Dice("in words", seed, split, scene_edit.number, category)
            for edit in CAPTION_EDITS[category](dice, scene, scene_edit.edit.positive):
                if is_true_negative(scene, edit) and realise_edit(scene, edit, dice, unlike=False):
                    return edit
    return scene_edit.edit


def unedited_scene(scene_edit: SceneEdit, split: str, seed: int = 0) -> Scene:
    """Return what a generator draws if it misses the edit: the original scene in another layout.

    The negative caption is false of it. If there is no other layout, it is the same scene drawn with another seed.
    """
    before = sample_scene("diorama", 0, split, scene_edit.number)
    dice = Dice("unedited", seed, split, scene_edit.number, scene_edit.edit.category)
    negative = scene_edit.edit.negative.caption.meaning
    for version in edited_scenes(before, groups_of(before), dice, TRIES):
        if version.objects != before.objects and not is_true_of(negative, version):
            return version
    return replace(before, seed=dice.below(2**32))


def _read_edits(path: Path) -> list[tuple[int, int, str, str]] | None:
    """The cached edits; None if the file is missing or damaged."""
    try:
        rows = decode_json_file(path)
    except UndecodableFileError:
        return None
    kinds = [int, int, str, str]
    if not isinstance(rows, list) or any(not isinstance(row, list) or list(map(type, row)) != kinds for row in rows):
        return None
    return [(n, place, category, text) for n, place, category, text in rows]


def diorama_edits(split: str, images: int, negatives: NegativeSettings) -> list[tuple[int, int, str, str]]:
    """Scene, place of the caption, category and negative caption of each edit; cached on disk."""
    from crossmatch.data.io.paths import features_folder
    from crossmatch.train.data.region_feature_cache import cache_errors

    texts_only = negatives.kind == "texts"
    facts = [split, images, negatives.each, negatives.seed, texts_only, _hash_first_edits(split, negatives)]
    digest = hashlib.sha256(json.dumps(["edits", *facts]).encode()).hexdigest()[:16]
    path = features_folder() / f"edits-{digest}.json"
    if (cached := _read_edits(path)) is not None:
        return cached
    parts = map_scene_parts(partial(_edit_part, negatives.each, negatives.seed, texts_only), split, images, 0)
    edits = [edit for part in parts for edit in part]
    with cache_errors(path.parent), atomic_write(path) as file:
        file.write(json.dumps(edits).encode())
    return edits


def _edit_part(count: int, seed: int, texts_only: bool, part: ScenePart) -> list[tuple[int, int, str, str]]:
    rows = []
    for scene_edit in _scene_edits(part, count, seed):
        edit = text_edit(scene_edit, part.split, seed) if texts_only else scene_edit.edit
        rows.append((scene_edit.number, scene_edit.place, edit.category, edit.negative.text))
    return rows


def _scene_edits(part: ScenePart, count: int, seed: int) -> Iterator[SceneEdit]:
    for n in part.numbers:
        yield from edit_scene(part.split, n, count, seed)


def _hash_first_edits(split: str, negatives: NegativeSettings) -> str:
    """Hash of the edits of the first scenes, which changes with the version of the embedded world."""
    edits = [edit for n in range(4) for edit in edit_scene(split, n, negatives.each, negatives.seed)]
    texts = [(edit.place, edit.edit.negative.text, text_edit(edit, split, negatives.seed).negative.text) for edit in edits]
    content = [texts, *((edit.scene.objects, unedited_scene(edit, split, negatives.seed).objects) for edit in edits)]
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


# -- negative images


def _negative_store(split: str, images: int, features: Mapping[str, Any], negatives: NegativeSettings, which: str) -> ImageStore:
    """The negative images of all edits, `EDITED` or `UNEDITED`."""
    options = dict(features)
    make_scenes = partial(negative_scenes, negatives.each, negatives.seed, which)
    kind = options.pop("kind", "regions")
    if kind == "pictures":  # prepared by another library, drawn when they are used
        scenes = [scene for part in map_scene_parts(make_scenes, split, images, 0) for scene in part]
        prepared: ImageStore = options["prepare"](_scene_collection(scenes, negatives.style))
        return prepared
    if kind == "pixels":
        draw_part = partial(_draw_part, make_scenes, negatives.style)
        return PixelStore(np.concatenate(map_scene_parts(draw_part, split, images, int(options.get("side", 64)))))
    from crossmatch.models.zoo.region_extractors import ExtractorSettings
    from crossmatch.train.data.region_feature_cache import scene_features

    facts = ["hard", split, images, negatives.each, negatives.seed, which, _hash_first_edits(split, negatives)]
    return scene_features(facts, make_scenes, negatives.style, split, images, ExtractorSettings(**options))


def _scene_collection(scenes: Sequence[Scene], style: str) -> Collection:
    """Scenes as a collection of images that are drawn when they are opened."""

    def open_image(name: str) -> Image:
        from crossmatch.diorama.drawing import draw

        return draw(scenes[int(name)], style)

    return Collection.from_captions({str(n): [f"scene {n}"] for n in range(len(scenes))}, open_image)  # a collection has captions


def negative_scenes(count: int, seed: int, which: str, part: ScenePart) -> list[Scene]:
    """Scenes of the negative images of a part of a split."""
    edits = _scene_edits(part, count, seed)
    return [edit.scene if which == EDITED else unedited_scene(edit, part.split, seed) for edit in edits]


def _draw_part(make_scenes: Any, style: str, part: ScenePart) -> NDArray[np.uint8]:
    pictures = [draw_pixels(scene, style, part.pixels) for scene in make_scenes(part)]
    return np.asarray(pictures, dtype=np.uint8).reshape(-1, part.pixels, part.pixels, 3)
