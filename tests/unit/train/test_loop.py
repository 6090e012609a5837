"""The training loop: learning, resuming, failing."""

import csv
import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.models.files.model_folder import hash_weights
from crossmatch.train import zoo_training
from crossmatch.train.checkpoints import Checkpoints, TrainingIdentity
from crossmatch.train.data.training_set import TrainingSet
from crossmatch.train.loop import TrainingState, fit, learning_rate, make_optimiser, set_schedule
from crossmatch.train.recipe import TrainSettings
from crossmatch.train.validation import validate
from crossmatch.train.zoo_training import ZooTraining

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from toy import interrupt, noisy_hinge, toy_data, toy_model

SETTINGS = TrainSettings(learning_rate=5e-2, batch=16, epochs=3, schedule="one-cycle", pairs="captions")


def training(model=None, settings=SETTINGS, objective=noisy_hinge):
    data = toy_data(80, 0)
    return ZooTraining(model or toy_model(data), objective, data, toy_data(20, 1), settings)


def checkpoints_in(folder, identity=("recipe", "data")):
    return Checkpoints(folder, TrainingIdentity(*identity))


# Resuming

SAME = ["first step", "mid-epoch", "second epoch", "half a checkpoint", "half the first checkpoint", "before it has its name",
        "validation", "before the log", "the end", "again and again", "never, few checkpoints"]  # fmt: skip


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """Reports of trainings that were killed, by the moment of the kill."""
    home = tmp_path_factory.mktemp("killed")
    done = subprocess.run(
        [sys.executable, str(HERE / "interrupted.py"), str(home)], capture_output=True, text=True, timeout=600,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[2] / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {report["moment"]: report for report in map(json.loads, done.stdout.splitlines())}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.parametrize("moment", SAME)
def test_killed_training_ends_with_the_same_state(interrupted, moment):
    """Weights, optimiser and random state are equal bit for bit, with dropout in the network and sampling in the objective."""
    whole, report = interrupted["never"], interrupted[moment]
    assert report["ends"] == [9] * (len(report["ends"]) - 1) + [0]
    assert len(report["ends"]) > 1 or moment == "never, few checkpoints"
    assert report["end"] == whole["end"]

    def rows(log):
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(log)]

    assert rows(report["log"]) == rows(whole["log"])
    assert [row["epoch"] for row in rows(report["log"])] == ["1", "2", "3"]


