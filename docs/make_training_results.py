"""Write the part of docs/results.md on captioners, hard negatives and detectors, and its pictures.

python docs/make_training_results.py [FOLDER]   # FOLDER keeps the trained models and their results, `demo/trained` by default

Trains on diorama, two models at a time, and evaluates on the test split. Models, results and captions in FOLDER are reused; caption
scores, altered queries and detectors are computed again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import captioner_results as captioners
import hard_negative_results as clips
from blocks import RESULTS, replace_block, require_block
from training_jobs import Job, run_jobs


def jobs() -> list[Job]:
    """All models to train."""
    tasks = (captioners.BISON,)
    names = captioners.CAPTIONERS.values()
    return [
        *(Job(name, name, tasks) for name in (*names, captioners.GROUNDER, captioners.MATCHER)),
        *(Job(f"{name}-scst", f"{name}-scst", tasks, begin=name) for name in names),
        *clips.jobs(),
    ]


def main(folder: Path) -> None:
    require_block(RESULTS, "training")
    results = run_jobs(folder, jobs())
    sections = [captioners.section(folder, results), clips.section(folder, results)]
    replace_block(RESULTS, "training", "\n".join([*HEAD, *sections]))


HEAD = (
    "## Tables of captioners, hard negatives and detectors",
    "All models were trained on diorama's train split (`crossmatch train RECIPE --data diorama`), the epoch was chosen on the val "
    "split, and the model was evaluated on the test split.\n",
)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo/trained"))
