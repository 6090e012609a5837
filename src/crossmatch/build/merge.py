"""Answers of people, ratings and the links of a collection as one set of judgements (chun2022eccv, sec. 3.3 and app. C.1).

What is meaningless, wrong or there twice leaves first (`removed`); then each pair gets one verdict (`verdicts`). The folder is a
collection of its own, which `crossmatch run -t collection:FOLDER` takes:

    images/, captions.json   the pictures and captions that are left, and their links, in COCO's layout
    judgements.csv           the verdicts: image_id, caption_id, grade 1 or 0, source; beside them what each source said
    removed.csv              what has left, and why
    suspects.csv             links that somebody called wrong: the captions to look at, and to list as wrong (app. C.1)
    rows.jsonl, manifest.json    the same verdicts as rows of a step, and how they came about

Where only some images and captions were queries, only their pairs were searched for: of another one only a few positives would be
known. Judgements then say which `direction` they are for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from crossmatch.benchmarks.formats.written import write_collection
from crossmatch.build.files import Asked, Output, Row, hash_of, read_rows, written
from crossmatch.build.material import collection_hash, in_order, pair_id, pictures_hash
from crossmatch.build.removed import Removed, removed, without
from crossmatch.build.verdicts import LINKS, POSITIVE, Pair, Said, Verdict, among, disagreements, links_of, named_apart, verdicts
from crossmatch.core.collection import SIDES, Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements
from crossmatch.core.whole import whole_file
from crossmatch.study.sheets import as_csv

STEP = "merge"
SOURCE = "merged"
SIDE_OF = {"i2t": 0, "t2i": 1}  # where the query stands in a pair
DIRECTIONS = tuple(SIDE_OF)

Queries = Mapping[str, frozenset[str]]  # of each direction the ids; one that is not there has all


@dataclass(frozen=True)
class Merged:
    """One set of judgements and where each came from: the collection that is left, its sources, a verdict for each pair."""

    collection: Collection
    sources: tuple[Said, ...]
    verdicts: Mapping[Pair, Verdict]
    queries: Queries
    removed: Removed

    def judgements(self, direction: str = "") -> Judgements:
        """The verdicts as judgements, of both directions or of one of them."""
        pairs = [pair for pair in self.verdicts if not direction or self.asked(direction, pair)]
        graded = ((*pair, float(self.verdicts[pair].positive)) for pair in pairs)
        return replace(Judgements.from_ids(self.collection, SOURCE, graded), only=direction)

    def asked(self, direction: str, pair: Pair) -> bool:
        """Whether the pair is of a query of this direction."""
        return direction not in self.queries or pair[SIDE_OF[direction]] in self.queries[direction]

    def suspects(self) -> dict[Pair, Verdict]:
        """Links that a person or a rater called wrong, the first step of app. C.1; the second is to look at them."""
        return {pair: v for pair, v in self.verdicts.items() if LINKS in v.said and not all(v.says.values())}


def merged(
    collection: Collection, sources: Iterable[Said], *, rule: str = "any", links: bool = True, queries: Queries | None = None,
    gone: Removed = Removed(),  # noqa: B008 - frozen
) -> Merged:  # fmt: skip
    """One set of judgements from several sources, and from the links of the collection unless `links` is false.

    >>> pets = Collection.of({"cat": ["A cat.", "A pet."], "dog": ["A dog."]})
    >>> people = Said("us", "people", {("dog", "cat#1"): 1.0, ("cat", "dog#0"): 0.0}, 0.5)
    >>> merged(pets, [people]).judgements()
    Judgements('merged', 5 pairs, 4 positive)
    """
    held = in_order(collection)
    asked = named_apart([*sources, *([links_of(held)] if links else [])])
    if not asked:
        raise WrongWords("nothing is to be merged: no answers, no ratings, and no links. Name at least one of them.")
    kept = without(held, gone)
    there = tuple(among(one, kept, gone) for one in asked)
    found = verdicts(there, rule)
    if not any(verdict.positive for verdict in found.values()):
        raise CrossmatchError("no pair is positive by the merged judgements. Check the thresholds, and what was removed.")
    return Merged(kept, there, found, _left(queries or {}, kept, gone), gone)


def _left(queries: Queries, kept: Collection, gone: Removed) -> Queries:
    """The queries that are still there; where all items of a side are, nothing needs to be said."""
    out = {}
    for direction, ids in queries.items():
        there = frozenset(kept.ids(SIDES[direction][0]).tolist())
        asked = frozenset(gone.twins.get(name, name) for name in ids) & there
        if asked < there:
            out[direction] = asked
    return out


# -- counts


@dataclass(frozen=True)
class Count:
    """A line of chun2022eccv, Table 3: the positives that a source has for the queries of a direction."""

    direction: str
    source: str
    queries: int  # that have a positive by the merged judgements
    positives: int
    new: int  # positives that are no links
    negatives: int


def counts(found: Merged) -> list[Count]:
    """How many positives each source has, and all of them together, for the queries of either direction."""
    links = next((set(one.grades) for one in found.sources if one.kind == LINKS), set())
    lines = []
    for direction in DIRECTIONS:
        sets = [(one.name, {p: one.yes(p) for p in one.grades}) for one in reversed(found.sources)]
        sets += [(SOURCE, {p: v.positive for p, v in found.verdicts.items()})]
        positives = (pair for pair, v in found.verdicts.items() if v.positive and found.asked(direction, pair))
        number = len({pair[SIDE_OF[direction]] for pair in positives})
        for name, says in sets:
            asked = {pair: yes for pair, yes in says.items() if found.asked(direction, pair)}
            positive = {pair for pair, yes in asked.items() if yes}
            lines.append(Count(direction, name, number, len(positive), len(positive - links), len(asked) - len(positive)))
    return lines


# -- the step


@dataclass(frozen=True)
class Merging:
    """How judgements are merged: what the manifest keeps as options."""

    rule: str = "any"
    links: bool = True
    find: bool = True  # look for meaningless captions and equal pictures


def merge(
    collection: Collection,
    sources: Sequence[Said],
    output: Path,
    *,
    how: Merging = Merging(),
    pool: Path | None = None,
    invalid: Sequence[str] = (),
    wrong: Sequence[str] = (),
    images: Sequence[str] = (),
    against: Collection | None = None,
) -> dict[str, Any]:
    """Merge into a folder that is a collection of its own; its manifest.

    `invalid`, `wrong` (captions) and `images` are ids of what is to leave; `against` is a collection none of whose pictures may
    stay. With the folder of a `pool`, its queries are the queries.
    """
    sources = named_apart(sources)
    listed = {"invalid": sorted(invalid), "wrong": sorted(wrong), "images": sorted(images)}
    inputs = {"collection": collection_hash(in_order(collection))} | {f"{one.kind} {one.name}": one.digest for one in sources}
    inputs |= {"pool": hash_of(pool)} if pool else {}
    inputs |= {"pictures": seen} if (seen := pictures_hash(collection)) else {}
    if against is not None:
        inputs["against"] = collection_hash(in_order(against))
        inputs |= {"pictures against": seen} if (seen := pictures_hash(against)) else {}
    thresholds = {one.name: one.positive for one in sources if one.positive != POSITIVE[one.kind]}
    options = asdict(how) | {key: ids for key, ids in listed.items() if ids} | ({"positive": thresholds} if thresholds else {})

    gone = removed(collection, invalid=invalid, wrong=wrong, images=images, find=how.find, against=against)
    queries = queries_of(pool) if pool else {}
    found = merged(collection, sources, rule=how.rule, links=how.links, queries=queries, gone=gone)  # before a folder is begun

    def rows(made: Output) -> Iterator[Row]:
        _write(output, found)
        _tell(made, found)
        for pair, verdict in found.verdicts.items():
            yield _row(pair, verdict)

    return written(output, Asked(STEP, inputs, options), rows)


def queries_of(pool: Path) -> dict[str, frozenset[str]]:
    """The queries of a pool: what a model has retrieved something for."""
    found: dict[str, set[str]] = {}
    for row in read_rows(pool, "pool"):
        for direction in row.get("retrieved", {}):
            found.setdefault(direction, set()).add((row["image_id"], row["caption_id"])[SIDE_OF[direction]])
    return {direction: frozenset(found.get(direction, ())) for direction in DIRECTIONS}


def _row(pair: Pair, verdict: Verdict) -> Row:
    row = {"id": pair_id(*pair), "image_id": pair[0], "caption_id": pair[1], "grade": int(verdict.positive)}
    return row | {"said": dict(verdict.said), "by": verdict.by} | ({"conflict": True} if verdict.conflict else {})


def _tell(made: Output, found: Merged) -> None:
    """The numbers for the manifest."""
    made.count("images", found.collection.shape[0])
    made.count("captions", found.collection.shape[1])
    for kind, _, why in found.removed.rows():
        made.count(f"removed {kind}s, {why.partition(' as ')[0]}")
    for line in counts(found):
        made.counts |= {f"{line.direction} queries": line.queries, f"{line.direction} positives {line.source}": line.positives}
        if line.source == SOURCE:
            made.counts |= {f"{line.direction} new": line.new, f"{line.direction} negatives": line.negatives}
    made.count("conflicts", sum(verdict.conflict for verdict in found.verdicts.values()))
    for (yes, no), number in sorted(disagreements(found.verdicts).items()):
        made.count(f"conflicts, {yes} yes and {no} no", number)


# -- the folder


def _write(folder: Path, found: Merged) -> None:
    files = {
        "judgements.csv": _judgements(found),
        "removed.csv": as_csv(("kind", "id", "reason"), found.removed.rows()),
        "suspects.csv": _suspects(found),
        "captions.json": write_collection(folder, found.collection),
    }
    for name, text in files.items():
        with whole_file(folder / name) as file:
            file.write(text.encode())


def _judgements(found: Merged) -> str:
    """A row for each pair; where there are queries, one for each direction in which it is a pair of a query."""
    names = [one.name for one in found.sources]
    which = ["direction"] if found.queries else []
    head = ("image_id", "caption_id", "grade", "source", *which, "decided_by", *(f"said by {name}" for name in names))
    rows = []
    for pair, verdict in found.verdicts.items():
        said = (verdict.by, *(f"{verdict.said[name]:.6g}" if name in verdict.said else "" for name in names))
        for direction in [(one,) for one in DIRECTIONS if found.asked(one, pair)] if found.queries else [()]:
            rows.append((*pair, int(verdict.positive), SOURCE, *direction, *said))
    return as_csv(head, rows)


def _suspects(found: Merged) -> str:
    texts = dict(zip(found.collection.caption_ids.tolist(), found.collection.captions, strict=False))
    rows = [
        (caption, image, ";".join(name for name, yes in verdict.says.items() if not yes), texts.get(caption, ""))
        for (image, caption), verdict in found.suspects().items()
    ]
    return as_csv(("caption_id", "image_id", "called_wrong_by", "caption"), rows)
