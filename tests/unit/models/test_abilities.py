"""Plain objects as models: what they can do is found, asked for in batches, and checked."""

import gc

import numpy as np
import pytest

from crossmatch.core.benchmark import Benchmark, Retrieval
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements
from crossmatch.core.scores import Embeddings, Matrix
from crossmatch.core.trials import Trials
from crossmatch.models import make_model
from crossmatch.models.abilities import abilities, scores_of, trial_scores_of
from crossmatch.models.reference import Oracle, RandomScorer
from crossmatch.run import evaluate

HELD = Collection.of({f"i{n}": [f"{n} one", f"{n} two"] for n in range(7)}, open_image=lambda name: f"picture of {name}")
DATA = Retrieval(HELD, {"links": Judgements.from_links(HELD)})
OWN = Benchmark("own", "", lambda: DATA, ("hit@1", "map@r"))
PAIRS = Trials(
    ["a", "b", "c"], [["i0", "i1"], ["i1", "i2"], ["i2", "i0"]], [["0 x", "1 x"], ["1 x", "2 x"], ["2 x", "0 x"]], ["k"] * 3,
    open_image=lambda name: f"picture of {name}",
)  # fmt: skip


def number(thing):
    return int(thing.split()[0]) if thing[0].isdigit() else int(thing[-1])


def same(images, texts):
    """Right about everything, but for a constant that the batch must not see."""
    return [[float(number(i) == number(t)) + 0.01 * number(i) for t in texts] for i in images]


class Dual:
    """One direction for each number; remembers how much it was given at once."""

    def __init__(self, dimensions=8):
        self.dimensions, self.seen = dimensions, []

    def embed_images(self, images):
        self.seen.append(len(images))
        return np.eye(self.dimensions, dtype=np.float32)[[number(i) for i in images]]

    def embed_texts(self, texts):
        self.seen.append(len(texts))
        return 3 * np.eye(self.dimensions)[[number(t) for t in texts]]


class Cross:
    def score(self, images, texts):
        return same(images, texts)


class Called:
    def __call__(self, images, texts):
        return np.array(same(images, texts))


@pytest.mark.parametrize("model", [Dual(), Cross(), Called(), same], ids=["dual", "cross", "callable object", "function"])
def test_any_of_the_abilities_is_enough(model):
    result = evaluate(model, OWN, samples=10)
    assert {row.value for row in result.rows} == {100.0}


def test_abilities_are_found_by_their_names():
    assert abilities(Dual()) == ("embed",)
    assert abilities(Cross()) == ("score",)
    assert abilities(same) == ("score",)
    assert abilities(RandomScorer()) == ("scores",)
    assert abilities(object()) == ()


def test_a_model_is_called_by_its_name_its_function_or_its_class():
    assert evaluate(Dual(), OWN, samples=10).model == "Dual"
    assert evaluate(Called(), OWN, samples=10).model == "Called"
    assert evaluate(same, OWN, samples=10).model == "same"
    assert evaluate(same, OWN, samples=10, name="mine").model == "mine"
    assert evaluate("random:3", OWN, samples=10).model == "random:3"


@pytest.mark.parametrize("model", [object(), None, 3], ids=["object", "None", "number"])
def test_an_object_without_abilities_is_told_what_to_add(model):
    with pytest.raises(CrossmatchError, match="embed_images and embed_texts"):
        evaluate(model, OWN, samples=10)


def test_an_encoder_of_images_alone_cannot_be_asked_about_captions():
    class Half:
        def embed_images(self, images):
            raise AssertionError("it was asked before it was refused")

    with pytest.raises(CrossmatchError, match=r"needs scores in i2t and t2i, but the model has them in i2i alone.*cxc-sis"):
        evaluate(Half(), OWN, samples=10)


@pytest.mark.parametrize("batch", [1, 2, 3, 7, 100])
def test_the_batch_changes_nothing_and_is_kept(batch):
    model = Dual()
    said = scores_of(model, DATA, batch=batch)
    whole = scores_of(Dual(), DATA, batch=1000)
    assert np.array_equal(said.image_vectors, whole.image_vectors)
    assert np.array_equal(said.caption_vectors, whole.caption_vectors)
    assert max(model.seen) <= batch
    assert np.array_equal(scores_of(same, DATA, batch=batch).values, np.array(same(*everything())))


