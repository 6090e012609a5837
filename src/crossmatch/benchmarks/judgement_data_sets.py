"""What people said of captions: the data of `crossmatch captions agree`, listed with the others in `data_sets`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crossmatch.benchmarks.counts import lines
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.files import DataFile, DataSet, Tally, read_json

FLICKR8K, COMPOSITE, PASCAL = "judgements/flickr8k.json", "judgements/composite.tsv", "judgements/pascal_50s.json"


def _held(path: Path) -> dict[str, Any]:
    held = read_json(path)
    if not isinstance(held, dict):
        raise CrossmatchError(f"{path} holds no json object. Get it again.")
    return held


def rated_images(path: Path) -> int:
    """Images of Flickr8k-Expert."""
    return len(_held(path))


def ratings(path: Path) -> int:
    """Single ratings of Flickr8k-Expert."""
    return sum(len(entry["human_judgement"]) for entry in _held(path).values())


def pairs(path: Path) -> int:
    """Pairs of captions of PASCAL-50S, in all groups."""
    return sum(len(group) for group in _held(path).values())


JUDGEMENTS = DataSet(
    name="judgements",
    about="what people said of captions: Flickr8k-Expert, Composite and PASCAL-50S, for `captions agree`",
    licence="research use",
    cite="hodosh2013framing",
    source="the authors of the three studies (no address has these very files; put them into a folder, and give it with --from)",
    non_commercial=True,
    files=(
        DataFile(FLICKR8K, "835162c77b014cd2191bea942189272af1a54628e0b6c4693f08a2a8d2691fff", 3_582_523),
        DataFile(COMPOSITE, "e772298889adda94620b887a2fbdcc12d880dde768c0dba6f5269fdd8ada06db", 982_538),
        DataFile(PASCAL, "f6033bbcf74583a22d289cf080fff5b930c04cf6d29e33e0170552e8e0237da9", 1_754_543),
    ),
    tallies=(
        Tally("images of Flickr8k-Expert", 1_000, (FLICKR8K,), rated_images),
        Tally("ratings of Flickr8k-Expert", 16_992, (FLICKR8K,), ratings),
        Tally("captions of Composite", 11_985, (COMPOSITE,), lines),
        Tally("pairs of PASCAL-50S", 4_000, (PASCAL,), pairs),
    ),
)
