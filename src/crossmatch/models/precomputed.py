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
from crossmatch.core.pairs import Similarity
from crossmatch.core.scores import Embeddings, Matrix, Scores
from crossmatch.core.trec import read_run
from crossmatch.core.trials import TrialChoices, Trials, TrialScores

EMBEDDINGS = ("image_ids", "image_embeddings", "caption_ids", "caption_embeddings")
MATRIX = ("image_ids", "caption_ids", "scores")
COLUMN = re.compile(r"s_c(\d+)_i(\d+)")


@dataclass(frozen=True)
class Precomputed:
    """A file of embeddings, a score matrix, a TREC run, trial scores or BISON predictions, told apart by what is in it."""

    path: Path

    def scores(self, data: Retrieval | Similarity | Trials) -> Scores | TrialScores | TrialChoices:
        try:
            return read(self.path)
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
    if set(EMBEDDINGS[:2]) <= arrays.keys() or set(EMBEDDINGS[2:]) <= arrays.keys():
        half = [name for name in EMBEDDINGS if name in arrays]
        if len(half) == 3:
            raise CrossmatchError(f"it holds {', '.join(half)}; ids and embeddings come in pairs. Store both, or neither.")
        images, image_vectors, captions, caption_vectors = (arrays.get(name) for name in EMBEDDINGS)
        similarity = str(arrays.get("similarity", "cosine"))
        return Embeddings(images, image_vectors, captions, caption_vectors, similarity)
    if set(MATRIX) <= arrays.keys():
        return Matrix(*(arrays[name] for name in MATRIX))
    raise CrossmatchError(f"it holds {', '.join(arrays) or 'nothing'}; expected {', '.join(EMBEDDINGS)}, or {', '.join(MATRIX)}.")


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
    ".trec": read_run,
    ".run": read_run,
    ".txt": read_run,
    ".csv": read_trials,
    ".json": read_bison,
}
