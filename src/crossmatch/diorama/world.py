"""A diorama: scenes, five captions each, pictures, and the truth about all pairs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from crossmatch.data.arrays import BoolArray
from crossmatch.data.collection import Collection
from crossmatch.data.errors import UsageError
from crossmatch.data.io.progress import track
from crossmatch.diorama.caption_meaning import Caption
from crossmatch.diorama.caption_writer import describe
from crossmatch.diorama.scene_sampling import sample_scene
from crossmatch.diorama.scenes import Scene
from crossmatch.diorama.truth import truth

if TYPE_CHECKING:
    from PIL.Image import Image

SPLITS = {"train": 10_000, "val": 1_000, "test": 1_000}
SIZES = {"default": SPLITS, "coco": SPLITS | {"test": 5_000}, "tiny": {"train": 200, "val": 50, "test": 50}}
CAPTIONS_PER_SCENE = 5


@dataclass(frozen=True, eq=False)
class Diorama:
    """One split of the embedded world.

    Scene n depends only on the seed, the split and n, so larger splits start with the same scenes.
    `Diorama.make("test")` generates 1,000 scenes, and `Diorama.make("test", size="tiny")` the first 50 of them.

    Attributes:
        split: The name of the split: train, val or test.
        scenes: The scenes, in the order of their numbers.
        captions: The captions of all scenes, five for each.
        style: The drawing style of the pictures.
        seed: The seed of scenes and captions.

    >>> small = Diorama.make("test", images=3)
    >>> len(small.captions), small.collection.image_ids[0]
    (15, np.str_('test-00000'))
    >>> bool(small.truth[0, :5].all())              # the five captions of a scene are true of it
    True
    """

    split: str
    scenes: tuple[Scene, ...]
    captions: tuple[Caption, ...]
    style: str = "camera"
    seed: int = 0

    @classmethod
    def make(
        cls,
        split: str = "test",
        images: int | None = None,
        *,
        size: str = "default",
        seed: int = 0,
        style: str = "camera",
    ) -> Diorama:
        if split not in SPLITS:
            raise UsageError(f"Unknown diorama split {split!r}. Choose one of {', '.join(SPLITS)}.")
        if size not in SIZES:
            raise UsageError(f"Unknown diorama size {size!r}. Choose one of {', '.join(SIZES)}.")
        numbers = range(SIZES[size][split] if images is None else images)
        scenes: list[Scene] = []
        captions: list[Caption] = []
        for n in track(numbers, f"generating the {split} scenes"):
            scene = sample_scene("diorama", seed, split, n)
            scenes.append(scene)
            captions += describe(scene, "diorama", seed, split, n)
        return cls(split, tuple(scenes), tuple(captions), style, seed)

    @cached_property
    def collection(self) -> Collection:
        ids = [f"{self.split}-{n:05d}" for n in range(len(self.scenes))]
        owners = np.repeat(np.arange(len(ids)), CAPTIONS_PER_SCENE)
        index = {name: n for n, name in enumerate(ids)}
        return Collection(
            image_ids=np.asarray(ids),
            caption_ids=np.asarray([f"{ids[i]}#{n}" for i in range(len(ids)) for n in range(CAPTIONS_PER_SCENE)]),
            captions=tuple(c.text for c in self.captions),
            links=np.stack([owners, np.arange(len(owners))], axis=1),
            open_image=lambda name: self.picture(index[name]),
        )

    @cached_property
    def truth(self) -> BoolArray:
        """Whether a caption (column) is true of a scene (row), for every pair."""
        return truth(self.scenes, self.captions)

    def picture(self, n: int, pixels: int = 256) -> Image:
        from crossmatch.diorama.drawing import draw

        return draw(self.scenes[n], self.style, pixels)

    def digest(self) -> str:
        """Sixteen hexadecimal digits of all scenes and captions, equal on every machine."""
        digest = hashlib.sha256()
        for scene in self.scenes:
            content = repr((scene.setting, scene.objects, sorted(scene.relations), scene.light, scene.seed))
            digest.update(content.replace("SceneObject(", "Thing(").encode())  # the name when digests were first written
        for caption in self.captions:
            digest.update(repr((caption.text, caption.meaning)).encode())
        return digest.hexdigest()[:16]
