"""Precomputed scores in every file format, and the errors for wrong files."""

import csv
import gc
import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval
from crossmatch.data.scores import Run
from crossmatch.data.trials import Trials
from crossmatch.evaluation.model_scores import get_trial_scores, score_collection, score_trials
from crossmatch.models import make_model
from crossmatch.models.files.precomputed import READERS, Precomputed, make_precomputed, read_scores_file

COLLECTION = Collection.from_captions({11: ["one", "uno"], 22: ["two", "due"], 33: ["three", "tre"]})
DATA = Retrieval(COLLECTION, {"links": Judgements.from_links(COLLECTION)})
CHOICES = Trials(["0", "1"], [["a", "b"], ["c", "d"]], [["x"], ["y"]], ["k", "k"])
IMAGES, CAPTIONS = COLLECTION.image_ids.tolist(), COLLECTION.caption_ids.tolist()


def embeddings(**changed):
    rng = np.random.default_rng(0)
    fields = {
        "image_ids": IMAGES, "image_embeddings": rng.standard_normal((3, 4)),
        "caption_ids": CAPTIONS, "caption_embeddings": rng.standard_normal((6, 4)),
    }  # fmt: skip
    return {**fields, **changed}


def matrix(**changed):
    return {"image_ids": IMAGES, "caption_ids": CAPTIONS, "scores": np.arange(18.0).reshape(3, 6), **changed}


def npz(folder, arrays, name="file.npz"):
    np.savez(folder / name, **arrays)
    return folder / name


def text(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def trec(rows):
    return "".join(f"{q} Q0 {i} {n} {s} tag\n" for n, (q, i, s) in enumerate(rows))


# npz


def test_embeddings_are_aligned_to_the_collection(tmp_path):
    written = embeddings()
    image_order, caption_order = [2, 0, 1], [5, 3, 1, 0, 2, 4]
    moved = {
        "image_ids": np.array(IMAGES)[image_order], "image_embeddings": written["image_embeddings"][image_order],
        "caption_ids": np.array(CAPTIONS)[caption_order], "caption_embeddings": written["caption_embeddings"][caption_order],
    }  # fmt: skip
    aligned = score_collection(Precomputed(npz(tmp_path, moved)), DATA)
    assert np.array_equal(aligned.image_vectors, written["image_embeddings"])
    assert np.array_equal(aligned.caption_vectors, written["caption_embeddings"])
    assert aligned.caption_ids.tolist() == CAPTIONS


def test_similarity_is_cosine_by_default(tmp_path):
    assert read_scores_file(npz(tmp_path, embeddings())).similarity == "cosine"
    assert read_scores_file(npz(tmp_path, embeddings(similarity="dot"))).similarity == "dot"
    with pytest.raises(CrossmatchError, match="'cosine' or 'dot'"):
        read_scores_file(npz(tmp_path, embeddings(similarity="euclid")))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8, bool, np.int64])
def test_a_matrix_may_have_any_real_dtype(tmp_path, dtype):
    scores = (np.arange(18).reshape(3, 6) % 7).astype(dtype)
    assert np.array_equal(read_scores_file(npz(tmp_path, matrix(scores=scores))).values, scores)


def test_integer_ids_equal_text_ids(tmp_path):
    scores = score_collection(Precomputed(npz(tmp_path, matrix(image_ids=np.array([11, 22, 33])))), DATA)
    assert scores.image_ids.tolist() == IMAGES


