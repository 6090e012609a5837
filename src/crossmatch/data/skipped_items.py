"""Items that cannot be used, and that an evaluation may skip (`--skip-bad`)."""

from __future__ import annotations

from dataclasses import dataclass

from crossmatch.data.errors import CrossmatchError


@dataclass(frozen=True)
class SkippedItem:
    """An image, caption or trial that was skipped, and the reason."""

    kind: str
    id: str
    reason: str


class UnusableItemError(CrossmatchError):
    """An item cannot be used. `reason` ends with how to fix it; the message adds that `--skip-bad` skips such items."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"{reason.removesuffix('.')}, or skip all items that cannot be used: --skip-bad" if reason.endswith(".") else reason
        )
