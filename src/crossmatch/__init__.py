"""crossmatch evaluates image-text models: retrieval, forced choices, similarity and captions.

>>> import crossmatch
>>> result = crossmatch.evaluate("oracle", "diorama/retrieval", size="tiny", samples=100)
>>> result["i2t/truth/hit@1"].value
100.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossmatch._lazy import lazy_names

__version__ = "0.1.0"

# The module of each public name. Names are imported on first use, so that `import crossmatch` is fast.
_MODULES = {
    # data
    "Benchmark": "data.benchmark",
    "Retrieval": "data.loaded_data",
    "Similarity": "data.rated_pairs",
    "Trials": "data.trials",
    "Collection": "data.collection",
    "Judgements": "data.judgements",
    "Ratings": "data.ratings",
    "Preferences": "data.ratings",
    "CaptionCorpus": "captions.corpus",
    "Diorama": "diorama.world",
    "list_benchmarks": "benchmarks",
    "load_benchmark_data": "benchmarks",
    "load_ratings": "captions.human.published_ratings",
    # what a model produced
    "Embeddings": "data.scores",
    "Matrix": "data.scores",
    "Run": "data.scores",
    "Grounding": "data.grounding",
    # evaluation
    "EvaluationOptions": "evaluation.options",
    "evaluate": "evaluation.evaluate",
    "evaluate_all": "evaluation.evaluate",
    "score_captions": "captions.score_captions",
    "measure_agreement": "captions.human.metric_agreement",
    # metrics
    "Metric": "metrics.metric_table",
    "Ranks": "ranking.ranks",
    "metric": "metrics.metric_table",
    "rank": "ranking.ranks",
    # results
    "Result": "data.result",
    "compare": "report.comparison",
    "load_result": "data.result",
    "load_results": "data.result",
    "save_result": "data.result",
    "write_report": "report.html_report",
    # errors
    "CrossmatchError": "data.errors",
    "UsageError": "data.errors",
}

__all__ = [
    "Benchmark",
    "CaptionCorpus",
    "Collection",
    "CrossmatchError",
    "Diorama",
    "Embeddings",
    "EvaluationOptions",
    "Grounding",
    "Judgements",
    "Matrix",
    "Metric",
    "Preferences",
    "Ranks",
    "Ratings",
    "Result",
    "Retrieval",
    "Run",
    "Similarity",
    "Trials",
    "UsageError",
    "compare",
    "evaluate",
    "evaluate_all",
    "list_benchmarks",
    "load_benchmark_data",
    "load_ratings",
    "load_result",
    "load_results",
    "measure_agreement",
    "metric",
    "rank",
    "save_result",
    "score_captions",
    "write_report",
]


__getattr__, __dir__ = lazy_names(__name__, _MODULES)

if TYPE_CHECKING:
    from crossmatch.benchmarks import list_benchmarks, load_benchmark_data
    from crossmatch.captions.corpus import CaptionCorpus
    from crossmatch.captions.human.metric_agreement import measure_agreement
    from crossmatch.captions.human.published_ratings import load_ratings
    from crossmatch.captions.score_captions import score_captions
    from crossmatch.data.benchmark import Benchmark
    from crossmatch.data.collection import Collection
    from crossmatch.data.errors import CrossmatchError, UsageError
    from crossmatch.data.grounding import Grounding
    from crossmatch.data.judgements import Judgements
    from crossmatch.data.loaded_data import Retrieval
    from crossmatch.data.rated_pairs import Similarity
    from crossmatch.data.ratings import Preferences, Ratings
    from crossmatch.data.result import Result, load_result, load_results, save_result
    from crossmatch.data.scores import Embeddings, Matrix, Run
    from crossmatch.data.trials import Trials
    from crossmatch.diorama.world import Diorama
    from crossmatch.evaluation.evaluate import evaluate, evaluate_all
    from crossmatch.evaluation.options import EvaluationOptions
    from crossmatch.metrics.metric_table import Metric, metric
    from crossmatch.ranking.ranks import Ranks, rank
    from crossmatch.report.comparison import compare
    from crossmatch.report.html_report import write_report
