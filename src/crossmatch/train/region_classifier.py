"""Training of "namer", the region encoder of the embedded world, on labelled crops of its scenes."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the usual name

from crossmatch.data.arrays import IntArray
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.progress import track
from crossmatch.diorama.scene_sampling import sample_scene
from crossmatch.models.regions.crops import crop_regions, get_regions
from crossmatch.models.zoo.region_extractors import JITTER, WHOLE_IMAGE, ExtractorSettings, RegionClassifier, jitter_boxes
from crossmatch.train.data.diorama_images import ScenePart, map_scene_parts
from crossmatch.train.reproducibility import reproducible
from crossmatch.train.small_grounder import LABEL_COUNTS, LABELS, label_regions

EPOCHS, BATCH, LEARNING_RATE, WEIGHT_DECAY = 3, 128, 4e-3, 0.05
MIN_IMAGES = 30  # one batch

LabelledCrops = tuple[NDArray[np.uint8], IntArray]  # crops (n, side, side, 3), and their label numbers (n, 3)


def training_facts(settings: ExtractorSettings, side: int) -> list[object]:
    """Everything that the weights depend on, apart from the machine and the images."""
    return [settings.lessons, side, EPOCHS, BATCH, LEARNING_RATE, WEIGHT_DECAY, JITTER, [list(names) for names in LABELS]]


def draw_labelled_crops(split: str, images: int, side: int, workers: int = 2) -> LabelledCrops:
    """Draw the objects and the whole of each image, with their labels."""
    parts = map_scene_parts(_label_part, split, images, side, workers)
    return np.concatenate([crops for crops, _ in parts]), np.concatenate([labels for _, labels in parts])


def _label_part(part: ScenePart) -> LabelledCrops:
    from crossmatch.diorama.drawing import draw

    crops, labels = [], []
    for n in part.numbers:
        scene = sample_scene("diorama", 0, part.split, n)
        picture = draw(scene)
        objects = get_regions(picture)[1:]  # the first is the whole image
        crops.append(crop_regions(picture, np.concatenate([WHOLE_IMAGE, jitter_boxes(objects)]), part.pixels))
        labels += label_regions(scene)
    return np.concatenate(crops), np.asarray(labels, dtype=np.int64)


def train_region_classifier(settings: ExtractorSettings, side: int) -> tuple[RegionClassifier, nn.Linear]:
    """Train the encoder, and the linear layer that labels regions from its features.

    The loss is the sum of three cross-entropies: kind of the object or setting of the image, colour, texture. AdamW with one cycle
    of the learning rate (smith2019super). `crossmatch.train.loop` is not used: its AdamW decays matrices only, here all weights are
    decayed, and there is neither validation nor an output folder.
    """
    if settings.lessons < MIN_IMAGES:
        raise CrossmatchError(
            f"[features] has lessons = {settings.lessons}; the region encoder needs at least {MIN_IMAGES}. Set a larger number."
        )
    crops, labels = draw_labelled_crops("train", settings.lessons, side)
    with reproducible(seed=0):
        net, labeller = RegionClassifier(), nn.Linear(RegionClassifier().features, sum(LABEL_COUNTS))
        weights = [*net.parameters(), *labeller.parameters()]
        batches = len(crops) // BATCH or 1
        optimiser = torch.optim.AdamW(weights, LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, total_steps=batches * EPOCHS, pct_start=0.15)
        for step in track(range(batches * EPOCHS), "training the region encoder"):
            if step % batches == 0:
                order = torch.randperm(len(crops)).numpy()
            rows = order[step % batches * BATCH :][:BATCH]
            predictions = labeller(net(torch.from_numpy(crops[rows]))).split(LABEL_COUNTS, dim=1)
            targets = torch.from_numpy(labels[rows]).T
            losses = [F.cross_entropy(part, target) for part, target in zip(predictions, targets, strict=True)]
            loss = torch.stack(losses).sum()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    return net.eval(), labeller
