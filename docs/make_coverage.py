"""Write docs/coverage.csv and the tables of docs/coverage.md and docs/decisions/0023-intervals.md by simulation.

python docs/make_coverage.py [RUNS]        # 2,000 runs per cell by default; about a quarter of an hour on one core
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence

import numpy as np

from blocks import HERE, markdown, replace_block
from coverage_simulation import CASES, Cell
from crossmatch.report.tables import Table
from interval_candidates import CANDIDATE_IMAGES, candidate_table

IMAGES = (10, 30, 50, 100, 300)
RUNS = 2000
PAGE, DECISION = HERE / "coverage.md", HERE / "decisions" / "0023-intervals.md"
LOWEST, HIGHEST, ENOUGH_IMAGES = 93.0, 97.5, 30
MOST_REJECTIONS = 6.5


def simulate(runs: int) -> list[Cell]:
    cells = []
    for case in CASES:
        for truth in case.truths:
            skill, exact = case.calibrate(truth)
            cells += [case.cell(truth, skill, exact, images, runs) for images in IMAGES]
            print(
                f"{case.name} {truth:g}: " + ", ".join(f"{c.coverage:.1f}" for c in cells[-len(IMAGES) :]),
                file=sys.stderr,
                flush=True,
            )
    return cells


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.1f} to {max(values):.1f}"


def _summary(cells: Sequence[Cell], field: str, title: str) -> Table:
    rows = []
    for case in CASES:
        by_images = [[getattr(c, field) for c in cells if c.case == case.name and c.images == n] for n in IMAGES]
        rows.append((case.name, *map(_range, by_images)))
    return Table(title, (("", *(f"{n} images" for n in IMAGES)),), tuple(rows), 1)


def exceptions(cells: Sequence[Cell]) -> str:
    """The cells that leave the goal, by case."""
    counted = [c for c in cells if c.images >= ENOUGH_IMAGES]
    low, high = ([c for c in counted if is_outside(c)] for is_outside in (_is_low, _is_high))
    lines = [
        f"Of {len(counted)} combinations with {ENOUGH_IMAGES} images or more, {len(counted) - len(low) - len(high)} are within "
        f"{LOWEST:g} to {HIGHEST:g} %, {len(low)} are below and {len(high)} above.",
    ]
    for case in CASES:
        outside = [c for c in (*low, *high) if c.case == case.name]
        if outside:
            cases = ", ".join(f"truth {c.truth:g} at {c.images} images {c.coverage:.1f}" for c in outside)
            lines.append(f"- {case.name}: {cases}")
    rejecting = [c for c in cells if c.rejections > MOST_REJECTIONS]
    listed = "; ".join(f"{c.case}, truth {c.truth:g}, {c.images} images: {c.rejections:.1f}" for c in rejecting) or "none"
    return "\n".join(
        [lines[0], "", *lines[1:], "", f"Combinations with more than {MOST_REJECTIONS:g} % false positives: {listed}."]
    )


def _is_low(cell: Cell) -> bool:
    return cell.coverage < LOWEST


def _is_high(cell: Cell) -> bool:
    return cell.coverage > HIGHEST


def main(runs: int) -> None:
    cells = simulate(runs)
    with (HERE / "coverage.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["metric", "truth", "images", "runs", "coverage", "false_positives"])
        writer.writerows([c.case, f"{c.truth:g}", c.images, c.runs, f"{c.coverage:.2f}", f"{c.rejections:.2f}"] for c in cells)
    error = 100 * np.sqrt(0.95 * 0.05 / runs)
    replace_block(
        PAGE, "coverage", f"{markdown(_summary(cells, 'coverage', ''))}\n\n{runs:,} runs per cell: standard error {error:.1f}."
    )
    replace_block(PAGE, "exceptions", exceptions(cells))
    replace_block(PAGE, "false positives", markdown(_summary(cells, "rejections", "")))
    replace_block(DECISION, "candidates", f"{markdown(candidate_table(runs))}\n\n{runs:,} runs with {CANDIDATE_IMAGES} images.")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)
