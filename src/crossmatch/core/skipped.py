"""Items that cannot be used: an evaluation may leave them out, if that is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from crossmatch.core.errors import CrossmatchError

SKIP = ", or leave out all that cannot be used: --skip-bad"


@dataclass(frozen=True)
class Skipped:
    """An image, a caption or a trial that was left out, and why."""

    kind: str
    id: str
    why: str


class Unusable(CrossmatchError):  # noqa: N818 - the item is unusable, nothing else has failed
    """An item that cannot be used: `why` is the reason, which ends with what can be done about it besides leaving it out."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"{why.removesuffix('.')}{SKIP}" if why.endswith(".") else why)