def test_transposed_matrix_is_refused(tmp_path):
    with pytest.raises(CrossmatchError, match="Transpose"):
        read_scores_file(npz(tmp_path, matrix(scores=np.zeros((6, 3)))))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (matrix(image_ids=[11, 22, 44]), "2 of the 3 image ids.*its first id is '11'; first missing: '33'"),
        (matrix(image_ids=["train-1", "train-2", "train-3"]), "0 of the 3 image ids.*'train-1'"),
        (matrix(image_ids=[11, 22, 33, 44], scores=np.zeros((4, 6))), "first unknown: '44'"),
        (matrix(image_ids=[11, 22, 22]), "'22' occurs 2 times"),
        (matrix(image_ids=[11, 22], scores=np.zeros((2, 6))), "first missing: '33'"),
        (matrix(caption_ids=[*CAPTIONS[:5], "x"]), "first missing: '33#1'"),
        (matrix(image_ids=[11.0, 22.0, 33.0]), "'11.0'"),
        (matrix(scores=np.full((3, 6), np.nan)), "NaN or infinite"),
        (matrix(scores=np.full((3, 6), np.inf, np.float16)), "NaN or infinite"),
        (matrix(scores=np.zeros((3, 5))), "images x captions"),
        (matrix(scores=np.zeros(18)), "images x captions"),
        (matrix(scores=np.zeros((3, 6), complex)), "real numbers"),
        (matrix(scores=np.full((3, 6), "1.0")), "real numbers"),
        (matrix(image_ids=np.array([], str), scores=np.zeros((0, 6))), "no image ids"),
        (embeddings(image_embeddings=np.zeros((3, 4))), "image '11' is all zeros"),
        (embeddings(caption_embeddings=np.eye(6, 4)), "caption '33#0' is all zeros"),
        (embeddings(image_embeddings=np.full((3, 4), np.inf, np.float16)), "fp16 overflows"),
        (embeddings(image_embeddings=np.ones((3, 5))), "one space"),
        (embeddings(image_embeddings=np.ones((4, 3))), "one row per id"),
        (embeddings(image_embeddings=np.ones((3, 4), complex)), "real numbers"),
        ({"images": [1]}, "arrays images; expected image_ids, image_embeddings"),
        ({}, r"has the arrays \(none\)"),
        ({"image_ids": IMAGES, "scores": np.zeros((3, 6))}, "expected image_ids"),
        (matrix(image_ids=np.array(5)), "must be a flat list"),
        (matrix(image_ids=np.array("abc")), "must be a flat list"),
        (embeddings(image_embeddings=np.ones((3, 0)), caption_embeddings=np.ones((6, 0))), "no dimensions"),
    ],
)
def test_wrong_npz_files_are_refused(tmp_path, arrays, message):
    path = npz(tmp_path, arrays)
    with pytest.raises(CrossmatchError, match=message) as caught:
        score_collection(Precomputed(path), DATA)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_pickled_objects_are_not_run(tmp_path):
    marker = tmp_path / "was-run"

    class Hostile:
        def __reduce__(self):
            return open, (str(marker), "w")

    path = npz(tmp_path, matrix(image_ids=np.array([Hostile(), 1, 2], dtype=object)))
    with pytest.raises(CrossmatchError, match="contains Python objects"):
        read_scores_file(path)
    assert not marker.exists()


