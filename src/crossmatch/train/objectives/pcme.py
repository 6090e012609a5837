"""The objective of PCME: the soft contrastive loss over samples, and terms that keep distributions wide and apart."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the usual name

from crossmatch.models.zoo.pcme import Gaussian, draw_samples, match_logits, squared_distances
from crossmatch.train.objectives import PCMEOptions

if TYPE_CHECKING:
    from crossmatch.models.zoo.pcme import PCME
    from crossmatch.train.data.training_set import TrainingBatch

SHARPNESS = 2.0  # t of the uniformity, wang2020understanding, sec. 4.1


def pcme(net: PCME, batch: TrainingBatch, progress: float, options: PCMEOptions) -> Tensor:
    """Soft contrastive loss in both directions, divergence from N(0, I), and uniformity of the samples.

        L = L_i2t + L_t2i + β · (KL_image + KL_text) + λ · L_uniform                              chun2021pcme, sec. 3.2

    Both directions sum the same B² pairs, hence the factor of 2. The first four terms are sums over the batch, as in the released
    code, to which the weights belong. Its configuration for COCO has β = 1e-5 and no uniformity; that for CUB has β = 1e-3, λ = 10,
    and a = b = 5.

    `options`: `samples` (J), and the weights `kl` (β) and `uniformity` (λ).
    """
    images, texts = net.images(batch.regions), net.texts(batch.words)
    image_samples, text_samples = (draw_samples(items, _noise(items, options.samples)) for items in (images, texts))
    is_match = batch.image[:, None] == batch.image
    loss: Tensor = 2 * soft_contrastive(image_samples, text_samples, is_match, net.scale, net.shift)
    loss = loss + options.kl * (divergence(images) + divergence(texts))
    if options.uniformity:
        loss = loss + options.uniformity * uniformity(torch.cat([image_samples, text_samples]).flatten(0, 1))
    return loss


def _noise(items: Gaussian, samples: int) -> Tensor:
    """Independent noise for each item, unlike in retrieval: (N, J, D)."""
    return torch.randn(len(items.mean), samples, items.mean.shape[1], dtype=items.mean.dtype, device=items.mean.device)


def soft_contrastive(images: Tensor, texts: Tensor, matched: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Samples of matching pairs should be near, all others far. Takes (I, J, D), (T, J, D) and (I, T) bool; returns a sum.

        L = Σ_{i,c} −log p(m | i, c)         if they match
                    −log(1 − p(m | i, c))    else                                                 chun2021pcme, eq. 2

    p is the mean over the J² pairs of samples (eq. 3) of a sigmoid of their distance (eq. 4). Everything is computed in logarithms,
    because at first the samples are so far apart that p is 0 in single precision.
    """
    pairs = images.shape[1] * texts.shape[1]
    squares = squared_distances(images.flatten(0, 1), texts.flatten(0, 1))
    logits = match_logits(squares, scale, shift).reshape(len(images), -1, len(texts), texts.shape[1])
    sign = matched.to(logits.dtype).mul(2).sub(1)[:, None, :, None]  # 1 − sigmoid(x) = sigmoid(−x)
    return -(F.logsigmoid(sign * logits).logsumexp(dim=(1, 3)) - log(pairs)).sum()


def divergence(items: Gaussian) -> Tensor:
    """KL(N(μ, diag σ²) ‖ N(0, I)), summed over items. Without it, all σ go to 0.

        KL = ½ · Σ_n Σ_d (μ² + σ² − 1 − log σ²)                                                   chun2021pcme, sec. 3.2

    The released code has log σ in place of log σ², and the mean of the samples for μ; this is the exact divergence.

    >>> zero = torch.zeros(1, 3)
    >>> float(divergence(Gaussian(zero, zero))), float(divergence(Gaussian(zero + 2, zero)))
    (0.0, 6.0)
    """
    log_variance = 2 * items.log_sigma
    return (items.mean.square() + log_variance.exp() - 1 - log_variance).sum() / 2


def uniformity(points: Tensor, sharpness: float = SHARPNESS) -> Tensor:
    """Logarithm of how much the points (N, D) cluster; lower values mean that they are spread more evenly.

        log E exp(−t ‖x − y‖²),    over all pairs of two different points                         wang2020understanding, eq. 2

    The released code uses 128 random samples; here all are used.

    >>> round(float(uniformity(torch.eye(2))), 6)
    -4.0
    """
    count = len(points)
    is_diagonal = torch.eye(count, dtype=torch.bool, device=points.device)
    return (-sharpness * squared_distances(points, points)).masked_fill(is_diagonal, -torch.inf).flatten().logsumexp(dim=0) - log(
        count * (count - 1)
    )
