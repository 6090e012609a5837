"""Benchmarks: declarations of what to load, which metrics to report, and which counts are expected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.loaded_data import LoadedData
from crossmatch.data.rated_pairs import RatedCollection, Similarity
from crossmatch.data.trials import Trials


@dataclass(frozen=True)
class ExpectedCount:
    """The expected numbers of queries and positives of a benchmark."""

    queries: int
    positives: int


@dataclass(frozen=True)
class Benchmark:
    """A named declaration of a benchmark.

    Attributes:
        name: The name of the task.
        description: One line for the list of tasks.
        loader: Loads the data; takes the options as keyword arguments.
        metrics: Names of the metrics to report.
        directions: The directions to evaluate.
        options: The options of the loader, with their defaults.
        expected_counts: For `direction/judgements` (or `trials`) the counts expected with the default options.
        licence: The licence of the data.
        cite: Key of the source in the bibliography.
        categories: The known categories of trials; any other is an error. Empty if they are not known.
        check_options: Options that check the data and change nothing.
        can_skip_bad: Whether the loader takes `bad="skip"` and then leaves out empty captions.
        ratings_loader: Loads the ratings of pairs that the data come from; takes the same options. None if there are none.

    >>> from crossmatch import Benchmark, Diorama, Judgements, Retrieval, evaluate
    >>> collection = Diorama.make("test", size="tiny").collection
    >>> data = Retrieval(collection, {"links": Judgements.from_links(collection)})
    >>> task = Benchmark("mine", "50 scenes", lambda: data, ("hit@1", "hit@10"))
    >>> evaluate("random", task, samples=100)
    Result(random on mine: i2t/hit@1 2.0, i2t/hit@10 14.0, t2i/hit@1 2.0, t2i/hit@10 17.2)
    """

    name: str
    description: str
    loader: Callable[..., LoadedData]
    metrics: tuple[str, ...]
    directions: tuple[str, ...] = ("i2t", "t2i")
    options: Mapping[str, str] = field(default_factory=dict)
    expected_counts: Mapping[str, ExpectedCount] = field(default_factory=dict)
    licence: str = ""
    cite: str = ""
    categories: tuple[str, ...] = ()
    check_options: tuple[str, ...] = ()
    can_skip_bad: bool = False
    ratings_loader: Callable[..., RatedCollection] | None = None

    def load(self, skip_bad: bool = False, /, **options: str) -> LoadedData:
        """Load the data, and check its counts if all options have their defaults.

        Args:
            skip_bad: Whether to leave out empty captions, if the benchmark `can_skip_bad`.
            options: Options of the benchmark.

        Raises:
            UsageError: The benchmark has no such option.
            CrossmatchError: The data is not what the benchmark declares.
        """
        self._require_known(options)
        data = self.loader(**{**self.options, **options}, **({"bad": "skip"} if skip_bad and self.can_skip_bad else {}))
        if self.categories and isinstance(data, Trials):
            _require_categories(data, self.categories, self.name)
        if {**self.options, **options} == dict(self.options):
            for key, expected in self.expected_counts.items():
                count = _count(data, key)
                if count != expected:
                    raise CrossmatchError(
                        f"{self.name} {key} has {count}, expected {expected}. The files are not the official ones: download them "
                        "again."
                    )
        return data

    def load_ratings(self, **options: str) -> RatedCollection:
        """Load the ratings of pairs.

        Raises:
            UsageError: The benchmark has no ratings, or no such option.
        """
        self._require_known(options)
        if self.ratings_loader is None:
            raise UsageError(
                f"{self.name} has no ratings of pairs. Use cxc, diorama/cxc, one of their parts such as cxc-sts, or collection:FOLDER."
            )
        return self.ratings_loader(**{**self.options, **options})

    def _require_known(self, options: Mapping[str, str]) -> None:
        unknown = set(options) - set(self.options)
        if unknown:
            accepted = ", ".join(self.options) or "none"
            raise UsageError(f"{self.name} has no option {sorted(unknown)[0]!r}; it takes: {accepted}.")


def _require_categories(trials: Trials, categories: tuple[str, ...], name: str) -> None:
    unknown = np.flatnonzero(~np.isin(trials.categories, categories))
    if len(unknown):
        raise CrossmatchError(
            f"Trial {str(trials.ids[unknown[0]])!r} of {name} has the category {str(trials.categories[unknown[0]])!r}; expected "
            f"one of {', '.join(categories)}. Correct it."
        )


def _count(data: LoadedData, key: str) -> ExpectedCount:
    if isinstance(data, Trials):
        return ExpectedCount(len(data.ids), len(data.ids))
    if isinstance(data, Similarity):
        return ExpectedCount(len(np.unique(data.query)), len(data.query))
    direction, name = key.split("/")
    return ExpectedCount(*data.judgements[name].count_queries_and_positives(direction))
