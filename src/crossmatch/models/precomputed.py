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
from crossmatch.core.outcomes import Outcomes
from crossmatch.core.pairs import Similarity
from crossmatch.core.scores import Embeddings, Matrix, Scores
from crossmatch.core.trec import read_run
from crossmatch.core.trials import Answers, TrialChoices, TrialOutcomes, Trials, TrialScores

EMBEDDINGS = ("image_ids", "image_embeddings", "caption_ids", "caption_embeddings")
MATRIX = ("image_ids", "caption_ids", "scores")
COLUMN = re.compile(r"s_c(\d+)_i(\d+)")
# Published outcomes: whether each image took its caption, then whether each caption took its image (miranda2024bivlc's files).
WINS = ("text_score_i0", "text_score_i1", "image_score_c0", "image_score_c1")
TEXTS = ("caption", "negative_caption")
TRUTH = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}


@dataclass(frozen=True)
class Precomputed:
    """A file of embeddings, scores, a TREC run, trial scores, outcomes or BISON predictions, told apart by what is in it."""

    path: Path

    def scores(self, data: Retrieval | Similarity | Trials) -> Scores | Answers:
        try:
            said = read(self.path)
            return said.named(data) if isinstance(said, ByRow) else said
        except CrossmatchError as error:
            raise type(error)(f"{self.path}: {error}") from None

    @property
    def signature(self) -> str:
        """The file's name and what is in it, for the system line."""
        return f"precomputed:{self.path.name}|file:{hashlib.sha256(self.path.read_bytes()).hexdigest()[:12]}"


@dataclass(frozen=True, eq=False)
class ByRow:
    """Published outcomes: a row for each trial in the official order, with the captions where the file has them."""

    outcomes: Outcomes
    captions: np.ndarray[tuple[int, int], np.dtype[np.str_]] | None

    def named(self, data: Retrieval | Similarity | Trials) -> TrialOutcomes:
        """With the ids of the trials; captions that are there must be the trials' own."""
        if not isinstance(data, Trials):
            raise CrossmatchError("it holds outcomes of forced choices, and this task has none. Take the task they are of.")
        names = data.names_by_row(len(self.outcomes))
        assert data.rows is not None
        there = np.flatnonzero(data.rows < len(names))
        if self.captions is not None and data.shape[0] == self.captions.shape[1]:
            own = np.asarray([[" ".join(text.split()) for text in texts] for texts in data.captions[there].tolist()])
            unlike = (self.captions[data.rows[there]] != own).any(axis=1)
            if unlike.any():
                n = int(there[unlike.argmax()])
                raise CrossmatchError(
                    f"row {data.rows[n] + 1} has the caption {str(self.captions[data.rows[n], 0])!r:.80}, but trial "
                    f"{str(data.ids[n])!r} in its place has {str(data.captions[n, 0])!r:.80}. Rows must be in the official order."
                )
        answers = TrialOutcomes(names, self.outcomes)
        return (
            answers.among(data.ids) if data.spans(len(names)) else answers
        )  # the official file may have rows that are no trial here


def read(path: Path) -> Scores | Answers | ByRow:
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


def read_trials(path: Path) -> TrialScores | TrialOutcomes | ByRow:
    """A csv with `trial_id` and a column `s_c<caption>_i<image>` for each pair; or one of outcomes (`_read_outcomes`)."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        names, *rows = [row for row in csv.reader(file) if row] or [[]]
    wins = tuple(name for name in (WINS if set(WINS) <= set(names) else ("correct",)) if name in names)
    if wins and not any(COLUMN.fullmatch(name) for name in names):
        return _read_outcomes(names, rows, wins)
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


def _read_outcomes(names: list[str], rows: list[list[str]], wins: tuple[str, ...]) -> TrialOutcomes | ByRow:
    """Right or wrong, with a `trial_id` or in the official order."""
    if not rows:
        raise CrossmatchError("it has a head but no rows. Write one row per trial.")
    if len(set(names)) < len(names):
        raise CrossmatchError(f"a column is there twice among {', '.join(names)}. Keep one of them.")
    key = names.index("trial_id") if "trial_id" in names else None
    found = np.zeros((len(rows), len(wins)), dtype=bool)
    for n, row in enumerate(rows):
        called = f"trial {row[key]!r}" if key is not None and len(row) > key else f"row {n + 1}"
        if len(row) != len(names):
            raise CrossmatchError(f"{called} has {len(row)} cells under {len(names)} columns. Mend it.")
        for at, name in enumerate(wins):
            said = TRUTH.get(row[names.index(name)].strip().lower())
            if said is None:
                raise CrossmatchError(
                    f"{called} has {name} = {row[names.index(name)]!r}; True or False (or 1 or 0) was expected. Mend it."
                )
            found[n, at] = said
    if len(wins) == len(WINS):
        outcomes = Outcomes.from_wins(found, (2, 2))
    else:
        outcomes = Outcomes.from_wins(np.repeat(found, 2, axis=1) | np.array([False, True]), (2, 1))
    if key is not None:
        return TrialOutcomes(np.asarray([row[key] for row in rows]), outcomes)
    texts = [names.index(name) for name in TEXTS if name in names]
    return ByRow(
        outcomes, np.asarray([[" ".join(row[at].split()) for at in texts] for row in rows]) if len(texts) == len(TEXTS) else None
    )


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


READERS: dict[str, Callable[[Path], Scores | Answers | ByRow]] = {
    ".npz": read_npz,
    ".trec": read_run,
    ".run": read_run,
    ".txt": read_run,
    ".csv": read_trials,
    ".json": read_bison,
}
