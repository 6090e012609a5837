"""Write the part of docs/results.md on building benchmarks, and its pictures.

CROSSMATCH_DATA=FOLDER python docs/make_build_results.py [FOLDER]     # FOLDER keeps everything, `demo/built` by default

Trains ten small models on diorama, has artificial annotators judge what five of them retrieve, and compares everything with the
truth. Models, steps and campaigns in FOLDER are reused. CROSSMATCH_DATA needs coco/ and sugarcrepe/.
"""

from __future__ import annotations

import sys
from pathlib import Path

import bounds_results
import pool_bias_results
import pool_results
import refinement_results
import trohn_results
from blocks import RESULTS, replace_block, require_block
from training_jobs import run_jobs


def main(folder: Path) -> None:
    require_block(RESULTS, "building")
    run_jobs(folder, pool_results.jobs())
    experiment = pool_results.PoolExperiment(folder)
    sections = [
        pool_results.section(experiment),
        pool_bias_results.section(experiment),
        bounds_results.section(folder),
        refinement_results.section(folder),
        trohn_results.section(folder),
    ]
    replace_block(RESULTS, "building", "\n".join([*HEAD, *sections]))


HEAD = (
    "## Tables of building benchmarks",
    "In diorama it is known for every image and caption whether they match. So each benchmark that was built can be compared with "
    "the truth.\n",
)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo/built"))
