"""UpDown: a captioner with two LSTMs; the first attends to regions, the second writes the caption.

    h¹_t = LSTM¹([h²_t−1; v̄; W_e Π_t], h¹_t−1),    v̂_t = attention with h¹_t (`RegionAttention`)    anderson2018bottomup, eq. 2 to 5
    h²_t = LSTM²([v̂_t; r_t], h²_t−1),              p(y_t | y_1:t−1) = softmax(W_p h²_t + b_p)        eq. 6 and 7

v̄ is the mean of the regions, Π_t the previous word. The second LSTM reads r_t beside the attended feature: the word's vector
W_e Π_t in hu2019bison, app. D.2 (`reads = "word"`), or h¹_t in anderson2018bottomup (`reads = "attention"`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from crossmatch.models.zoo.caption_decoder_layers import CaptionNet, KeyedRegions, RegionAttention, init_lstm_weights, lstm_step
from crossmatch.models.zoo.layers import SHARE, WIDTH, NetworkConfig, masked_mean
from crossmatch.models.zoo.network_inputs import Regions


@dataclass(frozen=True)
class UpDownConfig(NetworkConfig):
    """Published sizes: 1000 for words and LSTMs, 512 for attention; dropout as in the released code of SCST."""

    dimensions: int = field(default=1000, metadata=WIDTH)
    word_dimensions: int = field(default=1000, metadata=WIDTH)
    attention: int = field(default=512, metadata=WIDTH)
    reads: Literal["word", "attention"] = "word"  # what the second LSTM reads beside the attended feature
    dropout: float = field(default=0.5, metadata=SHARE)


class KeyedRegionsAndMean(NamedTuple):
    """Regions of N images as in `KeyedRegions`, and the part of their mean in the gates of the first LSTM, (N, 4 D)."""

    features: Tensor
    mask: Tensor
    keys: Tensor
    mean: Tensor


class UpDownState(NamedTuple):
    """States of the attending LSTM and of the writing LSTM."""

    attending: Tensor
    attending_cell: Tensor
    hidden: Tensor
    cell: Tensor


class UpDown(CaptionNet):
    """Each input of an LSTM has its own linear map into the four gates, which equals one map of the concatenated inputs."""

    def __init__(self, config: UpDownConfig) -> None:
        super().__init__(config.words, config.word_dimensions, config.dimensions, config.dropout)
        self.config, gates = config, 4 * config.dimensions
        self.attention = RegionAttention(config.features, config.dimensions, config.attention)
        word_readers = 2 if config.reads == "word" else 1  # number of LSTMs that read the word
        self.word = nn.Linear(config.word_dimensions, word_readers * gates)
        self.mean = nn.Linear(config.features, gates, bias=False)
        self.states = nn.Linear(2 * config.dimensions, gates, bias=False)  # h² and h¹ into the first
        tell_inputs = config.features + config.dimensions * (1 if config.reads == "word" else 2)
        self.tell = nn.Linear(tell_inputs, gates, bias=config.reads == "attention")  # v̂, h² and perhaps h¹ into the second
        init_lstm_weights((self.word, self.mean, self.states, self.tell), config.dimensions)

    def images(self, regions: Regions) -> KeyedRegionsAndMean:
        """Regions with their attention keys, and their mean."""
        keyed = self.attention.add_keys(regions.features, regions.mask)
        return KeyedRegionsAndMean(*keyed, self.mean(masked_mean(regions.features, regions.mask)))

    def initial_state(self, encoded: KeyedRegionsAndMean) -> UpDownState:
        zeros = encoded.features.new_zeros(len(encoded.features), self.config.dimensions)
        return UpDownState(zeros, zeros, zeros, zeros)

    def embed_inputs(self, numbers: Tensor) -> Tensor:
        return self.word(self.embed_words(numbers))  # type: ignore[no-any-return]

    def advance(self, encoded: KeyedRegionsAndMean, state: UpDownState, inputs: Tensor) -> UpDownState:
        gates = 4 * self.config.dimensions
        recurrent = self.states(torch.cat([state.hidden, state.attending], dim=1))
        attending = lstm_step(inputs[:, :gates] + recurrent + encoded.mean, state.attending_cell)
        attended = self.attention(KeyedRegions(*encoded[:3]), attending.hidden)
        if self.config.reads == "word":
            writing = inputs[:, gates:] + self.tell(torch.cat([attended, state.hidden], dim=1))
        else:
            writing = self.tell(torch.cat([attended, state.hidden, attending.hidden], dim=1))
        return UpDownState(*attending, *lstm_step(writing, state.cell))
