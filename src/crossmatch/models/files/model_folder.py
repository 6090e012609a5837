"""A trained model as a folder: `model.json` (family, configuration, recipe, versions) and the weights that it names.

The weights are written first, under a name with their hash, and `model.json` last. So a folder never has an incomplete model.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from crossmatch.data.errors import CrossmatchError, MissingDependencyError
from crossmatch.data.io.atomic_write import atomic_write
from crossmatch.data.io.user_code_errors import describe_error

try:
    import torch
except ImportError as absent:
    raise MissingDependencyError("PyTorch", "models") from absent

if TYPE_CHECKING:
    from torch import nn

# Errors that a changed or truncated file causes.
DAMAGED = (KeyError, TypeError, ValueError, OSError, RuntimeError, AttributeError, IndexError, EOFError, UnpicklingError)
FORMAT = 1  # increase when folders are written differently


class FolderModel:
    """A network with its configuration and the recipe that trained it, which can be saved as a folder."""

    family: str
    net: nn.Module
    config: Any
    recipe: Mapping[str, Any]

    @property
    def weights(self) -> str:
        """Twelve hexadecimal digits of the hash of the weights."""
        return hash_weights(self.net)

    def save(self, folder: Path) -> None:
        """Write the weights, then model.json, each atomically; then remove the weights of an earlier model."""
        folder.mkdir(parents=True, exist_ok=True)
        weights, buffer = f"weights-{self.weights}.pt", io.BytesIO()
        torch.save(self.net.state_dict(), buffer)
        description = {
            "family": self.family,
            "format": FORMAT,
            "weights": weights,
            "sha256": hashlib.sha256(buffer.getvalue()).hexdigest(),
            "config": asdict(self.config),
            "recipe": self.recipe,
            "versions": {"torch": torch.__version__, "numpy": np.__version__},
        }
        for name, content in ((weights, buffer.getvalue()), ("model.json", json.dumps(description, indent=1).encode())):
            with atomic_write(folder / name) as file:
                file.write(content)
        for path in folder.glob("weights-*.pt"):
            if path.name != weights:
                path.unlink()


Model = TypeVar("Model", bound=FolderModel)


def hash_weights(net: nn.Module) -> str:
    """Return twelve hexadecimal digits of the hash of the weights: names, shapes and numbers."""
    digest = hashlib.sha256()
    for name, values in sorted(net.state_dict().items()):
        digest.update(f"{name}{tuple(values.shape)}".encode() + values.cpu().numpy().tobytes())
    return digest.hexdigest()[:12]


def load_model_folder(
    folder: Path, family: str, about: str, build: Callable[[Mapping[str, Any], Mapping[str, Any]], Model]
) -> Model:
    """Load a model that `save` wrote; `build` makes it, without its weights, from configuration and recipe.

    `about` says what the model is, for error messages. A folder without such a model, or with a damaged one, is an error.
    """
    description = _read_description(folder, family, about)
    try:
        config = _get_table(description, "config")
        words = config.get("vocabulary")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError("the vocabulary in model.json is not a list of words")
        model = build(config | {"vocabulary": tuple(words)}, _get_table(description, "recipe"))
        if Path(str(description["weights"])).name != description["weights"]:
            raise ValueError(f"weights in model.json is {description['weights']!r}; expected the name of a file in the same folder")
        raw = (folder / description["weights"]).read_bytes()
        if hashlib.sha256(raw).hexdigest() != description["sha256"]:
            raise ValueError(f"{description['weights']} has changed since it was written")
        weights = torch.load(io.BytesIO(raw), weights_only=True, map_location="cpu")
        if (mismatch := describe_mismatch(model.net, weights)) is not None:
            raise ValueError(f"the weights are those of another network: {mismatch}")
        model.net.load_state_dict(weights)
    except MissingDependencyError:
        raise
    except DAMAGED as error:
        reason = (str(error).splitlines() or [""])[0] if isinstance(error, ValueError | OSError) else describe_error(error)
        raise CrossmatchError(f"{folder} has no complete {about} ({reason.removesuffix('.')}). Train it again.") from None
    return model


def describe_mismatch(net: nn.Module, weights: Any) -> str | None:
    """Describe which weights do not fit a network: missing, unknown or of another shape; None if all fit.

    >>> describe_mismatch(torch.nn.Linear(1, 2), {"weight": torch.zeros(2, 1), "bias": torch.zeros(3)})
    "1 weights have another shape (first 'bias': (3,) instead of (2,))"
    """
    if not isinstance(weights, Mapping):
        return f"a {type(weights).__name__} instead of weights by name"
    expected = {name: tuple(values.shape) for name, values in net.state_dict().items()}
    shapes = {name: tuple(getattr(values, "shape", ())) for name, values in weights.items()}
    missing = [name for name in expected if name not in shapes]
    unknown = [name for name in shapes if name not in expected]
    misshapen = [name for name, shape in expected.items() if shapes.get(name, shape) != shape]
    problems = []
    if missing:
        problems.append(f"{len(missing)} weights are missing (first {missing[0]!r})")
    if unknown:
        problems.append(f"{len(unknown)} are unknown (first {unknown[0]!r})")
    if misshapen:
        first = misshapen[0]
        problems.append(
            f"{len(misshapen)} weights have another shape (first {first!r}: {shapes[first]} instead of {expected[first]})"
        )
    return ", ".join(problems) or None


def _get_table(description: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = description.get(name)
    if not isinstance(table, dict):
        raise ValueError(f"model.json has no table {name!r}")
    return table


def _read_description(folder: Path, family: str, about: str) -> dict[str, Any]:
    path = folder / "model.json"
    if not path.is_file():
        raise CrossmatchError(f"{folder} has no trained model: there is no model.json. Train one, or check the path.")
    try:
        description = json.loads(path.read_bytes())
    except ValueError as error:
        raise CrossmatchError(f"{path} is not json ({error}). Train the model again.") from None
    if not isinstance(description, dict) or description.get("family") != family:
        raise CrossmatchError(f"{path} does not describe a {about}. Check the path.")
    if description.get("format", FORMAT) != FORMAT:  # the first folders had no format
        raise CrossmatchError(
            f"{path} has format {description.get('format')!r}; this version reads format {FORMAT}. Train the model again."
        )
    return description
