"""Bring your own numbers: scores and embeddings from files, without any model code."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crossmatch.core.benchmark import Retrieval
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.scores import Embeddings, Matrix, Run, Scores
from crossmatch.core.trials import TrialChoices, Trials, TrialScores

EMBEDDINGS = ("image_ids", "image_embeddings", "caption_ids", "caption_embeddings")
MATRIX = ("image_ids", "caption_ids", "scores")
COLUMN = re.compile(r"s_c(\d+)_i(\d+)")


@dataclass(frozen=True)
class Precomputed:
    """A file of embeddings, a score matrix, a TREC run, trial scores or BISON predictions, told apart by what is in it."""

    path: Path

    def scores(self, data: Retrieval | Trials) -> Scores | TrialScores | TrialChoices:
        try:
            said = read(self.path)
            if isinstance(data, Retrieval) and isinstance(said, Embeddings | Matrix | Run):
                return said.aligned(data.collection)
            return said
        except CrossmatchError as error:
            raise type(error)(f"{self.path}: {error}") from None

    @property
    def signature(self) -> str:
        """The file's name and what is in it, for the system line."""
        return f"precomputed:{self.path.name}|file:{hashlib.sha256(self.path.read_bytes()).hexdigest()[:12]}"


def read(path: Path) -> Scores | TrialScores | TrialChoices:
    """Read any of the formats; see the README of the project for their layouts."""
    if not path.is_file():
        raise WrongWords("there is no such file. Check the path.")
    if path.stat().st_size == 0:
        raise CrossmatchError("the file is empty. Write it again.")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise CrossmatchError(f"files that end in {path.suffix!r} are not understood; use one of {', '.join(READERS)}.")
    try:
        return reader(path)
    except CrossmatchError:
        raise
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise CrossmatchError(f"the file cannot be read as {path.suffix} ({error}). Write it again.") from None
        raise CrossmatchError("an array in it holds Python objects. Store plain numbers and strings, not objects.") from None
    except Exception as error:  # a damaged file can fail anywhere inside of zip, csv or json
        raise CrossmatchError(
            f"the file cannot be read as {path.suffix} ({error or type(error).__name__}). Write it again."
        ) from None


def read_npz(path: Path) -> Embeddings | Matrix:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
        arrays = {name: held[name] for name in held.files}
    if set(EMBEDDINGS) | set(MATRIX) <= arrays.keys():
        raise CrossmatchError("it holds both embeddings and scores. Keep one of them, so that it is clear which is evaluated.")
    if set(EMBEDDINGS) <= arrays.keys():
        images, captions = (arrays[EMBEDDINGS[0]], arrays[EMBEDDINGS[1]]), (arrays[EMBEDDINGS[2]], arrays[EMBEDDINGS[3]])
        return Embeddings(*images, *captions, str(arrays.get("similarity", "cosine")))
    if set(MATRIX) <= arrays.keys():
        return Matrix(*(arrays[name] for name in MATRIX))
    raise CrossmatchError(f"it holds {', '.join(arrays) or 'nothing'}; expected {', '.join(EMBEDDINGS)}, or {', '.join(MATRIX)}.")


def read_trec(path: Path) -> Run:
    """Lines of `query Q0 item rank score tag`."""
    queries, items, scores, tag = [], [], [], "run"
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
        words = line.split()
        if not words:
            continue
        if len(words) != 6:
            raise CrossmatchError(f"line {number} has {len(words)} words; six were expected: query Q0 item rank score tag.")
        queries.append(words[0])
        items.append(words[2])
        try:
            scores.append(float(words[4]))
        except ValueError:
            raise CrossmatchError(f"line {number} has the score {words[4]!r}, which is not a number.") from None
        tag = words[5]
    if not queries:
        raise CrossmatchError("the run has no lines. Write it again.")
    return Run(np.asarray(queries), np.asarray(items), np.asarray(scores), tag)


def read_trials(path: Path) -> TrialScores:
    """A csv with `trial_id` and a column `s_c<caption>_i<image>` for each pair."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        names, *rows = [row for row in csv.reader(file) if row] or [[]]
    cells = {n: tuple(map(int, match.groups())) for n, name in enumerate(names) if (match := COLUMN.fullmatch(name))}
    if "trial_id" not in names or not cells:
        raise CrossmatchError(f"it has the columns {', '.join(names) or '(none)'}; expected trial_id, s_c0_i0, s_c0_i1, …")
    if not rows:
        raise CrossmatchError("it has a head but no rows. Write one row per trial.")
    if len(set(names)) < len(names) or len(set(cells.values())) < len(cells):
        raise CrossmatchError(f"a column is there twice among {', '.join(names)}. Keep one of them.")
    shape = tuple(max(cell[axis] for cell in cells.values()) + 1 for axis in (0, 1))
    if len(cells) != shape[0] * shape[1]:
        raise CrossmatchError(
            f"{len(cells)} score columns do not fill {shape[0]} captions x {shape[1]} images. Add the missing ones."
        )
    key = names.index("trial_id")
    values = np.full((len(rows), *shape), np.nan)
    for n, row in enumerate(rows):
        if len(row) != len(names):
            raise CrossmatchError(f"row {n + 1} has {len(row)} cells under {len(names)} columns. Decimal commas? Write points.")
        for at, cell in cells.items():
            try:
                values[n, *cell] = float(row[at])
            except ValueError:
                raise CrossmatchError(f"trial {row[key]!r} has {names[at]} = {row[at]!r}, which is not a number.") from None
    return TrialScores(np.asarray([row[key] for row in rows]), values)


def read_bison(path: Path) -> TrialChoices:
    """BISON's official predictions: a list of `{"bison_id": …, "predicted_image_id": …}`."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    if (
        not isinstance(rows, list)
        or not rows
        or not all(isinstance(row, dict) and {"bison_id", "predicted_image_id"} <= row.keys() for row in rows)
    ):
        raise CrossmatchError('expected a list of {"bison_id": …, "predicted_image_id": …}, as BISON\'s official predictions.')
    return TrialChoices(np.asarray([str(r["bison_id"]) for r in rows]), np.asarray([str(r["predicted_image_id"]) for r in rows]))


READERS: dict[str, Callable[[Path], Scores | TrialScores | TrialChoices]] = {
    ".npz": read_npz,
    ".trec": read_trec,
    ".run": read_trec,
    ".txt": read_trec,
    ".csv": read_trials,
    ".json": read_bison,
}
