"""Files of every format: read as written, and refused with a reason when anything is off."""

import csv
import gc
import io
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.core.benchmark import Retrieval
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements
from crossmatch.core.scores import Embeddings, Matrix, Run
from crossmatch.core.trials import Trials, TrialScores
from crossmatch.models import make_model
from crossmatch.models.abilities import scores_of, trial_scores_of
from crossmatch.models.precomputed import READERS, Precomputed, read

HELD = Collection.of({11: ["one", "uno"], 22: ["two", "due"], 33: ["three", "tre"]})
DATA = Retrieval(HELD, {"links": Judgements.from_links(HELD)})
CHOICES = Trials(["0", "1"], [["a", "b"], ["c", "d"]], [["x"], ["y"]], ["k", "k"])
IMAGES, CAPTIONS = HELD.image_ids.tolist(), HELD.caption_ids.tolist()


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


def test_embeddings_are_put_in_the_order_of_the_collection(tmp_path):
    written = embeddings()
    order, other = [2, 0, 1], [5, 3, 1, 0, 2, 4]
    moved = {
        "image_ids": np.array(IMAGES)[order], "image_embeddings": written["image_embeddings"][order],
        "caption_ids": np.array(CAPTIONS)[other], "caption_embeddings": written["caption_embeddings"][other],
    }  # fmt: skip
    said = scores_of(Precomputed(npz(tmp_path, moved)), DATA)
    assert np.array_equal(said.image_vectors, written["image_embeddings"])
    assert np.array_equal(said.caption_vectors, written["caption_embeddings"])
    assert said.caption_ids.tolist() == CAPTIONS


def test_cosine_is_the_default_and_dot_is_kept(tmp_path):
    assert read(npz(tmp_path, embeddings())).similarity == "cosine"
    assert read(npz(tmp_path, embeddings(similarity="dot"))).similarity == "dot"
    with pytest.raises(CrossmatchError, match="'cosine' or 'dot'"):
        read(npz(tmp_path, embeddings(similarity="euclid")))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8, bool, np.int64])
def test_a_matrix_may_have_any_real_dtype(tmp_path, dtype):
    scores = (np.arange(18).reshape(3, 6) % 7).astype(dtype)
    assert np.array_equal(read(npz(tmp_path, matrix(scores=scores))).values, scores)


def test_integer_and_text_ids_are_the_same_ids(tmp_path):
    said = scores_of(Precomputed(npz(tmp_path, matrix(image_ids=np.array([11, 22, 33])))), DATA)
    assert said.image_ids.tolist() == IMAGES


def test_an_oblong_matrix_given_transposed_is_noticed(tmp_path):
    with pytest.raises(CrossmatchError, match="Transpose"):
        read(npz(tmp_path, matrix(scores=np.zeros((6, 3)))))


@pytest.mark.parametrize(
    ("arrays", "says"),
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
        ({"images": [1]}, "it holds images; expected image_ids, image_embeddings"),
        ({}, "it holds nothing"),
        ({"image_ids": IMAGES, "scores": np.zeros((3, 6))}, "expected image_ids"),
    ],
)
def test_bad_npz_files_are_refused(tmp_path, arrays, says):
    path = npz(tmp_path, arrays)
    with pytest.raises(CrossmatchError, match=says) as caught:
        scores_of(Precomputed(path), DATA)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_an_npz_with_pickled_objects_is_refused_and_nothing_in_it_runs(tmp_path):
    marker = tmp_path / "was-run"

    class Hostile:
        def __reduce__(self):
            return open, (str(marker), "w")

    path = npz(tmp_path, matrix(image_ids=np.array([Hostile(), 1, 2], dtype=object)))
    with pytest.raises(CrossmatchError, match="not objects"):
        read(path)
    assert not marker.exists()


@pytest.mark.parametrize("ids", [np.array(5), np.array("abc")], ids=["number", "text"])
def test_an_id_array_without_length_is_refused(tmp_path, ids):
    with pytest.raises(CrossmatchError):
        read(npz(tmp_path, matrix(image_ids=ids)))


def test_embeddings_without_dimensions_are_refused(tmp_path):
    with pytest.raises(CrossmatchError):
        read(npz(tmp_path, embeddings(image_embeddings=np.ones((3, 0)), caption_embeddings=np.ones((6, 0)))))


