"""From a model to the evidence: what it says about a group of tasks, asked in one pass, and handed to each task as its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crossmatch.core.arrays import IdArray, IntArray
from crossmatch.core.benchmark import Benchmark, Loaded, Retrieval, canonical_order, in_order
from crossmatch.core.collection import SIDES, Collection
from crossmatch.core.cuts import Asked, Cuts
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.judgements import Judgements, Listed
from crossmatch.core.outcomes import Outcomes
from crossmatch.core.pairs import Pairs, Similarity
from crossmatch.core.plausible import Plausible
from crossmatch.core.result import Part
from crossmatch.core.runs import pairs_of_run, stand_run
from crossmatch.core.scores import Run, Scores
from crossmatch.core.standing import Standing, with_absent
from crossmatch.core.sweep import exact_scores, sweep
from crossmatch.core.trials import Trials
from crossmatch.inputs import animated, truncated
from crossmatch.models.abilities import ImageEncoder, TextEncoder, abilities, outcomes_of, scores_of
from crossmatch.models.cache import BATCH, ScoreCache

ONE_SIDED: Mapping[tuple[str, ...], str] = {("embed texts",): "t2t", ("embed images",): "i2i"}  # what such a model can answer
MACRO = "macro"  # the part in which every category counts the same
RESERVED = (MACRO, "all", "(none)")
MOST_CATEGORIES = 200
FEW = 30  # clusters, below which trials that share images are said to be few


@dataclass(frozen=True, eq=False)
class Task:
    """A benchmark with its data, and the options that it was loaded with."""

    declared: Benchmark
    data: Loaded
    options: Mapping[str, str]


def groups_of(model: object, tasks: Sequence[Task]) -> list[list[int]]:
    """Tasks on the same items go together, unless the model answers each benchmark for itself."""
    groups: dict[object, list[int]] = {}
    for n, task in enumerate(tasks):
        groups.setdefault(n if getattr(model, "by_task", False) else _shared(model, task, n), []).append(n)
    return list(groups.values())


def _shared(model: object, task: Task, n: int) -> object:
    """What tasks of one group have in common. Trials over the same pictures do only for a model that embeds each of them."""
    if not isinstance(task.data, Trials):
        return _items(task.data.collection)
    return ("trials", id(task.data.open_image)) if isinstance(model, ImageEncoder | TextEncoder) and task.data.open_image else n


def _items(held: Collection) -> tuple[object, ...]:
    """What two collections of the same items have in common, in whatever order: ids, texts, and where the pictures are."""
    order = np.argsort(held.caption_ids, kind="stable")
    texts = tuple(held.captions[n] for n in order.tolist()) if held.captions else ()
    ids = np.sort(held.image_ids).tobytes(), held.caption_ids[order].tobytes()
    return (*ids, texts, None if held.open_image is None else id(held.open_image))


Found = tuple[dict[str, Part], tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class Evidence:
    """The parts of a task, what must be said beside them, and counts of its input, where there is something to say."""

    parts: Mapping[str, Part]
    notes: tuple[str, ...]
    counts: Mapping[str, int]


@dataclass(frozen=True)
class Asking:
    """How a model is asked.

    `limited` says that scores may be there of more items than are asked for, `partial` that trials may be left unanswered.
    `workers` threads open pictures, by default as many as the machine has cores to spare.
    """

    limited: bool = False
    partial: bool = False
    cache: ScoreCache | None = field(default=None, repr=False)
    batch: int = BATCH
    workers: int | None = None


def evidence_of(model: object, tasks: list[Task], asking: Asking) -> tuple[list[Task], list[Evidence]]:
    """The parts of each task of a group, from one pass; and the tasks with their data in canonical order."""
    shared, found = _found(model, tasks, asking)
    out = []
    for task, (parts, notes) in zip(shared, found, strict=True):
        cut, counts = truncated(model, task.data)
        out.append(Evidence(parts, notes + cut + animated(model, task.data), counts))
    return shared, out


def _found(model: object, tasks: list[Task], asking: Asking) -> tuple[list[Task], list[Found]]:
    how: dict[str, Any] = {"batch": asking.batch, "cache": asking.cache, "workers": asking.workers}
    if isinstance(tasks[0].data, Trials):
        held = [data for task in tasks if isinstance(data := in_order(task.data), Trials)]
        came = outcomes_of(model, held, limited=asking.limited, partial=asking.partial, **how)
        shared = [replace(task, data=answered) for task, (answered, _) in zip(tasks, came, strict=True)]
        notes_on = getattr(model, "notes_on", lambda trials: ())
        found = [_trials(whole, *answer) for whole, answer in zip(held, came, strict=True)]
        return shared, [(parts, notes + notes_on(answered)) for (parts, notes), (answered, _) in zip(found, came, strict=True)]
    ordered = _in_order(tasks)
    assert not isinstance(ordered[0].data, Trials)
    _require_able(model, ordered)
    said = scores_of(model, ordered[0].data, partial=asking.limited, **how)
    own = tuple(getattr(model, "notes", ()))
    return ordered, [(parts, notes + own) for parts, notes in _parts(said, ordered)]


def _in_order(tasks: list[Task]) -> list[Task]:
    """All tasks with their items in canonical order; a collection that tasks share is put in order once."""
    ordered = []
    shared: dict[int, tuple[tuple[IntArray, IntArray], Collection]] = {}
    for task in tasks:
        assert not isinstance(task.data, Trials)
        held = task.data.collection
        if id(held) not in shared:
            order = canonical_order(held)
            shared[id(held)] = order, held.reordered(*order)
        order, kept = shared[id(held)]
        ordered.append(replace(task, data=task.data.reordered(*order, collection=kept)))
    return ordered


def _parts(said: Scores, tasks: list[Task]) -> list[Found]:
    """Ask everything that the scores can answer at once, then hand each task its share."""
    held = tasks[0].data.collection  # type: ignore[union-attr]
    able = [d for d in SIDES if said.rows(held, d).any()] if isinstance(said, Run) else said.directions
    lists: dict[str, Listed] = {}
    cuts: dict[str, Asked] = {}
    wanted: list[dict[str, tuple[str, str]]] = []  # for each task: part -> (direction, judgements)
    for n, task in enumerate(tasks):
        asked = _asked(task)
        _require_some(said, able, asked, task)
        wanted.append({part: at for part, at in asked.items() if at[0] in able})
        for part, (direction, name) in wanted[-1].items():
            judged = task.data.judgements[name] if isinstance(task.data, Retrieval) else None
            if isinstance(judged, Judgements):
                lists[f"{direction}/{n}/{part}"] = judged.listed(direction)
            elif isinstance(judged, Plausible):
                cuts[f"{direction}/{n}/{part}"] = Asked.of(judged, direction)
    standings, above = _stand(said, held, lists, cuts)
    out: list[Found] = []
    for n, task in enumerate(tasks):
        left = [part for part in _asked(task) if part not in wanted[n]]
        notes: tuple[str, ...] = (f"not evaluated, for want of scores in that direction: {', '.join(left)}",) if left else ()
        if isinstance(task.data, Similarity):
            out.append(({"": _rated(said, task.data)}, notes))
            continue
        assert isinstance(task.data, Retrieval)
        parts: dict[str, Part] = {}
        for part, (direction, name) in wanted[n].items():
            key = f"{direction}/{n}/{part}"
            judged = task.data.judgements[name]
            if isinstance(judged, Judgements):
                parts[part] = _listed_part(task.data.collection, direction, judged, standings[key])
            else:
                parts |= _cut_parts(task.data.collection, direction, part, judged, cuts[key], above[key])
        out.append((parts, notes + _coverage(task.data) + _absent(task.data)))
    return out


def _asked(task: Task) -> dict[str, tuple[str, str]]:
    """The parts of a task: its directions, by each of its sets of judgements that has them."""
    if isinstance(task.data, Similarity):
        return {task.data.direction: (task.data.direction, "")}
    assert isinstance(task.data, Retrieval)
    pairs = [
        (d, name)
        for d in task.declared.directions
        for name, judged in task.data.judgements.items()
        if d in (judged.directions if isinstance(judged, Judgements) else ("i2t", "t2i"))
    ]
    alone = {d for d in task.declared.directions if sum(d == other for other, _ in pairs) == 1}
    return {d if d in alone else f"{d}/{name}": (d, name) for d, name in pairs}


def _require_able(model: object, tasks: Sequence[Task]) -> None:
    """Refuse, before anything is embedded, what a model of one side alone cannot answer."""
    only = ONE_SIDED.get(abilities(model))
    if only is not None:
        for task in tasks:
            _require_some(None, (only,), _asked(task), task)


def _require_some(said: Scores | None, able: Sequence[str], asked: Mapping[str, tuple[str, str]], task: Task) -> None:
    if any(direction in able for direction, _ in asked.values()):
        return
    needs = " and ".join(dict.fromkeys(direction for direction, _ in asked.values()))
    raise CrossmatchError(
        f"{task.declared.name} needs scores in {needs}, but the model has them in {' and '.join(able) or 'no direction'} alone. "
        + ("Check the direction of the run file." if isinstance(said, Run) else _remedy(able))
    )


def _remedy(able: Sequence[str]) -> str:
    """What a model that knows one side only can be asked."""
    one_sided = {
        "t2t": "A model of texts can run cxc (t2t) and cxc-sts, or diorama/cxc and diorama/sts, which need no data.",
        "i2i": "A model of images can run cxc (i2i) and cxc-sis, or diorama/cxc and diorama/sis, which need no data.",
    }
    return one_sided.get(able[0], "") if len(able) == 1 else "Embeddings of both sides would do."


def _stand(
    said: Scores, held: Collection, lists: dict[str, Listed], cuts: dict[str, Asked]
) -> tuple[dict[str, Standing], dict[str, Cuts]]:
    if not isinstance(said, Run):
        return sweep(said, lists, cuts)
    if cuts:
        raise CrossmatchError("plausible matches reach too far down for a run file. Give embeddings or a matrix.")
    return {key: stand_run(said, held, key.split("/")[0], listed) for key, listed in lists.items()}, {}


def _listed_part(held: Collection, direction: str, judged: Judgements, standing: Standing) -> Part:
    standing = with_absent(standing, judged.absent)
    queries = standing.listed.query
    ids, clusters = _queries(held, direction, queries)
    folds = standing.listed.folds[0][queries] if standing.listed.folds is not None else None
    return Part(ids, clusters, standing, judged.positive, judged.complete, folds=folds)


def _cut_parts(held: Collection, direction: str, part: str, judged: Plausible, asked: Asked, above: Cuts) -> dict[str, Part]:
    """A part for each zeta, and one for their mean."""
    ids, clusters = _queries(held, direction, asked.query)
    above = replace(above, caps=judged.caps)
    parts = {f"{part}/zeta={z}": Part(ids, clusters, above.chosen([n]), complete=True) for n, z in enumerate(judged.zetas)}
    return parts | {f"{part}/mean": Part(ids, clusters, above, complete=True)}


def _rated(said: Scores, data: Similarity) -> Part:
    query, item = data.query, data.item
    if isinstance(said, Run):
        model = pairs_of_run(said, data.collection, data.direction, query, item)
    else:
        model = exact_scores(said, query, item, data.direction)
    ids, clusters = _queries(data.collection, data.direction, query)
    return Part(ids, clusters, Pairs(query.copy(), data.said.grades.copy(), model))


def _queries(held: Collection, direction: str, queries: IntArray) -> tuple[IdArray, IntArray]:
    """The ids of queries, and the image that each belongs to: captions of one image are not independent."""
    side = SIDES[direction][0]
    clusters = np.arange(held.shape[0]) if side == "image" else held.owners()
    return held.ids(side)[queries], clusters[queries]


def _trials(trials: Trials, answered: Trials, outcomes: Outcomes) -> Found:
    """The outcomes of those trials that were answered: as a whole, by category, and as a mean over the categories."""
    clusters, n = answered.clusters, len(answered.ids)
    whole = Part(answered.ids, clusters, outcomes)
    parts = {"": whole}
    left = trials.notes + (f"partial: {n:,} of {len(trials.ids):,} trials were answered; never to be compared with all",) * (
        n < len(trials.ids)
    )
    groups = int(clusters.max()) + 1
    if groups < min(FEW, n):
        several = f"{groups} independent groups" if groups > 1 else "one group"
        left += (f"the {n:,} trials share images and form {several}, so intervals are wide; images of one trial only would help",)
    leaves, first, member = np.unique(answered.categories, return_index=True, return_inverse=True)
    if len(leaves) == 1:
        return parts, left
    if len(leaves) > MOST_CATEGORIES:
        return parts, (*left, f"{len(leaves):,} categories are too many to be told one by one")
    for leaf, at in zip(leaves.tolist(), first.tolist(), strict=True):
        _require_plain(leaf, str(answered.ids[at]))
    leaf_of = member.ravel().astype(np.int64)
    parts[MACRO] = replace(whole, folds=leaf_of)
    for name in _paths(leaves.tolist()):
        inside = np.array([f"{leaf}/".startswith(f"{name}/") for leaf in leaves.tolist()])
        chosen = np.flatnonzero(inside[leaf_of])
        parts[name or "(none)"] = Part(answered.ids[chosen], clusters[chosen], outcomes.chosen(chosen))
    return parts, left


def _require_plain(category: str, trial: str) -> None:
    """Refuse a category whose name would be mistaken for something else."""
    steps = category.split("/")
    if steps[0] in RESERVED or (category and not all(step.strip() for step in steps)):
        why = "is what a table calls something else" if steps[0] in RESERVED else "has an empty step between slashes"
        raise CrossmatchError(f"trial {trial!r} is of the category {category!r}, which {why}. Rename it.")


def _paths(leaves: Sequence[str]) -> list[str]:
    """Every category and those above it, each once, the wider before the narrower.

    >>> _paths(["add/obj", "replace/att", "replace/obj"])
    ['add', 'add/obj', 'replace', 'replace/att', 'replace/obj']
    """
    steps = [leaf.split("/") for leaf in leaves]
    found = dict.fromkeys("/".join(step[: n + 1]) for step in steps for n in range(len(step)))
    return sorted(found, key=lambda name: name.split("/"))


def _coverage(data: Retrieval) -> tuple[str, ...]:
    """How much of a complete set of judgements another one misses."""
    listed = {name: judged for name, judged in data.judgements.items() if isinstance(judged, Judgements)}
    full = next((n for n, j in listed.items() if j.complete), None)
    return tuple(
        f"{name} hold {judged.count:,} of the {listed[full].count:,} pairs that are true: "
        f"{100 * (1 - judged.count / listed[full].count):.1f} % of the positives are missing from them"
        for name, judged in listed.items()
        if full is not None and not judged.complete
    )


def _absent(data: Retrieval) -> tuple[str, ...]:
    """Positives that no model can find."""
    return tuple(
        f"{len(judged.absent)} positives of {name} are not in the gallery; they count as never found, as in the official code"
        for name, judged in data.judgements.items()
        if isinstance(judged, Judgements) and judged.absent
    )
