"""The objective of VSRN: a caption must be retrieved and generated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from crossmatch.models.zoo.network_inputs import PAD
from crossmatch.train.objectives import VSRNOptions
from crossmatch.train.objectives.triplet import choose_negatives, hinge

if TYPE_CHECKING:
    from crossmatch.models.zoo.vsrn import VSRN
    from crossmatch.train.data.training_set import TrainingBatch


def generation(log_probabilities: Tensor, numbers: Tensor) -> Tensor:
    """Negative log-likelihood of the captions: summed over words, averaged over captions.

        L_G = −Σ_t log p(y_t | y_t−1, V*; θ)                                                    li2019vsrn, sec. 3.4

    `log_probabilities` (N, L - 1, words) are those after each word but the last; `numbers` (N, L) are the words. The end of a
    caption counts as a word, padding does not.

    >>> import torch
    >>> uniform = torch.full((1, 2, 4), 0.25).log()
    >>> round(float(generation(uniform, torch.tensor([[2, 3, PAD]]))), 4)        # one word among four: log 4
    1.3863
    """
    targets = numbers[:, 1:]
    target_values = log_probabilities.gather(2, targets.unsqueeze(2)).squeeze(2)
    return -(target_values * (targets != PAD)).sum(dim=1).mean()


def vsrn(net: VSRN, batch: TrainingBatch, progress: float, options: VSRNOptions) -> Tensor:
    """Weighted sum of matching and generation; both weights are 1 by default.

        L = L_M + L_G                                                                           li2019vsrn, sec. 3.4

    L_M is the hinge on the hardest negatives, summed over the batch as in the released code. Options: the weights `matching` and
    `generation`, and those of `triplet`.
    """
    regions = net.reason(batch.regions)
    scores = net.similarity(net.summarise(regions, batch.regions.mask), net.texts(batch.words))
    matching_loss = hinge(scores, batch.image, choose_negatives(options, progress), options.margin)
    generation_loss = generation(net.teller(regions, batch.regions.mask, batch.words.numbers), batch.words.numbers)
    return options.matching * matching_loss + options.generation * generation_loss
