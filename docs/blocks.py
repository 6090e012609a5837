"""Pages that several scripts write: each replaces the block between its own two marks and leaves the rest alone."""

from __future__ import annotations

from pathlib import Path


def require_block(path: Path, name: str) -> tuple[str, str]:
    """What stands before and after the text between `<!-- begin name -->` and `<!-- end name -->`, the marks included."""
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->\n"
    page = path.read_text(encoding="utf-8")
    if begin not in page or end not in page:
        raise SystemExit(f"{path} has no block {name}. Add the lines {begin.strip()} and {end.strip()} where it belongs.")
    before, _, rest = page.partition(begin)
    return before + begin, end + rest.partition(end)[2]


def replace_block(path: Path, name: str, text: str) -> None:
    """Put `text` between `<!-- begin name -->` and `<!-- end name -->`."""
    before, after = require_block(path, name)
    path.write_text(before + text.rstrip() + "\n" + after, encoding="utf-8")
