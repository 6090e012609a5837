"""Decoding: turn a captioner's probabilities into captions by greedy decoding, sampling, or beam search.

`longest` is the maximum number of words, including `END`. A caption that has not ended by then is cut: it has no `END`, and its
likelihood is that of all captions that begin with it. So the likelihoods of all possible results sum to 1. `UNKNOWN` is never
generated. Among equally likely words, the one with the lower number is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from crossmatch.data.errors import UsageError
from crossmatch.models.decoding_options import MAX_CAPTION_LENGTH, MAX_LENGTH_PENALTY
from crossmatch.models.zoo.caption_decoder_layers import CaptionNet, select_items
from crossmatch.models.zoo.network_inputs import BEGIN, END, MAX_WORDS, PAD, UNKNOWN, Words

# Default maximum length of a caption, including its end, in self-critical training, validation and `caption`. It equals the
# number of words that are read of a text: diorama's captions have up to 48 words, COCO's about 50.
MAX_CAPTION_WORDS = MAX_WORDS + 1
BELOW_ONE = 1 - 2**-40  # largest random number, so that it never lies behind the last word


@dataclass(frozen=True, eq=False)
class DecodedCaptions:
    """N captions as word numbers (N, L), `PAD` after `END`, and the log-probability of each word, 0 at `PAD`.

    After `sample_captions`, `log_probabilities` are those with which the words were drawn, and have a gradient, as REINFORCE needs.
    Otherwise they are the network's own, without a gradient.
    """

    numbers: Tensor
    log_probabilities: Tensor

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def log_likelihood(self) -> Tensor:
        """Log-likelihood of each caption in nats: (N,)."""
        return self.log_probabilities.sum(dim=1)

    @property
    def mask(self) -> Tensor:
        """(N, L) bool; True at words, including `END`."""
        return self.numbers != PAD

    @property
    def finished(self) -> Tensor:
        """(N,) bool; True for captions that ended, False for those that were cut."""
        return (self.numbers == END).any(dim=1)

    @property
    def words(self) -> Words:
        """The captions with `BEGIN`, as a network reads them."""
        return Words(torch.cat([self.numbers.new_full((len(self), 1), BEGIN), self.numbers], dim=1))


@torch.no_grad()
def decode_greedily(net: CaptionNet, encoded: Any, longest: int) -> DecodedCaptions:
    """Take the most likely word at each step."""

    def choose_likeliest(log_probabilities: Tensor, images: Tensor, step: int) -> tuple[Tensor, Tensor]:
        likeliest = mask_unknown(log_probabilities).max(dim=1)
        return likeliest.indices, likeliest.values

    return _decode_stepwise(net, encoded, longest, choose_likeliest)


def sample_captions(
    net: CaptionNet, encoded: Any, longest: int, temperature: float = 1.0, generator: torch.Generator | None = None
) -> DecodedCaptions:
    """Draw words from p(w)^(1/temperature), normalised over all words but `UNKNOWN`. The result has a gradient.

    Each image takes a fixed number of random numbers, so that splitting the images into batches does not change the captions.
    """
    if not 0 < temperature < math.inf:
        raise UsageError(f"temperature must be a finite number above 0 (got {temperature}). Near 0, use greedy decoding.")
    _require_count(longest, "longest", MAX_CAPTION_LENGTH)
    random = torch.rand(len(encoded[0]), longest, generator=generator, dtype=torch.float64).clamp(max=BELOW_ONE)

    def draw(log_probabilities: Tensor, images: Tensor, step: int) -> tuple[Tensor, Tensor]:
        masked = mask_unknown(log_probabilities)
        logits = masked if temperature == 1 else _apply_temperature(masked, temperature)
        with torch.no_grad():
            cumulative = logits.double().exp().cumsum(dim=1)
            words = torch.searchsorted(cumulative, random[images, step].unsqueeze(1) * cumulative[:, -1:], right=True)
        return words.squeeze(1), (logits.gather(1, words).squeeze(1) - logits.logsumexp(dim=1)).to(log_probabilities.dtype)

    return _decode_stepwise(net, encoded, longest, draw)


def _apply_temperature(log_probabilities: Tensor, temperature: float) -> Tensor:
    """log p / temperature in double precision, with the largest value at 0, so that no small power underflows."""
    exact = log_probabilities.double()
    return (exact - exact.detach().amax(dim=1, keepdim=True)) / temperature


def mask_unknown(log_probabilities: Tensor) -> Tensor:
    """Set the log-probability of the unknown word to -∞, in (N, V)."""
    return log_probabilities.index_fill(1, torch.tensor([UNKNOWN], device=log_probabilities.device), -torch.inf)


Choice = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]  # (log-probabilities, images, step) to (words, their values)


def _decode_stepwise(net: CaptionNet, encoded: Any, longest: int, choose: Choice) -> DecodedCaptions:
    """Generate one caption per image; `choose` picks the next words from their log-probabilities."""
    _require_count(longest, "longest", MAX_CAPTION_LENGTH)
    n = len(encoded[0])
    images = torch.arange(n)  # active images; finished ones are dropped when they are half of them
    words, state = torch.full((n,), BEGIN), net.initial_state(encoded)
    numbers, values = [], []
    for step in range(longest):
        log_probabilities, state = net.step(encoded, state, words)
        active = words != END
        words, value = choose(log_probabilities, images, step)
        words = words.where(active, END)
        numbers.append(torch.full((n,), PAD).index_put((images[active],), words[active]))
        values.append(log_probabilities.new_zeros(n).index_put((images[active],), value[active]))
        active = words != END
        if not active.any():
            break
        if 2 * int(active.sum()) <= len(images):
            encoded, state = select_items(encoded, active), select_items(state, active)
            words, images = words[active], images[active]
    return DecodedCaptions(torch.stack(numbers, dim=1), torch.stack(values, dim=1))


@torch.no_grad()
def beam_search(net: CaptionNet, encoded: Any, longest: int, width: int = 5, length_penalty: float = 1.0) -> DecodedCaptions:
    """Find the caption with the highest length-normalised log-likelihood by beam search.

        score(S) = log P(S | I) / |S|^length_penalty,    |S| the number of words, `END` included

    A penalty of 0 ranks by likelihood alone, which prefers short captions; 1 ranks by likelihood per word. Each step extends the
    `width` most likely prefixes by every word. Results among the `width` most likely that end are captions; the `width` most
    likely that do not end are the next prefixes. The search for an image stops when no prefix can become a better caption than
    the best so far: a prefix of s nats never scores above s / longest^length_penalty. Ties are broken by the order of the
    prefixes, then by word number, and an earlier caption wins. A cut caption is returned only if none has ended. All images take
    each step together. With a width of 1 and a penalty of 0 this is greedy decoding.
    """
    _require_count(longest, "longest", MAX_CAPTION_LENGTH)
    _require_count(width, "width")
    if not 0 <= length_penalty <= MAX_LENGTH_PENALTY:
        raise UsageError(f"length_penalty must be from 0 to {MAX_LENGTH_PENALTY} (got {length_penalty}).")
    n = len(encoded[0])
    best = _BestCaptions(torch.full((n,), -torch.inf), torch.full((n, longest), PAD), torch.zeros(n, longest))
    images, state, repeated = torch.arange(n), net.initial_state(encoded), encoded
    words, total = torch.full((n, 1), BEGIN), torch.zeros(n, 1)
    numbers, values = torch.empty(n, 1, 0, dtype=torch.long), torch.empty(n, 1, 0)
    for step in range(longest if n else 0):
        log_probabilities, state = net.step(repeated, state, words.flatten())
        previous_shape = words.shape
        log_probabilities = log_probabilities.view(*previous_shape, -1)  # (images, prefixes, V)
        sums = log_probabilities + total.unsqueeze(2)
        sums[:, :, UNKNOWN] = -torch.inf
        position, total = stable_top_k(sums.flatten(1), 2 * width)
        parent, words = position // log_probabilities.shape[2], position % log_probabilities.shape[2]
        value = log_probabilities.flatten(1).gather(1, position)
        numbers, values = _extend(numbers, words, parent), _extend(values, value, parent)
        ends = words == END
        score = total / (step + 1) ** length_penalty
        best.improve(images, score[:, :width].masked_fill(~ends[:, :width], -torch.inf), numbers, values)
        # the most likely that do not end survive; there are enough, because each prefix ends in one way only
        alive = ends.long().sort(dim=1, stable=True).indices[:, : min(width, int((~ends).sum(dim=1).min()))]
        parent, words, total = (tensor.gather(1, alive) for tensor in (parent, words, total))
        numbers, values = _pick(numbers, alive), _pick(values, alive)
        if step + 1 == longest:
            best.add_cut_captions(images, numbers, values)
            break
        active = best.score[images] < total[:, 0] / longest**length_penalty
        if not active.any():
            break
        rows = parent + torch.arange(len(images)).unsqueeze(1) * log_probabilities.shape[1]
        if 2 * int(active.sum()) <= len(images):
            images, rows, encoded = images[active], rows[active], select_items(encoded, active)
            words, total, numbers, values = words[active], total[active], numbers[active], values[active]
        state = select_items(state, rows.flatten())
        if rows.shape != previous_shape:
            repeated = select_items(encoded, torch.arange(len(images)).repeat_interleave(rows.shape[1]))
    return best.as_captions()


@dataclass(frozen=True, eq=False)
class _BestCaptions:
    """The best caption of each image so far; its tensors are updated in place."""

    score: Tensor
    numbers: Tensor
    log_probabilities: Tensor

    def improve(self, images: Tensor, score: Tensor, numbers: Tensor, log_probabilities: Tensor) -> None:
        """Replace captions by better candidates; `score` is (images, C), their words (images, C, L)."""
        value, which = score.max(dim=1)
        better = value > self.score[images]
        self.score[images[better]] = value[better]
        self._write(images[better], numbers[better], log_probabilities[better], which[better])

    def add_cut_captions(self, images: Tensor, numbers: Tensor, log_probabilities: Tensor) -> None:
        """Take the first candidate of images without a finished caption."""
        missing = self.score[images].isneginf()
        first = torch.zeros(int(missing.sum()), dtype=torch.long)
        self._write(images[missing], numbers[missing], log_probabilities[missing], first)

    def _write(self, images: Tensor, numbers: Tensor, log_probabilities: Tensor, which: Tensor) -> None:
        for target, values in ((self.numbers, numbers), (self.log_probabilities, log_probabilities)):
            target[images, : values.shape[2]] = values[torch.arange(len(which)), which]

    def as_captions(self) -> DecodedCaptions:
        used = int((self.numbers != PAD).any(dim=0).sum())
        return DecodedCaptions(self.numbers[:, :used], self.log_probabilities[:, :used])


def stable_top_k(scores: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Positions and values of the highest scores of each row, in descending order; ties in the order of positions.

    `torch.topk` does not define which of several tied entries it returns, so rows with a tie at the last value are sorted fully.

    >>> stable_top_k(torch.tensor([[1.0, 3.0, 1.0, 2.0, 1.0]]), 3)
    (tensor([[1, 3, 0]]), tensor([[3., 2., 1.]]))
    """
    most = min(most, scores.shape[1])
    value, position = scores.topk(most, dim=1)
    is_tied = (scores >= value[:, -1:]).sum(dim=1) > most
    if is_tied.any():
        position[is_tied] = scores[is_tied].sort(dim=1, descending=True, stable=True).indices[:, :most]
    position = position.sort(dim=1).values
    value, order = scores.gather(1, position).sort(dim=1, descending=True, stable=True)
    return position.gather(1, order), value


def _extend(prefixes: Tensor, last: Tensor, parent: Tensor) -> Tensor:
    """Append entries (N, C) to their parents among the prefixes (N, B, L): (N, C, L + 1)."""
    return torch.cat([_pick(prefixes, parent), last.unsqueeze(2)], dim=2)


def _pick(prefixes: Tensor, which: Tensor) -> Tensor:
    """(N, B, L) and (N, C) to (N, C, L)."""
    return prefixes.gather(1, which.unsqueeze(2).expand(-1, -1, prefixes.shape[2]))


def _require_count(count: int, name: str, most: int | None = None) -> None:
    if count < 1 or (most is not None and count > most):
        limit = "" if most is None else f" and at most {most:,}"
        raise UsageError(f"{name} must be at least 1{limit} (got {count}).")
