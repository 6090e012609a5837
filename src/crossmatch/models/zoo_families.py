"""The table of the zoo's families: name, network class, abilities, paper and recipe. It is readable without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from crossmatch.data.name_lookup import Catalog
from crossmatch.data.settings import validate_settings

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class ZooFamily:
    """One family. Its module contains the network class `class_name`, and a frozen dataclass `class_name` + "Config" of its sizes."""

    name: str  # of the family and, with underscores, of its module in `crossmatch.models.zoo`
    class_name: str
    about: str
    abilities: str
    paper: str
    recipe: str  # a recipe that trains it

    def build(self, sizes: Mapping[str, Any]) -> nn.Module:
        """Build the network with these sizes and random weights."""
        config_class = self.config_class()
        config = config_class(**validate_settings(sizes, config_class, f"a network of the family {self.name}"))
        network: nn.Module = self._import(self.class_name)(config)
        return network

    def config_class(self) -> type:
        """Return the dataclass of the sizes."""
        config_class: type = self._import(f"{self.class_name}Config")
        return config_class

    def _import(self, name: str) -> Any:
        return getattr(import_module(f"crossmatch.models.zoo.{self.name.replace('-', '_')}"), name)


ZOO_FAMILIES = (
    ZooFamily("vse", "VSE", "one vector for an image, one for a text", "embed", "faghri2018vse", "vse++"),
    ZooFamily("vse-infinity", "VSEInfinity", "one vector each, by learned pooling", "embed", "chen2021vseinfinity", "vse-infinity"),
    ZooFamily("scan", "SCAN", "attention between regions and words", "score, ground", "lee2018scan", "scan-t2i"),
    ZooFamily("sgraf", "SGRAF", "reasoning over, or filtration of, the alignments of regions and words", "score",
              "diao2021sgraf", "sgr"),
    ZooFamily("vsrn", "VSRN", "reasoning over the graph of an image's regions", "embed", "li2019vsrn", "vsrn"),
    ZooFamily("pvse", "PVSE", "several vectors for an image or a text", "embed or score", "song2019pvse", "pvse-k2"),
    ZooFamily("pcme", "PCME", "a distribution for an image or a text", "embed or score", "chun2021pcme", "pcme"),
    ZooFamily("dual-encoder", "DualEncoder", "frozen pretrained towers with trainable layers", "embed",
              "parekh2021cxc", "de-i2t"),
    ZooFamily("clip", "CLIP", "two transformers and a learned temperature", "embed", "radford2021clip", "clip"),
    ZooFamily("show-tell", "ShowTell", "an LSTM that begins with the mean of the regions", "log-likelihood, caption",
              "vinyals2015showtell", "show-tell"),
    ZooFamily("show-att-tell", "ShowAttTell", "an LSTM that attends to the regions at each word", "log-likelihood, caption",
              "rennie2017scst", "show-att-tell"),
    ZooFamily("up-down", "UpDown", "two LSTMs, one of which attends for the other", "log-likelihood, caption",
              "anderson2018bottomup", "updown"),
)  # fmt: skip


def zoo_families() -> Catalog[ZooFamily]:
    """Return all families of the zoo by name."""
    return Catalog("family", {family.name: family for family in ZOO_FAMILIES})
