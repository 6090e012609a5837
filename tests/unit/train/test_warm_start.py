"""Warm starts: what comes from the base model, which stage is trained first, what is refused, and resuming after a kill."""

import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.models import make_model
from crossmatch.train import loop, run_recipe
from crossmatch.train.recipe import load_recipe, recipe_names
from crossmatch.train.run_recipe import train_recipe

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from interrupted_begin import CASES
from toy import toy_data, write_scan_folder

SIZES = ("model.dimensions=16", "model.word_dimensions=8", "train.fewest=1", "train.batch=20")
FAST = (*SIZES, "train.learning_rate=2e-2", "train.epochs=2")
SECOND = ("train.batch=20", "train.epochs=1")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("begin")


@pytest.fixture(scope="module")
def data(home):
    """The toy in SCAN's layout."""
    (home / "toy").mkdir()
    return write_scan_folder(home / "toy", toy_data(40, 0), toy_data(12, 1))


@pytest.fixture(scope="module")
def base(home, data):
    return train_recipe("show-tell", home / "base", data=data, overrides=FAST)


def weights(model):
    return {name: values.clone() for name, values in model.net.state_dict().items()}


def test_weights_vocabulary_and_regions_come_from_the_base_model(base, home, data, tmp_path, monkeypatch):
    initial_weights = []
    monkeypatch.setattr(run_recipe, "fit", lambda training, *arguments, **more: initial_weights.append(weights(training.model)) or loop.fit(
        training, *arguments, **more))  # fmt: skip
    model = train_recipe("show-tell-scst", tmp_path / "a", data=data, begin=home / "base", overrides=SECOND)
    assert initial_weights[0].keys() == weights(base).keys()
    assert all(torch.equal(values, initial_weights[0][name]) for name, values in weights(base).items())
    assert model.weights != base.weights
    assert model.config.vocabulary == base.config.vocabulary
    assert model.config.features == base.config.features
    assert model.config.net == base.config.net
    description = json.loads((tmp_path / "a/model.json").read_text())["recipe"]
    assert description["begin"] == {"name": "show-tell", "weights": base.weights}
    assert description["model"]["dimensions"] == 16
    assert description["validated_by"].startswith("CIDEr-D")
    assert make_model(str(tmp_path / "a")).weights == model.weights
    assert not (tmp_path / "a/begin").exists()


def test_base_recipe_is_trained_first(base, data, tmp_path):
    messages = []
    overrides = [*SECOND, *SIZES, *(f"begin.{word}" for word in FAST if word.startswith("train."))]
    model = train_recipe("show-tell-scst", tmp_path / "a", data=data, overrides=overrides, notify=messages.append)
    assert make_model(str(tmp_path / "a/begin")).weights == base.weights  # the same recipe and data: the same weights
    assert model.recipe["begin"]["weights"] == base.weights
    assert "begins with show-tell" in messages[0]
    again = train_recipe("show-tell-scst", tmp_path / "a", data=data, overrides=overrides, notify=messages.append)
    assert again.weights == model.weights
    rest = [line for line in messages if not line.startswith("epoch ")]
    assert [line for line in rest if "nothing left" in line] == [rest[2], rest[3]] == rest[2:]
    from_folder = train_recipe("show-tell-scst", tmp_path / "b", data=data, begin=tmp_path / "a/begin", overrides=[*SECOND, *SIZES])
    assert from_folder.weights == model.weights


def test_vocabulary_of_the_base_model_is_kept(home, base, tmp_path):
    """With fewer images there are fewer words, but the vocabulary is that of the base model."""
    (tmp_path / "few").mkdir()
    few = write_scan_folder(tmp_path / "few", toy_data(3, 0), toy_data(12, 1))
    model = train_recipe("show-tell-scst", tmp_path / "a", data=few, begin=home / "base", overrides=SECOND)
    assert model.config.vocabulary == base.config.vocabulary
    assert model.config.features["source"] == "few"


def test_other_base_weights_are_another_training(home, base, data, tmp_path):
    train_recipe("show-tell-scst", tmp_path / "a", data=data, begin=home / "base", overrides=SECOND)
    train_recipe("show-tell", home / "other", data=data, overrides=[*FAST, "train.seed=1"])
    with pytest.raises(CrossmatchError, match=r"contains the finished model of another recipe.*--restart"):
        train_recipe("show-tell-scst", tmp_path / "a", data=data, begin=home / "other", overrides=SECOND)
    model = train_recipe("show-tell-scst", tmp_path / "a", data=data, begin=home / "other", overrides=SECOND, restart=True)
    assert model.recipe["begin"]["weights"] == make_model(str(home / "other")).weights


def test_any_recipe_can_start_from_a_folder_with_another_dropout(home, base, data, tmp_path):
    model = train_recipe("show-tell", tmp_path / "a", data=data, begin=home / "base", overrides=[*FAST, "model.dropout=0.3"])
    assert model.config.net["dropout"] == 0.3
    assert model.recipe["begin"]["weights"] == base.weights


