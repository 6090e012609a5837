"""Speed of ranking at the size of COCO 5K, in both directions, against the bare matrix product and common loops.

    python bench/ranking.py [--peers] [--repeat 5]

prints one json line per case. The limit is twice the time of the bare float32 product in the same run: `limit_ratio` must be at
most 1. `product_ratio` is our time divided by that of the product.
"""

from __future__ import annotations

import contextlib
import resource
import threading

import numpy as np

from crossmatch.data.rank_counts import CandidateLists
from crossmatch.data.scores import Embeddings
from crossmatch.metrics.metric_table import metric
from crossmatch.ranking.ranks import Ranks
from crossmatch.ranking.sweep import count_ranks
from timing import best_of, make_parser, report

IMAGES, CAPTIONS, DIMENSIONS = 5_000, 25_000, 512
METRICS = ("hit@1", "hit@5", "hit@10", "median-rank", "map@r", "r-precision")


def world(rng: np.random.Generator, signal: float):
    """Random vectors; captions are shifted towards their image by `signal`. About 18 and 8.5 positives per query.

    With signal, further positives are drawn from the first hundred of a noisier ranking, as in pooled benchmarks such as ECCV
    Caption. Without, they are drawn at random, which is the worst case for counting.
    """
    images = rng.standard_normal((IMAGES, DIMENSIONS), dtype=np.float32)
    captions = rng.standard_normal((CAPTIONS, DIMENSIONS), dtype=np.float32)
    captions += signal * np.repeat(images, CAPTIONS // IMAGES, axis=0)
    i2t = positives(rng, images, captions, 18.0, lambda q: q * 5 + np.arange(5), signal)
    t2i = positives(rng, captions, images, 8.5, lambda q: np.array([q // 5]), signal)
    return images, captions, i2t, t2i


def positives(rng: np.random.Generator, queries, items, mean: float, own, signal: float) -> CandidateLists:
    rows = []
    for begin in range(0, len(queries), 1000):
        scores = (
            queries[begin : begin + 1000] @ items.T
            if signal
            else np.zeros((len(queries[begin : begin + 1000]), 1), dtype=np.float32)
        )
        noise = 10 * rng.standard_normal(scores.shape, dtype=np.float32) if signal else 0
        pool = np.argpartition(-(scores + noise), 99)[:, :100] if signal else None
        for n in range(len(scores)):
            count = rng.poisson(mean - len(own(begin + n)))
            further = pool[n, rng.integers(0, 100, count)] if signal else rng.integers(0, len(items), count)
            rows.append(np.unique(np.append(further, own(begin + n))))
    start = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
    item = np.concatenate(rows).astype(np.int64)
    return CandidateLists(np.arange(len(queries)), start, item, np.ones(len(item)))


def ours(images, captions, i2t, t2i, compiled: bool = True) -> dict[str, float]:
    scores = Embeddings(np.arange(IMAGES), images, np.arange(CAPTIONS), captions)
    counts_by_direction = count_ranks(scores, {"i2t": i2t, "t2i": t2i}, compiled=compiled)
    return {
        f"{direction}/{name}": metric(name).summarise(ranks)
        for direction, counts in counts_by_direction.items()
        for ranks in (Ranks.from_counts(counts),)
        for name in METRICS
    }


def argsort_loop(images, captions, i2t, t2i) -> dict[str, float]:
    """Sort the whole gallery for every query, as most evaluation scripts do."""
    images, captions = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (images, captions))
    hits = {}
    for direction, queries, items, listed in (("i2t", images, captions, i2t), ("t2i", captions, images, t2i)):
        values = []
        for n in range(len(queries)):
            order = np.argsort(-(items @ queries[n]))
            relevant = np.isin(order, listed.item[listed.start[n] : listed.start[n + 1]])
            first = relevant.argmax() + 1
            r = int(relevant.sum())
            precision = relevant[:r].cumsum() / np.arange(1, r + 1)
            values.append((first <= 1, first <= 5, first <= 10, first, (precision * relevant[:r]).sum() / r, relevant[:r].mean()))
        columns = np.array(values, dtype=float).T
        hits |= {f"{direction}/{name}": float((np.median if name == "median-rank" else np.mean)(c))
                 for name, c in zip(METRICS, columns, strict=True)}  # fmt: skip
    return hits


def faiss_top_100(images, captions) -> None:
    import faiss

    for queries, items in ((images, captions), (captions, images)):
        index = faiss.IndexFlatIP(DIMENSIONS)
        index.add(items)
        index.search(queries, 100)


class Peak:
    """The largest memory of this process above that at the start, sampled every 5 ms."""

    def __enter__(self) -> Peak:
        self.base, self.top, self._done = resident(), 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            self.top = max(self.top, resident() - self.base)

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def resident() -> float:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize() / 2**20


def main() -> None:
    parser = make_parser(__doc__, repeat=5)
    parser.add_argument("--peers", action="store_true", help="also time an argsort loop and, if installed, FAISS")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    for case, signal in (("pooled-positives", 0.12), ("random-positives", 0.0)):
        images, captions, i2t, t2i = world(rng, signal)
        scores = np.zeros((IMAGES, CAPTIONS), dtype=np.float32)  # memory is touched before the product is timed
        ours(images, captions, i2t, t2i)  # compile, and touch the memory
        with Peak() as peak:
            values = ours(images, captions, i2t, t2i)
        ours_s, product_s = best_of(
            options.repeat, lambda: ours(images, captions, i2t, t2i), lambda: np.matmul(images, captions.T, out=scores)
        )
        workload, peak_of_ours = f"ranking/{case}", round(peak.top)
        limits = {"product_ratio": ours_s / product_s, "limit_ratio": ours_s / (2 * product_s)}
        report(workload, ours_s, "float32 product alone", product_s, peak_mb=peak_of_ours, **limits)
        if options.peers:
            expected = argsort_loop(images, captions, i2t, t2i)
            assert all(abs(values[key] - expected[key]) < 1e-4 for key in expected), (values, expected)
            peers = {
                "argsort loop": lambda: argsort_loop(images, captions, i2t, t2i),
                "faiss top-100": lambda: faiss_top_100(images, captions),
                "our float64 path": lambda: ours(images, captions, i2t, t2i, compiled=False),
            }
            for peer, function in peers.items():
                with contextlib.suppress(ImportError):  # FAISS may not be installed
                    report(workload, ours_s, peer, best_of(1, function)[0], peak_mb=peak_of_ours)


if __name__ == "__main__":
    main()
