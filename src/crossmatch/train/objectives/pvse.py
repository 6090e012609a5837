"""The objective of PVSE: a hinge on the closest of K x K vectors, and terms that keep the K apart and the sides together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from crossmatch.data.errors import UsageError
from crossmatch.models.zoo.layers import normalize
from crossmatch.train.objectives import PVSEOptions
from crossmatch.train.objectives.triplet import choose_negatives, hinge

if TYPE_CHECKING:
    from crossmatch.models.zoo.pvse import PVSE
    from crossmatch.train.data.training_set import TrainingBatch

GAMMA = 0.5  # of the kernel, in the released code


def pvse(net: PVSE, batch: TrainingBatch, progress: float, options: PVSEOptions) -> Tensor:
    """Multiple-instance hinge, diversity of each side, and discrepancy between the sides.

        L = L_mil + λ_div · (L_div(Υ_image) + L_div(Υ_text)) + λ_mmd · L_mmd                        song2019pvse, sec. 3

    All three are means, as in the released code, to which the weights belong. With K = 1 only the hinge remains, because the
    released code omits the other two terms.

    `options`: `margin`, `negatives` and `warm_up` as in `triplet`, the weights `diversity` and `mmd`, and `mmd_power` (see `mmd`).
    """
    images, texts = net.image_senses(batch.regions), net.text_senses(batch.words)
    scores = net.similarity(images.embedded, texts.embedded)
    loss = mean_hinge(scores, batch.image, choose_negatives(options, progress), options.margin)
    if images.embedded.shape[1] == 1:
        _refuse_unused(options)
        return loss
    diversity_loss = diversity(images.guided) + diversity(texts.guided)
    mmd_loss = mmd(images.embedded.flatten(0, 1), texts.embedded.flatten(0, 1), power=options.mmd_power)
    total: Tensor = loss + options.diversity * diversity_loss + options.mmd * mmd_loss
    return total


def _refuse_unused(options: PVSEOptions) -> None:
    for name in ("diversity", "mmd", "mmd_power"):
        if getattr(options, name) != getattr(PVSEOptions(), name):
            raise UsageError(
                f"[objective] has {name} = {getattr(options, name):g}, which has no effect with embeddings = 1. Remove it."
            )


def mean_hinge(scores: Tensor, image: Tensor, negatives: str, margin: float) -> Tensor:
    """`hinge` divided by its number of terms in one direction: B with one negative per pair, B² with all negatives.

    With scores that are maxima over K x K pairs this is the multiple-instance loss (song2019pvse, sec. 3).
    """
    return hinge(scores, image, negatives, margin) / len(scores) ** (2 if negatives == "sum" else 1)


def diversity(guided: Tensor) -> Tensor:
    """Similarity of the K locally guided features of an item, averaged over items: from (N, K, D).

        L_div = 1/N · Σ_n 1/K² · ‖G_n − I‖_F,    G_n the cosines between the K rows of Υ_n           song2019pvse, sec. 3

    >>> diversity(torch.eye(3)[None]), diversity(torch.ones(1, 2, 5))
    (tensor(0.), tensor(0.3536))
    """
    rows = normalize(guided)
    is_diagonal = torch.eye(rows.shape[1], dtype=torch.bool, device=rows.device)
    cosines = (rows @ rows.transpose(1, 2)).masked_fill(is_diagonal, 0.0)  # the diagonal of G is 1
    return torch.linalg.vector_norm(cosines, dim=(1, 2)).mean() / rows.shape[1] ** 2  # type: ignore[no-any-return]


def mmd(images: Tensor, texts: Tensor, gamma: float = GAMMA, power: int = 1) -> Tensor:
    """Maximum mean discrepancy between two sets of vectors, (N, D) and (M, D): 0 if the sets are equal.

        MMD = E k(x, x') − 2 E k(x, y) + E k(y, y'),    k(x, y) = exp(−γ ‖x − y‖^power)            gretton2012kernel, eq. 5

    The means are over all pairs, including a vector with itself. The Gaussian kernel has power 2; the released code of PVSE does
    not square the distance, so the published weight belongs to power 1.

    >>> mmd(torch.eye(2), torch.eye(2).flip(0))
    tensor(0.)
    """

    def kernel(x: Tensor, y: Tensor) -> Tensor:
        # without a matrix product, whose rounding would give a vector a distance from itself
        distance = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
        return torch.exp(-gamma * distance**power).mean()

    return kernel(images, images) - 2 * kernel(images, texts) + kernel(texts, texts)
