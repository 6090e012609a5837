"""What came out: a row for each metric, with its interval, chance, ties and signature, and all that is needed to recompute it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Listed
from crossmatch.core.standing import Standing

FORMAT = 1


@dataclass(frozen=True)
class Row:
    """One number. `part` is where it was measured, such as `t2i/links`; value, interval and chance are in the metric's unit."""

    part: str
    metric: str
    value: float
    low: float
    high: float
    chance: float
    unit: str
    best: float
    n: int  # queries or trials
    positives: int
    ties: float  # percent of queries in which a positive is level with a candidate that is none
    unjudged: float | None  # percent of the retrieved pairs, down to `unjudged_at`, that nobody judged
    signature: str

    @property
    def key(self) -> str:
        return f"{self.part}/{self.metric}" if self.part else self.metric


@dataclass(frozen=True, eq=False)
class Part:
    """The evidence behind the rows of one part: standings for retrieval, scores for trials; and the cluster of each query."""

    ids: np.ndarray[Any, np.dtype[np.str_]]
    clusters: np.ndarray[Any, np.dtype[np.int64]]
    evidence: Standing | np.ndarray[Any, np.dtype[np.float64]]
    positive: float = 1.0
    complete: bool = False
    values: Mapping[str, np.ndarray[Any, np.dtype[np.float64]]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Result:
    """All rows of one model on one task, and the evidence."""

    model: str
    task: str
    system: str
    options: Mapping[str, str]  # of the benchmark and the protocol, where they are not the usual ones
    rows: tuple[Row, ...]
    parts: Mapping[str, Part]
    seconds: Mapping[str, float]
    samples: int
    seed: int
    ties: str
    notes: tuple[str, ...] = ()

    def __getitem__(self, key: str) -> Row:
        for row in self.rows:
            if row.key == key:
                return row
        raise CrossmatchError(f"there is no {key!r} in this result; it has {', '.join(r.key for r in self.rows)}.")

    def as_json(self) -> dict[str, float]:
        """`{part/metric: value}`, rounded to what can be told apart."""
        return {row.key: round(row.value, 4) for row in self.rows}


def save(result: Result, folder: Path) -> Path:
    """Write `folder/<model>/<task>.json` and its `.npz`; the json comes last and by renaming, so no half result is ever seen."""
    path = result_path(folder, result.model, result.task, result.options)
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {}
    heads = {}
    for name, part in result.parts.items():
        arrays |= {f"{name}:ids": part.ids, f"{name}:clusters": part.clusters}
        arrays |= {f"{name}:value:{metric}": values for metric, values in part.values.items()}
        heads[name] = {"positive": part.positive, "complete": part.complete}
        if isinstance(part.evidence, Standing):
            listed = part.evidence.listed
            heads[name]["gallery"] = part.evidence.gallery
            arrays |= {f"{name}:{k}": v for k, v in (
                ("query", listed.query), ("start", listed.start), ("item", listed.item.astype(np.int32)), ("grade", listed.grade),
                ("above", part.evidence.above.astype(np.int32)), ("size", part.evidence.size.astype(np.int32)),
                ("depth", part.evidence.depth),
            )}  # fmt: skip
        else:
            arrays[f"{name}:scores"] = part.evidence
    _write(path.with_suffix(".npz"), lambda file: np.savez_compressed(file, **arrays))
    head = {
        "format": FORMAT, "model": result.model, "task": result.task, "system": result.system, "options": dict(result.options),
        "ties": result.ties, "samples": result.samples, "seed": result.seed, "seconds": dict(result.seconds),
        "notes": list(result.notes), "parts": heads, "rows": [asdict(row) for row in result.rows],
    }  # fmt: skip
    _write(path, lambda file: file.write((json.dumps(head, indent=1) + "\n").encode()))
    return path


def load(path: Path) -> Result:
    """Read what `save` wrote."""
    try:
        head = json.loads(path.read_text(encoding="utf-8"))
        if head.get("format") != FORMAT:
            raise CrossmatchError(f"{path} has format {head.get('format')}, not {FORMAT}. Evaluate again with this version.")
        with path.with_suffix(".npz").open("rb") as file, np.load(file, allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
        parts = {name: _part(name, about, arrays) for name, about in head["parts"].items()}
        return Result(
            head["model"], head["task"], head["system"], head["options"], tuple(Row(**row) for row in head["rows"]), parts,
            head["seconds"], head["samples"], head["seed"], head["ties"], tuple(head["notes"]),
        )  # fmt: skip
    except CrossmatchError:
        raise
    except Exception as error:  # a damaged file can fail anywhere inside of zip or json
        raise CrossmatchError(f"{path} is not a result of crossmatch, or is damaged ({error}). Evaluate again.") from None


def load_all(folders: list[Path]) -> list[Result]:
    """All results in files and below folders, in the order of their names."""
    found: list[Path] = []
    for folder in folders:
        if not folder.exists():
            raise WrongWords(f"there is no {folder}. Make results first: crossmatch run -m MODEL -t TASK -o {folder}")
        found += [folder] if folder.is_file() else sorted(p for p in folder.rglob("*.json") if p.with_suffix(".npz").exists())
    if not found:
        raise WrongWords(f"no results below {', '.join(map(str, folders))}. Make some: crossmatch run -m MODEL -t TASK")
    return [load(path) for path in dict.fromkeys(found)]


def result_path(folder: Path, model: str, task: str, options: Mapping[str, str]) -> Path:
    """Where a result is kept: options other than the defaults are part of the name.

    >>> result_path(Path("results"), "random", "diorama/retrieval", {"size": "coco"}).as_posix()
    'results/random/diorama/retrieval+size=coco.json'
    """
    chosen = "".join(f"+{key}={value}" for key, value in sorted(options.items()))
    return folder / file_name(model) / f"{task}{file_name(chosen) if chosen else ''}.json"


def file_name(model: str) -> str:
    """A model's name as a folder's name; a name that had to be changed gets a mark of its own, so that no two share a folder.

    >>> file_name("dual"), file_name("precomputed:../emb v2.npz")
    ('dual', 'precomputed-emb-v2.npz~6a1174')
    """
    clean = _cleaned(model)[:80]
    return clean if clean and clean == model else f"{clean or 'model'}~{hashlib.sha256(model.encode()).hexdigest()[:6]}"


def _cleaned(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+=@,-]+", "-", text.replace("../", "")).strip("-.")


def _part(name: str, about: dict[str, Any], arrays: dict[str, Any]) -> Part:
    mine = {key.removeprefix(f"{name}:"): value for key, value in arrays.items() if key.startswith(f"{name}:")}
    values = {key.removeprefix("value:"): value for key, value in mine.items() if key.startswith("value:")}
    if "scores" in mine:
        evidence: Any = mine["scores"]
    else:
        listed = Listed(mine["query"], mine["start"], mine["item"].astype(np.int64), mine["grade"])
        evidence = Standing(listed, mine["above"].astype(np.int64), mine["size"].astype(np.int64), mine["depth"], about["gallery"])
    return Part(mine["ids"], mine["clusters"], evidence, about["positive"], about["complete"], values)


def _write(path: Path, fill: Any) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
