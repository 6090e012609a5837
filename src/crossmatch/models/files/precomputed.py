"""Scores and embeddings from files, evaluated without any model code."""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.file_contents import UndecodableFileError, decode_json_file, decode_npz
from crossmatch.data.io.spreadsheet_csv import restore_text
from crossmatch.data.loaded_data import Retrieval
from crossmatch.data.rated_pairs import Similarity
from crossmatch.data.scores import Embeddings, Matrix, Scores
from crossmatch.data.trial_outcomes import Outcomes
from crossmatch.data.trials import TrialAnswers, TrialChoices, TrialOutcomes, Trials, TrialScores
from crossmatch.ranking.trec_files import read_run

EMBEDDINGS = ("image_ids", "image_embeddings", "caption_ids", "caption_embeddings")
MATRIX = ("image_ids", "caption_ids", "scores")
SCORE_COLUMN = re.compile(r"s_c(\d+)_i(\d+)")
# Published outcomes: whether each image chose its caption, then whether each caption chose its image (files of miranda2024bivlc).
WIN_COLUMNS = ("text_score_i0", "text_score_i1", "image_score_c0", "image_score_c1")
CAPTION_COLUMNS = ("caption", "negative_caption")
BOOLEANS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}


@dataclass(frozen=True)
class Precomputed:
    """A file of embeddings, scores, a TREC run, trial scores, outcomes or BISON predictions; its content tells which."""

    path: Path

    def scores(self, data: Retrieval | Similarity | Trials) -> Scores | TrialAnswers:
        """Read the file for this benchmark."""
        try:
            content = read_scores_file(self.path)
            return content.with_trial_ids(data) if isinstance(content, OutcomesByRow) else content
        except CrossmatchError as error:
            raise type(error)(f"{self.path}: {error}") from None

    @property
    def signature(self) -> str:
        """The file's name and the hash of its content."""
        return f"precomputed:{self.path.name}|file:{hashlib.sha256(self.path.read_bytes()).hexdigest()[:12]}"


def make_precomputed(argument: str) -> Precomputed:
    """Make the model of `precomputed:FILE`."""
    if not argument:
        raise UsageError("precomputed needs a file, as in precomputed:embeddings.npz")
    if not Path(argument).is_file():
        raise UsageError(f"{argument}: there is no such file. Check the path.")
    return Precomputed(Path(argument))


@dataclass(frozen=True, eq=False)
class OutcomesByRow:
    """Published outcomes: a row for each trial in the official order, with the captions if the file has them."""

    outcomes: Outcomes
    captions: np.ndarray[tuple[int, int], np.dtype[np.str_]] | None

    def with_trial_ids(self, data: Retrieval | Similarity | Trials) -> TrialOutcomes:
        """Assign the ids of the trials; captions in the file must be those of the trials."""
        if not isinstance(data, Trials):
            raise CrossmatchError(
                "the file has outcomes of trials, but this task has no trials. Choose the task that they belong to."
            )
        ids = data.ids_by_row(len(self.outcomes))
        if self.captions is not None and data.shape[0] == self.captions.shape[1]:
            _require_same_captions(self.captions, data)
        else:
            data.require_all_rows(len(self.outcomes))
        answers = TrialOutcomes(ids, self.outcomes)
        # The official file may have rows that are not trials here.
        return answers.select_ids(data.ids) if data.covers_last_row(len(ids)) else answers


def _require_same_captions(captions: np.ndarray[tuple[int, int], np.dtype[np.str_]], data: Trials) -> None:
    """Refuse a file whose captions are not those of the trials; the error names the first row, in the order of the file."""
    assert data.file_rows is not None
    expected = {
        row: [" ".join(text.split()) for text in texts]
        for row, texts in zip(data.file_rows.tolist(), data.captions.tolist(), strict=True)
    }
    wrong = next((row for row in sorted(expected) if row < len(captions) and captions[row].tolist() != expected[row]), None)
    if wrong is None:
        return
    trial = str(data.ids[data.file_rows.tolist().index(wrong)])
    if captions[wrong].tolist() == expected.get(wrong + 1):
        raise CrossmatchError(
            f"the row of trial {trial!r} with the caption {expected[wrong][0]!r:.80} is missing: row {wrong + 1} belongs to the next "
            "trial. Add the missing row."
        )
    raise CrossmatchError(
        f"row {wrong + 1} has the caption {str(captions[wrong, 0])!r:.80}, but trial {trial!r} at this position has "
        f"{expected[wrong][0]!r:.80}. Rows must be in the official order."
    )


def read_scores_file(path: Path) -> Scores | TrialAnswers | OutcomesByRow:
    """Read any of the formats; the README describes their layouts."""
    path = Path(path)
    if not path.is_file():
        raise UsageError("there is no such file. Check the path.")
    if path.stat().st_size == 0:
        raise CrossmatchError("the file is empty. Write it again.")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise CrossmatchError(f"files that end in {path.suffix!r} are not supported. Use one of {', '.join(READERS)}.")
    try:
        return reader(path)
    except (UndecodableFileError, UnicodeDecodeError, csv.Error, OSError) as error:
        fix = "Store plain numbers and strings" if "Python objects" in str(error) else "Write it again"
        raise CrossmatchError(f"the file cannot be read as {path.suffix} ({error}). {fix}.") from None


