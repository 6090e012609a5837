"""Plain objects as models: abilities, batches, and checks of what they return; the random scorer and the oracle."""

import numpy as np
import pytest

from crossmatch.data.benchmark import Benchmark
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval
from crossmatch.data.scores import Embeddings, Matrix
from crossmatch.data.trials import Trials
from crossmatch.evaluation.evaluate import evaluate
from crossmatch.evaluation.model_scores import get_trial_scores, score_collection
from crossmatch.models import make_model
from crossmatch.models.abilities import list_abilities
from crossmatch.models.baselines.random_and_oracle import Oracle, RandomScorer

COLLECTION = Collection.from_captions(
    {f"i{n}": [f"{n} one", f"{n} two"] for n in range(7)}, open_image=lambda name: f"picture of {name}"
)
DATA = Retrieval(COLLECTION, {"links": Judgements.from_links(COLLECTION)})
OWN = Benchmark("own", "", lambda: DATA, ("hit@1", "map@r"))
PAIRS = Trials(
    ["a", "b", "c"], [["i0", "i1"], ["i1", "i2"], ["i2", "i0"]], [["0 x", "1 x"], ["1 x", "2 x"], ["2 x", "0 x"]], ["k"] * 3,
    open_image=lambda name: f"picture of {name}",
)  # fmt: skip


def number(item):
    return int(item.split()[0]) if item[0].isdigit() else int(item[-1])


def same(images, texts):
    """Correct scores, plus a number for each image that does not depend on the batch."""
    return [[float(number(i) == number(t)) + 0.01 * number(i) for t in texts] for i in images]


class Dual:
    """A unit vector for each number; records the batch sizes."""

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
def test_one_ability_is_enough(model):
    result = evaluate(model, OWN, samples=10)
    assert {row.value for row in result.rows} == {100.0}


def test_abilities_follow_from_the_methods():
    assert list_abilities(Dual()) == ("embed",)
    assert list_abilities(Cross()) == ("score",)
    assert list_abilities(same) == ("score",)
    assert list_abilities(RandomScorer()) == ("scores",)
    assert list_abilities(object()) == ()


def test_model_name_is_given_or_that_of_the_function_or_class():
    assert evaluate(Dual(), OWN, samples=10).model == "Dual"
    assert evaluate(Called(), OWN, samples=10).model == "Called"
    assert evaluate(same, OWN, samples=10).model == "same"
    assert evaluate(same, OWN, samples=10, name="mine").model == "mine"
    assert evaluate("random:3", OWN, samples=10).model == "random:3"


@pytest.mark.parametrize("model", [object(), None, 3], ids=["object", "None", "number"])
def test_object_without_abilities_is_refused(model):
    with pytest.raises(CrossmatchError, match="embed_images and embed_texts"):
        evaluate(model, OWN, samples=10)


def test_image_encoder_cannot_be_evaluated_on_captions():
    class Half:
        def embed_images(self, images):
            raise AssertionError("called before it was refused")

    with pytest.raises(CrossmatchError, match=r"needs scores in i2t and t2i, but the model has them in i2i alone.*cxc-sis"):
        evaluate(Half(), OWN, samples=10)


@pytest.mark.parametrize("batch", [1, 2, 3, 7, 100])
def test_batch_size_changes_no_value(batch):
    model = Dual()
    embeddings = score_collection(model, DATA, batch=batch)
    whole = score_collection(Dual(), DATA, batch=1000)
    assert np.array_equal(embeddings.image_vectors, whole.image_vectors)
    assert np.array_equal(embeddings.caption_vectors, whole.caption_vectors)
    assert max(model.seen) <= batch
    assert np.array_equal(score_collection(same, DATA, batch=batch).values, np.array(same(*everything())))


def everything():
    return COLLECTION.open_images(range(7)), COLLECTION.captions


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (lambda images, texts: np.zeros((len(texts), len(images))), r"\(images x texts\), got \(14, 7\)"),
        (lambda images, texts: np.zeros(len(images)), r"got \(7,\)"),
        (lambda images, texts: 0.5, r"got \(\)"),
        (lambda images, texts: None, r"got \(\)"),
        (lambda images, texts: np.full((len(images), len(texts)), np.nan), "NaN or infinite"),
        (lambda images, texts: np.full((len(images), len(texts)), -np.inf, np.float16), "NaN or infinite"),
        (lambda images, texts: [["high"] * len(texts)] * len(images), "real numbers"),
        (lambda images, texts: np.full((len(images), len(texts)), 1j), "real numbers"),
        (lambda images, texts: [[1.0]] * (len(images) - 1) + [[1.0, 2.0]], "the rows differ in length"),
    ],
)
def test_wrong_scores_are_refused(score, message):
    with pytest.raises(CrossmatchError, match=message):
        score_collection(score, DATA)


