"""Who said what about pairs of an image and a caption, and one verdict for each pair by a declared rule."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from crossmatch.benchmarks.coco import caption_id, image_id
from crossmatch.benchmarks.formats.table import DELIMITERS, Row, read_table
from crossmatch.build.rated import GRADES, rating_of
from crossmatch.build.removed import Removed
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.files import sha256_of

Pair = tuple[str, str]  # the ids of an image and of a caption
LINKS = "links"
# From which grade on a pair is a positive: "Yes" or "Weak Yes" of chun2022eccv, sec. 3.3; 3 of 5 of parekh2021cxc, sec. 3.
POSITIVE = {"people": 0.5, "ratings": 3.0, LINKS: 1.0}
JUDGEMENTS = "judgements.csv"
COLUMNS = ((("image_id", "image"), "image", image_id), (("caption_id", "caption"), "caption", caption_id))


@dataclass(frozen=True)
class Said:
    """What one source said: a grade for each pair that it judged, and the grade from which a pair is a positive."""

    name: str
    kind: str  # people, ratings or links
    grades: Mapping[Pair, float]
    positive: float
    digest: str = ""  # what identifies the file it was read from; by default, what was said

    def __post_init__(self) -> None:
        if not self.digest:
            told = json.dumps(sorted((*pair, grade) for pair, grade in self.grades.items()))
            object.__setattr__(self, "digest", hashlib.sha256(told.encode()).hexdigest()[:16])

    def yes(self, pair: Pair) -> bool:
        return self.grades[pair] >= self.positive


def links_of(collection: Collection) -> Said:
    """What the collection came with: each link a positive, all else unjudged."""
    images, captions = collection.image_ids.tolist(), collection.caption_ids.tolist()
    return Said(LINKS, LINKS, {(images[i], captions[c]): 1.0 for i, c in collection.links.tolist()}, POSITIVE[LINKS])


def read_said(path: Path, collection: Collection, kind: str, positive: float | None = None) -> Said:
    """Grades of pairs: the folder of a study's export, its judgements.csv, or a file such as CxC's official sits_test.csv.

    A table has an image (`image_id`, `image`), a caption (`caption_id`, `caption`), each by its id, and `grade` or `agg_score`. The
    grade of a pair that comes several times is their mean. Links that an export carries along (`by` links) were said by nobody.
    """
    file = path / JUDGEMENTS if path.is_dir() else path
    if not file.is_file():
        raise WrongWords(f"{file} is not there. Name a table of judgements, or the folder of a study's export.")
    if file.suffix.lower() not in DELIMITERS:
        raise WrongWords(f"{file} ends in {file.suffix or 'nothing'!r}; judgements are read from .csv and .tsv. Save it as one.")
    known = {side: set(collection.ids(side).tolist()) for _, side, _ in COLUMNS}
    found: dict[Pair, list[float]] = defaultdict(list)
    for row in read_table(file, (*(columns for columns, _, _ in COLUMNS), GRADES)):
        if row.cells.get("by") == LINKS:
            continue
        image, caption = (_named(row, columns, known[side], official) for columns, side, official in COLUMNS)
        found[image, caption].append(rating_of(row))
    grades = {pair: math.fsum(each) / len(each) for pair, each in found.items()}
    return Said(_name(file), kind, grades, POSITIVE[kind] if positive is None else positive, sha256_of(file)[:16])


def _named(row: Row, columns: Sequence[str], known: set[str], official: Callable[[str], str]) -> str:
    column = next(column for column in columns if column in row.cells)
    name = row.cells[column]
    found = next((each for each in (name, official(name)) if each in known), None)
    if found is None:
        raise CrossmatchError(f"{row.where}: there is no {column} {name!r:.60} in the collection. Name the one that was judged.")
    return found


def _name(file: Path) -> str:
    """The name of the study that a file was exported from, else that of the file, or of its folder."""
    try:
        told = json.loads((file.parent / "provenance.json").read_text(encoding="utf-8"))
        return str(told["study"])
    except (OSError, ValueError, KeyError, TypeError):
        return file.stem if file.name != JUDGEMENTS else file.resolve().parent.name


def named_apart(sources: Iterable[Said]) -> list[Said]:
    """The same sources, people first, then ratings, then links; of two with one name the second is numbered."""
    order, seen = list(POSITIVE), Counter[str]()
    out = []
    for one in sorted(sources, key=lambda one: order.index(one.kind)):
        seen[one.name] += 1
        out.append(one if seen[one.name] == 1 else replace(one, name=f"{one.name} {seen[one.name]}"))
    return out


def among(said: Said, kept: Collection, gone: Removed) -> Said:
    """The grades of pairs that are still there; a twin's go to the picture that stays, as a mean if both have one."""
    images, captions = set(kept.image_ids.tolist()), set(kept.caption_ids.tolist())
    found: dict[Pair, list[float]] = defaultdict(list)
    for (image, caption), grade in said.grades.items():
        image = gone.twins.get(image, image)
        if image in images and caption in captions:
            found[image, caption].append(grade)
    return replace(said, grades={pair: math.fsum(each) / len(each) for pair, each in found.items()})


