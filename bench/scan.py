"""SCAN's similarity of all images with all captions against a loop over captions in the manner of the released code.

36 regions, 6 to 20 words, 1024 dimensions, in float32, on the same threads. The loop takes each caption to all images: it repeats
the caption, has a batched product for the attention and one for the attended vectors, and takes the cosines. Results are compared
before anything is timed. `limit_ratio` is ours against the one matrix product of all regions with all words, into memory that is
there already; `peak_mb` is that of the process after ours, before the loop.

    python bench/scan.py [--images 200] [--captions 1000] [--repeat 3]
"""

from __future__ import annotations

import argparse
import json
import resource

import torch
from torch.nn import functional as F  # noqa: N812 - the name everybody knows

from crossmatch.models.zoo.cross_attention import Attention, similarity
from timing import best_of

REGIONS, WORDS, DIMENSIONS = 36, (6, 21), 1024
CASES = {"t2i": Attention("t2i", temperature=9.0, leak=0.1), "i2t": Attention("i2t", temperature=4.0, leak=0.1)}
Sides = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def vectors(images: int, captions: int) -> Sides:
    """Unit vectors with something in common, so that most cosines are positive, as SCAN has them."""
    rng = torch.Generator().manual_seed(0)
    lengths = torch.randint(*WORDS, (captions, 1), generator=rng)
    said = torch.arange(WORDS[1] - 1) < lengths
    common = torch.randn(DIMENSIONS, generator=rng)
    regions = F.normalize(torch.randn(images, REGIONS, DIMENSIONS, generator=rng) + common / 2, dim=2)
    words = F.normalize(torch.randn(captions, WORDS[1] - 1, DIMENSIONS, generator=rng) + common / 2, dim=2) * said.unsqueeze(2)
    return regions, torch.ones(images, REGIONS, dtype=torch.bool), words, said


def loop(sides: Sides, attention: Attention) -> torch.Tensor:
    """Caption by caption, each with all images."""
    regions, _, words, said = sides
    found = []
    for caption, length in zip(words, said.sum(dim=1).tolist(), strict=True):
        repeated = caption[None, :length].repeat(len(regions), 1, 1)
        query, context = (repeated, regions) if attention.direction == "t2i" else (regions, repeated)
        seen = attend(query, context, attention)
        cosines = (query * seen).sum(dim=2) / (query.norm(dim=2) * seen.norm(dim=2)).clamp(min=1e-8)
        found.append(cosines.mean(dim=1))
    return torch.stack(found, dim=1)


def attend(query: torch.Tensor, context: torch.Tensor, attention: Attention) -> torch.Tensor:
    near = F.leaky_relu(torch.bmm(context, query.transpose(1, 2)), attention.leak)  # (images, contexts, queries)
    near = near / (near.square().sum(dim=2, keepdim=True).sqrt() + 1e-8)
    weight = (near.transpose(1, 2).contiguous() * attention.temperature).softmax(dim=2)
    return torch.bmm(context.transpose(1, 2), weight.transpose(1, 2).contiguous()).transpose(1, 2).contiguous()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--captions", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with torch.inference_mode():
        sides = vectors(options.images, options.captions)
        ours = {name: similarity(*sides, attention) for name, attention in CASES.items()}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        flat, every = sides[0].flatten(0, 1), sides[2][sides[3]].T
        room = torch.empty(flat.shape[0], every.shape[1])
        for name, attention in CASES.items():
            apart = float((ours[name] - loop(sides, attention)).abs().max())
            assert apart < 1e-5, (name, apart)
            ours_s, peer_s, limit_s = best_of(
                options.repeat,
                lambda attention=attention: similarity(*sides, attention),
                lambda attention=attention: loop(sides, attention),
                lambda: torch.mm(flat, every, out=room),
            )
            line = {
                "workload": f"scan/{name}/{options.images}x{options.captions}x{REGIONS}x{DIMENSIONS}",
                "ours_s": round(ours_s, 4),
                "peer": "loop over captions, as released",
                "peer_s": round(peer_s, 4),
                "ratio": round(peer_s / ours_s, 2),
                "peak_mb": round(peak),
                "limit_ratio": round(ours_s / limit_s, 3),
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
