"""Declarations in TOML: packaged ones by name, a user's own by path, and assignments that change one value."""

from __future__ import annotations

import tomllib
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.settings import suggest_name

SUFFIX = ".toml"


def packaged_names(folder: Traversable) -> list[str]:
    """The names of the packaged declarations, sorted."""
    return sorted(file.name.removesuffix(SUFFIX) for file in folder.iterdir() if file.name.endswith(SUFFIX))


def declaration_name(name: str | Path) -> str:
    """The default name of a declaration: its file name without suffix.

    >>> declaration_name("mine/animals.toml"), declaration_name("eccv-hit")
    ('animals', 'eccv-hit')
    """
    return Path(str(name)).name.removesuffix(SUFFIX)


def read_declaration(name: str, folder: Traversable, kind: str, list_command: str) -> dict[str, Any]:
    """Read a packaged declaration by its name, or a user's file that ends in .toml.

    `folder` has the packaged ones. `kind` and `list_command` are for error messages.

    >>> from importlib.resources import files
    >>> read_declaration("stss", files("crossmatch.study") / "presets", "study", "crossmatch list studies")
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.UsageError: there is no study 'stss'. Did you mean 'sts'? `crossmatch list studies` lists them all; a \
study of your own is a file that ends in .toml.
    """
    names = packaged_names(folder)
    if name in names:
        raw = (folder / f"{name}{SUFFIX}").read_bytes()
    elif name.endswith(SUFFIX):
        try:
            raw = Path(name).expanduser().read_bytes()
        except OSError as error:
            raise UsageError(f"the {kind} {name} cannot be read ({error.strerror or error}). Check the path.") from None
    else:
        raise UsageError(
            f"there is no {kind} {name!r}. {suggest_name(name, names)} `{list_command}` lists them all; a {kind} of your own is a "
            "file that ends in .toml."
        )
    try:
        return tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CrossmatchError(f"the {kind} {name} is not TOML ({error}). Correct this line.") from None


def parse_assignment(text: str) -> tuple[str, str, Any] | None:
    """Parse `TABLE.KEY=VALUE` into table, key and value; None if it has another form. Words need no quotes.

    >>> parse_assignment("train.epochs=3"), parse_assignment("result.combine = majority"), parse_assignment("epochs=3")
    (('train', 'epochs', 3), ('result', 'combine', 'majority'), None)
    """
    target, equals, value = text.partition("=")
    table, dot, key = target.strip().partition(".")
    if not (equals and dot and key):
        return None
    try:
        return table, key, tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        return table, key, value.strip()
