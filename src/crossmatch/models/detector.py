"""Detectors of synthetic images and captions as solvers of trials: how far a benchmark gets one that only tells real from made."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from crossmatch.core.arrays import BoolArray, FloatArray, IdArray, as_ids, positions
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.outcomes import Outcomes
from crossmatch.core.trials import TrialOutcomes, Trials, TrialScores
from crossmatch.models.text import file_hash

THRESHOLD = 0.5
COLUMNS = ("text_pred", "img_pred", "label")


def detected(probability: FloatArray, threshold: float = THRESHOLD) -> BoolArray:
    """Whether the type of each item is predicted right; columns: the natural (positive) and the synthetic (negative) one.

    Synthetic is what has a probability above the threshold. One that is just on it counts as natural, as the official script
    rounds 0.5 to 0. Source: miranda2024bivlc, sec. 5.3.

    >>> detected(np.array([[0.5, 0.9], [0.6, 0.1]]))
    array([[ True,  True],
           [False, False]])
    """
    synthetic = probability > threshold
    return np.asarray(synthetic == np.array([False, True]))


def detector_outcomes(text: FloatArray, image: FloatArray, threshold: float = THRESHOLD) -> BoolArray:
    """Which of the four choices of a 2 x 2 trial a detector gets right: Ipos2T, Ineg2T, Tpos2I, Tneg2I.

    `text` and `image`, both (N, 2), are the probabilities of being synthetic of the positive and the negative item. For an image,
    its own type is predicted first; only if that is right, the caption with the highest probability of that type is taken:

        Ipos2T = 1[ image_0 <= t ] · 1[ text_0 < text_1 ],    Ineg2T = 1[ image_1 > t ] · 1[ text_0 < text_1 ]

    and for a caption the same with the roles exchanged. A tie loses. Source: miranda2024bivlc, sec. 5.3.

    >>> detector_outcomes(np.array([[0.2, 0.4]]), np.array([[0.1, 0.9]]))       # the negative caption is taken for natural
    array([[ True,  True,  True, False]])
    """
    known_text, known_image = detected(text, threshold), detected(image, threshold)
    apart_text, apart_image = (side[:, :1] < side[:, 1:] for side in (text, image))
    return np.concatenate([known_image & apart_text, known_text & apart_image], axis=1)


@dataclass(frozen=True, eq=False)
class Detected:
    """Probabilities of being synthetic for each trial, (N, 2): of the positive and the negative item. Some detect texts alone."""

    text: FloatArray
    image: FloatArray | None = None
    ids: IdArray | None = None  # of the trials, where the file has them

    def accuracies(self, threshold: float = THRESHOLD) -> dict[str, float]:
        """The share of items whose type is predicted right, for texts and images apart (miranda2024bivlc, tab. 5).

        >>> Detected(np.array([[0.1, 0.9], [0.1, 0.3]])).accuracies()
        {'text detection': 0.75}
        """
        sides = {"text detection": self.text, "image detection": self.image}
        return {name: float(detected(side, threshold).mean()) for name, side in sides.items() if side is not None}


def read_detector(path: Path) -> Detected:
    """A csv with a row for each item: `text_pred`, for 2 x 2 trials `img_pred`, and `label`, which is 0 for the positive.

    With a column `trial_id`, the two rows of one id are a trial. Without it, as in the official files, the k-th row of label 0 and
    the k-th row of label 1 are trial k. (Those have a thousand positives, then their thousand negatives, and so on.)
    """
    if not path.is_file():
        raise WrongWords(f"there is no file {path}. Check the path.")
    try:
        names, *rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline=""), strict=True)) or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise CrossmatchError(f"{path} cannot be read as csv ({error}). Write it again.") from None
    if len(set(names)) < len(names):
        raise CrossmatchError(f"{path} has a column twice among {', '.join(names)}. Keep one of them.")
    if not {"text_pred", "label"} <= set(names):
        raise CrossmatchError(f"{path} has the columns {', '.join(names) or '(none)'}; {', '.join(COLUMNS)} were expected.")
    values = {name: _numbers(path, rows, names.index(name), name) for name in COLUMNS if name in names}
    kinds = [np.flatnonzero(values["label"] == kind) for kind in (0, 1)]
    if len(kinds[0]) != len(kinds[1]) or len(kinds[0]) + len(kinds[1]) < len(rows) or not rows:
        raise CrossmatchError(
            f"{path} has {len(kinds[0]):,} rows of label 0 and {len(kinds[1]):,} of label 1 among {len(rows):,}; as many of "
            "each, and no others, were expected: 0 for the positive and 1 for the negative of every trial."
        )
    ids = None
    if "trial_id" in names:
        column = names.index("trial_id")
        ids, other = (as_ids([rows[n][column] for n in kind], f"{path}: trial") for kind in kinds)
        kinds[1] = kinds[1][positions(ids, other, "trial", "the rows of label 1")]
    text, image = (np.stack([values[name][kind] for kind in kinds], axis=1) if name in values else None for name in COLUMNS[:2])
    assert text is not None
    return Detected(text, image, ids)


def _numbers(path: Path, rows: list[list[str]], column: int, name: str) -> FloatArray:
    out = np.empty(len(rows))
    for n, row in enumerate(rows):
        try:
            out[n] = float(row[column])
        except (IndexError, ValueError):
            out[n] = np.nan
        if not 0 <= out[n] <= 1:
            raise CrossmatchError(f"{path}: row {n + 1} has no {name} between 0 and 1: {', '.join(row)!r:.80}. Mend it.")
    return out


@dataclass(frozen=True, eq=False)
class Detector:
    """Answers trials from the file of a detector's probabilities, in the official order where the file names no trials.

    Trials of two images and two captions go by `detector_outcomes`; with one image and two captions, the caption that is less
    likely synthetic is taken, as the images are all natural (miranda2024bivlc, sec. 5.3, for SugarCrepe).
    """

    path: Path
    threshold: float = THRESHOLD

    @cached_property
    def detected(self) -> Detected:
        return read_detector(self.path)

    @property
    def signature(self) -> str:
        return f"detector:{self.path.name}|file:{file_hash(self.path)}|threshold:{self.threshold:g}"

    def scores(self, data: object) -> TrialScores | TrialOutcomes:
        text, image = self.detected.text, self.detected.image
        shape = data.shape if isinstance(data, Trials) else None
        if isinstance(data, Trials) and shape == (2, 1):
            return TrialScores(self._ids(data), -text[:, :, None]).among(self._asked(data))
        if isinstance(data, Trials) and shape == (2, 2) and image is not None:
            return TrialOutcomes(self._ids(data), outcomes_of_detector(text, image, self.threshold)).among(self._asked(data))
        lacks = " and the column img_pred, which the file lacks" if shape == (2, 2) else ""
        raise CrossmatchError(
            f"a detector answers trials of two captions with one image, or two images{lacks}; this task is of another kind. "
            "Take bivlc or sugarcrepe."
        )

    def _ids(self, trials: Trials) -> IdArray:
        """The file's own ids, or those of the trials in the official order."""
        return self.detected.ids if self.detected.ids is not None else trials.names_by_row(len(self.detected.text))

    def _asked(self, trials: Trials) -> IdArray:
        """Rows of the official file that are no trial of the benchmark are left out."""
        return trials.ids if self.detected.ids is None and trials.spans(len(self.detected.text)) else self._ids(trials)

    def notes_on(self, trials: Trials) -> tuple[str, ...]:
        """How often the type of an item is predicted right."""
        return tuple(f"{what}: {100 * share:.2f} % right" for what, share in self.detected.accuracies(self.threshold).items())


def outcomes_of_detector(text: FloatArray, image: FloatArray, threshold: float = THRESHOLD) -> Outcomes:
    """`detector_outcomes` as codes. A trial ties if its captions or its images are equally likely synthetic.

    >>> outcomes_of_detector(np.array([[0.2, 0.6], [0.7, 0.7]]), np.array([[0.1, 0.9], [0.1, 0.9]])).tied
    array([False,  True])
    """
    tie = (text[:, 0] == text[:, 1]) | (image[:, 0] == image[:, 1])
    return Outcomes.from_wins(detector_outcomes(text, image, threshold), (2, 2), tie)


def detector(rest: str) -> Detector:
    """The detector of a file."""
    if not rest:
        raise WrongWords("detector needs a csv with text_pred, img_pred and label, as in detector:probabilities.csv")
    if not Path(rest).is_file():
        raise WrongWords(f"there is no file {rest}. Check the path.")
    return Detector(Path(rest))
