"""What PVSE is trained by: a hinge on the closest of K x K vectors, and terms that keep the K apart and the sides together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from crossmatch.core.errors import MissingDependency
from crossmatch.models.zoo.parts import unit
from crossmatch.train.objectives.triplet import hinge

try:
    import torch
    from torch import Tensor
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from crossmatch.models.zoo.pvse import PVSE
    from crossmatch.train.batch import Batch

MARGIN, MMD, DIVERSITY = 0.1, 0.01, 0.1  # the command for COCO in the released code's README (song2019pvse)
GAMMA = 0.5  # of the kernel, in the released code


def pvse(net: PVSE, batch: Batch, options: Mapping[str, Any]) -> Tensor:
    """The multiple-instance hinge, the diversity of each side, and the discrepancy between the two.

        L = L_mil + λ_div · (L_div(Υ_image) + L_div(Υ_text)) + λ_mmd · L_mmd                        song2019pvse, sec. 3

    All three are means, as in the released code, or the weights would mean something else. With K = 1 there is nothing to keep
    apart, and the released code leaves the last two terms out, so that a plain hinge remains.

    `options`: `margin`, `negatives` and `warm_up` as in `triplet`, the weights `diversity` and `mmd`, and `mmd_power` (see `mmd`).
    """
    seen, said = net.image_senses(batch.regions), net.text_senses(batch.words)
    scores = net.similarity(seen.embedded, said.embedded)
    early = options.get("progress", 1.0) < options.get("warm_up", 0.0)
    negatives = "sum" if early else options.get("negatives", "hardest")
    loss = mean_hinge(scores, batch.image, negatives, options.get("margin", MARGIN))
    if seen.embedded.shape[1] == 1:
        return loss
    apart = diversity(seen.guided) + diversity(said.guided)
    together = mmd(seen.embedded.flatten(0, 1), said.embedded.flatten(0, 1), power=options.get("mmd_power", 1))
    total: Tensor = loss + options.get("diversity", DIVERSITY) * apart + options.get("mmd", MMD) * together
    return total


def mean_hinge(scores: Tensor, image: Tensor, negatives: str, margin: float) -> Tensor:
    """`hinge` divided by how many there are in one direction: B with one negative for each pair, B² with all of them.

    On scores that are already the highest over K x K this is the multiple-instance loss (song2019pvse, sec. 3).
    """
    return hinge(scores, image, negatives, margin) / len(scores) ** (2 if negatives == "sum" else 1)


def diversity(guided: Tensor) -> Tensor:
    """How alike the K locally guided features of an item are, as the mean over items: from (N, K, D).

        L_div = 1/N · Σ_n 1/K² · ‖G_n − I‖_F,    G_n the cosines between the K rows of Υ_n           song2019pvse, sec. 3

    >>> diversity(torch.eye(3)[None]), diversity(torch.ones(1, 2, 5))
    (tensor(0.), tensor(0.3536))
    """
    rows = unit(guided)
    own = torch.eye(rows.shape[1], dtype=torch.bool, device=rows.device)
    alike = (rows @ rows.transpose(1, 2)).masked_fill(own, 0.0)  # the diagonal is 1 but for rounding
    return torch.linalg.vector_norm(alike, dim=(1, 2)).mean() / rows.shape[1] ** 2  # type: ignore[no-any-return]


def mmd(images: Tensor, texts: Tensor, gamma: float = GAMMA, power: int = 1) -> Tensor:
    """The maximum mean discrepancy between two sets of vectors, (N, D) and (M, D): 0 if they are the same set.

        MMD = E k(x, x') − 2 E k(x, y) + E k(y, y'),    k(x, y) = exp(−γ ‖x − y‖^power)            gretton2012kernel, eq. 5

    The means are over all pairs, a vector with itself among them. The Gaussian kernel has power 2; the released code of PVSE leaves
    the distance unsquared, so that the published weight goes with power 1.

    >>> mmd(torch.eye(2), torch.eye(2).flip(0))
    tensor(0.)
    """

    def kernel(x: Tensor, y: Tensor) -> Tensor:
        # not by a matrix product, which would give a vector a distance from itself
        away = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
        return torch.exp(-gamma * away**power).mean()

    return kernel(images, images) - 2 * kernel(images, texts) + kernel(texts, texts)
