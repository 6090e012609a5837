"""Training of a zoo model, or of any model with the same methods, on a training set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from crossmatch.data.errors import UsageError
from crossmatch.train.data.training_set import BatchRows, HardNegatives, TrainingBatch, TrainingSet
from crossmatch.train.recipe import TrainSettings
from crossmatch.train.validation import require_valid_validation_set, validate

if TYPE_CHECKING:
    from crossmatch.train.objectives import Objective


@dataclass(eq=False)
class ZooTraining:
    """A model, its objective, data and settings, for `crossmatch.train.loop.fit`.

    `model` has `net` (all weights), `match` (the argument of the objective), `as_regions` (turns the store's images into
    regions), and `compare` or another method that validation needs.
    """

    model: Any
    objective: Objective
    data: TrainingSet
    validation: TrainingSet
    settings: TrainSettings
    measure: Callable[[Any, TrainingSet], dict[str, float]] | None = None  # default: `validation.validate`
    keeps_last_epoch: bool = False
    initial_rng_state: Tensor | None = None
    zero_loss_hint: str = ""
    _texts: Any = field(default=None, init=False, repr=False)
    _rows: list[BatchRows] = field(default_factory=list, init=False, repr=False)

    @property
    def net(self) -> nn.Module:
        net: nn.Module = self.model.net
        return net

    @property
    def steps_per_epoch(self) -> int:
        return self.data.steps(self.settings.batch)

    def prepare(self, is_fresh: bool) -> None:
        self._texts = read_texts(self.model, self.data.captions)
        if is_fresh:
            self._require_other_captions()
            require_valid_validation_set(self.model, self.validation)

    def begin_epoch(self, epoch: int) -> None:
        self._rows = self.data.batches(self.settings.batch, self.settings.seed, epoch)

    def loss(self, step: int, progress: float) -> Tensor:
        return self.objective(self.model.match, self.make_batch(self._rows[step]), progress)

    def validate(self) -> dict[str, float]:
        return (self.measure or validate)(self.model, self.validation)

    def batches(self, epoch: int) -> Iterator[TrainingBatch]:
        """All batches of an epoch."""
        if self._texts is None:
            self._texts = read_texts(self.model, self.data.captions)
        self.begin_epoch(epoch)
        return map(self.make_batch, self._rows)

    def make_batch(self, rows: BatchRows) -> TrainingBatch:
        """Collect the images and texts of a batch."""
        has_negative_images = rows.hard is not None and bool((rows.hard[:, 0] >= 0).all())
        numbers = np.concatenate([rows.image, rows.hard[:, 0]]) if rows.hard is not None and has_negative_images else rows.image
        # positives and negatives together, so that a batch norm does not distinguish them
        regions = self.model.as_regions(self.data.store.take(numbers))
        others = self._texts[torch.from_numpy(rows.other)] if self.settings.pairs == "captions" else None
        words, image = self._texts[torch.from_numpy(rows.caption)], torch.from_numpy(rows.image)
        true_pairs = torch.from_numpy(self.data.find_true_pairs(rows))
        if rows.hard is None:
            return TrainingBatch(regions, words, image, others, true_pairs=true_pairs)
        count, negative_image = len(rows.image), torch.from_numpy(rows.hard[:, 0]) if has_negative_images else None
        negative_words = self._texts[torch.from_numpy(rows.hard[:, 1])]
        negatives = HardNegatives(negative_words, regions[count:] if has_negative_images else None, negative_image)
        return TrainingBatch(regions[:count], words, image, others, negatives, true_pairs)

    def _require_other_captions(self) -> None:
        """Refuse to match captions with captions if no image has two: each would be matched with itself."""
        if self.settings.pairs == "captions" and np.bincount(self.data.links[:, 0]).max() < 2:
            raise UsageError(
                'train.pairs is "captions", which matches captions of the same image, but no image has two captions. Use a recipe '
                "for images and captions, such as de-i2t, or other data."
            )


def read_texts(model: Any, texts: Sequence[str]) -> Any:
    """All texts in the form that the network reads: its own (`read_all`), or word numbers."""
    read_all = getattr(model.match, "read_all", None)
    return read_all(list(texts)) if read_all is not None else model.vocabulary.encode(texts)
