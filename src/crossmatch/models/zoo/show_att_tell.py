"""ShowAttTell: an LSTM that looks at the image again at each word, and takes what it sees into its cell alone.

    i, f, o = σ(W_x x_t + W_h h_t−1 + b)
    c_t = i ⊙ φ(W_zx x_t + W_zI I_t + W_zh h_t−1 + b_z) + f ⊙ c_t−1,    h_t = o ⊙ tanh(c_t)              rennie2017scst, sec. 2

x_t is the vector of the word before, I_t what is attended to from h_t−1 (`Attention`), φ the larger of two units (maxout), and the
LSTM begins at 0. hu2019bison, app. D.2, follows this; xu2015showattend, from which it descends, lets I_t into the gates as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from crossmatch.core.errors import MissingDependency
from crossmatch.models.zoo.captioner_parts import Attention, CaptionNet, Memory, Seen, as_lstm
from crossmatch.models.zoo.inputs import Regions
from crossmatch.models.zoo.sizes import WIDTH

try:
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent


@dataclass(frozen=True)
class ShowAttTellConfig:
    """The published sizes: 512 for words, LSTM and attention; dropout as in the released code of SCST."""

    features: int  # numbers of a region
    words: int  # how many words there are
    dimensions: int = field(default=512, metadata=WIDTH)
    word_dimensions: int = field(default=512, metadata=WIDTH)
    attention: int = field(default=512, metadata=WIDTH)
    dropout: float = field(default=0.5, metadata={"least": 0, "most": 0.99})


class ShowAttTell(CaptionNet):
    """The five parts of the LSTM stand side by side: input, forget and output gate, and the two units of the candidate."""

    def __init__(self, config: ShowAttTellConfig) -> None:
        super().__init__(config.words, config.word_dimensions, config.dimensions, config.dropout)
        self.config = config
        self.attention = Attention(config.features, config.dimensions, config.attention)
        self.word = nn.Linear(config.word_dimensions, 5 * config.dimensions)
        self.state = nn.Linear(config.dimensions, 5 * config.dimensions, bias=False)
        self.attended = nn.Linear(config.features, 2 * config.dimensions, bias=False)
        as_lstm((self.word, self.state, self.attended), config.dimensions)

    def images(self, regions: Regions) -> Seen:
        """The regions, and what attention compares them by."""
        return self.attention.seen(regions.features, regions.real)

    def begin(self, encoded: Seen) -> Memory:
        nothing = encoded.features.new_zeros(len(encoded.features), self.config.dimensions)
        return Memory(nothing, nothing)

    def heard(self, numbers: Tensor) -> Tensor:
        return self.word(self.vectors(numbers))  # type: ignore[no-any-return]

    def advanced(self, encoded: Seen, state: Memory, heard: Tensor) -> Memory:
        parts, size = heard + self.state(state.hidden), 3 * self.config.dimensions
        into, keep, out = parts[:, :size].sigmoid().chunk(3, dim=1)
        one, other = (parts[:, size:] + self.attended(self.attention(encoded, state.hidden))).chunk(2, dim=1)
        cell = into * one.maximum(other) + keep * state.cell
        return Memory(out * cell.tanh(), cell)
