"""Collections, judgements, trials and ranks: invalid input is an error with a reason, and arrays of the caller are copied."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.data.arrays import as_ids, find_positions
from crossmatch.data.benchmark import Benchmark, ExpectedCount
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval, data_hash
from crossmatch.data.rank_counts import CandidateLists
from crossmatch.data.trials import TrialChoices, Trials, TrialScores
from crossmatch.ranking.ranks import Ranks, rank

PETS = {"cat": ["A cat.", "A cat sleeps."], "dog": ["A dog."], "fox": ["A fox.", "A red fox.", "It runs."]}
CAPTIONS = ("a", "b", "c", "d", "e", "f")


def pets(**changes):
    collection = Collection.from_captions(PETS)
    fields = {f.name: getattr(collection, f.name) for f in dataclasses.fields(collection)}
    return Collection(**{**fields, **changes})


def with_third_caption(text):
    return pets(captions=(*CAPTIONS[:2], text, *CAPTIONS[3:]))


def trials(**changes):
    fields = {"ids": ["t0", "t1"], "images": [["a", "b"], ["c", "d"]], "captions": [["x"], ["y"]], "categories": ["k", "k"]}
    return Trials(**{**fields, **changes})


def judged(rows, columns, grades, shape=(3, 6), **options):
    return Judgements("people", rows, columns, grades, shape, **options)


def judged_by_id(*graded):
    return Judgements.from_ids(pets(), "p", graded)


def lists(query, start):
    return CandidateLists(np.array(query, np.int64), np.array(start), np.arange(start[-1]), np.ones(start[-1]))


INVALID_IDS = [
    (lambda: as_ids([], "image"), "no image ids"),
    (lambda: as_ids(np.array([], dtype=np.int64), "image"), "no image ids"),
    (lambda: as_ids(np.array(5), "image"), "must be a flat list"),
    (lambda: as_ids(["a", "b", "a"], "image"), "'a' occurs 2 times among 3"),
    (lambda: as_ids([7, "7"], "image"), "'7' occurs 2 times"),
    (lambda: as_ids([b"a", "a"], "image"), "'a' occurs 2 times"),
    (lambda: as_ids(["a", ""], "image"), "An empty image id"),
    (lambda: as_ids([None, "a"], "image"), "A missing image id"),
    (lambda: as_ids([float("nan"), "a"], "image"), "A missing image id"),
    (
        lambda: find_positions(np.array(["a", "z"]), np.array(["a", "b"]), "image", "the split"),
        "1 of 2 image ids are not in the split; first unknown: 'z'.*such as 'a'",
    ),
]
INVALID_COLLECTIONS = [
    (lambda: pets(image_ids=["cat", "cat", "fox"]), "'cat' occurs 2 times"),
    (lambda: pets(image_ids=[]), "no image ids"),
    (lambda: pets(caption_ids=["1", "2"]), "6 captions and 2 caption ids"),
    (lambda: with_third_caption(""), "'dog#0' is ''"),
    (lambda: with_third_caption(" \n\t"), "'dog#0' is"),
    (lambda: with_third_caption(None), "'dog#0' is None"),
    (lambda: with_third_caption(3), "'dog#0' is 3"),
    (lambda: with_third_caption(b"c"), "'dog#0' is b'c'"),
    (lambda: pets(links=[[0, 6]]), "outside the 3 images x 6 captions"),
    (lambda: pets(links=[[3, 0]]), "outside"),
    (lambda: pets(links=[[-1, 0]]), "outside"),
    (lambda: pets(links=[[0, 0], [1, 1], [0, 0]]), "listed twice"),
    (lambda: pets(links=[0, 1]), r"\(L, 2\)"),
    (lambda: pets(links=[[0, 1, 2]]), r"\(L, 2\)"),
    (lambda: pets(links=[[0.7, 0.2]]), "not whole"),
    (lambda: pets(links=[[np.nan, 0]]), "not whole"),
    (lambda: Collection.from_captions({}), "There are no .* ids"),
    (lambda: Collection.from_captions({"cat": []}), "There are no .* ids"),
    (lambda: Collection.from_captions({"cat.jpg": "cat"}), "bare text"),
    (lambda: pets().open_images([0]), "no images, only their ids"),
]
INVALID_JUDGEMENTS = [
    (lambda: judged([0], [0, 1], [1]), "three flat arrays of equal length"),
    (lambda: judged([[0]], [[0]], [[1]]), "three flat arrays"),
    (lambda: judged(0, 0, 1), "three flat arrays"),
    (lambda: judged([0.9], [0], [1]), "not whole"),
    (lambda: judged([0], [0], [np.nan]), "NaN or infinite"),
    (lambda: judged([0], [0], [np.inf]), "NaN or infinite"),
    (lambda: judged([3], [0], [1]), "outside 3 images x 6 captions"),
    (lambda: judged([0], [6], [1]), "outside"),
    (lambda: judged([-1], [0], [1]), "outside"),
    (lambda: judged([0], [-1], [1]), "outside"),
    (lambda: judged([2, 0, 2], [5, 0, 5], [1, 1, 0]), r"pair \(2, 5\) is graded twice"),
    (lambda: judged([], [], []), "no positive"),
    (lambda: judged([0], [0], [0.5]), "no positive"),
    (lambda: judged([0], [0], [4], positive=4.5), "no grade is 4.5 or more"),
    # The ideal gain would be zero or less, and nDCG no number between 0 and 1.
    (lambda: judged([0, 1], [0, 1], [0, 0], positive=0.0), "must be above zero"),
    (lambda: judged([0, 1], [0, 1], [-1, 1], positive=-1.0), "must be above zero"),
    (lambda: judged_by_id(("owl", "cat#0", 1)), "first unknown: 'owl'"),
    (lambda: judged_by_id(("cat", "owl#0", 1)), "first unknown: 'owl#0'"),
    (lambda: judged_by_id(), "no positive"),
    (lambda: judged_by_id(("cat", "cat#0", 1), ("cat", "cat#0", 2)), "twice"),
    (lambda: Judgements.from_matrix("truth", np.zeros((2, 2), bool)), "no positive"),
    (lambda: Judgements.from_links(pets()).candidate_lists("i2i"), "i2i"),
    (lambda: Judgements.from_links(pets()).candidate_lists("t3i"), "t3i"),
    (lambda: Retrieval(pets(), {}), "needs judgements"),
    (lambda: Retrieval(pets(), {"p": judged([0], [0], [1], (2, 2))}), r"\(2, 2\).*\(3, 6\)"),
    (lambda: lists([], [0]), "No query has a positive"),
    (lambda: lists([4, 9], [0, 1, 1]), "Query 9 has no listed candidate"),
]
INVALID_TRIALS = [
    (lambda: trials(ids=["t", "t"]), "'t' occurs 2 times"),
    (lambda: trials(ids=[]), "no trial ids"),
    (lambda: trials(ids=["t0"]), "1 trials have images of shape"),
    (lambda: trials(images=["a", "b"]), "images of shape"),
    (lambda: trials(captions=[["x"]]), "captions of shape"),
    (lambda: trials(images=[["a"], ["c"]]), "leaves no choice"),
    (lambda: trials(images=np.empty((2, 0), dtype=str)), "leaves no choice"),
    (lambda: trials(images=[["a", "b"], ["c"]]), "every trial needs the same number"),
    (lambda: trials(captions=[["a", "b"], ["c"]]), "every trial needs the same number"),
    (lambda: trials(captions=[["x"], [None]]), "'t1' has None among its captions"),
    (lambda: trials(captions=[["x"], [""]]), "'t1' has '' among its captions"),
    (lambda: trials(captions=[["x"], ["  "]]), "'t1' has '  ' among its captions"),
    (lambda: trials(categories=["k"]), "expected one per trial"),
    (lambda: trials(categories="k"), "expected one per trial"),
    (lambda: TrialScores(["t0", "t1"], np.zeros((1, 1, 2))), r"\(2, C, I\)"),
    (lambda: TrialScores(["t0"], np.zeros(2)), r"\(1, C, I\)"),
    (lambda: TrialScores(["t0"], [[[np.nan, 1]]]), "NaN or infinite"),
    (lambda: TrialScores(["t0", "t1"], np.zeros((2, 2, 1))).align_to(trials()), "s_c0_i0 to s_c0_i1"),
    (lambda: TrialScores(["t0"], np.zeros((1, 1, 2))).align_to(trials()), "1 of 2 trials are not answered; first missing: 't1'"),
    (lambda: TrialScores(["t0", "t1", "t2"], np.zeros((3, 1, 2))).align_to(trials()), "'t2' is answered but not in the benchmark"),
    (lambda: TrialChoices(["t0", "t1"], ["a"]), "expected one per trial"),
    (lambda: TrialChoices(["t0", "t1"], ["a", "a"]).align_to(trials()), "trial 't1' is image 'a'.*'c', 'd'"),
    (lambda: TrialChoices(["t0", "t0"], ["a", "b"]), "occurs 2 times"),
    (lambda: TrialChoices(["t0", "t1"], ["a", "c"]).align_to(trials(captions=[["x", "y"], ["x", "y"]])), "one caption"),
]
INVALID_RANKS = [
    (lambda: Ranks.from_lists([[1], []]), "Query 1 has no positive"),
    (lambda: Ranks.from_lists([[]]), "no positive"),
    (lambda: Ranks.from_lists([]), "no positive"),
    (lambda: Ranks.from_lists([[0]]), "Invalid ranks"),
    (lambda: Ranks.from_lists([[-2]]), "Invalid ranks"),
    (lambda: Ranks.from_lists([[1, 1]]), "Invalid ranks"),
    (lambda: Ranks.from_lists([[5]], 3), "Invalid ranks"),
    (lambda: Ranks.all_tied([3], 2), "Invalid ranks"),
    (lambda: rank([[1, 2]], [[1]]), "must be equal matrices"),
    (lambda: rank([1, 2], [1, 0]), "must be equal matrices"),
    (lambda: rank(np.zeros((0, 3)), np.zeros((0, 3))), "nothing can be ranked"),
    (lambda: rank([[1, 2], [1, 2]], [[1, 0], [0, -1]]), "Query 1 has no positive"),
    (lambda: rank([[1j, 2]], [[1, 0]]), "real numbers"),
    (lambda: rank([[None, 2]], [[1, 0]]), "real numbers"),
    (lambda: rank([[0.1, 0.2]], [[1, np.nan]]), "NaN or infinite"),
    (lambda: rank([[0.1, 0.2]], [[1, 0]], ties="hopeful"), "expected, pessimistic, optimistic"),
]


@pytest.mark.parametrize(
    ("make", "message"), [*INVALID_IDS, *INVALID_COLLECTIONS, *INVALID_JUDGEMENTS, *INVALID_TRIALS, *INVALID_RANKS]
)
def test_invalid_input_is_an_error(make, message):
    with pytest.raises(CrossmatchError, match=message):
        make()


# Ids and collections


def test_integer_bytes_and_text_ids_are_equal():
    for ids in ([391895, 7], ["391895", "7"], [b"391895", b"7"], np.array([391895, 7]), np.array([b"391895", b"7"])):
        assert as_ids(ids, "image").tolist() == ["391895", "7"]


@given(
    st.lists(st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=4), min_size=1, max_size=20, unique=True),
    st.randoms(),
)
def test_positions_equal_a_linear_search(all_ids, random):
    ids = [random.choice(all_ids) for _ in range(10)]
    assert find_positions(np.array(ids), np.array(all_ids), "image", "here").tolist() == [all_ids.index(i) for i in ids]


def test_caption_ids_and_links_come_from_the_mapping():
    collection = Collection.from_captions({7: ["x"], 8: ["y", "z"]})
    assert collection.image_ids.tolist() == ["7", "8"]
    assert collection.caption_ids.tolist() == ["7#0", "8#0", "8#1"]
    assert collection.links.tolist() == [[0, 0], [1, 1], [1, 2]]
    assert Judgements.from_ids(collection, "p", [(8, "7#0", 1)]).rows.tolist() == [1]


def test_owner_of_a_caption_is_its_first_image_or_a_number_of_its_own():
    assert pets(links=[[2, 0], [1, 0], [0, 1]]).caption_owners().tolist() == [1, 0, 5, 6, 7, 8]


def test_data_are_read_only_copies():
    ids, links = np.array(["cat", "dog", "fox"]), np.array([[0, 0], [1, 2]])
    grades, images = np.array([1.0, 0.0]), np.array([["a", "b"], ["c", "d"]])
    collection, judgements, choices = pets(image_ids=ids, links=links), judged([0, 1], [0, 1], grades), trials(images=images)
    for array in (collection.image_ids, collection.caption_ids, collection.links, judgements.grades):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]
    ids[0], links[0, 0], images[0, 0] = "owl", 2, "z"
    grades[:] = 5
    assert (collection.image_ids[0], collection.links[0, 0], choices.images[0, 0]) == ("cat", 0, "a")
    assert judgements.grades.tolist() == [1.0, 0.0]


# Judgements


@st.composite
def graded_matrices(draw):
    shape = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    cells = [draw(st.sampled_from([None, 0.0, 1.0, 2.0])) for _ in range(shape[0] * shape[1])]
    matrix = np.array([np.nan if c is None else c for c in cells]).reshape(shape)
    matrix[draw(st.integers(0, shape[0] - 1)), draw(st.integers(0, shape[1] - 1))] = 1.0
    return matrix


@given(graded_matrices(), st.randoms(use_true_random=False))
def test_candidate_lists_have_the_judged_candidates_of_every_query_with_a_positive(matrix, random):
    pairs = [(r, c) for r, c in np.ndindex(matrix.shape) if not np.isnan(matrix[r, c])]
    random.shuffle(pairs)
    judgements = judged([r for r, _ in pairs], [c for _, c in pairs], [matrix[p] for p in pairs], matrix.shape)
    for direction, lines in (("i2t", matrix), ("t2i", matrix.T)):
        slow = {q: [(c, g) for c, g in enumerate(line) if not np.isnan(g)] for q, line in enumerate(lines) if (line >= 1).any()}
        listed = judgements.candidate_lists(direction)
        spans = zip(listed.query, listed.start[:-1], listed.start[1:], strict=True)
        actual = {int(q): list(zip(listed.item[a:b], listed.grade[a:b], strict=True)) for q, a, b in spans}
        assert actual == slow


def test_unjudged_is_not_zero():
    assert judged([0, 0], [0, 1], [1, 0]).candidate_lists("i2t").item.tolist() == [0, 1]
    assert judged([0], [0], [1]).candidate_lists("i2t").item.tolist() == [0]


# Trials, ranks, benchmarks


def test_answers_are_put_in_the_order_of_the_trials():
    scores = TrialScores(["t1", "t0"], [[[1, 2]], [[3, 4]]]).align_to(trials())
    assert scores.tolist() == [[[3, 4]], [[1, 2]]]
    assert TrialChoices(["t1", "t0"], ["d", "a"]).align_to(trials()).tolist() == [[[1, 0]], [[0, 1]]]


def test_all_candidates_may_be_positive():
    assert np.sort(rank([[0.3, 0.1, 0.2]], [[1, 1, 1]]).above).tolist() == [0, 1, 2]
    assert rank([[0.5, 0.5, 0.5]], [[1, 1, 1]]).is_tied.tolist() == [0.0]


def test_options_and_counts_of_a_benchmark_are_checked():
    def load(size):
        collection = pets()
        return Retrieval(collection, {"links": Judgements.from_links(collection)})

    good = Benchmark(
        "own",
        "",
        load,
        ("hit@1",),
        options={"size": "s"},
        expected_counts={"t2i/links": ExpectedCount(6, 6), "i2t/links": ExpectedCount(3, 6)},
    )
    assert good.load().collection.shape == (3, 6)
    with pytest.raises(UsageError, match="no option 'split'; it takes: size"):
        good.load(split="val")
    bad = dataclasses.replace(good, expected_counts={"t2i/links": ExpectedCount(5, 6)})
    with pytest.raises(CrossmatchError, match="not the official ones"):
        bad.load()
    assert bad.load(size="m").collection.shape == (3, 6)  # another size has other counts


def test_the_data_hash_changes_with_everything_that_changes_a_number():
    collection = pets()
    links = Judgements.from_links(collection)
    variants = [
        Retrieval(collection, {"links": links}),
        Retrieval(collection, {"other": links}),
        Retrieval(pets(image_ids=["cat", "dog", "owl"]), {"links": links}),
        Retrieval(pets(captions=("A cat.", "A cat sleeps.", "A dog.", "A fox.", "A red fox.", "It ran.")), {"links": links}),
        Retrieval(collection, {"links": dataclasses.replace(links, complete=True)}),
        Retrieval(collection, {"links": dataclasses.replace(links, positive=0.5)}),
        Retrieval(collection, {"links": dataclasses.replace(links, grades=np.full(6, 2.0))}),
        Retrieval(pets(links=[[0, 0]]), {"links": links}),
        trials(),
        trials(categories=["k", "l"]),
        trials(ids=["t0", "t2"]),
        trials(captions=[["x"], ["z"]]),
        trials(images=[["a", "b"], ["d", "c"]]),
    ]
    hashes = [data_hash(data) for data in variants]
    assert len(set(hashes)) == len(hashes)
    assert data_hash(Retrieval(pets(), {"links": Judgements.from_links(pets())})) == hashes[0]
