"""UpDown: one LSTM that decides where to look, and another that tells the caption from what is seen there.

    h¹_t = LSTM¹([h²_t−1; v̄; W_e Π_t], h¹_t−1),    v̂_t = attention with h¹_t (`Attention`)          anderson2018bottomup, eq. 2 to 5
    h²_t = LSTM²([v̂_t; r_t], h²_t−1),              p(y_t | y_1:t−1) = softmax(W_p h²_t + b_p)        eq. 6 and 7

v̄ is the mean of the regions, Π_t the word before. What the second LSTM reads beside the attended feature, r_t, is that word's
vector W_e Π_t in hu2019bison, app. D.2 (`reads = "word"`), and h¹_t in anderson2018bottomup (`reads = "attention"`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from crossmatch.core.errors import MissingDependency
from crossmatch.models.zoo.captioner_parts import Attention, CaptionNet, Seen, as_lstm, lstm
from crossmatch.models.zoo.inputs import Regions
from crossmatch.models.zoo.parts import mean_over
from crossmatch.models.zoo.sizes import WIDTH

try:
    import torch
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent


@dataclass(frozen=True)
class UpDownConfig:
    """The published sizes: 1000 for words and LSTMs, 512 for attention; dropout as in the released code of SCST."""

    features: int  # numbers of a region
    words: int  # how many words there are
    dimensions: int = field(default=1000, metadata=WIDTH)
    word_dimensions: int = field(default=1000, metadata=WIDTH)
    attention: int = field(default=512, metadata=WIDTH)
    reads: Literal["word", "attention"] = "word"  # what the second LSTM reads beside the attended feature
    dropout: float = field(default=0.5, metadata={"least": 0, "most": 0.99})


class Overview(NamedTuple):
    """The regions of N images as in `Seen`, and what their mean puts into the gates of the first LSTM, (N, 4 D)."""

    features: Tensor
    real: Tensor
    keys: Tensor
    mean: Tensor


class Two(NamedTuple):
    """Where the LSTM that attends and the LSTM that tells stand."""

    attending: Tensor
    attending_cell: Tensor
    hidden: Tensor
    cell: Tensor


class UpDown(CaptionNet):
    """The inputs of each LSTM have a map of their own into its four gates, which is the same as one map of them all joined."""

    def __init__(self, config: UpDownConfig) -> None:
        super().__init__(config.words, config.word_dimensions, config.dimensions, config.dropout)
        self.config, gates = config, 4 * config.dimensions
        self.attention = Attention(config.features, config.dimensions, config.attention)
        both = 2 if config.reads == "word" else 1  # LSTMs that the word goes into
        self.word = nn.Linear(config.word_dimensions, both * gates)
        self.mean = nn.Linear(config.features, gates, bias=False)
        self.states = nn.Linear(2 * config.dimensions, gates, bias=False)  # h² and h¹ into the first
        read = config.features + config.dimensions * (1 if config.reads == "word" else 2)
        self.tell = nn.Linear(read, gates, bias=config.reads == "attention")  # v̂, h² and perhaps h¹ into the second
        as_lstm((self.word, self.mean, self.states, self.tell), config.dimensions)

    def images(self, regions: Regions) -> Overview:
        """The regions, what attention compares them by, and their mean."""
        seen = self.attention.seen(regions.features, regions.real)
        return Overview(*seen, self.mean(mean_over(regions.features, regions.real)))

    def begin(self, encoded: Overview) -> Two:
        nothing = encoded.features.new_zeros(len(encoded.features), self.config.dimensions)
        return Two(nothing, nothing, nothing, nothing)

    def heard(self, numbers: Tensor) -> Tensor:
        return self.word(self.vectors(numbers))  # type: ignore[no-any-return]

    def advanced(self, encoded: Overview, state: Two, heard: Tensor) -> Two:
        gates = 4 * self.config.dimensions
        before = self.states(torch.cat([state.hidden, state.attending], dim=1))
        attending = lstm(heard[:, :gates] + before + encoded.mean, state.attending_cell)
        attended = self.attention(Seen(*encoded[:3]), attending.hidden)
        if self.config.reads == "word":
            into = heard[:, gates:] + self.tell(torch.cat([attended, state.hidden], dim=1))
        else:
            into = self.tell(torch.cat([attended, state.hidden, attending.hidden], dim=1))
        return Two(*attending, *lstm(into, state.cell))
