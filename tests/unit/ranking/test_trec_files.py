"""TREC files: exact round trips, complete ties, and errors for ids that break a column."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.data.collection import SIDES, Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.judgements import Judgements
from crossmatch.data.scores import Embeddings, Matrix, Run
from crossmatch.ranking import counts_without_numba
from crossmatch.ranking.ranks_in_run import count_ranks_in_run
from crossmatch.ranking.sweep import count_ranks
from crossmatch.ranking.top_lists import iterate_rankings
from crossmatch.ranking.trec_files import MAX_GRADE, read_qrels, read_run, write_qrels, write_run

IMAGES, CAPTIONS = 6, 9
IDS = [f"i{n}" for n in range(IMAGES)], [f"c{n}" for n in range(CAPTIONS)]
COLLECTION = Collection(*IDS, ["text"] * CAPTIONS, [[n % IMAGES, n] for n in range(CAPTIONS)])


def embeddings(seed=0, levels=None, similarity="cosine"):
    """Random vectors, or coarse ones with many equal products."""
    rng = np.random.default_rng(seed)
    draw = (lambda n: rng.integers(1, 1 + levels, (n, 3))) if levels else (lambda n: rng.normal(size=(n, 8)).astype(np.float32))
    return Embeddings(COLLECTION.image_ids, draw(IMAGES), COLLECTION.caption_ids, draw(CAPTIONS), similarity)


def matrix(seed=0, levels=4):
    return Matrix(
        COLLECTION.image_ids,
        COLLECTION.caption_ids,
        np.random.default_rng(seed).integers(0, levels, COLLECTION.shape).astype(np.float32),
    )


def by_sorting(scores, direction, depth=None, queries=None, folds=None):
    """The slow version: every score, sorted as in trec_eval."""
    query_ids, item_ids = (COLLECTION.ids(side) for side in SIDES[direction])
    rankings = {}
    for q in range(len(query_ids)) if queries is None else queries:
        line = [
            (float(scores.score_pairs(np.array([q]), np.array([c]), direction)[0]), str(item_ids[c]))
            for c in range(len(item_ids))
            if not (c == q and len(set(SIDES[direction])) == 1) and (folds is None or folds[0][q] == folds[1][c])
        ]
        line.sort(reverse=True)
        top = [(s, i) for s, i in line if depth is None or len(line) <= depth or s >= line[depth - 1][0]]
        rankings[str(query_ids[q])] = top
    return rankings


def as_rankings(run):
    rankings = {}
    for query, item, value in zip(run.queries.tolist(), run.items.tolist(), run.values.tolist(), strict=True):
        rankings.setdefault(query, []).append((value, item))
    return rankings


# Round trips of rankings


@pytest.mark.parametrize("direction", SIDES)
@pytest.mark.parametrize("depth", [None, 1, 3, 5, 8, 9, 100])
@pytest.mark.parametrize(
    "scores",
    [embeddings(), embeddings(1, levels=2), embeddings(2, levels=2, similarity="dot"), matrix()],
    ids=["apart", "ties", "dot", "matrix"],
)
def test_run_file_equals_sorting(tmp_path, scores, direction, depth):
    if direction not in scores.directions:
        with pytest.raises(CrossmatchError, match=f"no direction {direction}, only i2t, t2i"):
            write_run(scores, COLLECTION, direction, tmp_path / "a.trec", depth=depth)
        assert not list(tmp_path.iterdir())
        return
    summary = write_run(scores, COLLECTION, direction, tmp_path / "a.trec", depth=depth, tag="mine")
    run = read_run(tmp_path / "a.trec")
    slow = by_sorting(scores, direction, depth)
    assert as_rankings(run) == slow  # equal floats, equal order
    assert (summary.rows, summary.queries) == (sum(map(len, slow.values())), len(slow))
    assert (run.tag, set(run.direction_marks)) == ("mine", {direction})
    assert [int(line.split()[3]) for line in (tmp_path / "a.trec").read_text().splitlines()] == [
        n for line in slow.values() for n in range(1, len(line) + 1)
    ]


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 9), st.sampled_from(list(SIDES)), st.integers(1, 20))
def test_rankings_are_not_cut_through_a_tie(seed, levels, depth, direction, block):
    scores = embeddings(seed, levels)
    before = counts_without_numba.BLOCK
    try:
        counts_without_numba.BLOCK = block
        rankings = {q: (items, values) for q, items, values in iterate_rankings(scores, COLLECTION, direction, depth)}
    finally:
        counts_without_numba.BLOCK = before
    slow = by_sorting(scores, direction, depth)
    item_ids = COLLECTION.ids(SIDES[direction][1])
    assert [list(zip(v.tolist(), item_ids[i].tolist(), strict=True)) for i, v in rankings.values()] == list(slow.values())
    for q, (items, values) in rankings.items():
        rest = np.setdiff1d(np.arange(len(item_ids)), items)
        rest = rest[rest != q] if len(set(SIDES[direction])) == 1 else rest
        assert len(items) >= min(depth, len(items) + len(rest))
        assert (scores.score_pairs(np.full(len(rest), q), rest, direction) < values[-1]).all()


def test_equal_vectors_are_tied_despite_rounding():
    """Equal vectors have equal exact scores; a matrix product may round them differently."""
    rng = np.random.default_rng(3)
    image = rng.normal(size=(1, 257))
    captions = np.repeat(rng.normal(size=(1, 257)), 40, axis=0)
    collection = Collection(["i"], [f"c{n:02d}" for n in range(40)], ["x"] * 40, np.zeros((0, 2)))
    (_, items, values), *rest = iterate_rankings(
        Embeddings(collection.image_ids, image, collection.caption_ids, captions), collection, "i2t", 3
    )
    assert not rest
    assert len(items) == 40
    assert len(set(values.tolist())) == 1


def test_constant_scorer_is_written_completely_in_trec_eval_order(tmp_path):
    constant = Matrix(COLLECTION.image_ids, COLLECTION.caption_ids, np.zeros(COLLECTION.shape))
    write_run(constant, COLLECTION, "i2t", tmp_path / "a.trec", depth=2)
    assert as_rankings(read_run(tmp_path / "a.trec"))["i0"] == [(0.0, f"c{n}") for n in range(CAPTIONS)][::-1]


def test_run_file_of_selected_queries_and_folds(tmp_path):
    folds = np.arange(IMAGES) % 2, np.arange(CAPTIONS) % 2
    for direction, pair in (("i2t", folds), ("t2i", folds[::-1])):
        write_run(embeddings(), COLLECTION, direction, tmp_path / "a.trec", depth=2, queries=np.array([1, 4]), folds=pair)
        assert as_rankings(read_run(tmp_path / "a.trec")) == by_sorting(embeddings(), direction, 2, [1, 4], pair)


def test_run_can_be_shortened(tmp_path):
    scores = embeddings(5, levels=2)
    for direction in SIDES:
        write_run(scores, COLLECTION, direction, tmp_path / "all.trec")
        write_run(read_run(tmp_path / "all.trec"), COLLECTION, direction, tmp_path / "cut.trec", depth=3)
        assert as_rankings(read_run(tmp_path / "cut.trec")) == by_sorting(scores, direction, 3)
    with pytest.raises(CrossmatchError, match="no row for t2i"):
        write_run(read_run(tmp_path / "all.trec"), COLLECTION, "t2i", tmp_path / "no.trec")


@pytest.mark.parametrize("direction", SIDES)
def test_ranks_from_a_complete_run_equal_those_from_scores(tmp_path, direction):
    scores = embeddings(7, levels=3)
    kind = {"i2t": "image-caption", "t2i": "image-caption", "t2t": "caption-caption", "i2i": "image-image"}[direction]
    n = {"image-caption": COLLECTION.shape, "caption-caption": (CAPTIONS,) * 2, "image-image": (IMAGES,) * 2}[kind]
    judged = Judgements("x", [0, 1, 2, 2], [1, 2, 0, 3], np.ones(4), n, kind=kind)
    write_run(scores, COLLECTION, direction, tmp_path / "a.trec")
    counts = count_ranks(scores, {direction: judged.candidate_lists(direction)})[direction]
    restored = count_ranks_in_run(
        read_run(tmp_path / "a.trec").align_to(COLLECTION), COLLECTION, direction, judged.candidate_lists(direction)
    )
    assert (counts.above.tolist(), counts.tie_size.tolist()) == (restored.above.tolist(), restored.tie_size.tolist())


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=CAPTIONS, max_size=CAPTIONS))
def test_scores_are_restored_exactly(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("run") / "a.trec"
    scores = Matrix(["i"], COLLECTION.caption_ids, np.array([values]))
    collection = Collection(["i"], COLLECTION.caption_ids, COLLECTION.captions, np.zeros((0, 2)))
    write_run(scores, collection, "i2t", path)
    restored = dict(zip((run := read_run(path)).items.tolist(), run.values.tolist(), strict=True))
    assert [restored[c] for c in COLLECTION.caption_ids.tolist()] == values


def test_direction_column_separates_images_and_captions_with_equal_ids(tmp_path):
    collection = Collection(["1", "2"], ["1", "2"], ["a", "b"], [[0, 0], [1, 1]])
    scores = Matrix(collection.image_ids, collection.caption_ids, np.array([[0.9, 0.1], [0.2, 0.8]]))
    write_run(scores, collection, "t2i", tmp_path / "a.trec")
    run = read_run(tmp_path / "a.trec").align_to(collection)
    query, item, values = run.pairs_in_direction(collection, "t2i")
    assert list(zip(query.tolist(), item.tolist(), values.tolist(), strict=True)) == [
        (0, 0, 0.9), (0, 1, 0.2), (1, 1, 0.8), (1, 0, 0.1)
    ]  # fmt: skip
    assert len(run.pairs_in_direction(collection, "i2t")[0]) == 0


def test_run_of_another_tool_has_no_directions(tmp_path):
    (tmp_path / "a.trec").write_text("\ufeffi0 Q0 c1 1 0.5 theirs\n\ni0 Q0 c2 2 -1e-3 theirs\n", encoding="utf-8")
    run = read_run(tmp_path / "a.trec")
    assert run.direction_marks is None
    assert as_rankings(run) == {"i0": [(0.5, "c1"), (-0.001, "c2")]}


# Round trips of judgements


def make_judgements(direction, grades, positive=1.0):
    kind = {"t2t": "caption-caption", "i2i": "image-image"}.get(direction, "image-caption")
    shape = {"t2t": (CAPTIONS,) * 2, "i2i": (IMAGES,) * 2}.get(direction, COLLECTION.shape)
    rng = np.random.default_rng(len(grades))
    pairs = [(r, c) for r in range(shape[0]) for c in range(shape[1]) if kind == "image-caption" or r != c]
    rows, columns = np.array(pairs)[rng.permutation(len(pairs))[: len(grades)]].T
    return Judgements("x", rows, columns, grades, shape, positive, kind=kind)


def triples(judged):
    return sorted(zip(judged.rows.tolist(), judged.columns.tolist(), judged.grades.tolist(), strict=True))


GRADES = {
    "binary": ([1, 1, 0, 1], 1.0, 1, 1),
    "whole": ([0, 1, 2, 3, 3], 2.0, 1, 2),
    "negative": ([-1, 1, 2], 1.0, 1, 1),
    "hundredths": ([4.97, 2.5, 0.0, 3.0, 2.99], 3.0, 100, 300),
    "tenths": ([2.2, 0.4], 0.4, 10, 4),
    "thirds": ([1 / 3, 2 / 3, 1.0], 2 / 3, 3, 2),
    "a threshold between": ([0.1, 0.3, 0.4, 0.7], 1 / 3, 10, 4),
}


@pytest.mark.parametrize("direction", SIDES)
@pytest.mark.parametrize("kind", GRADES)
def test_qrels_restore_judgements(tmp_path, kind, direction):
    grades, positive, scale, lowest_positive = GRADES[kind]
    judged = make_judgements(direction, grades, positive)
    summary = write_qrels(judged, COLLECTION, direction, tmp_path / "q.txt")
    restored = read_qrels(tmp_path / "q.txt", COLLECTION, direction, positive=positive, source="x")
    assert triples(restored) == triples(judged)
    assert (restored.kind, restored.shape, restored.positive, restored.complete, restored.source) == (
        judged.kind,
        judged.shape,
        positive,
        False,
        "x",
    )
    written = [line.split() for line in (tmp_path / "q.txt").read_text().splitlines()]
    assert (summary.scale, summary.positive_grade, summary.rows) == (scale, lowest_positive, len(grades))
    assert {columns[1] for columns in written} == {"0" if scale == 1 else f"x{scale}"}
    assert sum(int(columns[3]) >= lowest_positive for columns in written) == judged.positive_count
    query, item = (COLLECTION.ids(side).tolist() for side in SIDES[direction])
    assert [(query.index(w[0]), item.index(w[2])) for w in written] == sorted(
        (query.index(w[0]), item.index(w[2])) for w in written
    )


@given(
    st.lists(st.integers(-500, 500), min_size=1, max_size=20),
    st.sampled_from([1, 2, 3, 5, 7, 10, 30, 100, 360, 1000]),
    st.sampled_from(list(SIDES)),
)
def test_fractional_grades_are_restored_exactly(tmp_path_factory, numerators, unit, direction):
    judged = make_judgements(direction, [*(n / unit for n in numerators), 1000.0])
    path = tmp_path_factory.mktemp("qrels") / "q.txt"
    summary = write_qrels(judged, COLLECTION, direction, path)
    assert triples(read_qrels(path, COLLECTION, direction)) == triples(judged)
    assert summary.scale <= 1000


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=20))
def test_grades_written_as_given_are_restored_exactly(tmp_path_factory, grades):
    judged = make_judgements("t2i", [*grades, 1.0])
    path = tmp_path_factory.mktemp("qrels") / "q.txt"
    summary = write_qrels(judged, COLLECTION, "t2i", path, "given")
    assert (summary.scale, summary.positive_grade) == (1, 1.0)
    assert triples(read_qrels(path, COLLECTION, "t2i")) == triples(judged)


@pytest.mark.parametrize("grades", [[np.pi, 1.0], [1 / 9973, 1 / 9967, 1.0], [MAX_GRADE + 1.5, 1.0]])
def test_grades_without_integer_scale_are_an_error(tmp_path, grades):
    with pytest.raises(CrossmatchError, match=r"Grades such as .* cannot be made whole.*grades given.*grades binary"):
        write_qrels(make_judgements("i2t", grades), COLLECTION, "i2t", tmp_path / "q.txt")
    assert not list(tmp_path.iterdir())


def test_binary_grades_follow_the_threshold(tmp_path):
    judged = Judgements("x", [0, 0, 1, 2], [0, 1, 2, 3], [4.97, 2.99, 2.0, 3.0], COLLECTION.shape, positive=3.0)
    summary = write_qrels(judged, COLLECTION, "i2t", tmp_path / "q.txt", "binary")
    assert (tmp_path / "q.txt").read_text() == "i0 0 c0 1\ni0 0 c1 0\ni1 0 c2 0\ni2 0 c3 1\n"
    assert (summary.queries, summary.queries_without_positives, summary.positive_grade) == (3, 1, 1)
    assert read_qrels(tmp_path / "q.txt", COLLECTION, "i2t").positive_count == judged.positive_count


@pytest.mark.parametrize("direction", ["i2t", "t2i"])
def test_absent_positives_are_restored(tmp_path, direction):
    judged = Judgements(
        "x", [0, 1, 2], [0, 1, 2], [4.5, 3.0, 1.0], COLLECTION.shape, 3.0, only_direction=direction, absent_positives=(1, 1, 4)
    )
    summary = write_qrels(judged, COLLECTION, direction, tmp_path / "q.txt")
    restored = read_qrels(tmp_path / "q.txt", COLLECTION, direction, positive=3.0)
    assert (triples(restored), restored.absent_positives, restored.only_direction, restored.positive_count) == (
        triples(judged),
        (1, 1, 4),
        direction,
        5,
    )
    assert (summary.rows, summary.queries, summary.queries_without_positives) == (6, 4, 1)
    columns = [line.split() for line in (tmp_path / "q.txt").read_text().splitlines()]
    assert [w[2:] for w in columns if w[2].startswith("absent")] == [["absent:1", "30"], ["absent:2", "30"], ["absent:3", "30"]]


def test_item_id_may_start_with_absent_if_no_positive_is_absent(tmp_path):
    collection = Collection(["i"], ["absent:1", "c"], ["x", "y"], [[0, 0]])
    write_qrels(Judgements.from_links(collection), collection, "i2t", tmp_path / "q.txt")
    restored = read_qrels(tmp_path / "q.txt", collection, "i2t")
    assert (restored.columns.tolist(), restored.absent_positives, restored.only_direction) == ([0], (), "")
    with pytest.raises(CrossmatchError, match="The id 'absent:1' of an item is reserved"):
        write_qrels(
            Judgements("x", [0], [0], [1], (1, 2), only_direction="i2t", absent_positives=(0,)),
            collection,
            "i2t",
            tmp_path / "q.txt",
        )


# Errors


@pytest.mark.parametrize("bad_id", ["a cat", "a\tcat", "a\u00a0cat", "a\u2028cat", " cat", "cat\n"])
@pytest.mark.parametrize("side", ["image", "caption"])
def test_ids_with_spaces_are_an_error(tmp_path, bad_id, side):
    ids = {"image": ["i0", "i1"], "caption": ["c0", "c1"]}
    ids[side][1] = bad_id
    collection = Collection(ids["image"], ids["caption"], ["x", "y"], [[0, 0], [1, 1]])
    scores = Matrix(collection.image_ids, collection.caption_ids, np.eye(2))
    message = rf"{side} id .* has a space.*Rename it, for example to '{'_'.join(bad_id.split())}'"
    with pytest.raises(CrossmatchError, match=message):
        write_run(scores, collection, "i2t", tmp_path / "a")
    with pytest.raises(CrossmatchError, match=message):
        write_qrels(Judgements.from_links(collection), collection, "t2i", tmp_path / "a")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("bad_id", ["\ufeffi", "i\udc80"])
def test_ids_that_utf8_cannot_store_are_an_error(tmp_path, bad_id):
    collection = Collection([bad_id], ["c"], ["x"], [[0, 0]])
    with pytest.raises(CrossmatchError, match="cannot be stored as UTF-8 text"):
        write_qrels(Judgements.from_links(collection), collection, "i2t", tmp_path / "a")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"direction": "i2x"}, UsageError, "Unknown direction 'i2x'"),
        ({"depth": 0}, UsageError, "depth must be at least 1 .got 0"),
        ({"tag": "my run"}, CrossmatchError, "tag 'my run' has a space.*'my_run'"),
        ({"tag": ""}, CrossmatchError, "tag '' has a space"),
    ],
)
def test_invalid_options_of_write_run(tmp_path, change, error, message):
    options = {"direction": "i2t", **change}
    with pytest.raises(error, match=message):
        write_run(matrix(), COLLECTION, options.pop("direction"), tmp_path / "a", **options)
    assert not list(tmp_path.iterdir())


def test_invalid_options_of_qrels(tmp_path):
    judged = make_judgements("i2t", [1.0])
    with pytest.raises(UsageError, match=r"grades 'real'\. Use one of whole, given, binary"):
        write_qrels(judged, COLLECTION, "i2t", tmp_path / "a", "real")
    with pytest.raises(CrossmatchError, match="image-caption judgements have no direction 't2t'"):
        write_qrels(judged, COLLECTION, "t2t", tmp_path / "a")
    with pytest.raises(UsageError, match="Unknown direction 'i2x'"):
        read_qrels(tmp_path / "a", COLLECTION, "i2x")
    with pytest.raises(UsageError, match=r"a: No such file"):
        read_qrels(tmp_path / "a", COLLECTION, "i2t")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no lines"),
        ("\n \n", "has no lines"),
        ("i0 0 c0\n", "Line 1 has 3 columns, expected 4: query 0 item grade"),
        ("i0 0 c0 1\n\ni1 0 c1 1 x\n", "Line 3 has 5 columns"),
        ("i0 0 c0 high\n", "Line 1 has the grade 'high', which is not a number"),
        ("i0 0 c0 nan\n", "NaN or infinite"),
        ("i9 0 c0 1\n", "1 of 1 query ids are not in the collection; first unknown: 'i9'"),
        ("i0 0 i1 1\n", "1 of 1 item ids are not in the collection; first unknown: 'i1'"),
        ("i0 0 c0 1\ni0 0 c0 0\n", "twice"),
        ("i0 0 c0 0\n", "no positive"),
    ],
)
def test_invalid_qrels_are_an_error_with_file_and_line(tmp_path, text, message):
    path = tmp_path / "q.txt"
    path.write_text(text)
    with pytest.raises(CrossmatchError, match=message) as error:
        read_qrels(path, COLLECTION, "i2t")
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "The run has no lines"),
        (b"i0 Q0 c0 1 0.5\n", "Line 1 has 5 columns, expected 6: query Q0 item rank score tag"),
        (b"i0 Q0 c0 1 high x\n", "Line 1 has the score 'high', which is not a number"),
        (b"i0 Q0 c0 1 inf x\n", "NaN or infinite"),
        (b"\xff\xfei0", "not UTF-8 text"),
    ],
)
def test_invalid_runs_are_an_error(tmp_path, text, message):
    (tmp_path / "a.trec").write_bytes(text)
    with pytest.raises(CrossmatchError, match=message):
        read_run(tmp_path / "a.trec")


def test_failure_keeps_the_old_file(tmp_path):
    path = tmp_path / "a.trec"
    write_run(matrix(), COLLECTION, "i2t", path)
    before = path.read_text()
    with pytest.raises(CrossmatchError):
        write_run(Run(np.array(["i0"]), np.array(["c0"]), np.ones(1)), COLLECTION, "t2i", path)
    assert path.read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.trec"]