def test_seconds_of_all_parts_are_added(tmp_path, monkeypatch):
    monkeypatch.setattr(zoo_training, "validate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fit(training(), checkpoints_in(tmp_path), every=0)
    before = checkpoints_in(tmp_path).load_latest()["state"]["seconds"]
    assert checkpoints_in(tmp_path).load_latest()["state"]["step"] == 9  # of 10, after which validation was interrupted
    monkeypatch.undo()
    state = fit(training(), checkpoints_in(tmp_path))
    times = [row["seconds"] for row in state.rows]
    assert 0 < before < times[0] < times[1] < times[2]


# Learning


def test_weights_of_the_best_epoch_are_kept(tmp_path, monkeypatch):
    weights = []

    def measure(model, data):
        weights.append(hash_weights(model.net))
        return {"sum": [1.0, 3.0, 2.0][len(weights) - 1]}

    monkeypatch.setattr(zoo_training, "validate", measure)
    run = training()
    state = fit(run, checkpoints_in(tmp_path))
    assert (state.best, state.best_epoch, state.epoch) == (3.0, 2, 3)
    assert hash_weights(run.model.net) == weights[1]
    assert len(set(weights)) == 3


LEVEL = [(0.0, -5.0), (0.0, -3.0), (0.0, -4.0)]  # equal scores; the second epoch has the highest likelihood


def judging(monkeypatch, values):
    """Let validation say these, and then be stopped."""
    arguments = iter(values)

    def judge(model, data):
        value, likely = next(arguments, (None, None))
        if value is None:
            raise KeyboardInterrupt
        return {"log-likelihood per word": likely, "sum": value}

    monkeypatch.setattr(zoo_training, "validate", judge)


@pytest.mark.parametrize(
    ("values", "best"),
    [
        (LEVEL, 2),
        ([(1e-20, -5.0), (0.0, -3.0), (1e-21, -4.0)], 2),
        ([(1.0, -5.0), (0.0, -3.0), (0.5, -2.0)], 1),
        ([(0.0, -3.0), (0.0, -3.0), (0.0, -3.0)], 1),
    ],
)
def test_likelihood_decides_between_equal_epochs_only(tmp_path, monkeypatch, values, best):
    judging(monkeypatch, values)
    state = fit(training(), checkpoints_in(tmp_path))
    assert (state.best_epoch, state.best, state.likely) == (best, *values[best - 1])


def test_tie_break_survives_an_interruption(tmp_path, monkeypatch):
    judging(monkeypatch, LEVEL)
    whole = training()
    fit(whole, checkpoints_in(tmp_path / "whole"))
    judging(monkeypatch, LEVEL[:2])
    with pytest.raises(KeyboardInterrupt):
        fit(training(), checkpoints_in(tmp_path / "parts"))
    judging(monkeypatch, LEVEL[2:])
    parts = training()
    assert (
        fit(parts, checkpoints_in(tmp_path / "parts")).best_epoch == 2
    )  # better than the third, though that was judged in another process
    assert hash_weights(parts.model.net) == hash_weights(whole.model.net)


def test_training_stops_when_patience_ends(tmp_path, monkeypatch):
    values = iter([1.0, 3.0, 2.0, 3.0, 9.0])  # equal is no improvement
    monkeypatch.setattr(zoo_training, "validate", lambda *_: {"sum": next(values)})
    state = fit(training(settings=replace(SETTINGS, epochs=9, patience=2)), checkpoints_in(tmp_path))
    assert (state.epoch, state.best_epoch, len(state.rows)) == (4, 2, 4)


def test_toy_is_learnt_and_logged(tmp_path):
    run = training(settings=replace(SETTINGS, epochs=6))
    before = validate(run.model, run.validation)["sum"]
    state = fit(run, checkpoints_in(tmp_path))
    assert state.best > 450 > 300 > before  # of 600, on pictures that it was not trained on
    assert validate(run.model, run.validation)["sum"] == state.best
    rows = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    assert [int(row["epoch"]) for row in rows] == [1, 2, 3, 4, 5, 6]
    assert float(rows[-1]["sum"]) == pytest.approx(sum(float(v) for k, v in rows[-1].items() if k.startswith("val ")), rel=1e-5)
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])


def test_same_seed_gives_same_weights_whatever_the_global_state(tmp_path):
    def weights(name, seed=0):
        run = training(settings=replace(SETTINGS, epochs=1, seed=seed))
        fit(run, checkpoints_in(tmp_path / name))
        return hash_weights(run.model.net)

    torch.manual_seed(11)
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    first = weights("a")
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(12)
    assert weights("b") == first != weights("c", seed=1)


def test_frozen_weights_stay(tmp_path):
    run = training(settings=replace(SETTINGS, epochs=1, optimiser="adamw", weight_decay=0.1))
    frozen = run.model.match.word_vectors.table.weight.requires_grad_(False)
    before, trained = frozen.clone(), run.model.match.image.weight.clone()
    fit(run, checkpoints_in(tmp_path))
    assert torch.equal(frozen, before)
    assert not torch.equal(run.model.match.image.weight, trained)


def test_own_text_reader_is_called_once(tmp_path):
    run = training(settings=replace(SETTINGS, epochs=2))
    calls = []

    def read_all(texts):
        calls.append(len(texts))
        return run.model.vocabulary.encode(texts)

    run.model.match.read_all = read_all
    fit(run, checkpoints_in(tmp_path))
    assert calls == [160]


# Schedules and optimisers


