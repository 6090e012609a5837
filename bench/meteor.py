"""METEOR against the METEOR 1.5 program as pycocoevalcap calls it: 5,000 candidates with five references each.

Uses the real captions in `$CROSSMATCH_DATA` (or ../shared/data). Every run is a separate process, like the Java program, and its
start is timed too. `cold` has no cache, `warm` has one (hashes of the paraphrases, compiled search). The scores are compared first.

    python bench/meteor.py [--images 5000] [--repeat 3]
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from captions import real_captions
from crossmatch.captions.ptb_tokenizer import tokenise
from timing import DATA, best_of, make_parser, report

OURS = """
import json, resource, sys
if {blocked}:
    sys.modules["numba"] = None
from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.captions.meteor.score import meteor
own, refs = json.load(open({tokens!r}))
scores = meteor(CaptionCorpus.from_tokens(own, refs))[0]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([scores.value, scores.values.tolist(), peak]))
"""
THEIRS = """
import json
from pycocoevalcap.meteor.meteor import Meteor
own, refs = json.load(open({tokens!r}))
gts = {{n: [" ".join(t) for t in texts] for n, texts in enumerate(refs)}}
print(json.dumps(Meteor().compute_score(gts, {{n: [" ".join(t)] for n, t in enumerate(own)}})))
"""


def main() -> None:
    options = make_parser(__doc__, images=5_000, repeat=3).parse_args()
    if not shutil.which("java"):
        sys.exit("bench/meteor.py compares with a Java program. Install Java (default-jre-headless).")
    if not (DATA / "coco/karpathy_test_captions.tsv").is_file():
        sys.exit(f"bench/meteor.py needs the real captions, which are not in {DATA}. Set CROSSMATCH_DATA.")
    candidates, references = (part[: options.images] for part in real_captions())
    with tempfile.TemporaryDirectory() as folder:
        tokens = str(Path(folder) / "tokens.json")
        Path(tokens).write_text(json.dumps([[*map(tokenise, candidates)], [[*map(tokenise, texts)] for texts in references]]))

        def run(code: str, caches: str, blocked: bool = False) -> list:
            caches_of = {"XDG_CACHE_HOME": caches, "NUMBA_CACHE_DIR": str(Path(caches) / "numba")}
            command = [sys.executable, "-c", code.format(tokens=tokens, blocked=blocked)]
            process = subprocess.run(command, env=os.environ | caches_of, capture_output=True, check=True, text=True)
            return json.loads(process.stdout)

        def cold(blocked: bool = False) -> list:
            with tempfile.TemporaryDirectory() as empty:
                return run(OURS, empty, blocked)

        value, values, peak = run(OURS, folder)
        their_value, their_values = run(THEIRS, folder)
        np.testing.assert_allclose(values, their_values, rtol=0, atol=1e-9)
        np.testing.assert_allclose(value, their_value, rtol=0, atol=1e-9)
        *times, theirs = best_of(
            options.repeat,
            lambda: run(OURS, folder),
            cold,
            lambda: run(OURS, folder, blocked=True),
            lambda: cold(blocked=True),
            lambda: run(THEIRS, folder),
        )
    for name, ours in zip(("warm", "cold", "warm, without numba", "cold, without numba"), times, strict=True):
        report(f"captions/meteor/{len(candidates)}x5 {name}", ours, "METEOR 1.5 (Java)", theirs, peak_mb=round(peak),
               limit_ratio=ours / theirs)  # fmt: skip


if __name__ == "__main__":
    main()
