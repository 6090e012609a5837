"""Max-margin losses of VSE and its successors: an image must be closer to its own text than to others, and vice versa."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from crossmatch.data.errors import UsageError
from crossmatch.train.objectives import TripletOptions

if TYPE_CHECKING:
    from crossmatch.train.data.training_set import TrainingBatch

NEGATIVES = ("sum", "semi-hard", "hardest")


def hinge(scores: Tensor, image: Tensor, negatives: str = "hardest", margin: float = 0.2) -> Tensor:
    """Hinge on the margin between each pair and its negatives, in both directions, summed over the batch.

        sum        Σ_i Σ_j [α − s_ii + s_ij]₊ + [α − s_ii + s_ji]₊                               faghri2018vse, eq. 5
        hardest    Σ_i [α − s_ii + max_j s_ij]₊ + [α − s_ii + max_j s_ji]₊                       faghri2018vse, eq. 6
        semi-hard  as hardest, but the maximum is over those j with s_ij < s_ii; without such j the term is 0
                                                                                                schroff2015facenet, eq. 4

    Args:
        scores: (B, B), images as rows and texts as columns; row i and column i belong together.
        image: (B,), the number of each row's image. Texts of the same image are not negatives of each other.
        negatives: Which negatives count.
        margin: α.

    >>> import torch
    >>> scores = torch.tensor([[0.9, 0.8, 0.1], [0.2, 0.5, 0.6], [0.0, 0.1, 0.9]])
    >>> [round(float(hinge(scores, torch.arange(3), how)), 4) for how in ("sum", "hardest", "semi-hard")]
    [0.9, 0.9, 0.1]
    """
    if negatives not in NEGATIVES:
        raise UsageError(f"[objective] has negatives = {negatives!r}; expected one of {', '.join(NEGATIVES)}.")
    positive_scores = scores.diagonal()
    is_negative = image[:, None] != image[None, :]
    total = scores.new_zeros(())
    for pairs in (scores, scores.T):
        cost = (margin - positive_scores[:, None] + pairs).clamp(min=0)
        counted = is_negative & (pairs < positive_scores[:, None]) if negatives == "semi-hard" else is_negative
        cost = cost.masked_fill(~counted, 0.0)
        total = total + (cost.sum() if negatives == "sum" else cost.amax(dim=1).sum())
    return total


def triplet(net: Any, batch: TrainingBatch, progress: float, options: TripletOptions) -> Tensor:
    """Hinge over all pairs of a batch. Options: `margin`, `negatives`, and `warm_up` (see `choose_negatives`)."""
    scores = net.similarity(net.images(batch.regions), net.texts(batch.words))
    return hinge(scores, batch.image, choose_negatives(options, progress), options.margin)


def choose_negatives(options: TripletOptions, progress: float) -> str:
    """Which negatives count now: all of them in the share `warm_up` of the training, then those of the option `negatives`.

    With random weights, the hardest negative of each pair pulls all vectors into one point, and the loss stays at 2α.
    """
    return "sum" if progress < options.warm_up else options.negatives
