"""Cross-entropy: the first objective of captioners. Each word should be likely, given the image and the words before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from crossmatch.models.zoo.network_inputs import PAD
from crossmatch.train.objectives import ObjectiveOptions

if TYPE_CHECKING:
    from crossmatch.train.data.training_set import TrainingBatch


def mean_word_loss(log_probabilities: Tensor, numbers: Tensor) -> Tensor:
    """Mean negative log-probability of the words of a batch; the end of a caption is a word.

        L = −1/T · Σ_n Σ_t log p(w_t | w_1 … w_t−1, image n),   T words in all captions                 hu2019bison, sec. 4.1

    `log_probabilities` (N, L - 1) are those of the words after the first, `numbers` (N, L) the words. All words count equally, so a
    long caption counts more than a short one.

    >>> import torch
    >>> log_probabilities = torch.tensor([[-1.0, -3.0], [-5.0, 0.0]])
    >>> mean_word_loss(log_probabilities, torch.tensor([[2, 7, 3], [2, 3, PAD]]))
    tensor(3.)
    """
    mask = numbers[:, 1:] != PAD
    return -(log_probabilities * mask).sum() / mask.sum()


def cross_entropy(net: nn.Module, batch: TrainingBatch, progress: float, options: ObjectiveOptions) -> Tensor:
    """Mean of −log p over all words of the batch. It has no options."""
    captioner: Any = net
    return mean_word_loss(captioner.word_log_probabilities(captioner.images(batch.regions), batch.words), batch.words.numbers)
