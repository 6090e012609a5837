"""Building benchmarks at the papers' sizes: nearest neighbours, pools of several models, adversarial refinement.

    python bench/mining.py [--case nearest pool refine] [--rows 40504] [--repeat 3] [--peers]

prints one json line per case.

- nearest: the nearest neighbour of every vector of 300 dimensions, as BISON's first stage has them; `--rows 1000000` is a large
  set, for which `peak_mb` is what matters. The peer is FAISS's flat index where it is installed, else the whole product in blocks
  with the largest value of each row. The limit is 6.7 s, FAISS's flat index for 40,504 rows on the two cores of our machine.
- pool: the 25 best items of five models for 5,000 images and 25,000 captions of 512 dimensions, both directions in one sweep each.
  The peer sorts out the best of every row and column of the product in NumPy.
- refine: the grid of 100 x 100 cells over two score gaps of 3,652,846 negatives, as TROHN-Text has them. The peer is algorithm 1
  of SugarCrepe as it is written.

`product_ratio` is our time over that of the bare float32 products that cannot be avoided: half a matrix for nearest neighbours.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import defaultdict

import numpy as np

from crossmatch.build.nearest import best, nearest
from crossmatch.core.scores import Embeddings
from ranking import Peak
from timing import best_of

ROWS, DIMENSIONS, FAISS_SECONDS = 40_504, 300, 6.7
IMAGES, CAPTIONS, WIDTH, MODELS, TOP = 5_000, 25_000, 512, 5, 25
NEGATIVES, BINS = 3_652_846, 100
BLOCK = 2_000


def told(workload: str, ours_s: float, peer: str, peer_s: float | None, peak_mb: float, **more: float) -> None:
    line = {"workload": workload, "ours_s": round(ours_s, 3), "peer": peer}
    line |= (
        {"peer_s": round(peer_s, 3), "ratio": round(peer_s / ours_s, 2)} if peer_s is not None else {"peer_s": None, "ratio": None}
    )
    print(json.dumps(line | {"peak_mb": round(peak_mb)} | {key: round(value, 2) for key, value in more.items()}), flush=True)


def clustered(rng: np.random.Generator, rows: int, dimensions: int) -> np.ndarray:
    """Vectors in clusters of about fifty, as captions of one topic are."""
    centres = rng.standard_normal((max(1, rows // 50), dimensions), dtype=np.float32)
    vectors = rng.standard_normal((rows, dimensions), dtype=np.float32)
    for at in range(0, rows, 100_000):
        part = vectors[at : at + 100_000]
        part += centres[rng.integers(0, len(centres), len(part))]
    return vectors


# -- nearest neighbours


def nearest_case(rows: int, repeat: int, peers: bool) -> None:
    vectors = clustered(np.random.default_rng(0), rows, DIMENSIONS)
    said = Embeddings(np.arange(rows), vectors, None, None)
    nearest(said.permuted({"image": np.arange(min(rows, 2_000))}), "image", compiled=True)  # compile
    begun = time.perf_counter()
    with Peak() as peak:
        found = nearest(said, "image").item[:, 0]
    once, small = time.perf_counter() - begun, rows <= 100_000
    if not small and not peers:  # once is long enough
        told(f"mining/nearest/{rows}x{DIMENSIONS}", once, peer_name(), None, peak.top)
        return
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    room = np.zeros(BLOCK * BLOCK, dtype=np.float32)
    works = [lambda: nearest(said, "image"), lambda: upper_half(unit, room), lambda: theirs(unit)]
    agreed = float((theirs(unit) == found).mean())
    assert agreed > 0.999, agreed  # all but what float32 cannot tell apart
    ours_s, product_s, peer_s = best_of(repeat if small else 1, *works)
    more = {"product_ratio": ours_s / product_s} | ({"limit_ratio": ours_s / FAISS_SECONDS} if rows == ROWS else {})
    told(f"mining/nearest/{rows}x{DIMENSIONS}", ours_s, peer_name(), peer_s, peak.top, **more)


def upper_half(unit: np.ndarray, room: np.ndarray) -> None:
    for at in range(0, len(unit), BLOCK):
        for over in range(at, len(unit), BLOCK):
            a, b = unit[at : at + BLOCK], unit[over : over + BLOCK]
            np.matmul(a, b.T, out=room[: len(a) * len(b)].reshape(len(a), len(b)))


def has_faiss() -> bool:
    try:
        import faiss  # noqa: F401
    except ImportError:
        return False
    return True


def peer_name() -> str:
    return "faiss flat" if has_faiss() else "whole product in blocks, largest of each row"


def theirs(unit: np.ndarray) -> np.ndarray:
    if has_faiss():
        import faiss

        index = faiss.IndexFlatIP(unit.shape[1])
        index.add(unit)
        two = index.search(unit, 2)[1]
        return np.where(two[:, 0] == np.arange(len(unit)), two[:, 1], two[:, 0])
    out = np.empty(len(unit), dtype=np.int64)
    for at in range(0, len(unit), BLOCK):
        block = unit[at : at + BLOCK] @ unit.T
        block[np.arange(len(block)), at + np.arange(len(block))] = -2
        out[at : at + BLOCK] = block.argmax(axis=1)
    return out


# -- pools


def pool_case(repeat: int) -> None:
    rng = np.random.default_rng(0)
    models = []
    for _ in range(MODELS):
        images = rng.standard_normal((IMAGES, WIDTH), dtype=np.float32)
        captions = 0.12 * np.repeat(images, CAPTIONS // IMAGES, axis=0) + rng.standard_normal((CAPTIONS, WIDTH), dtype=np.float32)
        models.append(Embeddings(np.arange(IMAGES), images, np.arange(CAPTIONS), captions))
    units = [tuple(v / np.linalg.norm(v, axis=1, keepdims=True) for v in (m.image_vectors, m.caption_vectors)) for m in models]
    room = np.zeros((IMAGES, CAPTIONS), dtype=np.float32)
    ours(models[:1])  # compile
    with Peak() as peak:
        found = ours(models)
    expected = sorted_out(*units[0], room)
    for direction, items in expected.items():
        same = np.mean(
            [len(set(a) & set(b)) / TOP for a, b in zip(found[0][direction].item[:500].tolist(), items[:500], strict=True)]
        )
        assert same > 0.999, (direction, same)
    ours_s, product_s, peer_s = best_of(
        repeat,
        lambda: ours(models),
        lambda: [np.matmul(a, b.T, out=room) for a, b in units],
        lambda: [sorted_out(a, b, room) for a, b in units],
    )
    told(
        f"mining/pool/{MODELS}x{IMAGES}x{CAPTIONS}", ours_s, "product and argpartition, both ways", peer_s, peak.top,
        product_ratio=ours_s / product_s,
    )  # fmt: skip


def ours(models: list[Embeddings]):
    return [best(said, ("i2t", "t2i"), TOP) for said in models]


def sorted_out(images: np.ndarray, captions: np.ndarray, room: np.ndarray) -> dict[str, list[list[int]]]:
    np.matmul(images, captions.T, out=room)
    return {
        direction: np.concatenate(
            [np.argpartition(-part, TOP - 1, axis=1)[:, :TOP] for part in np.array_split(scores, 50)]
        ).tolist()
        for direction, scores in (("i2t", room), ("t2i", room.T))
    }


# -- refinement


def refine_case(repeat: int) -> None:
    from crossmatch.build.balance import adversarial_refinement

    gaps = 0.3 * np.random.default_rng(0).standard_normal((2, NEGATIVES)) + 0.1
    with Peak() as peak:
        kept = adversarial_refinement(*gaps, bins=BINS)
    expected = by_lists(*gaps)
    assert abs(kept.sum() - len(expected)) < 1e-3 * len(expected), (kept.sum(), len(expected))  # all but gaps on a cell's edge
    ours_s, peer_s = best_of(repeat, lambda: adversarial_refinement(*gaps, bins=BINS), lambda: by_lists(*gaps))
    told(f"mining/refine/{NEGATIVES}", ours_s, "a list of rows for each cell", peer_s, peak.top)


def by_lists(first: np.ndarray, second: np.ndarray) -> list[int]:
    """Algorithm 1 of SugarCrepe as it is written: rows gathered by cell, each cell and its mirror image cut to the smaller."""
    cells = defaultdict(list)
    side = [np.sign(gap) * np.ceil(np.abs(gap) / (2 * np.abs(gap).max() / BINS)) for gap in (first, second)]
    for row, cell in enumerate(zip(*(s.astype(int).tolist() for s in side), strict=True)):
        cells[cell].append(row)
    dice, kept = random.Random(0), []
    for (a, b), rows in list(cells.items()):
        least = min(len(rows), len(cells.get((-a, -b), ())))
        kept += dice.sample(rows, least)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="+", choices=("nearest", "pool", "refine"), default=["nearest", "pool", "refine"])
    parser.add_argument("--rows", type=int, default=ROWS, help="vectors of the case nearest")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peers", action="store_true", help="time the peer of more than 100,000 rows too")
    options = parser.parse_args()
    for case in options.case:
        if case == "nearest":
            nearest_case(options.rows, options.repeat, options.peers)
        elif case == "pool":
            pool_case(options.repeat)
        else:
            refine_case(options.repeat)


if __name__ == "__main__":
    main()
