"""Losses of models that put images and captions into one space."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossmatch.core.errors import MissingDependency

try:
    import torch
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from torch import Tensor


def symmetric_contrastive(images: Tensor, texts: Tensor, scale: Tensor) -> Tensor:
    """Each image must find its own text among the batch's texts, and each text its own image.

        L = ½ · (L_i2t + L_t2i),    L_i2t = −1/N · Σ_i log( exp(τ⁻¹ u_i·v_i) / Σ_j exp(τ⁻¹ u_i·v_j) )

    and L_t2i likewise with u and v exchanged; `scale` is 1/τ. Rows are unit vectors, row i of both belongs together. All
    other pairs of the batch count as negatives, also those that happen to be true: the training data does not say.
    Source: radford2021clip, fig. 3. parekh2021cxc, eq. 1, has the same two directions, but leaves the pair itself out of the
    denominator and does not halve the sum.

    >>> one = torch.eye(3)
    >>> round(float(symmetric_contrastive(one, one, torch.tensor(100.0))), 4)
    0.0
    >>> round(float(symmetric_contrastive(one, one, torch.tensor(0.0))), 4)      # knows nothing: log 3
    1.0986
    """
    scores = scale * images @ texts.T
    own = torch.arange(len(scores))
    return (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2