# -- one verdict


def _any(says: Mapping[str, bool]) -> bool:
    return any(says.values())


def _all(says: Mapping[str, bool]) -> bool:
    return all(says.values())


def _first(says: Mapping[str, bool]) -> bool:
    return next(iter(says.values()))


# How the answers of people and raters become one. The links of the collection decide only what none of them judged.
RULES: dict[str, Callable[[Mapping[str, bool]], bool]] = {"any": _any, "all": _all, "first": _first}


@dataclass(frozen=True)
class Verdict:
    """What a pair was found to be, what each source said of it, and which of them had the last word."""

    positive: bool
    said: Mapping[str, float]
    says: Mapping[str, bool]
    by: str

    @property
    def conflict(self) -> bool:
        return len(set(self.says.values())) > 1


def verdicts(sources: Sequence[Said], rule: str = "any") -> dict[Pair, Verdict]:
    """One verdict for each pair that a source knows, in the order of ids.

    `any` is the paper's: what people or raters call a positive is one ("we consider the CxC positives as the additional sixth
    machine-human verified annotations", chun2022eccv, sec. 3.3). `all` asks that they agree; with `first` the first that judged a
    pair decides, in the order of the sources. Links decide what nobody else judged: of COCO's links that raters put below 3, the
    published data hold none.

    >>> people, rated = Said("us", "people", {("a", "1"): 0.0}, 0.5), Said("cxc", "ratings", {("a", "1"): 4.2}, 3.0)
    >>> [verdicts([people, rated], rule)["a", "1"].positive for rule in RULES]
    [True, False, False]
    """
    if rule not in RULES:
        raise WrongWords(f"the rule for conflicts is {rule!r}; one of {', '.join(RULES)} was expected.")
    found: dict[Pair, Verdict] = {}
    for pair in sorted({pair for one in sources for pair in one.grades}):
        judged = [one for one in sources if pair in one.grades]
        says = {one.name: one.yes(pair) for one in judged}
        asked = {one.name: says[one.name] for one in judged if one.kind != LINKS}
        positive = RULES[rule](asked or says)
        by = next(name for name, yes in (asked or says).items() if yes == positive)
        found[pair] = Verdict(positive, {one.name: one.grades[pair] for one in judged}, says, by)
    return found


def disagreements(found: Mapping[Pair, Verdict]) -> Counter[tuple[str, str]]:
    """For every two sources the pairs that the first calls positive and the second does not."""
    counts: Counter[tuple[str, str]] = Counter()
    for verdict in found.values():
        if verdict.conflict:
            for one, other in combinations(verdict.says.items(), 2):
                if one[1] != other[1]:
                    yes, no = (one, other) if one[1] else (other, one)
                    counts[yes[0], no[0]] += 1
    return counts
