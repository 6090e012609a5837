"""Check settings from TOML files and the command line against the dataclass that declares them.

Limits are declared with a field: `field(default=128, metadata={"least": 2})`, with `least`, `above`, `most` and `below`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin, get_type_hints

from crossmatch.data.errors import UsageError

TYPE_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def validate_settings(table: Mapping[str, Any], declared: type, where: str, without: Iterable[str] = ()) -> dict[str, Any]:
    """Check the names, types and limits of settings.

    `declared` is a dataclass; its fields in `without` are not settings. `where` is the place of the settings, for error messages.

    Returns the values, converted to the types of the fields. An unknown name or a wrong value is a `UsageError`.

    >>> from dataclasses import dataclass, field
    >>> @dataclass
    ... class Settings:
    ...     batch: int = field(default=128, metadata={"least": 2})
    >>> validate_settings({"batch": 64.0}, Settings, "mine.toml: [train]")
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.UsageError: mine.toml: [train] has batch = 64.0; expected a whole number.
    """
    types = get_type_hints(declared)
    known_fields = {f.name: f for f in fields(declared) if f.name not in set(without)}
    settings = {}
    for key, value in table.items():
        if key not in known_fields:
            raise UsageError(f"{where} has no key {key!r}. {suggest_name(key, known_fields, limit=len(known_fields))}")
        setting = f"{where} has {key} = {format_value(value)}"
        settings[key] = check_type(value, types[key], setting)
        _require_range(settings[key], known_fields[key].metadata, setting)
    return settings


def suggest_name(word: str, names: Iterable[str], limit: int = 8) -> str:
    """Suggest the name most similar to a word; if none is similar, list the first `limit` names.

    >>> suggest_name("margn", ["margin", "negatives"])
    "Did you mean 'margin'?"
    """
    all_names = list(names)
    close = get_close_matches(word.lower(), all_names, n=1, cutoff=0.6)  # at 0.5 unrelated words match short names
    first_names = ", ".join(all_names[:limit]) + ", …" * (len(all_names) > limit)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {first_names or 'none'}."


def check_type(value: Any, expected: Any, setting: str) -> Any:
    """Return the value if it has the expected type. An int is accepted as a float, a list as a tuple.

    `expected` is a type, `Literal[...]` or `tuple[T, ...]`; `setting` is its place, name and value, for error messages.
    """
    if get_origin(expected) is Literal:
        choices = get_args(expected)
        if value not in choices:
            raise UsageError(f"{setting}; expected one of {', '.join(map(str, choices))}.")
        return value
    if get_origin(expected) is tuple:
        item_type = get_args(expected)[0]
        if not isinstance(value, list) or not all(isinstance(item, item_type) for item in value):
            raise UsageError(f"{setting}; expected a list of {TYPE_NAMES.get(item_type, 'value').removeprefix('a ')}s.")
        return tuple(value)
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if expected in TYPE_NAMES and type(value) is not expected:
        raise UsageError(f"{setting}; expected {TYPE_NAMES[expected]}.")
    return value


def _require_range(value: Any, limits: Mapping[str, Any], setting: str) -> None:
    if not isinstance(value, int | float):
        return
    above, least, most = limits.get("above", -math.inf), limits.get("least", -math.inf), limits.get("most", math.inf)
    below = limits.get("below", math.inf)
    if not (above < value < below and least <= value <= most and math.isfinite(value)):
        conditions = [
            f"above {above}" * ("above" in limits),
            f"below {below}" * ("below" in limits),
            f"at least {least}" * ("least" in limits),
            f"at most {most}" * ("most" in limits),
        ]
        raise UsageError(f"{setting}; it must be {' and '.join(filter(None, conditions)) or 'finite'}.")


def format_value(value: Any) -> str:
    """Format a value as in TOML."""
    return json.dumps(value, default=str)
