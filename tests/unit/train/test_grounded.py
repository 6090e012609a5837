"""Training in seconds: it learns, it repeats itself, it keeps its best, and it does nothing twice."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest

from crossmatch.core.errors import CrossmatchError
from crossmatch.diorama.world import Diorama

torch = pytest.importorskip("torch")
from crossmatch.models.dual import PAD, UNKNOWN, numbered, vocabulary_of  # noqa: E402
from crossmatch.models.grounded import Grounded, GroundedConfig  # noqa: E402
from crossmatch.train import grounded  # noqa: E402
from crossmatch.train.grounded import NAMES, GroundedRecipe, batch_loss, draw_regions, fit, retrieval, train_grounded  # noqa: E402

TINY = GroundedRecipe(images=160, validation=40, epochs=4, pixels=16, width=6, dimensions=32, batch=16)


@pytest.fixture(scope="module")
def train():
    return draw_regions("train", 160, 16)


@pytest.fixture(scope="module")
def validation():
    return draw_regions("val", 40, 16)


@pytest.fixture(scope="module")
def trained(train, validation, tmp_path_factory):
    log = tmp_path_factory.mktemp("trained") / "log.csv"
    return fit(TINY, train, validation, log), log


def test_the_drawn_regions_are_the_world(train):
    world = Diorama.make("train", images=160)
    assert train.captions == [caption.text for caption in world.captions]
    assert np.diff(train.begin).tolist() == [1 + len(scene.things) for scene in world.scenes]
    assert len(train) == 160
    for n in (0, 159):
        picture = world.picture(n)
        here = slice(*train.begin[n : n + 2])
        np.testing.assert_allclose(train.boxes[here], picture.info["regions"])
        np.testing.assert_array_equal(train.crops[here][0], np.asarray(picture.resize((16, 16), 2)))  # 2: bilinear
        named = [[NAMES[column][label] for column, label in enumerate(row) if label >= 0] for row in train.labels[here].tolist()]
        assert named == [[world.scenes[n].setting], *([t.kind, t.colour, t.texture] for t in world.scenes[n].things)]


def test_two_processes_draw_what_one_draws():
    one, two = (draw_regions("val", 260, 8, workers=workers) for workers in (1, 2))
    for name in ("crops", "boxes", "labels", "begin"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert one.captions == two.captions


def test_the_loss_falls_and_retrieval_beats_chance(trained, train):
    model, log = trained
    rows = list(csv.DictReader(log.read_text().splitlines()))
    losses = [float(row["loss"]) for row in rows]
    assert [int(row["step"]) for row in rows] == [10 * epoch for epoch in range(1, 5)]
    assert losses[-1] < losses[0] - 0.5
    assert retrieval(model, train)["t2i hit@10"] > 2 * 10 / 160


def test_the_best_epoch_is_kept(train, validation, tmp_path, monkeypatch):
    told = iter([0.2, 0.9, 0.1])
    states = []

    def watched(model, drawn):
        states.append(model.weights)
        return {"hit": next(told)}

    monkeypatch.setattr(grounded, "retrieval", watched)
    model = fit(replace(TINY, epochs=3), train, validation, tmp_path / "log.csv")
    assert model.weights == states[1]
    assert len(set(states)) == 3


def test_the_same_seed_gives_the_same_weights(train, validation, tmp_path):
    short, threads = replace(TINY, epochs=1), torch.get_num_threads()
    first, second, other = (fit(replace(short, seed=seed), train, validation, tmp_path / "log.csv") for seed in (3, 3, 4))
    assert first.weights == second.weights != other.weights
    assert torch.get_num_threads() == threads


def test_the_loss_is_that_of_all_pairs_and_of_the_names(train):
    """Against scores that were computed pair by pair, one caption and one image at a time."""
    torch.manual_seed(0)
    config = GroundedConfig(vocabulary_of(train.captions), 16, 32, 6)
    model = Grounded(config)
    texts = torch.from_numpy(numbered(train.captions, config.vocabulary)).view(160, 5, -1)
    chosen = np.array([4, 2, 9])
    labelled = torch.nn.Linear(model.net.image_out.in_features - 4, sum(map(len, NAMES)))
    with torch.inference_mode():
        found = batch_loss(model.net, labelled, train, chosen, texts[torch.from_numpy(chosen)]).item()
        here = [np.arange(*train.begin[n : n + 2]) for n in chosen]
        features = model.net.look(torch.from_numpy(train.crops[np.concatenate(here)]))
        said = np.split(
            torch.log_softmax(labelled(features), dim=1).numpy(), np.cumsum([len(names) for names in NAMES])[:-1], axis=1
        )
    scores = model.compared(model.see(train.crops, train.boxes, train.begin), train.captions).astype(float)
    scale, losses = float(model.net.log_scale.detach().exp()), []
    for place in range(5):
        s = scale * scores[chosen][:, 5 * chosen + place]
        shares = [np.exp(t) / np.exp(t).sum(axis=1, keepdims=True) for t in (s, s.T)]
        losses.append(np.mean([-np.log(np.diag(t)).mean() for t in shares]))
    naming = 0.0
    for weight, part, labels in zip(grounded.WEIGHTS, said, train.labels[np.concatenate(here)].T, strict=True):
        exps, named = np.exp(part), labels >= 0
        share = exps / exps.sum(axis=1, keepdims=True)
        naming += weight * -np.log(share[named, labels[named]]).mean()
    assert found == pytest.approx(np.mean(losses) + naming, rel=1e-4)


def test_a_few_words_seem_unknown_in_training():
    torch.manual_seed(0)
    numbers = torch.full((100, 50), 7)
    numbers[:, 30:] = PAD
    seen = grounded._forgetful(numbers)
    assert (seen[:, 30:] == PAD).all()
    assert 0.01 < (seen[:, :30] == UNKNOWN).float().mean() < 0.03
    assert set(seen[:, :30].unique().tolist()) == {UNKNOWN, 7}


def test_a_finished_model_is_not_trained_again(tmp_path, monkeypatch):
    wanted = {"size": "tiny", "epochs": 1, "pixels": 8}
    first = train_grounded(tmp_path, **wanted)
    assert (tmp_path / "log.csv").is_file()
    calls = []
    monkeypatch.setattr(grounded, "fit", lambda *given: calls.append(given) or fit(*given))
    assert train_grounded(tmp_path, **wanted).weights == first.weights
    assert not calls
    again = train_grounded(tmp_path, **wanted, seed=1)
    assert len(calls) == 1
    assert again.weights != first.weights


def test_fewer_images_than_a_batch_are_one_batch(tmp_path):
    assert train_grounded(tmp_path, images=7, size="tiny", epochs=1, pixels=8).recipe["images"] == 7


IMPOSSIBLE = [({"size": "huge"}, "no size 'huge'"), ({"epochs": 0}, "1 epoch"), ({"images": 1}, "2 images")]


@pytest.mark.parametrize(("wrong", "says"), IMPOSSIBLE)
def test_recipes_that_cannot_be_trained_are_refused(tmp_path, wrong, says):
    with pytest.raises(CrossmatchError, match=says):
        train_grounded(tmp_path, **wrong)
    assert not list(tmp_path.iterdir())
