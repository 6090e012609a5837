"""A trained model as a folder: `model.json` (family, configuration, vocabulary, recipe, versions) and the weights that it names.

The weights are written first under a name of their own, `model.json` last and at once: there is never half a model.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.core.own_code import told as told_of
from crossmatch.core.whole import whole_file

try:
    import torch
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from torch import nn

# How a file that was changed or cut off shows itself.
DAMAGED = (KeyError, TypeError, ValueError, OSError, RuntimeError, AttributeError, IndexError, EOFError, UnpicklingError)
FORMAT = 1  # counts up when a folder is written in another way


class Trained(Protocol):
    """A network with what must be known to build it again and how it came about."""

    @property
    def net(self) -> nn.Module: ...

    @property
    def config(self) -> Any: ...

    @property
    def recipe(self) -> Mapping[str, Any]: ...


Model = TypeVar("Model", bound=Trained)


def weights_of(net: nn.Module) -> str:
    """Twelve hexadecimal digits of the weights: names, shapes and numbers."""
    digest = hashlib.sha256()
    for name, values in sorted(net.state_dict().items()):
        digest.update(f"{name}{tuple(values.shape)}".encode() + values.numpy().tobytes())
    return digest.hexdigest()[:12]


def save_folder(model: Trained, family: str, folder: Path) -> None:
    """Write the weights, then model.json, each at once; then drop the weights of an earlier model."""
    folder.mkdir(parents=True, exist_ok=True)
    weights, buffer = f"weights-{weights_of(model.net)}.pt", io.BytesIO()
    torch.save(model.net.state_dict(), buffer)
    told = {
        "family": family,
        "format": FORMAT,
        "weights": weights,
        "sha256": hashlib.sha256(buffer.getvalue()).hexdigest(),
        "config": asdict(model.config),
        "recipe": model.recipe,
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
    }
    for name, content in ((weights, buffer.getvalue()), ("model.json", json.dumps(told, indent=1).encode())):
        with whole_file(folder / name) as file:
            file.write(content)
    for old in folder.glob("weights-*.pt"):
        if old.name != weights:
            old.unlink()


def load_folder(folder: Path, family: str, about: str, build: Callable[[Mapping[str, Any], Mapping[str, Any]], Model]) -> Model:
    """The model of a folder that `save_folder` wrote; `build` makes it from its configuration and recipe, without its weights."""
    told = _told(folder, family, about)
    try:
        config = _table(told, "config")
        words = config.get("vocabulary")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError("the vocabulary in its model.json is no list of words")
        model = build(config | {"vocabulary": tuple(words)}, _table(told, "recipe"))
        if Path(str(told["weights"])).name != told["weights"]:
            raise ValueError(f"weights is {told['weights']!r} in its model.json; the name of a file beside it was expected")
        stored = (folder / told["weights"]).read_bytes()
        if hashlib.sha256(stored).hexdigest() != told["sha256"]:
            raise ValueError(f"{told['weights']} is not the file that was written")
        held = torch.load(io.BytesIO(stored), weights_only=True, map_location="cpu")
        if (odd := misfit(model.net, held)) is not None:
            raise ValueError(f"its weights are of another network: {odd}")
        model.net.load_state_dict(held)
    except MissingDependency:
        raise
    except DAMAGED as error:
        said = (str(error).splitlines() or [""])[0] if isinstance(error, ValueError | OSError) else told_of(error)
        raise CrossmatchError(f"{folder} holds no whole {about} ({said.removesuffix('.')}). Train it again.") from None
    return model


def misfit(net: nn.Module, held: Any) -> str | None:
    """What does not fit among weights by name: the first that is missing, unknown, or of another shape.

    >>> misfit(torch.nn.Linear(1, 2), {"weight": torch.zeros(2, 1), "bias": torch.zeros(3)})
    "'bias' has the shape (3,) instead of (2,)"
    """
    if not isinstance(held, Mapping):
        return f"a {type(held).__name__} instead of weights by name"
    own = net.state_dict()
    missing, strange = next((name for name in own if name not in held), None), next((n for n in held if n not in own), None)
    if missing is not None or strange is not None:
        both = (f"{missing!r} is missing" if missing else "", f"{strange!r} is not known" if strange else "")
        return ", and ".join(filter(None, both))
    shapes = {name: (tuple(getattr(held[name], "shape", ())), tuple(values.shape)) for name, values in own.items()}
    odd = next((name for name, (found, wanted) in shapes.items() if found != wanted), None)
    return None if odd is None else f"{odd!r} has the shape {shapes[odd][0]} instead of {shapes[odd][1]}"


def _table(told: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = told.get(name)
    if not isinstance(found, dict):
        raise ValueError(f"its model.json has no table {name!r}")
    return found


def _told(folder: Path, family: str, about: str) -> dict[str, Any]:
    path = folder / "model.json"
    if not path.is_file():
        raise CrossmatchError(f"{folder} holds no trained model: there is no model.json. Train one, or check the path.")
    try:
        told = json.loads(path.read_bytes())
    except ValueError as error:
        raise CrossmatchError(f"{path} is not json ({error}). Train the model again.") from None
    if not isinstance(told, dict) or told.get("family") != family:
        raise CrossmatchError(f"{path} does not describe a {about}. Check the path.")
    if told.get("format", FORMAT) != FORMAT:  # the first folders did not say it
        raise CrossmatchError(
            f"{path} has format {told.get('format')!r}; this version reads format {FORMAT}. Train the model again."
        )
    return told
