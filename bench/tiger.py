"""TIGEr against a loop over images and captions in the manner of the released code: 36 regions, some 12 words, 1024 dimensions.

Both sides get the same region and word vectors, in float32, and ground every candidate and reference (attention of regions to
words), then compare candidate and references (RRS and WDS, the released variant). In every block of images the numbers are
compared. Vectors are drawn for a block at a time, because 5,000 x 36 x 1024 numbers would fill 0.7 GB; the sides take turns in
every block, and times are added up. The loop's attention is in torch, as in the released code; a leaner one in NumPy is shown
beside it. BLAS and torch have one thread, with which the loops are fastest; ours works on as many blocks as there are cores.

    python bench/tiger.py [--images 5000] [--references 1 5]
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import time
from collections.abc import Callable, Iterator

import numpy as np
from threadpoolctl import threadpool_limits

from crossmatch.captions.attention import RELEASED_LEAK, SMOOTHING, ground
from crossmatch.captions.tiger import TAU, references_mean, rrs, wds

REGIONS, WORDS, DIMENSIONS, BLOCK = 36, (8, 17), 1024, 250
RELEASED, LIMIT = "loop over captions in torch, as released", 5  # times faster than which ours must be
Block = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # regions, words, lengths, image of each caption


def blocks(images: int, references: int) -> Iterator[Block]:
    """Vectors of length one, as SCAN gives them, with something in common within an image: most cosines are positive."""
    rng = np.random.default_rng(0)
    for first in range(0, images, BLOCK):
        here = min(BLOCK, images - first)
        common = rng.standard_normal((here, 1, DIMENSIONS), dtype=np.float32) * np.float32(0.5)
        owner = np.repeat(np.arange(here), references + 1)
        lengths = rng.integers(*WORDS, len(owner))
        regions = rng.standard_normal((here, REGIONS, DIMENSIONS), dtype=np.float32) + common
        words = rng.standard_normal((len(owner), int(lengths.max()), DIMENSIONS), dtype=np.float32) + common[owner]
        for side in (regions, words):
            side /= np.linalg.norm(side, axis=2, keepdims=True)
        yield regions, words, lengths, owner


def ours(block: Block) -> np.ndarray:
    regions, words, lengths, owner = block
    found = ground(regions, words, image=owner, lengths=lengths, smoothing=SMOOTHING, leak=RELEASED_LEAK)
    is_own = np.concatenate([[True], owner[1:] != owner[:-1]])
    candidate, reference = found[is_own], references_mean(found[~is_own], owner[~is_own])
    return (rrs(candidate, reference, "released") + wds(candidate, reference)) / 2


def loop(attention: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[[Block], np.ndarray]:
    """Image by image, caption by caption; the comparison in plain Python, as it was released."""

    def run(block: Block) -> np.ndarray:
        regions, words, lengths, owner = block
        found = []
        for image in range(len(regions)):
            own, *others = (attention(regions[image], words[n, : lengths[n]]) for n in np.flatnonzero(owner == image))
            found.append(compared(np.mean(others, axis=0).tolist(), own.tolist()))
        return np.array(found)

    return run


def compared(reference: list[float], candidate: list[float]) -> float:
    relevance, ranked = ([(x - min(side)) / (max(side) - min(side)) for x in side] for side in (reference, candidate))
    gains = []
    for by in (ranked, relevance):
        order = [region for region, _ in sorted(enumerate(by), key=lambda pair: pair[1], reverse=True)]
        gains.append(sum(relevance[region] / math.log2(place + 2) for place, region in enumerate(order)))
    p, q = ([math.exp(x) for x in side] for side in (reference, candidate))
    p, q = [x / sum(p) for x in p], [x / sum(q) for x in q]
    distance = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    distance += math.log(math.sqrt(sum(x * x for x in reference)) / math.sqrt(sum(x * x for x in candidate)))
    return (gains[0] / gains[1] + 1 - 1 / (1 + math.exp(-TAU * distance))) / 2


def in_numpy(regions: np.ndarray, words: np.ndarray) -> np.ndarray:
    near = regions @ words.T
    near = np.where(near > 0, near, np.float32(RELEASED_LEAK) * near)
    near /= np.linalg.norm(near, axis=0)
    weight = np.exp(np.float32(SMOOTHING) * near)
    attended = weight / weight.sum(axis=1, keepdims=True) @ words
    return (regions * attended).sum(axis=1) / np.linalg.norm(regions, axis=1) / np.linalg.norm(attended, axis=1)


def in_torch() -> Callable[[np.ndarray, np.ndarray], np.ndarray] | None:
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)

    def attention(regions: np.ndarray, words: np.ndarray) -> np.ndarray:
        v, w = torch.from_numpy(regions)[None], torch.from_numpy(words)[None]
        near = torch.nn.functional.leaky_relu(torch.bmm(w, v.transpose(1, 2)), RELEASED_LEAK)
        near = near / near.pow(2).sum(dim=2, keepdim=True).sqrt()
        weight = torch.softmax(SMOOTHING * near.transpose(1, 2).contiguous(), dim=2)
        attended = torch.bmm(weight, w)
        return ((v * attended).sum(dim=2) / (v.norm(dim=2) * attended.norm(dim=2))).squeeze(0).numpy()

    return attention


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5_000)
    parser.add_argument("--references", type=int, nargs="+", default=[1, 5])
    options = parser.parse_args()
    torch_attention = in_torch()
    peers = {"a leaner loop in NumPy": loop(in_numpy)}
    if torch_attention is not None:
        peers = {RELEASED: loop(torch_attention)} | peers
    with threadpool_limits(1):
        for references in options.references:
            taken = dict.fromkeys(("ours", *peers), 0.0)
            for block in blocks(options.images, references):
                values = {}
                for name, work in {"ours": ours, **peers}.items():
                    begun = time.perf_counter()
                    values[name] = work(block)
                    taken[name] += time.perf_counter() - begun
                for name in peers:  # RRS jumps where float32 puts two regions in another order
                    apart = np.abs(values[name] - values["ours"])
                    assert np.median(apart) < 1e-6, (name, np.median(apart))
                    assert apart.max() < 1e-2, (name, apart.max())
            for name in peers:
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                line = {
                    "workload": f"tiger/{options.images}x(1+{references})x{REGIONS}x{DIMENSIONS}",
                    "ours_s": round(taken["ours"], 4),
                    "peer": name,
                    "peer_s": round(taken[name], 4),
                    "ratio": round(taken[name] / taken["ours"], 2),
                    "peak_mb": round(peak),
                }
                if name == RELEASED:
                    line["limit_ratio"] = round(LIMIT * taken["ours"] / taken[name], 3)
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
