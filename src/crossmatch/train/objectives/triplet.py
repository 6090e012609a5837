"""Max-margin losses of VSE and its followers: an image must be closer to its own text than to any other, and the reverse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from crossmatch.core.errors import MissingDependency, WrongWords

try:
    from torch import Tensor
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from crossmatch.train.batch import Batch

NEGATIVES = ("sum", "semi-hard", "hardest")
MARGIN = 0.2  # faghri2018vse, sec. 4.1


def hinge(scores: Tensor, image: Tensor, negatives: str = "hardest", margin: float = MARGIN) -> Tensor:
    """The hinge on the margin between each pair and its negatives, in both directions, summed over the batch.

        sum        Σ_i Σ_j [α − s_ii + s_ij]₊ + [α − s_ii + s_ji]₊                               faghri2018vse, eq. 5
        hardest    Σ_i [α − s_ii + max_j s_ij]₊ + [α − s_ii + max_j s_ji]₊                       faghri2018vse, eq. 6
        semi-hard  as hardest, but the maximum is over those j with s_ij < s_ii; if there are none, nothing is added
                                                                                                schroff2015facenet, eq. 4

    `scores` (B, B) has images as rows and texts as columns; row i and column i belong together. `image` (B,) numbers the image of
    each row: texts of the same image are no negatives of each other; a shuffled list of captions has such rows now and then.

    >>> import torch
    >>> scores = torch.tensor([[0.9, 0.8, 0.1], [0.2, 0.5, 0.6], [0.0, 0.1, 0.9]])
    >>> [round(float(hinge(scores, torch.arange(3), how)), 4) for how in ("sum", "hardest", "semi-hard")]
    [0.9, 0.9, 0.1]
    """
    if negatives not in NEGATIVES:
        raise WrongWords(f"negatives is {negatives!r}; one of {', '.join(NEGATIVES)} was expected.")
    own = scores.diagonal()
    other = image[:, None] != image[None, :]
    total = scores.new_zeros(())
    for pairs in (scores, scores.T):
        cost = (margin - own[:, None] + pairs).clamp(min=0)
        counted = other & (pairs < own[:, None]) if negatives == "semi-hard" else other
        cost = cost.masked_fill(~counted, 0.0)
        total = total + (cost.sum() if negatives == "sum" else cost.amax(dim=1).sum())
    return total


def triplet(net: Any, batch: Batch, options: Mapping[str, Any]) -> Tensor:
    """The hinge over all pairs of a batch.

    `warm_up` is the share of the training in which all negatives count, before only the hardest do: from random weights, the
    hardest negative of each pair pulls everything into one point, and the loss stays at 2α.
    """
    scores = net.similarity(net.images(batch.regions), net.texts(batch.words))
    early = options.get("progress", 1.0) < options.get("warm_up", 0.0)
    negatives = "sum" if early else options.get("negatives", "hardest")
    return hinge(scores, batch.image, negatives, options.get("margin", MARGIN))
