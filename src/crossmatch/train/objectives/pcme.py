"""What PCME is trained by: the soft contrastive loss over samples, and two terms that keep distributions wide and apart."""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import TYPE_CHECKING, Any

from crossmatch.core.errors import MissingDependency
from crossmatch.models.zoo.pcme import Gaussian, logit, sampled, squared

try:
    import torch
    from torch import Tensor
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from crossmatch.models.zoo.pcme import PCME
    from crossmatch.train.batch import Batch

SAMPLES, KL, UNIFORMITY = 7, 1e-5, 0.0  # config/coco/pcme_coco.yaml of the released code (chun2021pcme)
SHARPNESS = 2.0  # t of the uniformity, wang2020understanding, sec. 4.1


def pcme(net: PCME, batch: Batch, options: Mapping[str, Any]) -> Tensor:
    """The soft contrastive loss in both directions, the divergence from N(0, I), and the uniformity of the samples.

        L = L_i2t + L_t2i + β · (KL_image + KL_text) + λ · L_uniform                              chun2021pcme, sec. 3.2

    Both directions add up the same B² pairs, hence the factor of 2. The first four are sums over the batch, as in the released
    code, or the weights would mean something else. Its configuration for COCO has β = 1e-5 and no uniformity; that for CUB has
    β = 1e-3, λ = 10, and a = b = 5.

    `options`: `samples` (J), and the weights `kl` (β) and `uniformity` (λ).
    """
    seen, said = net.images(batch.regions), net.texts(batch.words)
    samples, spread = options.get("samples", SAMPLES), options.get("uniformity", UNIFORMITY)
    pictures, texts = (sampled(items, _noise(items, samples)) for items in (seen, said))
    loss: Tensor = 2 * soft_contrastive(pictures, texts, batch.image[:, None] == batch.image, net.scale, net.shift)
    loss = loss + options.get("kl", KL) * (divergence(seen) + divergence(said))
    if spread:
        loss = loss + spread * uniformity(torch.cat([pictures, texts]).flatten(0, 1))
    return loss


def _noise(items: Gaussian, samples: int) -> Tensor:
    """Of each item's own, unlike in retrieval: (N, J, D)."""
    return torch.randn(len(items.mean), samples, items.mean.shape[1], dtype=items.mean.dtype, device=items.mean.device)


def soft_contrastive(images: Tensor, texts: Tensor, matched: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Samples of what belongs together should be near, those of all else far: from (I, J, D), (T, J, D) and (I, T) bool, a sum.

        L = Σ_{i,c} −log p(m | i, c)         if the two belong together
                    −log(1 − p(m | i, c))    else                                                 chun2021pcme, eq. 2

    p is the mean over the J² pairs of samples (eq. 3) of a sigmoid of their distance (eq. 4). All is done with logarithms: at the
    start the samples are so far apart that p is 0 in single precision.
    """
    many = images.shape[1] * texts.shape[1]
    squares = squared(images.flatten(0, 1), texts.flatten(0, 1))
    logits = logit(squares, scale, shift).reshape(len(images), -1, len(texts), texts.shape[1])
    sign = matched.to(logits.dtype).mul(2).sub(1)[:, None, :, None]  # 1 − sigmoid(x) = sigmoid(−x)
    return -(F.logsigmoid(sign * logits).logsumexp(dim=(1, 3)) - log(many)).sum()


def divergence(items: Gaussian) -> Tensor:
    """KL(N(μ, diag σ²) ‖ N(0, I)), summed over items; without it all σ go to 0 and means alone are left.

        KL = ½ · Σ_n Σ_d (μ² + σ² − 1 − log σ²)                                                   chun2021pcme, sec. 3.2

    The released code has log σ where log σ² belongs, and the mean of the samples for μ; this is the divergence itself.

    >>> zero = torch.zeros(1, 3)
    >>> float(divergence(Gaussian(zero, zero))), float(divergence(Gaussian(zero + 2, zero)))
    (0.0, 6.0)
    """
    log_variance = 2 * items.log_sigma
    return (items.mean.square() + log_variance.exp() - 1 - log_variance).sum() / 2


def uniformity(points: Tensor, sharpness: float = SHARPNESS) -> Tensor:
    """How much the points (N, D) crowd together, as a logarithm; the lower the more evenly they are spread.

        log E exp(−t ‖x − y‖²),    over all pairs of two different points                         wang2020understanding, eq. 2

    The released code takes 128 of the samples at random; here all are taken.

    >>> round(float(uniformity(torch.eye(2))), 6)
    -4.0
    """
    many = len(points)
    own = torch.eye(many, dtype=torch.bool, device=points.device)
    return (-sharpness * squared(points, points)).masked_fill(own, -torch.inf).flatten().logsumexp(dim=0) - log(many * (many - 1))
