"""The embedded world as a benchmark: every metric twice, by the original links and by the truth."""

from __future__ import annotations

from crossmatch.core.benchmark import Benchmark, Retrieval
from crossmatch.core.judgements import Judgements
from crossmatch.diorama.world import Diorama


def load(split: str, size: str) -> Retrieval:
    """Links as COCO has them, and beside them what holds of every single pair."""
    world = Diorama.make(split, size=size)
    return Retrieval(
        world.collection,
        {"links": Judgements.from_links(world.collection), "truth": Judgements.from_matrix("truth", world.truth)},
    )


DIORAMA_RETRIEVAL = Benchmark(
    name="diorama/retrieval",
    about="drawn scenes with five captions each; scored by the original links and by the truth about every pair",
    load=load,
    metrics=("hit@1", "hit@5", "hit@10", "median-rank", "mrr", "recall@10", "r-precision", "map@r", "ndcg@10"),
    options={"split": "test", "size": "default"},
    licence="MIT",
    cite="chun2022eccv",
)
