"""ShowTell: an LSTM that is shown the image first, as if it were a word, and then tells the caption.

    x_−1 = W v̄,    x_t = W_e S_t,    p_t+1 = softmax(W_p LSTM(x_t))                              vinyals2015showtell, eq. 10 to 12

v̄ is the mean of the image's regions (hu2019bison, app. D.2).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from crossmatch.core.errors import MissingDependency
from crossmatch.models.zoo.captioner_parts import CaptionNet, Memory, Packed
from crossmatch.models.zoo.inputs import Regions
from crossmatch.models.zoo.parts import mean_over
from crossmatch.models.zoo.sizes import WIDTH

try:
    import torch
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent


@dataclass(frozen=True)
class ShowTellConfig:
    """The published sizes: the image and a word have 512 numbers, the LSTM as many; dropout as in the released code of SCST."""

    features: int  # numbers of a region
    words: int  # how many words there are
    dimensions: int = field(default=512, metadata=WIDTH)
    word_dimensions: int = field(default=512, metadata=WIDTH)
    dropout: float = field(default=0.5, metadata={"least": 0, "most": 0.99})


class ShowTell(CaptionNet):
    """All that is kept of an image is where the LSTM stands after it was shown."""

    def __init__(self, config: ShowTellConfig) -> None:
        super().__init__(config.words, config.word_dimensions, config.dimensions, config.dropout)
        self.config = config
        self.image = nn.Linear(config.features, config.word_dimensions)
        self.lstm = nn.LSTM(config.word_dimensions, config.dimensions)

    def images(self, regions: Regions) -> Memory:
        """Where the LSTM stands after the image."""
        nothing = regions.features.new_zeros(len(regions), self.config.dimensions)
        return self.advanced(None, Memory(nothing, nothing), self.image(mean_over(regions.features, regions.real)))

    def begin(self, encoded: Memory) -> Memory:
        return encoded

    def heard(self, numbers: Tensor) -> Tensor:
        return self.vectors(numbers)

    def advanced(self, encoded: object, state: Memory, heard: Tensor) -> Memory:
        return Memory(*torch.lstm_cell(heard, list(state), *self.lstm.all_weights[0]))

    def _through(self, encoded: Memory, packed: Packed) -> Tensor:
        """All words at once: nothing but the LSTM itself goes from one to the next."""
        given = nn.utils.rnn.PackedSequence(self.heard(packed.numbers), torch.tensor(packed.sizes))
        said: nn.utils.rnn.PackedSequence = self.lstm(given, (encoded.hidden.unsqueeze(0), encoded.cell.unsqueeze(0)))[0]
        return said.data
