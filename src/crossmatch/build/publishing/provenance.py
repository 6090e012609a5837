"""Provenance of a result: the steps and studies behind it, linked by hashes, back to the collection."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.build.step_files import MANIFEST, read_manifest, read_rows
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.file_contents import Types, UndecodableFileError, check_record, decode_json_file, file_sha256
from crossmatch.metrics.agreement.answer_arrays import Answers
from crossmatch.metrics.agreement.coefficient import Agreement
from crossmatch.metrics.agreement.fleiss_krippendorff import krippendorff_alpha

PROVENANCE = "provenance.json"
EXPORT_TYPES: Mapping[str, Types] = {
    "study": str, "preset": str, "hash": str, "origin": dict, "answers": int, "people": int, "items": int, "combine": str,
    "crossmatch": str, "still_to_come": int,
}  # fmt: skip
SHORT_HASH = 16  # characters of the hash by which a step names its inputs


@dataclass(frozen=True)
class ProvenanceStep:
    """A build step or a study."""

    folder: Path
    name: str  # name of the step, or `study NAME`
    hash: str
    hashes: frozenset[str]  # of all its files
    inputs: dict[str, str]  # name of each input, and its hash
    record: dict[str, Any] = field(repr=False)  # its manifest, or the provenance file of an export

    @property
    def is_study(self) -> bool:
        return "study" in self.record


def load_provenance_step(folder: Path) -> ProvenanceStep:
    """Load the step or the study export in a folder."""
    if (folder / MANIFEST).is_file():
        manifest = read_manifest(folder)
        read_rows(folder)  # raises if the step is unfinished or was changed
        inputs = {name: str(digest) for name, digest in manifest["inputs"].items()}
        return ProvenanceStep(folder, str(manifest["step"]), str(manifest["sha256"]), _file_hashes(folder), inputs, manifest)
    if not (folder / PROVENANCE).is_file():
        raise UsageError(
            f"{folder} has neither {MANIFEST} nor {PROVENANCE}, so it is not a build step or a study export. Check the path."
        )
    try:
        record = check_record(decode_json_file(folder / PROVENANCE), "the file", EXPORT_TYPES)
        origin = record["origin"]
        if origin.get("sha256"):
            check_record(origin, "the origin", {"items": str, "sha256": str})
    except UndecodableFileError as error:
        raise CrossmatchError(f"{folder / PROVENANCE} is not the file of an export ({error}). Export the study again.") from None
    inputs = {f"items {origin['items']}": origin["sha256"]} if origin.get("sha256") else {}
    return ProvenanceStep(folder, f"study {record['study']}", record["hash"], _file_hashes(folder), inputs, record)


def _file_hashes(folder: Path) -> frozenset[str]:
    return frozenset(file_sha256(path) for path in folder.iterdir() if path.is_file())


@dataclass(frozen=True)
class ProvenanceChain:
    """The result, and the steps and studies it was made from. Inputs may also be missing from the chain."""

    steps: tuple[ProvenanceStep, ...]

    def sources(self, reader: ProvenanceStep, digest: str) -> list[ProvenanceStep]:
        """The other steps with a file of this hash or hash prefix; several if a step copied rows unchanged."""
        candidates = (step for step in self.steps if step is not reader and len(digest) >= SHORT_HASH)
        return [step for step in candidates if any(file_hash.startswith(digest) for file_hash in step.hashes)]

    @property
    def unused_steps(self) -> list[ProvenanceStep]:
        """Steps other than the result that nothing in the chain was made from."""
        used = {id(source) for step in self.steps for digest in step.inputs.values() for source in self.sources(step, digest)}
        return [step for step in self.steps[1:] if id(step) not in used and step.name != "bias"]


def load_chain(result: Path, earlier: Sequence[Path]) -> ProvenanceChain:
    """Load the chain from a result back to what it was made from.

    Raises:
        CrossmatchError: If a folder does not belong to the chain.
    """
    has_record = any((result / name).is_file() for name in (MANIFEST, PROVENANCE))
    chain = ProvenanceChain(tuple(load_provenance_step(folder) for folder in ([result] if has_record else []) + list(earlier)))
    unused = next(iter(chain.unused_steps), None) if has_record else None
    if unused is not None:
        raise CrossmatchError(
            f"--step {unused.folder}: {result} was not made from this {unused.name} in its present state. Remove the option, or "
            "add the step between them."
        )
    return chain


@dataclass(frozen=True)
class AnnotatorGroup:
    """Number of annotators, how many of them are artificial (`study simulate`), and their agreement on the first question."""

    number: int
    artificial: int
    alpha: Agreement


def summarise_annotators(study: ProvenanceStep) -> AnnotatorGroup | None:
    """Summarise the annotators of a study from its answers.csv, without gold questions; None if there are no answers."""
    path = study.folder / "answers.csv"
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("gold") != "1"]
    if not rows:
        return None
    answers = [(row["item"], row["person"], row["answer"]) for row in rows if row["question"] == rows[0]["question"]]
    item, person, answer = (np.unique(np.asarray(column), return_inverse=True)[1] for column in zip(*answers, strict=True))
    names, artificial = {row["person"] for row in rows}, {row["person"] for row in rows if row.get("artificial") == "1"}
    return AnnotatorGroup(len(names), len(artificial), krippendorff_alpha(Answers(item, person, answer)))
