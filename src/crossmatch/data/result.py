"""Results: a row for each metric with its interval, chance, ties and signature, the evidence behind it, and result files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crossmatch.data.errors import CrossmatchError, SkippedItem, UsageError
from crossmatch.data.io.atomic_write import atomic_write
from crossmatch.data.io.file_contents import Types, UndecodableFileError, check_record, decode_json_file, decode_npz, read_bytes
from crossmatch.data.rank_counts import CandidateLists, CountsAtK, RankCounts
from crossmatch.data.rated_pairs import RatedPairs
from crossmatch.data.trial_outcomes import Outcomes

FORMAT = 3
READABLE_FORMATS = (2, FORMAT)

PartEvidence = RankCounts | CountsAtK | RatedPairs | Outcomes


@dataclass(frozen=True)
class ResultRow:
    """One number of a result. Value, interval and chance are in the unit of the metric."""

    part: str  # where it was measured, such as `t2i/links`
    metric: str
    value: float
    low: float  # ends of the confidence interval
    high: float
    chance: float  # the expected value of a scorer without knowledge
    unit: str  # such as `%`
    best: float  # the best possible value
    n: int  # number of queries or trials
    positives: int  # number of positives
    ties: float | None  # percentage of queries in which a positive is tied with another candidate; None if unknown
    unjudged: float | None  # percentage of the retrieved pairs that are unjudged; None if unknown
    signature: str  # how the number was computed
    std: float | None = None  # standard deviation over samples, where a paper reports it
    direction: str = ""  # of retrieval, such as `t2i`; empty for sums over directions, rated pairs and trials
    judgements: str = ""  # the set of judgements, such as `links`, if the direction has several

    @property
    def key(self) -> str:
        """`part/metric`."""
        return f"{self.part}/{self.metric}" if self.part else self.metric


@dataclass(frozen=True, eq=False)
class ResultPart:
    """The evidence behind the rows of one part."""

    ids: np.ndarray[Any, np.dtype[np.str_]]  # of each query (of each pair or trial, if these are the evidence)
    clusters: np.ndarray[Any, np.dtype[np.int64]]  # of each query
    evidence: PartEvidence
    positive: float = 1.0  # the lowest grade of a positive
    complete: bool = False  # whether every pair was judged
    values: Mapping[str, np.ndarray[Any, np.dtype[np.float64]]] = field(default_factory=dict)  # of each query, for some metrics
    folds: np.ndarray[Any, np.dtype[np.int64]] | None = None  # of each query; all folds have the same weight
    direction: str = ""  # as in `ResultRow`
    judgements: str = ""


@dataclass(frozen=True, eq=False)
class Result:
    """All rows of one model on one task, with the evidence.

    Attributes:
        model: Name of the model.
        task: Name of the task.
        system: The system half of the signature.
        options: Options of the benchmark and the protocol that differ from the defaults.
        rows: The numbers.
        parts: The evidence by part.
        seconds: Duration of each step.
        samples: Number of samples of `bootstrap-spearman`.
        seed: Seed of the samples.
        ties: The tie policy.
        notes: Notes for the reader.
        skipped: Items that were left out because they cannot be used.
        counts: Counts of the input, such as truncated captions.

    >>> from crossmatch import evaluate
    >>> result = evaluate("oracle", "diorama/retrieval", size="tiny", metrics=("hit@1",), samples=100)
    >>> [row.key for row in result.rows]
    ['i2t/links/hit@1', 'i2t/truth/hit@1', 't2i/links/hit@1', 't2i/truth/hit@1']
    >>> row = result["i2t/links/hit@1"]                     # positives are only the scene's own captions
    >>> f"{row.value:.1f} {row.unit} of {row.n} queries, by chance {row.chance:.1f} {row.unit}"
    '64.4 % of 50 queries, by chance 2.0 %'
    """

    model: str
    task: str
    system: str
    options: Mapping[str, str]
    rows: tuple[ResultRow, ...]
    parts: Mapping[str, ResultPart]
    seconds: Mapping[str, float]
    samples: int
    seed: int
    ties: str
    notes: tuple[str, ...] = ()
    skipped: tuple[SkippedItem, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, key: str) -> ResultRow:
        """The row with this key, `part/metric`."""
        for row in self.rows:
            if row.key == key:
                return row
        parts, metrics = (list(dict.fromkeys(getattr(row, name) for row in self.rows)) for name in ("part", "metric"))
        prefixes = f" after one of {', '.join(part + '/' for part in parts if part)}" if any(parts) else ""
        raise CrossmatchError(f"This result has no {key!r}; it has {', '.join(metrics)}{prefixes}.")

    def __repr__(self) -> str:
        first_rows = ", ".join(f"{row.key} {row.value:.1f}" for row in self.rows[:4]) + (", …" if len(self.rows) > 4 else "")
        return f"Result({self.model} on {self.task}: {first_rows})"

    def as_json(self) -> dict[str, float]:
        """`{part/metric: value}` with four decimals; standard deviations follow their values, and counts come last."""
        values: dict[str, float] = {}
        for row in self.rows:
            values[row.key] = round(row.value, 4)
            if row.std is not None:
                values[f"{row.key}-std"] = round(row.std, 4)
        return {**values, **self.counts}


def save_result(result: Result, folder: Path | str) -> Path:
    """Write a result to `folder/<model>/<task>.json` and a `.npz` file beside it.

    The json file is written last and atomically, so an incomplete result is never visible.

    Args:
        result: The result.
        folder: The folder of all results; it is created if it does not exist.

    Returns:
        The path of the json file.

    Raises:
        CrossmatchError: The files cannot be written.

    >>> from crossmatch import evaluate
    >>> result = evaluate("random", "diorama/retrieval", size="tiny", samples=100)
    >>> save_result(result, folder).relative_to(folder).as_posix()
    'random/diorama/retrieval+samples=100+size=tiny.json'
    """
    path = result_path(Path(folder), result.model, result.task, result.options)
    try:
        _write_result(result, path)
    except OSError as error:
        raise CrossmatchError(
            f"The result cannot be written to {path} ({error.strerror or error}). Make room, or choose another folder with -o."
        ) from None
    return path


def _write_result(result: Result, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {}
    parts = {}
    for name, part in result.parts.items():
        arrays |= {f"{name}:ids": part.ids, f"{name}:clusters": part.clusters}
        arrays |= {f"{name}:value:{metric}": values for metric, values in part.values.items()}
        if part.folds is not None:
            arrays[f"{name}:folds"] = part.folds
        kind = next(kind for kind, kind_format in EVIDENCE_FORMATS.items() if isinstance(part.evidence, kind_format.type))
        evidence_arrays, evidence_header = EVIDENCE_FORMATS[kind].write(part.evidence)
        arrays |= {f"{name}:{key}": v.astype(np.int32) if key in INT32_KEYS else v for key, v in evidence_arrays.items()}
        parts[name] = {
            "direction": part.direction, "judgements": part.judgements, "positive": part.positive, "complete": part.complete,
            "kind": kind, **evidence_header,
        }  # fmt: skip
    with atomic_write(path.with_suffix(".npz")) as file:
        np.savez_compressed(file, **arrays)
    header = {
        "format": FORMAT, "model": result.model, "task": result.task, "system": result.system, "options": dict(result.options),
        "ties": result.ties, "samples": result.samples, "seed": result.seed, "seconds": dict(result.seconds),
        "notes": list(result.notes), "parts": parts, "rows": [asdict(row) for row in result.rows],
        "arrays": hashlib.sha256(path.with_suffix(".npz").read_bytes()).hexdigest(),
        "skipped": [{"kind": item.kind, "id": item.id, "why": item.reason} for item in result.skipped],
        "counts": dict(result.counts),
    }  # fmt: skip
    with atomic_write(path) as file:
        file.write((json.dumps(header, indent=1) + "\n").encode())


def load_result(path: Path | str) -> Result:
    """Read a result that `save_result` wrote.

    Args:
        path: The json file, with its `.npz` file beside it; or a folder with one result.

    Raises:
        CrossmatchError: The files are damaged, of another format, or do not belong together.
        UsageError: There is no such file, or the folder has no result or several.
        TypeError: The path is neither a path nor a text.

    >>> from crossmatch import evaluate, save_result
    >>> path = save_result(evaluate("oracle", "diorama/retrieval", size="tiny", samples=100), folder)
    >>> load_result(path)["t2i/truth/map@r"].value, load_result(folder)["t2i/truth/map@r"].value
    (100.0, 100.0)
    """
    file = Path(path)
    if file.is_dir():
        files = _result_files(file)
        if len(files) > 1:
            raise UsageError(f"{file} has {len(files)} results. Read them with load_results, or name one, such as {files[0]}")
        file = files[0] if files else file
    if not file.is_file():
        raise UsageError(f"There is no result in {file}. Make one: crossmatch run -m MODEL -t TASK -o FOLDER")
    try:
        header = _read_header(file)
        raw = read_bytes(file.with_suffix(".npz"))
        if header.get("arrays") not in (None, hashlib.sha256(raw).hexdigest()):
            raise CrossmatchError(f"{file} and its .npz file are not from the same run. Evaluate again.")
        arrays = decode_npz(raw)
        if header["format"] == 2:
            _convert_format_2(header, arrays)
        for n, row in enumerate(header["rows"]):
            _check_row(row, f"rows[{n}]")
        parts = {name: _read_part(name, part_header, arrays) for name, part_header in header["parts"].items()}
    except UndecodableFileError as error:
        raise CrossmatchError(f"{file} is not a crossmatch result, or is damaged ({error}). Evaluate again.") from None
    skipped = tuple(SkippedItem(item["kind"], item["id"], item["why"]) for item in header.get("skipped", ()))
    return Result(
        header["model"], header["task"], header["system"], header["options"],
        tuple(ResultRow(**row) for row in header["rows"]), parts, header["seconds"], header["samples"], header["seed"],
        header["ties"], tuple(header["notes"]), skipped, header.get("counts", {}),
    )  # fmt: skip


HEADER_TYPES: Mapping[str, Types] = {
    "model": str, "task": str, "system": str, "options": dict, "rows": list, "parts": dict, "seconds": dict, "samples": int,
    "seed": int, "ties": str, "notes": list,
}  # fmt: skip
PART_TYPES: Mapping[str, Types] = {"positive": (int, float), "complete": bool}
LABELLED_PART_TYPES: Mapping[str, Types] = {"kind": str, "direction": str, "judgements": str}  # since format 3


def _read_header(path: Path) -> Header:
    header = check_record(decode_json_file(path), "the file", {})
    if header.get("format") not in READABLE_FORMATS:
        expected = " or ".join(map(str, READABLE_FORMATS))
        raise CrossmatchError(f"{path} has format {header.get('format')}, expected {expected}. Evaluate again with this version.")
    check_record(header, "the file", HEADER_TYPES)
    for name, part in header["parts"].items():
        check_record(part, f"part {name!r}", {**PART_TYPES, **(LABELLED_PART_TYPES if header["format"] == FORMAT else {})})
    for n, row in enumerate(header["rows"]):
        check_record(row, f"rows[{n}]", {"part": str})
    for n, item in enumerate(header.get("skipped", ())):
        check_record(item, f"skipped[{n}]", {"kind": str, "id": str, "why": str})
    return header


def _check_row(row: Header, where: str) -> None:
    """Raise an error unless the fields of a row are those of `ResultRow`."""
    names = {item.name: item.default is not MISSING for item in fields(ResultRow)}
    unknown = next((name for name in row if name not in names), None)
    if unknown is not None:
        raise UndecodableFileError(f"{where} has the unknown entry {unknown!r:.40}")
    required: dict[str, Types] = {name: object for name, is_optional in names.items() if not is_optional}
    check_record(row, where, required)


def load_results(paths: Path | str | Iterable[Path | str]) -> list[Result]:
    """Read all results in files and below folders, sorted by name.

    Args:
        paths: Files and folders.

    Raises:
        UsageError: A path does not exist, or there is no result below the paths.
        CrossmatchError: A result is damaged.
        TypeError: A path is neither a path nor a text.

    >>> from crossmatch import evaluate, save_result
    >>> for model in ("random", "oracle"):
    ...     path = save_result(evaluate(model, "diorama/retrieval", size="tiny", samples=100), folder)
    >>> [result.model for result in load_results([folder])]
    ['oracle', 'random']
    """
    files: list[Path] = []
    roots = [Path(path) for path in ([paths] if isinstance(paths, Path | str) else paths)]
    for path in roots:
        if not path.exists():
            raise UsageError(f"{path} does not exist. Make results first: crossmatch run -m MODEL -t TASK -o {path}")
        files += [path] if path.is_file() else _result_files(path)
    if not files:
        raise UsageError(f"There are no results below {', '.join(map(str, roots))}. Make some: crossmatch run -m MODEL -t TASK")
    return [load_result(path) for path in dict.fromkeys(files)]


def _result_files(folder: Path) -> list[Path]:
    """The json files below a folder that have a `.npz` file beside them."""
    return sorted(path for path in folder.rglob("*.json") if path.with_suffix(".npz").exists())


def result_path(folder: Path, model: str, task: str, options: Mapping[str, str]) -> Path:
    """The path of a result file. Options that differ from the defaults are part of its name.

    >>> result_path(Path("results"), "random", "diorama/retrieval", {"size": "coco"}).as_posix()
    'results/random/diorama/retrieval+size=coco.json'
    """
    suffix = "".join(f"+{key}={value}" for key, value in sorted(options.items()))
    return folder / safe_file_name(model) / f"{task}{safe_file_name(suffix) if suffix else ''}.json"


def shorten_model_name(name: str) -> str:
    """The name of a model without the folders of its files.

    >>> shorten_model_name("precomputed:runs/2024/clip.npz"), shorten_model_name("/home/ann/runs/scan")
    ('precomputed:clip.npz', 'scan')
    """
    return FILE_FOLDER.sub("", name)


def safe_file_name(model: str) -> str:
    """Turn a model's name into a folder name. A name that had to be changed gets a hash, so that no two share a folder.

    >>> safe_file_name("dual"), safe_file_name("precomputed:../emb v2.npz")
    ('dual', 'precomputed-emb-v2.npz~6a1174')
    """
    clean = re.sub(r"[^A-Za-z0-9._+=@,-]+", "-", shorten_model_name(model).replace("../", "")).strip("-.")[:80]
    return clean if clean and clean == model else f"{clean or 'model'}~{hashlib.sha256(model.encode()).hexdigest()[:6]}"


# The folder of a file in a model's name: after a colon, or an absolute path.
FILE_FOLDER = re.compile(r"((?<=:)[^:+]*|(?:^|(?<=\+))/[^:+]*)/(?=[^/])")

# Evidence in result files: the name of each array, and the field that holds it.
LISTS_KEYS = {"query": "query", "start": "start", "item": "item", "grade": "grade"}
RANK_COUNTS_KEYS = {"above": "above", "size": "tie_size", "depth": "depth", "gallery": "gallery_size"}
COUNTS_AT_K_KEYS = {
    "k": "k", "above": "above", "level": "tie_size", "positive_above": "positives_above", "positive_level": "positives_in_tie",
    "positives": "positive_counts", "gallery": "gallery_size",
}  # fmt: skip
INT32_KEYS = frozenset({"item", "above", "size", "k", "level", "positive_above", "positive_level", "positives"})

Arrays = dict[str, Any]
Header = dict[str, Any]


class EvidenceFormat(NamedTuple):
    """How one kind of evidence is stored: as arrays, and as entries in the header of its part."""

    type: type
    write: Callable[[Any], tuple[Arrays, Header]]
    read: Callable[[Arrays, Header], PartEvidence]


def _write_rank_counts(counts: RankCounts) -> tuple[Arrays, Header]:
    arrays = {key: getattr(counts.lists, name) for key, name in LISTS_KEYS.items()}
    return arrays | {key: getattr(counts, name) for key, name in RANK_COUNTS_KEYS.items()}, {}


class PartArrays(dict[str, Any]):
    """The arrays of a part by name. A missing one is damage, not a bug."""

    def __missing__(self, key: str) -> Any:
        raise UndecodableFileError(f"the array {key!r} is missing")


def _read_rank_counts(arrays: Arrays, header: Header) -> RankCounts:
    lists = CandidateLists(**{name: arrays[key] for key, name in LISTS_KEYS.items()})
    return RankCounts(lists, **{name: arrays[key] for key, name in RANK_COUNTS_KEYS.items()})


def _write_counts_at_k(counts: CountsAtK) -> tuple[Arrays, Header]:
    return {key: getattr(counts, name) for key, name in COUNTS_AT_K_KEYS.items()}, {"caps": list(counts.caps)}


def _read_counts_at_k(arrays: Arrays, header: Header) -> CountsAtK:
    caps = check_record(header, "a part", {"caps": list})["caps"]
    return CountsAtK(**{name: arrays[key] for key, name in COUNTS_AT_K_KEYS.items()}, caps=tuple(caps))


def _write_rated_pairs(pairs: RatedPairs) -> tuple[Arrays, Header]:
    return {"human": pairs.human, "model": pairs.model, "query": pairs.query}, {}


def _read_rated_pairs(arrays: Arrays, header: Header) -> RatedPairs:
    return RatedPairs(arrays["query"], arrays["human"], arrays["model"])


def _write_outcomes(outcomes: Outcomes) -> tuple[Arrays, Header]:
    arrays = {"codes": outcomes.codes} | ({} if outcomes.scores is None else {"scores": outcomes.scores})
    return arrays, {"shape": list(outcomes.shape), "ties_known": outcomes.ties_known}


def _read_outcomes(arrays: Arrays, header: Header) -> Outcomes:
    if "codes" not in arrays:  # an early version of format 2
        return Outcomes.from_scores(arrays["scores"])
    shape = check_record(header, "a part", {"shape": list})["shape"]
    if len(shape) != 2:
        raise UndecodableFileError(f"a part has the shape {shape!r:.40}, expected two numbers")
    return Outcomes(arrays["codes"], (shape[0], shape[1]), arrays.get("scores"), header.get("ties_known", True))


EVIDENCE_FORMATS: Mapping[str, EvidenceFormat] = {
    "rank counts": EvidenceFormat(RankCounts, _write_rank_counts, _read_rank_counts),
    "counts at k": EvidenceFormat(CountsAtK, _write_counts_at_k, _read_counts_at_k),
    "rated pairs": EvidenceFormat(RatedPairs, _write_rated_pairs, _read_rated_pairs),
    "outcomes": EvidenceFormat(Outcomes, _write_outcomes, _read_outcomes),
}


def _read_part(name: str, header: Header, all_arrays: Arrays) -> ResultPart:
    arrays = {key.removeprefix(f"{name}:"): values for key, values in all_arrays.items() if key.startswith(f"{name}:")}
    metric_values = {key.removeprefix("value:"): values for key, values in arrays.items() if key.startswith("value:")}
    arrays = PartArrays({key: values.astype(np.int64) if key in INT32_KEYS else values for key, values in arrays.items()})
    if header["kind"] not in EVIDENCE_FORMATS:
        raise UndecodableFileError(f"part {name!r} has the unknown kind {header['kind']!r:.40}")
    return ResultPart(
        arrays["ids"], arrays["clusters"], EVIDENCE_FORMATS[header["kind"]].read(arrays, header), header["positive"],
        header["complete"], metric_values, arrays.get("folds"), header["direction"], header["judgements"],
    )  # fmt: skip


def _convert_format_2(header: Header, arrays: Arrays) -> None:
    """Add what format 2 does not store: the kind of evidence, by the names of its arrays, and direction and judgements."""
    kinds = {"codes": "outcomes", "scores": "outcomes", "human": "rated pairs", "k": "counts at k"}
    labels = {}
    for name, part in header["parts"].items():
        part["kind"] = next((kind for key, kind in kinds.items() if f"{name}:{key}" in arrays), "rank counts")
        direction, _, judgements = name.partition("/") if part["kind"] in ("rank counts", "counts at k") else ("", "", "")
        labels[name] = {"direction": direction, "judgements": judgements}
        part |= labels[name]
    for row in header["rows"]:
        row |= labels.get(row["part"], {})
