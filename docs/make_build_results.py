"""Write the part of docs/results.md on building benchmarks, and its pictures.

CROSSMATCH_DATA=FOLDER python docs/make_build_results.py [FOLDER]     # FOLDER keeps everything, `demo/built` by default

Trains ten small models on the embedded world, has artificial people judge what five of them retrieve, and compares all of it with
the truth. Models, steps and campaigns that are in FOLDER are not made again. CROSSMATCH_DATA needs coco/ and sugarcrepe/.
"""

# ruff: noqa: E501 - prose

from __future__ import annotations

import sys
from pathlib import Path

import built_bias
import built_bounds
import built_negatives
import built_pool
import built_trohn
from blocks import replace_block, require_block
from trained import all_made

PAGE = Path(__file__).parent / "results.md"


def main(folder: Path) -> None:
    require_block(PAGE, "building")
    all_made(folder, built_pool.jobs())
    setting = built_pool.Setting(folder)
    parts = [
        "## Building benchmarks, with an answer key",
        "On the embedded world it is known for every image and caption whether they match, so that every construction can be compared with what it should have been.\n",
        built_pool.section(setting),
        built_bias.section(setting),
        built_bounds.section(folder),
        built_negatives.section(folder),
        built_trohn.section(folder),
    ]
    replace_block(PAGE, "building", "\n".join(parts))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo/built"))
