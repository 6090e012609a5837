"""A trained captioner as a model: how likely a text is for an image, and which text it would tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.models.telling import Telling
from crossmatch.models.zoo.captioner_parts import chosen
from crossmatch.models.zoo.decoding import LONGEST_TOLD, Told, beam, greedy, sampled
from crossmatch.models.zoo.inputs import BEGIN, END, FIRST_WORD, LONGEST, PAD, Regions, Words
from crossmatch.models.zoo.model import Trained, _distinct, _joined

try:
    import torch
    from torch import Tensor
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from PIL.Image import Image

BLOCK = 1 << 26  # bytes that pairs of an image and a text take at once


class CaptioningModel(Trained):
    """A model that tells captions, and how likely it would tell a given one. A score depends on its company by rounding alone.

    A text is its words and its end, of which the network reads the first `LONGEST`; every unknown word is one and the same word.
    """

    # how likely

    def log_likelihood(self, images: Sequence[Image], texts: Sequence[str]) -> NDArray[np.float64]:
        """log P(text | image) in nats, of every image with every text: (images, texts). Sums of word by word, not normalised."""
        distinct, member = _distinct(images)
        return self._likelihoods([seen for _, seen in self._images(distinct)], texts)[member]

    def log_likelihood_of_regions(self, regions: Regions, texts: Sequence[str]) -> NDArray[np.float64]:
        """The same from regions that are there."""
        return self._likelihoods([seen for _, seen in self._regions(regions)], texts)

    def log_likelihood_of_pairs(self, images: Sequence[Image], texts: Sequence[str]) -> NDArray[np.float64]:
        """The same of image n with text n: (n,)."""
        if len(images) != len(texts):
            raise CrossmatchError(f"{len(images)} images came with {len(texts)} texts. Give as many of one as of the other.")
        distinct, member = _distinct(images)
        out = np.empty(len(texts))
        seen = _joined([shown for _, shown in self._images(distinct)]) if distinct else ()
        words = self.vocabulary.numbered(texts)
        order, sizes = self._by_length(words, seen)
        for _, cut in blocks(1, sizes):
            out[order[cut].numpy()] = self._told(seen, torch.from_numpy(member)[order[cut]], words[order[cut]])
        return out

    def compare(self, regions: Regions, texts: Sequence[str]) -> NDArray[np.float32]:
        """The log-likelihood per word (`lengths`) of every image, given as its regions, with every text: (images, texts).

        Source: hu2019bison, app. D.2.
        """
        return np.asarray(self.log_likelihood_of_regions(regions, texts) / self.lengths(texts), dtype=np.float32)

    def lengths(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """The number of words that each log-likelihood is a sum over, the end of the text included."""
        return np.asarray([min(len(row) - 1, LONGEST + 1) for row in self.vocabulary.rows(texts)], dtype=np.int64)

    def _likelihoods(self, parts: list[Any], texts: Sequence[str]) -> NDArray[np.float64]:
        """Each distinct text once, texts of like length together, some pairs at a time."""
        distinct, member = np.unique(np.asarray(texts, dtype=np.str_), return_inverse=True)
        seen = _joined(parts) if parts else (torch.empty(0),)
        out = np.empty((len(seen[0]), len(distinct)))
        words = self.vocabulary.numbered(distinct.tolist())
        order, sizes = self._by_length(words, seen)
        for rows, cut in blocks(len(out), sizes):
            images, given = torch.arange(rows.start, rows.stop), words[order[cut]].numbers
            told = self._told(seen, images.repeat_interleave(len(given)), Words(given.repeat(len(images), 1)))
            out[rows, order[cut].numpy()] = told.reshape(len(images), len(given))
        return out[:, member.ravel()]

    def _by_length(self, words: Words, seen: Any) -> tuple[Tensor, list[int]]:
        """The shortest text first, and about how many bytes each takes together with an image.

        What is seen of the image, and at each word its probabilities and the LSTM's gates, in two copies.
        """
        image = sum(each[:1].numel() * each.element_size() for each in seen)
        lengths, order = words.lengths.sort(stable=True)
        return order, (image + 8 * lengths * (len(self.vocabulary) + 8 * int(self.match.config.dimensions))).tolist()

    def _told(self, seen: Any, images: Tensor, words: Words) -> NDArray[np.float64]:
        """Text n with the image of that number: (n,)."""
        with torch.inference_mode():
            told: Tensor = self.match.told(chosen(seen, images), words)
            return told.double().sum(dim=1).numpy()

    # captions

    usual_telling = Telling()  # how, where nothing is asked for

    def caption(self, images: Sequence[Image], **how: Any) -> list[str]:
        """A caption for each image: lower-case words with spaces between them.

        `decoding` is "beam" (with `width`, 5, and `length_penalty`, 1.0), "greedy", or "sampled" (with `temperature`, 1.0, and
        `seed`, 0); `longest` (61) is how many words a caption may have, its end included. `crossmatch.models.zoo.decoding` says
        what they mean.
        """
        return self._captions(self._images(images), Telling.of(how))

    def caption_regions(self, regions: Regions, **how: Any) -> list[str]:
        """The same from regions that are there."""
        return self._captions(self._regions(regions), Telling.of(how))

    def cut_short(self, captions: Sequence[str], longest: int = LONGEST_TOLD) -> NDArray[np.bool_]:
        """Which of its captions did not end and were cut: those of as many words as one may have, where its end is one."""
        return np.asarray([len(text.split()) >= longest for text in captions], dtype=bool)

    def filled(self, captions: Sequence[str], longest: int = LONGEST_TOLD) -> NDArray[np.bool_]:
        """Which of its captions have as many words as one may have that ends: with another word, they would have been cut."""
        return np.asarray([len(text.split()) == longest - 1 for text in captions], dtype=bool)

    def _captions(self, parts: Iterator[tuple[slice, Any]], how: Telling) -> list[str]:
        generator = torch.Generator().manual_seed(how.seed)
        ways: Mapping[str, Callable[[Any, Any, int], Told]] = {
            "greedy": greedy,
            "sampled": partial(sampled, temperature=how.temperature, generator=generator),
            "beam": partial(beam, width=how.width, length_penalty=how.length_penalty),
        }
        out: list[str] = []
        for _, seen in parts:
            with torch.inference_mode():
                out += self.unread(ways[how.decoding](self.match, seen, how.longest or LONGEST_TOLD).numbers)
        return out

    def unread(self, numbers: Tensor) -> list[str]:
        """Rows of word numbers as texts; each ends at its `END` or `PAD`, and a `BEGIN` is left out. The unknown word is "unk"."""
        return [" ".join(self._spoken(row)) for row in numbers.tolist()]

    def _spoken(self, row: Sequence[int]) -> Iterator[str]:
        for number in row:
            if number in (END, PAD):
                return
            if number != BEGIN:
                yield self.vocabulary.words[number - FIRST_WORD] if number >= FIRST_WORD else "unk"


def blocks(images: int, sizes: Sequence[int]) -> Iterator[tuple[slice, slice]]:
    """Cuts of images and of texts whose pairs fit into `BLOCK` bytes, or are one pair; `sizes` of the texts' pairs do not fall.

    >>> list(blocks(2, [BLOCK // 4, BLOCK // 4, BLOCK // 2, 2 * BLOCK]))
    [(slice(0, 2, None), slice(0, 2, None)), (slice(0, 2, None), slice(2, 3, None)), (slice(0, 1, None), slice(3, 4, None)), \
(slice(1, 2, None), slice(3, 4, None))]
    """
    at = 0
    while at < len(sizes):
        end = at + 1
        while end < len(sizes) and images * (end + 1 - at) * sizes[end] <= BLOCK:
            end += 1
        many = max(1, BLOCK // ((end - at) * sizes[end - 1]))
        yield from ((slice(first, min(first + many, images)), slice(at, end)) for first in range(0, images, many))
        at = end