def test_unsuitable_base_models_are_refused(home, base, data, tmp_path):
    def refused(message, recipe="show-tell-scst", data=data, error=UsageError, begin=home / "base", overrides=SECOND):
        with pytest.raises(error, match=message) as raised:
            train_recipe(recipe, tmp_path / "a", data=data, begin=begin, overrides=overrides)
        assert "\n" not in str(raised.value)
        assert not (tmp_path / "a").exists()

    refused("of the family 'show-tell', the recipe updown-scst of 'up-down'", "updown-scst")
    refused("has a network with dimensions 24; the model to start from has dimensions 16", overrides=["model.dimensions=24"])
    refused("come from pictures, but the model to start from was trained on regions from a file .toy.", data="diorama")
    (tmp_path / "wide").mkdir()
    wide = write_scan_folder(tmp_path / "wide", toy_data(40, 0), toy_data(12, 1))
    for path in (tmp_path / "wide").glob("*.npy"):
        np.save(path, np.repeat(np.load(path), 2, axis=2))
    refused("has regions of 32 numbers; the model to start from has 16", data=wide)
    refused("there is no model.json", begin=tmp_path / "nowhere")
    refused("already trained", overrides=[*SECOND, "begin.train.epochs=3"])
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/model.json").write_text("{")
    refused("cannot be read", begin=tmp_path / "broken", error=CrossmatchError)
    with pytest.raises(UsageError, match="also the output folder"):
        train_recipe("show-tell", home / "base", data=data, begin=home / "base", restart=True)
    with pytest.raises(UsageError, match="the recipe show-tell begins with none"):
        train_recipe("show-tell", tmp_path / "a", data=data, overrides=["begin.train.epochs=3"])
    assert make_model(str(home / "base")).weights == base.weights


def test_regions_of_another_kind_are_refused(home, tmp_path):
    """The base model uses pixels, the recipe other pixels or crops."""
    from crossmatch.train.data.sources import DataOptions

    tiny, pixels = DataOptions(size="tiny", images=24), ["features.kind=pixels", "features.side=16", "features.width=4"]
    small = ["train.epochs=1", "train.validation=10", "model.dimensions=16", "model.word_dimensions=8"]
    first = train_recipe("show-tell", tmp_path / "base", options=tiny, overrides=[*pixels, *small])
    for features in (["features.name=namer"], ["features.kind=pixels", "features.side=32"]):
        with pytest.raises(UsageError, match="was trained on regions of kind pixels, side = 16, width = 4; the recipe"):
            train_recipe("show-tell-scst", tmp_path / "a", options=tiny, begin=tmp_path / "base", overrides=features)
    with pytest.raises(
        UsageError,
        match=r"precomp:\S+ its regions come from a file, but the model to start from was trained on regions from pictures",
    ):
        train_recipe("show-tell-scst", tmp_path / "a", data="precomp:nowhere", begin=tmp_path / "base")
    model = train_recipe("show-tell-scst", tmp_path / "a", options=tiny, begin=tmp_path / "base", overrides=small[:2])
    assert model.config.features == first.config.features == {"kind": "pixels", "side": 16, "width": 4}


def test_circular_recipes_are_refused(tmp_path, data, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, begins_with, family in (("a", "b.toml", "show-tell"), ("b", "a.toml", "show-tell"), ("c", "updown", "show-tell")):
        Path(f"{name}.toml").write_text(
            f'family = "{family}"\nabout = "mine"\npaper = "x"\nbegins_with = "{begins_with}"\n[objective]\nname = "cross-entropy"\n'
        )
    with pytest.raises(UsageError, match="The recipe a begins with itself: a <- b <- a"):
        train_recipe("a.toml", "out", data=data)
    with pytest.raises(UsageError, match="of the family 'show-tell' begins with updown of the family 'up-down'"):
        train_recipe("c.toml", "out", data=data)
    assert not Path("out").exists()


@pytest.mark.parametrize("name", [name for name in recipe_names() if load_recipe(name).begins_with])
def test_packaged_recipe_fits_its_base_recipe(name):
    recipe = load_recipe(name)
    base = load_recipe(recipe.begins_with)
    assert recipe.family == base.family
    assert not recipe.features or recipe.features == base.features
    assert {**base.model, **recipe.model} == base.model


# Killed


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """Reports of a recipe's killed trainings, by the moment of the kill; each recipe is trained once."""

    @lru_cache
    def report(recipe):
        home = tmp_path_factory.mktemp("killed")
        (home / "toy").mkdir()
        write_scan_folder(home / "toy", toy_data(40, 0), toy_data(12, 1))
        done = subprocess.run(
            [sys.executable, str(HERE / "interrupted_begin.py"), str(home), recipe], capture_output=True, text=True, timeout=600,
            env={**os.environ, "PYTHONPATH": str(HERE.parents[2] / "src"), "XDG_CACHE_HOME": str(home / "cache")},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return {report["moment"]: report for report in map(json.loads, done.stdout.splitlines())}

    return report


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.parametrize(("recipe", "moment"), [(recipe, moment) for recipe, case in CASES.items() for moment in case.moments])
def test_training_killed_in_either_stage_ends_with_the_same_weights(interrupted, recipe, moment):
    whole, report = interrupted(recipe)["never"], interrupted(recipe)[moment]
    assert report["ends"] == [9] * (len(report["ends"]) - 1) + [0]
    assert len(report["ends"]) > 1
    assert report["end"] == whole["end"]
    assert report["logs"] == whole["logs"]
    assert [len(rows) for rows in whole["logs"]] == ([2] if recipe == "updown" else [3, 2])
