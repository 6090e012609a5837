"""The small grounder: attention against a loop over the equations, batches, regions, and its folder."""

from __future__ import annotations

import math

import numpy as np
import pytest

from crossmatch.data.errors import CrossmatchError
from crossmatch.data.grounding import Grounder
from crossmatch.diorama.scenes import regions
from crossmatch.diorama.world import Diorama
from grounding_equations import ground_by_loops

torch = pytest.importorskip("torch")
from PIL import Image

from crossmatch.evaluation.evaluate import evaluate
from crossmatch.models.abilities import PairScorer, list_abilities
from crossmatch.models.baselines import small_grounder as module
from crossmatch.models.baselines.small_dual_encoder import build_vocabulary
from crossmatch.models.baselines.small_grounder import SmallGrounder, SmallGrounderConfig, ground_words, load
from crossmatch.models.regions.crops import GRID, crop_regions, get_regions

TEXTS = ["", "A red cat.", "Wholly unheard-of gibberish", "a cat " * 30, "Two blue cups on a table in the snow."]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    grounder = SmallGrounder(SmallGrounderConfig(build_vocabulary(TEXTS[1:2] + TEXTS[4:]), pixels=16, dimensions=24, width=4))
    for layer in grounder.net.modules():  # running statistics that differ from those of a batch
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.running_mean.uniform_(-0.1, 0.1)
            layer.running_var.uniform_(0.5, 2)
    return grounder


@pytest.fixture(scope="module")
def world():
    return Diorama.make("val", images=5)


@pytest.fixture(scope="module")
def images(world):
    return [world.picture(n, 64) for n in range(5)]


# -- the attention


def unit(shape, seed):
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(drawn, dim=-1)


@pytest.mark.parametrize("dimensions", [3, 12])  # fewer and more than a text has words
@pytest.mark.parametrize("smoothing", [0.0, 4.0, 9.0])
def test_attention_equals_the_equations(dimensions, smoothing):
    regions, words = unit((7, dimensions), 1), unit((4, 5, dimensions), 2)
    counts, lengths = (1, 4, 2), (5, 1, 3, 0)
    owner = torch.tensor([n for n, count in enumerate(counts) for _ in range(count)])
    member = (owner == torch.arange(3)[:, None]).float()
    is_word = torch.arange(5) < torch.tensor(lengths)[:, None]
    grounded = ground_words(regions[None], words, is_word, member[None], smoothing)
    for text, length in enumerate(lengths):
        for image in range(3):
            own = owner == image
            slow = ground_by_loops(regions[own].tolist(), words[text, :length].tolist(), smoothing)
            np.testing.assert_allclose(grounded[text, own], slow, atol=2e-6)


def test_word_without_similar_region_has_similarity_zero():
    region, word = unit((1, 1, 6), 3), unit((1, 6), 4)
    opposite = torch.stack([word[0], -region[0, 0]])[None]
    grounded = ground_words(region, opposite, torch.ones(1, 2, dtype=bool), torch.ones(1, 1, 1), 4.0)
    np.testing.assert_allclose(grounded[0], ground_by_loops(region[0].tolist(), opposite[0].tolist(), 4.0), atol=2e-6)


def test_words_that_cancel_out_give_zero():
    region, word = unit((1, 1, 6), 3), unit((1, 6), 4)
    grounded = ground_words(region, torch.stack([word[0], -word[0]])[None], torch.ones(1, 2, dtype=bool), torch.ones(1, 1, 1), 0.0)
    assert grounded.item() == 0.0


# -- the model


def test_scores_are_means_of_the_grounding(model, images):
    assert isinstance(model, Grounder)
    assert isinstance(model, PairScorer)
    assert list_abilities(model)[0] == "score"
    grounding = model.ground(images, TEXTS)
    assert grounding.regions.tolist() == [len(image.info["regions"]) for image in images]
    pairs, scores = model.score_pairs(images, TEXTS), model.score(images, TEXTS)
    assert scores.shape == (5, 5)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(pairs, np.nanmean(grounding.scores, axis=1), atol=1e-12)
    np.testing.assert_allclose(np.diag(scores), pairs, atol=1e-6)


def test_boxes_are_the_regions_of_the_image(model, world, images):
    grounding = model.ground(images, TEXTS)
    for n, scene in enumerate(world.scenes):
        own = regions(scene)
        np.testing.assert_allclose(grounding.boxes[n, : len(own)], own)
        assert np.isnan(grounding.boxes[n, len(own) :]).all()


def test_grounding_is_the_attention_between_regions_and_words(model, images):
    grounding = model.ground(images, TEXTS)
    for n, (image, text) in enumerate(zip(images, TEXTS, strict=True)):
        where = get_regions(image)
        vectors = model.embed_regions(crop_regions(image, where, 16), where, np.array([0, len(where)])).vectors
        numbers = torch.from_numpy(module.number_words([text], model.config.vocabulary))
        with torch.inference_mode():
            words = model.net.embed_words(numbers)[0][numbers[0] >= module.FIRST_WORD]  # unknown words are ignored
        np.testing.assert_allclose(
            grounding.scores[n, : len(where)], ground_by_loops(vectors.tolist(), words.tolist(), 4.0), atol=1e-5
        )