def test_an_npy_file_called_npz_is_refused(tmp_path):
    with (tmp_path / "file.npz").open("wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(CrossmatchError):
        read(tmp_path / "file.npz")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # numpy leaves the file of a failed load open
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_truncated_npz_is_refused_wherever_it_was_cut(tmp_path):
    path = npz(tmp_path, matrix())
    whole = path.read_bytes()
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        with pytest.raises(CrossmatchError):
            read(path)
    gc.collect()  # so that those files are closed here, not in the next test


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_damaged_npz_gives_an_error_of_ours_or_the_right_numbers(tmp_path):
    """Every 7th byte flipped in turn. What the checksums do not cover may be read, but only as it was written."""
    path = tmp_path / "file.npz"
    np.savez_compressed(path, **matrix())
    whole = path.read_bytes()
    others = set()
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            said = read(path)
        except CrossmatchError:
            continue
        except Exception as error:
            others.add(f"{type(error).__module__}.{type(error).__name__}")
        else:
            assert np.array_equal(said.values, matrix()["scores"])
    gc.collect()
    assert not others


@pytest.mark.parametrize("size", [1e200, 1e-200], ids=["long", "short"])
def test_a_cosine_does_not_depend_on_the_length_of_the_vectors_or_says_that_it_would(tmp_path, size):
    """1e200 squared is infinite and 1e-200 squared is zero: neither may come out as a wrong number or a wrong reason."""
    arrays, reason = embeddings(), ""
    try:
        said = read(npz(tmp_path, {**arrays, "image_embeddings": arrays["image_embeddings"] * size}))
    except CrossmatchError as error:
        reason = str(error)
    assert "all zeros" not in reason
    if not reason:
        i, j = np.zeros(6, int), np.arange(6)
        assert said.pairs(i, j) == pytest.approx(read(npz(tmp_path, arrays)).pairs(i, j), abs=1e-12)


def test_dot_products_that_overflow_are_refused(tmp_path):
    """1e200 times 1e200 is infinite, and infinite minus infinite is no number: no rank may come of it."""
    vectors = np.random.default_rng(0).standard_normal((6, 4)) * 1e200
    path = npz(tmp_path, embeddings(image_embeddings=vectors[:3], caption_embeddings=vectors, similarity="dot"))
    with pytest.raises(CrossmatchError):
        _evaluate(path)


def _evaluate(path):
    from crossmatch.core.benchmark import Benchmark
    from crossmatch.run import evaluate

    return evaluate(Precomputed(path), Benchmark("own", "", lambda: DATA, ("hit@1",)), samples=10)


# TREC


def test_a_run_is_read_by_its_scores_and_not_by_its_ranks(tmp_path):
    path = text(tmp_path, "file.trec", "11 Q0 11#0 9 0.25 me\n\n11\tQ0\t22#0\t1\t-1e3\tme\r\n")
    said = read(path)
    assert (said.queries.tolist(), said.items.tolist(), said.values.tolist(), said.tag) == (
        ["11"] * 2,
        ["11#0", "22#0"],
        [0.25, -1000],
        "me",
    )


@pytest.mark.parametrize("ending", [".trec", ".run", ".txt", ".TREC"])
def test_runs_may_end_in_several_ways(tmp_path, ending):
    assert isinstance(read(text(tmp_path, f"file{ending}", trec([("11", "11#0", 1)]))), Run)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("11 Q0 11#0 1 0.5\n", "line 1 has 5 words; six were expected"),
        (trec([("11", "11#0", 1)]) + "11 Q0 11#0 1 0.5 my tag\n", "line 2 has 7 words"),
        (trec([("11", "11#0", "high")]), "line 1 has the score 'high'"),
        (trec([("11", "11#0", "nan")]), "NaN or infinite"),
        (trec([("11", "11#0", "-inf")]), "NaN or infinite"),
        (trec([("11", "11#0", "1e999")]), "NaN or infinite"),
        ("\n \n", "no lines"),
        (trec([("99", "11#0", 1)]), "row 1 of the run pairs '99' with '11#0'.*Check the split"),
        (trec([("11", "nowhere", 1)]), "pairs '11' with 'nowhere'"),
        (trec([("11", "11#0", 1)]).encode("utf-16"), "line 1|not text in UTF-8"),
        (b"\xff\xfe\x00", "not text in UTF-8"),
    ],
)
def test_bad_runs_are_refused(tmp_path, content, says):
    with pytest.raises(CrossmatchError, match=says):
        scores_of(Precomputed(text(tmp_path, "file.trec", content)), DATA)


def test_an_item_listed_twice_for_a_query_is_refused(tmp_path):
    rows = [(q, i, n) for q in IMAGES for n, i in enumerate([*CAPTIONS, CAPTIONS[2]])]
    with pytest.raises(CrossmatchError, match="lists item '22#0' twice for query '11'"):
        _evaluate(text(tmp_path, "file.trec", trec(rows)))


