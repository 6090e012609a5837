"""Detectors of synthetic images and captions as models: how many trials can be solved by telling real from synthetic items."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from crossmatch.data.arrays import BoolArray, FloatArray, IdArray, as_ids, find_positions
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.trial_outcomes import Outcomes
from crossmatch.data.trials import TrialOutcomes, Trials, TrialScores
from crossmatch.models.baselines.text_encoders import hash_file

THRESHOLD = 0.5
COLUMNS = ("text_pred", "img_pred", "label")


def is_type_correct(probability: FloatArray, threshold: float = THRESHOLD) -> BoolArray:
    """Whether the type of each item is predicted correctly; columns: the natural (positive) and the synthetic (negative) item.

    An item is predicted synthetic if its probability is above the threshold. At the threshold it is natural, as the official
    script rounds 0.5 to 0. Source: miranda2024bivlc, sec. 5.3.

    >>> is_type_correct(np.array([[0.5, 0.9], [0.6, 0.1]]))
    array([[ True,  True],
           [False, False]])
    """
    synthetic = probability > threshold
    return np.asarray(synthetic == np.array([False, True]))


def decide_detector_wins(text: FloatArray, image: FloatArray, threshold: float = THRESHOLD) -> BoolArray:
    """Decide which of the four choices of each 2 x 2 trial a detector wins: Ipos2T, Ineg2T, Tpos2I, Tneg2I.

    For an image, its own type is predicted first; only if that is correct, the caption with the highest probability of that type
    is chosen:

        Ipos2T = 1[ image_0 <= t ] · 1[ text_0 < text_1 ],    Ineg2T = 1[ image_1 > t ] · 1[ text_0 < text_1 ]

    and for a caption the same with exchanged roles. A tie loses. Source: miranda2024bivlc, sec. 5.3.

    `text` and `image` are the probabilities that the positive and the negative item are synthetic, (N, 2); wins are (N, 4).

    >>> decide_detector_wins(np.array([[0.2, 0.4]]), np.array([[0.1, 0.9]]))       # the negative caption looks natural
    array([[ True,  True,  True, False]])
    """
    is_text_correct, is_image_correct = is_type_correct(text, threshold), is_type_correct(image, threshold)
    is_text_ordered, is_image_ordered = (side[:, :1] < side[:, 1:] for side in (text, image))
    return np.concatenate([is_image_correct & is_text_ordered, is_text_correct & is_image_ordered], axis=1)


@dataclass(frozen=True, eq=False)
class SyntheticProbabilities:
    """Probabilities that the positive and the negative item of each trial are synthetic, (N, 2); images may be missing."""

    text: FloatArray
    image: FloatArray | None = None
    ids: IdArray | None = None  # of the trials, if the file has them

    def accuracies(self, threshold: float = THRESHOLD) -> dict[str, float]:
        """Return the share of items whose type is predicted correctly, for texts and for images (miranda2024bivlc, tab. 5).

        >>> SyntheticProbabilities(np.array([[0.1, 0.9], [0.1, 0.3]])).accuracies()
        {'text detection': 0.75}
        """
        sides = {"text detection": self.text, "image detection": self.image}
        return {name: float(is_type_correct(side, threshold).mean()) for name, side in sides.items() if side is not None}


def read_probabilities(path: Path) -> SyntheticProbabilities:
    """Read a csv with a row for each item: `text_pred`, for 2 x 2 trials `img_pred`, and `label`, 0 for the positive.

    With a column `trial_id`, the two rows of an id are a trial. Without it, as in the official files, the k-th row with label 0 and
    the k-th row with label 1 are trial k. (Those files have a thousand positives, then their thousand negatives, and so on.)
    """
    if not path.is_file():
        raise UsageError(f"there is no file {path}. Check the path.")
    try:
        names, *rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline=""), strict=True)) or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise CrossmatchError(f"{path} cannot be read as csv ({error}). Write it again.") from None
    if len(set(names)) < len(names):
        raise CrossmatchError(f"{path}: a column occurs twice among {', '.join(names)}. Keep one of them.")
    if not {"text_pred", "label"} <= set(names):
        raise CrossmatchError(f"{path}: expected the columns {', '.join(COLUMNS)}, got {', '.join(names) or '(none)'}.")
    values = {name: _read_probability_column(path, rows, names.index(name), name) for name in COLUMNS if name in names}
    kinds = [np.flatnonzero(values["label"] == kind) for kind in (0, 1)]
    if len(kinds[0]) != len(kinds[1]) or len(kinds[0]) + len(kinds[1]) < len(rows) or not rows:
        raise CrossmatchError(
            f"{path} has {len(kinds[0]):,} rows with label 0 and {len(kinds[1]):,} with label 1 among {len(rows):,} rows. Every "
            "trial needs one row with label 0 (positive) and one with label 1 (negative)."
        )
    ids = None
    if "trial_id" in names:
        column = names.index("trial_id")
        ids, negative_ids = (as_ids([rows[n][column] for n in kind], f"{path}: trial") for kind in kinds)
        kinds[1] = kinds[1][find_positions(ids, negative_ids, "trial", "the rows of label 1")]
    text, image = (np.stack([values[name][kind] for kind in kinds], axis=1) if name in values else None for name in COLUMNS[:2])
    assert text is not None
    return SyntheticProbabilities(text, image, ids)


def _read_probability_column(path: Path, rows: list[list[str]], column: int, name: str) -> FloatArray:
    out = np.empty(len(rows))
    for n, row in enumerate(rows):
        try:
            out[n] = float(row[column])
        except (IndexError, ValueError):
            out[n] = np.nan
        if not 0 <= out[n] <= 1:
            raise CrossmatchError(f"{path}, row {n + 1}: expected a {name} between 0 and 1, got {', '.join(row)!r:.80}.")
    return out


@dataclass(frozen=True, eq=False)
class PrecomputedDetector:
    """Answers trials from a file of a detector's probabilities, in the official order if the file has no trial ids.

    Trials of two images and two captions are decided by `decide_detector_wins`. With one image and two captions, the caption that
    is less likely synthetic is chosen, because all images are natural (miranda2024bivlc, sec. 5.3, for SugarCrepe).
    """

    path: Path
    threshold: float = THRESHOLD

    @cached_property
    def probabilities(self) -> SyntheticProbabilities:
        return read_probabilities(self.path)

    @property
    def signature(self) -> str:
        return f"detector:{self.path.name}|file:{hash_file(self.path)}|threshold:{self.threshold:g}"

    def scores(self, data: object) -> TrialScores | TrialOutcomes:
        """The answers to trials; other tasks are refused."""
        text, image, ids = self.probabilities.text, self.probabilities.image, self.probabilities.ids
        shape = data.shape if isinstance(data, Trials) else None
        if isinstance(data, Trials) and (shape == (2, 1) or (shape == (2, 2) and image is not None)):
            if ids is None:
                data.require_all_rows(len(text))
            row_ids = data.ids_by_row(len(text)) if ids is None else ids
            # The official file may have rows that are not trials here.
            answered = data.ids if ids is None and data.covers_last_row(len(text)) else row_ids
            if image is None or shape == (2, 1):
                return TrialScores(row_ids, -text[:, :, None]).select_ids(answered)
            return TrialOutcomes(row_ids, make_detector_outcomes(text, image, self.threshold)).select_ids(answered)
        remedy = "Add the column img_pred to the file." if shape == (2, 2) else "Use bivlc or sugarcrepe."
        raise CrossmatchError(
            f"{self.path}: a detector answers trials of two captions with one image, or with two images and their probabilities "
            f"(img_pred); this task is of another kind. {remedy}"
        )

    def notes_on(self, trials: Trials) -> tuple[str, ...]:
        """How often the type of an item is predicted correctly."""
        return tuple(f"{side}: {100 * share:.2f} % right" for side, share in self.probabilities.accuracies(self.threshold).items())


def make_detector_outcomes(text: FloatArray, image: FloatArray, threshold: float = THRESHOLD) -> Outcomes:
    """Make the outcomes of `decide_detector_wins`; a trial is tied if its captions or its images are equally likely synthetic.

    >>> make_detector_outcomes(np.array([[0.2, 0.6], [0.7, 0.7]]), np.array([[0.1, 0.9], [0.1, 0.9]])).is_tied
    array([False,  True])
    """
    is_tied = (text[:, 0] == text[:, 1]) | (image[:, 0] == image[:, 1])
    return Outcomes.from_wins(decide_detector_wins(text, image, threshold), (2, 2), is_tied)


def make_detector(argument: str) -> object:
    """Make the model of `detector:FILE`, or of `detector:FOLDER[+MODEL]` for a trained detector."""
    if any((Path(part) / "model.json").is_file() for part in (argument, argument.partition("+")[0])):
        from crossmatch.models.baselines.synthetic_detector import make_trained_detector

        return make_trained_detector(argument)
    if not argument:
        raise UsageError("detector needs a csv with text_pred, img_pred and label, as in detector:probabilities.csv")
    if not Path(argument).is_file():
        raise UsageError(f"there is no file {argument}. Check the path.")
    return PrecomputedDetector(Path(argument))
