"""One line that says how a number came about, so that two numbers can be told to be comparable."""

from __future__ import annotations

from crossmatch import __version__


def protocol(metric: str, task: str, part: str, **facts: object) -> str:
    """The protocol line: metric, benchmark and part, then the facts in the order given, then the version.

    >>> protocol("map@r", "eccv-caption", "t2i", data="3f9c12ab", ties="expected", unjudged="irrelevant")
    'map@r|eccv-caption/t2i|data:3f9c12ab|ties:expected|unjudged:irrelevant|v...'
    """
    place = f"{task}/{part}" if part else task
    return "|".join([metric, place, *(f"{name}:{value}" for name, value in facts.items()), f"v{__version__}"])


def system(name: str, facts: str | None) -> str:
    """The system line: the model's own signature, or its name.

    >>> system("random", None)
    'system|random'
    """
    return f"system|{facts or name}"
