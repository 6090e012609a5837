"""InfoNCE, the objective of CLIP, with a learned temperature and optional hard negatives.

    in-batch      B images x B texts
    hard texts    B images x 2B texts       each image against all texts, each positive text against all images
    hard pairs    2B images x 2B texts      negative pairs are treated like all other pairs

The variant depends on the hard negatives of the batch, thus on `[negatives]` of the recipe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the usual name

from crossmatch.data.errors import UsageError
from crossmatch.train.objectives import InfoNCEOptions

if TYPE_CHECKING:
    from crossmatch.train.data.training_set import TrainingBatch


def info_nce(scores: Tensor, true_pairs: Tensor | None = None) -> Tensor:
    """Each image should score highest with its own text, and each text that has an image with that image.

        L = ½ · (L_i2t + L_t2i)
        L_i2t = −1/I · Σ_{i<I} log( e^{s_ii} / Σ_{j<T} e^{s_ij} )
        L_t2i = −1/I · Σ_{i<I} log( e^{s_ii} / Σ_{j<I} e^{s_ji} )

    T = I is radford2021clip, fig. 3; T = 2I is the loss of yuksekgonul2023when, sec. 4, and of CLIP_TROHN-TEXT; with 2B images and
    texts it is that of CLIP_TROHN-IMG (miranda2024bivlc, app. E.3). parekh2021cxc, eq. 1, leaves the pair itself out of the
    denominator and does not halve the sum.

    Args:
        scores: (I, T), cosines divided by the temperature. Text i < I belongs to image i. Further texts are hard negatives: images
            compete against them, but they have no image of their own.
        true_pairs: (I, T), pairs that are not negatives; they are left out of all sums.

    >>> round(float(info_nce(torch.zeros(2, 4))), 4)              # ½ (log 4 + log 2)
    1.0397
    """
    images = len(scores)
    if true_pairs is not None:
        is_diagonal = torch.eye(*scores.shape, dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(true_pairs & ~is_diagonal, -torch.inf)
    own_text = torch.arange(images, device=scores.device)
    return (F.cross_entropy(scores, own_text) + F.cross_entropy(scores[:, :images].T, own_text)) / 2


def contrastive(net: Any, batch: TrainingBatch, progress: float, options: InfoNCEOptions) -> Tensor:
    """InfoNCE over a batch and its hard negatives; `net` has a learned `scale`.

    The option `same` decides about pairs that are true according to the data, but not a row of the batch, such as an image that
    occurs twice with two of its captions. "left-out" ignores them; "negatives" treats them as negatives, as the released code of
    CLIP, NegCLIP and BiVLC does. (Pairs that are true without a link are always negatives.)
    """
    hard = batch.negatives
    regions, words = [batch.regions], [batch.words]
    if hard is not None:
        words.append(hard.words)
        regions += [] if hard.regions is None else [hard.regions]
    if len(batch) == len(words) == 1:
        raise UsageError("A batch of one pair has no negatives. Set train.batch to 2 or more.")
    images, texts = torch.cat([net.images(part) for part in regions]), torch.cat([net.texts(part) for part in words])
    return info_nce(net.scale() * net.similarity(images, texts), batch.true_pairs if options.same == "left-out" else None)
