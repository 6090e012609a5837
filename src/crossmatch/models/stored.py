"""A checkpoint file as weights by name, without running anything that it holds; and weights that must fit a network to the last."""

from __future__ import annotations

import argparse
import importlib
import logging
import pickle
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords

try:
    import torch
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

INSIDE = ("state_dict", "model_state_dict", "model")  # where a training's checkpoint has the weights, beside its optimiser's state
WRAPPERS = ("module.", "_orig_mod.")  # of parallel and of compiled networks
# What the files of old trainings hold beside tensors, and what cannot do anything when it is read.
HARMLESS: tuple[Any, ...] = (
    argparse.Namespace,
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("f4", "f8", "i4", "i8", "?")),
    (np._core.multiarray.scalar, "numpy._core.multiarray.scalar"),  # type: ignore[attr-defined]
    (np._core.multiarray.scalar, "numpy.core.multiarray.scalar"),  # type: ignore[attr-defined]
)


@dataclass(frozen=True)
class Stored:
    """The weights of a file, and what else it says (its training's arguments, its name, …)."""

    weights: dict[str, Tensor] = field(repr=False)
    told: Mapping[str, Any] = field(default_factory=dict, repr=False)
    script: bool = False  # a TorchScript archive


def read_stored(path: Path) -> Stored:
    """What is in a checkpoint: a state dict, one inside a training's checkpoint, a TorchScript archive, or safetensors."""
    if not path.is_file():
        raise WrongWords(f"there is no file {path}. Check the path of the checkpoint, or fetch it first.")
    script = _is_script(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of formats that are old, which the user cannot mend
            held = _script(path) if script else _safetensors(path) if path.suffix == ".safetensors" else _pickled(path)
    except pickle.UnpicklingError as error:
        if "Unsupported operand" in str(error) or "nsupported" not in str(error):  # no pickle at all
            raise _damaged(path, error) from None
        raise CrossmatchError(
            f"{path} holds Python objects beside its weights, which could run anything, so it is not read. If you trust it, save "
            f"the weights alone: python -c \"import torch; torch.save(torch.load('{path.name}', weights_only=False)['state_dict'], "
            "'weights.pt')\""
        ) from None
    except (RuntimeError, EOFError, OSError, KeyError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise _damaged(path, error) from None
    inside = next((held[name] for name in INSIDE if isinstance(held.get(name), Mapping)), held)
    weights = {str(name): values for name, values in inside.items() if isinstance(values, Tensor)}
    if not weights or len(weights) < len(inside):
        known = ", ".join(INSIDE)
        raise CrossmatchError(f"{path} holds no weights by name, at its top or under one of {known}. Save net.state_dict() alone.")
    told = {str(name): value for name, value in held.items()} if inside is not held else {}
    return Stored(unwrapped(weights), told, script)


def _damaged(path: Path, error: Exception) -> CrossmatchError:
    said = (str(error).splitlines() or [""])[0]
    return CrossmatchError(
        f"{path} cannot be read as a checkpoint ({type(error).__name__}: {said:.100}). It is damaged or not whole: get it again."
    )


def _is_script(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _script(path: Path) -> Mapping[str, Any]:
    return torch.jit.load(str(path), map_location="cpu").state_dict()  # type: ignore[no-any-return, no-untyped-call]


def _safetensors(path: Path) -> Mapping[str, Any]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as absent:
        raise MissingDependency("safetensors", "models") from absent
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(str(error)) from None


def _pickled(path: Path) -> Mapping[str, Any]:
    with torch.serialization.safe_globals(list(HARMLESS)):
        # Mapped, so that an optimiser's state, which is twice as large as the weights, is not read.
        held = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    if not isinstance(held, Mapping):
        raise ValueError(f"a {type(held).__name__} instead of weights by name")
    return held


def unwrapped(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Without the prefix that a wrapper gave to every name.

    >>> list(unwrapped({"module.a": torch.zeros(1), "module.b": torch.zeros(1)}))
    ['a', 'b']
    """
    for prefix in WRAPPERS:
        if all(name.startswith(prefix) for name in weights):
            return unwrapped({name[len(prefix) :]: values for name, values in weights.items()})
    return dict(weights)


def fill(net: nn.Module, weights: Mapping[str, Tensor], where: str, expected: str, remedy: str) -> None:
    """Copy weights into a network: all that it has, no others, each of its shape. A scalar may come as one number in a list.

    >>> fill(nn.Linear(1, 2), nn.Linear(1, 3).state_dict(), "a.pt", "two neurons", "Take three.")
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.CrossmatchError: a.pt does not fit two neurons: 2 weights have another shape (first 'weight': (3, 1) \
instead of (2, 1)). Take three.
    """
    own = net.state_dict()
    shaped = {n: v.reshape(own[n].shape) if n in own and v.numel() == own[n].numel() == 1 else v for n, v in weights.items()}
    missing = [name for name in own if name not in shaped]
    strange = [name for name in shaped if name not in own]
    other = [name for name in own if name in shaped and shaped[name].shape != own[name].shape]
    found = [
        *((f"{len(missing)} weights are missing (first {missing[0]!r})",) if missing else ()),
        *((f"{len(strange)} are not known (first {strange[0]!r})",) if strange else ()),
        *(
            (f"{len(other)} weights have another shape (first {other[0]!r}: {_size(shaped[other[0]])} instead of "
             f"{_size(own[other[0]])})",)
            if other
            else ()
        ),
    ]  # fmt: skip
    if found:
        raise CrossmatchError(f"{where} does not fit {expected}: {', '.join(found)}. {remedy}")
    net.load_state_dict(shaped)


def _size(values: Tensor) -> tuple[int, ...]:
    return tuple(values.shape)


def library(name: str, extra: str) -> Any:
    """A library that brings torchvision with it, which fails to import where it was built for another torch."""
    try:
        return importlib.import_module(name)
    except ImportError as absent:
        raise MissingDependency(name, extra) from absent
    except RuntimeError as error:
        raise CrossmatchError(
            f"{name} cannot be imported ({(str(error).splitlines() or [''])[0]:.100}). Install the torchvision that was built for "
            f"torch {torch.__version__}."
        ) from error


def cached_file(repository: str, names: Sequence[str]) -> Path | None:
    """The first of these files of a repository that is in the cache of Hugging Face; nothing is fetched."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    try:
        found = (try_to_load_from_cache(repository, name) for name in names)
        return next((Path(path) for path in found if isinstance(path, str)), None)
    except ValueError:  # no name of a repository
        return None


@contextmanager
def offline() -> Iterator[None]:
    """Let a library build a network in silence and without the network; then as before."""
    root, silent = logging.getLogger(), logging.NullHandler()
    disabled = root.manager.disable
    root.addHandler(silent)  # without any, the first warning would install one that writes to the terminal
    logging.disable(logging.CRITICAL)
    try:
        from huggingface_hub import constants as hub
    except ImportError:
        hub = None  # type: ignore[assignment]
    before = None if hub is None else hub.HF_HUB_OFFLINE
    if hub is not None:
        hub.HF_HUB_OFFLINE = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if hub is not None:
            hub.HF_HUB_OFFLINE = before
        logging.disable(disabled)
        root.removeHandler(silent)
