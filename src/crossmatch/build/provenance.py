"""How a result came about: the steps and studies behind it, each known by its hash, back to the collection."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.build.files import MANIFEST, manifest, read_rows
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.files import sha256_of
from crossmatch.metrics.answers import Answers
from crossmatch.metrics.coefficient import Agreement
from crossmatch.metrics.raters import krippendorff

PROVENANCE = "provenance.json"
ARTIFICIAL = "artificial"  # how the names of artificial annotators begin
SHORT = 16  # signs of a hash that a step names its inputs by


@dataclass(frozen=True)
class Link:
    """A step or a study: what it is, the hashes that it and its files are known by, what it read, and what it tells of itself."""

    folder: Path
    name: str
    hash: str
    hashes: frozenset[str]
    inputs: dict[str, str]
    told: dict[str, Any] = field(repr=False)

    @property
    def is_study(self) -> bool:
        return "study" in self.told


def link_of(folder: Path) -> Link:
    """The step or the study whose results are in a folder."""
    if (folder / MANIFEST).is_file():
        told = manifest(folder)
        read_rows(folder)  # finished, and as it was made
        read = {what: str(named) for what, named in told["inputs"].items()}
        return Link(folder, str(told["step"]), str(told["sha256"]), _hashes(folder), read, told)
    try:
        told = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))
        read = {f"items {told['origin']['items']}": str(told["origin"]["sha256"])} if told["origin"].get("sha256") else {}
        name, last = f"study {told['study']}", str(told["hash"])
    except FileNotFoundError:
        raise WrongWords(
            f"{folder} has neither {MANIFEST} nor {PROVENANCE}: it is no step and no export. Check the path."
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CrossmatchError(f"{folder / PROVENANCE} is not that of an export ({error!r}). Export the study again.") from None
    return Link(folder, name, last, _hashes(folder), read, told)


def _hashes(folder: Path) -> frozenset[str]:
    return frozenset(sha256_of(path) for path in folder.iterdir() if path.is_file())


@dataclass(frozen=True)
class Chain:
    """The result and what it was made from; an input of any of them is one of them, or was not shown."""

    links: tuple[Link, ...]

    def sources(self, reader: Link, named: str) -> list[Link]:
        """Who else made what goes by this hash, or by its beginning: several, where one step changed nothing of another's rows."""
        known = (one for one in self.links if one is not reader and len(named) >= SHORT)
        return [one for one in known if any(whole.startswith(named) for whole in one.hashes)]

    @property
    def strays(self) -> list[Link]:
        """Links, but for the first, that nothing was made from."""
        used = {id(made) for one in self.links for named in one.inputs.values() for made in self.sources(one, named)}
        return [one for one in self.links[1:] if id(one) not in used and one.name != "bias"]


def chain_of(result: Path, earlier: Sequence[Path]) -> Chain:
    """The chain from a result to what it was made from; a folder that has no part in it is refused."""
    has = any((result / name).is_file() for name in (MANIFEST, PROVENANCE))
    chain = Chain(tuple(link_of(folder) for folder in ([result] if has else []) + list(earlier)))
    stray = next(iter(chain.strays), None) if has else None
    if stray is not None:
        raise CrossmatchError(
            f"nothing in {result} was made from {stray.folder} ({stray.name}) as it is now. Leave it out, or name the step between "
            "them, too."
        )
    return chain


@dataclass(frozen=True)
class People:
    """Who answered, how many of them were artificial (`study simulate`), and how well they agree on the first question."""

    number: int
    artificial: int
    alpha: Agreement


def people_of(study: Link) -> People | None:
    """The people of a study, by its answers.csv without gold, if it is there. Agreement is Krippendorff's alpha."""
    path = study.folder / "answers.csv"
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("gold") != "1"]
    if not rows:
        return None
    said = [(row["item"], row["person"], row["answer"]) for row in rows if row["question"] == rows[0]["question"]]
    item, person, answer = (np.unique(np.asarray(column), return_inverse=True)[1] for column in zip(*said, strict=True))
    names = {row["person"] for row in rows}
    return People(len(names), sum(name.startswith(f"{ARTIFICIAL}-") for name in names), krippendorff(Answers(item, person, answer)))
