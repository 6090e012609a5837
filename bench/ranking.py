"""Ranking at the shape of COCO 5K, both directions, against the bare matrix product and the loops in common use.

    python bench/ranking.py [--peers] [--repeat 5]

prints one json line per case. The limit is twice the time of the bare float32 product in the same run: `limit_ratio` is at most 1
where it is kept, and `product_ratio` is our time over that of the product.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import threading

import numpy as np

from crossmatch.core.judgements import Listed
from crossmatch.core.ranks import Ranks
from crossmatch.core.scores import Embeddings
from crossmatch.core.sweep import stand
from crossmatch.metrics.table import metric
from timing import best_of

IMAGES, CAPTIONS, DIMENSIONS = 5_000, 25_000, 512
METRICS = ("hit@1", "hit@5", "hit@10", "median-rank", "map@r", "r-precision")


def world(rng: np.random.Generator, signal: float):
    """Random vectors; captions lean towards their image by `signal`. About 18 and 8.5 positives per query.

    With signal, the positives beyond the original links are what a second, noisier look ranks among the first hundred: that
    is how pooled benchmarks such as ECCV Caption find theirs. Without, they are drawn at random, the worst case for counting.
    """
    images = rng.standard_normal((IMAGES, DIMENSIONS), dtype=np.float32)
    captions = rng.standard_normal((CAPTIONS, DIMENSIONS), dtype=np.float32)
    captions += signal * np.repeat(images, CAPTIONS // IMAGES, axis=0)
    i2t = positives(rng, images, captions, 18.0, lambda q: q * 5 + np.arange(5), signal)
    t2i = positives(rng, captions, images, 8.5, lambda q: np.array([q // 5]), signal)
    return images, captions, i2t, t2i


def positives(rng: np.random.Generator, queries, items, mean: float, own, signal: float) -> Listed:
    rows = []
    for at in range(0, len(queries), 1000):
        seen = queries[at : at + 1000] @ items.T if signal else np.zeros((len(queries[at : at + 1000]), 1), dtype=np.float32)
        pool = np.argpartition(-(seen + 10 * rng.standard_normal(seen.shape, dtype=np.float32)), 99)[:, :100] if signal else None
        for n in range(len(seen)):
            more = rng.poisson(mean - len(own(at + n)))
            found = pool[n, rng.integers(0, 100, more)] if signal else rng.integers(0, len(items), more)
            rows.append(np.unique(np.append(found, own(at + n))))
    start = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
    item = np.concatenate(rows).astype(np.int64)
    return Listed(np.arange(len(queries)), start, item, np.ones(len(item)))


def ours(images, captions, i2t, t2i, compiled: bool = True) -> dict[str, float]:
    said = Embeddings(np.arange(IMAGES), images, np.arange(CAPTIONS), captions)
    found = stand(said, {"i2t": i2t, "t2i": t2i}, compiled=compiled)
    return {
        f"{direction}/{name}": metric(name).summarise(ranks)
        for direction, standing in found.items()
        for ranks in (Ranks.from_standing(standing),)
        for name in METRICS
    }


def product(images, captions, out) -> None:
    np.matmul(images, captions.T, out=out)


def argsort_loop(images, captions, i2t, t2i) -> dict[str, float]:
    """What most evaluation scripts do: sort the whole gallery for every query."""
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
    """The most memory of this process above what it held at the start, sampled every 5 ms."""

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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", action="store_true", help="also time an argsort loop and FAISS where it is installed")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    for case, signal in (("pooled-positives", 0.12), ("random-positives", 0.0)):
        images, captions, i2t, t2i = world(rng, signal)
        scores = np.zeros((IMAGES, CAPTIONS), dtype=np.float32)  # warm memory: the product pays for nothing but itself
        ours(images, captions, i2t, t2i)  # compile, and touch the memory
        with Peak() as peak:
            found = ours(images, captions, i2t, t2i)
        ours_s, product_s = best_of(
            options.repeat, lambda: ours(images, captions, i2t, t2i), lambda: product(images, captions, scores)
        )
        line = {"workload": f"ranking/{case}", "ours_s": round(ours_s, 3), "peak_mb": round(peak.top)}
        limit = {"product_ratio": round(ours_s / product_s, 2), "limit_ratio": round(ours_s / (2 * product_s), 2)}
        rows = [{"peer": "float32 product alone", "peer_s": product_s}]
        if options.peers:
            expected = argsort_loop(images, captions, i2t, t2i)
            assert all(abs(found[k] - expected[k]) < 1e-4 for k in expected), (found, expected)
            rows.append({"peer": "argsort loop", "peer_s": best_of(1, lambda: argsort_loop(images, captions, i2t, t2i))[0]})
            with contextlib.suppress(ImportError):
                rows.append({"peer": "faiss top-100", "peer_s": best_of(1, lambda: faiss_top_100(images, captions))[0]})
            rows.append({"peer": "our NumPy path", "peer_s": best_of(1, lambda: ours(images, captions, i2t, t2i, False))[0]})
        for row in rows:
            ratio = row["peer_s"] / ours_s
            extra = limit if "product" in row["peer"] else {}
            print(
                json.dumps(line | row | {"peer_s": round(row["peer_s"], 3), "ratio": round(ratio, 2)} | extra),
                flush=True,
            )


if __name__ == "__main__":
    main()
