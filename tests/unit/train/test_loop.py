"""The training loop: what it learns, how it resumes, and how it fails."""

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

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.models.folder import weights_of
from crossmatch.train import loop
from crossmatch.train.checkpoints import Checkpoints, Identity
from crossmatch.train.data import TrainingSet
from crossmatch.train.judge import judged
from crossmatch.train.loop import State, Training, fit, learning_rate, optimiser_of
from crossmatch.train.recipe import TrainSettings

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from toy import model_of, sampled, toy  # noqa: E402

SETTINGS = TrainSettings(learning_rate=5e-2, batch=16, epochs=3, schedule="one-cycle", pairs="captions")
OPTIONS = {"margin": 0.2, "warm_up": 0.6}


def training(model=None, settings=SETTINGS, objective=sampled, options=OPTIONS):
    data = toy(80, 0)
    return Training(model or model_of(data), objective, options, data, toy(20, 1), settings)


def kept(folder, identity=("recipe", "data")):
    return Checkpoints(folder, Identity(*identity))


# Resuming

SAME = ["first step", "mid-epoch", "second epoch", "half a checkpoint", "half the first checkpoint", "before it has its name",
        "validation", "before the log", "the end", "again and again", "never, few checkpoints"]  # fmt: skip


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """What is left of trainings that were killed at several moments, by moment."""
    home = tmp_path_factory.mktemp("killed")
    done = subprocess.run(
        [sys.executable, str(HERE / "interrupted.py"), str(home)], capture_output=True, text=True, timeout=600,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[2] / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {told["moment"]: told for told in map(json.loads, done.stdout.splitlines())}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.parametrize("moment", SAME)
def test_a_killed_training_ends_as_if_nothing_had_happened(interrupted, moment):
    """Weights, optimiser and chance, bit for bit, with dropout in the network and sampling in the objective."""
    whole, told = interrupted["never"], interrupted[moment]
    assert told["ends"] == [9] * (len(told["ends"]) - 1) + [0]
    assert len(told["ends"]) > 1 or moment == "never, few checkpoints"
    assert told["end"] == whole["end"]

    def rows(log):
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(log)]

    assert rows(told["log"]) == rows(whole["log"])
    assert [row["epoch"] for row in rows(told["log"])] == ["1", "2", "3"]


def test_the_seconds_of_all_parts_are_added(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "judged", stop)
    with pytest.raises(KeyboardInterrupt):
        fit(training(), kept(tmp_path), every=0)
    before = kept(tmp_path).latest()["state"]["seconds"]
    assert kept(tmp_path).latest()["state"]["step"] == 9  # of 10, after which validation was interrupted
    monkeypatch.undo()
    state = fit(training(), kept(tmp_path))
    times = [row["seconds"] for row in state.rows]
    assert 0 < before < times[0] < times[1] < times[2]


# Learning


def test_the_weights_are_those_of_the_best_epoch(tmp_path, monkeypatch):
    seen = []

    def fickle(model, held):
        seen.append(weights_of(model.net))
        return {"sum": [1.0, 3.0, 2.0][len(seen) - 1]}

    monkeypatch.setattr(loop, "judged", fickle)
    mine = training()
    state = fit(mine, kept(tmp_path))
    assert (state.best, state.best_epoch, state.epoch) == (3.0, 2, 3)
    assert weights_of(mine.model.net) == seen[1]
    assert len(set(seen)) == 3


LEVEL = [(0.0, -5.0), (0.0, -3.0), (0.0, -4.0)]  # nothing told is worth anything, and yet the second epoch knows more


def judging(monkeypatch, values):
    """Let validation say these, and then be stopped."""
    given = iter(values)

    def judge(model, held):
        value, likely = next(given, (None, None))
        if value is None:
            raise KeyboardInterrupt
        return {"log-likelihood per word": likely, "sum": value}

    monkeypatch.setattr(loop, "judged", judge)


