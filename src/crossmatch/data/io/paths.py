"""Folders for data, caches and features, and the number of available cores."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder() -> Path:
    """The folder of data sets: `$CROSSMATCH_DATA`, or else the cache folder."""
    folder = os.environ.get("CROSSMATCH_DATA")
    return Path(folder).expanduser() if folder else cache_folder()


def cache_folder() -> Path:
    """`crossmatch` in the user's cache folder. Its content may be removed at any time, and is made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crossmatch"


def features_folder() -> Path:
    """The folder in which training caches the features of frozen encoders."""
    return cache_folder() / "features"


def available_cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
