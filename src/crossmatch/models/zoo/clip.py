"""CLIP: a transformer over an image's regions, another over a text's words, and a temperature that is learned (radford2021clip).

Both give one unit vector; images and texts are compared by their cosine. The temperature matters to the loss alone
(`crossmatch.train.objectives.info_nce`), since it changes no order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from crossmatch.core.errors import MissingDependency, WrongWords
from crossmatch.models.zoo.inputs import LONGEST, Regions, Words
from crossmatch.models.zoo.parts import at_places, unit
from crossmatch.models.zoo.sizes import FEW, LAYERS, WIDTH

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

TEMPERATURE = 0.07  # at first; radford2021clip, sec. 2.5
LARGEST_SCALE = 100.0  # logits are never multiplied by more; ibid.
BOX = 4  # numbers that say where a region is


@dataclass(frozen=True)
class CLIPConfig:
    """The published sizes of ViT-B/32: twelve layers on both sides, 768 numbers for an image's token, 512 for a text's."""

    features: int  # numbers of a region
    words: int  # how many words there are
    dimensions: int = field(default=512, metadata=WIDTH)  # of the space in which images and texts are compared
    image_width: int = field(default=768, metadata=WIDTH)
    image_layers: int = field(default=12, metadata={**LAYERS, "least": 1})
    image_heads: int = field(default=12, metadata=FEW)
    text_width: int = field(default=512, metadata=WIDTH)
    text_layers: int = field(default=12, metadata={**LAYERS, "least": 1})
    text_heads: int = field(default=8, metadata=FEW)


class Block(nn.Module):
    """A transformer layer with its layer norms first, as in CLIP: attention, then four times as many hidden numbers.

    `asking` are the tokens that are wanted of it. Above the last layer only one is looked at, so only that one is computed.
    Weights begin as published: normal, narrower the wider and the deeper the network is.
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

    def forward(self, asking: Tensor, tokens: Tensor, real: Tensor | None) -> Tensor:
        """From (N, A, D), which ask, and (N, L, D), of which (N, L) are real, to (N, A, D); without `real`, each asks those before.

        Each token that asks without `real` also asks itself, and is one of `tokens`, in their order.
        """
        given = self.norm_attention(tokens)
        query = self._split(self.query(given if asking is tokens else self.norm_attention(asking)))
        key, value = (self._split(each) for each in self.key_value(given).chunk(2, dim=2))
        mask = None if real is None else real[:, None, None, :]
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=real is None)
        asking = asking + self.out(seen.transpose(1, 2).flatten(2))
        return asking + self.narrow(F.gelu(self.widen(self.norm_hidden(asking))))  # type: ignore[no-any-return]

    def _split(self, vectors: Tensor) -> Tensor:
        """(N, L, D) to (N, heads, L, D / heads)."""
        return vectors.view(*vectors.shape[:2], self.heads, -1).transpose(1, 2)


def blocks(width: int, heads: int, layers: int, side: str) -> nn.ModuleList:
    """The layers of one side."""
    if layers < 1 or heads < 1 or width % heads:
        raise WrongWords(
            f"the {side} side has {layers} layers, {width} numbers and {heads} heads; it takes one layer at least, and as many "
            f"numbers for each head. Set {side}_width and {side}_heads in [model] of the recipe."
        )
    return nn.ModuleList(Block(width, heads, layers) for _ in range(layers))


def scale_of(logit_scale: Tensor) -> Tensor:
    """What cosines are multiplied by before they compete, 1/τ, from 1 to 100, by the parameter that is its logarithm.

    The parameter itself is put back between log 1 and log 100 before it is used, as the released code does after each step: a
    slope that leads back is still felt at the border.

    >>> far = torch.tensor(9.0)
    >>> round(float(scale_of(far)), 3), round(float(far), 3)
    (100.0, 4.605)
    """
    with torch.no_grad():
        logit_scale.clamp_(0.0, math.log(LARGEST_SCALE))
    return logit_scale.exp()


class CLIP(nn.Module):
    """Images and texts as unit vectors.

        image:  [CLS], W x_k + B b_k       a token for each region: what it looks like, and where its box is
        text:   E y_t + P_t                a token for each word, which sees those before it alone; END is looked at

    A vision transformer's patches are regions here, and its positions are boxes, so that nothing depends on the order of the
    regions. Source: radford2021clip, sec. 2.4; the text side has a causal mask as published.
    """

    embeds = True

    def __init__(self, config: CLIPConfig) -> None:
        super().__init__()
        self.config, wide, narrow = config, config.image_width, config.text_width
        self.look, self.place = nn.Linear(config.features, wide), nn.Linear(BOX, wide, bias=False)
        self.whole = nn.Parameter(wide**-0.5 * torch.randn(wide))  # the token [CLS]
        self.norm_regions, self.norm_image, self.norm_text = nn.LayerNorm(wide), nn.LayerNorm(wide), nn.LayerNorm(narrow)
        self.image_blocks = blocks(wide, config.image_heads, config.image_layers, "image")
        self.word_vectors, self.positions = nn.Embedding(config.words, narrow), nn.Embedding(LONGEST + 2, narrow)
        nn.init.normal_(self.word_vectors.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.01)
        self.text_blocks = blocks(narrow, config.text_heads, config.text_layers, "text")
        self.project_image, self.project_text = (nn.Linear(width, config.dimensions, bias=False) for width in (wide, narrow))
        nn.init.normal_(self.project_image.weight, std=wide**-0.5)
        nn.init.normal_(self.project_text.weight, std=narrow**-0.5)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / TEMPERATURE)))

    def images(self, regions: Regions) -> Tensor:
        """Unit vectors (N, D)."""
        count = len(regions)
        seen = self.look(regions.features) + self.place(regions.boxes)
        tokens = self.norm_regions(torch.cat([self.whole.expand(count, 1, -1), seen], dim=1))
        real = torch.cat([regions.real.new_ones(count, 1), regions.real], dim=1)
        for block in self.image_blocks[:-1]:
            tokens = block(tokens, tokens, real)
        first = self.image_blocks[-1](tokens[:, :1], tokens, real).squeeze(1)
        return unit(self.project_image(self.norm_image(first)))

    def texts(self, words: Words) -> Tensor:
        """Unit vectors (N, D)."""
        tokens = self.word_vectors(words.numbers) + self.positions.weight[: words.numbers.shape[1]]
        for block in self.text_blocks[:-1]:
            tokens = block(tokens, tokens, None)  # what is no word comes after all words: none of them sees it
        end = at_places(tokens, words.lengths.unsqueeze(1) - 1)
        last = self.text_blocks[-1](end, tokens, words.real).squeeze(1)
        return unit(self.project_text(self.norm_text(last)))

    def similarity(self, images: Tensor, texts: Tensor) -> Tensor:
        """The cosine of each image with each text: (I, T)."""
        return images @ texts.T

    def scale(self) -> Tensor:
        """What cosines are multiplied by before they compete, 1/τ."""
        return scale_of(self.logit_scale)