def test_an_npy_file_called_npz_is_refused(tmp_path):
    with (tmp_path / "file.npz").open("wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(CrossmatchError):
        read_scores_file(tmp_path / "file.npz")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # numpy leaves the file of a failed load open
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_truncated_npz_is_refused(tmp_path):
    path = npz(tmp_path, matrix())
    whole = path.read_bytes()
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        with pytest.raises(CrossmatchError):
            read_scores_file(path)
    gc.collect()  # so that those files are closed here, not in the next test


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_damaged_npz_gives_an_error_or_the_right_numbers(tmp_path):
    """Every 7th byte is flipped in turn. A file that is still read must give the numbers that were written."""
    path = tmp_path / "file.npz"
    np.savez_compressed(path, **matrix())
    whole = path.read_bytes()
    unexpected = set()
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            scores = read_scores_file(path)
        except CrossmatchError:
            continue
        except Exception as error:
            unexpected.add(f"{type(error).__module__}.{type(error).__name__}")
        else:
            assert np.array_equal(scores.values, matrix()["scores"])
    gc.collect()
    assert not unexpected


@pytest.mark.parametrize("size", [1e200, 1e-200], ids=["long", "short"])
def test_cosine_does_not_depend_on_the_length_of_vectors(tmp_path, size):
    """1e200 squared is infinite and 1e-200 squared is 0; neither may give a wrong number or a wrong message."""
    arrays, reason = embeddings(), ""
    try:
        scores = read_scores_file(npz(tmp_path, {**arrays, "image_embeddings": arrays["image_embeddings"] * size}))
    except CrossmatchError as error:
        reason = str(error)
    assert "all zeros" not in reason
    if not reason:
        i, j = np.zeros(6, int), np.arange(6)
        assert scores.score_pairs(i, j) == pytest.approx(read_scores_file(npz(tmp_path, arrays)).score_pairs(i, j), abs=1e-12)


def test_overflowing_dot_products_are_refused(tmp_path):
    """1e200 times 1e200 is infinite, and sums of infinities are NaN, which has no rank."""
    vectors = np.random.default_rng(0).standard_normal((6, 4)) * 1e200
    path = npz(tmp_path, embeddings(image_embeddings=vectors[:3], caption_embeddings=vectors, similarity="dot"))
    with pytest.raises(CrossmatchError):
        _evaluate(path)


def _evaluate(path):
    from crossmatch.data.benchmark import Benchmark
    from crossmatch.evaluation.evaluate import evaluate

    return evaluate(Precomputed(path), Benchmark("own", "", lambda: DATA, ("hit@1",)), samples=10)


# TREC


def test_run_is_ordered_by_scores_not_ranks(tmp_path):
    path = text(tmp_path, "file.trec", "11 Q0 11#0 9 0.25 me\n\n11\tQ0\t22#0\t1\t-1e3\tme\r\n")
    run = read_scores_file(path)
    assert (run.queries.tolist(), run.items.tolist(), run.values.tolist(), run.tag) == (
        ["11"] * 2,
        ["11#0", "22#0"],
        [0.25, -1000],
        "me",
    )


@pytest.mark.parametrize("ending", [".trec", ".run", ".txt", ".TREC"])
def test_runs_may_have_several_suffixes(tmp_path, ending):
    assert isinstance(read_scores_file(text(tmp_path, f"file{ending}", trec([("11", "11#0", 1)]))), Run)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("11 Q0 11#0 1 0.5\n", "Line 1 has 5 columns, expected 6"),
        (trec([("11", "11#0", 1)]) + "11 Q0 11#0 1 0.5 my tag\n", "Line 2 has 7 columns"),
        (trec([("11", "11#0", "high")]), "Line 1 has the score 'high'"),
        (trec([("11", "11#0", "nan")]), "NaN or infinite"),
        (trec([("11", "11#0", "-inf")]), "NaN or infinite"),
        (trec([("11", "11#0", "1e999")]), "NaN or infinite"),
        ("\n \n", "no lines"),
        (trec([("99", "11#0", 1)]), "Row 1 of the run pairs '99' with '11#0'.*Check the split"),
        (trec([("11", "nowhere", 1)]), "pairs '11' with 'nowhere'"),
        (trec([("11", "11#0", 1)]).encode("utf-16"), "Line 1|not UTF-8 text"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
    ],
)
def test_wrong_runs_are_refused(tmp_path, content, message):
    with pytest.raises(CrossmatchError, match=message):
        score_collection(Precomputed(text(tmp_path, "file.trec", content)), DATA)


def test_duplicate_item_of_a_query_is_refused(tmp_path):
    rows = [(q, i, n) for q in IMAGES for n, i in enumerate([*CAPTIONS, CAPTIONS[2]])]
    with pytest.raises(CrossmatchError, match="lists item '22#0' twice for query '11'"):
        _evaluate(text(tmp_path, "file.trec", trec(rows)))


def test_byte_order_mark_is_not_part_of_the_first_id(tmp_path):
    assert read_scores_file(text(tmp_path, "file.trec", b"\xef\xbb\xbf" + trec([("11", "11#0", 1)]).encode())).queries.tolist() == [
        "11"
    ]


def test_id_of_an_image_and_a_caption_is_ambiguous():
    collection = Collection(["a", "b"], ["a", "b"], ("x", "y"), [[0, 0], [1, 1]])
    with pytest.raises(CrossmatchError, match=r"two directions.*second column"):
        Run(np.array(["a"]), np.array(["b"]), np.array([1.0])).align_to(collection)
    marked = Run(np.array(["a"]), np.array(["b"]), np.array([1.0]), direction_marks=np.array(["t2t"])).align_to(collection)
    assert [d for d in ("i2t", "t2i", "t2t", "i2i") if marked.is_in_direction(collection, d).any()] == ["t2t"]


# csv


def grid(n, c, i, values, end="\n", order=1):
    head = ["trial_id", *[f"s_c{a}_i{b}" for a in range(c) for b in range(i)][::order]]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=end)
    writer.writerow(head)
    for t in range(n):
        writer.writerow([f"t{t}", *np.asarray(values[t]).ravel()[::order]])
    return out.getvalue()


