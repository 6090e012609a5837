"""Training of the small grounding model on the embedded world: the recipe `grounded`. Takes minutes on a CPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the usual name

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.scores import Matrix
from crossmatch.diorama.caption_writer import describe
from crossmatch.diorama.object_kinds import KINDS
from crossmatch.diorama.scene_sampling import sample_scene
from crossmatch.diorama.scenes import COLOURS, SETTINGS, TEXTURES, Scene
from crossmatch.models.baselines.small_dual_encoder import PAD, UNKNOWN, build_vocabulary
from crossmatch.models.baselines.small_grounder import (
    GrounderNet,
    SmallGrounder,
    SmallGrounderConfig,
    load,
    locate_regions,
    make_membership,
)
from crossmatch.models.regions.crops import crop_regions, get_regions
from crossmatch.models.zoo.layers import WIDTH
from crossmatch.train.data.diorama_images import ScenePart, map_scene_parts
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

OBJECTIVE = "captions-by-place-and-labels"  # the only objective of the recipe, see `batch_loss`
# Labels of a region: kind of the object, or setting of the whole image; colour; texture.
LABELS = ((*SETTINGS, *(kind.name for kind in KINDS)), COLOURS, TEXTURES)
LABEL_NUMBERS = tuple({name: n for n, name in enumerate(names)} for names in LABELS)
LABEL_COUNTS = [len(names) for names in LABELS]
LABEL_WEIGHTS = (1.5, 0.1, 0.1)  # of kind, colour and texture: captions alone teach colours and textures well enough
NO_LABEL = -100  # colour and texture of a whole image; `cross_entropy` ignores it
UNKNOWN_SHARE = 0.02  # share of words that training replaces by the unknown word, so that the model learns to handle it


@dataclass(frozen=True)
class GrounderSizes:
    """The table `[model]` of the recipe."""

    dimensions: int = field(default=128, metadata=WIDTH)
    width: int = field(default=14, metadata=WIDTH)
    smoothing: float = field(default=4.0, metadata={"above": 0})  # λ of the attention


@dataclass(frozen=True, eq=False)
class DrawnRegions:
    """A split of the world: all regions, the start of each image's regions, and five captions per image."""

    crops: NDArray[np.uint8]  # (regions, side, side, 3)
    boxes: FloatArray  # (regions, 4)
    labels: IntArray  # (regions, 3): numbers of the names in `LABELS`
    begin: IntArray  # (images + 1,)
    captions: list[str]

    def __len__(self) -> int:
        return len(self.begin) - 1


def draw_regions(split: str, images: int, pixels: int, workers: int = 2) -> DrawnRegions:
    """Draw the images of `Diorama.make(split, images)` and crop their regions.

    >>> drawn = draw_regions("val", 2, pixels=16)
    >>> drawn.crops.shape, drawn.begin.tolist(), len(drawn.captions)
    ((8, 16, 16, 3), [0, 2, 8], 10)
    """
    parts = map_scene_parts(_draw_part, split, images, pixels, workers)
    crops, boxes, labels = (np.concatenate([getattr(part, name) for part in parts]) for name in ("crops", "boxes", "labels"))
    begin = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part.begin) for part in parts]))])
    return DrawnRegions(crops, boxes, labels, begin, [text for part in parts for text in part.captions])


def _draw_part(part: ScenePart) -> DrawnRegions:
    from crossmatch.diorama.drawing import draw

    crops, boxes, labels, texts = [], [], [], []
    for n in part.numbers:
        scene = sample_scene("diorama", 0, part.split, n)
        picture = draw(scene)
        boxes.append(get_regions(picture))
        crops.append(crop_regions(picture, boxes[-1], part.pixels))
        labels += label_regions(scene)
        texts += [caption.text for caption in describe(scene, "diorama", 0, part.split, n)]
    begin = np.concatenate([[0], np.cumsum([len(image_boxes) for image_boxes in boxes])])
    return DrawnRegions(np.concatenate(crops), np.concatenate(boxes), np.asarray(labels), begin, texts)


def label_regions(scene: Scene) -> list[list[int]]:
    """Label numbers of the whole image and of each object of a scene."""
    names = [
        (scene.setting, "", ""),
        *((drawn_object.kind, drawn_object.colour, drawn_object.texture) for drawn_object in scene.objects),
    ]
    return [
        [numbers.get(name, NO_LABEL) for numbers, name in zip(LABEL_NUMBERS, region_names, strict=True)] for region_names in names
    ]


def train_grounded(folder: Path | str, **options: Any) -> SmallGrounder:
    """Train the small grounder, or load it from a folder where it is finished (see `train_small_model`)."""
    model: SmallGrounder = train_small_model("grounded", folder, **options)
    return model


# -- interface of `crossmatch.train.run_recipe`


