"""What metrics that look at the picture need of a corpus: its captions as they were written, and the picture of each id."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from crossmatch.captions.corpus import Corpus
from crossmatch.core.errors import CrossmatchError

if TYPE_CHECKING:
    from PIL.Image import Image

Images = Mapping[str, "Image"] | Callable[[str], "Image"]


def written(corpus: Corpus) -> tuple[str, ...]:
    """The captions as they were written: a model has a tokeniser of its own.

    >>> written(Corpus.of({"7": "A dog."}, {"7": ["The dog!"]}))
    ('A dog.', 'The dog!')
    >>> written(Corpus.of_tokens([["a", "dog"]], [[["the", "dog"]]]))
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.CrossmatchError: this corpus holds tokens alone; a model ... Corpus.of(candidates, references).
    """
    if corpus.captions is None:
        raise CrossmatchError(
            "this corpus holds tokens alone; a model reads captions as they were written. "
            "Make it with Corpus.of(candidates, references)."
        )
    return corpus.captions


def picture(images: Images, name: str) -> Image:
    """The picture of an id, from a mapping or a function.

    >>> picture({"7": "the picture"}, "8")
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.CrossmatchError: there is no picture of '8' among 1; ... Add it, or remove the candidate.
    """
    if not isinstance(images, Mapping):
        return images(name)
    if name not in images:
        raise CrossmatchError(
            f"there is no picture of {name!r} among {len(images):,}; every candidate needs one. Add it, or remove the candidate."
        )
    return images[name]