def test_a_byte_order_mark_before_a_run_is_not_part_of_the_first_id(tmp_path):
    assert read(text(tmp_path, "file.trec", b"\xef\xbb\xbf" + trec([("11", "11#0", 1)]).encode())).queries.tolist() == ["11"]


def test_an_id_that_names_an_image_and_a_caption_is_ambiguous():
    held = Collection(["a", "b"], ["a", "b"], ("x", "y"), [[0, 0], [1, 1]])
    with pytest.raises(CrossmatchError, match=r"two directions.*second column"):
        Run(np.array(["a"]), np.array(["b"]), np.array([1.0])).aligned(held)
    marked = Run(np.array(["a"]), np.array(["b"]), np.array([1.0]), marks=np.array(["t2t"])).aligned(held)
    assert [d for d in ("i2t", "t2i", "t2t", "i2i") if marked.rows(held, d).any()] == ["t2t"]


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
@settings(max_examples=40, deadline=None)
def test_trial_scores_come_back_from_csv_whatever_its_line_ends_mark_and_column_order(tmp_path_factory, c, i, n, end, mark, order):
    values = np.random.default_rng(c + 10 * i + 100 * n).standard_normal((n, c, i))
    content = grid(n, c, i, values, end, order).encode()
    said = read(text(tmp_path_factory.mktemp("csv"), "file.csv", (b"\xef\xbb\xbf" if mark else b"") + content))
    assert said.ids.tolist() == [f"t{t}" for t in range(n)]
    assert np.array_equal(said.values, values)


def test_other_columns_of_the_csv_are_left_alone(tmp_path):
    said = read(text(tmp_path, "file.csv", 'note,trial_id,s_c0_i0,s_c0_i1\n"a, b",0,1,2\n,1,3,4\n'))
    assert said.values.tolist() == [[[1, 2]], [[3, 4]]]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("trial_id,s_c0_i0,s_c0_i1\n0,1\n1,1,2\n", "row 1 has 2 cells under 3 columns"),
        ("trial_id,s_c0_i0,s_c0_i1\n0,,2\n1,1,2\n", "trial '0' has s_c0_i0 = ''"),
        ("trial_id,s_c0_i0,s_c0_i1\n0,yes,2\n1,1,2\n", "'yes', which is not a number"),
        ("trial_id,s_c0_i0,s_c0_i1\n0,nan,2\n1,1,2\n", "NaN or infinite"),
        ("trial_id,s_c0_i0,s_c0_i1\n0,1,2\n0,1,2\n", "'0' occurs 2 times"),
        ("trial_id,s_c0_i0,s_c0_i1\n0,1,2\n", "first missing: '1'"),
        ("trial_id,s_c0_i0,s_c0_i1\n0,1,2\n1,1,2\n7,1,2\n", "'7' is answered but not in the benchmark"),
        ("trial_id,s_c0_i0,s_c0_i1\n,1,2\n1,1,2\n", "trial id is empty"),
        ("trial_id,s_c0_i0,s_c1_i0\n0,1,2\n1,1,2\n", "2 captions x 1 images per trial"),
        ("trial_id,s_c0_i0,s_c1_i1\n0,1,2\n", "2 score columns do not fill 2 captions x 2 images"),
        ("trial_id;s_c0_i0;s_c0_i1\n0;1;2\n", "it has the columns trial_id;s_c0_i0;s_c0_i1"),
        ("id,s_c0_i0,s_c0_i1\n0,1,2\n", "expected trial_id"),
        ("trial_id,score\n0,1\n", "expected trial_id, s_c0_i0"),
        ("trial_id,s_c0_i0,s_c0_i1\n\xe9,1,2\n".encode("latin-1"), "cannot be read"),
    ],
)
def test_bad_csv_files_are_refused(tmp_path, content, says):
    with pytest.raises(CrossmatchError, match=says):
        trial_scores_of(Precomputed(text(tmp_path, "file.csv", content)), CHOICES)


def test_a_csv_with_only_a_head_is_not_said_to_have_no_columns(tmp_path):
    with pytest.raises(CrossmatchError) as caught:
        read(text(tmp_path, "file.csv", "trial_id,s_c0_i0,s_c0_i1\n"))
    assert "(none)" not in str(caught.value)


