"""Pages that several scripts write: each replaces the block between its own two marks and leaves the rest alone."""

from __future__ import annotations

from pathlib import Path


def replace_block(path: Path, name: str, text: str) -> None:
    """Put `text` between `<!-- begin name -->` and `<!-- end name -->`."""
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->\n"
    page = path.read_text(encoding="utf-8")
    if begin not in page or end not in page:
        raise SystemExit(f"{path} has no block {name}. Add the lines {begin.strip()} and {end.strip()} where it belongs.")
    before, _, rest = page.partition(begin)
    path.write_text(before + begin + text.rstrip() + "\n" + end + rest.partition(end)[2], encoding="utf-8")