@pytest.mark.parametrize(("epochs", "steps", "warm_up"), [(3, 10, 0.15), (6, 391, 0.3), (1, 40, 0.5)])
def test_one_cycle_equals_torch(epochs, steps, warm_up):
    settings = TrainSettings(learning_rate=0.3, epochs=epochs, schedule="one-cycle", warm_up=warm_up)
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 1.0)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.3, total_steps=epochs * steps, pct_start=warm_up, cycle_momentum=False)
    for step in range(epochs * steps):
        assert learning_rate(settings, step, steps) == pytest.approx(cycle.get_last_lr()[0], rel=1e-9, abs=1e-15)
        optimiser.step()
        if step < epochs * steps - 1:
            cycle.step()


def test_step_schedule_decays_after_whole_epochs():
    settings = TrainSettings(learning_rate=1.0, epochs=5, decay_every=2, decay=0.5)
    assert [learning_rate(settings, step, 3) for step in range(15)] == [1.0] * 6 + [0.5] * 6 + [0.25] * 3
    assert learning_rate(replace(settings, decay_every=0), 14, 3) == 1.0


@pytest.mark.parametrize(("epochs", "steps", "rising"), [(2, 40, 10), (1, 5, 5), (1, 5, 9), (3, 7, 0)])
def test_cosine_schedule_equals_torch_after_warm_up(epochs, steps, rising):
    settings = TrainSettings(learning_rate=0.4, epochs=epochs, schedule="cosine", warm_up_steps=rising)
    total = epochs * steps
    rates = [learning_rate(settings, step, steps) for step in range(total)]
    first = min(rising, total)
    assert rates[:first] == pytest.approx([0.4 * (step + 1) / rising for step in range(first)])
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.4)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(total - rising, 1))
    for rate in rates[first:]:
        assert rate == pytest.approx(cosine.get_last_lr()[0], rel=1e-6)
        optimiser.step()
        cosine.step()


@pytest.mark.parametrize(("epochs", "steps", "share"), [(2, 40, 0.15), (3, 9, 0.5)])
def test_one_cycle_with_momentum_equals_torch(epochs, steps, share):
    settings = TrainSettings("adamw", learning_rate=3e-3, epochs=epochs, schedule="one-cycle-momentum", warm_up=share)
    learners = [torch.nn.Parameter(torch.ones(2, 2))]
    ours, theirs = make_optimiser(learners, settings), torch.optim.AdamW(learners, 3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(theirs, 3e-3, total_steps=epochs * steps, pct_start=share)
    for step in range(epochs * steps):
        set_schedule(ours, settings, step, steps)
        for group, expected in zip(ours.param_groups, theirs.param_groups * 2, strict=True):
            assert (group["lr"], group["betas"]) == (expected["lr"], expected["betas"])
        theirs.step()
        schedule.step()


def test_optimiser_has_the_settings():
    learners = [torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2))]
    published = TrainSettings(optimiser="adamw", learning_rate=1e-6, beta2=0.98, eps=1e-6, weight_decay=0.1)
    for group in make_optimiser(learners, published).param_groups:
        assert (group["lr"], group["betas"], group["eps"]) == (1e-6, (0.9, 0.98), 1e-6)
    for name in ("adam", "adamw"):  # torch's defaults, which papers do not mention
        for group in make_optimiser(learners, TrainSettings(optimiser=name)).param_groups:
            assert (group["betas"], group["eps"]) == ((0.9, 0.999), 1e-8)


def test_training_can_have_its_own_validation(tmp_path):
    values = iter([1.0, 7.0, 2.0])
    run = replace(training(), measure=lambda model, data: {"taste": len(data.store), "sum": next(values)})
    state = fit(run, checkpoints_in(tmp_path))
    assert (state.best, state.best_epoch) == (7.0, 2)
    assert [row["val taste"] for row in state.rows] == [20, 20, 20]


def test_adam_decays_all_weights_and_adamw_matrices_only():
    learners = [torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2))]
    adam, adamw = (make_optimiser(learners, TrainSettings(optimiser=name, weight_decay=0.1)) for name in ("adam", "adamw"))
    assert (type(adam).__name__, type(adamw).__name__) == ("Adam", "AdamW")
    assert [g["weight_decay"] for g in adam.param_groups] == [0.1]
    assert [(g["weight_decay"], [p.ndim for p in g["params"]]) for g in adamw.param_groups] == [(0.1, [2]), (0.0, [1])]


