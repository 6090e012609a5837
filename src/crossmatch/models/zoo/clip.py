"""CLIP: a transformer over regions, a transformer over words, and a learned temperature (radford2021clip).

Both give one unit vector; images and texts are compared by the cosine. Only the loss uses the temperature
(`crossmatch.train.objectives.info_nce`), because it does not change the ranking.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the usual name

from crossmatch.models.zoo.layers import FEW, LAYERS, WIDTH, NetworkConfig, VectorNetwork, gather_positions, normalize
from crossmatch.models.zoo.network_inputs import MAX_WORDS, Regions, Words

INITIAL_TEMPERATURE = 0.07  # radford2021clip, sec. 2.5
MAX_SCALE = 100.0  # largest factor of the logits; ibid.
BOX = 4  # coordinates of a box


@dataclass(frozen=True)
class CLIPConfig(NetworkConfig):
    """The published sizes of ViT-B/32: twelve layers on both sides, 768 numbers for an image token, 512 for a text token."""

    dimensions: int = field(default=512, metadata=WIDTH)  # of the common space of images and texts
    image_width: int = field(default=768, metadata=WIDTH)
    image_layers: int = field(default=12, metadata={**LAYERS, "least": 1})
    image_heads: int = field(default=12, metadata=FEW)
    text_width: int = field(default=512, metadata=WIDTH)
    text_layers: int = field(default=12, metadata={**LAYERS, "least": 1})
    text_heads: int = field(default=8, metadata=FEW)


class PreNormBlock(nn.Module):
    """A transformer layer with layer norm before attention and MLP, as in CLIP. The MLP's hidden layer is four times as wide.

    Only the outputs of the query tokens are computed, because the last layer needs a single one. Weights are initialised as
    published: normal, with a smaller deviation in wider and deeper networks.
    """

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_hidden = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key_value = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        for linear in (self.query, self.key_value, self.out, self.widen, self.narrow):
            nn.init.zeros_(linear.bias)
        for linear in (self.query, self.key_value):
            nn.init.normal_(linear.weight, std=width**-0.5)
        for linear in (self.out, self.narrow):
            nn.init.normal_(linear.weight, std=(2 * layers * width) ** -0.5)
        nn.init.normal_(self.widen.weight, std=(2 * width) ** -0.5)

    def forward(self, queries: Tensor, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """From queries (N, A, D), tokens (N, L, D) and mask (N, L) to (N, A, D).

        Without a mask, attention is causal: the queries must be the tokens, and each attends to itself and those before it.
        """
        normed = self.norm_attention(tokens)
        query = self._split_heads(self.query(normed if queries is tokens else self.norm_attention(queries)))
        key, value = (self._split_heads(vectors) for vectors in self.key_value(normed).chunk(2, dim=2))
        attention_mask = None if mask is None else mask[:, None, None, :]
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, is_causal=mask is None)
        queries = queries + self.out(attended.transpose(1, 2).flatten(2))
        return queries + self.narrow(F.gelu(self.widen(self.norm_hidden(queries))))  # type: ignore[no-any-return]

    def _split_heads(self, vectors: Tensor) -> Tensor:
        """(N, L, D) to (N, heads, L, D / heads)."""
        return vectors.view(*vectors.shape[:2], self.heads, -1).transpose(1, 2)


def make_blocks(width: int, heads: int, layers: int) -> nn.ModuleList:
    return nn.ModuleList(PreNormBlock(width, heads, layers) for _ in range(layers))


def clamped_scale(logit_scale: Tensor) -> Tensor:
    """Factor 1/τ of the cosines, from 1 to 100, for a parameter that stores its logarithm.

    The parameter itself is clamped to [log 1, log 100] in place, as the released code does after each step, so that at the border a
    gradient that leads back still has an effect.

    >>> far = torch.tensor(9.0)
    >>> round(float(clamped_scale(far)), 3), round(float(far), 3)
    (100.0, 4.605)
    """
    with torch.no_grad():
        logit_scale.clamp_(0.0, math.log(MAX_SCALE))
    return logit_scale.exp()


class CLIP(VectorNetwork):
    """Images and texts as unit vectors.

        image:  [CLS], W x_k + B b_k       a token for each region: its features and its box
        text:   E y_t + P_t                a token for each word, with a causal mask; the output at END is used

    Regions take the place of a vision transformer's patches, and boxes that of positions, so that the order of the regions does not
    matter. Source: radford2021clip, sec. 2.4.
    """

    def __init__(self, config: CLIPConfig) -> None:
        super().__init__()
        config.require_multiple("image_width", "image_heads")
        config.require_multiple("text_width", "text_heads")
        self.config, wide, narrow = config, config.image_width, config.text_width
        self.look, self.place = nn.Linear(config.features, wide), nn.Linear(BOX, wide, bias=False)
        self.whole = nn.Parameter(wide**-0.5 * torch.randn(wide))  # the token [CLS]
        self.norm_regions, self.norm_image, self.norm_text = nn.LayerNorm(wide), nn.LayerNorm(wide), nn.LayerNorm(narrow)
        self.image_blocks = make_blocks(wide, config.image_heads, config.image_layers)
        self.word_vectors, self.positions = nn.Embedding(config.words, narrow), nn.Embedding(MAX_WORDS + 2, narrow)
        nn.init.normal_(self.word_vectors.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.01)
        self.text_blocks = make_blocks(narrow, config.text_heads, config.text_layers)
        self.project_image, self.project_text = (nn.Linear(width, config.dimensions, bias=False) for width in (wide, narrow))
        nn.init.normal_(self.project_image.weight, std=wide**-0.5)
        nn.init.normal_(self.project_text.weight, std=narrow**-0.5)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / INITIAL_TEMPERATURE)))

    def images(self, regions: Regions) -> Tensor:
        """Unit vectors (N, D)."""
        count = len(regions)
        region_tokens = self.look(regions.features) + self.place(regions.boxes)
        tokens = self.norm_regions(torch.cat([self.whole.expand(count, 1, -1), region_tokens], dim=1))
        mask = torch.cat([regions.mask.new_ones(count, 1), regions.mask], dim=1)
        for block in self.image_blocks[:-1]:
            tokens = block(tokens, tokens, mask)
        first = self.image_blocks[-1](tokens[:, :1], tokens, mask).squeeze(1)
        return normalize(self.project_image(self.norm_image(first)))

    def texts(self, words: Words) -> Tensor:
        """Unit vectors (N, D)."""
        tokens = self.word_vectors(words.numbers) + self.positions.weight[: words.numbers.shape[1]]
        for block in self.text_blocks[:-1]:
            tokens = block(tokens, tokens, None)  # padding comes last, so the causal mask hides it from all words
        end = gather_positions(tokens, words.lengths.unsqueeze(1) - 1)
        last = self.text_blocks[-1](end, tokens, words.mask).squeeze(1)
        return normalize(self.project_text(self.norm_text(last)))

    def scale(self) -> Tensor:
        """Factor of the cosines in the loss, 1/τ."""
        return clamped_scale(self.logit_scale)
