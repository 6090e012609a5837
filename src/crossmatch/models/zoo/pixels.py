"""Regions from pixels: the places of a small convolutional net's last map, learned with the rest of the model."""

from __future__ import annotations

from crossmatch.core.errors import MissingDependency
from crossmatch.models.dual import convolutions
from crossmatch.models.zoo.inputs import Regions

try:
    import torch
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

STRIDE = 8  # pixels between two places


class PixelGrid(nn.Module):
    """Four convolutions with batch norm; each place of the last map is a region, with where it is as four more numbers.

    The spatial features of a convolutional net are one of the two kinds of regions of hu2019bison, app. E; there the net is
    trained on ImageNet beforehand, here with the model.
    """

    def __init__(self, side: int = 64, width: int = 12) -> None:
        super().__init__()
        self.side = side
        self.layers = convolutions(width)
        across = -(-side // STRIDE)
        at = torch.arange(across) / across
        left, top = (each.flatten() for each in torch.meshgrid(at, at, indexing="xy"))
        self.boxes: Tensor
        self.register_buffer("boxes", torch.stack([left, top, left + 1 / across, top + 1 / across], dim=1), persistent=False)
        self.dimensions = 8 * width + 4

    def forward(self, pixels: Tensor) -> Regions:
        """From bytes (N, side, side, 3) to side²/64 regions each."""
        seen = self.layers(pixels.permute(0, 3, 1, 2).contiguous().float() / 127.5 - 1).flatten(2).transpose(1, 2)
        boxes = self.boxes.expand(len(pixels), -1, -1)
        features = torch.cat([seen, 2 * boxes - 1], dim=2)
        return Regions(features, torch.ones(features.shape[:2], dtype=torch.bool), boxes)
