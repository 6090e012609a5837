"""What the two small models share: the check of a recipe, the data, the training and its validation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.data.collection import Collection
from crossmatch.data.errors import MissingDependencyError, UsageError
from crossmatch.data.judgements import Judgements
from crossmatch.data.scores import Embeddings, Matrix
from crossmatch.data.settings import validate_settings
from crossmatch.diorama.world import CAPTIONS_PER_SCENE
from crossmatch.models.baselines.small_dual_encoder import (
    number_words,
)
from crossmatch.train.checkpoints import DifferentTrainingError
from crossmatch.train.data.sources import DataOptions, TrainingSource
from crossmatch.train.output_folder import trained_family
from crossmatch.train.recipe import Override, TrainingRecipe, TrainSettings
from crossmatch.train.validation import sum_hits

try:
    import torch
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependencyError("PyTorch", "models") from absent

DIRECTIONS, HIT_METRICS = ("i2t", "t2i"), ("hit@1", "hit@10")
MAX_SCALE = 100.0  # the temperature stays above 0.01; radford2021clip, sec. 2.5
MIN_PIXELS = 8
PROBED_IMAGES = 4  # images that enter the hash of the data


@dataclass(frozen=True)
class PixelFeatures:
    """The table `[features]` of a small model's recipe: pixels of an image, or of a region's crop."""

    kind: str = "pixels"
    side: int = field(default=64, metadata={"least": MIN_PIXELS, "most": 1024})


def train_small_model(
    recipe: str,
    folder: Path | str,
    *,
    images: int | None = None,
    epochs: int | None = None,
    seed: int = 0,
    pixels: int | None = None,
    size: str = "default",
) -> Any:
    """Run the recipe of a small model; a model of the same family with other settings is replaced.

    `pixels` is the side of an image or crop, `size` that of the embedded world.
    """
    from crossmatch.train.run_recipe import train_recipe

    overrides = [
        Override(table, key, value, f"{argument}={value}")
        for argument, table, key, value in (
            ("images", "train", "images", images),
            ("epochs", "train", "epochs", epochs),
            ("seed", "train", "seed", seed),
            ("pixels", "features", "side", pixels),
        )
        if value is not None
    ]
    options = DataOptions(images=images, size=size)
    try:
        return train_recipe(recipe, folder, options=options, overrides=overrides)
    except DifferentTrainingError:
        if trained_family(Path(folder)) not in (None, recipe):
            raise
        return train_recipe(recipe, folder, options=options, overrides=overrides, restart=True)


def check_small_recipe(recipe: TrainingRecipe, sizes: type, objective: str) -> None:
    """Refuse a small model's recipe with unknown sizes, features or objective."""
    where = f"The recipe {recipe.name}"
    validate_settings(recipe.model, sizes, f"{where}: [model]")
    features = validate_settings(recipe.features, PixelFeatures, f"{where}: [features]")
    if features.get("kind", "pixels") != "pixels":
        raise UsageError(f"{where}: [features] has kind = {features['kind']!r}; expected 'pixels'.")
    if dict(recipe.objective) != {"name": objective}:
        raise UsageError(f"{where}: [objective] must be name = {objective!r} and have no options.")
    if recipe.negatives.kind != "none":
        raise UsageError(f"{where} cannot use hard negatives. Set negatives.kind=none.")


def hash_world(facts: Sequence[Any], content: bytes) -> str:
    """Twelve hexadecimal digits of the data's settings and of a sample of its content."""
    return hashlib.sha256(json.dumps(list(facts)).encode() + content).hexdigest()[:12]


def describe_training(recipe: TrainingRecipe, source: TrainingSource) -> dict[str, Any]:
    """The entry `recipe` of model.json."""
    identity = {"name": recipe.name, "hash": recipe.digest(), "data": source.name, "data_hash": source.digest}
    return identity | recipe.as_table()


def texts_by_image(captions: Sequence[str], vocabulary: Sequence[str]) -> Tensor:
    """Word numbers of the captions: (images, captions of an image, words)."""
    return torch.from_numpy(number_words(captions, vocabulary)).view(len(captions) // CAPTIONS_PER_SCENE, CAPTIONS_PER_SCENE, -1)


@dataclass(eq=False)
class SmallTraining:
    """Training of a small model: batches of images, each with all five captions, in a random order per epoch."""

    model: Any
    net: nn.Module  # all weights that are trained
    images: int  # number of training images
    settings: TrainSettings
    initial_rng_state: Tensor | None
    loss_of_images: Callable[[Tensor], Tensor]  # from the numbers of the images of a batch
    measure: Callable[[], dict[str, float]]
    keeps_last_epoch: bool = False
    zero_loss_hint: str = ""
    _order: Tensor = field(default_factory=lambda: torch.empty(0), init=False, repr=False)

    @property
    def steps_per_epoch(self) -> int:
        return max(1, self.images // self.settings.batch)

    def prepare(self, is_fresh: bool) -> None:
        pass

    def begin_epoch(self, epoch: int) -> None:
        self._order = torch.randperm(self.images)

    def loss(self, step: int, progress: float) -> Tensor:
        return self.loss_of_images(self._order[step * self.settings.batch :][: self.settings.batch])

    def validate(self) -> dict[str, float]:
        return self.measure()


def hits_by_links(collection: Collection, scores: Embeddings | Matrix) -> dict[str, float]:
    """hit@1 and hit@10 in per cent, in both directions, by the original links, and their sum."""
    links = Judgements.from_links(collection)
    return sum_hits(scores, {direction: links.candidate_lists(direction) for direction in DIRECTIONS}, HIT_METRICS)


def validation_collection(captions: Sequence[str], images: int) -> Collection:
    """A collection of images with equally many captions, which are listed image after image."""
    texts = np.array_split(np.asarray(captions), images)
    return Collection.from_captions({f"{n:06d}": image_captions.tolist() for n, image_captions in enumerate(texts)})
