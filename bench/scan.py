"""SCAN's similarity of all images with all captions against a loop over captions, as in the released code.

36 regions, 6 to 20 words, 1024 dimensions, in float32, on the same threads. The loop compares each caption with all images: it
repeats the caption, has a batched product for the attention and one for the attended vectors, and computes the cosines. Results are
compared first. `limit_ratio` is our time divided by that of the product of all regions with all words into allocated memory;
`peak_mb` is measured before the loop.

    python bench/scan.py [--images 200] [--captions 1000] [--repeat 3]
"""

from __future__ import annotations

import torch
from torch.nn import functional as F  # noqa: N812 - the usual name

from crossmatch.models.zoo.cross_attention import AttentionOptions, similarity
from timing import best_of, make_parser, peak_mb, report

REGIONS, WORDS, DIMENSIONS = 36, (6, 21), 1024
CASES = {"t2i": AttentionOptions("t2i", temperature=9.0, leak=0.1), "i2t": AttentionOptions("i2t", temperature=4.0, leak=0.1)}
Sides = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def vectors(images: int, captions: int) -> Sides:
    """Unit vectors with a common part, so that most cosines are positive, as in SCAN."""
    rng = torch.Generator().manual_seed(0)
    lengths = torch.randint(*WORDS, (captions, 1), generator=rng)
    mask = torch.arange(WORDS[1] - 1) < lengths
    common = torch.randn(DIMENSIONS, generator=rng)
    regions = F.normalize(torch.randn(images, REGIONS, DIMENSIONS, generator=rng) + common / 2, dim=2)
    words = F.normalize(torch.randn(captions, WORDS[1] - 1, DIMENSIONS, generator=rng) + common / 2, dim=2) * mask.unsqueeze(2)
    return regions, torch.ones(images, REGIONS, dtype=torch.bool), words, mask


def loop(sides: Sides, attention: AttentionOptions) -> torch.Tensor:
    """Compare one caption after another with all images."""
    regions, _, words, mask = sides
    scores = []
    for caption, length in zip(words, mask.sum(dim=1).tolist(), strict=True):
        repeated = caption[None, :length].repeat(len(regions), 1, 1)
        query, context = (repeated, regions) if attention.direction == "t2i" else (regions, repeated)
        attended = attend(query, context, attention)
        cosines = (query * attended).sum(dim=2) / (query.norm(dim=2) * attended.norm(dim=2)).clamp(min=1e-8)
        scores.append(cosines.mean(dim=1))
    return torch.stack(scores, dim=1)


def attend(query: torch.Tensor, context: torch.Tensor, attention: AttentionOptions) -> torch.Tensor:
    affinity = F.leaky_relu(torch.bmm(context, query.transpose(1, 2)), attention.leak)  # (images, contexts, queries)
    affinity = affinity / (affinity.square().sum(dim=2, keepdim=True).sqrt() + 1e-8)
    weight = (affinity.transpose(1, 2).contiguous() * attention.temperature).softmax(dim=2)
    return torch.bmm(context.transpose(1, 2), weight.transpose(1, 2).contiguous()).transpose(1, 2).contiguous()


def main() -> None:
    options = make_parser(__doc__, images=200, captions=1000, repeat=3).parse_args()
    with torch.inference_mode():
        sides = vectors(options.images, options.captions)
        ours = {name: similarity(*sides, attention) for name, attention in CASES.items()}
        peak = peak_mb()
        all_regions, all_words = sides[0].flatten(0, 1), sides[2][sides[3]].T
        buffer = torch.empty(all_regions.shape[0], all_words.shape[1])
        for name, attention in CASES.items():
            difference = float((ours[name] - loop(sides, attention)).abs().max())
            assert difference < 1e-5, (name, difference)
            ours_s, peer_s, limit_s = best_of(
                options.repeat,
                lambda attention=attention: similarity(*sides, attention),
                lambda attention=attention: loop(sides, attention),
                lambda: torch.mm(all_regions, all_words, out=buffer),
            )
            workload = f"scan/{name}/{options.images}x{options.captions}x{REGIONS}x{DIMENSIONS}"
            more = {"peak_mb": peak, "limit_ratio": ours_s / limit_s}
            report(workload, ours_s, "loop over captions, as released", peer_s, **more)


if __name__ == "__main__":
    main()