@pytest.mark.parametrize(
    ("values", "best"),
    [
        (LEVEL, 2),
        ([(1e-20, -5.0), (0.0, -3.0), (1e-21, -4.0)], 2),
        ([(1.0, -5.0), (0.0, -3.0), (0.5, -2.0)], 1),
        ([(0.0, -3.0), (0.0, -3.0), (0.0, -3.0)], 1),
    ],
)
def test_the_likelihood_of_a_word_decides_between_equals_and_nothing_else(tmp_path, monkeypatch, values, best):
    judging(monkeypatch, values)
    state = fit(training(), kept(tmp_path))
    assert (state.best_epoch, state.best, state.likely) == (best, *values[best - 1])


def test_what_decides_between_equals_survives_an_interruption(tmp_path, monkeypatch):
    judging(monkeypatch, LEVEL)
    whole = training()
    fit(whole, kept(tmp_path / "whole"))
    judging(monkeypatch, LEVEL[:2])
    with pytest.raises(KeyboardInterrupt):
        fit(training(), kept(tmp_path / "parts"))
    judging(monkeypatch, LEVEL[2:])
    parts = training()
    assert fit(parts, kept(tmp_path / "parts")).best_epoch == 2  # better than the third, though that was judged in another process
    assert weights_of(parts.model.net) == weights_of(whole.model.net)


def test_training_stops_when_patience_ends(tmp_path, monkeypatch):
    values = iter([1.0, 3.0, 2.0, 3.0, 9.0])  # equal is no improvement
    monkeypatch.setattr(loop, "judged", lambda *_: {"sum": next(values)})
    state = fit(training(settings=replace(SETTINGS, epochs=9, patience=2)), kept(tmp_path))
    assert (state.epoch, state.best_epoch, len(state.rows)) == (4, 2, 4)


def test_the_toy_is_learnt_and_the_log_says_so(tmp_path):
    mine = training(settings=replace(SETTINGS, epochs=6))
    before = judged(mine.model, mine.validation)["sum"]
    state = fit(mine, kept(tmp_path))
    assert state.best > 450 > 300 > before  # of 600, on pictures that it was not trained on
    assert judged(mine.model, mine.validation)["sum"] == state.best
    rows = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    assert [int(row["epoch"]) for row in rows] == [1, 2, 3, 4, 5, 6]
    assert float(rows[-1]["sum"]) == pytest.approx(sum(float(v) for k, v in rows[-1].items() if k.startswith("val ")), rel=1e-5)
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])


def test_the_same_seed_gives_the_same_weights_and_nothing_around_it_matters(tmp_path):
    def weights(name, seed=0):
        mine = training(settings=replace(SETTINGS, epochs=1, seed=seed))
        fit(mine, kept(tmp_path / name))
        return weights_of(mine.model.net)

    torch.manual_seed(11)
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    first = weights("a")
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(12)
    assert weights("b") == first != weights("c", seed=1)


def test_frozen_weights_stay(tmp_path):
    mine = training(settings=replace(SETTINGS, epochs=1, optimiser="adamw", weight_decay=0.1))
    frozen = mine.model.match.word_vectors.table.weight.requires_grad_(False)
    before, other = frozen.clone(), mine.model.match.image.weight.clone()
    fit(mine, kept(tmp_path))
    assert torch.equal(frozen, before)
    assert not torch.equal(mine.model.match.image.weight, other)


def test_a_network_that_reads_texts_in_its_own_way_does_it_once(tmp_path):
    mine = training(settings=replace(SETTINGS, epochs=2))
    calls = []

    def read_all(texts):
        calls.append(len(texts))
        return mine.model.vocabulary.numbered(texts)

    mine.model.match.read_all = read_all
    fit(mine, kept(tmp_path))
    assert calls == [160]


# Rates and optimisers


