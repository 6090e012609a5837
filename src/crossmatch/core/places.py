"""Where files live, and what this machine has."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder() -> Path:
    """`$CROSSMATCH_DATA`, or the user's cache folder."""
    named = os.environ.get("CROSSMATCH_DATA")
    if named:
        return Path(named).expanduser()
    return cache_folder()


def cache_folder() -> Path:
    """`crossmatch` in the user's cache folder: what may be removed at any time, and is made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crossmatch"


def features_folder() -> Path:
    """Where trainings keep what frozen encoders make of pictures and texts."""
    return cache_folder() / "features"


def cores() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