@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.sampled_from([1, -1]),
)
def test_trial_scores_are_read_from_every_csv_dialect(tmp_path_factory, c, i, n, line_end, has_byte_order_mark, column_step):
    values = np.random.default_rng(c + 10 * i + 100 * n).standard_normal((n, c, i))
    content = grid(n, c, i, values, line_end, column_step).encode()
    scores = read_scores_file(
        text(tmp_path_factory.mktemp("csv"), "file.csv", (b"\xef\xbb\xbf" if has_byte_order_mark else b"") + content)
    )
    assert scores.ids.tolist() == [f"t{t}" for t in range(n)]
    assert np.array_equal(scores.values, values)


def test_other_csv_columns_are_ignored(tmp_path):
    scores = read_scores_file(text(tmp_path, "file.csv", 'note,trial_id,s_c0_i0,s_c0_i1\n"a, b",0,1,2\n,1,3,4\n'))
    assert scores.values.tolist() == [[[1, 2]], [[3, 4]]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("trial_id,s_c0_i0,s_c0_i1\n0,1\n1,1,2\n", "row 1 has 2 cells under 3 columns"),
        ("trial_id,s_c0_i0,s_c0_i1\n0,,2\n1,1,2\n", "trial '0': expected a number in column s_c0_i0, got ''"),
        ("trial_id,s_c0_i0,s_c0_i1\n0,yes,2\n1,1,2\n", "got 'yes'"),
        ("trial_id,s_c0_i0,s_c0_i1\n0,nan,2\n1,1,2\n", "NaN or infinite"),
        ("trial_id,s_c0_i0,s_c0_i1\n0,1,2\n0,1,2\n", "'0' occurs 2 times"),
        ("trial_id,s_c0_i0,s_c0_i1\n0,1,2\n", "first missing: '1'"),
        ("trial_id,s_c0_i0,s_c0_i1\n0,1,2\n1,1,2\n7,1,2\n", "'7' is answered but not in the benchmark"),
        ("trial_id,s_c0_i0,s_c0_i1\n,1,2\n1,1,2\n", "empty trial id"),
        ("trial_id,s_c0_i0,s_c1_i0\n0,1,2\n1,1,2\n", "2 captions x 1 images per trial"),
        ("trial_id,s_c0_i0,s_c1_i1\n0,1,2\n", "2 score columns do not fill 2 captions x 2 images"),
        ("trial_id;s_c0_i0;s_c0_i1\n0;1;2\n", "the file has the columns trial_id;s_c0_i0;s_c0_i1"),
        ("id,s_c0_i0,s_c0_i1\n0,1,2\n", "expected trial_id"),
        ("trial_id,score\n0,1\n", "expected trial_id, s_c0_i0"),
        ("trial_id,s_c0_i0,s_c0_i1\n\xe9,1,2\n".encode("latin-1"), "cannot be read"),
        ("trial_id,s_c0_i0,s_c0_i1\n", "has a header but no rows"),
        ("trial_id,s_c0_i0,s_c0_i1\n0,0,9,0,1\n", "row 1 has 5 cells under 3 columns"),  # decimal commas
        ("trial_id,s_c0_i0,s_c0_i1,s_c0_i0\n0,1,2,3\n", "a column occurs twice"),
        ("trial_id,s_c0_i0,s_c00_i0,s_c1_i0,s_c1_i1\n0,1,2,3,4\n", "a column occurs twice"),
    ],
)
def test_wrong_csv_files_are_refused(tmp_path, content, message):
    with pytest.raises(CrossmatchError, match=message):
        get_trial_scores(Precomputed(text(tmp_path, "file.csv", content)), CHOICES)


# BISON's json


