"""Write the part of docs/results.md on captioners, hard negatives and detectors, and its pictures.

python docs/make_training_results.py [FOLDER]   # FOLDER keeps the trained models and their results, `demo/trained` by default

Trains on the embedded world, two at a time, and evaluates on the test split. Models, their results and captions that are in FOLDER
are not made again; how captions are judged, altered queries and detectors are.
"""

from __future__ import annotations

import sys
from pathlib import Path

import trained_captioners as captioners
import trained_clips as clips
from blocks import replace_block, require_block
from trained import Job, all_made

PAGE = Path(__file__).parent / "results.md"


def jobs() -> list[Job]:
    """Everything that is trained."""
    names = captioners.CAPTIONERS.values()
    told = [Job(name, name, ("diorama/bison",)) for name in names]
    told += [Job(f"{name}-scst", f"{name}-scst", ("diorama/bison",), begin=name) for name in names]
    matched = [Job(name, name, ("diorama/bison",)) for name in (captioners.GROUNDER, captioners.MATCHER)]
    return [*told, *matched, *clips.jobs()]


def main(folder: Path) -> None:
    require_block(PAGE, "training")
    found = all_made(folder, jobs())
    head = [
        "## Captioners, hard negatives and detectors on the embedded world",
        "Trained on the train split, an epoch chosen by the validation split, evaluated on the test split "
        "(`crossmatch train RECIPE --data diorama`).\n",
    ]
    replace_block(PAGE, "training", "\n".join([*head, captioners.section(folder, found), clips.section(folder, found)]))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo/trained"))
