"""METEOR against the METEOR 1.5 program as pycocoevalcap calls it: 5,000 candidates with five references each.

Takes the real captions of `$CROSSMATCH_DATA` (or ../shared/data). Every run is a process of its own, its start included, as the
program's is: `cold` has no cache (neither the hashes of the paraphrases nor the compiled search), `warm` has both. Before any time
is taken the scores are compared.

    python bench/meteor.py [--images 5000] [--repeat 3]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from captions import DATA, real_captions
from crossmatch.captions.tokenise import tokenise
from timing import best_of

OURS = """
import json, resource, sys
if {blocked}:
    sys.modules["numba"] = None
from crossmatch.captions.corpus import Corpus
from crossmatch.captions.meteor import meteor
own, refs = json.load(open({tokens!r}))
scores = meteor(Corpus.of_tokens(own, refs))[0]
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    if not shutil.which("java"):
        sys.exit("bench/meteor.py compares with a Java program. Install Java (default-jre-headless).")
    if not (DATA / "coco/karpathy_test_captions.tsv").is_file():
        sys.exit(f"bench/meteor.py needs the real captions, which are not in {DATA}. Set CROSSMATCH_DATA.")
    candidates, references = (part[: options.images] for part in real_captions())
    with tempfile.TemporaryDirectory() as folder:
        tokens = str(Path(folder) / "tokens.json")
        Path(tokens).write_text(json.dumps([[*map(tokenise, candidates)], [[*map(tokenise, texts)] for texts in references]]))

        def run(code: str, caches: str, blocked: bool = False) -> list:
            places = {"XDG_CACHE_HOME": caches, "NUMBA_CACHE_DIR": str(Path(caches) / "numba")}
            words = [sys.executable, "-c", code.format(tokens=tokens, blocked=blocked)]
            done = subprocess.run(words, env=os.environ | places, capture_output=True, check=True, text=True)
            return json.loads(done.stdout)

        def cold(blocked: bool = False) -> list:
            with tempfile.TemporaryDirectory() as empty:
                return run(OURS, empty, blocked)

        value, values, peak = run(OURS, folder)
        whole, each = run(THEIRS, folder)
        np.testing.assert_allclose(values, each, rtol=0, atol=1e-9)
        np.testing.assert_allclose(value, whole, rtol=0, atol=1e-9)
        *times, theirs = best_of(
            options.repeat,
            lambda: run(OURS, folder),
            cold,
            lambda: run(OURS, folder, blocked=True),
            lambda: cold(blocked=True),
            lambda: run(THEIRS, folder),
        )
    for name, ours in zip(("warm", "cold", "warm, without numba", "cold, without numba"), times, strict=True):
        line = {"workload": f"captions/meteor/{len(candidates)}x5 {name}", "ours_s": round(ours, 4), "peer": "METEOR 1.5 (Java)",
                "peer_s": round(theirs, 4), "ratio": round(theirs / ours, 2), "peak_mb": round(peak),
                "limit_ratio": round(ours / theirs, 3)}  # fmt: skip
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
