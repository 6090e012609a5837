"""VSRN: graph reasoning over the regions of an image, then a GRU that reads them into one vector (li2019vsrn).

A text is one vector too; images and texts are compared by the cosine. In training the network also generates the caption from the
regions (`crossmatch.train.objectives.vsrn`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the usual name

from crossmatch.models.zoo.layers import (
    LAYERS,
    SHARE,
    WIDTH,
    NetworkConfig,
    VectorNetwork,
    WordVectors,
    gru_outputs_and_last,
    normalize,
)
from crossmatch.models.zoo.network_inputs import Regions, Words


@dataclass(frozen=True)
class VSRNConfig(NetworkConfig):
    """Published sizes: 2048 dimensions, four layers of reasoning, word vectors of 300, a caption decoder of 512."""

    dimensions: int = field(default=2048, metadata=WIDTH)
    layers: int = field(default=4, metadata=LAYERS)
    word_dimensions: int = field(default=300, metadata=WIDTH)
    decoder: int = field(default=512, metadata=WIDTH)  # hidden size of the caption's encoder and decoder
    dropout: float = field(default=0.2, metadata=SHARE)  # of their inputs, in training


class RegionReasoning(nn.Module):
    """One layer of reasoning over the complete graph of an image's regions.

        R(v_i, v_j) = φ(v_i)ᵀ ξ(v_j),    V* = W_r(R V W_g) + V                                  li2019vsrn, eq. 2 and 3

    As in the released code, R is divided by the number of regions (the paper does not give a scale), φ, ξ, W_g and W_r have biases,
    and W_r is followed by a batch norm with initial weight 0, so that a layer starts as the identity. Padding is excluded from the
    number and from the batch norm, so it does not change an image.
    """

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self.phi, self.xi, self.inner, self.outer = (nn.Linear(dimensions, dimensions) for _ in range(4))
        self.norm = nn.BatchNorm1d(dimensions)
        nn.init.zeros_(self.norm.weight)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Regions (N, K, D) with mask (N, K) to (N, K, D); padding is ignored and stays 0."""
        affinity = self.phi(vectors) @ self.xi(vectors).transpose(1, 2)  # (N, K, K): row i is R(v_i, ·)
        affinity = affinity * mask.unsqueeze(1) / mask.sum(dim=1).clamp(min=1)[:, None, None]
        update = self.outer(affinity @ self.inner(vectors))
        out = torch.zeros_like(vectors)
        out[mask] = self.norm(update[mask]) + vectors[mask]
        return out


class CaptionDecoder(nn.Module):
    """Generates a caption from regions: one GRU reads the regions, a second one attends to its outputs.

        e_k = w ᵀ tanh(W [o_k; h_t−1]),    c_t = Σ_k softmax_k(e_k) · o_k,    h_t = GRU([y_t−1; c_t], h_t−1)

    o_k is the first GRU's output at region k, h_0 its last output; y_t−1 is the vector of the previous word. Source: li2019vsrn,
    sec. 3.4, with the attentive sequence-to-sequence model of venugopalan2015s2vt as released. Differences: the decoder stops at
    the end of the longest caption instead of after 60 words, and W is applied to o and h separately (the same sum), once per
    region.
    """

    def __init__(self, dimensions: int, hidden: int, words: int, word_dimensions: int, dropout: float) -> None:
        super().__init__()
        self.word_vectors = nn.Embedding(words, word_dimensions)
        self.encoder = nn.GRU(dimensions, hidden, batch_first=True)
        self.decoder = nn.GRUCell(word_dimensions + hidden, hidden)
        self.attend_region, self.attend_state = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden, bias=False)
        self.attend = nn.Linear(hidden, 1, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(hidden, words)
        nn.init.xavier_normal_(self.out.weight)

    def forward(self, regions: Tensor, mask: Tensor, numbers: Tensor) -> Tensor:
        """Log-probabilities (N, L - 1, words) of the second to the last word (N, L), each given the words before it."""
        outputs, state = gru_outputs_and_last(self.encoder, self.dropout(regions), mask)
        keys, word_vectors = self.attend_region(outputs), self.word_vectors(numbers)
        # an image without regions attends to the zero vector in the first position
        absent = ~(mask | (~mask.any(dim=1, keepdim=True) & (torch.arange(mask.shape[1]) == 0)))
        states = []
        for step in range(numbers.shape[1] - 1):
            scores = self.attend(torch.tanh(keys + self.attend_state(state).unsqueeze(1))).squeeze(2)
            weights = scores.masked_fill(absent, -torch.inf).softmax(dim=1)
            context = (weights.unsqueeze(1) @ outputs).squeeze(1)
            state = self.decoder(self.dropout(torch.cat([word_vectors[:, step], context], dim=1)), state)
            states.append(state)
        return F.log_softmax(self.out(torch.stack(states, dim=1)), dim=2)


class VSRN(VectorNetwork):
    """Images and texts as unit vectors.

        image:  v = W_f f + b, then reasoning, then a GRU over the regions in their order; its last output       eq. 1 to 7
        text:   the last output of a GRU over the words                                                         sec. 3.3

    Region vectors have length 1 before and after the reasoning, as in the paper. (The released code normalises along the wrong
    axis, over the regions of the image.)
    """

    def __init__(self, config: VSRNConfig) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.features, config.dimensions)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.reasoning = nn.ModuleList(RegionReasoning(config.dimensions) for _ in range(config.layers))
        self.image_gru = nn.GRU(config.dimensions, config.dimensions, batch_first=True)
        self.word_vectors = WordVectors(config.words, config.word_dimensions)
        self.text_gru = nn.GRU(config.word_dimensions, config.dimensions, batch_first=True)
        self.teller = CaptionDecoder(config.dimensions, config.decoder, config.words, config.word_dimensions, config.dropout)

    def reason(self, regions: Regions) -> Tensor:
        """Regions after all layers of reasoning, as unit vectors (N, K, D); 0 at padding."""
        vectors = normalize(self.linear(regions.features)) * regions.mask.unsqueeze(2)
        for layer in self.reasoning:
            vectors = layer(vectors, regions.mask)
        return normalize(vectors)

    def summarise(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Read the regions of each image into one unit vector, (N, D)."""
        return normalize(gru_outputs_and_last(self.image_gru, vectors, mask)[1])

    def images(self, regions: Regions) -> Tensor:
        """Unit vectors (N, D)."""
        return self.summarise(self.reason(regions), regions.mask)

    def texts(self, words: Words) -> Tensor:
        """Unit vectors (N, D)."""
        return normalize(gru_outputs_and_last(self.text_gru, self.word_vectors(words), words.mask)[1])
