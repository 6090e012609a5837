"""What the dual encoders of CxC are trained by: the bidirectional in-batch sampled softmax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from crossmatch.core.errors import MissingDependency, WrongWords

try:
    import torch
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from torch import Tensor

    from crossmatch.train.batch import Batch

TASKS = ("i2t", "t2t", "t2t+i2t")


def one_way(scores: Tensor) -> Tensor:
    """One direction of the in-batch sampled softmax: each row must prefer its own column to all others.

        L = −1/K · Σ_i ( S(l_i, r_i) − log Σ_{j≠i} e^{S(l_i, r_j)} )                            parekh2021cxc, eq. 1, first half

    As printed, the pair itself is not in the denominator, so that the loss has no lower bound. All other pairs of the batch are
    negatives, also a second caption of the same image.

    >>> round(float(one_way(torch.zeros(3, 3))), 4)        # log 2: the pair is not among those that it competes with
    0.6931
    """
    own = torch.eye(len(scores), dtype=torch.bool)
    return (scores.masked_fill(own, -torch.inf).logsumexp(dim=1) - scores.diagonal()).mean()


def bidirectional(scores: Tensor) -> Tensor:
    """Both directions of the in-batch sampled softmax, added up: parekh2021cxc, eq. 1. `scores` (K, K) has S(l_i, r_j) at i, j.

    >>> round(float(bidirectional(torch.zeros(3, 3))), 4)
    1.3863
    """
    return one_way(scores) + one_way(scores.T)


def sampled_softmax(net: Any, batch: Batch, options: Mapping[str, Any]) -> Tensor:
    """The loss of DE_I2T, DE_T2T or DE_T2T+I2T, as `task` says.

        i2t        L_i2t + L_t2i                                   images and their captions
        t2t        L_t2t                                           captions and other captions of the same images, both ways
        t2t+i2t    L_i2t + L_t2i + c · L_t2t                       parekh2021cxc, eq. 2

    `c` is `weight` in the recipe. The paper does not print the value that it chose; 1 is taken.
    """
    task = options.get("task", "i2t")
    if task not in TASKS:
        raise WrongWords(f"the task is {task!r}; one of {', '.join(TASKS)} was expected in [objective] of the recipe.")
    if len(batch) < 2:
        raise WrongWords("a batch of one pair has no negatives. Set batch in [train] of the recipe to 2 or more.")
    texts = net.texts(batch.words)
    loss = texts.new_zeros(())
    if "i2t" in task:
        loss = loss + bidirectional(net.similarity(net.images(batch.regions), texts))
    if "t2t" in task:
        if batch.others is None:
            raise WrongWords(
                f'the task {task!r} needs two captions of each image. Set pairs = "captions" in [train] of the recipe.'
            )
        weight = options.get("weight", 1.0) if "i2t" in task else 1.0
        loss = loss + weight * bidirectional(net.similarity(texts, net.texts(batch.others)))
    return loss  # type: ignore[no-any-return]