def test_a_row_with_more_cells_than_the_head_is_refused(tmp_path):
    """As decimal commas make it: `0,9` and `0,1` would be read as the scores 0 and 9."""
    with pytest.raises(CrossmatchError):
        read(text(tmp_path, "file.csv", "trial_id,s_c0_i0,s_c0_i1\n0,0,9,0,1\n"))


def test_a_column_named_twice_is_refused(tmp_path):
    with pytest.raises(CrossmatchError):
        read(text(tmp_path, "file.csv", "trial_id,s_c0_i0,s_c0_i1,s_c0_i0\n0,1,2,3\n"))


def test_two_names_for_one_pair_do_not_stand_for_a_missing_one(tmp_path):
    with pytest.raises(CrossmatchError):
        read(text(tmp_path, "file.csv", "trial_id,s_c0_i0,s_c00_i0,s_c1_i0,s_c1_i1\n0,1,2,3,4\n"))


# BISON's json


def test_bison_predictions_become_scores_of_one_and_zero(tmp_path):
    rows = [{"bison_id": 1, "predicted_image_id": "d"}, {"bison_id": 0, "predicted_image_id": "a", "note": "x"}]
    assert trial_scores_of(Precomputed(text(tmp_path, "file.json", json.dumps(rows))), CHOICES).tolist() == [[[1, 0]], [[0, 1]]]


@pytest.mark.parametrize(
    ("content", "says"),
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
            "none of its candidates 'c', 'd'",
        ),
        ('[{"bison_id": 0, "predicted_image_id": "a"}, {"bison_id": 1, "predicted_image_id": null}]', "none of its candidates"),
        (b"\xef\xbb\xbf[]", "cannot be read|expected a list"),
    ],
)
def test_bad_bison_files_are_refused(tmp_path, content, says):
    with pytest.raises(CrossmatchError, match=says):
        trial_scores_of(Precomputed(text(tmp_path, "file.json", content)), CHOICES)


def test_a_json_nested_too_deep_is_refused(tmp_path):
    with pytest.raises(CrossmatchError):
        read(text(tmp_path, "file.json", "[" * 100_000))


# Any file


@pytest.mark.parametrize("ending", READERS)
def test_an_empty_file_is_refused(tmp_path, ending):
    with pytest.raises(CrossmatchError, match="the file is empty"):
        read(text(tmp_path, f"file{ending}", ""))


@pytest.mark.parametrize("ending", READERS)
@given(content=st.binary(min_size=1, max_size=60))
@settings(max_examples=40, deadline=None)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_arbitrary_bytes_are_refused_or_read_but_never_end_in_another_error(tmp_path_factory, ending, content):
    path = text(tmp_path_factory.getbasetemp(), f"any{ending}", content)
    reason = ""
    try:
        read(path)
    except CrossmatchError as error:
        reason = str(error)
    assert "\n" not in reason
    gc.collect(0)


def test_what_is_no_file_or_of_no_known_kind_is_refused(tmp_path):
    for path in (tmp_path / "none.npz", tmp_path):
        with pytest.raises(WrongWords, match="no such file"):
            read(path)
    with pytest.raises(CrossmatchError, match=r"'\.pkl' are not understood; use one of \.npz"):
        read(text(tmp_path, "file.pkl", "x"))
    with pytest.raises(WrongWords, match="needs a file"):
        make_model("precomputed:")


def test_trial_scores_do_not_fit_retrieval_and_embeddings_not_trials(tmp_path):
    with pytest.raises(CrossmatchError, match="retrieval benchmark"):
        scores_of(Precomputed(text(tmp_path, "file.csv", grid(2, 1, 2, np.zeros((2, 1, 2))))), DATA)
    for arrays in (embeddings(), matrix()):
        with pytest.raises(CrossmatchError, match="no trial scores"):
            trial_scores_of(Precomputed(npz(tmp_path, arrays)), CHOICES)


def test_the_signature_changes_with_what_is_in_the_file(tmp_path):
    one = Precomputed(text(tmp_path, "file.trec", trec([("11", "11#0", 1)]))).signature
    two = Precomputed(text(tmp_path, "file.trec", trec([("11", "11#0", 2)]))).signature
    assert one != two
    assert one.startswith("precomputed:file.trec|file:")


def test_the_kinds_of_files_are_told_apart(tmp_path):
    assert isinstance(read(npz(tmp_path, embeddings())), Embeddings)
    assert isinstance(read(npz(tmp_path, matrix())), Matrix)
    assert isinstance(read(text(tmp_path, "file.csv", grid(2, 1, 2, np.zeros((2, 1, 2))))), TrialScores)