def test_bison_predictions_become_choices(tmp_path):
    rows = [{"bison_id": 1, "predicted_image_id": "d"}, {"bison_id": 0, "predicted_image_id": "a", "note": "x"}]
    assert get_trial_scores(Precomputed(text(tmp_path, "file.json", json.dumps(rows))), CHOICES).tolist() == [[[1, 0]], [[0, 1]]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "expected a list of"),
        ("{}", "expected a list of"),
        ("null", "expected a list of"),
        ("[1, 2]", "expected a list of"),
        ('[{"bison_id": 0}]', "expected a list of"),
        ('[{"bison_id": 0, "predicted_image_id": "a"', "cannot be read as .json"),
        ('[{"bison_id": 0, "predicted_image_id": "a"}]', "first missing: '1'"),
        ('[{"bison_id": 0, "predicted_image_id": "a"}, {"bison_id": "0", "predicted_image_id": "b"}]', "'0' occurs 2 times"),
        (
            '[{"bison_id": 0, "predicted_image_id": "a"}, {"bison_id": 1, "predicted_image_id": "a"}]',
            "not one of its candidates 'c', 'd'",
        ),
        ('[{"bison_id": 0, "predicted_image_id": "a"}, {"bison_id": 1, "predicted_image_id": null}]', "not one of its candidates"),
        (b"\xef\xbb\xbf[]", "cannot be read|expected a list"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_wrong_bison_files_are_refused(tmp_path, content, message):
    with pytest.raises(CrossmatchError, match=message):
        get_trial_scores(Precomputed(text(tmp_path, "file.json", content)), CHOICES)


# Any file


@pytest.mark.parametrize("ending", READERS)
def test_empty_file_is_refused(tmp_path, ending):
    with pytest.raises(CrossmatchError, match="the file is empty"):
        read_scores_file(text(tmp_path, f"file{ending}", ""))


@pytest.mark.parametrize("ending", READERS)
@given(content=st.binary(min_size=1, max_size=60))
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_arbitrary_bytes_raise_no_unexpected_error(tmp_path_factory, ending, content):
    path = text(tmp_path_factory.getbasetemp(), f"any{ending}", content)
    reason = ""
    try:
        read_scores_file(path)
    except CrossmatchError as error:
        reason = str(error)
    assert "\n" not in reason
    gc.collect(0)


def test_missing_and_unknown_files_are_refused(tmp_path):
    for path in (tmp_path / "none.npz", tmp_path):
        with pytest.raises(UsageError, match="no such file"):
            read_scores_file(path)
    with pytest.raises(CrossmatchError, match=r"'\.pkl' are not supported. Use one of \.npz"):
        read_scores_file(text(tmp_path, "file.pkl", "x"))
    with pytest.raises(UsageError, match="needs a file"):
        make_model("precomputed:")


def test_scores_must_fit_the_task(tmp_path):
    with pytest.raises(CrossmatchError, match="retrieval benchmark"):
        score_collection(Precomputed(text(tmp_path, "file.csv", grid(2, 1, 2, np.zeros((2, 1, 2))))), DATA)
    for arrays in (embeddings(), matrix()):
        with pytest.raises(CrossmatchError, match="no trial scores"):
            get_trial_scores(Precomputed(npz(tmp_path, arrays)), CHOICES)


def test_signature_changes_with_the_content(tmp_path):
    first = Precomputed(text(tmp_path, "file.trec", trec([("11", "11#0", 1)]))).signature
    second = Precomputed(text(tmp_path, "file.trec", trec([("11", "11#0", 2)]))).signature
    assert first != second
    assert first.startswith("precomputed:file.trec|file:")


OUTCOMES = ("text_score_i0", "text_score_i1", "image_score_c0", "image_score_c1")


@pytest.mark.parametrize("deleted", range(6))
@pytest.mark.parametrize("has_captions", [True, False])
def test_a_deleted_row_is_named(tmp_path, deleted, has_captions):
    """The trials are not in the order of the file, as after a selection."""
    order = np.array([4, 1, 5, 0, 3, 2])
    trials = Trials([f"t{n}" for n in range(6)], [["1", "2"]] * 6, [[f"cat {n}", f"dog {n}"] for n in range(6)], [""] * 6)
    rows = [
        [*(trials.captions[n].tolist() if has_captions else ()), "True", "False", "True", "True"] for n in range(6) if n != deleted
    ]
    head = [*(("caption", "negative_caption") if has_captions else ()), *OUTCOMES]
    (tmp_path / "o.csv").write_text("".join(",".join(row) + "\n" for row in [head, *rows]))
    if has_captions and deleted < 5:
        message = f"the row of trial 't{deleted}' with the caption 'cat {deleted}' is missing"
    else:
        message = "" if has_captions else "the file has 5 rows in the official order, which has at least 6"
    if message:
        with pytest.raises(CrossmatchError, match=message):
            score_trials(make_precomputed(str(tmp_path / "o.csv")), [trials.select(order)], allow_missing=True)
    else:  # the last row is missing, which the captions show
        with pytest.raises(CrossmatchError, match="1 of 6 trials are not answered; first missing: 't5'"):
            score_trials(make_precomputed(str(tmp_path / "o.csv")), [trials.select(order)])
