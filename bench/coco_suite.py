"""All eight tasks on COCO from embeddings in one pass, against the official package of ECCV Caption on full rankings.

    python bench/coco_suite.py [--d 512] [--repeat 3]

The embeddings are seeded, with the real ids: a caption is its image plus noise. The package needs the full ranking of every query
(an argsort in both directions) and then computes four of the tasks: coco-1k, coco-5k, cxc (i2t and t2i) and eccv-caption. Ours is
timed twice: on these four, and on all eight, which adds t2t and i2i, three correlations, and plausible matches at three zetas.
The time is from the embeddings to the numbers, without loading data; ours includes the interval of every number.
Needs `$CROSSMATCH_DATA` (or ../shared/data) and, for the peer, 12 GB of memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings

import numpy as np

from timing import DATA, make_parser, peak_mb, report

FOUR = ("coco-1k", "coco-5k", "cxc", "eccv-caption")
EIGHT = (*FOUR, "cxc-sts", "cxc-sis", "cxc-sits", "pmrp")


def embeddings(d: int):
    """Vectors with a falling spectrum, like those of trained encoders; a caption is its image plus noise."""
    from crossmatch.benchmarks.coco import coco_collection

    collection = coco_collection("test")
    rng = np.random.default_rng(0)
    spectrum = (1.0 / np.arange(1, d + 1) ** 0.5).astype(np.float32)
    images = rng.standard_normal((collection.shape[0], d), dtype=np.float32) * spectrum
    captions = (
        images[collection.caption_owners()] + 0.9 * rng.standard_normal((collection.shape[1], d), dtype=np.float32) * spectrum
    )
    return collection, images, captions


def ours(tasks: tuple[str, ...], d: int, repeat: int) -> dict[str, float]:
    from dataclasses import replace

    from crossmatch.benchmarks import list_benchmarks
    from crossmatch.data.scores import Embeddings
    from crossmatch.evaluation.evaluate import evaluate_all
    from crossmatch.evaluation.plan import load_task

    collection, images, captions = embeddings(d)

    class Model:
        signature = "seeded"

        def scores(self, data):
            return Embeddings(collection.image_ids, images, collection.caption_ids, captions)

    # the package has neither t2t nor i2i, so its four tasks are measured without them
    directions = ("i2t", "t2i") if tasks == FOUR else ("i2t", "t2i", "t2t", "i2i")
    declared = [
        replace(list_benchmarks()[name], directions=directions) if name == "cxc" else list_benchmarks()[name] for name in tasks
    ]
    loaded = [load_task(benchmark) for benchmark in declared]
    times = []
    for _ in range(repeat + 1):  # the first compiles
        start = time.perf_counter()
        results = evaluate_all(Model(), loaded)
        times.append(time.perf_counter() - start)
    return {"seconds": min(times[1:]), "peak_mb": peak_mb(), "numbers": sum(len(r.rows) for r in results)}


def peer(d: int) -> dict[str, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from eccv_caption import Metrics

        metrics = Metrics()
    collection, images, captions = embeddings(d)
    image_ids, caption_ids = collection.image_ids.astype(np.int64), collection.caption_ids.astype(np.int64)
    start = time.perf_counter()
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    captions /= np.linalg.norm(captions, axis=1, keepdims=True)
    scores = images @ captions.T
    i2t = {int(i): caption_ids[order].tolist() for i, order in zip(image_ids, np.argsort(-scores, axis=1), strict=True)}
    t2i = {int(c): image_ids[order].tolist() for c, order in zip(caption_ids, np.argsort(-scores.T, axis=1), strict=True)}
    names = ("coco_1k_recalls", "coco_5k_recalls", "cxc_recalls", "eccv_map_at_r", "eccv_rprecision", "eccv_r1")
    values = metrics.compute_all_metrics(i2t, t2i, target_metrics=names, Ks=(1, 5, 10))
    return {"seconds": time.perf_counter() - start, "peak_mb": peak_mb(), "numbers": 2 * len(values)}


def run_separately(*arguments: str) -> dict[str, float]:
    """Run one side in its own process, to measure its peak memory."""
    process = subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True, text=True)
    return json.loads(process.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = make_parser(__doc__, d=512, repeat=3)
    parser.add_argument("--only", choices=["four", "eight", "peer"])
    options = parser.parse_args()
    os.environ.setdefault("CROSSMATCH_DATA", str(DATA))
    if options.only:
        tasks = {"four": FOUR, "eight": EIGHT}
        print(json.dumps(peer(options.d) if options.only == "peer" else ours(tasks[options.only], options.d, options.repeat)))
        return
    common = ("--d", str(options.d), "--repeat", str(options.repeat))
    ours_by_tasks = {which: run_separately("--only", which, *common) for which in ("four", "eight")}
    theirs = run_separately("--only", "peer", *common)
    for which, tasks in (("four", "the package's own four tasks"), ("eight", "all eight tasks")):
        report(
            f"{tasks}, 5,000 images x 25,000 captions, d = {options.d}", ours_by_tasks[which]["seconds"],
            "eccv_caption on full rankings (four tasks)", theirs["seconds"], peak_mb=ours_by_tasks[which]["peak_mb"],
            peer_peak_mb=theirs["peak_mb"], numbers=ours_by_tasks[which]["numbers"], peer_numbers=theirs["numbers"],
        )  # fmt: skip


if __name__ == "__main__":
    main()
