"""A world of a few words, whose pictures are the codes of the words: what a network learns in a second."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from crossmatch.models.zoo.inputs import Regions, Vocabulary, Words
from crossmatch.models.zoo.vse import VSE, VSEConfig
from crossmatch.train.data import ArrayStore, TrainingSet
from crossmatch.train.objectives.triplet import hinge

WORDS = ("ape", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "koi", "lark")
CODES = np.random.default_rng(1).standard_normal((len(WORDS), 16)).astype(np.float32)


def toy(images: int, seed: int) -> TrainingSet:
    """Pictures of three things; one caption names all, one names two."""
    rng = np.random.default_rng(seed)
    things = np.stack([rng.permutation(len(WORDS))[:3] for _ in range(images)])
    texts = [" and ".join(f"a {WORDS[n]}" for n in few) for row in things for few in (row, row[::-1][:2])]
    links = np.stack([np.repeat(np.arange(images), 2), np.arange(2 * images)], axis=1)
    features = CODES[things] + 0.1 * rng.standard_normal((images, 3, 16)).astype(np.float32)
    return TrainingSet(ArrayStore(features), tuple(texts), links)


class Forgetful(VSE):
    """VSE that loses some of its features: chance in the network."""

    def images(self, regions: Regions) -> torch.Tensor:
        return super().images(Regions(nn.functional.dropout(regions.features, 0.2, self.training), regions.real, regions.boxes))


def sampled(net, batch, options):
    """A hinge on noisy similarities with both captions: chance in the objective, and a loss that changes on its way."""
    images = net.images(batch.regions)
    scores = [net.similarity(images, net.texts(words)) for words in (batch.words, batch.others)]
    noisy = sum(scores) / 2 + 0.05 * torch.randn(len(batch), len(batch))
    negatives = "sum" if options["progress"] < options["warm_up"] else "hardest"
    return hinge(noisy, batch.image, negatives, options["margin"])


def model_of(data: TrainingSet, seed: int = 0, match: type[VSE] = Forgetful) -> SimpleNamespace:
    """What the loop needs to know of a model."""
    vocabulary = Vocabulary.of(data.captions)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = nn.ModuleDict({"match": match(VSEConfig(16, len(vocabulary), dimensions=16, word_dimensions=8))})

    def compare(regions: Regions, texts: tuple[str, ...]) -> np.ndarray:
        with torch.inference_mode():
            words: Words = vocabulary.numbered(texts)
            return net["match"].similarity(net["match"].images(regions), net["match"].texts(words)).numpy()

    return SimpleNamespace(net=net, match=net["match"], vocabulary=vocabulary, look=lambda regions: regions, compare=compare)
