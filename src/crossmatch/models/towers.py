"""Image towers of timm: pooled features of networks that know nothing of texts, for image-to-image tasks.

    timm:resnet152               its released weights, once they were fetched
    timm:resnet152,simclr.pt     a checkpoint of this architecture, with or without a head
    timm:resnet152,random        random weights, from a fixed seed: what the architecture alone does

The baselines of parekh2021cxc, tab. 4, are `inception_v3`, `resnet152`, and a SimCLR checkpoint. Nothing is fetched.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.models.checkpoint import require_finite
from crossmatch.models.folder import weights_of
from crossmatch.models.stored import cached_file, fill, library, offline, read_stored

try:
    import torch
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH = 64
RANDOM = "random"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # in a repository, the better first
# Where self-supervised trainings keep the tower, and what may stand on top of one.
PREFIXES = ("", "backbone.", "encoder.", "encoder_q.", "base_encoder.", "online_encoder.", "convnet.", "model.", "visual.")
HEADS = ("fc", "head", "classifier", "last_linear", "AuxLogits", "aux", "projection_head", "projector", "predictor", "prototypes")


def tower_in(weights: Mapping[str, Tensor], net: nn.Module, heads: Sequence[str] = HEADS) -> dict[str, Tensor]:
    """The weights of the tower alone: without the prefix under which a training has it, and without heads.

    Whatever else stands under the prefix is kept, and will not fit: the weights of a deeper network are never taken for those of a
    shallower one. Counters of batches, which change nothing, may be missing.

    >>> net = nn.Sequential(nn.Linear(1, 1))
    >>> sorted(tower_in({f"encoder.{n}": v for n, v in net.state_dict().items()} | {"projector.weight": torch.zeros(1)}, net))
    ['0.bias', '0.weight']
    """
    own = net.state_dict()
    prefix = max(PREFIXES, key=lambda p: sum(p + name in weights for name in own))
    cut = {name[len(prefix) :]: values for name, values in weights.items() if name.startswith(prefix)}
    kept = {name: values for name, values in cut.items() if name in own or name.partition(".")[0] not in heads}
    counters = {name: values for name, values in own.items() if name.endswith(".num_batches_tracked")}
    return counters | kept


class Tower:
    """An image encoder of timm: what it pools from the last layer, through the transform that its weights were trained for."""

    similarity = "cosine"

    def __init__(self, name: str, weights: str = "") -> None:
        timm = library("timm", "timm")
        self.net: Any = _built(timm, name, weights).eval()
        with offline():
            config = timm.data.resolve_model_data_config(self.net)
            self.transform: Callable[[Any], Tensor] = timm.data.create_transform(**config, is_training=False)
        self.dimensions = _width_of(self.net)
        shown = f"{name},{Path(weights).name}" if weights else name
        norm = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode()).hexdigest()[:6]
        pixels = f"pixels:{config['input_size'][-1]}/{config['crop_pct']:g}/{config['interpolation']}/{norm}"
        self.signature = f"timm:{shown}|timm:{timm.__version__}|weights:{weights_of(self.net)}|{pixels}|pooled|fp32"

    def prepare_images(self, images: Sequence[Image]) -> Tensor:
        """The pictures through the model's own transform: (n, 3, height, width)."""
        if not len(images):
            return torch.empty(0, 3, 1, 1)
        return torch.stack([self.transform(image.convert("RGB")) for image in images])

    def embed_prepared(self, prepared: Tensor) -> NDArray[np.float32]:
        """One vector per picture."""
        with torch.inference_mode():
            parts = [self.net(prepared[at : at + BATCH]).numpy() for at in range(0, len(prepared), BATCH)]
        return np.concatenate([np.empty((0, self._width(parts)), np.float32), *parts])

    def _width(self, parts: Sequence[NDArray[np.float32]]) -> int:
        if parts and parts[0].ndim != 2:
            raise CrossmatchError(f"this tower gives features of shape {parts[0].shape}; one vector per image was expected.")
        return int(parts[0].shape[1]) if parts else self.dimensions

    def embed_images(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """One vector per image."""
        return self.embed_prepared(self.prepare_images(images))


def _width_of(net: Any) -> int:
    """How many numbers it pools; some have a hidden layer after the last one."""
    return int(getattr(net, "head_hidden_size", net.num_features))


def _built(timm: Any, name: str, weights: str) -> nn.Module:
    """The network without a classifier, filled."""
    if weights == RANDOM:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return _empty(timm, name)
    net = _empty(timm, name)
    path = Path(weights) if weights else _fetched(name, net)
    if weights:
        held = read_stored(path).weights
        heads = (*HEADS, *_classifiers(net))
        remedy = f"Name the architecture that it was trained with, as in timm:ARCHITECTURE,{path.name}."
        fill(net, tower_in(held, net, heads), str(path), name, remedy)
    else:  # timm's own way, which knows how released weights became those of its networks
        try:
            with offline():
                net = timm.create_model(name, pretrained=True, num_classes=0, pretrained_cfg_overlay={"file": str(path)})
        except Exception as error:  # of the library and of the file system, of many kinds
            said = (str(error).splitlines() or [type(error).__name__])[0]
            raise CrossmatchError(f"timm cannot read {path} for {name} ({said:.150}). Get it again.") from error
    require_finite(net, str(path))
    return net


def _empty(timm: Any, name: str) -> nn.Module:
    if not timm.is_model(name):
        from difflib import get_close_matches

        near = ", ".join(get_close_matches(name, timm.list_models(), 3))
        raise WrongWords(f"timm knows no network {name!r}. Nearest: {near or 'none; timm.list_models() has them'}.")
    try:
        with offline():
            net: nn.Module = timm.create_model(name, pretrained=False, num_classes=0)
    except RuntimeError as error:  # a tag that is not known
        raise WrongWords(f"timm cannot build {name} ({error}). Leave out what follows the point, or mend it.") from None
    return net


def _classifiers(net: nn.Module) -> tuple[str, ...]:
    told = getattr(net, "pretrained_cfg", {}).get("classifier") or ()
    return tuple(name.partition(".")[0] for name in ((told,) if isinstance(told, str) else told))


def _fetched(name: str, net: nn.Module) -> Path:
    """Where the released weights are: in the cache of Hugging Face, or in that of torch."""
    told = dict(getattr(net, "pretrained_cfg", {}))
    repository, address = str(told.get("hf_hub_id") or "").rstrip("/"), str(told.get("url") or "")
    asked = told.get("hf_hub_filename")
    path = cached_file(repository, (asked,) if asked else WEIGHTS) if repository else None
    old = Path(torch.hub.get_dir()) / "checkpoints" / (address.rpartition("/")[2] or "none")
    if path is None and old.is_file():
        path = old
    if path is None:
        ways = [f"hf download {repository}"] if repository else [f"get {address} into {old.parent}"] if address else []
        raise CrossmatchError(
            f"the weights of timm:{name} are not on this machine. "
            + (f"Where there is a network: {ways[0]}. Or give" if ways else "timm has none to be fetched: give")
            + f" a checkpoint: timm:{name},FILE"
        )
    return path


def timm_model(rest: str) -> Tower:
    """The tower of a name, as after `timm:`."""
    name, _, weights = rest.partition(",")
    if not name:
        raise WrongWords("timm needs the name of a network, as in timm:resnet152, timm:resnet152,FILE or timm:resnet152,random")
    return Tower(name, weights)
