"""Where files live."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder() -> Path:
    """`$CROSSMATCH_DATA`, or the user's cache folder."""
    named = os.environ.get("CROSSMATCH_DATA")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crossmatch"
