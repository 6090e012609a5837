"""The protocol of BiVLC's detectors, item by item, and files that cannot be used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.trials import Trials
from crossmatch.metrics.choice import accuracy, group_choice, i2t_choice, t2i_choice
from crossmatch.models.detector import Detector, detected, detector, detector_outcomes, outcomes_of_detector, read_detector

probability = st.sampled_from([0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0])


def chosen(query: float, own: int, candidates: tuple[float, float]) -> bool:
    """In words: predict the query's type; if that is right, take the candidate most likely of that type; a tie takes none."""
    synthetic = query > 0.5
    if synthetic != bool(own):
        return False
    of_type = [p if synthetic else 1 - p for p in candidates]
    return of_type[own] > of_type[1 - own]


@settings(max_examples=200, deadline=None)
@given(st.tuples(probability, probability), st.tuples(probability, probability))
def test_the_four_choices(text, image):
    expected = [chosen(image[own], own, text) for own in (0, 1)] + [chosen(text[own], own, image) for own in (0, 1)]
    assert detector_outcomes(np.array([text]), np.array([image]))[0].tolist() == expected
    code = outcomes_of_detector(np.array([text]), np.array([image]))
    assert i2t_choice(code)[0] == all(expected[:2])
    assert t2i_choice(code)[0] == all(expected[2:])
    assert group_choice(code)[0] == all(expected)
    assert code.tied[0] == (text[0] == text[1] or image[0] == image[1])


def test_the_threshold_itself_is_natural_and_can_be_moved():
    sides = np.array([[0.5, 0.5]])
    assert detected(sides).tolist() == [[True, False]]
    assert detected(sides, 0.4).tolist() == [[False, True]]


def test_a_perfect_detector_wins_everything_and_a_guessing_one_nothing():
    perfect = np.tile([0.0, 1.0], (5, 1))
    assert detector_outcomes(perfect, perfect).all()
    assert not detector_outcomes(np.full((5, 2), 0.5), perfect)[:, :2].any()


def written(path: Path, rows: list[tuple[object, ...]], head: str = "text_pred,img_pred,label") -> Path:
    path.write_text("\n".join([head, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def trials(c: int, i: int, ids: list[str]) -> Trials:
    n = len(ids)
    images, captions = ([[f"{what} {t} {k}" for k in range(size)] for t in range(n)] for what, size in (("image", i), ("text", c)))
    return Trials(ids, images, captions, [""] * n)


ROWS = [(0.1, 0.2, 0), (0.3, 0.4, 0), (0.9, 0.8, 1), (0.2, 0.6, 1), (0.6, 0.1, 0), (0.7, 0.9, 1)]


def test_rows_are_paired_by_label_in_their_order(tmp_path):
    said = read_detector(written(tmp_path / "d.csv", ROWS))
    assert said.text.tolist() == [[0.1, 0.9], [0.3, 0.2], [0.6, 0.7]]
    assert said.image.tolist() == [[0.2, 0.8], [0.4, 0.6], [0.1, 0.9]]
    assert said.accuracies() == {"text detection": 4 / 6, "image detection": 1.0}


def test_a_column_of_ids_pairs_them_instead(tmp_path):
    rows = [("a", 0.1, 0), ("b", 0.4, 0), ("b", 0.5, 1), ("a", 0.9, 1)]
    model = detector(str(written(tmp_path / "d.csv", rows, "trial_id,text_pred,label")))
    assert model.detected.text.tolist() == [[0.1, 0.9], [0.4, 0.5]]
    asked = trials(2, 1, ["b", "a"])
    assert model.scores(asked).aligned(asked)[:, 0, 0].tolist() == [-0.4, -0.1]


def test_it_answers_trials_of_two_captions_with_one_or_two_images(tmp_path):
    model = Detector(written(tmp_path / "d.csv", ROWS))
    order = np.array([2, 0, 1])  # the rows of a file are the order in which trials were loaded, whatever became of them since
    square, texts = trials(2, 2, ["0", "1", "2"]).chosen(order), trials(2, 1, ["0", "1", "2"]).chosen(order)
    found = model.scores(square).aligned(square)
    assert i2t_choice(found).tolist() == [1, 1, 0]
    assert t2i_choice(found).tolist() == [0, 1, 0]
    assert accuracy(model.scores(texts).aligned(texts)).tolist() == [1, 1, 0]


def test_what_it_does_not_answer(tmp_path):
    model = Detector(written(tmp_path / "d.csv", [row[::2] for row in ROWS], "text_pred,label"))
    assert model.detected.image is None
    for data, says in (
        (trials(1, 2, ["0"]), "another kind"),
        (trials(2, 2, ["0"]), "img_pred, which the file lacks"),
        (None, "bivlc"),
    ):
        with pytest.raises(CrossmatchError, match=says):
            model.scores(data)
    asked = trials(2, 1, ["0", "7"])
    with pytest.raises(CrossmatchError, match="'row 2' is answered but not"):
        model.scores(asked).aligned(asked)
    more = trials(2, 1, ["0", "1", "2", "7"])
    with pytest.raises(CrossmatchError, match="first missing: '7'"):
        model.scores(more).aligned(more)


@pytest.mark.parametrize(
    ("rows", "head", "says"),
    [
        (ROWS[:-1], "text_pred,img_pred,label", "3 rows of label 0 and 2 of label 1 among 5"),
        ([(0.1, 0.2, 0.5), (0.1, 0.2, 1)], "text_pred,img_pred,label", "0 rows of label 0"),
        ([(1.5, 0.2, 0), (0.1, 0.2, 1)], "text_pred,img_pred,label", "row 1 has no text_pred between 0 and 1"),
        ([(0.5, "nan", 0), (0.1, 0.2, 1)], "text_pred,img_pred,label", "row 1 has no img_pred"),
        ([(0.5,), (0.1, 0.2, 1)], "text_pred,img_pred,label", "row 1"),
        ([], "text_pred,img_pred,label", "0 rows"),
        (ROWS, "a,b,c", "columns a, b, c"),
        ([("a", 0.5, 0), ("b", 0.1, 1)], "trial_id,text_pred,label", "first unknown: 'a'"),
        ([("a", 0.5, 0), ("a", 0.5, 0), ("b", 0.1, 1), ("a", 0.1, 1)], "trial_id,text_pred,label", "must be unique"),
    ],
)
def test_bad_files_are_refused(tmp_path, rows, head, says):
    with pytest.raises(CrossmatchError, match=says):
        read_detector(written(tmp_path / "d.csv", rows, head))


def test_words_and_signature(tmp_path):
    for wrong in ("", str(tmp_path / "none.csv")):
        with pytest.raises(WrongWords):
            detector(wrong)
    with pytest.raises(WrongWords, match="no file"):
        read_detector(tmp_path / "none.csv")
    model = detector(str(written(tmp_path / "d.csv", ROWS)))
    assert model.signature.startswith("detector:d.csv|file:")
    assert model.signature.endswith("|threshold:0.5")