@pytest.mark.parametrize(("epochs", "each", "warm_up"), [(3, 10, 0.15), (6, 391, 0.3), (1, 40, 0.5)])
def test_one_cycle_is_that_of_torch(epochs, each, warm_up):
    settings = TrainSettings(learning_rate=0.3, epochs=epochs, schedule="one-cycle", warm_up=warm_up)
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 1.0)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.3, total_steps=epochs * each, pct_start=warm_up, cycle_momentum=False)
    for step in range(epochs * each):
        assert learning_rate(settings, step, each) == pytest.approx(cycle.get_last_lr()[0], rel=1e-9, abs=1e-15)
        optimiser.step()
        if step < epochs * each - 1:
            cycle.step()


def test_steps_fall_after_whole_epochs():
    settings = TrainSettings(learning_rate=1.0, epochs=5, decay_every=2, decay=0.5)
    assert [learning_rate(settings, step, 3) for step in range(15)] == [1.0] * 6 + [0.5] * 6 + [0.25] * 3
    assert learning_rate(replace(settings, decay_every=0), 14, 3) == 1.0


@pytest.mark.parametrize(("epochs", "each", "rising"), [(2, 40, 10), (1, 5, 5), (1, 5, 9), (3, 7, 0)])
def test_the_cosine_rises_in_even_steps_and_falls_to_nothing(epochs, each, rising):
    settings = TrainSettings(learning_rate=0.4, epochs=epochs, schedule="cosine", warm_up_steps=rising)
    total = epochs * each
    rates = [learning_rate(settings, step, each) for step in range(total)]
    first = min(rising, total)
    assert rates[:first] == pytest.approx([0.4 * (step + 1) / rising for step in range(first)])
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.4)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(total - rising, 1))
    for rate in rates[first:]:
        assert rate == pytest.approx(cosine.get_last_lr()[0], rel=1e-6)
        optimiser.step()
        cosine.step()


def test_the_optimiser_is_given_what_the_settings_say():
    learners = [torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2))]
    published = TrainSettings(optimiser="adamw", learning_rate=1e-6, beta2=0.98, eps=1e-6, weight_decay=0.1)
    for group in optimiser_of(learners, published).param_groups:
        assert (group["lr"], group["betas"], group["eps"]) == (1e-6, (0.9, 0.98), 1e-6)
    for name in ("adam", "adamw"):  # what was published without saying so
        for group in optimiser_of(learners, TrainSettings(optimiser=name)).param_groups:
            assert (group["betas"], group["eps"]) == ((0.9, 0.999), 1e-8)


def test_a_training_may_have_a_judge_of_its_own(tmp_path):
    values = iter([1.0, 7.0, 2.0])
    mine = replace(training(), judge=lambda model, held: {"taste": len(held.store), "sum": next(values)})
    state = fit(mine, kept(tmp_path))
    assert (state.best, state.best_epoch) == (7.0, 2)
    assert [row["val taste"] for row in state.rows] == [20, 20, 20]


def test_adam_decays_all_and_adamw_matrices_alone():
    learners = [torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2))]
    adam, adamw = (optimiser_of(learners, TrainSettings(optimiser=name, weight_decay=0.1)) for name in ("adam", "adamw"))
    assert (type(adam).__name__, type(adamw).__name__) == ("Adam", "AdamW")
    assert [g["weight_decay"] for g in adam.param_groups] == [0.1]
    assert [(g["weight_decay"], [p.ndim for p in g["params"]]) for g in adamw.param_groups] == [(0.1, [2]), (0.0, [1])]


def test_an_objective_is_told_how_far_it_is(tmp_path):
    told = []

    def objective(net, batch, options):
        told.append((options["progress"], len(batch), batch.others is None))
        return sampled(net, replace(batch, others=batch.words), {**options, **OPTIONS})

    fit(training(settings=replace(SETTINGS, epochs=2, pairs="images"), objective=objective, options={}), kept(tmp_path))
    rehearsed, steps = told[:2], told[2:]
    assert [share for share, *_ in rehearsed] == [0.0, 1.0]
    assert [share for share, *_ in steps] == [n / 20 for n in range(20)]
    assert {rest for _, *rest in [(s, (n, o)) for s, n, o in steps] for rest in rest} == {(16, True)}


