"""Training in seconds: it learns, it repeats itself, and it does nothing twice."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest

from crossmatch.core.errors import CrossmatchError
from crossmatch.diorama.world import Diorama

torch = pytest.importorskip("torch")
from crossmatch.models.dual import pixels_of  # noqa: E402
from crossmatch.train import dual  # noqa: E402
from crossmatch.train.dual import DualRecipe, fit, retrieval, train_dual  # noqa: E402
from crossmatch.train.losses import symmetric_contrastive  # noqa: E402
from crossmatch.train.pictures import draw_split  # noqa: E402

TINY = DualRecipe(images=200, validation=50, epochs=6, pixels=32, width=8, dimensions=32, batch=25)


@pytest.fixture(scope="module")
def train():
    return draw_split("train", 200, 32)


@pytest.fixture(scope="module")
def validation():
    return draw_split("val", 50, 32)


@pytest.fixture(scope="module")
def trained(train, validation, tmp_path_factory):
    log = tmp_path_factory.mktemp("trained") / "log.csv"
    return fit(TINY, train, validation, log), log


def test_the_drawn_split_is_the_world(train):
    world = Diorama.make("train", images=200)
    assert train[1] == [caption.text for caption in world.captions]
    seen = pixels_of([world.picture(n, 64) for n in range(3)], 32)
    np.testing.assert_array_equal(train[0][:3], seen)


def test_two_processes_draw_what_one_draws():
    one, two = (draw_split("val", 260, 8, workers=workers) for workers in (1, 2))
    np.testing.assert_array_equal(one[0], two[0])
    assert one[1] == two[1]


def test_a_small_and_a_large_drawing_are_seen_almost_alike():
    world = Diorama.make("val", images=3)
    small, large = (pixels_of([world.picture(n, side) for n in range(3)], 64).astype(int) for side in (128, 256))
    assert np.abs(small - large).mean() < 4


def test_the_loss_falls_and_retrieval_beats_chance(trained, train):
    model, log = trained
    rows = list(csv.DictReader(log.read_text().splitlines()))
    losses = [float(row["loss"]) for row in rows]
    assert [int(row["step"]) for row in rows] == [8 * epoch for epoch in range(1, 7)]
    assert losses[-1] < losses[0] - 0.1
    assert retrieval(model, *train)["t2i hit@10"] > 2 * 10 / 200


def test_the_same_seed_gives_the_same_weights(trained, train, validation, tmp_path):
    short = replace(TINY, epochs=1)
    threads = torch.get_num_threads()
    first, second, other = (fit(replace(short, seed=seed), train, validation, tmp_path / "log.csv") for seed in (3, 3, 4))
    assert first.weights == second.weights != other.weights
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_finished_model_is_not_trained_again(tmp_path, monkeypatch):
    wanted = {"size": "tiny", "epochs": 1, "pixels": 16}
    first = train_dual(tmp_path, **wanted)
    assert (tmp_path / "log.csv").is_file()
    calls = []
    monkeypatch.setattr(dual, "fit", lambda *given: calls.append(given) or fit(*given))
    assert train_dual(tmp_path, **wanted).weights == first.weights
    assert not calls
    again = train_dual(tmp_path, **wanted, seed=1)
    assert len(calls) == 1
    assert again.weights != first.weights
    (tmp_path / f"weights-{again.weights}.pt").write_bytes(b"broken")
    assert train_dual(tmp_path, **wanted, seed=1).weights == again.weights
    assert len(calls) == 2


def test_fewer_images_than_a_batch_are_one_batch(tmp_path):
    assert train_dual(tmp_path, images=7, size="tiny", epochs=1, pixels=16).recipe["images"] == 7


IMPOSSIBLE = [({"size": "huge"}, "no size 'huge'"), ({"epochs": 0}, "1 epoch"), ({"images": 1}, "2 images")]


@pytest.mark.parametrize(("wrong", "says"), IMPOSSIBLE)
def test_recipes_that_cannot_be_trained_are_refused(tmp_path, wrong, says):
    with pytest.raises(CrossmatchError, match=says):
        train_dual(tmp_path, **wrong)
    assert not list(tmp_path.iterdir())


def test_the_loss_is_the_mean_of_both_directions():
    generator = torch.Generator().manual_seed(0)
    images, texts = (torch.nn.functional.normalize(torch.randn(4, 3, generator=generator), dim=1) for _ in range(2))
    scores = (images @ texts.T).numpy() / 0.1
    share = [np.exp(s) / np.exp(s).sum(axis=1, keepdims=True) for s in (scores, scores.T)]
    slow = np.mean([-np.log(np.diag(s)).mean() for s in share])
    assert float(symmetric_contrastive(images, texts, torch.tensor(10.0))) == pytest.approx(slow, rel=1e-5)
