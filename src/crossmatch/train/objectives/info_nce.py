"""What CLIP is trained by: InfoNCE with a learned temperature, over a batch alone or with hard negatives in it.

    in-batch      B images x B texts
    hard texts    B images x 2B texts       each image against all texts, each positive text against all images
    hard pairs    2B images x 2B texts      a negative pair is a pair like any other

Which of them it is follows from what the batch carries, which `[negatives]` of a recipe asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from crossmatch.core.errors import MissingDependency, WrongWords

try:
    import torch
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from torch import Tensor

    from crossmatch.train.batch import Batch

SAME = ("left-out", "negatives")  # what a pair of the batch is that the data know to be true, though it is no row of it


def info_nce(scores: Tensor, known: Tensor | None = None) -> Tensor:
    """Each image must find its own text among all texts, and each text that has an image must find it among all images.

        L = ½ · (L_i2t + L_t2i)
        L_i2t = −1/I · Σ_{i<I} log( e^{s_ii} / Σ_{j<T} e^{s_ij} )
        L_t2i = −1/I · Σ_{i<I} log( e^{s_ii} / Σ_{j<I} e^{s_ji} )

    `scores` (I, T) are cosines over the temperature, images as rows; text i < I belongs to image i, and texts from I on to none:
    they are hard negatives, against which images compete, but which do not look for an image. T = I is radford2021clip, fig. 3;
    T = 2I is the loss of yuksekgonul2023when, sec. 4, and of CLIP_TROHN-TEXT; with 2B images and texts it is that of
    CLIP_TROHN-IMG (miranda2024bivlc, app. E.3).

    `known` (I, T) marks pairs that are no negatives though they are not of one row; they are left out of all sums.

    >>> round(float(info_nce(torch.zeros(2, 4))), 4)              # ½ (log 4 + log 2)
    1.0397
    """
    images = len(scores)
    if known is not None:
        own = torch.eye(*scores.shape, dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(known & ~own, -torch.inf)
    wanted = torch.arange(images, device=scores.device)
    return (F.cross_entropy(scores, wanted) + F.cross_entropy(scores[:, :images].T, wanted)) / 2


def contrastive(net: Any, batch: Batch, options: Mapping[str, Any]) -> Tensor:
    """InfoNCE over the batch and the hard negatives that it carries; `net` has a learned `scale`.

    `same` says what becomes of the pairs that the data say are true without their being a row: the same image twice with two of
    its captions, or the same text twice. They are left out; "negatives" pushes them apart like all others, as the released code of
    CLIP, NegCLIP and BiVLC does. (Pairs that are true without anybody knowing are negatives in either case.)
    """
    same = options.get("same", SAME[0])
    if same not in SAME:
        raise WrongWords(f"same is {same!r}; one of {', '.join(SAME)} was expected in [objective] of the recipe.")
    hard = batch.negatives
    seen, said = [batch.regions], [batch.words]
    if hard is not None:
        said.append(hard.words)
        seen += [] if hard.regions is None else [hard.regions]
    if len(batch) == len(said) == 1:
        raise WrongWords("a batch of one pair has no negatives. Set batch in [train] of the recipe to 2 or more.")
    images, texts = torch.cat([net.images(each) for each in seen]), torch.cat([net.texts(each) for each in said])
    return info_nce(net.scale() * net.similarity(images, texts), batch.known if same == SAME[0] else None)