def require_valid_recipe(recipe: TrainingRecipe) -> None:
    """Refuse a recipe with unknown sizes, features or objective."""
    check_small_recipe(recipe, GrounderSizes, OBJECTIVE)


def open_source(recipe: TrainingRecipe, options: DataOptions) -> TrainingSource:
    """Declare the training data: regions of images of the embedded world, and captions."""
    train, validation = split_sizes(options)
    side = PixelFeatures(**recipe.features).side
    probe = draw_regions("train", PROBED_IMAGES, side)
    digest = hash_world([train, validation, side, probe.captions], probe.crops.tobytes() + probe.boxes.tobytes())
    return TrainingSource("diorama", digest, lambda: (draw_regions("train", train, side), draw_regions("val", validation, side)))


def make_training(recipe: TrainingRecipe, source: TrainingSource, train: DrawnRegions, validation: DrawnRegions) -> SmallTraining:
    """Make the training of an untrained model. It keeps the epoch with the highest validation hits."""
    side, sizes = PixelFeatures(**recipe.features).side, GrounderSizes(**recipe.model)
    config = SmallGrounderConfig(build_vocabulary(train.captions), side, sizes.dimensions, sizes.width, sizes.smoothing)
    with reproducible(recipe.train.seed, recipe.train.threads):
        model = SmallGrounder(config, recipe=describe_training(recipe, source))
        labeller = make_labeller(model.net)
        rng_state = torch.get_rng_state()
    texts = texts_by_image(train.captions, config.vocabulary)
    return SmallTraining(
        model,
        nn.ModuleList([model.net, labeller]),
        len(train),
        recipe.train,
        rng_state,
        loss_of_images=lambda rows: batch_loss(model.net, labeller, train, rows.numpy(), hide_words(texts[rows])),
        measure=lambda: measure_retrieval(model, validation),
    )


def load_model(folder: Path) -> SmallGrounder:
    """Load the trained model of a folder."""
    return load(folder)


# -- the training


def make_labeller(net: GrounderNet) -> nn.Linear:
    """Make the linear layer that labels regions from their features. It is used in training only."""
    return nn.Linear(net.image_out.in_features - 4, sum(LABEL_COUNTS))


def batch_loss(net: GrounderNet, labeller: nn.Linear, train: DrawnRegions, rows: IntArray, texts: Tensor) -> Tensor:
    """Mean of five contrastive losses over SCAN's similarities, plus the loss of labelling the regions.

    Each image must retrieve its own caption in the batch, and each caption its image (radford2021clip, fig. 3). The hinge on the
    hardest negative of lee2018scan, sec. 3.2, is not used, because short captions are true of many images. Captions of the same
    place have similar lengths, which saves padding, and a similar level of detail, which makes them hard negatives.

    Colours, textures and settings distinguish most images of a batch, so captions alone teach object kinds slowly. SCAN's regions
    come from a detector that was trained to name objects and attributes (anderson2018bottomup, sec. 3.1); here `labeller` predicts
    kind, colour and texture, or the setting, from the features of each region.
    """
    positions, is_region = locate_regions(rows, train.begin)
    regions = positions[is_region]
    features = net.look(torch.from_numpy(train.crops[regions]))
    predictions, labels = labeller(features).split(LABEL_COUNTS, dim=1), torch.from_numpy(train.labels[regions]).T
    label_losses = [
        weight * F.cross_entropy(part, targets) for weight, part, targets in zip(LABEL_WEIGHTS, predictions, labels, strict=True)
    ]
    vectors = net.embed_regions(features, torch.from_numpy(train.boxes[regions]).float())
    member, scale = make_membership(is_region), net.log_scale.exp().clamp(max=MAX_SCALE)
    losses = []
    for padded in texts.unbind(dim=1):
        numbers = padded[:, : int((padded != PAD).sum(dim=1).max())]
        losses.append(info_nce(scale * net.similarity(vectors, net.embed_words(numbers), numbers != PAD, member)))
    return torch.stack(losses).mean() + torch.stack(label_losses).sum()


def measure_retrieval(model: SmallGrounder, drawn: DrawnRegions) -> dict[str, float]:
    """hit@1 and hit@10 in per cent, in both directions, and their sum."""
    collection = validation_collection(drawn.captions, len(drawn))
    images = model.embed_regions(drawn.crops, drawn.boxes, drawn.begin)
    scores = model.score_regions(images, drawn.captions)
    return hits_by_links(collection, Matrix(collection.image_ids, collection.caption_ids, scores))


def hide_words(numbers: Tensor) -> Tensor:
    """Replace a few random words by the unknown word."""
    return numbers.masked_fill((torch.rand(numbers.shape) < UNKNOWN_SHARE) & (numbers != PAD), UNKNOWN)
