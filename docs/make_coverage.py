"""Write docs/coverage.csv and the tables of docs/coverage.md and docs/decisions/0023-intervals.md by simulation.

python docs/make_coverage.py                      # 2,000 runs for every cell; about ten minutes on one free core
python docs/make_coverage.py RSUM candidates      # these rows only; the others are read from docs/coverage.csv
python docs/make_coverage.py tables               # write the tables anew from docs/coverage.csv
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
CELLS = HERE / "coverage.csv"
PAGE, DECISION = HERE / "coverage.md", HERE / "decisions" / "0023-intervals.md"
LOWEST, HIGHEST, ENOUGH_IMAGES = 93.0, 97.5, 30
MOST_REJECTIONS = 6.5


def read_cells() -> list[Cell]:
    with CELLS.open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    return [
        Cell(name, float(t), int(n), int(runs), float(covered), float(rejected)) for name, t, n, runs, covered, rejected in rows
    ]


def simulate(names: Sequence[str]) -> list[Cell]:
    cells: list[Cell] = []
    earlier = read_cells() if names else []
    for case in CASES:
        if names and case.name not in names:
            cells += [cell for cell in earlier if cell.case == case.name]
            continue
        for truth in case.truths:
            skill, exact = case.calibrate(truth)
            cells += [case.cell(truth, skill, exact, images, RUNS) for images in IMAGES]
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
    low, high = [c for c in counted if c.coverage < LOWEST], [c for c in counted if c.coverage > HIGHEST]
    below = "; ".join(f"{c.case}, truth {c.truth:g}, {c.images} images: {c.coverage:.1f}" for c in low) or "none"
    above = []
    for case in CASES:
        outside = [c for c in high if c.case == case.name]
        if outside:
            truths = ", ".join(f"{t:g}" for t in dict.fromkeys(c.truth for c in outside))
            above.append(f"{case.name}: {len(outside)}, at truth {truths}, up to {max(c.coverage for c in outside):.1f}")
    rejecting = [c for c in cells if c.rejections > MOST_REJECTIONS]
    listed = "; ".join(f"{c.case}, truth {c.truth:g}, {c.images} images: {c.rejections:.1f}" for c in rejecting) or "none"
    within = len(counted) - len(low) - len(high)
    return (
        f"Of {len(counted)} combinations with {ENOUGH_IMAGES} images or more, {within} are within {LOWEST:g} to {HIGHEST:g} %.\n\n"
        f"- Below: {below}.\n- Above: {'; '.join(above)}.\n- More than {MOST_REJECTIONS:g} % false positives: {listed}."
    )


def main(names: Sequence[str]) -> None:
    cells = simulate(names)
    with CELLS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["metric", "truth", "images", "runs", "coverage", "false_positives"])
        writer.writerows([c.case, f"{c.truth:g}", c.images, c.runs, f"{c.coverage:.2f}", f"{c.rejections:.2f}"] for c in cells)
    error = 100 * np.sqrt(0.95 * 0.05 / RUNS)
    replace_block(
        PAGE, "coverage", f"{markdown(_summary(cells, 'coverage', ''))}\n\n{RUNS:,} runs per cell: standard error {error:.1f}."
    )
    replace_block(PAGE, "exceptions", exceptions(cells))
    replace_block(PAGE, "false positives", markdown(_summary(cells, "rejections", "")))
    if not names or "candidates" in names:
        replace_block(DECISION, "candidates", f"{markdown(candidate_table(RUNS))}\n\n{RUNS:,} runs with {CANDIDATE_IMAGES} images.")


if __name__ == "__main__":
    choices = {*(case.name for case in CASES), "candidates", "tables"}
    if unknown := set(sys.argv[1:]) - choices:
        raise SystemExit(f"Unknown rows: {', '.join(sorted(unknown))}. Choose from {', '.join(sorted(choices))}.")
    main(sys.argv[1:])