def test_objective_gets_the_progress(tmp_path):
    calls = []

    def objective(net, batch, progress):
        calls.append((progress, len(batch), batch.others is None))
        return noisy_hinge(net, replace(batch, others=batch.words), progress)

    fit(training(settings=replace(SETTINGS, epochs=2, pairs="images"), objective=objective), checkpoints_in(tmp_path))
    assert calls == [(n / 20, 16, True) for n in range(20)]


def test_gradient_is_clipped(tmp_path, monkeypatch):
    norms = []
    clip = torch.nn.utils.clip_grad_norm_

    def watch(learners, most):
        norm = clip(learners, most)
        norms.append((float(norm), most, math.sqrt(sum(float(p.grad.square().sum()) for p in learners if p.grad is not None))))
        return norm

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", watch)
    fit(training(settings=replace(SETTINGS, epochs=1, clip=0.5)), checkpoints_in(tmp_path / "a"))
    assert max(before for before, *_ in norms) > 0.5
    assert max(after for *_, after in norms) <= 0.5 + 1e-5  # float32
    assert {most for _, most, _ in norms} == {0.5}


# Failing


def test_nan_loss_ends_training_and_keeps_the_checkpoint(tmp_path):
    def sick(net, batch, progress):
        loss = noisy_hinge(net, batch, progress)
        return loss * math.nan if progress >= 0.5 else loss

    with pytest.raises(CrossmatchError, match=r"step 16 \(epoch 2\): the loss is nan.*--set train.learning_rate=0.025") as error:
        fit(training(objective=sick), checkpoints_in(tmp_path), every=0)
    assert "--restart" in str(error.value)
    assert checkpoints_in(tmp_path).load_latest()["state"]["step"] == 5
    assert all(torch.isfinite(values).all() for values in checkpoints_in(tmp_path).load_latest()["net"].values())


def test_infinite_gradient_ends_training(tmp_path):
    def steep(net, batch, progress):
        zero = net.images(batch.regions)[0, 0] * 0.0
        return noisy_hinge(net, batch, progress) + zero.sqrt()

    with pytest.raises(CrossmatchError, match="step 1 .*the gradient of the loss is not finite") as error:
        fit(training(objective=steep), checkpoints_in(tmp_path))
    assert "checkpoint" not in str(error.value), "there is none yet"
    assert "Train with --set train.learning_rate=" in str(error.value)


def test_full_disk_is_reported_and_training_resumes(tmp_path, monkeypatch):
    from crossmatch.data.io import atomic_write as atomic_write

    calls = []
    os_replace = atomic_write.os.replace

    def full(*arguments):
        calls.append(0)
        if len(calls) > 3:
            raise OSError(28, "No space left on device")
        return os_replace(*arguments)

    monkeypatch.setattr(atomic_write.os, "replace", full)
    with pytest.raises(CrossmatchError, match=r"No checkpoint can be written.*No space left on device.*run the same command again"):
        fit(training(), checkpoints_in(tmp_path), every=0)
    monkeypatch.undo()
    assert checkpoints_in(tmp_path).load_latest()["state"]["step"] == 3
    assert not list((tmp_path / "checkpoints").glob(".*"))
    run, uninterrupted = training(), training()
    fit(run, checkpoints_in(tmp_path))
    fit(uninterrupted, checkpoints_in(tmp_path / "other"))
    assert hash_weights(run.model.net) == hash_weights(uninterrupted.model.net)


def test_checkpoint_of_another_network_is_refused(tmp_path):
    fit(training(settings=replace(SETTINGS, epochs=1)), checkpoints_in(tmp_path))
    larger = training(settings=replace(SETTINGS, epochs=1))
    larger.model.net["more"] = torch.nn.Linear(1, 1)
    with pytest.raises(CrossmatchError, match=r"does not fit this network.*--restart"):
        fit(larger, checkpoints_in(tmp_path))


# Validation


