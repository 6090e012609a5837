"""A tiny world whose images are codes of words, which a network learns in a second, and helpers of the training tests."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from crossmatch.models.zoo.network_inputs import Regions, Vocabulary, Words
from crossmatch.models.zoo.vse import VSE, VSEConfig
from crossmatch.train import loop
from crossmatch.train.data.training_set import ArrayStore, TrainingSet
from crossmatch.train.objectives.triplet import hinge

WORDS = ("ape", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "koi", "lark")
CODES = np.random.default_rng(1).standard_normal((len(WORDS), 16)).astype(np.float32)


def toy_data(images: int, seed: int) -> TrainingSet:
    """Images of three animals; one caption names all of them, one names two."""
    rng = np.random.default_rng(seed)
    animals = np.stack([rng.permutation(len(WORDS))[:3] for _ in range(images)])
    texts = [" and ".join(f"a {WORDS[n]}" for n in named) for row in animals for named in (row, row[::-1][:2])]
    links = np.stack([np.repeat(np.arange(images), 2), np.arange(2 * images)], axis=1)
    features = CODES[animals] + 0.1 * rng.standard_normal((images, 3, 16)).astype(np.float32)
    return TrainingSet(ArrayStore(features), tuple(texts), links)


def write_scan_folder(folder: Path, train: TrainingSet, dev: TrainingSet) -> str:
    """Write two sets in SCAN's layout, and return the name of the data."""
    for split, data in (("train", train), ("dev", dev)):
        np.save(folder / f"{split}_ims.npy", data.store.features)
        (folder / f"{split}_caps.txt").write_text("".join(f"{text}\n" for text in data.captions))
    return f"precomp:{folder}"


def stop_at_step(monkeypatch, number: int) -> list[int]:
    """Interrupt a training at its step `number`; return a list that gets an entry for each step."""
    steps, descend = [], loop._descend

    def stop(*arguments):
        steps.append(len(steps))
        if len(steps) == number:
            raise KeyboardInterrupt
        return descend(*arguments)

    monkeypatch.setattr(loop, "_descend", stop)
    return steps


def interrupt(*_, **__):
    raise KeyboardInterrupt


class DropoutVSE(VSE):
    """VSE with dropout of its input: randomness in the network."""

    def images(self, regions: Regions) -> torch.Tensor:
        return super().images(Regions(nn.functional.dropout(regions.features, 0.2, self.training), regions.mask, regions.boxes))


def noisy_hinge(net, batch, progress, margin=0.2, warm_up=0.6):
    """A hinge on noisy similarities with both captions: randomness in the objective, and a loss that changes with progress."""
    images = net.images(batch.regions)
    scores = [net.similarity(images, net.texts(words)) for words in (batch.words, batch.others)]
    noisy = sum(scores) / 2 + 0.05 * torch.randn(len(batch), len(batch))
    negatives = "sum" if progress < warm_up else "hardest"
    return hinge(noisy, batch.image, negatives, margin)


def toy_model(data: TrainingSet) -> SimpleNamespace:
    """The part of a model's interface that the loop uses."""
    vocabulary = Vocabulary.from_texts(data.captions)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.ModuleDict({"match": DropoutVSE(VSEConfig(16, len(vocabulary), dimensions=16, word_dimensions=8))})

    def compare(regions: Regions, texts: tuple[str, ...]) -> np.ndarray:
        with torch.inference_mode():
            words: Words = vocabulary.encode(texts)
            return net["match"].similarity(net["match"].images(regions), net["match"].texts(words)).numpy()

    return SimpleNamespace(net=net, match=net["match"], vocabulary=vocabulary, as_regions=lambda regions: regions, compare=compare)
