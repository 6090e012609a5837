"""Parts that the captioners share: the word-by-word network, attention to regions, the next-word layer.

    log P(S | I) = Σ_t log p(S_t | I, S_0 … S_t−1)                                               vinyals2015showtell, eq. 2

S_0 is `BEGIN`, the last word is `END`. `PAD` and `BEGIN` have probability 0, so the probabilities of all captions sum to 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the usual name

from crossmatch.models.zoo.layers import WordVectors
from crossmatch.models.zoo.network_inputs import BEGIN, PAD, Words


class LSTMState(NamedTuple):
    """State of an LSTM: output and cell, (N, D) each."""

    hidden: Tensor
    cell: Tensor


class KeyedRegions(NamedTuple):
    """Regions (N, K, F) of N images, their mask (N, K), and their attention keys (N, K, A)."""

    features: Tensor
    mask: Tensor
    keys: Tensor


class PackedWords(NamedTuple):
    """Words of captions without padding, longest caption first: all first words, all second words, …"""

    numbers: Tensor  # (M,)
    sizes: tuple[int, ...]  # number of captions that have a first word, a second word, …


class CaptionNet(nn.Module, ABC):
    """An LSTM that writes a caption word by word, each from the image and the words before.

    A family defines how words enter its LSTM (`embed_inputs`), how the state changes (`advance`), and the state's field `hidden`,
    from which the next word is predicted. In training, dropout applies to the word vectors and to `hidden`, but not to the encoded
    images, so that one encoding serves a sampled and a greedy caption.
    """

    generates_captions = True

    def __init__(self, words: int, word_dimensions: int, dimensions: int, dropout: float) -> None:
        super().__init__()
        self.word_vectors = WordVectors(words, word_dimensions)
        self.next_word = NextWordLayer(dimensions, words)
        self.dropout = nn.Dropout(dropout)

    @abstractmethod
    def embed_inputs(self, numbers: Tensor) -> Tensor:
        """Map word numbers (M,) to LSTM inputs, (M, …)."""

    @abstractmethod
    def advance(self, encoded: Any, state: Any, inputs: Tensor) -> Any:
        """Return the LSTM state after one more word for each image."""

    @abstractmethod
    def initial_state(self, encoded: Any) -> Any:
        """Return the LSTM state before `BEGIN`."""

    def embed_words(self, numbers: Tensor) -> Tensor:
        """Word vectors, with dropout."""
        return self.dropout(self.word_vectors.table(numbers))  # type: ignore[no-any-return]

    def step(self, encoded: Any, state: Any, words: Tensor) -> tuple[Tensor, Any]:
        """Read one more word (N,) per image; return the log-probabilities of the next word, (N, V), and the new state."""
        state = self.advance(encoded, state, self.embed_inputs(words))
        return self.next_word(self.dropout(state.hidden)), state

    def word_log_probabilities(self, encoded: Any, words: Words) -> Tensor:
        """Log-probability of each word of text n, given image n and the words before it: (N, L - 1), 0 at `PAD`.

        `BEGIN` is given, so it has no probability; `END` has one. The result equals repeated calls of `step`, but all words are
        processed at once, and no text is read beyond its end.
        """
        numbers, longest = words.numbers, words.numbers.shape[1] - 1
        lengths, order = (words.lengths - 1).sort(descending=True, stable=True)
        mask = torch.arange(longest, device=numbers.device).unsqueeze(1) < lengths  # (L - 1, N)
        out = self.next_word.linear.weight.new_zeros(mask.shape)
        if mask.any():
            by_step, sizes = numbers[order].T, tuple(n for n in mask.sum(dim=1).tolist() if n)
            hidden = self._hidden_states(select_items(encoded, order), PackedWords(by_step[:-1][mask], sizes))
            out[mask] = self.next_word.log_probability_of(self.dropout(hidden), by_step[1:][mask])
        return out.T[order.argsort()]

    def _hidden_states(self, encoded: Any, packed: PackedWords) -> Tensor:
        """Hidden states (M, D) that predict each next word, in the order of the packed words."""
        state, hidden = self.initial_state(encoded), []
        for inputs in torch.split(self.embed_inputs(packed.numbers), list(packed.sizes)):
            if len(inputs) < len(state[0]):  # the longest come first
                encoded, state = (select_items(values, slice(len(inputs))) for values in (encoded, state))
            state = self.advance(encoded, state, inputs)
            hidden.append(state.hidden)
        return torch.cat(hidden)


class NextWordLayer(nn.Module):
    """Log-probabilities of the next word: log softmax(W h + b), with -∞ for `PAD` and `BEGIN`."""

    forbidden: Tensor

    def __init__(self, dimensions: int, words: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dimensions, words)
        nn.init.uniform_(self.linear.weight, -0.1, 0.1)
        nn.init.zeros_(self.linear.bias)
        forbidden = torch.zeros(words)
        forbidden[[PAD, BEGIN]] = -torch.inf
        self.register_buffer("forbidden", forbidden, persistent=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """(N, D) to (N, V)."""
        return F.log_softmax(self._logits(hidden), dim=1)

    def log_probability_of(self, hidden: Tensor, numbers: Tensor) -> Tensor:
        """Log-probability of one given word each: (N, D) and (N,) to (N,)."""
        return -F.cross_entropy(self._logits(hidden), numbers, reduction="none")

    def _logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.linear.weight, self.linear.bias + self.forbidden)


class RegionAttention(nn.Module):
    """Attention of an LSTM's output to the regions of an image.

        a_i = wᵀ tanh(W_v v_i + W_h h + b),    α = softmax(a),    v̂ = Σ_i α_i v_i              anderson2018bottomup, eq. 3 to 5

    The same in rennie2017scst, sec. 2. W_v v_i is computed once for each image. Without regions the result is 0.
    """

    def __init__(self, features: int, dimensions: int, attention: int) -> None:
        super().__init__()
        self.region, self.state = nn.Linear(features, attention), nn.Linear(dimensions, attention, bias=False)
        self.weight = nn.Linear(attention, 1, bias=False)

    def add_keys(self, features: Tensor, mask: Tensor) -> KeyedRegions:
        """Compute the attention keys of regions."""
        return KeyedRegions(features, mask, self.region(features))

    def forward(self, regions: KeyedRegions, hidden: Tensor) -> Tensor:
        """v̂ (N, F) for the LSTM's outputs h (N, D)."""
        scores: Tensor = self.weight((regions.keys + self.state(hidden).unsqueeze(1)).tanh_()).squeeze(2)
        # the lowest finite number, because a softmax over -∞ alone is NaN if an image has no regions
        weights = scores.masked_fill(~regions.mask, torch.finfo(scores.dtype).min).softmax(dim=1) * regions.mask
        return (weights.unsqueeze(1) @ regions.features).squeeze(1)


def select_items(encoded: Any, which: Tensor | slice) -> Any:
    """Select items from a named tuple of tensors."""
    return type(encoded)(*(values[which] for values in encoded))


def lstm_step(gates: Tensor, cell: Tensor) -> LSTMState:
    """One LSTM step from its gates (N, 4 D): input, forget, output and candidate, side by side.

    c_t = σ(f) ⊙ c_t−1 + σ(i) ⊙ tanh(g),    h_t = σ(o) ⊙ tanh(c_t)
    """
    input_gate, forget_gate, output_gate = gates[:, : 3 * cell.shape[1]].sigmoid().chunk(3, dim=1)
    cell = forget_gate * cell + input_gate * gates[:, 3 * cell.shape[1] :].tanh()
    return LSTMState(output_gate * cell.tanh(), cell)


def init_lstm_weights(parts: tuple[nn.Linear, ...], dimensions: int) -> None:
    """Initialise linear maps that together form an LSTM's gates as PyTorch initialises an LSTM: uniform in ±1/√D."""
    bound = dimensions**-0.5
    for part in parts:
        for values in part.parameters():
            nn.init.uniform_(values, -bound, bound)
