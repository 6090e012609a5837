"""Data shapes: how retrieval, similarity and trials are grouped, scored and counted.

`SHAPES` has one implementation of `Shape` for each type of data. Nothing else in `evaluate` asks for the type of the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from crossmatch.data.arrays import IdArray, IntArray
from crossmatch.data.benchmark import LoadedData, Relevance, Retrieval, canonical_order, sort_canonically
from crossmatch.data.collection import SIDES, Collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.judgements import Judgements
from crossmatch.data.plausible_matches import PlausibleMatches
from crossmatch.data.rank_counts import CountsAtK, RankCounts, add_absent_positives
from crossmatch.data.result import ResultPart
from crossmatch.data.scores import Run, Scores
from crossmatch.data.similarity import RatedPairs, Similarity
from crossmatch.data.trials import Trials
from crossmatch.evaluation.score import score_collection, score_trials
from crossmatch.evaluation.trial_parts import build_trial_parts
from crossmatch.models.abilities import ImageEncoder, TextEncoder, list_abilities
from crossmatch.ranking.counts_at_k import CutoffRequest
from crossmatch.ranking.ranks_in_run import count_ranks_in_run, look_up_run_scores
from crossmatch.ranking.sweep import RankRequest, score_pairs, sweep

if TYPE_CHECKING:
    from crossmatch.evaluation.options import EvaluationOptions
    from crossmatch.evaluation.plan import Task

Counts = RankCounts | CountsAtK
Request = RankRequest | CutoffRequest
DataT = TypeVar("DataT", contravariant=True)

ONE_SIDED_DIRECTIONS: Mapping[tuple[str, ...], str] = {("embed texts",): "t2t", ("embed images",): "i2i"}


@dataclass(frozen=True, eq=False)
class TaskEvidence:
    """What was counted for a task."""

    data: LoadedData  # in canonical order; trials without those that the model did not answer
    parts: Mapping[str, ResultPart]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class PlannedPart:
    """A part of a retrieval or similarity task; `relevance` is None for similarity."""

    name: str
    direction: str
    relevance: Relevance | None


class CountedPart(NamedTuple):
    """A planned part, its request to the ranking, and the counts."""

    part: PlannedPart
    request: Request
    counts: Counts


class Shape(Protocol[DataT]):
    """How data of one shape is evaluated."""

    item_noun: str

    def image_ids(self, data: DataT) -> list[str]:
        """The distinct ids of all images, sorted."""

    def captions(self, data: DataT) -> Sequence[str]:
        """All captions."""

    def image_opener(self, data: DataT) -> Any:
        """The function that opens images, or None."""

    def item_count(self, data: DataT) -> int:
        """The number of captions or trials."""

    def group_key(self, model: object, data: DataT) -> object:
        """Tasks with equal keys are evaluated in one pass; None for a task of its own."""

    def collect_evidence(
        self, model: object, tasks: Sequence[Task], options: EvaluationOptions, allow_extra: bool
    ) -> list[TaskEvidence]:
        """Score and count a group of tasks in one pass."""

    def protocol_facts(self, data: DataT) -> dict[str, object]:
        """Facts for the signature."""


class CollectionShape:
    """Common part of retrieval and similarity: tasks on one collection share one embedding pass and one sweep."""

    item_noun = "captions"

    def image_ids(self, data: Retrieval | Similarity) -> list[str]:
        ids: list[str] = np.unique(data.collection.image_ids).tolist()
        return ids

    def captions(self, data: Retrieval | Similarity) -> Sequence[str]:
        return data.collection.captions

    def image_opener(self, data: Retrieval | Similarity) -> Any:
        return data.collection.open_image

    def item_count(self, data: Retrieval | Similarity) -> int:
        return data.collection.shape[1]

    def group_key(self, model: object, data: Retrieval | Similarity) -> object:
        """Ids and texts in canonical order, and the image opener: equal for collections of the same items in any order."""
        collection = data.collection
        order = np.argsort(collection.caption_ids, kind="stable")
        texts = tuple(collection.captions[n] for n in order.tolist()) if collection.captions else ()
        opener = None if collection.open_image is None else id(collection.open_image)
        return np.sort(collection.image_ids).tobytes(), collection.caption_ids[order].tobytes(), texts, opener

    def collect_evidence(
        self, model: object, tasks: Sequence[Task], options: EvaluationOptions, allow_extra: bool
    ) -> list[TaskEvidence]:
        return collect_collection_evidence(model, tasks, options, allow_extra)


class RetrievalShape(CollectionShape):
    """Retrieval: one part for each direction and set of judgements."""

    def plan_parts(self, task: Task, data: Retrieval) -> list[PlannedPart]:
        """Plan a part for each direction and set of judgements. A direction with one set has no suffix."""
        pairs = [
            (direction, name)
            for direction in task.benchmark.directions
            for name, relevance in data.judgements.items()
            if direction in relevance.directions
        ]
        directions = [direction for direction, _ in pairs]
        return [
            PlannedPart(d if directions.count(d) == 1 else f"{d}/{name}", d, data.judgements[name]) for d, name in pairs
        ]  # fmt: skip

    def build_parts(self, data: Retrieval, counted: Sequence[CountedPart], scores: Scores) -> dict[str, ResultPart]:
        parts: dict[str, ResultPart] = {}
        for part, request, counts in counted:
            if isinstance(part.relevance, PlausibleMatches):
                assert isinstance(request, CutoffRequest)
                assert isinstance(counts, CountsAtK)
                parts |= _plausible_parts(part.name, part.relevance, data.collection, request, counts)
            else:
                assert isinstance(part.relevance, Judgements)
                assert isinstance(counts, RankCounts)
                parts[part.name] = _judged_part(part.relevance, part.direction, data.collection, counts)
        return parts

    def notes(self, data: Retrieval) -> tuple[str, ...]:
        """How many positives each incomplete set of judgements misses, and how many are not in the gallery."""
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
        return coverage + absent

    def protocol_facts(self, data: Retrieval) -> dict[str, object]:
        return {}


class SimilarityShape(CollectionShape):
    """Similarity: one part with the scores of all rated pairs."""

    def plan_parts(self, task: Task, data: Similarity) -> list[PlannedPart]:
        return [PlannedPart(data.direction, data.direction, None)]

    def build_parts(self, data: Similarity, counted: Sequence[CountedPart], scores: Scores) -> dict[str, ResultPart]:
        query, item = data.query, data.item
        if isinstance(scores, Run):
            model_scores = look_up_run_scores(scores, data.collection, data.direction, query, item)
        else:
            model_scores = score_pairs(scores, query, item, data.direction)
        ids, clusters = _ids_and_clusters(data.collection, data.direction, query)
        return {"": ResultPart(ids, clusters, RatedPairs(query.copy(), data.judgements.grades.copy(), model_scores))}

    def notes(self, data: Similarity) -> tuple[str, ...]:
        return ()

    def protocol_facts(self, data: Similarity) -> dict[str, object]:
        return {"query": SIDES[data.direction][0]}


class TrialsShape:
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

    def protocol_facts(self, data: Trials) -> dict[str, object]:
        return {}


COLLECTION_SHAPES: Mapping[type, Any] = {Retrieval: RetrievalShape(), Similarity: SimilarityShape()}
SHAPES: Mapping[type, Shape[Any]] = {**COLLECTION_SHAPES, Trials: TrialsShape()}


def shape_of(data: LoadedData) -> Shape[Any]:
    """Return the implementation for the type of data."""
    return SHAPES[type(data)]


def collect_collection_evidence(
    model: object, tasks: Sequence[Task], options: EvaluationOptions, allow_extra: bool
) -> list[TaskEvidence]:
    """Score a collection once, count all that its tasks need in one sweep, and build the parts of each task."""
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
    requests = {
        (n, part.name): _make_request(part.relevance, part.direction)
        for n, parts in enumerate(planned)
        for part in parts
        if part.direction in directions and part.relevance is not None
    }
    counts = count_requests(scores, collection, requests)
    model_notes = tuple(getattr(model, "notes", ()))
    evidence = []
    for n, (data, shape) in enumerate(zip(datasets, shapes, strict=True)):
        omitted = [part.name for part in planned[n] if part.direction not in directions]
        omitted_note = (f"not evaluated, because the scores lack this direction: {', '.join(omitted)}",) if omitted else ()
        keys = [(part, (n, part.name)) for part in planned[n] if (n, part.name) in requests]
        parts = shape.build_parts(data, [CountedPart(part, requests[key], counts[key]) for part, key in keys], scores)
        evidence.append(TaskEvidence(data, parts, omitted_note + shape.notes(data) + model_notes))
    return evidence


def scored_directions(scores: Scores, collection: Collection) -> Sequence[str]:
    """Return the directions in which there are scores."""
    if isinstance(scores, Run):
        return [direction for direction in SIDES if scores.is_in_direction(collection, direction).any()]
    return scores.directions


def count_requests(
    scores: Scores, collection: Collection, requests: Mapping[tuple[int, str], Request]
) -> Mapping[tuple[int, str], Counts]:
    """Count the ranks and cutoffs of all requests in one pass over the scores."""
    if not isinstance(scores, Run):
        return sweep(scores, requests)
    counts = {}
    for key, request in requests.items():
        if isinstance(request, CutoffRequest):
            raise CrossmatchError("plausible matches need deeper rankings than a run file has. Give embeddings or a matrix.")
        counts[key] = count_ranks_in_run(scores, collection, request.direction, request.lists)
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


def _make_request(relevance: Relevance, direction: str) -> Request:
    """Ask for the ranks of judged candidates, or for counts at the cutoffs of plausible matches."""
    if isinstance(relevance, PlausibleMatches):
        return CutoffRequest.from_plausible_matches(relevance, direction)
    return RankRequest(direction, relevance.candidate_lists(direction))


def _judged_part(relevance: Judgements, direction: str, collection: Collection, rank_counts: RankCounts) -> ResultPart:
    counts = add_absent_positives(rank_counts, relevance.absent_positives)
    queries, folds = counts.lists.query, counts.lists.folds
    ids, clusters = _ids_and_clusters(collection, direction, queries)
    query_folds = None if folds is None else folds[0][queries]
    return ResultPart(ids, clusters, counts, relevance.positive, relevance.complete, folds=query_folds)


def _plausible_parts(
    name: str, relevance: PlausibleMatches, collection: Collection, request: CutoffRequest, counts: CountsAtK
) -> dict[str, ResultPart]:
    """One part for each zeta, and one for their mean."""
    ids, clusters = _ids_and_clusters(collection, request.direction, request.query)
    counts = replace(counts, caps=relevance.caps)
    evidence = {f"{name}/zeta={zeta}": counts.select_zetas([n]) for n, zeta in enumerate(relevance.zetas)}
    evidence[f"{name}/mean"] = counts
    return {key: ResultPart(ids, clusters, part_counts, complete=True) for key, part_counts in evidence.items()}


def _ids_and_clusters(collection: Collection, direction: str, queries: IntArray) -> tuple[IdArray, IntArray]:
    """Return the ids of queries, and their clusters: captions of one image are not independent."""
    side = SIDES[direction][0]
    clusters = np.arange(collection.shape[0]) if side == "image" else collection.caption_owners()
    return collection.ids(side)[queries], clusters[queries]
