"""TREC files: exact there and back, never cut through a tie, and refused where a column would break."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.core import rankings as rankings_module
from crossmatch.core.collection import SIDES, Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements
from crossmatch.core.rankings import rankings
from crossmatch.core.runs import stand_run
from crossmatch.core.scores import Embeddings, Matrix, Run
from crossmatch.core.sweep import stand
from crossmatch.core.trec import LARGEST_GRADE, read_qrels, read_run, write_qrels, write_run

IMAGES, CAPTIONS = 6, 9
IDS = [f"i{n}" for n in range(IMAGES)], [f"c{n}" for n in range(CAPTIONS)]
HELD = Collection(*IDS, ["text"] * CAPTIONS, [[n % IMAGES, n] for n in range(CAPTIONS)])


def embeddings(seed=0, levels=None, similarity="cosine"):
    """Vectors without order, or so coarse that many of their products are equal."""
    rng = np.random.default_rng(seed)
    draw = (lambda n: rng.integers(1, 1 + levels, (n, 3))) if levels else (lambda n: rng.normal(size=(n, 8)).astype(np.float32))
    return Embeddings(HELD.image_ids, draw(IMAGES), HELD.caption_ids, draw(CAPTIONS), similarity)


def matrix(seed=0, levels=4):
    return Matrix(HELD.image_ids, HELD.caption_ids, np.random.default_rng(seed).integers(0, levels, HELD.shape).astype(np.float32))


def by_sorting(scores, direction, depth=None, queries=None, folds=None):
    """The slow way: every score one by one, sorted as trec_eval sorts."""
    query_ids, item_ids = (HELD.ids(side) for side in SIDES[direction])
    found = {}
    for q in range(len(query_ids)) if queries is None else queries:
        line = [
            (float(scores.pairs(np.array([q]), np.array([c]), direction)[0]), str(item_ids[c]))
            for c in range(len(item_ids))
            if not (c == q and len(set(SIDES[direction])) == 1) and (folds is None or folds[0][q] == folds[1][c])
        ]
        line.sort(reverse=True)
        kept = [(s, i) for s, i in line if depth is None or len(line) <= depth or s >= line[depth - 1][0]]
        found[str(query_ids[q])] = kept
    return found


def as_found(run):
    found = {}
    for query, item, value in zip(run.queries.tolist(), run.items.tolist(), run.values.tolist(), strict=True):
        found.setdefault(query, []).append((value, item))
    return found


# Rankings, to a file and back


@pytest.mark.parametrize("direction", SIDES)
@pytest.mark.parametrize("depth", [None, 1, 3, 5, 8, 9, 100])
@pytest.mark.parametrize(
    "scores",
    [embeddings(), embeddings(1, levels=2), embeddings(2, levels=2, similarity="dot"), matrix()],
    ids=["apart", "ties", "dot", "matrix"],
)
def test_a_run_comes_back_as_sorting_has_it(tmp_path, scores, direction, depth):
    if direction not in scores.directions:
        with pytest.raises(CrossmatchError, match=f"no direction {direction}; they have i2t, t2i"):
            write_run(scores, HELD, direction, tmp_path / "a.trec", depth=depth)
        assert not list(tmp_path.iterdir())
        return
    wrote = write_run(scores, HELD, direction, tmp_path / "a.trec", depth=depth, tag="mine")
    run = read_run(tmp_path / "a.trec")
    slow = by_sorting(scores, direction, depth)
    assert as_found(run) == slow  # equal floats, equal order
    assert (wrote.rows, wrote.queries) == (sum(map(len, slow.values())), len(slow))
    assert (run.tag, set(run.marks)) == ("mine", {direction})
    assert [int(line.split()[3]) for line in (tmp_path / "a.trec").read_text().splitlines()] == [
        n for line in slow.values() for n in range(1, len(line) + 1)
    ]


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 9), st.sampled_from(list(SIDES)), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_no_ranking_is_cut_through_a_tie_in_any_block(seed, levels, depth, direction, block):
    scores = embeddings(seed, levels)
    before = rankings_module.BLOCK
    try:
        rankings_module.BLOCK = block
        found = {q: (items, values) for q, items, values in rankings(scores, HELD, direction, depth)}
    finally:
        rankings_module.BLOCK = before
    slow = by_sorting(scores, direction, depth)
    item_ids = HELD.ids(SIDES[direction][1])
    assert [list(zip(v.tolist(), item_ids[i].tolist(), strict=True)) for i, v in found.values()] == list(slow.values())
    for q, (items, values) in found.items():
        rest = np.setdiff1d(np.arange(len(item_ids)), items)
        rest = rest[rest != q] if len(set(SIDES[direction])) == 1 else rest
        assert len(items) >= min(depth, len(items) + len(rest))
        assert (scores.pairs(np.full(len(rest), q), rest, direction) < values[-1]).all()


def test_scores_that_a_matrix_product_rounds_apart_are_level():
    """The same numbers in another order have the same exact product in any sum; a bare product may round them apart."""
    rng = np.random.default_rng(3)
    image = rng.normal(size=(1, 257))
    captions = np.repeat(rng.normal(size=(1, 257)), 40, axis=0)
    held = Collection(["i"], [f"c{n:02d}" for n in range(40)], ["x"] * 40, np.zeros((0, 2)))
    (_, items, values), *rest = rankings(Embeddings(held.image_ids, image, held.caption_ids, captions), held, "i2t", 3)
    assert not rest
    assert len(items) == 40
    assert len(set(values.tolist())) == 1


def test_a_constant_scorer_is_written_whole_and_in_the_order_of_trec_eval(tmp_path):
    level = Matrix(HELD.image_ids, HELD.caption_ids, np.zeros(HELD.shape))
    write_run(level, HELD, "i2t", tmp_path / "a.trec", depth=2)
    assert as_found(read_run(tmp_path / "a.trec"))["i0"] == [(0.0, f"c{n}") for n in range(CAPTIONS)][::-1]


def test_chosen_queries_and_folds(tmp_path):
    folds = np.arange(IMAGES) % 2, np.arange(CAPTIONS) % 2
    for direction, pair in (("i2t", folds), ("t2i", folds[::-1])):
        write_run(embeddings(), HELD, direction, tmp_path / "a.trec", depth=2, queries=np.array([1, 4]), folds=pair)
        assert as_found(read_run(tmp_path / "a.trec")) == by_sorting(embeddings(), direction, 2, [1, 4], pair)


def test_a_run_can_be_cut_and_written_again(tmp_path):
    scores = embeddings(5, levels=2)
    for direction in SIDES:
        write_run(scores, HELD, direction, tmp_path / "all.trec")
        write_run(read_run(tmp_path / "all.trec"), HELD, direction, tmp_path / "cut.trec", depth=3)
        assert as_found(read_run(tmp_path / "cut.trec")) == by_sorting(scores, direction, 3)
    with pytest.raises(CrossmatchError, match="no row for t2i"):
        write_run(read_run(tmp_path / "all.trec"), HELD, "t2i", tmp_path / "no.trec")


@pytest.mark.parametrize("direction", SIDES)
def test_standings_from_a_whole_run_are_those_of_the_scores(tmp_path, direction):
    scores = embeddings(7, levels=3)
    kind = {"i2t": "image-caption", "t2i": "image-caption", "t2t": "caption-caption", "i2i": "image-image"}[direction]
    n = {"image-caption": HELD.shape, "caption-caption": (CAPTIONS,) * 2, "image-image": (IMAGES,) * 2}[kind]
    said = Judgements("x", [0, 1, 2, 2], [1, 2, 0, 3], np.ones(4), n, kind=kind)
    write_run(scores, HELD, direction, tmp_path / "a.trec")
    ours = stand(scores, {direction: said.listed(direction)})[direction]
    back = stand_run(read_run(tmp_path / "a.trec").aligned(HELD), HELD, direction, said.listed(direction))
    assert (ours.above.tolist(), ours.size.tolist()) == (back.above.tolist(), back.size.tolist())


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=CAPTIONS, max_size=CAPTIONS))
@settings(max_examples=50, deadline=None)
def test_every_digit_of_a_score_survives(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("run") / "a.trec"
    said = Matrix(["i"], HELD.caption_ids, np.array([values]))
    held = Collection(["i"], HELD.caption_ids, HELD.captions, np.zeros((0, 2)))
    write_run(said, held, "i2t", path)
    back = dict(zip((run := read_run(path)).items.tolist(), run.values.tolist(), strict=True))
    assert [back[c] for c in HELD.caption_ids.tolist()] == values


def test_an_image_and_a_caption_of_one_id_are_told_apart_by_the_direction(tmp_path):
    held = Collection(["1", "2"], ["1", "2"], ["a", "b"], [[0, 0], [1, 1]])
    said = Matrix(held.image_ids, held.caption_ids, np.array([[0.9, 0.1], [0.2, 0.8]]))
    write_run(said, held, "t2i", tmp_path / "a.trec")
    run = read_run(tmp_path / "a.trec").aligned(held)
    query, item, values = run.side(held, "t2i")
    assert list(zip(query.tolist(), item.tolist(), values.tolist(), strict=True)) == [
        (0, 0, 0.9), (0, 1, 0.2), (1, 1, 0.8), (1, 0, 0.1)
    ]  # fmt: skip
    assert len(run.side(held, "i2t")[0]) == 0


def test_a_run_of_another_tool_has_no_marks(tmp_path):
    (tmp_path / "a.trec").write_text("\ufeffi0 Q0 c1 1 0.5 theirs\n\ni0 Q0 c2 2 -1e-3 theirs\n", encoding="utf-8")
    run = read_run(tmp_path / "a.trec")
    assert run.marks is None
    assert as_found(run) == {"i0": [(0.5, "c1"), (-0.001, "c2")]}


# Judgements, to a file and back


def judgements(direction, grades, positive=1.0):
    kind = {"t2t": "caption-caption", "i2i": "image-image"}.get(direction, "image-caption")
    shape = {"t2t": (CAPTIONS,) * 2, "i2i": (IMAGES,) * 2}.get(direction, HELD.shape)
    rng = np.random.default_rng(len(grades))
    pairs = [(r, c) for r in range(shape[0]) for c in range(shape[1]) if kind == "image-caption" or r != c]
    rows, columns = np.array(pairs)[rng.permutation(len(pairs))[: len(grades)]].T
    return Judgements("x", rows, columns, grades, shape, positive, kind=kind)


def triples(said):
    return sorted(zip(said.rows.tolist(), said.columns.tolist(), said.grades.tolist(), strict=True))


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
def test_judgements_come_back_as_they_were(tmp_path, kind, direction):
    grades, positive, scale, level = GRADES[kind]
    said = judgements(direction, grades, positive)
    wrote = write_qrels(said, HELD, direction, tmp_path / "q.txt")
    back = read_qrels(tmp_path / "q.txt", HELD, direction, positive=positive, source="x")
    assert triples(back) == triples(said)
    assert (back.kind, back.shape, back.positive, back.complete, back.source) == (said.kind, said.shape, positive, False, "x")
    written = [line.split() for line in (tmp_path / "q.txt").read_text().splitlines()]
    assert (wrote.scale, wrote.level, wrote.rows) == (scale, level, len(grades))
    assert {words[1] for words in written} == {"0" if scale == 1 else f"x{scale}"}
    assert sum(int(words[3]) >= level for words in written) == said.count
    query, item = (HELD.ids(side).tolist() for side in SIDES[direction])
    assert [(query.index(w[0]), item.index(w[2])) for w in written] == sorted(
        (query.index(w[0]), item.index(w[2])) for w in written
    )


@given(
    st.lists(st.integers(-500, 500), min_size=1, max_size=20),
    st.sampled_from([1, 2, 3, 5, 7, 10, 30, 100, 360, 1000]),
    st.sampled_from(list(SIDES)),
)
@settings(max_examples=80, deadline=None)
def test_fractions_of_any_unit_come_back_exactly(tmp_path_factory, numerators, unit, direction):
    said = judgements(direction, [*(n / unit for n in numerators), 1000.0])
    path = tmp_path_factory.mktemp("qrels") / "q.txt"
    wrote = write_qrels(said, HELD, direction, path)
    assert triples(read_qrels(path, HELD, direction)) == triples(said)
    assert wrote.scale <= 1000


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_any_grades_come_back_exactly_if_written_as_given(tmp_path_factory, grades):
    said = judgements("t2i", [*grades, 1.0])
    path = tmp_path_factory.mktemp("qrels") / "q.txt"
    wrote = write_qrels(said, HELD, "t2i", path, "given")
    assert (wrote.scale, wrote.level) == (1, 1.0)
    assert triples(read_qrels(path, HELD, "t2i")) == triples(said)


@pytest.mark.parametrize("grades", [[np.pi, 1.0], [1 / 9973, 1 / 9967, 1.0], [LARGEST_GRADE + 1.5, 1.0]])
def test_grades_that_no_unit_makes_whole_are_refused(tmp_path, grades):
    with pytest.raises(CrossmatchError, match=r"grades such as .* cannot be made whole.*grades given.*grades binary"):
        write_qrels(judgements("i2t", grades), HELD, "i2t", tmp_path / "q.txt")
    assert not list(tmp_path.iterdir())


def test_binary_grades_are_those_of_the_threshold_and_bare_queries_are_counted(tmp_path):
    said = Judgements("x", [0, 0, 1, 2], [0, 1, 2, 3], [4.97, 2.99, 2.0, 3.0], HELD.shape, positive=3.0)
    wrote = write_qrels(said, HELD, "i2t", tmp_path / "q.txt", "binary")
    assert (tmp_path / "q.txt").read_text() == "i0 0 c0 1\ni0 0 c1 0\ni1 0 c2 0\ni2 0 c3 1\n"
    assert (wrote.queries, wrote.bare, wrote.level) == (3, 1, 1)
    assert read_qrels(tmp_path / "q.txt", HELD, "i2t").count == said.count


@pytest.mark.parametrize("direction", ["i2t", "t2i"])
def test_positives_that_are_not_in_the_gallery_are_written_counted_and_read(tmp_path, direction):
    said = Judgements("x", [0, 1, 2], [0, 1, 2], [4.5, 3.0, 1.0], HELD.shape, 3.0, only=direction, absent=(1, 1, 4))
    wrote = write_qrels(said, HELD, direction, tmp_path / "q.txt")
    back = read_qrels(tmp_path / "q.txt", HELD, direction, positive=3.0)
    assert (triples(back), back.absent, back.only, back.count) == (triples(said), (1, 1, 4), direction, 5)
    assert (wrote.rows, wrote.queries, wrote.bare) == (6, 4, 1)
    words = [line.split() for line in (tmp_path / "q.txt").read_text().splitlines()]
    assert [w[2:] for w in words if w[2].startswith("absent")] == [["absent:1", "30"], ["absent:2", "30"], ["absent:3", "30"]]


def test_an_item_that_is_called_absent_is_an_item_unless_some_are_absent(tmp_path):
    held = Collection(["i"], ["absent:1", "c"], ["x", "y"], [[0, 0]])
    write_qrels(Judgements.from_links(held), held, "i2t", tmp_path / "q.txt")
    back = read_qrels(tmp_path / "q.txt", held, "i2t")
    assert (back.columns.tolist(), back.absent, back.only) == ([0], (), "")
    assert read_qrels(tmp_path / "q.txt", held, "i2t", only=True).only == "i2t"
    with pytest.raises(CrossmatchError, match="an item has the id 'absent:1'"):
        write_qrels(Judgements("x", [0], [0], [1], (1, 2), only="i2t", absent=(0,)), held, "i2t", tmp_path / "q.txt")


# What is refused


@pytest.mark.parametrize("bad", ["a cat", "a\tcat", "a\u00a0cat", "a\u2028cat", " cat", "cat\n"])
@pytest.mark.parametrize("side", ["image", "caption"])
def test_ids_with_spaces_are_refused_with_a_remedy(tmp_path, bad, side):
    ids = {"image": ["i0", "i1"], "caption": ["c0", "c1"]}
    ids[side][1] = bad
    held = Collection(ids["image"], ids["caption"], ["x", "y"], [[0, 0], [1, 1]])
    said = Matrix(held.image_ids, held.caption_ids, np.eye(2))
    says = rf"{side} id .* has a space.*Rename it, for example to '{'_'.join(bad.split())}'"
    with pytest.raises(CrossmatchError, match=says):
        write_run(said, held, "i2t", tmp_path / "a")
    with pytest.raises(CrossmatchError, match=says):
        write_qrels(Judgements.from_links(held), held, "t2i", tmp_path / "a")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("bad", ["\ufeffi", "i\udc80"])
def test_ids_that_would_not_come_back_are_refused(tmp_path, bad):
    held = Collection([bad], ["c"], ["x"], [[0, 0]])
    with pytest.raises(CrossmatchError, match="cannot be written as text in UTF-8 and read again"):
        write_qrels(Judgements.from_links(held), held, "i2t", tmp_path / "a")


@pytest.mark.parametrize(
    ("words", "error", "says"),
    [
        ({"direction": "i2x"}, WrongWords, "no direction 'i2x'"),
        ({"depth": 0}, WrongWords, "the depth is 0"),
        ({"tag": "my run"}, CrossmatchError, "tag 'my run' has a space.*'my_run'"),
        ({"tag": ""}, CrossmatchError, "tag '' has a space"),
    ],
)
def test_wrong_words_for_a_run(tmp_path, words, error, says):
    given = {"direction": "i2t", **words}
    with pytest.raises(error, match=says):
        write_run(matrix(), HELD, given.pop("direction"), tmp_path / "a", **given)
    assert not list(tmp_path.iterdir())


def test_wrong_words_for_judgements(tmp_path):
    said = judgements("i2t", [1.0])
    with pytest.raises(WrongWords, match="grades is 'real'; one of whole, given, binary"):
        write_qrels(said, HELD, "i2t", tmp_path / "a", "real")
    with pytest.raises(CrossmatchError, match="image-caption judgements have no direction 't2t'"):
        write_qrels(said, HELD, "t2t", tmp_path / "a")
    with pytest.raises(WrongWords, match="no direction 'i2x'"):
        read_qrels(tmp_path / "a", HELD, "i2x")
    with pytest.raises(WrongWords, match=r"a: there is no such file"):
        read_qrels(tmp_path / "a", HELD, "i2t")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it has no lines"),
        ("\n \n", "it has no lines"),
        ("i0 0 c0\n", "line 1 has 3 words; four were expected: query 0 item grade"),
        ("i0 0 c0 1\n\ni1 0 c1 1 x\n", "line 3 has 5 words"),
        ("i0 0 c0 high\n", "line 1 has the grade 'high', which is not a number"),
        ("i0 0 c0 nan\n", "NaN or infinite"),
        ("i9 0 c0 1\n", "1 of 1 query ids are not in the collection; first unknown: 'i9'"),
        ("i0 0 i1 1\n", "1 of 1 item ids are not in the collection; first unknown: 'i1'"),
        ("i0 0 c0 1\ni0 0 c0 0\n", "twice"),
        ("i0 0 c0 0\n", "no positive"),
    ],
)
def test_bad_judgements_are_refused_with_the_file_and_the_line(tmp_path, text, says):
    path = tmp_path / "q.txt"
    path.write_text(text)
    with pytest.raises(CrossmatchError, match=says) as error:
        read_qrels(path, HELD, "i2t")
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "the run has no lines"),
        (b"i0 Q0 c0 1 0.5\n", "line 1 has 5 words; six were expected: query Q0 item rank score tag"),
        (b"i0 Q0 c0 1 high x\n", "line 1 has the score 'high', which is not a number"),
        (b"i0 Q0 c0 1 inf x\n", "NaN or infinite"),
        (b"\xff\xfei0", "not text in UTF-8"),
    ],
)
def test_bad_runs_are_refused(tmp_path, text, says):
    (tmp_path / "a.trec").write_bytes(text)
    with pytest.raises(CrossmatchError, match=says):
        read_run(tmp_path / "a.trec")


def test_a_failure_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "a.trec"
    write_run(matrix(), HELD, "i2t", path)
    before = path.read_text()
    with pytest.raises(CrossmatchError):
        write_run(Run(np.array(["i0"]), np.array(["c0"]), np.ones(1)), HELD, "t2i", path)
    assert path.read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.trec"]