def test_validation_equals_hits_by_links(tmp_path):
    run = training()
    values = validate(run.model, run.validation)
    validation = run.validation
    scores = run.model.compare(validation.store.take(np.arange(20)), validation.captions)
    own = np.arange(40) // 2
    ranks = {
        "i2t": [min(1 + int((scores[i] > scores[i, c]).sum()) for c in np.flatnonzero(own == i)) for i in range(20)],
        "t2i": [1 + int((scores[:, c] > scores[own[c], c]).sum()) for c in range(40)],
    }
    for direction, values_of_direction in ranks.items():
        for k in (1, 5, 10):
            assert values[f"{direction} hit@{k}"] == pytest.approx(100 * np.mean(np.asarray(values_of_direction) <= k))
    assert values["sum"] == pytest.approx(sum(v for name, v in values.items() if name != "sum"))


def test_text_model_is_validated_by_captions_of_the_same_image():
    run = training()
    vectors = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
    vectors[1::2] = vectors[::2] + 0.01
    del run.model.compare
    run.model.embed_texts, run.model.similarity = lambda texts: vectors, "cosine"
    assert validate(run.model, run.validation) == {"t2t hit@1": 100, "t2t hit@5": 100, "t2t hit@10": 100, "sum": 300}
    vectors[1::2] *= -1  # the own other caption is now the last of all
    assert validate(run.model, run.validation)["sum"] == 0


def test_random_numbers_in_validation_do_not_change_training(tmp_path, monkeypatch):
    def weights(name):
        run = training(settings=replace(SETTINGS, epochs=2))
        fit(run, checkpoints_in(tmp_path / name))
        return hash_weights(run.model.net)

    first = weights("a")
    monkeypatch.setattr(zoo_training, "validate", lambda *arguments: torch.rand(7) is not None and validate(*arguments))
    assert weights("b") == first


# Output


def test_tensorboard_has_one_point_per_epoch_after_an_interruption(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    values = iter([1.0, 2.0])

    def twice(*_):
        for value in values:
            return {"sum": value}
        raise KeyboardInterrupt

    monkeypatch.setattr(zoo_training, "validate", twice)
    with pytest.raises(KeyboardInterrupt):
        fit(training(), checkpoints_in(tmp_path), tensorboard=True)
    monkeypatch.setattr(zoo_training, "validate", lambda *_: {"sum": 3.0})
    fit(training(), checkpoints_in(tmp_path), tensorboard=True)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("sum")] == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert len(events.Scalars("loss")) == 3


def test_progress_bar_shows_loss_and_validation(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("FORCE_COLOR", "1")
    fit(training(settings=replace(SETTINGS, epochs=2)), checkpoints_in(tmp_path))
    shown = capsys.readouterr().err
    assert "training" in shown
    assert "loss" in shown
    assert "val" in shown


def test_nothing_is_shown_when_piped(tmp_path, capsys):
    fit(training(settings=replace(SETTINGS, epochs=1)), checkpoints_in(tmp_path))
    assert capsys.readouterr() == ("", "")


def test_progress_text():
    assert TrainingState().describe() == ""
    assert TrainingState(losses=[2.0, 4.0], rows=[{"sum": 120.0}], best=130.0).describe() == "loss 3 · val 120.0, kept 130.0"


def test_captions_without_a_second_caption_are_refused(tmp_path):
    whole = training()
    alone = TrainingSet(whole.data.store, whole.data.captions, whole.data.links[::2])
    with pytest.raises(UsageError, match="no image has two"):
        fit(replace(whole, data=alone), checkpoints_in(tmp_path))


def test_nan_scores_in_validation_are_refused(tmp_path):
    whole = training()
    compare = whole.model.compare
    whole.model.compare = lambda regions, texts: np.full_like(compare(regions, texts), np.nan)
    with pytest.raises(CrossmatchError, match=r"Validation after epoch 1: the scores are not finite.*learning_rate=0.005"):
        fit(whole, checkpoints_in(tmp_path))
    judged_so = replace(training(), measure=lambda model, compare: {"log-likelihood per word": math.nan, "sum": 0.0})
    with pytest.raises(CrossmatchError, match="log-likelihood per word is not finite"):
        fit(judged_so, checkpoints_in(tmp_path / "other"))