def read_npz(path: Path) -> Embeddings | Matrix:
    """Read embeddings or a score matrix."""
    with path.open("rb") as file:
        arrays = decode_npz(file)
    if set(EMBEDDINGS) | set(MATRIX) <= arrays.keys():
        raise CrossmatchError("the file has both embeddings and scores. Keep only those that are to be evaluated.")
    if set(EMBEDDINGS[:2]) <= arrays.keys() or set(EMBEDDINGS[2:]) <= arrays.keys():
        present = [name for name in EMBEDDINGS if name in arrays]
        if len(present) == 3:
            raise CrossmatchError(f"the file has {', '.join(present)}; ids and embeddings come in pairs. Store both, or neither.")
        images, image_vectors, captions, caption_vectors = (arrays.get(name) for name in EMBEDDINGS)
        similarity = str(arrays.get("similarity", "cosine"))
        return Embeddings(images, image_vectors, captions, caption_vectors, similarity)
    if set(MATRIX) <= arrays.keys():
        return Matrix(*(arrays[name] for name in MATRIX))
    expected = f"{', '.join(EMBEDDINGS)}, or {', '.join(MATRIX)}"
    raise CrossmatchError(f"the file has the arrays {', '.join(arrays) or '(none)'}; expected {expected}.")


def read_trials(path: Path) -> TrialScores | TrialOutcomes | OutcomesByRow:
    """Read a csv with `trial_id` and a column `s_c<caption>_i<image>` for each pair, or a csv of outcomes."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        names, *rows = [row for row in csv.reader(file) if row] or [[]]
    wins = tuple(name for name in (WIN_COLUMNS if set(WIN_COLUMNS) <= set(names) else ("correct",)) if name in names)
    if wins and not any(SCORE_COLUMN.fullmatch(name) for name in names):
        return _read_outcomes(names, rows, wins)
    cells = {n: tuple(map(int, match.groups())) for n, name in enumerate(names) if (match := SCORE_COLUMN.fullmatch(name))}
    if "trial_id" not in names or not cells:
        raise CrossmatchError(f"the file has the columns {', '.join(names) or '(none)'}; expected trial_id, s_c0_i0, s_c0_i1, …")
    _require_rows(names, rows)
    if len(set(cells.values())) < len(cells):
        raise CrossmatchError(f"a column occurs twice among {', '.join(names)}. Keep one of them.")
    shape = tuple(max(cell[axis] for cell in cells.values()) + 1 for axis in (0, 1))
    if len(cells) != shape[0] * shape[1]:
        raise CrossmatchError(
            f"{len(cells)} score columns do not fill {shape[0]} captions x {shape[1]} images. Add the missing columns."
        )
    key = names.index("trial_id")
    values = np.full((len(rows), *shape), np.nan)
    for n, row in enumerate(rows):
        if len(row) != len(names):
            raise CrossmatchError(
                f"row {n + 1} has {len(row)} cells under {len(names)} columns. If it has decimal commas, write points."
            )
        for column, cell in cells.items():
            try:
                values[n, *cell] = float(row[column])
            except ValueError:
                raise CrossmatchError(
                    f"trial {row[key]!r}: expected a number in column {names[column]}, got {row[column]!r}."
                ) from None
    return TrialScores(np.asarray([restore_text(row[key]) for row in rows]), values)


def _require_rows(names: list[str], rows: list[list[str]]) -> None:
    if not rows:
        raise CrossmatchError("the file has a header but no rows. Write one row per trial.")
    if len(set(names)) < len(names):
        raise CrossmatchError(f"a column occurs twice among {', '.join(names)}. Keep one of them.")


def _read_outcomes(names: list[str], rows: list[list[str]], columns: tuple[str, ...]) -> TrialOutcomes | OutcomesByRow:
    """Read right or wrong, by `trial_id` or in the official order."""
    _require_rows(names, rows)
    key = names.index("trial_id") if "trial_id" in names else None
    wins = np.zeros((len(rows), len(columns)), dtype=bool)
    for n, row in enumerate(rows):
        where = f"trial {row[key]!r}" if key is not None and len(row) > key else f"row {n + 1}"
        if len(row) != len(names):
            raise CrossmatchError(f"{where} has {len(row)} cells under {len(names)} columns. Correct it.")
        for column, name in enumerate(columns):
            cell = row[names.index(name)]
            win = BOOLEANS.get(cell.strip().lower())
            if win is None:
                raise CrossmatchError(f"{where}: expected True or False (or 1 or 0) in column {name}, got {cell!r}.")
            wins[n, column] = win
    if len(columns) == len(WIN_COLUMNS):
        outcomes = Outcomes.from_wins(wins, (2, 2))
    else:
        outcomes = Outcomes.from_wins(np.repeat(wins, 2, axis=1) | np.array([False, True]), (2, 1))
    if key is not None:
        return TrialOutcomes(np.asarray([restore_text(row[key]) for row in rows]), outcomes)
    texts = [names.index(name) for name in CAPTION_COLUMNS if name in names]
    if len(texts) < len(CAPTION_COLUMNS):
        return OutcomesByRow(outcomes, None)
    return OutcomesByRow(outcomes, np.asarray([[" ".join(row[column].split()) for column in texts] for row in rows]))


def read_bison(path: Path) -> TrialChoices:
    """Read BISON's official predictions: a list of `{"bison_id": …, "predicted_image_id": …}`."""
    rows = decode_json_file(path)
    if (
        not isinstance(rows, list)
        or not rows
        or not all(isinstance(row, dict) and {"bison_id", "predicted_image_id"} <= row.keys() for row in rows)
    ):
        raise CrossmatchError('expected a list of {"bison_id": …, "predicted_image_id": …}, as in BISON\'s official predictions.')
    return TrialChoices(np.asarray([str(r["bison_id"]) for r in rows]), np.asarray([str(r["predicted_image_id"]) for r in rows]))


READERS: dict[str, Callable[[Path], Scores | TrialAnswers | OutcomesByRow]] = {
    ".npz": read_npz,
    ".trec": read_run,
    ".run": read_run,
    ".txt": read_run,
    ".csv": read_trials,
    ".json": read_bison,
}
