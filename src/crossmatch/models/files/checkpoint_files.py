"""Reading checkpoint files without running code in them, and loading weights that must fit a network exactly."""

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

from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.io.user_code_errors import describe_error
from crossmatch.models.files.model_folder import describe_mismatch

try:
    import torch
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependencyError("PyTorch", "models") from absent

STATE_DICT_KEYS = ("state_dict", "model_state_dict", "model")  # of the weights in a training checkpoint, beside the optimizer
WRAPPER_PREFIXES = ("module.", "_orig_mod.")  # of parallel and of compiled networks
# Types in old training checkpoints that cannot run anything when they are unpickled.
SAFE_TYPES: tuple[Any, ...] = (
    argparse.Namespace,
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("f4", "f8", "i4", "i8", "?")),
    (np._core.multiarray.scalar, "numpy._core.multiarray.scalar"),  # type: ignore[attr-defined]
    (np._core.multiarray.scalar, "numpy.core.multiarray.scalar"),  # type: ignore[attr-defined]
)


@dataclass(frozen=True)
class Checkpoint:
    """The weights of a file, and what else it contains (the training's arguments, its name, …)."""

    weights: dict[str, Tensor] = field(repr=False)
    metadata: Mapping[str, Any] = field(default_factory=dict, repr=False)
    is_torchscript: bool = False


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a state dict, a training checkpoint, a TorchScript archive or a safetensors file."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}. Check the path of the checkpoint, or download it first.")
    is_torchscript = _is_torchscript(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old formats, which the user cannot change
            if is_torchscript:
                content: Mapping[str, Any] = torch.jit.load(str(path), map_location="cpu").state_dict()  # type: ignore[no-untyped-call]
            else:
                content = _read_safetensors(path) if path.suffix == ".safetensors" else _read_pickle(path)
    except pickle.UnpicklingError as error:
        if "Unsupported operand" in str(error) or "nsupported" not in str(error):  # not a pickle at all
            raise _damaged_error(path, error) from None
        raise CrossmatchError(
            f"{path} contains Python objects beside its weights, which could run code, so it is not read. If you trust it, save "
            f"the weights alone: python -c \"import torch; torch.save(torch.load('{path.name}', weights_only=False)['state_dict'], "
            "'weights.pt')\""
        ) from None
    # Only torch, safetensors and the unpickler run above, and damaged bytes can fail anywhere in them.
    except (RuntimeError, EOFError, OSError, KeyError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise _damaged_error(path, error) from None
    state_dict = next((content[key] for key in STATE_DICT_KEYS if isinstance(content.get(key), Mapping)), content)
    weights = {str(name): values for name, values in state_dict.items() if isinstance(values, Tensor)}
    if not weights or len(weights) < len(state_dict):
        keys = ", ".join(STATE_DICT_KEYS)
        raise CrossmatchError(f"{path} has no weights by name, neither at its top nor under {keys}. Save net.state_dict() alone.")
    metadata = {str(name): value for name, value in content.items()} if state_dict is not content else {}
    return Checkpoint(strip_wrapper_prefixes(weights), metadata, is_torchscript)


def _damaged_error(path: Path, error: Exception) -> CrossmatchError:
    return CrossmatchError(
        f"{path} cannot be read as a checkpoint ({describe_error(error)}). It is damaged or incomplete: download it again."
    )


def _is_torchscript(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _read_safetensors(path: Path) -> Mapping[str, Any]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as absent:
        raise MissingDependencyError("safetensors", "models") from absent
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(str(error)) from None


def _read_pickle(path: Path) -> Mapping[str, Any]:
    with torch.serialization.safe_globals(list(SAFE_TYPES)):
        # Memory-mapped, because the optimizer's state, twice as large as the weights, need not be read.
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    if not isinstance(content, Mapping):
        raise ValueError(f"a {type(content).__name__} instead of weights by name")
    return content


def strip_wrapper_prefixes(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Remove the prefix that a wrapper put before every name.

    >>> list(strip_wrapper_prefixes({"module.a": torch.zeros(1), "module.b": torch.zeros(1)}))
    ['a', 'b']
    """
    for prefix in WRAPPER_PREFIXES:
        if all(name.startswith(prefix) for name in weights):
            return strip_wrapper_prefixes({name[len(prefix) :]: values for name, values in weights.items()})
    return dict(weights)


def load_weights(net: nn.Module, weights: Mapping[str, Tensor], source: str, network: str, remedy: str) -> None:
    """Copy weights into a network; names and shapes must be exactly the network's.

    A scalar may be stored as a list of one number. `source` and `network` say in the error what the weights and the network are.

    >>> load_weights(nn.Linear(1, 2), nn.Linear(1, 3).state_dict(), "a.pt", "two neurons", "Take three.")
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.CrossmatchError: a.pt does not fit two neurons: 2 weights have another shape (first 'weight': (3, 1) \
instead of (2, 1)). Take three.
    """
    expected = net.state_dict()
    shaped = {
        name: values.reshape(expected[name].shape) if name in expected and values.numel() == expected[name].numel() == 1 else values
        for name, values in weights.items()
    }
    if (mismatch := describe_mismatch(net, shaped)) is not None:
        raise CrossmatchError(f"{source} does not fit {network}: {mismatch}. {remedy}")
    net.load_state_dict(shaped)


def require_finite(net: nn.Module, source: str) -> None:
    """Raise an error if weights are NaN or infinite.

    >>> broken = nn.Linear(1, 1)
    >>> _ = nn.init.constant_(broken.weight, float("nan"))
    >>> require_finite(broken, "model.pt")
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.CrossmatchError: model.pt: 1 of the 1 numbers in 'weight' are NaN or infinite. The file is damaged, or \
the training diverged: download it again, or use an earlier checkpoint.
    """
    for name, values in net.state_dict().items():
        if values.is_floating_point():
            bad = int((~torch.isfinite(values)).sum())
            if bad:
                raise CrossmatchError(
                    f"{source}: {bad:,} of the {values.numel():,} numbers in {name!r} are NaN or infinite. The file is damaged, or "
                    "the training diverged: download it again, or use an earlier checkpoint."
                )


def import_library(name: str, extra: str) -> Any:
    """Import a library that needs torchvision; explain a torchvision that was built for another torch."""
    try:
        return importlib.import_module(name)
    except ImportError as absent:
        raise MissingDependencyError(name, extra) from absent
    except RuntimeError as error:
        raise CrossmatchError(
            f"{name} cannot be imported ({describe_error(error)}). Install the torchvision that was built for torch "
            f"{torch.__version__}."
        ) from error


def find_cached_file(repository: str, names: Sequence[str]) -> Path | None:
    """Return the first of these files of a repository that is in the Hugging Face cache; nothing is downloaded."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    try:
        paths = (try_to_load_from_cache(repository, name) for name in names)
        return next((Path(path) for path in paths if isinstance(path, str)), None)
    except ValueError:  # not the name of a repository
        return None


@contextmanager
def offline() -> Iterator[None]:
    """Let a library build a network without log messages and without access to the internet."""
    root, silent = logging.getLogger(), logging.NullHandler()
    disabled = root.manager.disable
    root.addHandler(silent)  # without any handler, the first warning would install one that writes to the terminal
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
