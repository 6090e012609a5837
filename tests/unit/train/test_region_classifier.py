"""Training of the region encoder of the embedded world."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch.data.errors import CrossmatchError

torch = pytest.importorskip("torch")

from crossmatch.models.zoo.region_extractors import ExtractorSettings
from crossmatch.train.region_classifier import draw_labelled_crops, train_region_classifier
from crossmatch.train.small_grounder import LABEL_COUNTS, NO_LABEL


def label_accuracies(net, labeller, crops, labels) -> tuple[float, ...]:
    """Shares of kinds (or settings), colours and textures that are labelled right."""
    with torch.inference_mode():
        batches = [torch.from_numpy(crops[first : first + 128]) for first in range(0, len(crops), 128)]
        predictions = torch.cat([labeller(net.eval()(batch)) for batch in batches])
    parts = zip(torch.split(predictions, LABEL_COUNTS, dim=1), torch.from_numpy(labels).T, strict=True)
    return tuple(float((part.argmax(dim=1) == targets)[targets != NO_LABEL].float().mean()) for part, targets in parts)


def test_region_classifier_beats_the_majority_label_and_is_reproducible() -> None:
    validation = draw_labelled_crops("val", 60, 32)
    net, labeller = train_region_classifier(ExtractorSettings(lessons=240), 32)
    for accuracy, labels in zip(label_accuracies(net, labeller, *validation), validation[1].T, strict=True):
        count = np.bincount(labels[labels >= 0])
        majority = count.max() / count.sum()  # accuracy of the most frequent label
        assert accuracy > majority + 3 * np.sqrt(majority * (1 - majority) / count.sum())  # three standard errors
    again, _ = train_region_classifier(ExtractorSettings(lessons=240), 32)
    assert all(torch.equal(values, again.state_dict()[name]) for name, values in net.state_dict().items())
    with pytest.raises(CrossmatchError, match="at least 30"):
        train_region_classifier(ExtractorSettings(lessons=3), 32)
