"""Values that a user writes down, held against the dataclass that declares them: names, types, and limits.

A limit stands beside its field: `field(default=128, metadata={"least": 2})`, with `least`, `above`, `most` and `below`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin, get_type_hints

from crossmatch.core.errors import WrongWords


def checked(table: Mapping[str, Any], declared: type, where: str, without: Iterable[str] = ()) -> dict[str, Any]:
    """The values of a table as the fields of a dataclass want them; a word that it has not, or a value of another type, is refused.

    >>> from dataclasses import dataclass, field
    >>> @dataclass
    ... class Settings:
    ...     batch: int = field(default=128, metadata={"least": 2})
    >>> checked({"batch": 64.0}, Settings, "mine.toml: [train]")
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.WrongWords: mine.toml: [train] has batch = 64.0; a whole number was expected.
    """
    types, known = get_type_hints(declared), {f.name: f for f in fields(declared) if f.name not in set(without)}
    out = {}
    for key, value in table.items():
        if key not in known:
            raise WrongWords(f"{where} has no key {key!r}. {nearest(key, known, most=len(known))}")
        out[key] = typed(value, types[key], f"{where} has {key} = {shown(value)}")
        _require_range(out[key], known[key].metadata, f"{where} has {key} = {shown(value)}")
    return out


def nearest(word: str, known: Iterable[str], most: int = 8) -> str:
    """Which of the known words may have been meant; if none is near, the first of them, so many at most.

    >>> nearest("margn", ["margin", "negatives"])
    "Did you mean 'margin'?"
    """
    some = list(known)
    close = get_close_matches(word.lower(), some, n=1, cutoff=0.6)  # at one half, nonsense is near to seed
    few = ", ".join(some[:most]) + ", …" * (len(some) > most)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {few or 'none'}."


WORDED = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def typed(value: Any, wanted: Any, where: str) -> Any:
    """The value, if it is of this type; a whole number is a number."""
    if get_origin(wanted) is Literal:
        choices = get_args(wanted)
        if value not in choices:
            hint = nearest(value, choices) if isinstance(value, str) else ""
            raise WrongWords(f"{where}; one of {', '.join(map(str, choices))} was expected. {hint}".rstrip())
        return value
    if get_origin(wanted) is tuple:
        inner = get_args(wanted)[0]
        if not isinstance(value, list) or not all(isinstance(each, inner) for each in value):
            raise WrongWords(f"{where}; a list was expected, of {WORDED.get(inner, 'value').removeprefix('a ')}s.")
        return tuple(value)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if wanted in WORDED and type(value) is not wanted:
        raise WrongWords(f"{where}; {WORDED[wanted]} was expected.")
    return value


def _require_range(value: Any, limits: Mapping[str, Any], where: str) -> None:
    if not isinstance(value, int | float):
        return
    above, least, most = limits.get("above", -math.inf), limits.get("least", -math.inf), limits.get("most", math.inf)
    below = limits.get("below", math.inf)
    if not (above < value < below and least <= value <= most and math.isfinite(value)):
        said = [
            f"above {above}" * ("above" in limits),
            f"below {below}" * ("below" in limits),
            f"at least {least}" * ("least" in limits),
            f"at most {most}" * ("most" in limits),
        ]
        raise WrongWords(f"{where}; it must be {' and '.join(filter(None, said)) or 'finite'}.")


def shown(value: Any) -> str:
    return json.dumps(value, default=str)
