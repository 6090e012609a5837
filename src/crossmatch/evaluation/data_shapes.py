"""Data shapes: how retrieval, similarity and trials are grouped, scored and counted.

`SHAPES` has one implementation of `Shape` for each type of data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from crossmatch.data.arrays import IdArray, IntArray
from crossmatch.data.collection import SIDES, Collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import LoadedData, Relevance, Retrieval, canonical_order, sort_canonically
from crossmatch.data.rank_counts import CountsAtK, CutoffRequest, RankCounts, RankRequest
from crossmatch.data.rated_pairs import RatedPairs, Similarity
from crossmatch.data.result import ResultPart
from crossmatch.data.scores import Run, Scores
from crossmatch.data.trials import Trials
from crossmatch.evaluation.model_scores import score_collection, score_trials
from crossmatch.evaluation.trial_parts import build_trial_parts
from crossmatch.models.abilities import ImageEncoder, TextEncoder, list_abilities
from crossmatch.ranking.ranks_in_run import count_ranks_in_run, look_up_run_scores
from crossmatch.ranking.sweep import score_pairs, sweep

if TYPE_CHECKING:
    from crossmatch.evaluation.options import EvaluationOptions
    from crossmatch.evaluation.plan import Task

Request = RankRequest | CutoffRequest
DataT = TypeVar("DataT", Retrieval, Similarity, Trials)
CollectionDataT = TypeVar("CollectionDataT", Retrieval, Similarity)

ONE_SIDED_DIRECTIONS: Mapping[tuple[str, ...], str] = {("embed texts",): "t2t", ("embed images",): "i2i"}


@dataclass(frozen=True, eq=False)
class TaskEvidence:
    """What was counted for a task."""

    data: LoadedData  # in canonical order; trials without those that the model did not answer
    parts: Mapping[str, ResultPart]
    notes: tuple[str, ...] = ()


class PlannedPart(NamedTuple):
    """A direction of a retrieval or similarity task, with a set of judgements in retrieval."""

    direction: str
    judgements: str = ""  # the name of the set, if the direction has several
    relevance: Relevance | None = None

    @property
    def name(self) -> str:
        return _join(self.direction, self.judgements)


class CountedPart(NamedTuple):
    """A planned part with judgements, its request to the ranking, and the counts."""

    part: PlannedPart
    relevance: Relevance
    request: Request
    counts: Any  # `RankCounts` or `CountsAtK`, according to the request


class Shape(ABC, Generic[DataT]):
    """How data of one shape is evaluated."""

    item_noun: str

    @abstractmethod
    def image_ids(self, data: DataT) -> list[str]:
        """The distinct ids of all images, sorted."""

    @abstractmethod
    def captions(self, data: DataT) -> Sequence[str]:
        """All captions."""

    @abstractmethod
    def image_opener(self, data: DataT) -> Any:
        """The function that opens images, or None."""

    @abstractmethod
    def item_count(self, data: DataT) -> int:
        """The number of captions or trials."""

    @abstractmethod
    def group_key(self, model: object, data: DataT) -> object:
        """Tasks with equal keys are evaluated in one pass; None for a task of its own."""

    @abstractmethod
    def collect_evidence(
        self, model: object, tasks: Sequence[Task], options: EvaluationOptions, allow_extra: bool
    ) -> list[TaskEvidence]:
        """Score and count a group of tasks in one pass."""

    def protocol_facts(self, data: DataT) -> dict[str, object]:
        """Facts for the signature."""
        return {}


class CollectionShape(Shape[CollectionDataT]):
    """Common part of retrieval and similarity: tasks on one collection share one embedding pass and one sweep."""

    item_noun = "captions"

    @abstractmethod
    def plan_parts(self, task: Task, data: CollectionDataT) -> list[PlannedPart]:
        """The parts of a task, before anything is scored."""

    @abstractmethod
    def build_parts(self, data: CollectionDataT, counted: Sequence[CountedPart], scores: Scores) -> dict[str, ResultPart]:
        """The evidence of a task by part."""

    def notes(self, data: CollectionDataT) -> tuple[str, ...]:
        """Notes about the data."""
        return ()

    def image_ids(self, data: CollectionDataT) -> list[str]:
        ids: list[str] = np.unique(data.collection.image_ids).tolist()
        return ids

    def captions(self, data: CollectionDataT) -> Sequence[str]:
        return data.collection.captions

    def image_opener(self, data: CollectionDataT) -> Any:
        return data.collection.open_image

    def item_count(self, data: CollectionDataT) -> int:
        return data.collection.shape[1]

    def group_key(self, model: object, data: CollectionDataT) -> object:
        """Ids and texts in canonical order, and the image opener: equal for collections of the same items in any order."""
        collection = data.collection
        order = np.argsort(collection.caption_ids, kind="stable")
        texts = tuple(collection.captions[n] for n in order.tolist()) if collection.captions else ()
        opener = None if collection.open_image is None else id(collection.open_image)
        return np.sort(collection.image_ids).tobytes(), collection.caption_ids[order].tobytes(), texts, opener

    def collect_evidence(
        self, model: object, tasks: Sequence[Task], options: EvaluationOptions, allow_extra: bool
    ) -> list[TaskEvidence]:
        """Score a collection once, count all that its tasks need in one sweep, and build the parts of each task.

        The tasks may be of both shapes.
        """
        datasets = _sort_datasets([task.data for task in tasks])
        shapes = [COLLECTION_SHAPES[type(data)] for data in datasets]
        planned = [shape.plan_parts(task, data) for shape, task, data in zip(shapes, tasks, datasets, strict=True)]
        one_sided = ONE_SIDED_DIRECTIONS.get(list_abilities(model))
        if one_sided is not None:  # fail before anything is embedded
            _require_directions(tasks, planned, (one_sided,), _one_sided_hint((one_sided,)))
        scores = score_collection(
            model, datasets[0], options.batch, allow_extra=allow_extra, cache=options.cache, workers=options.workers
        )  # fmt: skip
        collection, directions = datasets[0].collection, scored_directions(scores, datasets[0].collection)
        is_run = isinstance(scores, Run)
        _require_directions(
            tasks, planned, directions, "Check the direction of the run file." if is_run else _one_sided_hint(directions)
        )
        requested = [
            (n, part, relevance, relevance.request(part.direction))
            for n, parts in enumerate(planned)
            for part in parts
            if part.direction in directions and (relevance := part.relevance) is not None
        ]
        counts = count_requests(scores, collection, [request for *_, request in requested])
        counted = [
            (n, CountedPart(part, relevance, request, part_counts))
            for (n, part, relevance, request), part_counts in zip(requested, counts, strict=True)
        ]
        model_notes = tuple(getattr(model, "notes", ()))
        evidence = []
        for n, (data, shape) in enumerate(zip(datasets, shapes, strict=True)):
            omitted = [part.name for part in planned[n] if part.direction not in directions]
            omitted_note = (f"not evaluated, because the scores lack this direction: {', '.join(omitted)}",) if omitted else ()
            parts = shape.build_parts(data, [part for task_number, part in counted if task_number == n], scores)
            evidence.append(TaskEvidence(data, parts, omitted_note + shape.notes(data) + model_notes))
        return evidence


class RetrievalShape(CollectionShape[Retrieval]):
    """Retrieval: one part for each direction and set of judgements."""

    def plan_parts(self, task: Task, data: Retrieval) -> list[PlannedPart]:
        """Plan a part for each direction and set of judgements. A direction with one set does not name it."""
        planned = []
        for direction in task.benchmark.directions:
            sets = {name: relevance for name, relevance in data.judgements.items() if direction in relevance.directions}
            planned += [PlannedPart(direction, name if len(sets) > 1 else "", relevance) for name, relevance in sets.items()]
        return planned

    def build_parts(self, data: Retrieval, counted: Sequence[CountedPart], scores: Scores) -> dict[str, ResultPart]:
        parts: dict[str, ResultPart] = {}
        for part, relevance, request, counts in counted:
            ids, clusters = _ids_and_clusters(data.collection, part.direction, request.query)
            for name, evidence in relevance.evidence(counts).items():
                judgements = _join(part.judgements, name)
                parts[_join(part.direction, judgements)] = ResultPart(
                    ids, clusters, evidence, relevance.positive, relevance.complete, folds=request.query_folds,
                    direction=part.direction, judgements=judgements,
                )  # fmt: skip
        return parts

    def notes(self, data: Retrieval) -> tuple[str, ...]:
        """Notes of the data and its judgements, how many positives each incomplete set misses, and how many are not in the gallery."""
        judged = {name: relevance for name, relevance in data.judgements.items() if isinstance(relevance, Judgements)}
        complete = next((j for j in judged.values() if j.complete), None)
        coverage = tuple(
            f"{name} contain {j.positive_count:,} of the {complete.positive_count:,} true pairs: "
            f"{100 * (1 - j.positive_count / complete.positive_count):.1f} % of the positives are missing from them"
            for name, j in judged.items()
            if complete is not None and not j.complete
        )
        absent = tuple(
            f"{len(j.absent_positives)} positives of {name} are not in the gallery; they count as never found, as in the "
            "official code"
            for name, j in judged.items()
            if j.absent_positives
        )
        return data.notes + tuple(j.note for j in judged.values() if j.note) + coverage + absent


class SimilarityShape(CollectionShape[Similarity]):
    """Similarity: one part with the scores of all rated pairs."""

    def plan_parts(self, task: Task, data: Similarity) -> list[PlannedPart]:
        return [PlannedPart(data.direction)]

    def build_parts(self, data: Similarity, counted: Sequence[CountedPart], scores: Scores) -> dict[str, ResultPart]:
        query, item = data.query, data.item
        if isinstance(scores, Run):
            model_scores = look_up_run_scores(scores, data.collection, data.direction, query, item)
        else:
            model_scores = score_pairs(scores, query, item, data.direction)
        ids, clusters = _ids_and_clusters(data.collection, data.direction, query)
        return {"": ResultPart(ids, clusters, RatedPairs(query.copy(), data.judgements.grades.copy(), model_scores))}

    def notes(self, data: Similarity) -> tuple[str, ...]:
        return (data.judgements.note,) if data.judgements.note else ()

    def protocol_facts(self, data: Similarity) -> dict[str, object]:
        return {"query": SIDES[data.direction][0]}


class TrialsShape(Shape[Trials]):
    """Trials. Encoders embed the items of all tasks with one image opener once; other models score task by task."""

    item_noun = "trials"

    def image_ids(self, data: Trials) -> list[str]:
        ids: list[str] = np.unique(data.images).tolist()
        return ids

    def captions(self, data: Trials) -> Sequence[str]:
        captions: list[str] = data.captions.ravel().tolist()
        return captions

    def image_opener(self, data: Trials) -> Any:
        return data.open_image

    def item_count(self, data: Trials) -> int:
        return len(data.ids)

    def group_key(self, model: object, data: Trials) -> object:
        if isinstance(model, ImageEncoder | TextEncoder) and data.open_image:
            return "trials", id(data.open_image)
        return None

    def collect_evidence(
        self, model: object, tasks: Sequence[Task], options: EvaluationOptions, allow_extra: bool
    ) -> list[TaskEvidence]:
        all_trials = [trials for task in tasks if isinstance(trials := sort_canonically(task.data), Trials)]
        answers = score_trials(
            model, all_trials, options.batch, allow_extra=allow_extra, allow_missing=options.partial, cache=options.cache,
            workers=options.workers,
        )  # fmt: skip
        notes_on = getattr(model, "notes_on", lambda trials: ())
        evidence = []
        for trials, (answered, outcomes) in zip(all_trials, answers, strict=True):
            parts, notes = build_trial_parts(trials, answered, outcomes)
            evidence.append(TaskEvidence(answered, parts, notes + notes_on(answered)))
        return evidence


COLLECTION_SHAPES: Mapping[type, CollectionShape[Any]] = {Retrieval: RetrievalShape(), Similarity: SimilarityShape()}
SHAPES: Mapping[type, Shape[Any]] = {**COLLECTION_SHAPES, Trials: TrialsShape()}


def shape_of(data: LoadedData) -> Shape[Any]:
    """Return the implementation for the type of data."""
    return SHAPES[type(data)]


def scored_directions(scores: Scores, collection: Collection) -> Sequence[str]:
    """Return the directions in which there are scores."""
    if isinstance(scores, Run):
        return [direction for direction in SIDES if scores.is_in_direction(collection, direction).any()]
    return scores.directions


def count_requests(scores: Scores, collection: Collection, requests: Sequence[Request]) -> list[RankCounts | CountsAtK]:
    """Count the ranks and cutoffs of all requests in one pass over the scores."""
    if not isinstance(scores, Run):
        return list(sweep(scores, dict(enumerate(requests))).values())
    counts: list[RankCounts | CountsAtK] = []
    for request in requests:
        if isinstance(request, CutoffRequest):
            raise CrossmatchError("plausible matches need deeper rankings than a run file has. Give embeddings or a matrix.")
        counts.append(count_ranks_in_run(scores, collection, request.direction, request.lists))
    return counts


def _sort_datasets(datasets: Sequence[LoadedData]) -> list[Any]:
    """Put the items of all data in canonical order; a collection that tasks share is sorted once."""
    sorted_datasets = []
    shared: dict[int, tuple[tuple[IntArray, IntArray], Collection]] = {}
    for data in datasets:
        if isinstance(data, Trials):
            raise TypeError("trials have no collection")
        collection = data.collection
        if id(collection) not in shared:
            order = canonical_order(collection)
            shared[id(collection)] = order, collection.select(*order)
        order, sorted_collection = shared[id(collection)]
        sorted_datasets.append(data.select(*order, collection=sorted_collection))
    return sorted_datasets


def _require_directions(
    tasks: Sequence[Task], planned: Sequence[Sequence[PlannedPart]], directions: Sequence[str], hint: str
) -> None:
    """Raise an error for a task whose directions have no scores."""
    for task, parts in zip(tasks, planned, strict=True):
        needed = dict.fromkeys(part.direction for part in parts)
        if not needed.keys() & set(directions):
            raise CrossmatchError(
                f"{task.benchmark.name} needs scores in {' and '.join(needed)}, but the model has them in "
                f"{' and '.join(directions) or 'no direction'} alone. {hint}"
            )


def _one_sided_hint(directions: Sequence[str]) -> str:
    """Say what a model of texts only, or of images only, can be evaluated on."""
    if len(directions) != 1:
        return "Give embeddings of both images and texts."
    return {
        "t2t": "A model of texts can run cxc (t2t) and cxc-sts, or diorama/cxc and diorama/sts, which need no data.",
        "i2i": "A model of images can run cxc (i2i) and cxc-sis, or diorama/cxc and diorama/sis, which need no data.",
    }.get(directions[0], "")


def _join(*names: str) -> str:
    """Join the names that are not empty by slashes."""
    return "/".join(filter(None, names))


def _ids_and_clusters(collection: Collection, direction: str, queries: IntArray) -> tuple[IdArray, IntArray]:
    """Return the ids of queries, and their clusters: captions of one image are not independent."""
    side = SIDES[direction][0]
    clusters = np.arange(collection.shape[0]) if side == "image" else collection.caption_owners()
    return collection.ids(side)[queries], clusters[queries]