def everything():
    return HELD.images(range(7)), HELD.captions


def test_precision_does_not_depend_on_which_batch_came_first():
    """The first batch in float32, the others in float64 that float32 would round to ties."""

    def score(images, texts):
        fine = 1 + 1e-12 * np.array([[number(t) for t in texts] for _ in images])
        return fine.astype(np.float32) if number(images[0]) == 0 else fine

    said = scores_of(score, DATA, batch=1).values
    assert said[1, 0] != said[1, -1]


@pytest.mark.parametrize(
    ("score", "says"),
    [
        (lambda images, texts: np.zeros((len(texts), len(images))), r"\(images x texts\) was expected"),
        (lambda images, texts: np.zeros(len(images)), r"gave shape \(7,\)"),
        (lambda images, texts: 0.5, r"gave shape \(\)"),
        (lambda images, texts: None, r"gave shape \(\)"),
        (lambda images, texts: np.full((len(images), len(texts)), np.nan), "NaN or infinite"),
        (lambda images, texts: np.full((len(images), len(texts)), -np.inf, np.float16), "NaN or infinite"),
    ],
)
def test_wrong_scores_are_refused(score, says):
    with pytest.raises(CrossmatchError, match=says):
        scores_of(score, DATA)


@pytest.mark.parametrize(
    "score",
    [
        lambda images, texts: [["high"] * len(texts)] * len(images),
        lambda images, texts: np.full((len(images), len(texts)), 1j),
        lambda images, texts: [[1.0]] * (len(images) - 1) + [[1.0, 2.0]],
    ],
    ids=["words", "complex", "ragged"],
)
def test_scores_that_are_no_real_numbers_are_refused_with_a_reason(score):
    with pytest.raises(CrossmatchError):
        scores_of(score, DATA)


@pytest.mark.parametrize(
    ("images", "texts", "says"),
    [
        (lambda x: np.ones(len(x)), lambda x: np.ones((len(x), 2)), r"embedding images: 7 items gave an array of shape \(7,\)"),
        (lambda x: np.ones((1, 2)), lambda x: np.ones((len(x), 2)), r"\(7, dimensions\) was expected"),
        (lambda x: np.ones((len(x), 2)), lambda x: np.ones((2, len(x))), "embedding captions: 14 items"),
        (lambda x: np.ones((len(x), 2)), lambda x: np.ones((len(x), 3)), "one space"),
        (lambda x: np.zeros((len(x), 2)), lambda x: np.ones((len(x), 2)), "image 'i0' is all zeros"),
        (lambda x: np.ones((len(x), 2)), lambda x: np.full((len(x), 2), np.nan), "NaN or infinite"),
        (lambda x: np.full((len(x), 2), np.inf, np.float16), lambda x: np.ones((len(x), 2)), "fp16 overflows"),
        (lambda x: np.full((len(x), 2), "x"), lambda x: np.ones((len(x), 2)), "real numbers"),
    ],
)
def test_wrong_embeddings_are_refused(images, texts, says):
    class Wrong:
        embed_images = staticmethod(images)
        embed_texts = staticmethod(texts)

    with pytest.raises(CrossmatchError, match=says):
        scores_of(Wrong(), DATA)


def test_dimensions_that_change_with_the_batch_are_refused():
    class Padded(Dual):
        def embed_images(self, images):
            return np.ones((len(images), len(images)))

    with pytest.raises(CrossmatchError):
        scores_of(Padded(), DATA, batch=4)


def test_the_similarity_that_a_model_names_is_used():
    class Dot(Dual):
        similarity = "dot"

    assert scores_of(Dot(), DATA).similarity == "dot"
    Dot.similarity = "euclid"
    with pytest.raises(CrossmatchError, match="'cosine' or 'dot'"):
        scores_of(Dot(), DATA)


def test_a_model_needs_pictures():
    bare = Collection.of({"a": ["x"]})
    with pytest.raises(CrossmatchError, match="no pictures"):
        scores_of(Dual(), Retrieval(bare, {"links": Judgements.from_links(bare)}))


