"""ShowTell: an LSTM captioner that reads the image first, as if it were a word, and then writes the caption.

    x_−1 = W v̄,    x_t = W_e S_t,    p_t+1 = softmax(W_p LSTM(x_t))                              vinyals2015showtell, eq. 10 to 12

v̄ is the mean of the image's regions (hu2019bison, app. D.2).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from crossmatch.models.zoo.caption_decoder_layers import CaptionNet, LSTMState, PackedWords
from crossmatch.models.zoo.layers import SHARE, WIDTH, NetworkConfig, masked_mean
from crossmatch.models.zoo.network_inputs import Regions


@dataclass(frozen=True)
class ShowTellConfig(NetworkConfig):
    """Published sizes: 512 for image, words and LSTM; dropout as in the released code of SCST."""

    dimensions: int = field(default=512, metadata=WIDTH)
    word_dimensions: int = field(default=512, metadata=WIDTH)
    dropout: float = field(default=0.5, metadata=SHARE)


class ShowTell(CaptionNet):
    """An image is encoded as the state of the LSTM after reading it."""

    def __init__(self, config: ShowTellConfig) -> None:
        super().__init__(config.words, config.word_dimensions, config.dimensions, config.dropout)
        self.config = config
        self.image = nn.Linear(config.features, config.word_dimensions)
        self.lstm = nn.LSTM(config.word_dimensions, config.dimensions)

    def images(self, regions: Regions) -> LSTMState:
        """State of the LSTM after reading the image."""
        zeros = regions.features.new_zeros(len(regions), self.config.dimensions)
        return self.advance(None, LSTMState(zeros, zeros), self.image(masked_mean(regions.features, regions.mask)))

    def initial_state(self, encoded: LSTMState) -> LSTMState:
        return encoded

    def embed_inputs(self, numbers: Tensor) -> Tensor:
        return self.embed_words(numbers)

    def advance(self, encoded: object, state: LSTMState, inputs: Tensor) -> LSTMState:
        return LSTMState(*torch.lstm_cell(inputs, list(state), *self.lstm.all_weights[0]))

    def _hidden_states(self, encoded: LSTMState, packed: PackedWords) -> Tensor:
        """All words at once, which is possible because only the LSTM state passes from step to step."""
        inputs = nn.utils.rnn.PackedSequence(self.embed_inputs(packed.numbers), torch.tensor(packed.sizes))
        outputs: nn.utils.rnn.PackedSequence = self.lstm(inputs, (encoded.hidden.unsqueeze(0), encoded.cell.unsqueeze(0)))[0]
        return outputs.data
