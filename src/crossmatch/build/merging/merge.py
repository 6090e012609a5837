"""Merge human answers, ratings and the links of a collection into one set of judgements (chun2022eccv, sec. 3.3 and app. C.1).

Meaningless, wrong and duplicate items are removed first (`removed_items`); then each pair gets one verdict (`pair_verdicts`). The
folder is a collection of its own, for `crossmatch run -t collection:FOLDER`:

    images/, captions.json   the remaining pictures, captions and links, in the layout of COCO
    judgements.csv           the verdicts: image_id, caption_id, grade 1 or 0, source; and the grade of each source
    removed.csv              removed items with the reason
    suspects.csv             links that some source graded negative: captions to check, and to list as wrong (app. C.1)
    rows.jsonl, manifest.json    the verdicts as rows of a step, and how they were made

If only some images and captions were queries, only their pairs were searched, and other queries would have few known positives.
In that case judgements name the `direction` they are valid for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crossmatch.benchmarks.formats.collection_writer import write_collection
from crossmatch.build.merging.pair_verdicts import (
    POSITIVE,
    JudgementSource,
    Pair,
    PairVerdict,
    count_disagreements,
    decide_pairs,
    links_as_source,
    name_uniquely,
    restrict_source,
)
from crossmatch.build.merging.removed_items import RemovedItems, find_removals, remove_items
from crossmatch.build.rating_files import JUDGEMENTS
from crossmatch.build.step_files import Row, StepOutput, StepSpec, read_rows, rows_hash, write_step
from crossmatch.build.step_inputs import collection_hash, pair_id, pictures_hash, sort_by_id
from crossmatch.data.collection import SIDES, Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.atomic_write import atomic_write
from crossmatch.data.io.spreadsheet_csv import format_csv
from crossmatch.data.judgements import ARTIFICIAL, LINKS

STEP = "merge"
SOURCE = "merged"
QUERY_POSITION = {"i2t": 0, "t2i": 1}  # position of the query in a pair (image, caption)
DIRECTIONS = tuple(QUERY_POSITION)

Queries = Mapping[str, frozenset[str]]  # query ids of each direction; a missing direction means all


@dataclass(frozen=True)
class MergedJudgements:
    """Merged judgements: the remaining collection, the sources, and a verdict for each pair."""

    collection: Collection
    sources: tuple[JudgementSource, ...]
    verdicts: Mapping[Pair, PairVerdict]
    queries: Queries
    removed: RemovedItems

    def is_query_pair(self, direction: str, pair: Pair) -> bool:
        """Whether the pair belongs to a query of this direction."""
        return direction not in self.queries or pair[QUERY_POSITION[direction]] in self.queries[direction]

    def suspects(self) -> dict[Pair, PairVerdict]:
        """Links that some source graded negative, for people to check (app. C.1)."""
        return {
            pair: verdict for pair, verdict in self.verdicts.items() if LINKS in verdict.grades and not all(verdict.votes.values())
        }


def merge_sources(
    collection: Collection,
    sources: Iterable[JudgementSource],
    *,
    rule: str = "any",
    links: bool = True,
    queries: Queries | None = None,
    removed: RemovedItems = RemovedItems(),  # noqa: B008 - frozen
) -> MergedJudgements:
    """Merge several sources, and the links of the collection unless `links` is false.

    >>> pets = Collection.from_captions({"cat": ["A cat.", "A pet."], "dog": ["A dog."]})
    >>> people = JudgementSource("us", "people", {("dog", "cat#1"): 1.0, ("cat", "dog#0"): 0.0}, 0.5)
    >>> [verdict.positive for verdict in merge_sources(pets, [people]).verdicts.values()]
    [True, True, False, True, True]
    """
    data = sort_by_id(collection)
    named = name_uniquely([*sources, *([links_as_source(data)] if links else [])])
    if not named:
        raise UsageError("Nothing to merge. Pass --answers or --ratings, or drop --no-links.")
    remaining = remove_items(data, removed)
    restricted = tuple(restrict_source(source, remaining, removed) for source in named)
    verdicts = decide_pairs(restricted, rule)
    if not any(verdict.positive for verdict in verdicts.values()):
        raise CrossmatchError("No pair is positive after merging. Check the thresholds and the removed items.")
    return MergedJudgements(remaining, restricted, verdicts, _remaining_queries(queries or {}, remaining, removed), removed)


def _remaining_queries(queries: Queries, remaining: Collection, removed: RemovedItems) -> Queries:
    """Queries that were not removed; a direction in which all items are queries is left out."""
    result = {}
    for direction, ids in queries.items():
        items = frozenset(remaining.ids(SIDES[direction][0]).tolist())
        query_ids = frozenset(removed.twins.get(name, name) for name in ids) & items
        if query_ids < items:
            result[direction] = query_ids
    return result


# -- counts


@dataclass(frozen=True)
class PositiveCount:
    """A line of chun2022eccv, Table 3: the positives of one source for the queries of a direction."""

    direction: str
    source: str
    queries: int  # with a positive by the merged judgements
    positives: int
    new: int  # positives that are not links
    negatives: int


def count_positives(merged: MergedJudgements) -> list[PositiveCount]:
    """Count the positives of each source, and of all together, in both directions."""
    links = next((set(source.grades) for source in merged.sources if source.kind == LINKS), set())
    labels = [(source.name, {pair: source.is_positive(pair) for pair in source.grades}) for source in reversed(merged.sources)]
    labels += [(SOURCE, {pair: verdict.positive for pair, verdict in merged.verdicts.items()})]
    lines = []
    for direction in DIRECTIONS:
        positives = (pair for pair, v in merged.verdicts.items() if v.positive and merged.is_query_pair(direction, pair))
        queries = len({pair[QUERY_POSITION[direction]] for pair in positives})
        for name, is_positive in labels:
            judged = {pair for pair in is_positive if merged.is_query_pair(direction, pair)}
            positive = {pair for pair in judged if is_positive[pair]}
            lines.append(PositiveCount(direction, name, queries, len(positive), len(positive - links), len(judged) - len(positive)))
    return lines


# -- the step


@dataclass(frozen=True)
class MergeOptions:
    """Options of a merge, as recorded in the manifest.

    Attributes:
        rule: When a pair with conflicting judgements is positive: if `any` source says so, if `all` do, or if the `first` does.
        links: Whether the links of the collection count where no other source judged a pair.
        find: Whether to look for meaningless captions and duplicate pictures, and remove them.

    >>> MergeOptions(rule="all")                            # a pair is positive only if all sources agree
    MergeOptions(rule='all', links=True, find=True)
    """

    rule: str = "any"
    links: bool = True
    find: bool = True


def write_merge(
    collection: Collection,
    sources: Sequence[JudgementSource],
    output: Path,
    *,
    options: MergeOptions = MergeOptions(),
    pool: Path | None = None,
    invalid: Sequence[str] = (),
    wrong: Sequence[str] = (),
    images: Sequence[str] = (),
    against: Collection | None = None,
) -> dict[str, Any]:
    """Merge judgements into a folder that is a collection of its own.

    Args:
        collection: The collection that was judged.
        sources: Answers and ratings; `crossmatch.build.merging.pair_verdicts.read_source` reads them from a file.
        output: Folder of the step.
        options: Rule for conflicts, use of links, search for items to remove.
        pool: Folder of the pool that was judged; its queries are the queries.
        invalid: Ids of meaningless captions to remove.
        wrong: Ids of wrong captions to remove.
        images: Ids of images to remove.
        against: A collection, such as a training set, whose pictures are removed.

    Returns:
        The manifest.

    >>> from crossmatch import Collection
    >>> from crossmatch.build import write_merge
    >>> from crossmatch.build.merging.pair_verdicts import JudgementSource
    >>> pets = Collection.from_captions({"cat": ["A cat.", "A pet."], "dog": ["A dog."]})
    >>> people = JudgementSource("us", "people", {("dog", "cat#1"): 1.0, ("cat", "dog#0"): 0.0}, positive=0.5)
    >>> counts = write_merge(pets, [people], folder / "merged")["counts"]
    >>> counts["i2t positives merged"], counts["i2t new"]   # three links, and the dog is a pet, too
    (4, 1)
    """
    sources = name_uniquely(sources)
    id_lists = {"invalid": sorted(invalid), "wrong": sorted(wrong), "images": sorted(images)}
    inputs = {"collection": collection_hash(sort_by_id(collection))}
    inputs |= {f"{source.kind} {source.name}": source.digest for source in sources}
    inputs |= {"pool": rows_hash(pool)} if pool else {}
    inputs |= {"pictures": digest} if (digest := pictures_hash(collection)) else {}
    if against is not None:
        inputs["against"] = collection_hash(sort_by_id(against))
        inputs |= {"pictures against": digest} if (digest := pictures_hash(against)) else {}
    thresholds = {source.name: source.positive for source in sources if source.positive != POSITIVE[source.kind]}
    recorded = asdict(options) | {key: ids for key, ids in id_lists.items() if ids}
    recorded |= {"positive": thresholds} if thresholds else {}

    # merged before the folder is created, so that bad input leaves nothing behind
    removed = find_removals(collection, invalid=invalid, wrong=wrong, images=images, find=options.find, against=against)
    queries = pool_queries(pool) if pool else {}
    merged = merge_sources(collection, sources, rule=options.rule, links=options.links, queries=queries, removed=removed)

    def make_rows(step: StepOutput) -> list[Row]:
        _write_collection_files(output, merged)
        _count_in_manifest(step, merged)
        return [_row(pair, verdict) for pair, verdict in merged.verdicts.items()]

    return write_step(output, StepSpec(STEP, inputs, recorded), make_rows)


def pool_queries(pool: Path) -> dict[str, frozenset[str]]:
    """Ids of the queries of a pool, by direction."""
    queries: dict[str, set[str]] = {}
    for row in read_rows(pool, "pool"):
        for direction in row.get("retrieved", {}):
            queries.setdefault(direction, set()).add((row["image_id"], row["caption_id"])[QUERY_POSITION[direction]])
    return {direction: frozenset(queries.get(direction, ())) for direction in DIRECTIONS}


def _row(pair: Pair, verdict: PairVerdict) -> Row:
    row = {"id": pair_id(*pair), "image_id": pair[0], "caption_id": pair[1], "grade": int(verdict.positive)}
    row |= {"said": dict(verdict.grades), "by": verdict.decided_by}
    return row | ({"conflict": True} if verdict.is_conflict else {})


def _count_in_manifest(step: StepOutput, merged: MergedJudgements) -> None:
    step.count("images", merged.collection.shape[0])
    step.count("captions", merged.collection.shape[1])
    for kind, _, reason in merged.removed.rows():
        step.count(f"removed {kind}s, {reason.partition(' as ')[0]}")
    for line in count_positives(merged):
        step.counts |= {f"{line.direction} queries": line.queries, f"{line.direction} positives {line.source}": line.positives}
        if line.source == SOURCE:
            step.counts |= {f"{line.direction} new": line.new, f"{line.direction} negatives": line.negatives}
    step.count("conflicts", sum(verdict.is_conflict for verdict in merged.verdicts.values()))
    for (yes, no), number in sorted(count_disagreements(merged.verdicts).items()):
        step.count(f"conflicts, {yes} yes and {no} no", number)


# -- files of the folder


def _write_collection_files(folder: Path, merged: MergedJudgements) -> None:
    files = {
        JUDGEMENTS: _judgements_csv(merged),
        "removed.csv": format_csv(("kind", "id", "reason"), merged.removed.rows()),
        "suspects.csv": _suspects_csv(merged),
        "captions.json": write_collection(folder, merged.collection),
    }
    for name, text in files.items():
        with atomic_write(folder / name) as file:
            file.write(text.encode())


def _judgements_csv(merged: MergedJudgements) -> str:
    """One row per pair; with queries, one for each direction in which the pair belongs to a query.

    The column `by` says who judged: people, links, or artificial annotators, also if people agreed with them.
    """
    names = [source.name for source in merged.sources]
    by = {source.name: source.by for source in merged.sources}
    direction_column = ["direction"] if merged.queries else []
    head = (
        "image_id", "caption_id", "grade", "source", *direction_column, "by", "decided_by",
        *(f"said by {name}" for name in names),
    )  # fmt: skip
    rows = []
    for pair, verdict in merged.verdicts.items():
        grades = (f"{verdict.grades[name]:.6g}" if name in verdict.grades else "" for name in names)
        agreeing = {by[name] for name, vote in verdict.votes.items() if vote == verdict.positive}
        tail = (ARTIFICIAL if ARTIFICIAL in agreeing else by[verdict.decided_by], verdict.decided_by, *grades)
        directions = [(name,) for name in DIRECTIONS if merged.is_query_pair(name, pair)] if merged.queries else [()]
        rows += [(*pair, int(verdict.positive), SOURCE, *direction, *tail) for direction in directions]
    return format_csv(head, rows)


def _suspects_csv(merged: MergedJudgements) -> str:
    texts = dict(zip(merged.collection.caption_ids.tolist(), merged.collection.captions, strict=False))
    rows = [
        (caption, image, ";".join(name for name, is_positive in verdict.votes.items() if not is_positive), texts.get(caption, ""))
        for (image, caption), verdict in merged.suspects().items()
    ]
    return format_csv(("caption_id", "image_id", "called_wrong_by", "caption"), rows)
