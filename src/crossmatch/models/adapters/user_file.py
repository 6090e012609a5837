"""A user's own model in a Python file: `path/to/file.py:make_model`.

The name after the colon can be
- a function without arguments, or a class: it is called, and returns the model;
- a function of images and texts: it is the model, and scores all pairs;
- anything else: it is the model itself.

The model has one of the abilities of `crossmatch.models.abilities`, or is a callable `score(images, texts)`. If it has a
`signature`, its results are cached under that. If not, the hash of its file identifies it in results; because that does not show
changes of weights elsewhere, nothing is cached.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.user_code_errors import USER_CODE_ERRORS, USER_MODULE_PREFIX, describe_error
from crossmatch.models.abilities import list_abilities
from crossmatch.models.baselines.text_encoders import hash_file

FILE_AND_NAME = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)", re.DOTALL)
# Methods that a model may have, and how many arguments each is called with.
ARGUMENT_COUNTS = {
    "embed_images": 1, "embed_texts": 1, "score": 2, "score_pairs": 2, "log_likelihood": 2, "ground": 2, "fitted": 1,
    "prepare_images": 1, "embed_prepared": 1, "truncated": 1, "lengths": 1, "notes_on": 1,
    "scores": 1,
}  # fmt: skip


def load_object(path: Path, name: str, remedy: str) -> tuple[Any, str]:
    """Run a Python file, and return the object of this name and the file's hash.

    `remedy` is the last sentence of the error if there is no such object.
    """
    if not path.is_file():
        raise UsageError(f"there is no file {path}. Check the path.")
    source = hash_file(path)
    module = ModuleType(f"{USER_MODULE_PREFIX}{path.stem}_{source}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # a model may be in several files, and import some of them late
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)  # leaves no compiled file in the user's folder
    except CrossmatchError:
        raise
    except USER_CODE_ERRORS as error:  # a user's file may raise anything
        raise CrossmatchError(f"{path} cannot be run ({describe_error(error)}). Correct it.") from error
    loaded = getattr(module, name, None)
    if loaded is None:
        close = get_close_matches(name, vars(module), n=1, cutoff=0.7)
        raise UsageError(f"{path} has no function {name!r}. {f'Did you mean {close[0]!r}?' if close else remedy}")
    return loaded, source


def user_model(argument: str) -> object:
    """Make the model of `FILE.py:NAME`."""
    match = FILE_AND_NAME.fullmatch(argument)
    if match is None:
        raise UsageError(
            f"{argument} names no model in the file. Name the function that makes it: {argument.partition(':')[0]}:make_model"
        )
    path, name = Path(match["file"]).expanduser(), match["name"]
    loaded, source = load_object(path, name, f"Write: def {name}(): return an object with embed_images and embed_texts, or score.")
    model = loaded
    if isinstance(loaded, type) or (callable(loaded) and not named_abilities(loaded) and not _count_required_arguments(loaded)):
        try:
            model = loaded()
        except CrossmatchError:
            raise
        except USER_CODE_ERRORS as error:  # a user's function may raise anything
            raise CrossmatchError(f"{argument} raised an error ({describe_error(error)}). Correct it.") from error
    if not list_abilities(model):
        kind = "nothing" if model is None else f"an object of type {type(model).__name__}"
        raise UsageError(
            f"{argument} returns {kind}, which has none of the abilities of a model. Give it embed_images and embed_texts, or "
            "score(images, texts), or log_likelihood(images, texts), or return a function of images and texts."
        )
    _require_callable(model, argument)
    signature = getattr(model, "signature", None)
    if not (isinstance(signature, str) and signature.strip()):
        _set_file_signature(model, f"{path.name}:{name}|file:{source}", argument)
    return model


def named_abilities(model: object) -> tuple[str, ...]:
    """Return the abilities that a model has by its methods, not by being callable."""
    return tuple(name for name in list_abilities(model) if name != "score" or hasattr(model, "score"))


def _require_callable(model: object, argument: str) -> None:
    """Raise an error if a method is not callable, or not with the arguments that it is called with."""
    methods = {name: getattr(model, name, None) for name in ARGUMENT_COUNTS}
    functions = {name: (function, ARGUMENT_COUNTS[name]) for name, function in methods.items() if function is not None}
    if not named_abilities(model):
        functions[""] = model, ARGUMENT_COUNTS["score"]  # a function of images and texts
    for name, (function, count) in functions.items():
        label = f"{name} of {argument}" if name else argument
        if not callable(function):
            raise UsageError(f"{label} must be a method, but is of type {type(function).__name__}.")
        if not _accepts(function, count):
            arguments = "images and texts" if count > 1 else "one list"
            raise UsageError(
                f"{label} cannot be called with {count} argument{'s'[: count > 1]} ({arguments}). Change its parameters."
            )


def _accepts(function: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(function).bind(*range(count))
    except ValueError:  # some builtins have no signature
        return True
    except TypeError:
        return False
    return True


def _count_required_arguments(function: Any) -> int:
    """Return how many arguments a function requires."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some builtins have no signature
        return 2
    return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


def _set_file_signature(model: object, signature: str, argument: str) -> None:
    """Give a model the signature of its file, and mark its results as not to be cached."""
    try:
        for name, value in (("signature", signature), ("cached", False)):
            object.__setattr__(model, name, value)
    except (AttributeError, TypeError):
        raise UsageError(
            f"{argument} returns a model to which no attribute can be assigned. Give it a signature of its own."
        ) from None