def test_large_scores_go_to_disk_and_come_back(monkeypatch):
    monkeypatch.setattr("crossmatch.core.cuts.IN_MEMORY", 1)
    said = scores_of(same, DATA, batch=2)
    assert isinstance(said.values, np.memmap)
    assert np.array_equal(said.values, same(*everything()))
    gc.collect()  # a file left open would be noticed here


@pytest.mark.parametrize("model", [Dual(), same], ids=["dual", "function"])
def test_trials_ask_each_pair_and_put_captions_in_rows(model):
    said = trial_scores_of(model, PAIRS, batch=2)
    slow = [
        [[float(number(c) == number(i)) for i in images] for c in captions]
        for images, captions in zip(PAIRS.images, PAIRS.captions, strict=True)
    ]
    if model is same:
        slow = [
            [[s + 0.01 * number(i) for s, i in zip(row, images, strict=True)] for row in trial]
            for trial, images in zip(slow, PAIRS.images, strict=True)
        ]
    assert np.allclose(said, slow, atol=1e-12)  # cosines of unit vectors round once


def test_an_image_in_many_trials_is_embedded_once():
    model = Dual()
    trial_scores_of(model, PAIRS)
    assert model.seen == [3, 3]


# The two that frame every result


def test_the_random_scorer_depends_on_ids_and_seed_alone():
    one, two = RandomScorer(1).scores(DATA), RandomScorer(1).scores(DATA)
    assert np.array_equal(one.image_vectors, two.image_vectors)
    assert not np.array_equal(one.image_vectors, RandomScorer(2).scores(DATA).image_vectors)
    order = [3, 0, 6, 1, 2, 5, 4]
    moved = Collection(HELD.image_ids[order], HELD.caption_ids, HELD.captions, HELD.links)
    again = RandomScorer(1).scores(Retrieval(moved, {"links": Judgements.from_links(moved)}))
    assert np.array_equal(again.image_vectors, one.image_vectors[order])


def test_the_random_scorer_lands_on_chance():
    """2,000 forced choices of two: within four standard errors of one half."""
    n = 2000
    many = Trials(range(n), [["a", "b"]] * n, [["x"]] * n, ["k"] * n)
    row = evaluate("random", Benchmark("coin", "", lambda: many, ("t2i",)), samples=10)["t2i"]
    assert row.value == pytest.approx(50, abs=400 * np.sqrt(0.25 / n))
    assert row.ties == 0
    assert row.chance == 50


@pytest.mark.parametrize("shape", [(1, 2), (2, 1), (2, 2), (2, 3)])
def test_the_oracle_wins_every_choice(shape):
    c, i = shape
    many = Trials(["a", "b"], [[f"i{n}" for n in range(i)]] * 2, [[f"c{n}" for n in range(c)]] * 2, ["k"] * 2)
    result = evaluate("oracle", Benchmark("all", "", lambda: many, ("i2t", "t2i", "group")), samples=10)
    assert {row.value for row in result.rows} == {100.0}
    assert len(result.rows) == {1: 1, 2: 3}[min(shape)]


def test_the_oracle_knows_the_complete_judgements_and_is_the_ceiling():
    true = np.zeros(HELD.shape, bool)
    true[HELD.links[:, 0], HELD.links[:, 1]] = True
    true[0, :6] = True
    both = Retrieval(HELD, {"links": Judgements.from_links(HELD), "truth": Judgements.from_matrix("truth", true)})
    result = evaluate("oracle", Benchmark("own", "", lambda: both, ("map@r", "hit@1")), samples=10)
    assert result["i2t/truth/map@r"].value == 100
    assert result["i2t/links/hit@1"].value == pytest.approx(100 * (6 + 2 / 6) / 7)  # image 0 has 2 links among 6 truths in a tie
    assert isinstance(Oracle().scores(both), Matrix)
    assert isinstance(RandomScorer().scores(both), Embeddings)


@pytest.mark.parametrize("name", ["random:x", "random:-1", "random:1.5", "randm", "", "precomputed", "precomputed:", "oracle:7"])
def test_names_without_a_meaning_are_refused(name):
    with pytest.raises(WrongWords):
        make_model(name)


def test_a_mistyped_name_gets_a_hint():
    with pytest.raises(WrongWords, match="Did you mean 'precomputed'"):
        make_model("precomputd:file.npz")
