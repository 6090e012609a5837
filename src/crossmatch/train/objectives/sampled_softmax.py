"""The objective of the dual encoders of CxC: the bidirectional in-batch sampled softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from crossmatch.data.errors import UsageError
from crossmatch.train.objectives import SampledSoftmaxOptions

if TYPE_CHECKING:
    from crossmatch.train.data.training_set import TrainingBatch


def unidirectional(scores: Tensor) -> Tensor:
    """One direction of the in-batch sampled softmax: each row should score highest with its own column.

        L = −1/K · Σ_i ( S(l_i, r_i) − log Σ_{j≠i} e^{S(l_i, r_j)} )                            parekh2021cxc, eq. 1, first half

    As printed, the pair itself is not in the denominator, so the loss has no lower bound. All other pairs of the batch are
    negatives, including a second caption of the same image.

    >>> round(float(unidirectional(torch.zeros(3, 3))), 4)        # log 2: the pair itself is not in the denominator
    0.6931
    """
    is_diagonal = torch.eye(len(scores), dtype=torch.bool)
    return (scores.masked_fill(is_diagonal, -torch.inf).logsumexp(dim=1) - scores.diagonal()).mean()


def bidirectional(scores: Tensor) -> Tensor:
    """Sum of both directions of the in-batch sampled softmax: parekh2021cxc, eq. 1. `scores` (K, K) has S(l_i, r_j) at i, j.

    >>> round(float(bidirectional(torch.zeros(3, 3))), 4)
    1.3863
    """
    return unidirectional(scores) + unidirectional(scores.T)


def sampled_softmax(net: Any, batch: TrainingBatch, progress: float, options: SampledSoftmaxOptions) -> Tensor:
    """The loss of DE_I2T, DE_T2T or DE_T2T+I2T, according to the option `task`.

        i2t        L_i2t + L_t2i                                   images and their captions
        t2t        L_t2t                                           captions and other captions of the same images, both ways
        t2t+i2t    L_i2t + L_t2i + c · L_t2t                       parekh2021cxc, eq. 2

    `c` is the option `weight`. The paper does not give its value; the default is 1.
    """
    if len(batch) < 2:
        raise UsageError("A batch of one pair has no negatives. Set train.batch to 2 or more.")
    texts = net.texts(batch.words)
    loss = texts.new_zeros(())
    if "i2t" in options.task:
        loss = loss + bidirectional(net.similarity(net.images(batch.regions), texts))
    if "t2t" in options.task:
        if batch.others is None:
            raise UsageError(
                f'[objective] has task = {options.task!r}, which needs two captions of each image. Set pairs = "captions" in [train].'
            )
        loss = loss + options.weight * bidirectional(net.similarity(texts, net.texts(batch.others)))
    return loss  # type: ignore[no-any-return]
