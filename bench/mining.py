"""Building benchmarks at the papers' sizes: nearest neighbours, pools of several models, adversarial refinement.

    python bench/mining.py [--case nearest pool refine] [--rows 40504] [--repeat 3] [--peers]

prints one json line per case.

- nearest: the nearest neighbour of every vector of 300 dimensions, as in BISON's first stage (`--rows` vectors; for 1,000,000 of
  them, look at `peak_mb`). The peer is FAISS's flat index if it is installed, else the whole product in blocks with the largest
  value of each row. The limit is 6.7 s, the time of FAISS's flat index for 40,504 rows on two cores.
- pool: the 25 best items of five models for 5,000 images and 25,000 captions of 512 dimensions, both directions in one sweep each.
  The peer finds the best of every row and column of the product in NumPy.
- refine: the grid of 100 x 100 cells over two score gaps of 3,652,846 negatives, as in TROHN-Text. The peer is algorithm 1
  of SugarCrepe, written literally.

`product_ratio` is our time divided by that of the necessary float32 products: half a matrix for nearest neighbours.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict

import numpy as np

from crossmatch.build.nearest_neighbours import find_neighbours, find_top_candidates
from crossmatch.data.scores import Embeddings
from ranking import Peak
from timing import best_of, make_parser, report

ROWS, DIMENSIONS, FAISS_SECONDS = 40_504, 300, 6.7
IMAGES, CAPTIONS, WIDTH, MODELS, TOP = 5_000, 25_000, 512, 5, 25
NEGATIVES, BINS = 3_652_846, 100
BLOCK = 2_000


def clustered(rng: np.random.Generator, rows: int, dimensions: int) -> np.ndarray:
    """Vectors in clusters of about fifty, like captions of one topic."""
    centres = rng.standard_normal((max(1, rows // 50), dimensions), dtype=np.float32)
    vectors = rng.standard_normal((rows, dimensions), dtype=np.float32)
    for begin in range(0, rows, 100_000):
        part = vectors[begin : begin + 100_000]
        part += centres[rng.integers(0, len(centres), len(part))]
    return vectors


# -- nearest neighbours


def nearest_case(rows: int, repeat: int, peers: bool) -> None:
    vectors = clustered(np.random.default_rng(0), rows, DIMENSIONS)
    scores = Embeddings(np.arange(rows), vectors, None, None)
    find_neighbours(scores.reorder({"image": np.arange(min(rows, 2_000))}), "image", compiled=True)  # compile
    start = time.perf_counter()
    with Peak() as peak:
        neighbours = find_neighbours(scores, "image").item[:, 0]
    once, small = time.perf_counter() - start, rows <= 100_000
    if not small and not peers:  # takes too long to repeat
        report(f"mining/nearest/{rows}x{DIMENSIONS}", once, peer_name(), None, peak_mb=round(peak.top))
        return
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    buffer = np.zeros(BLOCK * BLOCK, dtype=np.float32)
    works = [lambda: find_neighbours(scores, "image"), lambda: upper_half(unit, buffer), lambda: peer_neighbours(unit)]
    agreement = float((peer_neighbours(unit) == neighbours).mean())
    assert agreement > 0.999, agreement  # float32 cannot distinguish the rest
    ours_s, product_s, peer_s = best_of(repeat if small else 1, *works)
    more = {"product_ratio": ours_s / product_s} | ({"limit_ratio": ours_s / FAISS_SECONDS} if rows == ROWS else {})
    report(f"mining/nearest/{rows}x{DIMENSIONS}", ours_s, peer_name(), peer_s, peak_mb=round(peak.top), **more)


def upper_half(unit: np.ndarray, buffer: np.ndarray) -> None:
    for begin in range(0, len(unit), BLOCK):
        for column in range(begin, len(unit), BLOCK):
            a, b = unit[begin : begin + BLOCK], unit[column : column + BLOCK]
            np.matmul(a, b.T, out=buffer[: len(a) * len(b)].reshape(len(a), len(b)))


def has_faiss() -> bool:
    try:
        import faiss  # noqa: F401
    except ImportError:
        return False
    return True


def peer_name() -> str:
    return "faiss flat" if has_faiss() else "whole product in blocks, largest of each row"


def peer_neighbours(unit: np.ndarray) -> np.ndarray:
    if has_faiss():
        import faiss

        index = faiss.IndexFlatIP(unit.shape[1])
        index.add(unit)
        two = index.search(unit, 2)[1]
        return np.where(two[:, 0] == np.arange(len(unit)), two[:, 1], two[:, 0])
    out = np.empty(len(unit), dtype=np.int64)
    for begin in range(0, len(unit), BLOCK):
        block = unit[begin : begin + BLOCK] @ unit.T
        block[np.arange(len(block)), begin + np.arange(len(block))] = -2
        out[begin : begin + BLOCK] = block.argmax(axis=1)
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
    buffer = np.zeros((IMAGES, CAPTIONS), dtype=np.float32)
    ours(models[:1])  # compile
    with Peak() as peak:
        candidates = ours(models)
    expected = sorted_out(*units[0], buffer)
    for direction, items in expected.items():
        overlap = np.mean(
            [len(set(a) & set(b)) / TOP for a, b in zip(candidates[0][direction].item[:500].tolist(), items[:500], strict=True)]
        )
        assert overlap > 0.999, (direction, overlap)
    ours_s, product_s, peer_s = best_of(
        repeat,
        lambda: ours(models),
        lambda: [np.matmul(a, b.T, out=buffer) for a, b in units],
        lambda: [sorted_out(a, b, buffer) for a, b in units],
    )
    workload = f"mining/pool/{MODELS}x{IMAGES}x{CAPTIONS}"
    more = {"peak_mb": round(peak.top), "product_ratio": ours_s / product_s}
    report(workload, ours_s, "product and argpartition, both ways", peer_s, **more)


def ours(models: list[Embeddings]):
    return [find_top_candidates(scores, ("i2t", "t2i"), TOP) for scores in models]


def sorted_out(images: np.ndarray, captions: np.ndarray, scores_buffer: np.ndarray) -> dict[str, list[list[int]]]:
    np.matmul(images, captions.T, out=scores_buffer)
    return {
        direction: np.concatenate(
            [np.argpartition(-part, TOP - 1, axis=1)[:, :TOP] for part in np.array_split(scores, 50)]
        ).tolist()
        for direction, scores in (("i2t", scores_buffer), ("t2i", scores_buffer.T))
    }


# -- refinement


def refine_case(repeat: int) -> None:
    from crossmatch.build.refinement.adversarial_refinement import adversarial_refinement

    gaps = 0.3 * np.random.default_rng(0).standard_normal((2, NEGATIVES)) + 0.1
    with Peak() as peak:
        is_kept = adversarial_refinement(*gaps, bins=BINS)
    expected = by_lists(*gaps)
    # gaps on the edge of a cell may differ
    assert abs(is_kept.sum() - len(expected)) < 1e-3 * len(expected), (is_kept.sum(), len(expected))
    ours_s, peer_s = best_of(repeat, lambda: adversarial_refinement(*gaps, bins=BINS), lambda: by_lists(*gaps))
    report(f"mining/refine/{NEGATIVES}", ours_s, "a list of rows for each cell", peer_s, peak_mb=round(peak.top))


def by_lists(first: np.ndarray, second: np.ndarray) -> list[int]:
    """Algorithm 1 of SugarCrepe: collect rows by cell, and cut each cell and its mirror image to the smaller size."""
    cells = defaultdict(list)
    side = [np.sign(gap) * np.ceil(np.abs(gap) / (2 * np.abs(gap).max() / BINS)) for gap in (first, second)]
    for row, cell in enumerate(zip(*(s.astype(int).tolist() for s in side), strict=True)):
        cells[cell].append(row)
    rng, kept = random.Random(0), []
    for (a, b), rows in list(cells.items()):
        least = min(len(rows), len(cells.get((-a, -b), ())))
        kept += rng.sample(rows, least)
    return kept


def main() -> None:
    parser = make_parser(__doc__, rows=ROWS, repeat=3)
    parser.add_argument("--case", nargs="+", choices=("nearest", "pool", "refine"), default=["nearest", "pool", "refine"])
    parser.add_argument("--peers", action="store_true", help="time the peer of more than 100,000 rows too")
    options = parser.parse_args()
    cases = {
        "nearest": lambda: nearest_case(options.rows, options.repeat, options.peers),
        "pool": lambda: pool_case(options.repeat),
        "refine": lambda: refine_case(options.repeat),
    }
    for case in options.case:
        cases[case]()


if __name__ == "__main__":
    main()
