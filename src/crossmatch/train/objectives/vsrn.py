"""What VSRN is trained by: a caption must be found, and it must be told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from crossmatch.core.errors import MissingDependency
from crossmatch.models.zoo.inputs import PAD
from crossmatch.train.objectives.triplet import MARGIN, hinge

try:
    import torch  # noqa: F401 - this needs it, though only its tensors' methods are used
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from torch import Tensor

    from crossmatch.models.zoo.vsrn import VSRN
    from crossmatch.train.batch import Batch


def generation(log_probabilities: Tensor, numbers: Tensor) -> Tensor:
    """How surprised the decoder is by the captions: the sum over a caption's words, the mean over the captions.

        L_G = −Σ_t log p(y_t | y_t−1, V*; θ)                                                    li2019vsrn, sec. 3.4

    `log_probabilities` (N, L - 1, words) are of the words after the first; `numbers` (N, L) are the words themselves. The end of a
    caption counts as a word, what comes after it does not.

    >>> even = torch.full((1, 2, 4), 0.25).log()
    >>> round(float(generation(even, torch.tensor([[2, 3, PAD]]))), 4)        # one word among four: log 4
    1.3863
    """
    wanted = numbers[:, 1:]
    said = log_probabilities.gather(2, wanted.unsqueeze(2)).squeeze(2)
    return -(said * (wanted != PAD)).sum(dim=1).mean()


def vsrn(net: VSRN, batch: Batch, options: Mapping[str, Any]) -> Tensor:
    """Matching and generation, added up with weights 1 and 1 unless the recipe says otherwise.

        L = L_M + L_G                                                                           li2019vsrn, sec. 3.4

    L_M is the hinge on the hardest negatives, summed over the batch as in the released code; `matching`, `generation` are the
    weights. `warm_up` is the share of the training in which all negatives count (see `triplet`).
    """
    regions = net.reasoned(batch.regions)
    scores = net.similarity(net.remembered(regions, batch.regions.real), net.texts(batch.words))
    early = options.get("progress", 1.0) < options.get("warm_up", 0.0)
    negatives = "sum" if early else options.get("negatives", "hardest")
    found = hinge(scores, batch.image, negatives, options.get("margin", MARGIN))
    told = generation(net.teller(regions, batch.regions.real, batch.words.numbers), batch.words.numbers)
    return options.get("matching", 1.0) * found + options.get("generation", 1.0) * told  # type: ignore[no-any-return]
