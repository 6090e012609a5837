"""Declarations in TOML that come with the package by name, a user's own in files, and words that change one value of them."""

from __future__ import annotations

import tomllib
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from crossmatch.core.declared import nearest
from crossmatch.core.errors import CrossmatchError, WrongWords

SUFFIX = ".toml"


def names_in(home: Traversable) -> list[str]:
    """The names of the packaged files, by alphabet."""
    return sorted(file.name.removesuffix(SUFFIX) for file in home.iterdir() if file.name.endswith(SUFFIX))


def called(name: str | Path) -> str:
    """How a declaration is called that has no other name.

    >>> called("mine/animals.toml"), called("eccv-hit")
    ('animals', 'eccv-hit')
    """
    return Path(str(name)).name.removesuffix(SUFFIX)


def read_declaration(name: str, home: Traversable, what: str, listed_by: str) -> dict[str, Any]:
    """The tables of the packaged file of this name, or of a user's own that ends in .toml.

    `what` it is (a recipe, a study) and which command lists them all stand in the errors.

    >>> from importlib.resources import files
    >>> read_declaration("stss", files("crossmatch.study") / "presets", "study", "crossmatch study presets")
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.WrongWords: there is no study 'stss'. Did you mean 'sts'? `crossmatch study presets` lists them all; a \
study of your own is a file that ends in .toml.
    """
    known = names_in(home)
    if name in known:
        raw = (home / f"{name}{SUFFIX}").read_bytes()
    elif name.endswith(SUFFIX):
        try:
            raw = Path(name).expanduser().read_bytes()
        except OSError as error:
            raise WrongWords(f"the {what} {name} cannot be read ({error.strerror or error}). Check the path.") from None
    else:
        raise WrongWords(
            f"there is no {what} {name!r}. {nearest(name, known)} `{listed_by}` lists them all; a {what} of your own is a file "
            "that ends in .toml."
        )
    try:
        return tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CrossmatchError(f"the {what} {name} is not TOML ({error}). Mend that line.") from None


def assigned(word: str) -> tuple[str, str, Any] | None:
    """The table, the key and the value of `TABLE.KEY=VALUE`; nothing where it is not that. A word needs no quotes.

    >>> assigned("train.epochs=3"), assigned("result.combine = majority"), assigned("epochs=3")
    (('train', 'epochs', 3), ('result', 'combine', 'majority'), None)
    """
    key, equals, text = word.partition("=")
    table, dot, name = key.strip().partition(".")
    if not (equals and dot and name):
        return None
    try:
        return table, name, tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        return table, name, text.strip()
