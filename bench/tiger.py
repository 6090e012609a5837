"""TIGEr against a loop over images and captions, as in the released code: 36 regions, about 12 words, 1024 dimensions.

Both sides get the same region and word vectors, in float32, and ground every candidate and reference (attention of regions to
words), then compare candidate and references (RRS and WDS, the released variant). The vectors are drawn in blocks of images,
because 5,000 x 36 x 1024 numbers need 0.7 GB; the sides take turns in every block, and their numbers are compared. The loop's
attention uses torch, as in the released code; a faster loop in NumPy is a second peer. BLAS and torch have one thread, with which
the loops are fastest.

    python bench/tiger.py [--images 5000] [--references 1 5]
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from crossmatch.captions.tiger.score import TAU, mean_by_image, rrs, wds
from crossmatch.models.zoo.cross_attention import AttentionOptions, region_grounding
from timing import make_parser, peak_mb, report

SMOOTHING, RELEASED_LEAK = 9.0, 0.1  # λ and the slope of [x]₊ below 0 in SCAN's released code
REGIONS, WORDS, DIMENSIONS, BLOCK = 36, (8, 17), 1024, 250
TEXTS = 32  # captions that are grounded at a time, so that their vectors fit into the cache
RELEASED = "loop over captions in torch, as released"  # ours must not be slower
Block = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # regions, words, lengths, image of each caption


def blocks(images: int, references: int) -> Iterator[Block]:
    """Unit vectors, as in SCAN, with a common part within an image, so that most cosines are positive."""
    rng = np.random.default_rng(0)
    for first in range(0, images, BLOCK):
        count = min(BLOCK, images - first)
        common = rng.standard_normal((count, 1, DIMENSIONS), dtype=np.float32) * np.float32(0.5)
        owner = np.repeat(np.arange(count), references + 1)
        lengths = rng.integers(*WORDS, len(owner))
        regions = rng.standard_normal((count, REGIONS, DIMENSIONS), dtype=np.float32) + common
        words = rng.standard_normal((len(owner), int(lengths.max()), DIMENSIONS), dtype=np.float32) + common[owner]
        for side in (regions, words):
            side /= np.linalg.norm(side, axis=2, keepdims=True)
        yield regions, words, lengths, owner


def ours(block: Block) -> np.ndarray:
    regions, words, lengths, owner = block
    is_region = torch.ones(len(owner), REGIONS, dtype=torch.bool)
    is_word = torch.arange(words.shape[1]) < torch.from_numpy(lengths)[:, None]
    attention = AttentionOptions("i2t", temperature=SMOOTHING, leak=RELEASED_LEAK)
    parts = []
    for part in torch.arange(len(owner)).split(TEXTS):
        v, w = torch.from_numpy(regions[owner[part]]), torch.from_numpy(words)[part]
        parts.append(region_grounding(v, is_region[part], w, is_word[part], attention))
    groundings = torch.cat(parts).double().numpy()
    is_own = np.concatenate([[True], owner[1:] != owner[:-1]])
    candidate, reference = groundings[is_own], mean_by_image(groundings[~is_own], owner[~is_own])
    return (rrs(candidate, reference, "released") + wds(candidate, reference)) / 2


def loop(attention: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[[Block], np.ndarray]:
    """Loop over images and captions, with the comparison in plain Python, as in the released code."""

    def run(block: Block) -> np.ndarray:
        regions, words, lengths, owner = block
        scores = []
        for image in range(len(regions)):
            own, *others = (attention(regions[image], words[n, : lengths[n]]) for n in np.flatnonzero(owner == image))
            scores.append(compare_groundings(np.mean(others, axis=0).tolist(), own.tolist()))
        return np.array(scores)

    return run


def compare_groundings(reference: list[float], candidate: list[float]) -> float:
    relevance, ranked = ([(x - min(side)) / (max(side) - min(side)) for x in side] for side in (reference, candidate))
    gains = []
    for by in (ranked, relevance):
        order = [region for region, _ in sorted(enumerate(by), key=lambda pair: pair[1], reverse=True)]
        gains.append(sum(relevance[region] / math.log2(position + 2) for position, region in enumerate(order)))
    p, q = ([math.exp(x) for x in side] for side in (reference, candidate))
    p, q = [x / sum(p) for x in p], [x / sum(q) for x in q]
    distance = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    distance += math.log(math.sqrt(sum(x * x for x in reference)) / math.sqrt(sum(x * x for x in candidate)))
    return (gains[0] / gains[1] + 1 - 1 / (1 + math.exp(-TAU * distance))) / 2


def in_numpy(regions: np.ndarray, words: np.ndarray) -> np.ndarray:
    affinity = regions @ words.T
    affinity = np.where(affinity > 0, affinity, np.float32(RELEASED_LEAK) * affinity)
    affinity /= np.linalg.norm(affinity, axis=0)
    weight = np.exp(np.float32(SMOOTHING) * affinity)
    attended = weight / weight.sum(axis=1, keepdims=True) @ words
    return (regions * attended).sum(axis=1) / np.linalg.norm(regions, axis=1) / np.linalg.norm(attended, axis=1)


def in_torch(regions: np.ndarray, words: np.ndarray) -> np.ndarray:
    v, w = torch.from_numpy(regions)[None], torch.from_numpy(words)[None]
    affinity = torch.nn.functional.leaky_relu(torch.bmm(w, v.transpose(1, 2)), RELEASED_LEAK)
    affinity = affinity / affinity.pow(2).sum(dim=2, keepdim=True).sqrt()
    weight = torch.softmax(SMOOTHING * affinity.transpose(1, 2).contiguous(), dim=2)
    attended = torch.bmm(weight, w)
    return ((v * attended).sum(dim=2) / (v.norm(dim=2) * attended.norm(dim=2))).squeeze(0).numpy()


def main() -> None:
    parser = make_parser(__doc__, images=5_000)
    parser.add_argument("--references", type=int, nargs="+", default=[1, 5])
    options = parser.parse_args()
    torch.set_num_threads(1)
    peers = {RELEASED: loop(in_torch), "a leaner loop in NumPy": loop(in_numpy)}
    with threadpool_limits(1):
        for references in options.references:
            seconds = dict.fromkeys(("ours", *peers), 0.0)
            for block in blocks(options.images, references):
                values = {}
                for name, function in {"ours": ours, **peers}.items():
                    start = time.perf_counter()
                    values[name] = function(block)
                    seconds[name] += time.perf_counter() - start
                for name in peers:  # RRS changes if float32 swaps two regions
                    difference = np.abs(values[name] - values["ours"])
                    assert np.median(difference) < 1e-6, (name, np.median(difference))
                    assert difference.max() < 1e-2, (name, difference.max())
            for name in peers:
                workload = f"tiger/{options.images}x(1+{references})x{REGIONS}x{DIMENSIONS}"
                more = {"limit_ratio": seconds["ours"] / seconds[name]} if name == RELEASED else {}
                report(workload, seconds["ours"], name, seconds[name], peak_mb=peak_mb(), **more)


if __name__ == "__main__":
    main()
