"""ConSE: pictures in the space of a sentence encoder, by what a classifier sees in them. A zero-shot model with no training."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.errors import WrongWords
from crossmatch.models.efficientnet import VARIANTS, EfficientNetLite, class_names
from crossmatch.models.sentence import MiniLM

if TYPE_CHECKING:
    from PIL.Image import Image

TOP = 10  # T, the best of the values that the paper tries


def spoken(names: Sequence[str]) -> str:
    """The text that stands for a class: all its names, after an article.

    Chosen on texts alone, by how well MiniLM finds the classes by their definitions in WordNet, and not on any picture.

    >>> spoken(("cup", "mug"))
    'a cup, mug'
    """
    return f"a {', '.join(names)}"


class ConSE:
    """A picture is the convex combination of the sentence embeddings s(y) of the classes that it most probably shows.

        f(x) = 1/Z · Σ_{t≤T} p(y_t | x) · s(y_t),    Z = Σ_{t≤T} p(y_t | x)

    y_t is the t-th most probable class of EfficientNet-Lite, s is MiniLM, T = 10. A text is s(text); the cosine compares them.
    What is no class of ImageNet ("a person") is seen through its neighbours at best. Source: norouzi2014conse, sec. 3.2.
    """

    similarity = "cosine"

    def __init__(self, variant: str = "lite0", top: int = TOP) -> None:
        if variant not in VARIANTS:
            raise WrongWords(f"conse:{variant} has no meaning; it takes the classifier: conse:{', conse:'.join(VARIANTS)}.")
        self.top = top
        self.image = EfficientNetLite(variant)
        self.text = MiniLM()
        self.longest = self.text.longest
        seen = self.image.signature.removesuffix("|fp32")
        self.signature = f"conse|{seen}|{self.text.signature.removesuffix('|fp32')}|classes:top{top}/{spoken(('NAMES',))}|fp32"

    @cached_property
    def classes(self) -> NDArray[np.float32]:
        """s(y) of all classes: unit vectors (1000, D)."""
        return self.text.embed_texts([spoken(names) for names in class_names()])

    def prepare_images(self, images: Sequence[Image]) -> NDArray[np.uint8]:
        """Pictures as the classifier takes them. May run in another thread."""
        return self.image.prepare_images(images)

    def embed_prepared(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """f(x) of what `prepare_images` made."""
        return combined(self.image.probabilities(pixels), self.classes, self.top)

    def embed_images(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """f(x) of pictures: (n, D)."""
        return self.embed_prepared(self.prepare_images(images))

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """s(text): unit vectors (n, D)."""
        return self.text.embed_texts(texts)

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts the sentence encoder cuts off."""
        return self.text.truncated(texts)


def combined(probabilities: NDArray[np.float32], classes: NDArray[np.float32], top: int) -> NDArray[np.float32]:
    """The mean of the vectors of the `top` most probable classes, weighted by their probabilities: (n, D).

    >>> corners = np.eye(3, dtype=np.float32)
    >>> combined(np.array([[0.6, 0.2, 0.2 / 3]], np.float32), corners, top=2)
    array([[0.75, 0.25, 0.  ]], dtype=float32)
    """
    best = np.argsort(-probabilities, axis=1, kind="stable")[:, :top]
    weights = np.zeros_like(probabilities)
    np.put_along_axis(weights, best, np.take_along_axis(probabilities, best, axis=1), axis=1)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True) @ classes, dtype=np.float32)


def conse(rest: str) -> ConSE:
    """The model of `conse[:VARIANT]`."""
    return ConSE(rest or "lite0")
