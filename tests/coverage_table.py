"""Coverage of `src` by folder, before and after a change, as a table in docs/contributing/testing.md.

    make coverage                                                   # all tiers; writes .coverage.json
    python tests/coverage_table.py BEFORE.json .coverage.json       # two files of `coverage json`

A percentage is that of lines and branches together, as coverage.py counts them.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "contributing" / "testing.md"
COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def folder_percentages(report: Path) -> dict[str, float]:
    """Percentage of lines and branches that are covered, for each folder of the package and for `all`."""
    totals: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    for name, file in json.loads(report.read_text(encoding="utf-8"))["files"].items():
        parts = name.replace("\\", "/").partition("crossmatch/")[2].split("/")
        for folder in ("all", parts[0] if len(parts) > 1 else "(top)"):
            for count in COUNTS:
                totals[folder][count] += file["summary"][count]
    return {
        folder: 100 * (c["covered_lines"] + c["covered_branches"]) / (c["num_statements"] + c["num_branches"])
        for folder, c in totals.items()
    }


def main(before: Path, after: Path) -> None:
    old, new = folder_percentages(before), folder_percentages(after)
    rows = [f"| `{f}` | {old.get(f, 0):.1f} | {new[f]:.1f} | {new[f] - old.get(f, 0):+.1f} |" for f in sorted(new)]
    table = "\n".join(["| folder | before | after | difference |", "| :-- | --: | --: | --: |", *rows])
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition("<!-- begin coverage -->\n")
    rest = rest.partition("<!-- end coverage -->")[2]
    PAGE.write_text(f"{head}<!-- begin coverage -->\n{table}\n<!-- end coverage -->{rest}", encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
