"""The attention against a loop over the paper's equations, and the model alone, in company, and from its folder."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest

from crossmatch.core.errors import CrossmatchError
from crossmatch.core.grounding import Grounder
from crossmatch.diorama.regions import regions
from crossmatch.diorama.world import Diorama

torch = pytest.importorskip("torch")
from PIL import Image  # noqa: E402

from crossmatch.models import grounded as module  # noqa: E402
from crossmatch.models.abilities import PairScorer, abilities  # noqa: E402
from crossmatch.models.dual import vocabulary_of  # noqa: E402
from crossmatch.models.grounded import Grounded, GroundedConfig, attended, load  # noqa: E402
from crossmatch.models.regions import GRID, crops_of, regions_of  # noqa: E402
from crossmatch.run import evaluate  # noqa: E402

TEXTS = ["", "A red cat.", "Wholly unheard-of gibberish", "a cat " * 30, "Two blue cups on a table in the snow."]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    made = Grounded(GroundedConfig(vocabulary_of(TEXTS[1:2] + TEXTS[4:]), pixels=16, dimensions=24, width=4))
    for part in made.net.modules():  # batch norms that would show if they looked at the batch
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.uniform_(-0.1, 0.1)
            part.running_var.uniform_(0.5, 2)
    return made


@pytest.fixture(scope="module")
def world():
    return Diorama.make("val", images=5)


@pytest.fixture(scope="module")
def pictures(world):
    return [world.picture(n, 64) for n in range(5)]


# -- the attention


def grounded_by_loops(v, w, smoothing):
    """jiang2019tiger, eq. 1 to 6, one number at a time; a text without words is grounded nowhere."""

    def dot(x, y):
        return sum(float(a) * float(b) for a, b in zip(x, y, strict=True))

    def score(x, y):  # eq. 4
        length = math.sqrt(dot(x, x) * dot(y, y))
        return dot(x, y) / length if length else 0.0

    def sim(i, j):  # eq. 3
        length = math.sqrt(sum(max(0.0, score(v[k], w[j])) ** 2 for k in range(len(v))))
        return max(0.0, score(v[i], w[j])) / length if length else 0.0

    out = []
    for i in range(len(v)):
        exps = [math.exp(smoothing * sim(i, j)) for j in range(len(w))]
        alpha = [e / sum(exps) for e in exps]  # eq. 2
        a = [sum(alpha[j] * float(w[j][d]) for j in range(len(w))) for d in range(len(v[i]))]  # eq. 1
        out.append(score(v[i], a))  # eq. 6
    return out


def unit(shape, seed):
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(drawn, dim=-1)


@pytest.mark.parametrize("dimensions", [3, 12])  # fewer and more than a text has words
@pytest.mark.parametrize("smoothing", [0.0, 4.0, 9.0])
def test_the_attention_is_that_of_the_equations(dimensions, smoothing):
    regions, words = unit((7, dimensions), 1), unit((4, 5, dimensions), 2)
    counts, lengths = (1, 4, 2), (5, 1, 3, 0)
    owner = torch.tensor([n for n, count in enumerate(counts) for _ in range(count)])
    member = (owner == torch.arange(3)[:, None]).float()
    said = torch.arange(5) < torch.tensor(lengths)[:, None]
    found = attended(regions[None], words, said, member[None], smoothing)
    for text, length in enumerate(lengths):
        for image in range(3):
            mine = owner == image
            slow = grounded_by_loops(regions[mine], words[text, :length], smoothing)
            np.testing.assert_allclose(found[text, mine], slow, atol=2e-6)


def test_a_word_that_no_region_is_like_gets_no_attention_of_its_own():
    region, word = unit((1, 1, 6), 3), unit((1, 6), 4)
    opposite = torch.stack([word[0], -region[0, 0]])[None]
    found = attended(region, opposite, torch.ones(1, 2, dtype=bool), torch.ones(1, 1, 1), 4.0)
    np.testing.assert_allclose(found[0], grounded_by_loops(region[0], opposite[0], 4.0), atol=2e-6)


def test_words_that_cancel_out_give_no_grounding_and_no_nan():
    region, word = unit((1, 1, 6), 3), unit((1, 6), 4)
    found = attended(region, torch.stack([word[0], -word[0]])[None], torch.ones(1, 2, dtype=bool), torch.ones(1, 1, 1), 0.0)
    assert found.item() == 0.0


# -- the model


def test_it_grounds_scores_and_scores_pairs(model, pictures):
    assert isinstance(model, Grounder)
    assert isinstance(model, PairScorer)
    assert abilities(model)[0] == "score"
    found = model.ground(pictures, TEXTS)
    assert found.regions.tolist() == [len(picture.info["regions"]) for picture in pictures]
    pairs, every = model.score_pairs(pictures, TEXTS), model.score(pictures, TEXTS)
    assert every.shape == (5, 5)
    assert every.dtype == np.float32
    np.testing.assert_allclose(pairs, np.nanmean(found.scores, axis=1), atol=1e-12)
    np.testing.assert_allclose(np.diag(every), pairs, atol=1e-6)


def test_the_boxes_are_those_of_the_picture(model, world, pictures):
    found = model.ground(pictures, TEXTS)
    for n, scene in enumerate(world.scenes):
        own = regions(scene)
        np.testing.assert_allclose(found.boxes[n, : len(own)], own)
        assert np.isnan(found.boxes[n, len(own) :]).all()


def test_the_grounding_is_the_attention_of_the_vectors_of_regions_and_words(model, pictures):
    found = model.ground(pictures, TEXTS)
    for n, (picture, text) in enumerate(zip(pictures, TEXTS, strict=True)):
        where = regions_of(picture)
        vectors = model.see(crops_of(picture, where, 16), where, np.array([0, len(where)])).vectors
        numbers = torch.from_numpy(module.numbered([text], model.config.vocabulary))
        with torch.inference_mode():
            words = model.net.embed_words(numbers)[0][numbers[0] >= module.FIRST_WORD]  # an unknown word counts as none
        np.testing.assert_allclose(found.scores[n, : len(where)], grounded_by_loops(vectors, words, 4.0), atol=1e-5)


def test_the_company_in_a_batch_does_not_matter(model, pictures):
    alone = [model.ground([picture], [text]).scores[0] for picture, text in zip(pictures, TEXTS, strict=True)]
    together = model.ground(pictures * 30, TEXTS * 30).scores[-5:]
    for one, row in zip(alone, together, strict=True):
        np.testing.assert_allclose(row[: len(one)], one, atol=1e-5)
    every = model.score(pictures, TEXTS)
    single = np.array([[model.score([picture], [text])[0, 0] for text in TEXTS] for picture in pictures])
    np.testing.assert_allclose(every, single, atol=1e-5)
    np.testing.assert_allclose(
        model.score(pictures[::-1] * 7, [*TEXTS[::-1], "a cat " * 200])[:5, :5], every[::-1, ::-1], atol=1e-5
    )


@pytest.mark.parametrize("size", [1, 3])
def test_blocks_do_not_matter(model, pictures, monkeypatch, size):
    pairs, every = model.score_pairs(pictures, TEXTS), model.score(pictures, TEXTS)
    for name in ("BATCH", "IMAGES", "TEXTS", "WORDS"):
        monkeypatch.setattr(module, name, size)
    np.testing.assert_allclose(model.score_pairs(pictures, TEXTS), pairs, atol=1e-5)
    np.testing.assert_allclose(model.score(pictures, TEXTS), every, atol=1e-5)


def test_the_same_text_has_the_same_score_to_the_last_bit(model, pictures):
    every = model.score(pictures, ["a cat", *(f"{'a red cat ' * n}" for n in range(1, 90)), "a cat"])
    np.testing.assert_array_equal(every[:, 0], every[:, -1])


def test_each_picture_is_looked_at_once(model, pictures, monkeypatch):
    looked = []
    look = model.net.look
    monkeypatch.setattr(model.net, "look", lambda crops: looked.append(len(crops)) or look(crops))
    again = [picture.copy() for picture in pictures]  # equal content in another object
    model.ground([*pictures, *pictures, *again], TEXTS * 3)
    assert sum(looked) == sum(len(picture.info["regions"]) for picture in pictures)


def test_other_regions_of_the_same_pixels_are_another_picture(model, pictures):
    other = pictures[0].copy()
    other.info["regions"] = ((0.0, 0.0, 0.5, 0.5),)
    found = model.ground([pictures[0], other], ["a cat"] * 2)
    assert found.regions.tolist() == [len(pictures[0].info["regions"]), 1]


def test_a_picture_without_regions_gets_the_grid(model, pictures):
    grey = Image.fromarray(np.asarray(pictures[0])).convert("L").resize((50, 70))
    found = model.ground([grey, pictures[0].convert("RGBA")], ["a cat"] * 2)
    assert found.regions.tolist() == [14, len(pictures[0].info["regions"])]
    np.testing.assert_array_equal(found.boxes[0], GRID)
    areas = (GRID[:, 2:] - GRID[:, :2]).prod(axis=1)
    assert areas[0] == 1
    assert areas[1:5].sum() == pytest.approx(1)
    assert areas[5:].sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ((), "no list of regions"),
        (((0.1, 0.2, 0.3),), "no list of regions"),
        ("all", "no list of regions"),
        (((0.0, 0.0, 1.0, 1.0), (0.5, 0.0, 0.5, 1.0)), r"\[0.5, 0.0, 0.5, 1.0\]; left < right"),
        (((0, 0, 64, 64),), "fractions of the picture"),
        (((0, 0, math.nan, 1),), "left < right"),
    ],
)
def test_wrong_regions_are_refused(model, wrong, says):
    picture = Image.new("RGB", (64, 64))
    picture.info["regions"] = wrong
    with pytest.raises(CrossmatchError, match=says):
        model.ground([picture], ["a cat"])


def test_a_text_without_words_is_grounded_nowhere(model, pictures):
    found = model.ground(pictures[:2], ["", "!?"])
    assert (found.scores[~np.isnan(found.scores)] == 0).all()


def test_unknown_words_are_counted_and_grounded_nowhere(model, pictures):
    assert model.unknown(["", "a red cat", "a zebra", "qwertz uiop"]).tolist() == [0, 0, 1, 2]
    unknown, known = model.ground([pictures[0]] * 2, ["qwertz uiop", "a red cat"]).scores
    assert np.nanmax(np.abs(unknown)) == 0
    assert np.nanmax(np.abs(known)) > 0


def test_the_order_of_words_matters(model, pictures):
    one, other = model.ground([pictures[0]] * 2, ["a red cat on a blue table", "a blue cat on a red table"]).scores
    assert np.nanmax(np.abs(one - other)) > 1e-4


def test_ten_thousand_words_are_taken(model, pictures):
    assert np.isfinite(model.score(pictures[:1], ["a red cat " * 3_400, "a cat"])).all()


def test_nothing_in_nothing_out(model, pictures):
    assert len(model.ground([], [])) == 0
    assert model.score_pairs([], []).shape == (0,)
    assert model.score([], TEXTS).shape == (0, 5)
    assert model.score(pictures, []).shape == (5, 0)


def test_images_and_texts_must_be_pairs(model, pictures):
    with pytest.raises(CrossmatchError, match="5 images and 1 texts are no pairs"):
        model.ground(pictures, ["a cat"])


def test_it_can_be_evaluated(model):
    result = evaluate(model, "diorama/retrieval", size="tiny", samples=10)
    assert {row.part for row in result.rows} >= {"i2t/links", "t2i/truth"}
    assert result.system == f"system|{model.signature}"


# -- its folder


def test_saved_and_loaded_is_the_same(model, pictures, tmp_path):
    model.save(tmp_path)
    again = load(tmp_path)
    assert again.signature == model.signature
    assert again.config == model.config
    np.testing.assert_array_equal(again.ground(pictures, TEXTS).scores, model.ground(pictures, TEXTS).scores)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.json", f"weights-{model.weights}.pt"]


def test_the_signature_names_weights_regions_and_attention(model):
    assert model.signature == f"grounded|weights:{model.weights}|regions:own or grid14|pixels:16/bilinear|scan:i2t/average/4|fp32"
    assert Grounded(model.config).weights != model.weights


@pytest.mark.parametrize("failing", ["weights", "model.json"])
def test_an_interrupted_save_leaves_the_old_model_whole(model, tmp_path, monkeypatch, failing):
    first = Grounded(model.config)
    first.save(tmp_path)
    replace = os.replace

    def dies(source, target):
        if os.path.basename(target).startswith(failing):
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr("crossmatch.core.whole.os.replace", dies)
    with pytest.raises(KeyboardInterrupt):
        model.save(tmp_path)
    assert load(tmp_path).weights == first.weights
    assert not list(tmp_path.glob("*.part"))


def test_broken_folders_are_named_with_the_remedy(model, tmp_path):
    with pytest.raises(CrossmatchError, match=r"there is no model\.json"):
        load(tmp_path)
    path = tmp_path / "model.json"
    for content, says in (
        ("{", "not json"),
        (json.dumps({"family": "dual"}), "does not describe a grounding model"),
        (json.dumps({"family": "grounded", "format": 99}), "has format 99; this version reads format 1"),
        (json.dumps({"family": "grounded", "format": 1}), "Train it again"),
    ):
        path.write_text(content)
        with pytest.raises(CrossmatchError, match=says):
            load(tmp_path)
    model.save(tmp_path)
    told = json.loads(path.read_text())
    path.write_text(json.dumps(told | {"config": told["config"] | {"width": 5}}))  # weights of another network
    with pytest.raises(CrossmatchError, match="Train it again") as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)
    model.save(tmp_path)
    weights = tmp_path / f"weights-{model.weights}.pt"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CrossmatchError, match="is not the file that was written"):
        load(tmp_path)


def test_without_torch_the_extra_is_named():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from crossmatch.core.errors import MissingDependency\n"
        "try: import crossmatch.models.grounded\n"
        "except MissingDependency as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert said == "this needs PyTorch, which is not installed. Install it with: pip install 'crossmatch[models]'"
