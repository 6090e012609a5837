"""Sources of judgements about image-caption pairs, and one verdict for each pair by a declared rule."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from crossmatch.benchmarks.coco import parse_caption_id, parse_image_id
from crossmatch.benchmarks.formats.csv_tables import read_table
from crossmatch.benchmarks.formats.judgement_files import note_declared_threshold
from crossmatch.build.merging.removed_items import RemovedItems
from crossmatch.build.rating_files import GRADE_COLUMNS, JUDGEMENTS, find_item_id, judgements_file, parse_grade, require_table
from crossmatch.data.collection import Collection
from crossmatch.data.errors import UsageError
from crossmatch.data.io.file_contents import file_sha256, read_json_object
from crossmatch.data.judgements import ARTIFICIAL, LINKS, PEOPLE

Pair = tuple[str, str]  # ids of an image and of a caption
# Lowest positive grade: "Yes" or "Weak Yes" in chun2022eccv, sec. 3.3; 3 of 5 in parekh2021cxc, sec. 3.
POSITIVE = {"people": 0.5, "ratings": 3.0, LINKS: 1.0}
COLUMNS = ((("image_id", "image"), "image", parse_image_id), (("caption_id", "caption"), "caption", parse_caption_id))


@dataclass(frozen=True)
class JudgementSource:
    """Grades from one source, and the grade from which a pair is positive.

    `by` says who gave the grades: people, links, or artificial annotators.
    """

    name: str
    kind: str  # people, ratings or links
    grades: Mapping[Pair, float]
    positive: float
    digest: str = ""  # hash of the file; by default of the grades
    by: str = PEOPLE

    def __post_init__(self) -> None:
        if not self.digest:
            content = json.dumps(sorted((*pair, grade) for pair, grade in self.grades.items()))
            object.__setattr__(self, "digest", hashlib.sha256(content.encode()).hexdigest()[:16])

    def is_positive(self, pair: Pair) -> bool:
        return self.grades[pair] >= self.positive


def links_as_source(collection: Collection) -> JudgementSource:
    """The links of a collection as a source: each link is positive, everything else unjudged."""
    images, captions = collection.image_ids.tolist(), collection.caption_ids.tolist()
    return JudgementSource(
        LINKS, LINKS, {(images[i], captions[c]): 1.0 for i, c in collection.links.tolist()}, POSITIVE[LINKS], by=LINKS
    )


def read_source(path: Path, collection: Collection, kind: str, positive: float | None = None) -> JudgementSource:
    """Read grades of image-caption pairs.

    A table has an image (`image_id`, `image`), a caption (`caption_id`, `caption`) and a `grade` or `agg_score`. Several grades of
    a pair are averaged. Links that an export contains (`by` links) are skipped, because no person judged them. If artificial
    annotators judged (`by` again), the name of the source says so.

    Args:
        path: The folder of a study's export, its judgements.csv, or a file such as CxC's official sits_test.csv.
        collection: The collection that was judged.
        kind: `people` or `ratings`.
        positive: Lowest positive grade; by default the one that the file declares (`positive_from`), else that of the kind.
    """
    file = judgements_file(path)
    require_table(file, "judgements")
    ids = {side: set(collection.ids(side).tolist()) for _, side, _ in COLUMNS}
    values: dict[Pair, list[float]] = defaultdict(list)
    by, declared = PEOPLE, dict[str, float]()
    for row in read_table(file, (*(columns for columns, _, _ in COLUMNS), GRADE_COLUMNS), has_escaped_formulas=True):
        if row.cells.get("by") == LINKS:
            continue
        if row.cells.get("by") == ARTIFICIAL:
            by = ARTIFICIAL
        note_declared_threshold(row, file.stem, declared)
        image, caption = (find_item_id(row, columns, ids[side], official_id) for columns, side, official_id in COLUMNS)
        values[image, caption].append(parse_grade(row))
    threshold = declared.get(file.stem, POSITIVE[kind]) if positive is None else positive
    name = _source_name(file)
    if by == ARTIFICIAL:
        name = f"{name} ({ARTIFICIAL})"
    return JudgementSource(name, kind, _means(values), threshold, file_sha256(file)[:16], by)


def _means(values: Mapping[Pair, Sequence[float]]) -> dict[Pair, float]:
    return {pair: math.fsum(grades) / len(grades) for pair, grades in values.items()}


def _source_name(file: Path) -> str:
    """Name of the study that exported a file; otherwise the name of the file, or of its folder."""
    study = (read_json_object(file.parent / "provenance.json") or {}).get("study")
    if study is not None:
        return str(study)
    return file.stem if file.name != JUDGEMENTS else file.resolve().parent.name


def name_uniquely(sources: Iterable[JudgementSource]) -> list[JudgementSource]:
    """Sort sources (people, ratings, links) and number those that share a name."""
    order, uses = list(POSITIVE), Counter[str]()
    named = []
    for source in sorted(sources, key=lambda source: order.index(source.kind)):
        uses[source.name] += 1
        named.append(source if uses[source.name] == 1 else replace(source, name=f"{source.name} {uses[source.name]}"))
    return named


def restrict_source(source: JudgementSource, remaining: Collection, removed: RemovedItems) -> JudgementSource:
    """Keep the grades of remaining pairs; grades of a duplicate picture go to the picture that stays."""
    images, captions = set(remaining.image_ids.tolist()), set(remaining.caption_ids.tolist())
    values: dict[Pair, list[float]] = defaultdict(list)
    for (image, caption), grade in source.grades.items():
        image = removed.twins.get(image, image)
        if image in images and caption in captions:
            values[image, caption].append(grade)
    return replace(source, grades=_means(values))


# -- verdicts


# How votes of people and ratings become one. Links decide only pairs without other judgements.
RULES: dict[str, Callable[[Mapping[str, bool]], bool]] = {
    "any": lambda votes: any(votes.values()),
    "all": lambda votes: all(votes.values()),
    "first": lambda votes: next(iter(votes.values())),
}


@dataclass(frozen=True)
class PairVerdict:
    """The verdict on a pair, with the grade and the vote of each source, and the source that decided."""

    positive: bool
    grades: Mapping[str, float]
    votes: Mapping[str, bool]
    decided_by: str

    @property
    def is_conflict(self) -> bool:
        return len(set(self.votes.values())) > 1


def decide_pairs(sources: Sequence[JudgementSource], rule: str = "any") -> dict[Pair, PairVerdict]:
    """Decide each pair that some source graded, in the order of ids.

    - `any` follows the paper: a pair is positive if people or ratings say so ("we consider the CxC positives as the additional
      sixth machine-human verified annotations", chun2022eccv, sec. 3.3).
    - `all` requires that people and ratings agree.
    - `first` takes the vote of the first source that judged the pair.

    Links decide pairs that no other source judged. The published data contain none of the COCO links rated below 3.

    >>> people = JudgementSource("us", "people", {("a", "1"): 0.0}, 0.5)
    >>> rated = JudgementSource("cxc", "ratings", {("a", "1"): 4.2}, 3.0)
    >>> [decide_pairs([people, rated], rule)["a", "1"].positive for rule in RULES]
    [True, False, False]
    """
    if rule not in RULES:
        raise UsageError(f"--rule must be one of {', '.join(RULES)} (got {rule!r}).")
    verdicts: dict[Pair, PairVerdict] = {}
    for pair in sorted({pair for source in sources for pair in source.grades}):
        judging = [source for source in sources if pair in source.grades]
        votes = {source.name: source.is_positive(pair) for source in judging}
        deciding = {source.name: votes[source.name] for source in judging if source.kind != LINKS} or votes
        positive = RULES[rule](deciding)
        decided_by = next(name for name, vote in deciding.items() if vote == positive)
        verdicts[pair] = PairVerdict(positive, {source.name: source.grades[pair] for source in judging}, votes, decided_by)
    return verdicts


def count_disagreements(verdicts: Mapping[Pair, PairVerdict]) -> Counter[tuple[str, str]]:
    """For every two sources, the number of pairs that the first calls positive and the second does not."""
    counts: Counter[tuple[str, str]] = Counter()
    for verdict in verdicts.values():
        for (a, a_positive), (b, b_positive) in combinations(verdict.votes.items(), 2):
            if a_positive != b_positive:
                counts[(a, b) if a_positive else (b, a)] += 1
    return counts
