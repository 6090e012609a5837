"""Mutation check of the core: every small fault in the table below must make a test of the main tier fail.

    python tests/mutants/run_mutants.py [--only TEXT] [--write]

Each mutant replaces one piece of text in a copy of `src`. Then the tests named beside it run against the copy until one fails.
`--write` puts the table into docs/contributing/testing.md. It takes about ten minutes and is not part of `make test`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "contributing" / "testing.md"


@dataclass(frozen=True)
class Mutant:
    """A fault: `old` occurs exactly once in the file."""

    file: str  # below src/crossmatch
    old: str
    new: str
    tests: str  # below tests/, separated by spaces

    @property
    def folder(self) -> str:
        return self.file.split("/")[0] if not self.file.startswith("study") else "/".join(self.file.split("/")[:2])


RANKING, LAWS = "unit/ranking", "laws unit/ranking"
TRIALS = "unit/metrics/test_forced_choice_chance.py unit/metrics/test_new_metric.py unit/data golden/test_bivlc_tables.py"
PROPORTIONS = "unit/metrics/test_proportions.py unit/report/test_trials_report.py"
BOOTSTRAP = "unit/metrics/test_cluster_bootstrap.py unit/report/test_report.py unit/evaluation"
MEDIANS = "unit/metrics/test_median_rank.py"
EVALUATION = "unit/evaluation"
CLAIMS = "unit/study/assignment unit/study/test_submit.py unit/study/test_rules.py"
MUTANTS = (
    # ranking
    Mutant("ranking/counts_without_numba.py", "len(values) - right, right - left", "len(values) - left, right - left", RANKING),
    Mutant("ranking/counts_without_numba.py", "line[query] = -np.inf", "pass", RANKING),
    Mutant("ranking/counts_without_numba.py", "!= lists.folds[0][query]] = -np.inf", "!= lists.folds[0][query]] = 0", RANKING),
    Mutant("ranking/counts_without_numba.py", "line >= listed[0] - margin", "line > listed[0] + margin", RANKING),
    Mutant("ranking/counts_without_numba.py", "(2 * vectors.shape[1] + 16) * 2.0**-53", "0.0", RANKING),
    Mutant("ranking/ranks.py", "np.flatnonzero(lists.grade >= positive)", "np.flatnonzero(lists.grade > positive)", LAWS),
    Mutant("ranking/ranks.py", 'gain_sign = 1 if ties == "pessimistic" else -1', "gain_sign = -1", LAWS),
    Mutant(
        "ranking/ranks.py", 'if ties == "pessimistic" else 0\n        above', 'if ties == "optimistic" else 0\n        above', LAWS
    ),
    Mutant("ranking/ranks.py", "(k - self.above) / self.tie_size, 0.0", "(k - self.above - 1) / self.tie_size, 0.0", LAWS),
    Mutant(
        "ranking/ranks.py",
        "(self.tie_size[self.group_start] > self.group_positives)",
        "(self.tie_size[self.group_start] > 1)",
        LAWS,
    ),
    Mutant(
        "ranking/ranks.py", "return self.group_start - self.start[self.query[self.group_start]]", "return self.group_start", LAWS
    ),
    Mutant("ranking/ranks.py", "np.nonzero(grades > positive)", "np.nonzero(grades >= positive)", LAWS),
    # metrics of retrieval
    Mutant("metrics/retrieval.py", "np.clip(r - a, 0, s)", "np.clip(r - a - 1, 0, s)", LAWS),
    Mutant("metrics/retrieval.py", "m * ((b + 1) / (a + 1)), summed)", "m * (b / (a + 1)), summed)", LAWS),
    Mutant("metrics/retrieval.py", "slope = (p - 1) / np.maximum(s - 1, 1)", "slope = p / np.maximum(s, 1)", LAWS),
    Mutant("metrics/retrieval.py", "ranks.probability_within(ranks.positive_counts)", "ranks.probability_within(1)", LAWS),
    Mutant(
        "metrics/retrieval.py",
        "ranks.sum_by_query(ranks.probability_within(k)) / k",
        "ranks.sum_by_query(ranks.probability_within(k)) / np.minimum(k, ranks.gallery_size)",
        LAWS,
    ),
    Mutant("metrics/retrieval.py", "inside, past = (m > 0) & (m <= n), m > n", "inside, past = (m > 0) & (m < n), m > n", LAWS),
    Mutant("metrics/retrieval.py", "np.asarray(a + (n + p + 1) / (p + 1)", "np.asarray(a + (n + p) / (p + 1)", LAWS),
    Mutant("metrics/retrieval.py", "1 / np.log2(np.arange(2, k + 2))", "1 / np.log2(np.arange(1, k + 1) + 2)", LAWS),
    Mutant("metrics/retrieval.py", "grades / size * gained", "grades * gained", LAWS),
    Mutant("metrics/retrieval.py", "probability = later * p / (n + p - j + 1)", "probability = later * p / (n + p - j + 2)", LAWS),
    # metrics of trials, intervals, tests
    Mutant("metrics/forced_choice.py", "1.0 / prod(captions + images - r", "1.0 / prod(captions + images + 1 - r", TRIALS),
    Mutant(
        "metrics/forced_choice.py",
        "return _all_right(trials, captions=slice(1, 2))",
        "return _all_right(trials, captions=slice(0, 1))",
        TRIALS,
    ),
    Mutant("metrics/forced_choice.py", "range(pairs, 2 * pairs)[captions]", "range(pairs)[captions]", TRIALS),
    Mutant("metrics/proportions.py", "z2 / (4 * n * n)", "z2 / (4 * n)", PROPORTIONS),
    Mutant(
        "metrics/proportions.py",
        "prior_clusters = PRIOR_CLUSTERS * (1 - 2 * float(p.mean())) ** 2",
        "prior_clusters = 0.0",
        PROPORTIONS,
    ),
    Mutant("metrics/proportions.py", "(cluster_sizes**2).sum() / cluster_sizes.sum()", "cluster_sizes.mean()", PROPORTIONS),
    Mutant(
        "metrics/paired_tests.py",
        "special.bdtr(min(only_first, only_second), n, 0.5)",
        "special.bdtr(max(only_first, only_second) - 1, n, 0.5)",
        PROPORTIONS,
    ),
    Mutant("metrics/paired_tests.py", "gap = second - first\n", "gap = first - second\n", BOOTSTRAP),
    Mutant("metrics/paired_tests.py", "((gap <= 0).sum() + 1) / (n + 1)", "(gap <= 0).sum() / n", BOOTSTRAP),
    Mutant("metrics/cluster_bootstrap.py", "[(1 - level) / 2, (1 + level) / 2]", "[1 - level, level]", BOOTSTRAP),
    Mutant("metrics/paired_tests.py", "(totals**2).sum() + (value / count) ** 2", "(influence**2).sum()", BOOTSTRAP),
    Mutant("metrics/median_rank.py", "share(r) > 0.5 + margin", "share(r) > 0.5 - margin", MEDIANS),
    # evaluation
    Mutant("evaluation/plan.py", "if value != benchmark.options.get(key)", "if value == benchmark.options.get(key)", EVALUATION),
    Mutant("evaluation/plan.py", "groups.setdefault(n if key is None else key, [])", "groups.setdefault(key, [])", EVALUATION),
    Mutant("evaluation/data_shapes.py", 'name if len(sets) > 1 else ""', "name", EVALUATION),
    Mutant("evaluation/data_shapes.py", "if part.direction not in directions]", "if part.direction in directions]", EVALUATION),
    Mutant(
        "evaluation/data_shapes.py",
        "order = canonical_order(collection)",
        "order = tuple(np.arange(n) for n in collection.shape)",
        EVALUATION,
    ),
    Mutant(
        "evaluation/data_shapes.py",
        "1 - j.positive_count / complete.positive_count",
        "j.positive_count / complete.positive_count",
        EVALUATION,
    ),
    Mutant("evaluation/summarise.py", "if fewest >= FEW_CLUSTERS:", "if fewest <= FEW_CLUSTERS:", EVALUATION),
    Mutant("evaluation/summarise.py", "high=scale * mean.high,", "high=mean.high,", EVALUATION),
    Mutant("evaluation/summarise.py", "value=m.scale * measurement.value,", "value=measurement.value,", EVALUATION),
    # assignment of HITs
    Mutant(
        "study/assignment/claims.py",
        "now + 60 * design.recipe.lease_minutes\n    taken",
        "now + design.recipe.lease_minutes\n    taken",
        CLAIMS,
    ),
    Mutant(
        "study/assignment/claims.py",
        "not claimed_hit.is_quiz and claimed_hit.lease_end is not None",
        "not claimed_hit.is_quiz",
        CLAIMS,
    ),
    Mutant("study/assignment/claims.py", 'state = "review" if has_wrong_gold else "done"', 'state = "done"', CLAIMS),
    Mutant(
        "study/assignment/claims.py", ">= claimed_hit.design.recipe.quiz_share", "> claimed_hit.design.recipe.quiz_share", CLAIMS
    ),
    Mutant(
        "study/assignment/claims.py",
        "earlier = next((row.id for row in unfinished if row.hit == taken.hit), None)",
        "earlier = None",
        CLAIMS,
    ),
    Mutant("study/assignment/claims.py", "where=draft.c.number < number", "where=draft.c.number > number", CLAIMS),
    Mutant("study/assignment/claims.py", "claimed_at + MAX_LEASES * lease", "claimed_at + 1e9 * lease", CLAIMS),
    Mutant("study/assignment/claims.py", "if session_number is not None and session_number != current:", "if False:", CLAIMS),
    Mutant("study/assignment/review.py", 'state = "review" if verdict == UNDO and row.doubt else "done"', 'state = "done"', CLAIMS),
    Mutant("study/assignment/review.py", "slot.c.claim == row.id, slot.c.state.in_", "slot.c.state.in_", CLAIMS),
    Mutant("study/database/queries.py", "shared.c.item == claimed.c.item, shared.c.hit != HIT_ID", "shared.c.hit == -1", CLAIMS),
    Mutant("study/database/queries.py", "and_(is_open, is_eligible, ~took_part_in_excluded)", "and_(is_open, is_eligible)", CLAIMS),
    Mutant("study/database/queries.py", "column.lease < NOW", "column.lease > NOW", CLAIMS),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="run the mutants whose file contains this text")
    parser.add_argument("--write", action="store_true", help="write the table into docs/contributing/testing.md")
    options = parser.parse_args()
    caught: dict[str, list[bool]] = defaultdict(list)
    for mutant in MUTANTS:
        if options.only in mutant.file:
            is_caught = run_mutant(mutant)
            caught[mutant.folder].append(is_caught)
            print(
                "caught  " if is_caught else "SURVIVED", mutant.file, repr(mutant.old[:60]), "->", repr(mutant.new[:40]), flush=True
            )
    total = sum(map(len, caught.values()))
    print(f"{sum(map(sum, caught.values()))} of {total} mutants are caught")
    if options.write:
        write_table(caught)
    return 0 if all(all(values) for values in caught.values()) else 1


def run_mutant(mutant: Mutant) -> bool:
    """Whether one of the mutant's tests fails. A mutant that does not apply is an error."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("*.nbi", "*.nbc"))
        path = source / "crossmatch" / mutant.file
        text = path.read_text(encoding="utf-8")
        if text.count(mutant.old) != 1:
            raise SystemExit(f"{mutant.file}: {mutant.old!r} occurs {text.count(mutant.old)} times; change the table.")
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        tests = [str(ROOT / "tests" / name) for name in mutant.tests.split()]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if run.returncode not in (0, 1):
            raise SystemExit(
                f"pytest stopped with code {run.returncode} on {mutant.file}:\n{run.stdout[-2000:]}{run.stderr[-2000:]}"
            )
        return run.returncode == 1


def write_table(caught: dict[str, list[bool]]) -> None:
    rows = [f"| `{folder}` | {len(values)} | {sum(values)} |" for folder, values in sorted(caught.items())]
    table = "\n".join(["| folder | mutants | caught |", "| :-- | --: | --: |", *rows])
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition("<!-- begin mutants -->\n")
    PAGE.write_text(
        f"{head}<!-- begin mutants -->\n{table}\n<!-- end mutants -->{rest.partition('<!-- end mutants -->')[2]}", encoding="utf-8"
    )


if __name__ == "__main__":
    sys.exit(main())
