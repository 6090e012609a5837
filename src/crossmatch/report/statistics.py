"""What a benchmark consists of, beside the captions that it was made from (hu2019bison, Table 2 and Figure 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.benchmarks import benchmark_named, benchmarks
from crossmatch.core.benchmark import Loaded
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.trials import Trials
from crossmatch.language.statistics import CaptionStatistics, caption_statistics, vocabulary_overlap
from crossmatch.models.blind import READERS, read_texts
from crossmatch.report.tables import NONE, Table

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
REFERENCES = "references"  # the captions of the trials' own images, as a source


@dataclass(frozen=True)
class Described:
    """A set of captions: how many examples it makes, how many images are in them (None where that is not known), and its texts.

    An example is a trial; of a collection, a caption, as in Table 2 of hu2019bison.
    """

    name: str
    examples: int
    images: int | None
    texts: CaptionStatistics


@dataclass(frozen=True)
class Compared:
    """A benchmark and, where one was named, its source, with what they share.

    `reused` is the share of the source's vocabulary that the benchmark has, `known` the share of the benchmark's that the source
    has; `lengths` and `parts` are the total variation distances of caption lengths and of parts of speech, from 0 to 1.
    """

    benchmark: Described
    source: Described | None = None
    reused: float | None = None
    known: float | None = None
    lengths: float | None = None
    parts: float | None = None

    @property
    def both(self) -> tuple[Described, ...]:
        return (self.benchmark,) if self.source is None else (self.benchmark, self.source)


def compare_statistics(task: str, source: str | None = None, **options: str) -> Compared:
    """The statistics of a task, beside those of its source if one is named: a task, `collection:FOLDER`, a file of captions, or
    `references`, which are the captions of the trials' own images as far as they are known.

    >>> found = compare_statistics("diorama/retrieval", size="tiny")
    >>> found.benchmark.examples, found.benchmark.images, found.source
    (250, 50, None)
    """
    declared, chosen = benchmark_named(task, options)
    data = declared.loaded(**chosen)
    mine = described(task, data)
    if source is None:
        return Compared(mine)
    other = _source(source, task, data, options)
    a, b = mine.texts, other.texts
    return Compared(
        mine,
        other,
        vocabulary_overlap(a.vocabulary, b.vocabulary),
        vocabulary_overlap(b.vocabulary, a.vocabulary),
        distance({k: v / a.captions for k, v in a.lengths.items()}, {k: v / b.captions for k, v in b.lengths.items()}),
        distance(a.parts, b.parts),
    )


def described(name: str, data: Loaded) -> Described:
    """The statistics of trials, or of a collection."""
    if isinstance(data, Trials):
        images, texts = int(np.unique(data.images).size), data.captions.ravel().tolist()
        return Described(name, len(data.ids), images, caption_statistics(texts))
    held: Collection = data.collection
    return Described(name, held.shape[1], held.shape[0], caption_statistics(held.texts()))


def distance(one: Mapping[Any, float], other: Mapping[Any, float]) -> float:
    """The total variation distance of two distributions: the share that would have to move to make one the other.

        d(p, q) = ½ Σ_x |p(x) - q(x)|

    >>> distance({"noun": 0.5, "verb": 0.5}, {"noun": 0.75, "verb": 0.25})
    0.25
    """
    return sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in {*one, *other}) / 2


def length_quantile(found: CaptionStatistics, q: float) -> int:
    """The smallest length that at least this share of the captions does not exceed.

    >>> length_quantile(caption_statistics(["A dog.", "A cat.", "Two dogs on a couch."]), 0.5)
    2
    """
    lengths = np.asarray(list(found.lengths), dtype=np.int64)
    reached = np.cumsum(list(found.lengths.values()))
    return int(lengths[np.searchsorted(reached, q * found.captions - 1e-9)])


def statistics_table(found: Compared) -> Table:
    """A line for each number, a column for the benchmark and one for its source."""
    both = found.both
    rows: list[tuple[str, ...]] = [
        ("examples", *(f"{d.examples:,}" for d in both)),
        ("unique images", *(NONE if d.images is None else f"{d.images:,}" for d in both)),
        ("unique captions", *(f"{d.texts.unique:,}" for d in both)),
        ("words per caption", *(f"{d.texts.mean_length:.2f}" for d in both)),
        *(
            ("  median" if q == 0.5 else f"  {100 * q:.0f} % quantile", *(str(length_quantile(d.texts, q)) for d in both))
            for q in QUANTILES
        ),
        ("vocabulary", *(f"{len(d.texts.vocabulary):,}" for d in both)),
    ]
    if found.reused is not None and found.known is not None:
        rows.append(("  shared, % of the other's", f"{100 * found.reused:.1f}", f"{100 * found.known:.1f}"))
    parts = [part for part in found.benchmark.texts.parts if any(d.texts.parts[part] for d in both)]
    rows += [("% of the words", *([""] * len(both)))]
    rows += [(f"  {part}", *(f"{100 * d.texts.parts[part]:.1f}" for d in both)) for part in parts]
    return Table("What the captions are like", (("", *(d.name for d in both)),), tuple(rows), 1, _notes(found))


def as_json(found: Compared) -> dict[str, Any]:
    """For JSON; shares are fractions."""
    told = {key: getattr(found, key) for key in ("reused", "known", "lengths", "parts")}
    return {
        "sets": [
            {
                "name": d.name,
                "examples": d.examples,
                "unique_images": d.images,
                "unique_captions": d.texts.unique,
                "words": d.texts.words,
                "mean_length": d.texts.mean_length,
                "length_quantiles": {str(q): length_quantile(d.texts, q) for q in QUANTILES},
                "lengths": {str(length): times for length, times in d.texts.lengths.items()},
                "parts_of_speech": dict(d.texts.parts),
                "vocabulary": len(d.texts.vocabulary),
            }
            for d in found.both
        ],
        **({} if found.source is None else {"compared": told}),
    }


def _notes(found: Compared) -> tuple[str, ...]:
    notes = ["a word is a token with a letter or a digit; parts of speech are those of a tagger, which errs now and then"]
    if found.source is not None and found.lengths is not None and found.parts is not None:
        longer = found.benchmark.texts.mean_length - found.source.texts.mean_length
        told = f"captions are {abs(longer):.2f} words {'longer' if longer > 0 else 'shorter'} than in the source"
        apart = f"total variation distance of lengths {100 * found.lengths:.1f} %, of parts of speech {100 * found.parts:.1f} %"
        notes.insert(0, f"{told}; {apart}")
    return tuple(notes)


def _source(source: str, task: str, data: Loaded, options: Mapping[str, str]) -> Described:
    if source == REFERENCES:
        return _references(task, data)
    path = Path(source)
    if path.suffix.lower() in READERS and ":" not in source:
        if not path.is_file():
            raise WrongWords(f"there is no file {path} of captions to compare with. Check the path.")
        texts = read_texts(path)
        return Described(path.name, len(texts), None, caption_statistics(texts))
    declared, chosen = benchmark_named(source, {})
    mine = {key: value for key, value in options.items() if key in declared.options}  # diorama: the same size and split
    return described(source, declared.loaded(**{**mine, **chosen}))


def _references(task: str, data: Loaded) -> Described:
    held = data.references if isinstance(data, Trials) else None
    if not held:
        raise CrossmatchError(
            f"{task} knows no captions of its images. Name the source by a task ({', '.join(list(benchmarks())[:2])}, …) or a file."
        )
    texts = [text for said in held.values() for text in said]
    return Described(f"captions of {len(held):,} of its images", len(texts), len(held), caption_statistics(texts))
