"""crossmatch tells you what an image-text model really matched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Benchmark",
    "Captions",
    "Collection",
    "CrossmatchError",
    "Diorama",
    "Embeddings",
    "Grounding",
    "Judgements",
    "Matrix",
    "Metric",
    "Preferences",
    "Ranks",
    "Ratings",
    "Result",
    "Retrieval",
    "Trials",
    "agree",
    "benchmarks",
    "compare",
    "evaluate",
    "evaluate_all",
    "judge_captions",
    "load_data",
    "load_result",
    "load_study",
    "metric",
    "rank",
    "save_result",
    "truth",
    "write_report",
]  # fmt: skip

# Where each public name lives; it is imported when it is first used, so that `import crossmatch` costs nothing.
_HOMES = {
    "Benchmark": "core.benchmark", "Retrieval": "core.benchmark", "Collection": "core.collection", "CrossmatchError": "core.errors",
    "Judgements": "core.judgements", "Trials": "core.trials", "Embeddings": "core.scores", "Matrix": "core.scores",
    "Ranks": "core.ranks", "rank": "core.ranks", "Result": "core.result", "Metric": "metrics.table", "metric": "metrics.table",
    "Diorama": "diorama.world", "truth": "diorama.truth", "benchmarks": "benchmarks", "load_data": "benchmarks",
    "evaluate": "run", "evaluate_all": "run",
    "compare": "report.compare", "write_report": "report.html",
    "Captions": "captions.corpus:Corpus", "judge_captions": "captions.judge:judge", "agree": "captions.agree",
    "load_study": "captions.judgements:study",
    "Ratings": "core.ratings", "Preferences": "core.ratings", "Grounding": "core.grounding",
    "load_result": "core.result:load", "save_result": "core.result:save",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'crossmatch' has no attribute {name!r}")
    from importlib import import_module

    home, _, other = _HOMES[name].partition(":")
    return getattr(import_module(f"crossmatch.{home}"), other or name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]


if TYPE_CHECKING:
    from crossmatch.benchmarks import benchmarks, load_data
    from crossmatch.captions.agree import agree
    from crossmatch.captions.corpus import Corpus as Captions
    from crossmatch.captions.judge import judge as judge_captions
    from crossmatch.captions.judgements import study as load_study
    from crossmatch.core.benchmark import Benchmark, Retrieval
    from crossmatch.core.collection import Collection
    from crossmatch.core.errors import CrossmatchError
    from crossmatch.core.grounding import Grounding
    from crossmatch.core.judgements import Judgements
    from crossmatch.core.ranks import Ranks, rank
    from crossmatch.core.ratings import Preferences, Ratings
    from crossmatch.core.result import Result
    from crossmatch.core.result import load as load_result
    from crossmatch.core.result import save as save_result
    from crossmatch.core.scores import Embeddings, Matrix
    from crossmatch.core.trials import Trials
    from crossmatch.diorama.truth import truth
    from crossmatch.diorama.world import Diorama
    from crossmatch.metrics.table import Metric, metric
    from crossmatch.report.compare import compare
    from crossmatch.report.html import write_report
    from crossmatch.run import evaluate, evaluate_all