@pytest.mark.parametrize(
    ("images", "texts", "message"),
    [
        (
            lambda x: np.ones(len(x)),
            lambda x: np.ones((len(x), 2)),
            r"embedding images: expected an array of shape .*got shape \(7,\)",
        ),
        (lambda x: np.ones((1, 2)), lambda x: np.ones((len(x), 2)), r"expected an array of shape \(7, dimensions\)"),
        (lambda x: np.ones((len(x), 2)), lambda x: np.ones((2, len(x))), r"embedding captions: expected an array of shape \(14"),
        (lambda x: np.ones((len(x), 2)), lambda x: np.ones((len(x), 3)), "one space"),
        (lambda x: np.zeros((len(x), 2)), lambda x: np.ones((len(x), 2)), "image 'i0' is all zeros"),
        (lambda x: np.ones((len(x), 2)), lambda x: np.full((len(x), 2), np.nan), "NaN or infinite"),
        (lambda x: np.full((len(x), 2), np.inf, np.float16), lambda x: np.ones((len(x), 2)), "float16 overflows"),
        (lambda x: np.full((len(x), 2), "x"), lambda x: np.ones((len(x), 2)), "real numbers"),
    ],
)
def test_wrong_embeddings_are_refused(images, texts, message):
    class Wrong:
        embed_images = staticmethod(images)
        embed_texts = staticmethod(texts)

    with pytest.raises(CrossmatchError, match=message):
        score_collection(Wrong(), DATA)


def test_number_of_dimensions_must_be_constant():
    class Padded(Dual):
        def embed_images(self, images):
            return np.ones((len(images), len(images)))

    with pytest.raises(CrossmatchError):
        score_collection(Padded(), DATA, batch=4)


def test_similarity_of_the_model_is_used():
    class Dot(Dual):
        similarity = "dot"

    assert score_collection(Dot(), DATA).similarity == "dot"
    Dot.similarity = "euclid"
    with pytest.raises(CrossmatchError, match="'cosine' or 'dot'"):
        score_collection(Dot(), DATA)


def test_missing_images_are_an_error():
    bare = Collection.from_captions({"a": ["x"]})
    with pytest.raises(CrossmatchError, match="no images"):
        score_collection(Dual(), Retrieval(bare, {"links": Judgements.from_links(bare)}))


@pytest.mark.parametrize("model", [Dual(), same], ids=["dual", "function"])
def test_trial_scores_have_captions_in_rows(model):
    scores = get_trial_scores(model, PAIRS, batch=2)
    slow = [
        [[float(number(c) == number(i)) for i in images] for c in captions]
        for images, captions in zip(PAIRS.images, PAIRS.captions, strict=True)
    ]
    if model is same:
        slow = [
            [[s + 0.01 * number(i) for s, i in zip(row, images, strict=True)] for row in trial]
            for trial, images in zip(slow, PAIRS.images, strict=True)
        ]
    assert np.allclose(scores, slow, atol=1e-12)  # cosines of unit vectors round once


def test_image_of_several_trials_is_embedded_once():
    model = Dual()
    get_trial_scores(model, PAIRS)
    assert model.seen == [3, 3]


# The random scorer and the oracle


def test_random_scorer_depends_on_ids_and_seed_only():
    first, second = RandomScorer(1).scores(DATA), RandomScorer(1).scores(DATA)
    assert np.array_equal(first.image_vectors, second.image_vectors)
    assert not np.array_equal(first.image_vectors, RandomScorer(2).scores(DATA).image_vectors)
    order = [3, 0, 6, 1, 2, 5, 4]
    moved = Collection(COLLECTION.image_ids[order], COLLECTION.caption_ids, COLLECTION.captions, COLLECTION.links)
    again = RandomScorer(1).scores(Retrieval(moved, {"links": Judgements.from_links(moved)}))
    assert np.array_equal(again.image_vectors, first.image_vectors[order])


def test_random_scorer_gets_chance():
    """2,000 forced choices of two: within four standard errors of one half."""
    n = 2000
    many = Trials(range(n), [["a", "b"]] * n, [["x"]] * n, ["k"] * n)
    row = evaluate("random", Benchmark("coin", "", lambda: many, ("t2i",)), samples=10)["t2i"]
    assert row.value == pytest.approx(50, abs=400 * np.sqrt(0.25 / n))
    assert row.ties == 0
    assert row.chance == 50


@pytest.mark.parametrize("shape", [(1, 2), (2, 1), (2, 2), (2, 3)])
def test_oracle_wins_every_choice(shape):
    c, i = shape
    many = Trials(["a", "b"], [[f"i{n}" for n in range(i)]] * 2, [[f"c{n}" for n in range(c)]] * 2, ["k"] * 2)
    result = evaluate("oracle", Benchmark("all", "", lambda: many, ("i2t", "t2i", "group")), samples=10)
    assert {row.value for row in result.rows} == {100.0}
    assert len(result.rows) == {1: 1, 2: 3}[min(shape)]


def test_oracle_uses_the_most_complete_judgements():
    true = np.zeros(COLLECTION.shape, bool)
    true[COLLECTION.links[:, 0], COLLECTION.links[:, 1]] = True
    true[0, :6] = True
    both = Retrieval(COLLECTION, {"links": Judgements.from_links(COLLECTION), "truth": Judgements.from_matrix("truth", true)})
    result = evaluate("oracle", Benchmark("own", "", lambda: both, ("map@r", "hit@1")), samples=10)
    assert result["i2t/truth/map@r"].value == 100
    assert result["i2t/links/hit@1"].value == pytest.approx(100 * (6 + 2 / 6) / 7)  # image 0 has 2 links among 6 truths in a tie
    assert isinstance(Oracle().scores(both), Matrix)
    assert isinstance(RandomScorer().scores(both), Embeddings)


@pytest.mark.parametrize("name", ["random:x", "random:-1", "random:1.5", "randm", "", "precomputed", "precomputed:", "oracle:7"])
def test_wrong_names_are_refused(name):
    with pytest.raises(UsageError):
        make_model(name)


def test_mistyped_name_gets_a_suggestion():
    with pytest.raises(UsageError, match="Did you mean 'precomputed'"):
        make_model("precomputd:file.npz")
