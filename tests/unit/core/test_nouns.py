"""The nouns refuse what cannot be evaluated, say why, keep what they were given, and leave the caller's arrays alone."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.core.arrays import as_ids, positions
from crossmatch.core.benchmark import Benchmark, Count, Retrieval, data_hash
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements, Listed
from crossmatch.core.ranks import Ranks, rank
from crossmatch.core.trials import TrialChoices, Trials, TrialScores

PETS = {"cat": ["A cat.", "A cat sleeps."], "dog": ["A dog."], "fox": ["A fox.", "A red fox.", "It runs."]}


def pets(**changed):
    held = Collection.of(PETS)
    fields = {f.name: getattr(held, f.name) for f in dataclasses.fields(held)}
    return Collection(**{**fields, **changed})


def trials(**changed):
    fields = {"ids": ["t0", "t1"], "images": [["a", "b"], ["c", "d"]], "captions": [["x"], ["y"]], "categories": ["k", "k"]}
    return Trials(**{**fields, **changed})


def judged(rows, columns, grades, shape=(3, 6), **more):
    return Judgements("people", rows, columns, grades, shape, **more)


# Ids


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([], "no image ids"),
        (["a", "b", "a"], "'a' occurs 2 times among 3"),
        ([7, "7"], "'7' occurs 2 times"),
        ([b"a", "a"], "'a' occurs 2 times"),
        (["a", ""], "an? image id is empty"),
        (np.array([], dtype=np.int64), "no image ids"),
    ],
)
def test_ids_are_there_and_differ(ids, says):
    with pytest.raises(CrossmatchError, match=says):
        as_ids(ids, "image")


def test_integers_bytes_and_texts_name_the_same_item():
    for ids in ([391895, 7], ["391895", "7"], [b"391895", b"7"], np.array([391895, 7]), np.array([b"391895", b"7"])):
        assert as_ids(ids, "image").tolist() == ["391895", "7"]


def test_an_array_of_no_dimensions_is_no_list_of_ids():
    with pytest.raises(CrossmatchError):
        as_ids(np.array(5), "image")


@pytest.mark.parametrize("ids", [[None, "a"], [float("nan"), "a"]], ids=["None", "nan"])
def test_a_missing_id_is_refused_not_called_none(ids):
    with pytest.raises(CrossmatchError):
        as_ids(ids, "image")


@given(
    st.lists(st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=4), min_size=1, max_size=20, unique=True),
    st.randoms(),
)
@settings(max_examples=50, deadline=None)
def test_positions_are_where_a_linear_search_finds_them(known, random):
    asked = [random.choice(known) for _ in range(10)]
    assert positions(np.array(asked), np.array(known), "image", "here").tolist() == [known.index(a) for a in asked]


def test_an_unknown_id_is_named_with_an_example_of_the_known():
    with pytest.raises(CrossmatchError, match=r"1 of 2 image ids are not in the split; first unknown: 'z'.*such as 'a'"):
        positions(np.array(["a", "z"]), np.array(["a", "b"]), "image", "the split")


# Collection


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"image_ids": ["cat", "cat", "fox"]}, "'cat' occurs 2 times"),
        ({"image_ids": []}, "no image ids"),
        ({"caption_ids": ["1", "2"]}, "6 captions came with 2 caption ids"),
        ({"captions": ("a", "b", "", "d", "e", "f")}, "'dog#0' is ''"),
        ({"captions": ("a", "b", " \n\t", "d", "e", "f")}, "'dog#0' is"),
        ({"captions": ("a", "b", None, "d", "e", "f")}, "'dog#0' is None"),
        ({"captions": ("a", "b", 3, "d", "e", "f")}, "'dog#0' is 3"),
        ({"captions": ("a", "b", b"c", "d", "e", "f")}, "'dog#0' is b'c'"),
        ({"links": [[0, 6]]}, "outside the 3 images x 6 captions"),
        ({"links": [[3, 0]]}, "outside"),
        ({"links": [[-1, 0]]}, "outside"),
        ({"links": [[0, 0], [1, 1], [0, 0]]}, "listed twice"),
        ({"links": [0, 1]}, r"\(L, 2\)"),
        ({"links": [[0, 1, 2]]}, r"\(L, 2\)"),
    ],
)
def test_a_bad_collection_is_refused(changed, says):
    with pytest.raises(CrossmatchError, match=says):
        pets(**changed)


@pytest.mark.parametrize("links", [[[0.7, 0.2]], [[np.nan, 0]]], ids=["fraction", "nan"])
def test_links_are_whole_numbers(links):
    with pytest.raises(CrossmatchError):
        pets(links=links)


@pytest.mark.parametrize("given_", [{}, {"cat": []}])
def test_a_collection_without_images_or_captions_is_refused(given_):
    with pytest.raises(CrossmatchError, match="ids were given"):
        Collection.of(given_)


def test_a_bare_text_is_not_taken_for_a_list_of_letters():
    with pytest.raises(CrossmatchError):
        Collection.of({"cat.jpg": "cat"})


def test_caption_ids_and_links_come_from_the_mapping():
    held = Collection.of({7: ["x"], 8: ["y", "z"]})
    assert held.image_ids.tolist() == ["7", "8"]
    assert held.caption_ids.tolist() == ["7#0", "8#0", "8#1"]
    assert held.links.tolist() == [[0, 0], [1, 1], [1, 2]]


def test_the_owner_of_a_caption_is_the_first_image_linked_to_it_or_a_cluster_of_its_own():
    held = pets(links=[[2, 0], [1, 0], [0, 1]])
    assert held.owners().tolist() == [1, 0, 5, 6, 7, 8]


def test_a_collection_without_pictures_says_so():
    with pytest.raises(CrossmatchError, match="no pictures, only ids"):
        pets().images([0])


def test_a_collection_cannot_be_changed_and_does_not_lock_what_it_was_given():
    ids, links = np.array(["cat", "dog", "fox"]), np.array([[0, 0], [1, 2]])
    held = pets(image_ids=ids, links=links)
    for array in (held.image_ids, held.caption_ids, held.links):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]
    ids[0], links[0, 0] = "owl", 2
    assert held.image_ids[0] == "cat"
    assert held.links[0, 0] == 0


# Judgements and Listed


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: judged([0], [0, 1], [1]), "three flat arrays of equal length"),
        (lambda: judged([[0]], [[0]], [[1]]), "three flat arrays"),
        (lambda: judged(0, 0, 1), "three flat arrays"),
        (lambda: judged([0], [0], [np.nan]), "NaN or infinite"),
        (lambda: judged([0], [0], [np.inf]), "NaN or infinite"),
        (lambda: judged([3], [0], [1]), "outside 3 images x 6 captions"),
        (lambda: judged([0], [6], [1]), "outside"),
        (lambda: judged([-1], [0], [1]), "outside"),
        (lambda: judged([0], [-1], [1]), "outside"),
        (lambda: judged([2, 0, 2], [5, 0, 5], [1, 1, 0]), r"grade the pair \(2, 5\) twice"),
        (lambda: judged([], [], []), "no positive"),
        (lambda: judged([0], [0], [0.5]), "no positive"),
        (lambda: judged([0], [0], [4], positive=4.5), "no grade of 4.5 or more"),
        (lambda: Judgements.from_ids(pets(), "p", [("owl", "cat#0", 1)]), "first unknown: 'owl'"),
        (lambda: Judgements.from_ids(pets(), "p", [("cat", "owl#0", 1)]), "first unknown: 'owl#0'"),
        (lambda: Judgements.from_ids(pets(), "p", []), "no positive"),
        (lambda: Judgements.from_ids(pets(), "p", [("cat", "cat#0", 1), ("cat", "cat#0", 2)]), "twice"),
        (lambda: Judgements.from_matrix("truth", np.zeros((2, 2), bool)), "no positive"),
        (lambda: Retrieval(pets(), {}), "needs judgements"),
        (lambda: Retrieval(pets(), {"p": judged([0], [0], [1], (2, 2))}), r"\(2, 2\).*\(3, 6\)"),
    ],
)
def test_bad_judgements_are_refused(make, says):
    with pytest.raises(CrossmatchError, match=says):
        make()


def test_indices_of_judgements_are_whole_numbers():
    with pytest.raises(CrossmatchError):
        judged([0.9], [0], [1])


@pytest.mark.parametrize(("grades", "positive"), [([0, 0], 0.0), ([-1, 1], -1.0)], ids=["zero", "negative"])
def test_a_positive_has_a_gain_above_zero(grades, positive):
    """Else the ideal gain is zero, or less, and nDCG is no number between 0 and 1."""
    with pytest.raises(CrossmatchError):
        judged([0, 1], [0, 1], grades, positive=positive)


def test_integer_ids_find_their_text():
    held = Collection.of({1: ["x"], 2: ["y"]})
    assert Judgements.from_ids(held, "p", [(2, "1#0", 1)]).rows.tolist() == [1]


def test_judgements_do_not_change_with_what_they_were_made_from():
    grades = np.array([1.0, 0.0])
    said = judged([0, 1], [0, 1], grades)
    grades[:] = 5
    assert said.grades.tolist() == [1.0, 0.0]
    with pytest.raises(ValueError, match="read-only"):
        said.grades[0] = 3


@st.composite
def graded_matrices(draw):
    shape = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    cells = [draw(st.sampled_from([None, 0.0, 1.0, 2.0])) for _ in range(shape[0] * shape[1])]
    matrix = np.array([np.nan if c is None else c for c in cells]).reshape(shape)
    matrix[draw(st.integers(0, shape[0] - 1)), draw(st.integers(0, shape[1] - 1))] = 1.0
    return matrix


@given(graded_matrices(), st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_listed_holds_the_judged_candidates_of_every_query_with_a_positive(matrix, random):
    pairs = [(r, c) for r, c in np.ndindex(matrix.shape) if not np.isnan(matrix[r, c])]
    random.shuffle(pairs)
    said = judged([r for r, _ in pairs], [c for _, c in pairs], [matrix[p] for p in pairs], matrix.shape)
    for direction, lines in (("i2t", matrix), ("t2i", matrix.T)):
        slow = {q: [(c, g) for c, g in enumerate(line) if not np.isnan(g)] for q, line in enumerate(lines) if (line >= 1).any()}
        listed = said.listed(direction)
        spans = zip(listed.query, listed.start[:-1], listed.start[1:], strict=True)
        found = {int(q): list(zip(listed.item[a:b], listed.grade[a:b], strict=True)) for q, a, b in spans}
        assert found == slow


def test_unjudged_is_not_zero():
    assert judged([0, 0], [0, 1], [1, 0]).listed("i2t").item.tolist() == [0, 1]
    assert judged([0], [0], [1]).listed("i2t").item.tolist() == [0]


@pytest.mark.parametrize(
    ("query", "start", "says"), [([], [0], "no query has a positive"), ([4, 9], [0, 1, 1], "query 9 has no listed candidate")]
)
def test_a_list_without_candidates_is_refused(query, start, says):
    with pytest.raises(CrossmatchError, match=says):
        Listed(np.array(query, np.int64), np.array(start), np.arange(start[-1]), np.ones(start[-1]))


# Trials


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"ids": ["t", "t"]}, "'t' occurs 2 times"),
        ({"ids": []}, "no trial ids"),
        ({"ids": ["t0"]}, "1 trials came with images of shape"),
        ({"images": ["a", "b"]}, "images of shape"),
        ({"captions": [["x"]]}, "captions of shape"),
        ({"images": [["a"], ["c"]]}, "leaves no choice"),
        ({"images": np.empty((2, 0), dtype=str)}, "leaves no choice"),
        ({"categories": ["k"]}, "one each was expected"),
        ({"categories": "k"}, "one each was expected"),
    ],
)
def test_bad_trials_are_refused(changed, says):
    with pytest.raises(CrossmatchError, match=says):
        trials(**changed)


@pytest.mark.parametrize("what", ["images", "captions"])
def test_trials_of_unequal_size_are_refused(what):
    with pytest.raises(CrossmatchError, match="same I and C for every trial"):
        trials(**{what: [["a", "b"], ["c"]]})


@pytest.mark.parametrize("caption", [None, "", "  "])
def test_a_trial_needs_texts_for_captions(caption):
    with pytest.raises(CrossmatchError):
        trials(captions=[["x"], [caption]])


def test_trials_neither_lock_nor_follow_the_arrays_of_the_caller():
    images = np.array([["a", "b"], ["c", "d"]])
    held = trials(images=images)
    images[0, 0] = "z"
    assert held.images[0, 0] == "a"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: TrialScores(["t0", "t1"], np.zeros((1, 1, 2))), r"\(2, C, I\) was expected"),
        (lambda: TrialScores(["t0"], np.zeros(2)), r"\(1, C, I\) was expected"),
        (lambda: TrialScores(["t0"], [[[np.nan, 1]]]), "NaN or infinite"),
        (lambda: TrialScores(["t0", "t1"], np.zeros((2, 2, 1))).aligned(trials()), "s_c0_i0 to s_c0_i1"),
        (lambda: TrialScores(["t0"], np.zeros((1, 1, 2))).aligned(trials()), "1 of 2 trials are not answered; first missing: 't1'"),
        (
            lambda: TrialScores(["t0", "t1", "t2"], np.zeros((3, 1, 2))).aligned(trials()),
            "'t2' is answered but not in the benchmark",
        ),
        (lambda: TrialChoices(["t0", "t1"], ["a"]), "one each was expected"),
        (lambda: TrialChoices(["t0", "t1"], ["a", "a"]).aligned(trials()), "'t1' was answered with image 'a'.*'c', 'd'"),
        (lambda: TrialChoices(["t0", "t0"], ["a", "b"]), "occurs 2 times"),
        (lambda: TrialChoices(["t0", "t1"], ["a", "c"]).aligned(trials(captions=[["x", "y"], ["x", "y"]])), "one caption"),
    ],
)
def test_bad_answers_are_refused(make, says):
    with pytest.raises(CrossmatchError, match=says):
        make()


def test_answers_are_put_in_the_order_of_the_trials():
    said = TrialScores(["t1", "t0"], [[[1, 2]], [[3, 4]]]).aligned(trials())
    assert said.tolist() == [[[3, 4]], [[1, 2]]]
    assert TrialChoices(["t1", "t0"], ["d", "a"]).aligned(trials()).tolist() == [[[1, 0]], [[0, 1]]]


# Ranks


def test_ranks_of_no_positive_are_refused():
    with pytest.raises(CrossmatchError, match="query 1 has no positive"):
        Ranks.of([[1], []])
    with pytest.raises(CrossmatchError, match="no positive"):
        Ranks.of([[]])
    with pytest.raises(CrossmatchError, match="no positive"):
        Ranks.of([])


@pytest.mark.parametrize(("ranks", "gallery"), [([[0]], None), ([[-2]], None), ([[1, 1]], None), ([[5]], 3)])
def test_ranks_that_cannot_be_are_refused(ranks, gallery):
    """Ranks count from one, no two positives share one without a tie, and none lies past the gallery."""
    with pytest.raises(CrossmatchError):
        Ranks.of(ranks, gallery)


def test_more_positives_than_candidates_are_refused():
    with pytest.raises(CrossmatchError):
        Ranks.level([3], 2)


@pytest.mark.parametrize(
    ("scores", "relevance", "says"),
    [
        ([[1, 2]], [[1]], "two equal matrices"),
        ([1, 2], [1, 0], "two equal matrices"),
        (np.zeros((0, 3)), np.zeros((0, 3)), "nothing to rank"),
        ([[1, 2], [1, 2]], [[1, 0], [0, -1]], "query 1 has no positive"),
        ([[1j, 2]], [[1, 0]], "real numbers"),
        ([[None, 2]], [[1, 0]], "real numbers"),
    ],
)
def test_bad_matrices_are_not_ranked(scores, relevance, says):
    with pytest.raises(CrossmatchError, match=says):
        rank(scores, relevance)


def test_a_grade_that_is_no_number_is_refused():
    with pytest.raises(CrossmatchError):
        rank([[0.1, 0.2]], [[1, np.nan]])


def test_an_unknown_tie_policy_is_refused():
    with pytest.raises(CrossmatchError, match="expected, pessimistic, optimistic"):
        rank([[0.1, 0.2]], [[1, 0]], ties="hopeful")


def test_a_query_whose_positives_are_the_whole_gallery_has_ranks_one_to_the_end():
    assert np.sort(rank([[0.3, 0.1, 0.2]], [[1, 1, 1]]).above).tolist() == [0, 1, 2]
    assert rank([[0.5, 0.5, 0.5]], [[1, 1, 1]]).tied.tolist() == [0.0]


# Benchmark


def test_options_and_counts_of_a_benchmark_are_checked():
    def load(size):
        held = pets()
        return Retrieval(held, {"links": Judgements.from_links(held)})

    good = Benchmark(
        "own", "", load, ("hit@1",), options={"size": "s"}, expect={"t2i/links": Count(6, 6), "i2t/links": Count(3, 6)}
    )
    assert good.loaded().collection.shape == (3, 6)
    with pytest.raises(WrongWords, match="no option 'split'; it takes: size"):
        good.loaded(split="val")
    bad = dataclasses.replace(good, expect={"t2i/links": Count(5, 6)})
    with pytest.raises(CrossmatchError, match="not the official ones"):
        bad.loaded()
    assert bad.loaded(size="m").collection.shape == (3, 6)  # another size has other counts


def test_the_data_hash_changes_with_everything_that_changes_a_number():
    held = pets()
    links = Judgements.from_links(held)
    kinds = [
        Retrieval(held, {"links": links}),
        Retrieval(held, {"other": links}),
        Retrieval(pets(image_ids=["cat", "dog", "owl"]), {"links": links}),
        Retrieval(pets(captions=("A cat.", "A cat sleeps.", "A dog.", "A fox.", "A red fox.", "It ran.")), {"links": links}),
        Retrieval(held, {"links": dataclasses.replace(links, complete=True)}),
        Retrieval(held, {"links": dataclasses.replace(links, positive=0.5)}),
        Retrieval(held, {"links": dataclasses.replace(links, grades=np.full(6, 2.0))}),
        Retrieval(pets(links=[[0, 0]]), {"links": links}),
        trials(),
        trials(categories=["k", "l"]),
        trials(ids=["t0", "t2"]),
        trials(captions=[["x"], ["z"]]),
        trials(images=[["a", "b"], ["d", "c"]]),
    ]
    hashes = [data_hash(data) for data in kinds]
    assert len(set(hashes)) == len(hashes)
    assert data_hash(Retrieval(pets(), {"links": Judgements.from_links(pets())})) == hashes[0]


@pytest.mark.parametrize("direction", ["i2i", "t3i"])
def test_a_direction_that_judgements_do_not_have_is_refused_by_name(direction):
    with pytest.raises(CrossmatchError, match=direction):
        Judgements.from_links(pets()).listed(direction)
