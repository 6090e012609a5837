"""The protocol of BiVLC's detectors against a slow version, and files of probabilities."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.trials import Trials
from crossmatch.metrics.forced_choice import accuracy, group_choice, i2t_choice, t2i_choice
from crossmatch.models.baselines.precomputed_synthetic_detector import (
    PrecomputedDetector,
    decide_detector_wins,
    is_type_correct,
    make_detector,
    make_detector_outcomes,
    read_probabilities,
)

probability = st.sampled_from([0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0])


def chosen(query: float, own: int, candidates: tuple[float, float]) -> bool:
    """Predict the type of the query; if it is right, choose the likeliest candidate of that type; a tie chooses none."""
    synthetic = query > 0.5
    if synthetic != bool(own):
        return False
    of_type = [p if synthetic else 1 - p for p in candidates]
    return of_type[own] > of_type[1 - own]


@given(st.tuples(probability, probability), st.tuples(probability, probability))
def test_four_choices_follow_the_protocol(text, image):
    expected = [chosen(image[own], own, text) for own in (0, 1)] + [chosen(text[own], own, image) for own in (0, 1)]
    assert decide_detector_wins(np.array([text]), np.array([image]))[0].tolist() == expected
    code = make_detector_outcomes(np.array([text]), np.array([image]))
    assert i2t_choice(code)[0] == all(expected[:2])
    assert t2i_choice(code)[0] == all(expected[2:])
    assert group_choice(code)[0] == all(expected)
    assert code.is_tied[0] == (text[0] == text[1] or image[0] == image[1])


def test_probability_at_the_threshold_is_natural():
    sides = np.array([[0.5, 0.5]])
    assert is_type_correct(sides).tolist() == [[True, False]]
    assert is_type_correct(sides, 0.4).tolist() == [[False, True]]


def written(path: Path, rows: list[tuple[object, ...]], head: str = "text_pred,img_pred,label") -> Path:
    path.write_text("\n".join([head, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def trials(c: int, i: int, ids: list[str]) -> Trials:
    n = len(ids)
    images, captions = (
        [[f"{label} {t} {k}" for k in range(size)] for t in range(n)] for label, size in (("image", i), ("text", c))
    )
    return Trials(ids, images, captions, [""] * n)


ROWS = [(0.1, 0.2, 0), (0.3, 0.4, 0), (0.9, 0.8, 1), (0.2, 0.6, 1), (0.6, 0.1, 0), (0.7, 0.9, 1)]


def test_rows_are_paired_by_label_in_order(tmp_path):
    detection = read_probabilities(written(tmp_path / "d.csv", ROWS))
    assert detection.text.tolist() == [[0.1, 0.9], [0.3, 0.2], [0.6, 0.7]]
    assert detection.image.tolist() == [[0.2, 0.8], [0.4, 0.6], [0.1, 0.9]]
    assert detection.accuracies() == {"text detection": 4 / 6, "image detection": 1.0}


def test_rows_are_paired_by_trial_id(tmp_path):
    rows = [("a", 0.1, 0), ("b", 0.4, 0), ("b", 0.5, 1), ("a", 0.9, 1)]
    model = make_detector(str(written(tmp_path / "d.csv", rows, "trial_id,text_pred,label")))
    assert model.probabilities.text.tolist() == [[0.1, 0.9], [0.4, 0.5]]
    data = trials(2, 1, ["b", "a"])
    assert model.scores(data).align_to(data)[:, 0, 0].tolist() == [-0.4, -0.1]


def test_trials_with_one_or_two_images_are_answered(tmp_path):
    model = PrecomputedDetector(written(tmp_path / "d.csv", ROWS))
    order = np.array([2, 0, 1])  # rows of a file are in the order in which trials were loaded
    square, texts = trials(2, 2, ["0", "1", "2"]).select(order), trials(2, 1, ["0", "1", "2"]).select(order)
    answers = model.scores(square).align_to(square)
    assert i2t_choice(answers).tolist() == [1, 1, 0]
    assert t2i_choice(answers).tolist() == [0, 1, 0]
    assert accuracy(model.scores(texts).align_to(texts)).tolist() == [1, 1, 0]


def test_other_tasks_are_refused(tmp_path):
    model = PrecomputedDetector(written(tmp_path / "d.csv", [row[::2] for row in ROWS], "text_pred,label"))
    assert model.probabilities.image is None
    for data, message in (
        (trials(1, 2, ["0"]), "another kind"),
        (trials(2, 2, ["0"]), "Add the column img_pred"),
        (None, "bivlc"),
    ):
        with pytest.raises(CrossmatchError, match=message):
            model.scores(data)
    data = trials(2, 1, ["0", "7"])
    with pytest.raises(CrossmatchError, match="'row 2' is answered but not"):
        model.scores(data).align_to(data)
    more = trials(2, 1, ["0", "1", "2", "7"])
    with pytest.raises(CrossmatchError, match="has 3 rows in the official order, which has at least 4"):
        model.scores(more)


@pytest.mark.parametrize(
    ("rows", "head", "message"),
    [
        (ROWS[:-1], "text_pred,img_pred,label", "3 rows with label 0 and 2 with label 1 among 5"),
        ([(0.1, 0.2, 0.5), (0.1, 0.2, 1)], "text_pred,img_pred,label", "0 rows with label 0"),
        ([(1.5, 0.2, 0), (0.1, 0.2, 1)], "text_pred,img_pred,label", "row 1: expected a text_pred between 0 and 1"),
        ([(0.5, "nan", 0), (0.1, 0.2, 1)], "text_pred,img_pred,label", "row 1: expected a img_pred"),
        ([(0.5,), (0.1, 0.2, 1)], "text_pred,img_pred,label", "row 1"),
        ([], "text_pred,img_pred,label", "0 rows"),
        (ROWS, "a,b,c", "got a, b, c"),
        ([("a", 0.5, 0), ("b", 0.1, 1)], "trial_id,text_pred,label", "first unknown: 'a'"),
        ([("a", 0.5, 0), ("a", 0.5, 0), ("b", 0.1, 1), ("a", 0.1, 1)], "trial_id,text_pred,label", "must be unique"),
    ],
)
def test_wrong_files_are_refused(tmp_path, rows, head, message):
    with pytest.raises(CrossmatchError, match=message):
        read_probabilities(written(tmp_path / "d.csv", rows, head))


def test_names_and_signature(tmp_path):
    for argument in ("", str(tmp_path / "none.csv")):
        with pytest.raises(UsageError):
            make_detector(argument)
    with pytest.raises(UsageError, match="no file"):
        read_probabilities(tmp_path / "none.csv")
    model = make_detector(str(written(tmp_path / "d.csv", ROWS)))
    assert model.signature.startswith("detector:d.csv|file:")
    assert model.signature.endswith("|threshold:0.5")