def test_the_gradient_is_clipped(tmp_path, monkeypatch):
    norms = []
    clip = torch.nn.utils.clip_grad_norm_

    def watch(learners, most):
        found = clip(learners, most)
        norms.append((float(found), most, math.sqrt(sum(float(p.grad.square().sum()) for p in learners if p.grad is not None))))
        return found

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", watch)
    fit(training(settings=replace(SETTINGS, epochs=1, clip=0.5)), kept(tmp_path / "a"))
    assert max(before for before, *_ in norms) > 0.5
    assert max(after for *_, after in norms) <= 0.5 + 1e-5  # float32
    assert {most for _, most, _ in norms} == {0.5}


# Failing


def test_a_loss_that_is_no_number_ends_it_and_the_checkpoint_stays(tmp_path):
    def sick(net, batch, options):
        loss = sampled(net, batch, options)
        return loss * math.nan if options["progress"] >= 0.5 and torch.is_grad_enabled() else loss

    with pytest.raises(CrossmatchError, match=r"the loss is nan at step 16 \(epoch 2\).*--set train.learning_rate=0.025") as error:
        fit(training(objective=sick), kept(tmp_path), every=0)
    assert "--restart" in str(error.value)
    assert kept(tmp_path).latest()["state"]["step"] == 5
    assert all(torch.isfinite(values).all() for values in kept(tmp_path).latest()["net"].values())


def test_a_gradient_that_is_no_number_ends_it(tmp_path):
    def steep(net, batch, options):
        zero = net.images(batch.regions)[0, 0] * 0.0
        return sampled(net, batch, options) + (zero.sqrt() if torch.is_grad_enabled() else 0.0)

    with pytest.raises(CrossmatchError, match="the gradient of the loss is not finite at step 1 ") as error:
        fit(training(objective=steep), kept(tmp_path))
    assert "checkpoint" not in str(error.value), "there is none yet"
    assert "Train with --set train.learning_rate=" in str(error.value)


def test_an_option_that_nobody_reads_is_refused(tmp_path):
    with pytest.raises(WrongWords, match=r"no option 'margn'. Did you mean 'margin'\?"):
        fit(training(options={**OPTIONS, "margn": 1.0}), kept(tmp_path))


def test_a_full_disk_is_told_and_earlier_checkpoints_stay(tmp_path, monkeypatch):
    from crossmatch.core import whole

    calls = []
    true = whole.os.replace

    def full(*given):
        calls.append(0)
        if len(calls) > 3:
            raise OSError(28, "No space left on device")
        return true(*given)

    monkeypatch.setattr(whole.os, "replace", full)
    with pytest.raises(
        CrossmatchError, match=r"no checkpoint can be written.*No space left on device.*start again with the same words"
    ):
        fit(training(), kept(tmp_path), every=0)
    monkeypatch.undo()
    assert kept(tmp_path).latest()["state"]["step"] == 3
    assert not list((tmp_path / "checkpoints").glob(".*"))
    mine, other = training(), training()
    fit(mine, kept(tmp_path))
    fit(other, kept(tmp_path / "other"))
    assert weights_of(mine.model.net) == weights_of(other.model.net)


def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    fit(training(settings=replace(SETTINGS, epochs=1)), kept(tmp_path))
    other = training(settings=replace(SETTINGS, epochs=1))
    other.model.net["more"] = torch.nn.Linear(1, 1)
    with pytest.raises(CrossmatchError, match=r"does not fit this network.*--restart"):
        fit(other, kept(tmp_path))


# Validation


