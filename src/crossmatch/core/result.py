"""What came out: a row for each metric, with its interval, chance, ties and signature, and all that is needed to recompute it."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.core.cuts import ARRAYS as CUT_ARRAYS
from crossmatch.core.cuts import Cuts
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Listed
from crossmatch.core.outcomes import Outcomes
from crossmatch.core.pairs import Pairs
from crossmatch.core.skipped import Skipped
from crossmatch.core.standing import Standing
from crossmatch.core.whole import whole_file

FORMAT = 2

Evidence = Standing | Cuts | Pairs | Outcomes


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
    ties: float | None  # percent of queries in which a positive is level with a candidate that is none; None where it is not known
    unjudged: float | None  # percent of the retrieved pairs, down to `unjudged_at`, that nobody judged
    signature: str
    std: float | None = None  # the spread over samples, where a paper reports it

    @property
    def key(self) -> str:
        return f"{self.part}/{self.metric}" if self.part else self.metric


@dataclass(frozen=True, eq=False)
class Part:
    """The evidence behind the rows of one part: standings or cuts for retrieval, outcomes of trials, rated pairs.

    `clusters` and `folds` are those of each query (of each pair, where pairs are the evidence). Each fold counts the same.
    """

    ids: np.ndarray[Any, np.dtype[np.str_]]
    clusters: np.ndarray[Any, np.dtype[np.int64]]
    evidence: Evidence
    positive: float = 1.0
    complete: bool = False
    values: Mapping[str, np.ndarray[Any, np.dtype[np.float64]]] = field(default_factory=dict)
    folds: np.ndarray[Any, np.dtype[np.int64]] | None = None


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
    skipped: tuple[Skipped, ...] = ()  # items that cannot be used, and were left out because that was asked for
    counts: Mapping[str, int] = field(default_factory=dict)  # of the input, where there is something to say: truncated captions

    def __getitem__(self, key: str) -> Row:
        for row in self.rows:
            if row.key == key:
                return row
        parts, metrics = (list(dict.fromkeys(getattr(r, name) for r in self.rows)) for name in ("part", "metric"))
        inside = f" after one of {', '.join(part + '/' for part in parts if part)}" if any(parts) else ""
        raise CrossmatchError(f"there is no {key!r} in this result; it has {', '.join(metrics)}{inside}.")

    def __repr__(self) -> str:
        shown = ", ".join(f"{row.key} {row.value:.1f}" for row in self.rows[:4]) + (", …" if len(self.rows) > 4 else "")
        return f"Result({self.model} on {self.task}: {shown})"

    def as_json(self) -> dict[str, float]:
        """`{part/metric: value}`, rounded to what can be told apart; a spread stands beside its value, and counts at the end."""
        found: dict[str, float] = {}
        for row in self.rows:
            found[row.key] = round(row.value, 4)
            if row.std is not None:
                found[f"{row.key}-std"] = round(row.std, 4)
        return {**found, **self.counts}


def save(result: Result, folder: Path | str) -> Path:
    """Write `folder/<model>/<task>.json` and its `.npz`; the json comes last and by renaming, so no half result is ever seen."""
    path = result_path(Path(folder), result.model, result.task, result.options)
    try:
        return _written(result, path)
    except OSError as error:
        raise CrossmatchError(
            f"the result cannot be written to {path} ({error.strerror or error}). Make room, or name another folder with -o."
        ) from None


def _written(result: Result, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {}
    heads = {}
    for name, part in result.parts.items():
        arrays |= {f"{name}:ids": part.ids, f"{name}:clusters": part.clusters}
        arrays |= {f"{name}:value:{metric}": values for metric, values in part.values.items()}
        heads[name] = {"positive": part.positive, "complete": part.complete, **_head_of(part.evidence)}
        arrays |= {f"{name}:{key}": values for key, values in _arrays_of(part.evidence).items()}
        if part.folds is not None:
            arrays[f"{name}:folds"] = part.folds
    with whole_file(path.with_suffix(".npz")) as file:
        np.savez_compressed(file, **arrays)
    arrays_hash = hashlib.sha256(path.with_suffix(".npz").read_bytes()).hexdigest()
    head = {
        "format": FORMAT, "model": result.model, "task": result.task, "system": result.system, "options": dict(result.options),
        "ties": result.ties, "samples": result.samples, "seed": result.seed, "seconds": dict(result.seconds),
        "notes": list(result.notes), "parts": heads, "rows": [asdict(row) for row in result.rows], "arrays": arrays_hash,
        "skipped": [asdict(one) for one in result.skipped], "counts": dict(result.counts),
    }  # fmt: skip
    with whole_file(path) as file:
        file.write((json.dumps(head, indent=1) + "\n").encode())
    return path


def load(path: Path) -> Result:
    """Read what `save` wrote."""
    try:
        head = json.loads(path.read_text(encoding="utf-8"))
        if head.get("format") != FORMAT:
            raise CrossmatchError(f"{path} has format {head.get('format')}, not {FORMAT}. Evaluate again with this version.")
        raw = path.with_suffix(".npz").read_bytes()
        if head.get("arrays", (found := hashlib.sha256(raw).hexdigest())) != found:
            raise CrossmatchError(f"{path} and its .npz are not of the same run. Evaluate again.")
        with np.load(io.BytesIO(raw), allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
        parts = {name: _part(name, about, arrays) for name, about in head["parts"].items()}
        return Result(
            head["model"], head["task"], head["system"], head["options"], tuple(Row(**row) for row in head["rows"]), parts,
            head["seconds"], head["samples"], head["seed"], head["ties"], tuple(head["notes"]),
            tuple(Skipped(**one) for one in head.get("skipped", ())), head.get("counts", {}),
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
    return Part(
        mine["ids"], mine["clusters"], _evidence(mine, about), about["positive"], about["complete"], values, mine.get("folds")
    )  # fmt: skip


NARROW = ("item", "above", "size", "k", "level", "positive_above", "positive_level", "positives")  # kept in 32 bits


def _head_of(evidence: Evidence) -> dict[str, Any]:
    if isinstance(evidence, Outcomes):
        return {"shape": list(evidence.shape), "ties_known": evidence.ties_known}
    return {"caps": list(evidence.caps)} if isinstance(evidence, Cuts) else {}


def _arrays_of(evidence: Evidence) -> dict[str, Any]:
    """The arrays of any evidence; which ones there are tells on reading what it was."""
    if isinstance(evidence, Outcomes):
        return {"codes": evidence.codes} | ({} if evidence.scores is None else {"scores": evidence.scores})
    if isinstance(evidence, Pairs):
        return {"human": evidence.human, "model": evidence.model, "query": evidence.query}
    if isinstance(evidence, Cuts):
        found = {name: getattr(evidence, name) for name in CUT_ARRAYS}
    else:
        listed = evidence.listed
        found = {"query": listed.query, "start": listed.start, "item": listed.item, "grade": listed.grade}
        found |= {name: getattr(evidence, name) for name in ("above", "size", "depth", "gallery")}
    return {name: values.astype(np.int32) if name in NARROW else values for name, values in found.items()}


def _evidence(mine: dict[str, Any], about: dict[str, Any]) -> Any:
    mine = {name: values.astype(np.int64) if name in NARROW else values for name, values in mine.items()}
    if "codes" in mine:
        shape = about["shape"][0], about["shape"][1]
        return Outcomes(mine["codes"], shape, mine.get("scores"), about.get("ties_known", True))
    if "scores" in mine:  # trials of earlier versions
        return Outcomes.of(mine["scores"])
    if "human" in mine:
        return Pairs(mine["query"], mine["human"], mine["model"])
    if "k" in mine:
        return Cuts(**{name: mine[name] for name in CUT_ARRAYS}, caps=tuple(about["caps"]))
    listed = Listed(mine["query"], mine["start"], mine["item"], mine["grade"])
    return Standing(listed, mine["above"], mine["size"], mine["depth"], mine["gallery"])
