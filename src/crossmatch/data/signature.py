"""Signatures: lines that say how a number was computed, so that only comparable numbers are compared."""

from __future__ import annotations

from crossmatch import __version__


def protocol_signature(metric: str, task: str, part: str, **facts: object) -> str:
    """The protocol half: metric, benchmark and part, then the facts in the given order, then the version.

    >>> protocol_signature("map@r", "eccv-caption", "t2i", data="3f9c12ab", ties="expected", unjudged="irrelevant")
    'map@r|eccv-caption/t2i|data:3f9c12ab|ties:expected|unjudged:irrelevant|v...'
    """
    benchmark = f"{task}/{part}" if part else task
    return "|".join([metric, benchmark, *(f"{name}:{value}" for name, value in facts.items()), f"v{__version__}"])


def system_signature(name: str, facts: str | None) -> str:
    """The system half: the model's own facts, or its name.

    >>> system_signature("random", None)
    'system|random'
    """
    return f"system|{facts or name}"
