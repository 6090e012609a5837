"""ConSE: images in the space of a sentence encoder, by the classes that a classifier predicts. Zero-shot, without training."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.errors import UsageError
from crossmatch.models.adapters.efficientnet import VARIANTS, EfficientNetLite, class_names
from crossmatch.models.adapters.sentence_encoders import MiniLM

if TYPE_CHECKING:
    from PIL.Image import Image

TOP_CLASSES = 10  # T, the best of the values in the paper


def class_text(names: Sequence[str]) -> str:
    """Return the text that represents a class: all its names, after an article.

    Chosen on texts alone, by how well MiniLM finds the classes by their WordNet definitions, and not on any image.

    >>> class_text(("cup", "mug"))
    'a cup, mug'
    """
    return f"a {', '.join(names)}"


class ConSE:
    """Represents an image by a convex combination of the sentence embeddings s(y) of its most probable classes.

        f(x) = 1/Z · Σ_{t≤T} p(y_t | x) · s(y_t),    Z = Σ_{t≤T} p(y_t | x)

    y_t is the t-th most probable class of EfficientNet-Lite, s is MiniLM, T = 10. A text is s(text), compared by the cosine.
    Concepts that are not ImageNet classes ("a person") are represented by similar classes at best.
    Source: norouzi2014conse, sec. 3.2.
    """

    similarity = "cosine"

    def __init__(self, variant: str = "lite0", top: int = TOP_CLASSES) -> None:
        if variant not in VARIANTS:
            raise UsageError(f"conse:{variant}: there is no such classifier. Use one of conse:{', conse:'.join(VARIANTS)}.")
        self.top = top
        self.image = EfficientNetLite(variant)
        self.text = MiniLM()
        self.prepare_images = self.image.prepare_images
        self.embed_texts, self.truncated, self.longest = self.text.embed_texts, self.text.truncated, self.text.longest
        image, text = (encoder.signature.removesuffix("|fp32") for encoder in (self.image, self.text))
        self.signature = f"conse|{image}|{text}|classes:top{top}/{class_text(('NAMES',))}|fp32"

    @cached_property
    def classes(self) -> NDArray[np.float32]:
        """s(y) of all classes: unit vectors (1000, D)."""
        return self.text.embed_texts([class_text(names) for names in class_names()])

    def embed_prepared(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """f(x) of what `prepare_images` returned: (n, D)."""
        return combine_classes(self.image.probabilities(pixels), self.classes, self.top)

    def embed_images(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """f(x) of images: (n, D)."""
        return self.embed_prepared(self.prepare_images(images))


def combine_classes(probabilities: NDArray[np.float32], classes: NDArray[np.float32], top: int) -> NDArray[np.float32]:
    """Average the vectors of the `top` most probable classes, weighted by their probabilities: (n, D).

    >>> corners = np.eye(3, dtype=np.float32)
    >>> combine_classes(np.array([[0.6, 0.2, 0.2 / 3]], np.float32), corners, top=2)
    array([[0.75, 0.25, 0.  ]], dtype=float32)
    """
    best = np.argsort(-probabilities, axis=1, kind="stable")[:, :top]
    weights = np.zeros_like(probabilities)
    np.put_along_axis(weights, best, np.take_along_axis(probabilities, best, axis=1), axis=1)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True) @ classes, dtype=np.float32)


def make_conse(argument: str) -> ConSE:
    """Make the model of `conse[:VARIANT]`."""
    return ConSE(argument or "lite0")
