"""What the captioners have in common: going through a caption word by word, attention to regions, the next word.

    log P(S | I) = Σ_t log p(S_t | I, S_0 … S_t−1)                                               vinyals2015showtell, eq. 2

S_0 is `BEGIN`, the last is `END`. `PAD` and `BEGIN` are never said, so the probabilities of all captions sum to 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from crossmatch.core.errors import MissingDependency
from crossmatch.models.zoo.inputs import BEGIN, PAD, Words
from crossmatch.models.zoo.parts import WordVectors

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent


class Memory(NamedTuple):
    """Where an LSTM stands: its output and its cell, (N, D) each."""

    hidden: Tensor
    cell: Tensor


class Seen(NamedTuple):
    """Regions (N, K, F) of N images, which of them are there (N, K), and what attention compares them by (N, K, A)."""

    features: Tensor
    real: Tensor
    keys: Tensor


class Packed(NamedTuple):
    """Words of captions of unequal length without filling, longest caption first: all first words, all second words, …"""

    numbers: Tensor  # (M,)
    sizes: tuple[int, ...]  # captions that have a first word, a second word, …


class CaptionNet(nn.Module, ABC):
    """An LSTM that tells a caption word by word, each from the image and the words before.

    A family says what the words put into its LSTM (`heard`), how that moves it on (`advanced`), and which part of where it stands
    the next word is told from (`hidden` of its state). In training, dropout falls on the words' vectors and on what the next word
    is told from, never on what is seen of the images, so that one encoding serves a sampled and a greedy caption.
    """

    tells = True

    def __init__(self, words: int, word_dimensions: int, dimensions: int, dropout: float) -> None:
        super().__init__()
        self.word_vectors = WordVectors(words, word_dimensions)
        self.next_word = NextWord(dimensions, words)
        self.dropout = nn.Dropout(dropout)

    @abstractmethod
    def heard(self, numbers: Tensor) -> Tensor:
        """Word numbers (M,) to what they put into the LSTM, (M, …)."""

    @abstractmethod
    def advanced(self, encoded: Any, state: Any, heard: Tensor) -> Any:
        """Where the LSTM stands after one more word for each image."""

    @abstractmethod
    def begin(self, encoded: Any) -> Any:
        """Where it stands before `BEGIN`."""

    def vectors(self, numbers: Tensor) -> Tensor:
        """The words' vectors."""
        return self.dropout(self.word_vectors.table(numbers))  # type: ignore[no-any-return]

    def step(self, encoded: Any, state: Any, words: Tensor) -> tuple[Tensor, Any]:
        """After one more word (N,) for each image: the log-probability of every word to come next, (N, V), and where it stands."""
        state = self.advanced(encoded, state, self.heard(words))
        return self.next_word(self.dropout(state.hidden)), state

    def told(self, encoded: Any, words: Words) -> Tensor:
        """The log-probability of each word of text n, given image n and the words before it: (N, L - 1), 0 at `PAD`.

        `BEGIN` is given and not told; `END` is told. The same as `step` by step, in one go: no text is read beyond its end.
        """
        numbers, longest = words.numbers, words.numbers.shape[1] - 1
        lengths, order = (words.lengths - 1).sort(descending=True, stable=True)
        there = torch.arange(longest, device=numbers.device).unsqueeze(1) < lengths  # (L - 1, N)
        out = self.next_word.linear.weight.new_zeros(there.shape)
        if there.any():
            turned, sizes = numbers[order].T, tuple(n for n in there.sum(dim=1).tolist() if n)
            said = self._through(chosen(encoded, order), Packed(turned[:-1][there], sizes))
            out[there] = self.next_word.of(self.dropout(said), turned[1:][there])
        return out.T[order.argsort()]

    def _through(self, encoded: Any, packed: Packed) -> Tensor:
        """What each next word is told from, (M, D), in the order of the packed words."""
        state, said = self.begin(encoded), []
        for heard in torch.split(self.heard(packed.numbers), list(packed.sizes)):
            if len(heard) < len(state[0]):  # the longest come first
                encoded, state = (chosen(each, slice(len(heard))) for each in (encoded, state))
            state = self.advanced(encoded, state, heard)
            said.append(state.hidden)
        return torch.cat(said)


class NextWord(nn.Module):
    """The log-probability of every word to come next: log softmax(W h + b), where `PAD` and `BEGIN` have none (-∞)."""

    never: Tensor

    def __init__(self, dimensions: int, words: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dimensions, words)
        nn.init.uniform_(self.linear.weight, -0.1, 0.1)
        nn.init.zeros_(self.linear.bias)
        never = torch.zeros(words)
        never[[PAD, BEGIN]] = -torch.inf
        self.register_buffer("never", never, persistent=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """(N, D) to (N, V)."""
        return F.log_softmax(self._logits(hidden), dim=1)

    def of(self, hidden: Tensor, numbers: Tensor) -> Tensor:
        """The log-probability of one word each: (N, D) and (N,) to (N,)."""
        return -F.cross_entropy(self._logits(hidden), numbers, reduction="none")

    def _logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.linear.weight, self.linear.bias + self.never)


class Attention(nn.Module):
    """Which regions matter at a word.

        a_i = wᵀ tanh(W_v v_i + W_h h + b),    α = softmax(a),    v̂ = Σ_i α_i v_i              anderson2018bottomup, eq. 3 to 5

    The same in rennie2017scst, sec. 2. W_v v_i is made once for each image. What attends to an image without regions finds 0.
    """

    def __init__(self, features: int, dimensions: int, attention: int) -> None:
        super().__init__()
        self.region, self.state = nn.Linear(features, attention), nn.Linear(dimensions, attention, bias=False)
        self.weight = nn.Linear(attention, 1, bias=False)

    def seen(self, features: Tensor, real: Tensor) -> Seen:
        """The regions with what they are compared by."""
        return Seen(features, real, self.region(features))

    def forward(self, seen: Seen, hidden: Tensor) -> Tensor:
        """v̂ (N, F) for the LSTM's outputs h (N, D)."""
        scores: Tensor = self.weight((seen.keys + self.state(hidden).unsqueeze(1)).tanh_()).squeeze(2)
        # the lowest finite number, because a softmax of -∞ alone would be NaN where there is no region
        weights = scores.masked_fill(~seen.real, torch.finfo(scores.dtype).min).softmax(dim=1) * seen.real
        return (weights.unsqueeze(1) @ seen.features).squeeze(1)


def chosen(encoded: Any, which: Tensor | slice) -> Any:
    """Some of the items of a tuple of tensors."""
    return type(encoded)(*(each[which] for each in encoded))


def lstm(gates: Tensor, cell: Tensor) -> Memory:
    """One step of an LSTM from its gates (N, 4 D), which are input, forget, output and candidate, side by side.

    c_t = σ(f) ⊙ c_t−1 + σ(i) ⊙ tanh(g),    h_t = σ(o) ⊙ tanh(c_t)
    """
    into, keep, out = gates[:, : 3 * cell.shape[1]].sigmoid().chunk(3, dim=1)
    cell = keep * cell + into * gates[:, 3 * cell.shape[1] :].tanh()
    return Memory(out * cell.tanh(), cell)


def as_lstm(parts: tuple[nn.Linear, ...], dimensions: int) -> None:
    """Give linear maps that together make an LSTM's gates the first weights of PyTorch's own: uniform in ±1/√D."""
    bound = dimensions**-0.5
    for part in parts:
        for values in part.parameters():
            nn.init.uniform_(values, -bound, bound)
