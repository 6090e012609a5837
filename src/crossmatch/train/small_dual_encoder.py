"""Training of the small dual encoder on the embedded world: the recipe `dual`. Takes minutes on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.errors import MissingDependencyError
from crossmatch.data.scores import Embeddings
from crossmatch.models.baselines.small_dual_encoder import (
    PAD,
    DualEncoderNet,
    SmallDualEncoder,
    SmallDualEncoderConfig,
    build_vocabulary,
    load,
)
from crossmatch.models.zoo.layers import WIDTH
from crossmatch.train.data.diorama_images import draw_split
from crossmatch.train.data.sources import DataOptions, TrainingSource, split_sizes
from crossmatch.train.objectives.info_nce import info_nce
from crossmatch.train.recipe import TrainingRecipe
from crossmatch.train.reproducibility import reproducible
from crossmatch.train.small_model_training import (
    MAX_SCALE,
    PROBED_IMAGES,
    PixelFeatures,
    SmallTraining,
    check_small_recipe,
    describe_training,
    hash_world,
    hits_by_links,
    texts_by_image,
    train_small_model,
    validation_collection,
)

try:
    import torch
    from torch import Tensor
except ImportError as absent:
    raise MissingDependencyError("PyTorch", "models") from absent

OBJECTIVE = "captions-by-place"  # the only objective of the recipe, see `batch_loss`

DrawnSplit = tuple[NDArray[np.uint8], list[str]]  # images (N, side, side, 3), and five captions for each


@dataclass(frozen=True)
class DualSizes:
    """The table `[model]` of the recipe."""

    dimensions: int = field(default=256, metadata=WIDTH)
    width: int = field(default=12, metadata=WIDTH)


def train_dual(folder: Path | str, **options: Any) -> SmallDualEncoder:
    """Train the small dual encoder, or load it from a folder where it is finished (see `train_small_model`)."""
    model: SmallDualEncoder = train_small_model("dual", folder, **options)
    return model


# -- interface of `crossmatch.train.run_recipe`


def require_valid_recipe(recipe: TrainingRecipe) -> None:
    """Refuse a recipe with unknown sizes, features or objective."""
    check_small_recipe(recipe, DualSizes, OBJECTIVE)


def open_source(recipe: TrainingRecipe, options: DataOptions) -> TrainingSource:
    """Declare the training data: images of the embedded world and their captions."""
    train, validation = split_sizes(options)
    side = PixelFeatures(**recipe.features).side
    pictures, captions = draw_split("train", PROBED_IMAGES, side)
    digest = hash_world([train, validation, side, captions], pictures.tobytes())
    return TrainingSource("diorama", digest, lambda: (draw_split("train", train, side), draw_split("val", validation, side)))


def make_training(recipe: TrainingRecipe, source: TrainingSource, train: DrawnSplit, validation: DrawnSplit) -> SmallTraining:
    """Make the training of an untrained model. It keeps the weights of the last epoch."""
    pictures, captions = train
    side, sizes = PixelFeatures(**recipe.features).side, DualSizes(**recipe.model)
    config = SmallDualEncoderConfig(build_vocabulary(captions), side, sizes.dimensions, sizes.width)
    with reproducible(recipe.train.seed, recipe.train.threads):
        model = SmallDualEncoder(config, recipe=describe_training(recipe, source))
        rng_state = torch.get_rng_state()
    images, texts = torch.from_numpy(pictures), texts_by_image(captions, config.vocabulary)
    return SmallTraining(
        model,
        model.net,
        len(images),
        recipe.train,
        rng_state,
        loss_of_images=lambda rows: batch_loss(model.net, shift_randomly(images[rows]), texts[rows]),
        measure=lambda: measure_retrieval(model, *validation),
        keeps_last_epoch=True,
    )


def load_model(folder: Path) -> SmallDualEncoder:
    """Load the trained model of a folder."""
    return load(folder)


# -- shared by the small models


# -- the training


def batch_loss(net: DualEncoderNet, pictures: Tensor, texts: Tensor) -> Tensor:
    """Mean of five contrastive losses, one for each place in the lists of captions.

    An image costs far more time than a caption, so each is used with all of its captions at once. Captions of the same place have
    similar lengths, which saves padding, and a similar level of detail, which makes them each other's hard negatives. All other
    pairs of the batch count as negatives, also those that happen to be true. Source of the loss: radford2021clip, fig. 3.
    """
    images = net.embed_images(pictures)
    scale = net.log_scale.exp().clamp(max=MAX_SCALE)
    places = [numbers[:, : int((numbers != PAD).sum(dim=1).max())] for numbers in texts.unbind(dim=1)]
    return torch.stack([info_nce(scale * images @ net.embed_texts(numbers).T) for numbers in places]).mean()


def measure_retrieval(model: SmallDualEncoder, pictures: NDArray[np.uint8], captions: Sequence[str]) -> dict[str, float]:
    """hit@1 and hit@10 in per cent, in both directions, and their sum."""
    collection = validation_collection(captions, len(pictures))
    images, texts = model.embed_pixels(pictures), model.embed_texts(captions)
    return hits_by_links(collection, Embeddings(collection.image_ids, images, collection.caption_ids, texts))


def shift_randomly(pictures: Tensor) -> Tensor:
    """Shift all images of a batch by up to two pixels, cyclically. Never mirror: captions mention left and right."""
    down, right = torch.randint(-2, 3, (2,)).tolist()
    return pictures.roll((down, right), dims=(1, 2))
