"""Training of the small dual encoder and the small grounder: it learns, is reproducible, and resumes."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from crossmatch.data.errors import CrossmatchError
from crossmatch.diorama.world import Diorama
from crossmatch.models.baselines.small_dual_encoder import PAD, UNKNOWN, build_vocabulary, number_words, resize_images
from crossmatch.models.baselines.small_grounder import SmallGrounder, SmallGrounderConfig
from crossmatch.train import run_recipe, small_dual_encoder, small_grounder
from crossmatch.train.checkpoints import Checkpoints, TrainingIdentity
from crossmatch.train.data.diorama_images import draw_split
from crossmatch.train.data.sources import TrainingSource
from crossmatch.train.loop import fit
from crossmatch.train.recipe import load_recipe
from crossmatch.train.small_grounder import LABELS, batch_loss, draw_regions, make_labeller

sys.path.insert(0, str(Path(__file__).parent))
from toy import stop_at_step

IMAGES = 160
FAMILIES = {
    "dual": SimpleNamespace(
        name="dual", module=small_dual_encoder, draw=draw_split, train=small_dual_encoder.train_dual, side=32,
        overrides=("train.epochs=6", "features.side=32", "model.width=8", "model.dimensions=32", "train.batch=20"),
        measure=lambda model, data: small_dual_encoder.measure_retrieval(model, *data), least_fall=0.1,
    ),
    "grounded": SimpleNamespace(
        name="grounded", module=small_grounder, draw=draw_regions, train=small_grounder.train_grounded, side=16,
        overrides=("train.epochs=4", "features.side=16", "model.width=6", "model.dimensions=32", "train.batch=16"),
        measure=small_grounder.measure_retrieval, least_fall=0.5,
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return FAMILIES[request.param]


@pytest.fixture(scope="module")
def data(family):
    """Training and validation split."""
    return family.draw("train", IMAGES, family.side), family.draw("val", 40, family.side)


def train_tiny(family, data, folder, *overrides, every=30.0):
    recipe = load_recipe(family.name, overrides=[*family.overrides, *overrides])
    source = TrainingSource("diorama", "0" * 12, lambda: None)
    training = family.module.make_training(recipe, source, *data)
    fit(training, Checkpoints(folder, TrainingIdentity(recipe.digest(), source.digest)), every=every)
    return training.model


# -- data


def test_drawn_split_equals_the_world():
    pictures, captions = draw_split("train", IMAGES, 32)
    world = Diorama.make("train", images=IMAGES)
    assert captions == [caption.text for caption in world.captions]
    np.testing.assert_array_equal(pictures[:3], resize_images([world.picture(n, 64) for n in range(3)], 32))


def test_drawn_regions_equal_the_world():
    drawn, world = draw_regions("train", IMAGES, 16), Diorama.make("train", images=IMAGES)
    assert drawn.captions == [caption.text for caption in world.captions]
    assert np.diff(drawn.begin).tolist() == [1 + len(scene.objects) for scene in world.scenes]
    assert len(drawn) == IMAGES
    for n in (0, IMAGES - 1):
        picture = world.picture(n)
        rows = slice(*drawn.begin[n : n + 2])
        np.testing.assert_allclose(drawn.boxes[rows], picture.info["regions"])
        np.testing.assert_array_equal(drawn.crops[rows][0], np.asarray(picture.resize((16, 16), 2)))  # 2: bilinear
        labels = [[LABELS[column][label] for column, label in enumerate(row) if label >= 0] for row in drawn.labels[rows].tolist()]
        assert labels == [[world.scenes[n].setting], *([o.kind, o.colour, o.texture] for o in world.scenes[n].objects)]


@pytest.mark.slow
def test_one_and_two_processes_draw_the_same():
    single, double = (draw_regions("val", 260, 8, workers=workers) for workers in (1, 2))
    for name in ("crops", "boxes", "labels", "begin"):
        np.testing.assert_array_equal(getattr(single, name), getattr(double, name))
    assert single.captions == double.captions
    single, double = (draw_split("val", 260, 8, workers=workers) for workers in (1, 2))
    np.testing.assert_array_equal(single[0], double[0])
    assert single[1] == double[1]


def test_small_and_large_drawings_look_almost_the_same_to_the_model():
    world = Diorama.make("val", images=3)
    small, large = (resize_images([world.picture(n, side) for n in range(3)], 64).astype(int) for side in (128, 256))
    assert np.abs(small - large).mean() < 4


# -- training


def test_loss_falls_and_retrieval_beats_chance(family, data, tmp_path):
    model = train_tiny(family, data, tmp_path)
    rows = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    losses, recipe = [float(row["loss"]) for row in rows], load_recipe(family.name, overrides=family.overrides)
    steps = IMAGES // recipe.train.batch
    assert [int(row["step"]) for row in rows] == [steps * epoch for epoch in range(1, recipe.train.epochs + 1)]
    assert losses[-1] < losses[0] - family.least_fall
    assert family.measure(model, data[0])["t2i hit@10"] > 100 * 2 * 10 / IMAGES


def test_same_seed_gives_same_weights(family, data, tmp_path):
    threads, seeds = torch.get_num_threads(), enumerate((3, 3, 4))
    first, second, third = (
        train_tiny(family, data, tmp_path / str(n), "train.epochs=1", f"train.seed={seed}") for n, seed in seeds
    )
    assert first.weights == second.weights != third.weights
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()


def test_interrupted_training_ends_with_the_same_weights(family, data, tmp_path, monkeypatch):
    uninterrupted = train_tiny(family, data, tmp_path / "uninterrupted", "train.epochs=2")
    steps_per_epoch = IMAGES // load_recipe(family.name, overrides=family.overrides).train.batch
    steps = stop_at_step(monkeypatch, steps_per_epoch + 4)
    with pytest.raises(KeyboardInterrupt):
        train_tiny(family, data, tmp_path / "half", "train.epochs=2", every=0.0)
    assert train_tiny(family, data, tmp_path / "half", "train.epochs=2").weights == uninterrupted.weights
    assert len(steps) == 2 * steps_per_epoch + 1


@pytest.mark.parametrize(("name", "kept_epoch"), [("dual", 2), ("grounded", 1)])
def test_grounder_keeps_the_best_epoch_and_dual_encoder_the_last(name, kept_epoch, tmp_path, monkeypatch):
    family, values, weights = FAMILIES[name], iter([0.2, 0.9, 0.1]), []

    def measure(model, *_):
        weights.append(model.weights)
        return {"sum": next(values)}

    monkeypatch.setattr(family.module, "measure_retrieval", measure)
    splits = family.draw("train", 40, family.side), family.draw("val", 10, family.side)
    assert train_tiny(family, splits, tmp_path, "train.epochs=3").weights == weights[kept_epoch]
    assert len(set(weights)) == 3


@pytest.mark.slow
def test_finished_model_is_not_trained_again_and_a_damaged_one_is(family, tmp_path, monkeypatch):
    options = {"size": "tiny", "epochs": 1, "pixels": 8}
    first = family.train(tmp_path, **options)
    assert (tmp_path / "log.csv").is_file()
    calls = []
    monkeypatch.setattr(run_recipe, "fit", lambda *arguments, **more: calls.append(arguments) or fit(*arguments, **more))
    assert family.train(tmp_path, **options).weights == first.weights
    assert not calls
    second = family.train(tmp_path, **options, seed=1)
    assert len(calls) == 1
    assert second.weights != first.weights
    (tmp_path / f"weights-{second.weights}.pt").write_bytes(b"broken")
    assert family.train(tmp_path, **options, seed=1).weights == second.weights
    assert len(calls) == 2


def test_model_of_another_family_is_not_replaced(tmp_path):
    (tmp_path / "model.json").write_text('{"family": "vse", "recipe": {"hash": "x"}}')
    with pytest.raises(CrossmatchError, match="another recipe"):
        small_dual_encoder.train_dual(tmp_path, size="tiny", epochs=1, pixels=16)
    assert '"vse"' in (tmp_path / "model.json").read_text()


def test_fewer_images_than_a_batch_make_one_batch(family, tmp_path):
    assert family.train(tmp_path, images=7, size="tiny", epochs=1, pixels=8).recipe["train"]["images"] == 7


@pytest.mark.parametrize(
    ("options", "message"), [({"size": "huge"}, "no size 'huge'"), ({"epochs": 0}, "epochs"), ({"images": 1}, "at least 2")]
)
def test_invalid_options_are_refused(family, tmp_path, options, message):
    with pytest.raises(CrossmatchError, match=message):
        family.train(tmp_path, **options)
    assert not list(tmp_path.iterdir())


# -- the grounder's loss


def test_grounder_loss_equals_loops_over_pairs_and_labels():
    """Against scores that were computed pair by pair, one caption and one image at a time."""
    train = draw_regions("train", IMAGES, 16)
    torch.manual_seed(0)
    config = SmallGrounderConfig(build_vocabulary(train.captions), 16, 32, 6)
    model = SmallGrounder(config)
    texts = torch.from_numpy(number_words(train.captions, config.vocabulary)).view(IMAGES, 5, -1)
    images, labeller = np.array([4, 2, 9]), make_labeller(model.net)
    regions = np.concatenate([np.arange(*train.begin[n : n + 2]) for n in images])
    with torch.inference_mode():
        loss = batch_loss(model.net, labeller, train, images, texts[torch.from_numpy(images)]).item()
        predictions = torch.log_softmax(labeller(model.net.look(torch.from_numpy(train.crops[regions]))), dim=1).numpy()
    predictions = np.split(predictions, np.cumsum([len(names) for names in LABELS])[:-1], axis=1)
    scores = model.score_regions(model.embed_regions(train.crops, train.boxes, train.begin), train.captions).astype(float)
    scale, losses = float(model.net.log_scale.detach().exp()), []
    for place in range(5):
        s = scale * scores[images][:, 5 * images + place]
        shares = [np.exp(t) / np.exp(t).sum(axis=1, keepdims=True) for t in (s, s.T)]
        losses.append(np.mean([-np.log(np.diag(t)).mean() for t in shares]))
    label_loss = 0.0
    for weight, part, labels in zip(small_grounder.LABEL_WEIGHTS, predictions, train.labels[regions].T, strict=True):
        exps, has_label = np.exp(part), labels >= 0
        share = exps / exps.sum(axis=1, keepdims=True)
        label_loss += weight * -np.log(share[has_label, labels[has_label]]).mean()
    assert loss == pytest.approx(np.mean(losses) + label_loss, rel=1e-4)


def test_grounder_training_hides_two_per_cent_of_the_words():
    torch.manual_seed(0)
    numbers = torch.full((100, 50), 7)
    numbers[:, 30:] = PAD
    hidden = small_grounder.hide_words(numbers)
    assert (hidden[:, 30:] == PAD).all()
    assert 0.01 < (hidden[:, :30] == UNKNOWN).float().mean() < 0.03
    assert set(hidden[:, :30].unique().tolist()) == {UNKNOWN, 7}
