"""Items that cannot be used, and were left out because that was asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Skipped:
    """An image, a caption or a trial that was left out, and why."""

    kind: str
    id: str
    why: str
