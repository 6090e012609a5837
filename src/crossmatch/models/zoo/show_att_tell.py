"""ShowAttTell: an LSTM captioner that attends to the image at each word; the attended feature enters its cell only.

    i, f, o = σ(W_x x_t + W_h h_t−1 + b)
    c_t = i ⊙ φ(W_zx x_t + W_zI I_t + W_zh h_t−1 + b_z) + f ⊙ c_t−1,    h_t = o ⊙ tanh(c_t)              rennie2017scst, sec. 2

x_t is the vector of the previous word, I_t the feature attended to from h_t−1 (`RegionAttention`), φ the larger of two units
(maxout), and the initial state is 0. hu2019bison, app. D.2, follows this; in xu2015showattend, I_t enters the gates too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from crossmatch.models.zoo.caption_decoder_layers import CaptionNet, KeyedRegions, LSTMState, RegionAttention, init_lstm_weights
from crossmatch.models.zoo.layers import SHARE, WIDTH, NetworkConfig
from crossmatch.models.zoo.network_inputs import Regions


@dataclass(frozen=True)
class ShowAttTellConfig(NetworkConfig):
    """Published sizes: 512 for words, LSTM and attention; dropout as in the released code of SCST."""

    dimensions: int = field(default=512, metadata=WIDTH)
    word_dimensions: int = field(default=512, metadata=WIDTH)
    attention: int = field(default=512, metadata=WIDTH)
    dropout: float = field(default=0.5, metadata=SHARE)


class ShowAttTell(CaptionNet):
    """The gates are stored side by side: input, forget and output gate, and the two units of the candidate."""

    def __init__(self, config: ShowAttTellConfig) -> None:
        super().__init__(config.words, config.word_dimensions, config.dimensions, config.dropout)
        self.config = config
        self.attention = RegionAttention(config.features, config.dimensions, config.attention)
        self.word = nn.Linear(config.word_dimensions, 5 * config.dimensions)
        self.state = nn.Linear(config.dimensions, 5 * config.dimensions, bias=False)
        self.attended = nn.Linear(config.features, 2 * config.dimensions, bias=False)
        init_lstm_weights((self.word, self.state, self.attended), config.dimensions)

    def images(self, regions: Regions) -> KeyedRegions:
        """Regions with their attention keys."""
        return self.attention.add_keys(regions.features, regions.mask)

    def initial_state(self, encoded: KeyedRegions) -> LSTMState:
        zeros = encoded.features.new_zeros(len(encoded.features), self.config.dimensions)
        return LSTMState(zeros, zeros)

    def embed_inputs(self, numbers: Tensor) -> Tensor:
        return self.word(self.embed_words(numbers))  # type: ignore[no-any-return]

    def advance(self, encoded: KeyedRegions, state: LSTMState, inputs: Tensor) -> LSTMState:
        gates, size = inputs + self.state(state.hidden), 3 * self.config.dimensions
        input_gate, forget_gate, output_gate = gates[:, :size].sigmoid().chunk(3, dim=1)
        first, second = (gates[:, size:] + self.attended(self.attention(encoded, state.hidden))).chunk(2, dim=1)
        cell = input_gate * first.maximum(second) + forget_gate * state.cell
        return LSTMState(output_gate * cell.tanh(), cell)
