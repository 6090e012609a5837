"""How captioners are trained at first: each word of a caption should be likely, given the image and the words before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from crossmatch.core.errors import MissingDependency
from crossmatch.models.zoo.inputs import PAD

try:
    import torch  # noqa: F401 - this needs it, though only its tensors' methods are used
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from torch import Tensor, nn

    from crossmatch.train.batch import Batch


def per_word(told: Tensor, numbers: Tensor) -> Tensor:
    """How surprised the network is by a word of a batch, on average; the end of a caption is a word.

        L = −1/T · Σ_n Σ_t log p(w_t | w_1 … w_t−1, image n),   T words in all captions                 hu2019bison, sec. 4.1

    `told` (N, L - 1) are the log-probabilities of the words after the first, `numbers` (N, L) the words themselves. A long caption
    counts for more than a short one, as each word counts the same.

    >>> told = torch.tensor([[-1.0, -3.0], [-5.0, 0.0]])
    >>> per_word(told, torch.tensor([[2, 7, 3], [2, 3, PAD]]))
    tensor(3.)
    """
    real = numbers[:, 1:] != PAD
    return -(told * real).sum() / real.sum()


def cross_entropy(net: nn.Module, batch: Batch, options: Mapping[str, Any]) -> Tensor:
    """The mean over all words of the batch of −log p. It has no options."""
    captioner: Any = net
    return per_word(captioner.told(captioner.images(batch.regions), batch.words), batch.words.numbers)
