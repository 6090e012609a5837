"""Self-critical sequence training: a caption that was drawn should be likelier if it is better than the one that would be told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.errors import MissingDependency
from crossmatch.models.zoo.decoding import LONGEST_TOLD, greedy, sampled
from crossmatch.models.zoo.inputs import PAD, Vocabulary

try:
    import torch
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from torch import Tensor, nn

    from crossmatch.train.batch import Batch
    from crossmatch.train.data import TrainingSet


def surrogate(each: Tensor, reward: Tensor, baseline: Tensor) -> Tensor:
    """What has the gradient of the negative expected reward, on average over the captions that may be drawn.

        L = −1/B · Σ_b (r(wˢ_b) − r(ŵ_b)) · Σ_t log p(wˢ_b,t | wˢ_b,1 … wˢ_b,t−1, image b)           rennie2017scst, eq. 7 to 9

    wˢ is the caption that was drawn, ŵ the greedy one, B the number of images. The sum over words is not divided by their number:
    it is then the log-probability of the caption, and any baseline that does not depend on wˢ leaves the mean as it is. `each`
    (B, L) are the log-probabilities of the words, 0 beyond the end.

    >>> each = torch.tensor([[-1.0, -2.0], [-4.0, 0.0]])
    >>> surrogate(each, torch.tensor([3.0, 1.0]), torch.tensor([1.0, 1.0]))
    tensor(3.)
    """
    return -((reward - baseline) * each.sum(dim=1)).mean()


@dataclass(frozen=True, eq=False)
class SelfCritical:
    """The objective for one training set, whose captions say what a caption is worth.

    The greedy caption is told as it will be when the training is over, without dropout; the other one is drawn from the network as
    it is trained. What a captioner sees of an image is the same for both (see `CaptionNet`), and they may be as long as captions
    are when they are validated and told.
    """

    reward: Callable[[IntArray, IntArray], FloatArray]
    longest: int = LONGEST_TOLD

    def __call__(self, net: nn.Module, batch: Batch, options: Mapping[str, Any]) -> Tensor:
        captioner: Any = net
        training = net.training
        encoded = captioner.images(batch.regions)
        net.eval()
        best = greedy(captioner, encoded, self.longest)
        net.train(training)
        drawn = sampled(captioner, encoded, self.longest)
        both = _together(drawn.numbers, best.numbers)
        found = torch.from_numpy(self.reward(both, np.tile(batch.image.numpy(), 2))).to(drawn.each.dtype)
        return surrogate(drawn.each, *found.chunk(2))


AT_ZERO = (
    "every caption that was drawn was worth what the greedy one was, such as nothing. Begin with a model that tells captions like "
    "those of the training set."
)


def made_for(data: TrainingSet, vocabulary: Vocabulary) -> Callable[[nn.Module, Batch, Mapping[str, Any]], Tensor]:
    """The objective with CIDEr-D as reward, all that the references of a training set say being counted once.

    Its option `end` (true) says whether the end of a caption is a word that counts: see `Reward`, which refuses a training set
    whose captions reward nothing that the network can say, when the training rehearses its first step.
    """
    from crossmatch.train.reward import Reward

    @cache
    def critic(end: bool) -> SelfCritical:
        return SelfCritical(Reward.of(data, vocabulary, end))

    def criticised(net: nn.Module, batch: Batch, options: Mapping[str, Any]) -> Tensor:
        return critic(bool(options.get("end", True)))(net, batch, options)

    criticised.at_zero = AT_ZERO  # type: ignore[attr-defined]  # what the loop says of an epoch whose loss is 0
    return criticised


def _together(one: Tensor, other: Tensor) -> IntArray:
    """Two blocks of captions, one below the other."""
    out = np.full((len(one) + len(other), max(one.shape[1], other.shape[1])), PAD, dtype=np.int64)
    out[: len(one), : one.shape[1]] = one.numpy()
    out[len(one) :, : other.shape[1]] = other.numpy()
    return out
