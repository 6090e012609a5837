"""Trained captioners as models: log-likelihoods of texts, and generated captions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crossmatch.data.errors import CrossmatchError
from crossmatch.models.decoding_options import DecodingOptions
from crossmatch.models.zoo.caption_decoder_layers import select_items
from crossmatch.models.zoo.decoding import MAX_CAPTION_WORDS, DecodedCaptions, beam_search, decode_greedily, sample_captions
from crossmatch.models.zoo.network_inputs import BEGIN, END, FIRST_WORD, MAX_WORDS, PAD, Regions, Words
from crossmatch.models.zoo.trained_model import ZooModel, concatenate_padded, deduplicate_images

if TYPE_CHECKING:
    from PIL.Image import Image

BLOCK = 1 << 26  # bytes of image-text pairs that are processed at once


class CaptioningModel(ZooModel):
    """A captioner: it generates captions, and gives the likelihood of a given text. Batching changes scores by rounding only.

    A text consists of its words, of which the network reads the first 60 (`inputs.MAX_WORDS`), and its end. All unknown words are
    the same word.
    """

    # -- log-likelihoods

    def log_likelihood(self, images: Sequence[Image], texts: Sequence[str]) -> NDArray[np.float64]:
        """log P(text | image) in nats for every image and text: (images, texts). Not normalised by length."""
        distinct, position = deduplicate_images(images)
        return self._likelihood_matrix([encoded for _, encoded in self._encode_images(distinct)], texts)[position]

    def log_likelihood_of_regions(self, regions: Regions, texts: Sequence[str]) -> NDArray[np.float64]:
        """`log_likelihood` of images that are given as regions."""
        return self._likelihood_matrix([encoded for _, encoded in self._encode_images(regions)], texts)

    def log_likelihood_of_pairs(self, images: Sequence[Image], texts: Sequence[str]) -> NDArray[np.float64]:
        """log P(text n | image n) in nats: (n,)."""
        if len(images) != len(texts):
            raise CrossmatchError(f"log_likelihood_of_pairs got {len(images)} images and {len(texts)} texts; pass equal numbers.")
        distinct, position = deduplicate_images(images)
        out = np.empty(len(texts))
        encoded = concatenate_padded([part for _, part in self._encode_images(distinct)]) if distinct else ()
        words = self.vocabulary.encode(texts)
        order, sizes = self._sort_by_length(words, encoded)
        for _, columns in pair_blocks(1, sizes):
            rows = order[columns]
            out[rows.numpy()] = self._pair_likelihoods(encoded, torch.from_numpy(position)[rows], words[rows])
        return out

    def compare(self, regions: Regions, texts: Sequence[str]) -> NDArray[np.float32]:
        """Log-likelihood per word (see `lengths`) of every image, given as regions, and text: (images, texts).

        Source: hu2019bison, app. D.2.
        """
        return np.asarray(self.log_likelihood_of_regions(regions, texts) / self.lengths(texts), dtype=np.float32)

    def lengths(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Number of words that each log-likelihood sums over, including the end of the text."""
        return np.asarray([min(len(row) - 1, MAX_WORDS + 1) for row in self.vocabulary.encode_rows(texts)], dtype=np.int64)

    def _likelihood_matrix(self, parts: list[Any], texts: Sequence[str]) -> NDArray[np.float64]:
        """Score each distinct text once, texts of similar length together, a block of pairs at a time."""
        distinct, position = np.unique(np.asarray(texts, dtype=np.str_), return_inverse=True)
        encoded = concatenate_padded(parts) if parts else (torch.empty(0),)
        out = np.empty((len(encoded[0]), len(distinct)))
        words = self.vocabulary.encode(distinct.tolist())
        order, sizes = self._sort_by_length(words, encoded)
        for rows, columns in pair_blocks(len(out), sizes):
            images, numbers = torch.arange(rows.start, rows.stop), words[order[columns]].numbers
            values = self._pair_likelihoods(encoded, images.repeat_interleave(len(numbers)), Words(numbers.repeat(len(images), 1)))
            out[rows, order[columns].numpy()] = values.reshape(len(images), len(numbers))
        return out[:, position.ravel()]

    def _sort_by_length(self, words: Words, encoded: Any) -> tuple[Tensor, list[int]]:
        """Order of the texts, shortest first, and the approximate bytes that each needs together with an image.

        Counts the encoded image, and two copies of the word probabilities and LSTM gates at each word.
        """
        image_bytes = sum(values[:1].numel() * values.element_size() for values in encoded)
        lengths, order = words.lengths.sort(stable=True)
        return order, (image_bytes + 8 * lengths * (len(self.vocabulary) + 8 * int(self.match.config.dimensions))).tolist()

    def _pair_likelihoods(self, encoded: Any, images: Tensor, words: Words) -> NDArray[np.float64]:
        """Log-likelihood of text n with the image of number images[n]: (n,)."""
        with torch.inference_mode():
            log_probabilities: Tensor = self.match.word_log_probabilities(select_items(encoded, images), words)
            return log_probabilities.double().sum(dim=1).numpy()

    # -- captions

    default_decoding = DecodingOptions()  # the default of `caption`

    def caption(self, images: Sequence[Image], **how: Any) -> list[str]:
        """Generate a caption for each image: lower-case words separated by spaces.

        Args:
            images: The images.
            how: `decoding` is "beam" (with `width`, 5, and `length_penalty`, 1.0), "greedy", or "sampled" (with `temperature`, 1.0,
                and `seed`, 0); `longest` (61) is the maximum number of words, including the end. See
                `crossmatch.models.zoo.decoding`.
        """
        return self._decode(self._encode_images(images), DecodingOptions.from_mapping(how))

    def caption_regions(self, regions: Regions, **how: Any) -> list[str]:
        """`caption` of images that are given as regions."""
        return self._decode(self._encode_images(regions), DecodingOptions.from_mapping(how))

    def cut_short(self, captions: Sequence[str], longest: int = MAX_CAPTION_WORDS) -> NDArray[np.bool_]:
        """Which of the model's captions reached the maximum length without an end."""
        return np.asarray([len(text.split()) >= longest for text in captions], dtype=bool)

    def filled(self, captions: Sequence[str], longest: int = MAX_CAPTION_WORDS) -> NDArray[np.bool_]:
        """Which of the model's captions ended exactly at the maximum length."""
        return np.asarray([len(text.split()) == longest - 1 for text in captions], dtype=bool)

    def _decode(self, parts: Iterator[tuple[slice, Any]], how: DecodingOptions) -> list[str]:
        generator = torch.Generator().manual_seed(how.seed)
        decoders: Mapping[str, Callable[[Any, Any, int], DecodedCaptions]] = {
            "greedy": decode_greedily,
            "sampled": partial(sample_captions, temperature=how.temperature, generator=generator),
            "beam": partial(beam_search, width=how.width, length_penalty=how.length_penalty),
        }
        captions: list[str] = []
        for _, encoded in parts:
            with torch.inference_mode():
                decoded = decoders[how.decoding](self.match, encoded, how.longest or MAX_CAPTION_WORDS)
                captions += self.decode_words(decoded.numbers)
        return captions

    def decode_words(self, numbers: Tensor) -> list[str]:
        """Turn rows of word numbers into texts: up to `END` or `PAD`, without `BEGIN`. The unknown word becomes "unk"."""
        return [" ".join(self._spell(row)) for row in numbers.tolist()]

    def _spell(self, row: Sequence[int]) -> Iterator[str]:
        for number in row:
            if number in (END, PAD):
                return
            if number != BEGIN:
                yield self.vocabulary.words[number - FIRST_WORD] if number >= FIRST_WORD else "unk"


def pair_blocks(images: int, sizes: Sequence[int]) -> Iterator[tuple[slice, slice]]:
    """Split all image-text pairs into blocks of at most `BLOCK` bytes, or of one pair.

    `sizes` are the bytes of a pair with each text, in ascending order.

    >>> list(pair_blocks(2, [BLOCK // 4, BLOCK // 4, BLOCK // 2, 2 * BLOCK]))
    [(slice(0, 2, None), slice(0, 2, None)), (slice(0, 2, None), slice(2, 3, None)), (slice(0, 1, None), slice(3, 4, None)), \
(slice(1, 2, None), slice(3, 4, None))]
    """
    first = 0
    while first < len(sizes):
        end = first + 1
        while end < len(sizes) and images * (end + 1 - first) * sizes[end] <= BLOCK:
            end += 1
        rows = max(1, BLOCK // ((end - first) * sizes[end - 1]))
        yield from ((slice(row, min(row + rows, images)), slice(first, end)) for row in range(0, images, rows))
        first = end
