"""How a result came about: the steps and studies behind it, each known by its hash, back to the collection."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.build.files import MANIFEST, manifest
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.files import sha256_of
from crossmatch.metrics.raters import Agreement, Answers, krippendorff

PROVENANCE = "provenance.json"
SHORT = 16  # signs of a hash that a step names its inputs by


@dataclass(frozen=True)
class Link:
    """A step or a study: what it is, the hashes it is known by, what it read, and all that it tells of itself."""

    folder: Path
    name: str
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
        if not told["finished"]:
            raise CrossmatchError(f"{folder} is not finished. Run {told['step']} again; it goes on where it stopped.")
        return Link(folder, str(told["step"]), frozenset({told["sha256"]}), {k: str(v) for k, v in told["inputs"].items()}, told)
    try:
        told = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))
        read = {f"items {told['origin']['items']}": str(told["origin"]["sha256"])} if told["origin"].get("sha256") else {}
        name = f"study {told['study']}"
    except FileNotFoundError:
        raise WrongWords(f"{folder} has neither {MANIFEST} nor {PROVENANCE}: it is no step and no export. Check the path.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CrossmatchError(f"{folder / PROVENANCE} is not that of an export ({error!r}). Export the study again.") from None
    return Link(folder, name, frozenset(sha256_of(path) for path in sorted(folder.iterdir()) if path.is_file()), read, told)


@dataclass(frozen=True)
class Chain:
    """The result, what it was made from, and, for each input of each, whose it is: a link of the chain, or nobody's that was shown."""

    links: tuple[Link, ...]

    def source(self, named: str) -> Link | None:
        """Who made what goes by this hash, or by its beginning."""
        return next((one for one in self.links for whole in one.hashes if len(named) >= SHORT and whole.startswith(named)), None)

    @property
    def strays(self) -> list[Link]:
        """Links, but for the first, that nothing was made from."""
        used = {id(self.source(named)) for one in self.links for named in one.inputs.values()}
        return [one for one in self.links[1:] if id(one) not in used and one.name != "bias"]


def chain_of(result: Path, earlier: Sequence[Path]) -> Chain:
    """The chain from a result to what it was made from; a folder that has no part in it is refused."""
    has = any((result / name).is_file() for name in (MANIFEST, PROVENANCE))
    chain = Chain(tuple(link_of(folder) for folder in ([result] if has else []) + list(earlier)))
    stray = next(iter(chain.strays), None) if has else None
    if stray is not None:
        raise CrossmatchError(f"nothing in {result} was made from {stray.folder} ({stray.name}) as it is now. Leave it out.")
    return chain


def agreement_of(study: Link) -> Agreement | None:
    """How well the people of a study agree on its first question: Krippendorff's alpha; nothing where the answers are not there."""
    path = study.folder / "answers.csv"
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("gold") != "1"]
    first = next((row["question"] for row in rows), "")
    said = [(row["item"], row["person"], row["answer"]) for row in rows if row["question"] == first]
    if not said:
        return None
    item, person, answer = (np.unique(np.asarray(column), return_inverse=True)[1] for column in zip(*said, strict=True))
    return krippendorff(Answers(item, person, answer))
