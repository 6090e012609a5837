"""Random inputs for the zoo's networks, and a small task that they learn."""

from __future__ import annotations

import torch

from crossmatch.models.zoo.network_inputs import BEGIN, END, FIRST_WORD, PAD, Regions, Words
from crossmatch.train.data.training_set import TrainingBatch

FEATURES, WORDS = 6, 12  # sizes that all small networks share


def random_regions(*counts: int, most: int | None = None, features: int = FEATURES) -> Regions:
    """Images with so many regions each, padded with 0 to `most`."""
    most = max(counts) if most is None else most
    mask = torch.arange(most) < torch.tensor(counts).unsqueeze(1)
    features_and_boxes = torch.randn(len(counts), most, features), torch.rand(len(counts), most, 4)
    padded_features, padded_boxes = (values * mask.unsqueeze(2) for values in features_and_boxes)
    return Regions(padded_features, mask, padded_boxes)


def random_words(*lengths: int, words: int = WORDS) -> Words:
    """Texts with so many words each, between BEGIN and END."""
    numbers = torch.full((len(lengths), max(lengths) + 2), PAD)
    for row, length in zip(numbers, lengths, strict=True):
        row[: length + 2] = torch.tensor([BEGIN, *torch.randint(FIRST_WORD, words, (length,)).tolist(), END])
    return Words(numbers)


def image_alone(regions: Regions, n: int) -> Regions:
    """Image n without its padding."""
    rows, columns = slice(n, n + 1), slice(max(1, int(regions.mask[n].sum())))
    return Regions(regions.features[rows, columns], regions.mask[rows, columns], regions.boxes[rows, columns])


def with_more_padding(regions: Regions, value: float) -> Regions:
    """The same images with twice as many columns; all padding contains `value`."""
    mask = torch.cat([regions.mask, torch.zeros_like(regions.mask)], dim=1)
    wide = [torch.cat([values, values], dim=1) for values in (regions.features, regions.boxes)]
    features, boxes = (values.masked_fill(~mask.unsqueeze(2), value) for values in wide)
    return Regions(features, mask, boxes)


def naming_task() -> TrainingBatch:
    """Twenty images of two regions out of eight kinds; each text names the kinds of its image. Chance is 0.05."""
    kinds = torch.randn(8, FEATURES)
    pairs = torch.combinations(torch.arange(8), 2)[torch.randperm(28)[:20]]
    features = kinds[pairs] + 0.05 * torch.randn(20, 2, FEATURES)
    regions = Regions(features, torch.ones(20, 2, dtype=torch.bool), torch.zeros(20, 2, 4))
    ends = torch.tensor([[BEGIN, END]]).expand(20, 2)
    words = Words(torch.cat([ends[:, :1], pairs + FIRST_WORD, ends[:, 1:]], dim=1))
    return TrainingBatch(regions, words, torch.arange(20))


def train(net, objective, batch, rate, steps):
    """Train on one batch, then switch to evaluation."""
    optimiser = torch.optim.Adam(net.train().parameters(), rate)
    for step in range(steps):
        optimiser.zero_grad()
        objective(net, batch, step / steps).backward()
        optimiser.step()
    return net.eval()


def share_of_correct_first_texts(net, batch):
    with torch.no_grad():
        scores = net.similarity(net.images(batch.regions), net.texts(batch.words))
    return float((scores.argmax(dim=1) == torch.arange(len(scores))).float().mean())


def names_without_gradient(net):
    return [name for name, p in net.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
