"""Files with an item on each line."""

from __future__ import annotations

from pathlib import Path

from crossmatch.core.errors import CrossmatchError


def lines_of(text: str) -> list[str]:
    r"""The lines of a text, cut at line feeds alone: Unicode has more separators, and they may stand inside of a caption.

    >>> lines_of("a cat\x0basleep\r\ntwo dogs\n")
    ['a cat\x0basleep', 'two dogs']
    """
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def read_lines(path: Path) -> list[str]:
    """The lines of a file in UTF-8."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return lines_of(file.read())
    except OSError as error:
        raise CrossmatchError(f"{path} cannot be read ({error.strerror or error}). Get it again.") from None
    except UnicodeDecodeError as error:
        raise CrossmatchError(f"{path} is not UTF-8 ({error}). Get it again, or convert it to UTF-8.") from None