def test_scores_do_not_depend_on_the_batch(model, images):
    alone = [model.ground([image], [text]).scores[0] for image, text in zip(images, TEXTS, strict=True)]
    together = model.ground(images * 30, TEXTS * 30).scores[-5:]
    for single_row, row in zip(alone, together, strict=True):
        np.testing.assert_allclose(row[: len(single_row)], single_row, atol=1e-5)
    scores = model.score(images, TEXTS)
    single = np.array([[model.score([image], [text])[0, 0] for text in TEXTS] for image in images])
    np.testing.assert_allclose(scores, single, atol=1e-5)
    np.testing.assert_allclose(model.score(images[::-1] * 7, [*TEXTS[::-1], "a cat " * 200])[:5, :5], scores[::-1, ::-1], atol=1e-5)


@pytest.mark.parametrize("size", [1, 3])
def test_block_sizes_do_not_matter(model, images, monkeypatch, size):
    pairs, scores = model.score_pairs(images, TEXTS), model.score(images, TEXTS)
    for name in ("BATCH", "IMAGES", "TEXTS", "WORDS"):
        monkeypatch.setattr(module, name, size)
    np.testing.assert_allclose(model.score_pairs(images, TEXTS), pairs, atol=1e-5)
    np.testing.assert_allclose(model.score(images, TEXTS), scores, atol=1e-5)


def test_equal_texts_get_equal_scores(model, images):
    scores = model.score(images, ["a cat", *(f"{'a red cat ' * n}" for n in range(1, 90)), "a cat"])
    np.testing.assert_array_equal(scores[:, 0], scores[:, -1])


def test_each_image_is_embedded_once(model, images, monkeypatch):
    looked = []
    look = model.net.look
    monkeypatch.setattr(model.net, "look", lambda crops: looked.append(len(crops)) or look(crops))
    again = [image.copy() for image in images]  # equal content in another object
    model.ground([*images, *images, *again], TEXTS * 3)
    assert sum(looked) == sum(len(image.info["regions"]) for image in images)


def test_same_pixels_with_other_regions_are_another_image(model, images):
    changed = images[0].copy()
    changed.info["regions"] = ((0.0, 0.0, 0.5, 0.5),)
    grounding = model.ground([images[0], changed], ["a cat"] * 2)
    assert grounding.regions.tolist() == [len(images[0].info["regions"]), 1]


def test_image_without_regions_gets_the_grid(model, images):
    grey = Image.fromarray(np.asarray(images[0])).convert("L").resize((50, 70))
    grounding = model.ground([grey, images[0].convert("RGBA")], ["a cat"] * 2)
    assert grounding.regions.tolist() == [14, len(images[0].info["regions"])]
    np.testing.assert_array_equal(grounding.boxes[0], GRID)
    areas = (GRID[:, 2:] - GRID[:, :2]).prod(axis=1)
    assert areas[0] == 1
    assert areas[1:5].sum() == pytest.approx(1)
    assert areas[5:].sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ((), "not a list of regions"),
        (((0.1, 0.2, 0.3),), "not a list of regions"),
        ("all", "not a list of regions"),
        (((0.0, 0.0, 1.0, 1.0), (0.5, 0.0, 0.5, 1.0)), r"\[0.5, 0.0, 0.5, 1.0\]; expected left < right"),
        (((0, 0, 64, 64),), "fractions of the image"),
        (((0, 0, math.nan, 1),), "left < right"),
    ],
)
def test_wrong_regions_are_refused(model, wrong, message):
    image = Image.new("RGB", (64, 64))
    image.info["regions"] = wrong
    with pytest.raises(CrossmatchError, match=message):
        model.ground([image], ["a cat"])


def test_text_without_words_is_not_grounded(model, images):
    grounding = model.ground(images[:2], ["", "!?"])
    assert (grounding.scores[~np.isnan(grounding.scores)] == 0).all()


def test_unknown_words_are_not_grounded(model, images):
    unknown_words, known_words = model.ground([images[0]] * 2, ["qwertz uiop", "a red cat"]).scores
    assert np.nanmax(np.abs(unknown_words)) == 0
    assert np.nanmax(np.abs(known_words)) > 0


def test_word_order_matters(model, images):
    first, second = model.ground([images[0]] * 2, ["a red cat on a blue table", "a blue cat on a red table"]).scores
    assert np.nanmax(np.abs(first - second)) > 1e-4


def test_ten_thousand_words_are_scored(model, images):
    assert np.isfinite(model.score(images[:1], ["a red cat " * 3_400, "a cat"])).all()


def test_empty_inputs_give_empty_arrays(model, images):
    assert len(model.ground([], [])) == 0
    assert model.score_pairs([], []).shape == (0,)
    assert model.score([], TEXTS).shape == (0, 5)
    assert model.score(images, []).shape == (5, 0)


def test_images_and_texts_must_be_pairs(model, images):
    with pytest.raises(CrossmatchError, match=r"as many images as texts \(got 5 and 1\)"):
        model.ground(images, ["a cat"])


def test_model_can_be_evaluated(model):
    result = evaluate(model, "diorama/retrieval", size="tiny", samples=10)
    assert {row.part for row in result.rows} >= {"i2t/links", "t2i/truth"}
    assert result.system == f"system|{model.signature}"


# -- its folder


def test_loaded_model_equals_the_saved_one(model, images, tmp_path):
    model.save(tmp_path)
    again = load(tmp_path)
    assert again.signature == model.signature
    assert again.config == model.config
    np.testing.assert_array_equal(again.ground(images, TEXTS).scores, model.ground(images, TEXTS).scores)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.json", f"weights-{model.weights}.pt"]


def test_signature_contains_weights_regions_and_attention(model):
    assert model.signature == f"grounded|weights:{model.weights}|regions:own or grid14|pixels:16/bilinear|scan:i2t/average/4|fp32"
    assert SmallGrounder(model.config).weights != model.weights
