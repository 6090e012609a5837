"""The families of the zoo, by name: which network each is, and where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from crossmatch.core.catalog import Catalog
from crossmatch.core.declared import checked

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Network:
    """One family: `module` has the class `net` and the frozen dataclass of its sizes, which has the same name and `Config`."""

    name: str
    module: str
    net: str
    about: str
    abilities: str
    cite: str
    recipe: str  # one of those that train it

    def build(self, sizes: Mapping[str, Any]) -> nn.Module:
        """The network with these sizes, its weights at random."""
        declared = self.declared()
        home = import_module(f"crossmatch.models.zoo.{self.module}")
        made: nn.Module = getattr(home, self.net)(declared(**checked(sizes, declared, f"a network of the family {self.name}")))
        return made

    def declared(self) -> type:
        """The dataclass of its sizes."""
        found: type = getattr(import_module(f"crossmatch.models.zoo.{self.module}"), f"{self.net}Config")
        return found


NETWORKS = (
    Network("vse", "vse", "VSE", "one vector for an image, one for a text", "embed", "faghri2018vse", "vse++"),
    Network(
        "vse-infinity",
        "vse_infinity",
        "VSEInfinity",
        "the same, pooled by a learned operator",
        "embed",
        "chen2021vseinfinity",
        "vse-infinity",
    ),
    Network("scan", "scan", "SCAN", "attention between regions and words", "score, ground", "lee2018scan", "scan-t2i"),
    Network(
        "sgraf",
        "sgraf",
        "SGRAF",
        "reasoning over, or filtration of, the alignments of regions and words",
        "score",
        "diao2021sgraf",
        "sgr",
    ),
    Network("vsrn", "vsrn", "VSRN", "reasoning over the graph of an image's regions", "embed", "li2019vsrn", "vsrn"),
    Network("pvse", "pvse", "PVSE", "several vectors for an image or a text", "embed or score", "song2019pvse", "pvse-k2"),
    Network("pcme", "pcme", "PCME", "a distribution for an image or a text", "embed or score", "chun2021pcme", "pcme"),
    Network(
        "dual-encoder",
        "dual_encoder",
        "DualEncoder",
        "frozen pretrained towers with trainable layers",
        "embed",
        "parekh2021cxc",
        "de-i2t",
    ),
    Network("clip", "clip", "CLIP", "two transformers and a learned temperature", "embed", "radford2021clip", "clip"),
    Network(
        "show-tell",
        "show_tell",
        "ShowTell",
        "an LSTM that begins with the mean of the regions",
        "log-likelihood, caption",
        "vinyals2015showtell",
        "show-tell",
    ),
    Network(
        "show-att-tell",
        "show_att_tell",
        "ShowAttTell",
        "an LSTM that attends to the regions at each word",
        "log-likelihood, caption",
        "rennie2017scst",
        "show-att-tell",
    ),
    Network(
        "up-down",
        "up_down",
        "UpDown",
        "two LSTMs, one of which attends for the other",
        "log-likelihood, caption",
        "anderson2018bottomup",
        "updown",
    ),
)


def networks() -> Catalog[Network]:
    """All families of the zoo."""
    return Catalog("family", {n.name: n for n in NETWORKS})
