"""Training of the namer: a small CNN that says what a region of the embedded world shows, and lends its features to the zoo."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import IntArray
from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.core.progress import track
from crossmatch.diorama.layout import sample_scene
from crossmatch.models.regions import crops_of, regions_of
from crossmatch.models.zoo.boxes import INACCURACY, WHOLE, jittered
from crossmatch.models.zoo.features import Extractor, Namer
from crossmatch.train.dual import reproducible
from crossmatch.train.grounded import NAMES, NUMBERED, UNNAMED
from crossmatch.train.pictures import Part, in_parts

try:
    import torch
    from torch import nn
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

EPOCHS, BATCH, LEARNING_RATE, WEIGHT_DECAY = 3, 128, 4e-3, 0.05
FEWEST = 30  # pictures to learn from: one batch

Lessons = tuple[NDArray[np.uint8], IntArray]  # crops (n, side, side, 3), and numbers (n, 3) of their names in `NAMES`


def namer_facts(settings: Extractor, side: int) -> list[object]:
    """All that the weights depend on, apart from the machine and the pictures."""
    return [settings.lessons, side, EPOCHS, BATCH, LEARNING_RATE, WEIGHT_DECAY, INACCURACY, [list(names) for names in NAMES]]


def lessons(split: str, images: int, side: int, workers: int = 2) -> Lessons:
    """The things and the whole of each picture, with what they are called."""
    drawn = in_parts(_lessons, split, images, side, workers=workers)
    return np.concatenate([crops for crops, _ in drawn]), np.concatenate([names for _, names in drawn])


def _lessons(part: Part) -> Lessons:
    from crossmatch.diorama.draw import draw

    split, numbers, side, seed = part
    crops, labels = [], []
    for n in numbers:
        scene = sample_scene("diorama", seed, split, n)
        picture = draw(scene)
        things = regions_of(picture)[1:]  # the first is the whole
        crops.append(crops_of(picture, np.concatenate([WHOLE, jittered(things)]), side))
        names = [(scene.setting, "", ""), *((thing.kind, thing.colour, thing.texture) for thing in scene.things)]
        labels += [[at.get(name, UNNAMED) for at, name in zip(NUMBERED, few, strict=True)] for few in names]
    return np.concatenate(crops), np.asarray(labels, dtype=np.int64)


def train_namer(settings: Extractor, side: int) -> tuple[Namer, nn.Linear]:
    """A namer, and the linear map that names from its features.

    Its loss is the sum of three cross-entropies: what it is (a kind of thing, or a setting), its colour, its texture. AdamW with
    one cycle of the learning rate (smith2019super).
    """
    if settings.lessons < FEWEST:
        raise CrossmatchError(f"a namer cannot learn from {settings.lessons} pictures; {FEWEST} at least were expected.")
    crops, labels = lessons("train", settings.lessons, side)
    with reproducible(seed=0):
        net, named = Namer(), nn.Linear(Namer().features, sum(map(len, NAMES)))
        weights = [*net.parameters(), *named.parameters()]
        batches = len(crops) // BATCH or 1
        optimiser = torch.optim.AdamW(weights, LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, total_steps=batches * EPOCHS, pct_start=0.15)
        for step in track(range(batches * EPOCHS), "learning to name regions"):
            if step % batches == 0:
                order = torch.randperm(len(crops)).numpy()
            chosen = order[step % batches * BATCH :][:BATCH]
            said = named(net(torch.from_numpy(crops[chosen]))).split([len(names) for names in NAMES], dim=1)
            asked = torch.from_numpy(labels[chosen]).T
            loss = torch.stack([F.cross_entropy(part, own) for part, own in zip(said, asked, strict=True)]).sum()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    return net.eval(), named


def named_right(net: Namer, named: nn.Linear, taught: Lessons) -> tuple[float, ...]:
    """The shares of things (and settings), colours and textures that are named right."""
    crops, labels = taught
    with torch.inference_mode():
        cuts = [torch.from_numpy(crops[at : at + BATCH]) for at in range(0, len(crops), BATCH)]
        said = torch.cat([named(net.eval()(few)) for few in cuts])
    parts = zip(torch.split(said, [len(names) for names in NAMES], dim=1), torch.from_numpy(labels).T, strict=True)
    return tuple(float((part.argmax(dim=1) == own)[own != UNNAMED].float().mean()) for part, own in parts)
