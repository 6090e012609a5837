"""All eight tasks on COCO from embeddings in one pass, against the official package of ECCV Caption on full rankings.

    python bench/coco_suite.py [--d 512] [--repeat 3]

The embeddings are seeded, with the real ids: a caption is its image plus noise. The package needs the full ranking of every query
(an argsort in both directions) and then computes four of the tasks: coco-1k, coco-5k, cxc (i2t and t2i) and eccv-caption. Ours is
timed twice: on these four, and on all eight, which adds t2t and i2i, three correlations, and plausible matches at three zetas.
Both sides are timed from the embeddings to the numbers; ours includes the bootstrap interval of every number, which the package
does not give. Data are loaded before. Needs `$CROSSMATCH_DATA` (or ../shared/data) and, for the peer, 12 GB of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

SHARED = Path(__file__).parents[2] / "shared" / "data"
FOUR = ("coco-1k", "coco-5k", "cxc", "eccv-caption")
EIGHT = (*FOUR, "cxc-sts", "cxc-sis", "cxc-sits", "pmrp")


def embeddings(d: int):
    """Vectors whose spectrum falls off as those of trained encoders do; captions share two thirds of their image's meaning."""
    from crossmatch.benchmarks.coco import collection

    held = collection("test")
    rng = np.random.default_rng(0)
    fall = (1.0 / np.arange(1, d + 1) ** 0.5).astype(np.float32)
    images = rng.standard_normal((held.shape[0], d), dtype=np.float32) * fall
    captions = images[held.owners()] + 0.9 * rng.standard_normal((held.shape[1], d), dtype=np.float32) * fall
    return held, images, captions


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def ours(tasks: tuple[str, ...], d: int, repeat: int) -> dict[str, float]:
    from dataclasses import replace

    from crossmatch.benchmarks import benchmarks
    from crossmatch.core.scores import Embeddings
    from crossmatch.run import evaluate_all

    held, images, captions = embeddings(d)

    class Model:
        signature = "seeded"

        def scores(self, data):
            return Embeddings(held.image_ids, images, held.caption_ids, captions)

    # the package has no t2t and no i2i: on its own four tasks ours does without them too
    directions = ("i2t", "t2i") if tasks == FOUR else ("i2t", "t2i", "t2t", "i2i")
    declared = [replace(benchmarks()[name], directions=directions) if name == "cxc" else benchmarks()[name] for name in tasks]
    data = [benchmark.loaded() for benchmark in declared]
    times = []
    for _ in range(repeat + 1):  # the first compiles
        begun = time.perf_counter()
        results = evaluate_all(Model(), declared, data=data)
        times.append(time.perf_counter() - begun)
    return {"seconds": min(times[1:]), "peak_mb": peak_mb(), "numbers": sum(len(r.rows) for r in results)}


def peer(d: int) -> dict[str, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from eccv_caption import Metrics

        metrics = Metrics()
    held, images, captions = embeddings(d)
    image_ids, caption_ids = held.image_ids.astype(np.int64), held.caption_ids.astype(np.int64)
    begun = time.perf_counter()
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    captions /= np.linalg.norm(captions, axis=1, keepdims=True)
    scores = images @ captions.T
    i2t = {int(i): caption_ids[order].tolist() for i, order in zip(image_ids, np.argsort(-scores, axis=1), strict=True)}
    t2i = {int(c): image_ids[order].tolist() for c, order in zip(caption_ids, np.argsort(-scores.T, axis=1), strict=True)}
    wanted = ("coco_1k_recalls", "coco_5k_recalls", "cxc_recalls", "eccv_map_at_r", "eccv_rprecision", "eccv_r1")
    found = metrics.compute_all_metrics(i2t, t2i, target_metrics=wanted, Ks=(1, 5, 10))
    return {"seconds": time.perf_counter() - begun, "peak_mb": peak_mb(), "numbers": 2 * len(found)}


def apart(*words: str) -> dict[str, float]:
    """Each side in a process of its own, so that its peak memory is its own."""
    done = subprocess.run([sys.executable, __file__, *words], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--d", type=int, default=512)
    words.add_argument("--repeat", type=int, default=3)
    words.add_argument("--only", choices=["four", "eight", "peer"])
    given = words.parse_args()
    os.environ.setdefault("CROSSMATCH_DATA", str(SHARED))
    if given.only:
        tasks = {"four": FOUR, "eight": EIGHT}
        print(json.dumps(peer(given.d) if given.only == "peer" else ours(tasks[given.only], given.d, given.repeat)))
        return
    common = ("--d", str(given.d), "--repeat", str(given.repeat))
    mine = {which: apart("--only", which, *common) for which in ("four", "eight")}
    theirs = apart("--only", "peer", *common)
    for which, tasks in (("four", "the package's own four tasks"), ("eight", "all eight tasks")):
        line = {
            "workload": f"{tasks}, 5,000 images x 25,000 captions, d = {given.d}", "ours_s": round(mine[which]["seconds"], 3),
            "peer": "eccv_caption on full rankings (four tasks)", "peer_s": round(theirs["seconds"], 1),
            "ratio": round(theirs["seconds"] / mine[which]["seconds"], 1), "peak_mb": round(mine[which]["peak_mb"]),
            "peer_peak_mb": round(theirs["peak_mb"]), "numbers": mine[which]["numbers"], "peer_numbers": theirs["numbers"],
        }  # fmt: skip
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
