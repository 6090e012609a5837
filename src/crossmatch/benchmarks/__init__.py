"""Table of benchmarks: the built-in ones, those of plugins, and those made from a user's own files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from crossmatch.benchmarks.altered_queries import with_alter_option
from crossmatch.benchmarks.bison import BISON
from crossmatch.benchmarks.bivlc import BIVLC
from crossmatch.benchmarks.coco import COCO_1K, COCO_5K, PMRP
from crossmatch.benchmarks.cxc import CXC, CXC_SIS, CXC_SITS, CXC_STS
from crossmatch.benchmarks.diorama_tasks import (
    DIORAMA_BISON,
    DIORAMA_BIVLC,
    DIORAMA_CXC,
    DIORAMA_RETRIEVAL,
    DIORAMA_SIS,
    DIORAMA_SITS,
    DIORAMA_STS,
    DIORAMA_SUGARCREPE,
)  # fmt: skip
from crossmatch.benchmarks.eccv_caption import ECCV_CAPTION
from crossmatch.benchmarks.sugarcrepe import SUGARCREPE
from crossmatch.benchmarks.user_collection import parse_collection_task
from crossmatch.benchmarks.user_trials import parse_trials_task
from crossmatch.benchmarks.winoground import WINOGROUND
from crossmatch.data.benchmark import Benchmark
from crossmatch.data.errors import UsageError
from crossmatch.data.io.plugins import load_plugins
from crossmatch.data.loaded_data import LoadedData
from crossmatch.data.name_lookup import Catalog
from crossmatch.data.rated_pairs import RatedCollection

BUILT_IN = (
    COCO_1K, COCO_5K, CXC, CXC_STS, CXC_SIS, CXC_SITS, ECCV_CAPTION, PMRP, with_alter_option(BISON), BIVLC, SUGARCREPE, WINOGROUND,
    DIORAMA_RETRIEVAL, DIORAMA_CXC, DIORAMA_STS, DIORAMA_SIS, DIORAMA_SITS, with_alter_option(DIORAMA_BISON), DIORAMA_BIVLC,
    DIORAMA_SUGARCREPE,
)  # fmt: skip
# Tasks made from the user's own files: the text after the prefix is a path, with options behind it.
USER_TASKS = {"collection:": parse_collection_task, "trials:": parse_trials_task}


def list_benchmarks() -> Catalog[Benchmark]:
    """Return all benchmarks by name: built-in ones, and those that packages add to the entry-point group `crossmatch`.

    >>> list_benchmarks()["coco-5k"].metrics[:3]
    ('hit@1', 'hit@5', 'hit@10')
    """
    return Catalog("task", {b.name: b for b in (*BUILT_IN, *load_plugins(Benchmark))})


def load_benchmark_data(name: str, *, skip_bad: bool = False, **options: str) -> LoadedData:
    """Load the data of a task.

    Args:
        name: A task as the option `-t` takes it: `coco-5k`, `cxc-sits+query=caption`, `collection:FOLDER`, `trials:FILE`.
        skip_bad: Leave out empty captions of the user's own files instead of raising an error.
        options: Options of the benchmark, such as `split` and `size`.

    Returns:
        A `Retrieval`, `Similarity` or `Trials`.

    >>> load_benchmark_data("diorama/retrieval", size="tiny").collection.shape
    (50, 250)
    """
    benchmark, own_options = resolve_task(name, options)
    return benchmark.load(skip_bad, **own_options)


def load_benchmark_ratings(name: str, **options: str) -> RatedCollection:
    """Load the ratings of pairs that a task has.

    Args:
        name: A task with ratings: `cxc`, `cxc-sts`, `collection:FOLDER`.
        options: Options of the benchmark, such as `split`.

    Returns:
        The collection, and its rated pairs by source.

    Raises:
        UsageError: The task has no ratings.
    """
    benchmark, own_options = resolve_task(name, options)
    return benchmark.load_ratings(**own_options)


def resolve_task(task: str | Benchmark, options: Mapping[str, str]) -> tuple[Benchmark, dict[str, str]]:
    """Return the benchmark that a task names, and the options to load it with.

    Options in the task's name override `options`.

    >>> benchmark, options = resolve_task("cxc-sits+query=caption", {"split": "val"})
    >>> benchmark.name, options
    ('cxc-sits', {'split': 'val', 'query': 'caption'})
    """
    if isinstance(task, Benchmark):
        return task, dict(options)
    for prefix, parse in USER_TASKS.items():
        if task.startswith(prefix):
            benchmark, own_options = parse(task.removeprefix(prefix))
            return benchmark, {**options, **own_options}
    if Path(task).suffix.lower() in (".csv", ".tsv", ".jsonl") and Path(task).is_file():
        raise UsageError(f"{task} is a file. To evaluate your own forced choices, use the task trials:{task}")
    name, *settings = task.split("+")
    own_options = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key or not value:
            raise UsageError(f"{task}: expected option=value after the plus sign, as in cxc-sits+query=caption, got {setting!r}.")
        own_options[key] = value
    return list_benchmarks()[name], {**options, **own_options}