def test_validation_is_hits_by_links(tmp_path):
    mine = training()
    found = judged(mine.model, mine.validation)
    held = mine.validation
    scores = mine.model.compare(held.store.take(np.arange(20)), held.captions)
    own = np.arange(40) // 2
    ranks = {
        "i2t": [min(1 + int((scores[i] > scores[i, c]).sum()) for c in np.flatnonzero(own == i)) for i in range(20)],
        "t2i": [1 + int((scores[:, c] > scores[own[c], c]).sum()) for c in range(40)],
    }
    for way, these in ranks.items():
        for k in (1, 5, 10):
            assert found[f"{way} hit@{k}"] == pytest.approx(100 * np.mean(np.asarray(these) <= k))
    assert found["sum"] == pytest.approx(sum(v for name, v in found.items() if name != "sum"))


def test_a_model_of_texts_alone_is_judged_by_other_captions_of_the_image():
    mine = training()
    vectors = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
    vectors[1::2] = vectors[::2] + 0.01
    del mine.model.compare
    mine.model.embed_texts, mine.model.similarity = lambda texts: vectors, "cosine"
    assert judged(mine.model, mine.validation) == {"t2t hit@1": 100, "t2t hit@5": 100, "t2t hit@10": 100, "sum": 300}
    vectors[1::2] *= -1  # the own other caption is now the last of all
    assert judged(mine.model, mine.validation)["sum"] == 0


def test_chance_in_validation_leaves_the_training_alone(tmp_path, monkeypatch):
    def weights(name):
        mine = training(settings=replace(SETTINGS, epochs=2))
        fit(mine, kept(tmp_path / name))
        return weights_of(mine.model.net)

    first = weights("a")
    monkeypatch.setattr(loop, "judged", lambda *given: torch.rand(7) is not None and judged(*given))
    assert weights("b") == first


# Telling


def test_tensorboard_has_a_point_per_epoch_also_after_an_interruption(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    values = iter([1.0, 2.0])

    def twice(*_):
        for value in values:
            return {"sum": value}
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "judged", twice)
    with pytest.raises(KeyboardInterrupt):
        fit(training(), kept(tmp_path), tensorboard=True)
    monkeypatch.setattr(loop, "judged", lambda *_: {"sum": 3.0})
    fit(training(), kept(tmp_path), tensorboard=True)
    seen = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in seen.Scalars("sum")] == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert len(seen.Scalars("loss")) == 3


def test_a_bar_on_a_terminal_shows_loss_and_validation(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("FORCE_COLOR", "1")
    fit(training(settings=replace(SETTINGS, epochs=2)), kept(tmp_path))
    shown = capsys.readouterr().err
    assert "training" in shown
    assert "loss" in shown
    assert "val" in shown


def test_nothing_is_shown_when_piped(tmp_path, capsys):
    fit(training(settings=replace(SETTINGS, epochs=1)), kept(tmp_path))
    assert capsys.readouterr() == ("", "")


def test_what_the_bar_says():
    assert State().said() == ""
    assert State(losses=[2.0, 4.0], rows=[{"sum": 120.0}], best=130.0).said() == "loss 3 · val 120.0, best 130.0"


def test_captions_are_not_matched_with_themselves(tmp_path):
    whole = training()
    alone = TrainingSet(whole.data.store, whole.data.captions, whole.data.links[::2])
    with pytest.raises(WrongWords, match="no image has two"):
        fit(replace(whole, data=alone), kept(tmp_path))


def test_a_network_that_gives_no_numbers_is_refused_at_validation(tmp_path):
    whole = training()
    held = whole.model.compare
    whole.model.compare = lambda regions, texts: np.full_like(held(regions, texts), np.nan)
    with pytest.raises(CrossmatchError, match=r"the scores are no finite number in validation after epoch 1.*learning_rate=0.005"):
        fit(whole, kept(tmp_path))
    judged_so = replace(training(), judge=lambda model, held: {"log-likelihood per word": math.nan, "sum": 0.0})
    with pytest.raises(CrossmatchError, match="log-likelihood per word is no finite number in validation"):
        fit(judged_so, kept(tmp_path / "other"))
