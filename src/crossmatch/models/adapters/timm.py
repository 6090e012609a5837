"""Image towers of timm: pooled features of image-only networks, for image-to-image tasks.

    timm:resnet152               its released weights, once they are downloaded
    timm:resnet152,simclr.pt     a checkpoint of this architecture, with or without a head
    timm:resnet152,random        random weights from a fixed seed, as a baseline of the architecture

The baselines of parekh2021cxc, tab. 4, are `inception_v3`, `resnet152`, and a SimCLR checkpoint. Nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.io.user_code_errors import describe_error
from crossmatch.models.files.checkpoint_files import (
    find_cached_file,
    import_library,
    load_weights,
    offline,
    read_checkpoint,
    require_finite,
)
from crossmatch.models.files.model_folder import hash_weights

try:
    import torch
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependencyError("PyTorch", "models") from absent

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH = 64
RANDOM = "random"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # in a repository, the better format first
# Prefixes of the tower's weights in checkpoints of self-supervised training, and names of heads on top of a tower.
PREFIXES = ("", "backbone.", "encoder.", "encoder_q.", "base_encoder.", "online_encoder.", "convnet.", "model.", "visual.")
HEADS = ("fc", "head", "classifier", "last_linear", "AuxLogits", "aux", "projection_head", "projector", "predictor", "prototypes")


def extract_tower_weights(weights: Mapping[str, Tensor], net: nn.Module, heads: Sequence[str] = HEADS) -> dict[str, Tensor]:
    """Return the weights of the tower: without the prefix that the training gave it, and without heads.

    Other weights under the prefix stay, and will not fit: the weights of a deeper network are never loaded into a shallower one.
    Batch counters, which have no effect, may be missing.

    >>> net = nn.Sequential(nn.Linear(1, 1))
    >>> weights = {f"encoder.{name}": values for name, values in net.state_dict().items()}
    >>> sorted(extract_tower_weights(weights | {"projector.weight": torch.zeros(1)}, net))
    ['0.bias', '0.weight']
    """
    expected = net.state_dict()
    prefix = max(PREFIXES, key=lambda p: sum(p + name in weights for name in expected))
    stripped = {name[len(prefix) :]: values for name, values in weights.items() if name.startswith(prefix)}
    tower = {name: values for name, values in stripped.items() if name in expected or name.partition(".")[0] not in heads}
    counters = {name: values for name, values in expected.items() if name.endswith(".num_batches_tracked")}
    return counters | tower


class TimmTower:
    """An image encoder of timm: the pooled features of its last layer, with the transform of its weights."""

    similarity = "cosine"

    def __init__(self, name: str, weights: str = "") -> None:
        timm = import_library("timm", "timm")
        net: Any = _build(timm, name, weights).eval()
        self.net = net
        with offline():
            config = timm.data.resolve_model_data_config(self.net)
            self.transform: Callable[[Any], Tensor] = timm.data.create_transform(**config, is_training=False)
        self.dimensions = int(getattr(net, "head_hidden_size", net.num_features))  # some have a hidden layer in the head
        label = f"{name},{Path(weights).name}" if weights else name
        norm = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode()).hexdigest()[:6]
        pixels = f"pixels:{config['input_size'][-1]}/{config['crop_pct']:g}/{config['interpolation']}/{norm}"
        self.signature = f"timm:{label}|timm:{timm.__version__}|weights:{hash_weights(self.net)}|{pixels}|pooled|fp32"

    def prepare_images(self, images: Sequence[Image]) -> Tensor:
        """Apply the model's transform: (n, 3, height, width)."""
        if not len(images):
            return torch.empty(0, 3, 1, 1)
        return torch.stack([self.transform(image.convert("RGB")) for image in images])

    def embed_prepared(self, prepared: Tensor) -> NDArray[np.float32]:
        """Embed what `prepare_images` returned: one vector per image."""
        with torch.inference_mode():
            parts = [self.net(prepared[start : start + BATCH]).numpy() for start in range(0, len(prepared), BATCH)]
        if parts and parts[0].ndim != 2:
            raise CrossmatchError(f"this tower returned features of shape {parts[0].shape}; expected one vector per image.")
        return np.concatenate(parts) if parts else np.empty((0, self.dimensions), np.float32)

    def embed_images(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Embed images: one vector per image."""
        return self.embed_prepared(self.prepare_images(images))


def _build(timm: Any, name: str, weights: str) -> nn.Module:
    """Build the network without a classifier, and load its weights."""
    if weights == RANDOM:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return _create_network(timm, name)
    net = _create_network(timm, name)
    path = Path(weights) if weights else _find_released_weights(name, net)
    if weights:
        checkpoint = read_checkpoint(path)
        heads = (*HEADS, *_classifier_names(net))
        remedy = f"Name the architecture that it was trained with, as in timm:ARCHITECTURE,{path.name}."
        load_weights(net, extract_tower_weights(checkpoint.weights, net, heads), str(path), name, remedy)
    else:  # timm converts released weights to its networks
        try:
            with offline():
                net = timm.create_model(name, pretrained=True, num_classes=0, pretrained_cfg_overlay={"file": str(path)})
        except Exception as error:  # the library and the file system raise many types
            raise CrossmatchError(f"timm cannot read {path} for {name} ({describe_error(error)}). Download it again.") from error
    require_finite(net, str(path))
    return net


def _create_network(timm: Any, name: str) -> nn.Module:
    if not timm.is_model(name):
        from difflib import get_close_matches

        near = ", ".join(get_close_matches(name, timm.list_models(), 3))
        raise UsageError(f"timm has no network {name!r}. Nearest: {near or 'none; see timm.list_models()'}.")
    try:
        with offline():
            net: nn.Module = timm.create_model(name, pretrained=False, num_classes=0)
    except RuntimeError as error:  # an unknown tag
        raise UsageError(f"timm cannot build {name} ({error}). Remove or correct the tag after the point.") from None
    return net


def _classifier_names(net: nn.Module) -> tuple[str, ...]:
    names = getattr(net, "pretrained_cfg", {}).get("classifier") or ()
    return tuple(name.partition(".")[0] for name in ((names,) if isinstance(names, str) else names))


def _find_released_weights(name: str, net: nn.Module) -> Path:
    """Return the released weights in the cache of Hugging Face or of torch."""
    config = dict(getattr(net, "pretrained_cfg", {}))
    repository, address = str(config.get("hf_hub_id") or "").rstrip("/"), str(config.get("url") or "")
    file = config.get("hf_hub_filename")
    path = find_cached_file(repository, (file,) if file else WEIGHTS) if repository else None
    old = Path(torch.hub.get_dir()) / "checkpoints" / (address.rpartition("/")[2] or "none")
    if path is None and old.is_file():
        path = old
    if path is None:
        if repository:
            remedy = f"Download them (hf download {repository}), or name"
        else:
            remedy = f"Download {address} to {old.parent}, or name" if address else "timm has released none. Name"
        raise CrossmatchError(f"the weights of timm:{name} are not on this machine. {remedy} a checkpoint: timm:{name},FILE")
    return path


def timm_model(argument: str) -> TimmTower:
    """Make the model of `timm:NAME[,WEIGHTS]`."""
    name, _, weights = argument.partition(",")
    if not name:
        raise UsageError("timm needs the name of a network, as in timm:resnet152, timm:resnet152,FILE or timm:resnet152,random")
    return TimmTower(name, weights)
