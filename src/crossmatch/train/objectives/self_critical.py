"""Self-critical sequence training: a sampled caption becomes more likely if it is better than the greedy one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.models.zoo.decoding import MAX_CAPTION_WORDS, decode_greedily, sample_captions
from crossmatch.models.zoo.network_inputs import PAD, Vocabulary
from crossmatch.train.objectives import SelfCriticalOptions
from crossmatch.train.objectives.cider_reward import Reward

if TYPE_CHECKING:
    from crossmatch.train.data.training_set import TrainingBatch, TrainingSet


def surrogate_loss(log_probabilities: Tensor, reward: Tensor, baseline: Tensor) -> Tensor:
    """A loss whose expected gradient over sampled captions is that of the negative expected reward.

        L = −1/B · Σ_b (r(wˢ_b) − r(ŵ_b)) · Σ_t log p(wˢ_b,t | wˢ_b,1 … wˢ_b,t−1, image b)           rennie2017scst, eq. 7 to 9

    wˢ is the sampled caption, ŵ the greedy one, B the number of images. The sum over words is not divided by their number, so it is
    the log-probability of the caption, and a baseline that does not depend on wˢ does not change the expectation.
    `log_probabilities` (B, L) are those of the words, 0 beyond the end.

    >>> log_probabilities = torch.tensor([[-1.0, -2.0], [-4.0, 0.0]])
    >>> surrogate_loss(log_probabilities, torch.tensor([3.0, 1.0]), torch.tensor([1.0, 1.0]))
    tensor(3.)
    """
    return -((reward - baseline) * log_probabilities.sum(dim=1)).mean()


@dataclass(frozen=True, eq=False)
class SelfCriticalLoss:
    """The objective for one training set, whose captions define the reward.

    The greedy caption is generated without dropout, as after the training; the other one is sampled from the network in training
    mode. Both use the same encoded images (see `CaptionNet`), and the same maximum length as validation.
    """

    reward: Callable[[IntArray, IntArray], FloatArray]
    longest: int = MAX_CAPTION_WORDS

    def __call__(self, net: nn.Module, batch: TrainingBatch, progress: float) -> Tensor:
        captioner: Any = net
        training = net.training
        encoded = captioner.images(batch.regions)
        net.eval()
        greedy = decode_greedily(captioner, encoded, self.longest)
        net.train(training)
        sampled = sample_captions(captioner, encoded, self.longest)
        captions = _stack_padded(sampled.numbers, greedy.numbers)
        rewards = torch.from_numpy(self.reward(captions, np.tile(batch.image.numpy(), 2))).to(sampled.log_probabilities.dtype)
        return surrogate_loss(sampled.log_probabilities, *rewards.chunk(2))


def make_self_critical(options: SelfCriticalOptions, data: TrainingSet, vocabulary: Vocabulary) -> SelfCriticalLoss:
    """Make the objective with CIDEr-D as reward; the n-grams of the references are counted once.

    A training set whose captions reward nothing that the network can generate is refused.
    """
    return SelfCriticalLoss(Reward.from_training_set(data, vocabulary, options.end))


def _stack_padded(top: Tensor, bottom: Tensor) -> IntArray:
    """Stack two blocks of captions."""
    out = np.full((len(top) + len(bottom), max(top.shape[1], bottom.shape[1])), PAD, dtype=np.int64)
    out[: len(top), : top.shape[1]] = top.numpy()
    out[len(top) :, : bottom.shape[1]] = bottom.numpy()
    return out
