"""A model in a file of the user's own: `path/to/file.py:make_model`.

What the name after the colon means is told by what it is:
- a function without arguments, or a class: it is called, and gives the model;
- a function of images and texts: it is the model, a scorer of all pairs;
- anything else: it is the model itself.

The model has one of the abilities of `crossmatch.models.abilities`, or is a callable `score(images, texts)`. If it has a
`signature` of its own, it is known by that, and what it says is kept on disk. Else it is known by the hash of its file, which
cannot show whether weights elsewhere have changed: results say it, and nothing is kept.
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

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.own_code import ACCIDENTS, MODULE, told
from crossmatch.models.abilities import abilities
from crossmatch.models.text import file_hash

OWN = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)", re.DOTALL)
# What a model may have, and how many arguments each is given.
CALLED = {
    "embed_images": 1, "embed_texts": 1, "score": 2, "score_pairs": 2, "log_likelihood": 2, "ground": 2, "fitted": 1,
    "prepare_images": 1, "embed_prepared": 1, "truncated": 1, "lengths": 1, "notes_on": 1,
    "scores": 1,
}  # fmt: skip


def from_file(path: Path, name: str, how: str) -> tuple[Any, str]:
    """What has this name in a Python file, which is run, and the file's hash. `how` says what to write where there is no such."""
    if not path.is_file():
        raise WrongWords(f"there is no file {path}. Check the path.")
    source = file_hash(path)
    module = ModuleType(f"{MODULE}{path.stem}_{source}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    beside = str(path.resolve().parent)
    if beside not in sys.path:
        sys.path.append(beside)  # a model may be in several files, and import some of them late
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)  # leaves no compiled file beside the user's
    except CrossmatchError:
        raise
    except ACCIDENTS as error:  # whatever a user's file does
        raise CrossmatchError(f"{path} cannot be run ({told(error)}). Mend it.") from error
    found = getattr(module, name, None)
    if found is None:
        close = get_close_matches(name, vars(module), n=1, cutoff=0.7)
        raise WrongWords(f"{path} has no function {name!r}. {f'Did you mean {close[0]!r}?' if close else how}")
    return found, source


def user_model(words: str) -> object:
    """The model that `FILE.py:NAME` means."""
    match = OWN.fullmatch(words)
    if match is None:
        raise WrongWords(f"{words} names no model in the file. Say which function makes it: {words.partition(':')[0]}:make_model")
    path, name = Path(match["file"]).expanduser(), match["name"]
    found, source = from_file(path, name, f"Write: def {name}(): return an object with embed_images and embed_texts, or score.")
    model = found
    if isinstance(found, type) or (callable(found) and not abilities_of(found) and not _needed(found)):
        try:
            model = found()
        except CrossmatchError:
            raise
        except ACCIDENTS as error:  # whatever a user's function does
            raise CrossmatchError(f"{words} cannot be made ({told(error)}). Mend it.") from error
    if not abilities(model):
        given = "nothing" if model is None else f"something of type {type(model).__name__}"
        raise WrongWords(
            f"{words} gives {given}, which has none of the abilities of a model. Give it embed_images and embed_texts, or "
            "score(images, texts), or log_likelihood(images, texts), or return a function of images and texts."
        )
    _require_callable(model, words)
    own = getattr(model, "signature", None)
    if not (isinstance(own, str) and own.strip()):
        _know(model, f"{path.name}:{name}|file:{source}", words)
    return model


def abilities_of(model: object) -> tuple[str, ...]:
    """What a model can do besides being called."""
    return tuple(name for name in abilities(model) if name != "score" or hasattr(model, "score"))


def _require_callable(model: object, words: str) -> None:
    """Refuse a method that is none, or that cannot be given what it will be given."""
    found = {name: getattr(model, name, None) for name in CALLED}
    named = {name: (function, CALLED[name]) for name, function in found.items() if function is not None}
    if not abilities_of(model):
        named[""] = model, CALLED["score"]  # a function of images and texts
    for name, (function, count) in named.items():
        what = f"{name} of {words}" if name else words
        if not callable(function):
            raise WrongWords(f"{what} is something of type {type(function).__name__}; a function was expected. Write a method.")
        if not _takes(function, count):
            given = "images and texts" if count > 1 else "one list"
            raise WrongWords(f"{what} cannot be called with {count} argument{'s'[: count > 1]}, which are {given}. Mend its head.")


def _takes(function: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(function).bind(*range(count))
    except ValueError:  # some builtins do not tell
        return True
    except TypeError:
        return False
    return True


def _needed(function: Any) -> int:
    """How many arguments a function must be given."""
    try:
        given = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some builtins do not tell
        return 2
    return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in given)


def _know(model: object, signature: str, words: str) -> None:
    """Give a model the signature of its file, and say that nothing may be kept under it."""
    try:
        for name, value in (("signature", signature), ("cached", False)):
            object.__setattr__(model, name, value)
    except (AttributeError, TypeError):
        raise WrongWords(f"{words} gives a model that takes no attribute. Give it a signature: a text that names it.") from None
