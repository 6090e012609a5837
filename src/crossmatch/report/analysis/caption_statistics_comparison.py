"""Statistics of a benchmark's captions, compared with their source (hu2019bison, Table 2 and Figure 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.benchmarks import list_benchmarks, resolve_task
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.loaded_data import LoadedData
from crossmatch.data.trials import Trials
from crossmatch.models.baselines.one_sided import READERS, read_caption_texts
from crossmatch.report.tables import EMPTY_CELL, Table
from crossmatch.text.caption_statistics import CaptionStatistics, caption_statistics, vocabulary_overlap

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
REFERENCES = "references"  # the name of the source that consists of the captions of the trials' images


@dataclass(frozen=True)
class CaptionSet:
    """Statistics of a set of captions; `images` is None if unknown.

    An example is a trial; in a collection it is a caption, as in Table 2 of hu2019bison.
    """

    name: str
    examples: int
    images: int | None
    statistics: CaptionStatistics


@dataclass(frozen=True)
class StatisticsComparison:
    """The statistics of a benchmark and of its source, if there is one, and what they share."""

    benchmark: CaptionSet
    source: CaptionSet | None = None
    source_overlap: float | None = None  # share of the source's vocabulary that occurs in the benchmark
    benchmark_overlap: float | None = None  # share of the benchmark's vocabulary that occurs in the source
    length_distance: float | None = None  # total variation distance of caption lengths, 0 to 1
    part_of_speech_distance: float | None = None  # total variation distance of parts of speech, 0 to 1

    @property
    def sets(self) -> tuple[CaptionSet, ...]:
        return (self.benchmark,) if self.source is None else (self.benchmark, self.source)


def compare_statistics(task: str, source: str | None = None, **options: str) -> StatisticsComparison:
    """Compute the statistics of a task's captions, and compare them with a source.

    The source is a task, `collection:FOLDER`, a file of captions, or `references` for the known captions of the trials' images.

    >>> comparison = compare_statistics("diorama/retrieval", size="tiny")
    >>> comparison.benchmark.examples, comparison.benchmark.images, comparison.source
    (250, 50, None)
    """
    benchmark, benchmark_options = resolve_task(task, options)
    data = benchmark.load(**benchmark_options)
    task_set = describe_data(task, data)
    if source is None:
        return StatisticsComparison(task_set)
    source_set = _describe_source(source, task, data, options)
    a, b = task_set.statistics, source_set.statistics
    return StatisticsComparison(
        task_set,
        source_set,
        vocabulary_overlap(a.vocabulary, b.vocabulary),
        vocabulary_overlap(b.vocabulary, a.vocabulary),
        total_variation({k: v / a.captions for k, v in a.lengths.items()}, {k: v / b.captions for k, v in b.lengths.items()}),
        total_variation(a.parts, b.parts),
    )


def describe_data(name: str, data: LoadedData) -> CaptionSet:
    """The statistics of trials or of a collection."""
    if isinstance(data, Trials):
        images, texts = int(np.unique(data.images).size), data.captions.ravel().tolist()
        return CaptionSet(name, len(data.ids), images, caption_statistics(texts))
    collection: Collection = data.collection
    return CaptionSet(name, collection.shape[1], collection.shape[0], caption_statistics(collection.texts()))


def total_variation(p: Mapping[Any, float], q: Mapping[Any, float]) -> float:
    """The total variation distance of two distributions.

        d(p, q) = ½ Σ_x |p(x) - q(x)|

    >>> total_variation({"noun": 0.5, "verb": 0.5}, {"noun": 0.75, "verb": 0.25})
    0.25
    """
    return sum(abs(p.get(x, 0.0) - q.get(x, 0.0)) for x in {*p, *q}) / 2


def length_quantile(statistics: CaptionStatistics, q: float) -> int:
    """The smallest length that at least a share q of the captions does not exceed.

    >>> length_quantile(caption_statistics(["A dog.", "A cat.", "Two dogs on a couch."]), 0.5)
    2
    """
    lengths = np.asarray(list(statistics.lengths), dtype=np.int64)
    cumulative = np.cumsum(list(statistics.lengths.values()))
    return int(lengths[np.searchsorted(cumulative, q * statistics.captions - 1e-9)])


def statistics_table(comparison: StatisticsComparison) -> Table:
    """A row for each statistic, a column for the benchmark and one for its source."""
    sets = comparison.sets
    rows: list[tuple[str, ...]] = [
        ("examples", *(f"{s.examples:,}" for s in sets)),
        ("unique images", *(EMPTY_CELL if s.images is None else f"{s.images:,}" for s in sets)),
        ("unique captions", *(f"{s.statistics.unique:,}" for s in sets)),
        ("words per caption", *(f"{s.statistics.mean_length:.2f}" for s in sets)),
        *(
            ("  median" if q == 0.5 else f"  {100 * q:.0f} % quantile", *(str(length_quantile(s.statistics, q)) for s in sets))
            for q in QUANTILES
        ),
        ("vocabulary", *(f"{len(s.statistics.vocabulary):,}" for s in sets)),
    ]
    if comparison.source_overlap is not None and comparison.benchmark_overlap is not None:
        overlaps = comparison.source_overlap, comparison.benchmark_overlap
        rows.append(("  shared, % of the other's", *(f"{100 * overlap:.1f}" for overlap in overlaps)))
    parts = [part for part in comparison.benchmark.statistics.parts if any(s.statistics.parts[part] for s in sets)]
    rows += [("% of the words", *([""] * len(sets)))]
    rows += [(f"  {part}", *(f"{100 * s.statistics.parts[part]:.1f}" for s in sets)) for part in parts]
    return Table("Caption statistics", (("", *(s.name for s in sets)),), tuple(rows), 1, _notes(comparison))


def statistics_json(comparison: StatisticsComparison) -> dict[str, Any]:
    """The statistics for JSON; shares are fractions."""
    sets = [
        {
            "name": s.name,
            "examples": s.examples,
            "unique_images": s.images,
            "unique_captions": s.statistics.unique,
            "words": s.statistics.words,
            "mean_length": s.statistics.mean_length,
            "length_quantiles": {str(q): length_quantile(s.statistics, q) for q in QUANTILES},
            "lengths": {str(length): count for length, count in s.statistics.lengths.items()},
            "parts_of_speech": dict(s.statistics.parts),
            "vocabulary": len(s.statistics.vocabulary),
        }
        for s in comparison.sets
    ]
    if comparison.source is None:
        return {"sets": sets}
    compared = {
        "reused": comparison.source_overlap,
        "known": comparison.benchmark_overlap,
        "lengths": comparison.length_distance,
        "parts": comparison.part_of_speech_distance,
    }
    return {"sets": sets, "compared": compared}


def _notes(comparison: StatisticsComparison) -> tuple[str, ...]:
    notes = ["a word is a token with a letter or a digit; parts of speech come from a tagger, which makes some errors"]
    source, lengths, parts = comparison.source, comparison.length_distance, comparison.part_of_speech_distance
    if source is not None and lengths is not None and parts is not None:
        longer = comparison.benchmark.statistics.mean_length - source.statistics.mean_length
        difference = f"captions are {abs(longer):.2f} words {'longer' if longer > 0 else 'shorter'} than in the source"
        distances = f"total variation distance of lengths {100 * lengths:.1f} %, of parts of speech {100 * parts:.1f} %"
        notes.insert(0, f"{difference}; {distances}")
    return tuple(notes)


def _describe_source(source: str, task: str, data: LoadedData, options: Mapping[str, str]) -> CaptionSet:
    if source == REFERENCES:
        return _describe_references(task, data)
    path = Path(source)
    if path.suffix.lower() in READERS and ":" not in source:
        if not path.is_file():
            raise UsageError(f"No file of captions at {path}. Check the path.")
        texts = read_caption_texts(path)
        return CaptionSet(path.name, len(texts), None, caption_statistics(texts))
    benchmark, source_options = resolve_task(source, {})
    shared_options = {key: value for key, value in options.items() if key in benchmark.options}  # such as size and split of diorama
    return describe_data(source, benchmark.load(**{**shared_options, **source_options}))


def _describe_references(task: str, data: LoadedData) -> CaptionSet:
    references = data.references if isinstance(data, Trials) else None
    if not references:
        examples = ", ".join(list(list_benchmarks())[:2])
        raise CrossmatchError(f"{task} has no captions of its images. Name a task ({examples}, …) or a file as source.")
    texts = [text for captions in references.values() for text in captions]
    return CaptionSet(f"captions of {len(references):,} of its images", len(texts), len(references), caption_statistics(texts))
