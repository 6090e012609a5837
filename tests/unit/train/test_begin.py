"""Beginning with a trained model: what is taken over, what is trained first, what is refused, and how it survives kill -9."""

import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.models import make_model
from crossmatch.train import loop, zoo
from crossmatch.train.recipe import load_recipe, names
from crossmatch.train.zoo import train_zoo

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from interrupted_begin import CASES  # noqa: E402
from toy import toy  # noqa: E402

SIZES = ("model.dimensions=16", "model.word_dimensions=8", "train.fewest=1", "train.batch=20")
FAST = (*SIZES, "train.learning_rate=2e-2", "train.epochs=2")
SECOND = ("train.batch=20", "train.epochs=1")


def stored(folder, images=40, change=lambda features: features):
    for split, many, seed in (("train", images, 0), ("dev", 12, 1)):
        held = toy(many, seed)
        np.save(folder / f"{split}_ims.npy", change(held.store.features))
        (folder / f"{split}_caps.txt").write_text("".join(f"{text}\n" for text in held.captions))
    return f"precomp:{folder}"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("begin")


@pytest.fixture(scope="module")
def data(home):
    """The toy in SCAN's layout."""
    (home / "toy").mkdir()
    return stored(home / "toy")


@pytest.fixture(scope="module")
def base(home, data):
    return train_zoo("show-tell", home / "base", data=data, overrides=FAST)


def weights(model):
    return {name: values.clone() for name, values in model.net.state_dict().items()}


def test_it_begins_with_weights_words_and_regions_of_the_other(base, home, data, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(zoo, "fit", lambda training, *given, **more: seen.append(weights(training.model)) or loop.fit(
        training, *given, **more))  # fmt: skip
    model = train_zoo("show-tell-scst", tmp_path / "a", data=data, begin=home / "base", overrides=SECOND)
    assert seen[0].keys() == weights(base).keys()
    assert all(torch.equal(values, seen[0][name]) for name, values in weights(base).items())
    assert model.weights != base.weights
    assert model.config.vocabulary == base.config.vocabulary
    assert model.config.features == base.config.features
    assert model.config.net == base.config.net
    told = json.loads((tmp_path / "a/model.json").read_text())["recipe"]
    assert told["begin"] == {"name": "show-tell", "weights": base.weights}
    assert told["model"]["dimensions"] == 16
    assert told["validated_by"].startswith("CIDEr-D")
    assert make_model(str(tmp_path / "a")).weights == model.weights
    assert not (tmp_path / "a/begin").exists()


def test_without_a_folder_the_other_recipe_is_trained_first_and_kept(base, data, tmp_path):
    said = []
    words = [*SECOND, *SIZES, *(f"begin.{word}" for word in FAST if word.startswith("train."))]
    model = train_zoo("show-tell-scst", tmp_path / "a", data=data, overrides=words, tell=said.append)
    assert make_model(str(tmp_path / "a/begin")).weights == base.weights  # the same recipe and data: the same weights
    assert model.recipe["begin"]["weights"] == base.weights
    assert "begins with show-tell" in said[0]
    again = train_zoo("show-tell-scst", tmp_path / "a", data=data, overrides=words, tell=said.append)
    assert again.weights == model.weights
    rest = [line for line in said if not line.startswith("epoch ")]
    assert [line for line in rest if "nothing is left" in line] == [rest[2], rest[3]] == rest[2:]
    other = train_zoo("show-tell-scst", tmp_path / "b", data=data, begin=tmp_path / "a/begin", overrides=[*SECOND, *SIZES])
    assert other.weights == model.weights


def test_words_that_training_never_showed_stay_known(home, base, tmp_path):
    """Fewer images, hence fewer words: the vocabulary is still that of the model that it begins with."""
    (tmp_path / "few").mkdir()
    few = stored(tmp_path / "few", images=3)
    model = train_zoo("show-tell-scst", tmp_path / "a", data=few, begin=home / "base", overrides=SECOND)
    assert model.config.vocabulary == base.config.vocabulary
    assert model.config.features["source"] == "few"


def test_other_weights_to_begin_with_are_another_training(home, base, data, tmp_path):
    train_zoo("show-tell-scst", tmp_path / "a", data=data, begin=home / "base", overrides=SECOND)
    train_zoo("show-tell", home / "other", data=data, overrides=[*FAST, "train.seed=1"])
    with pytest.raises(CrossmatchError, match=r"holds the finished model of another recipe.*--restart"):
        train_zoo("show-tell-scst", tmp_path / "a", data=data, begin=home / "other", overrides=SECOND)
    model = train_zoo("show-tell-scst", tmp_path / "a", data=data, begin=home / "other", overrides=SECOND, restart=True)
    assert model.recipe["begin"]["weights"] == make_model(str(home / "other")).weights


def test_any_recipe_may_go_on_from_a_folder_and_what_has_no_weights_may_differ(home, base, data, tmp_path):
    model = train_zoo("show-tell", tmp_path / "a", data=data, begin=home / "base", overrides=[*FAST, "model.dropout=0.3"])
    assert model.config.net["dropout"] == 0.3
    assert model.recipe["begin"]["weights"] == base.weights


def test_what_does_not_fit_is_refused(home, base, data, tmp_path):
    def refused(says, recipe="show-tell-scst", data=data, error=WrongWords, begin=home / "base", overrides=SECOND):
        with pytest.raises(error, match=says) as seen:
            train_zoo(recipe, tmp_path / "a", data=data, begin=begin, overrides=overrides)
        assert "\n" not in str(seen.value)
        assert not (tmp_path / "a").exists()

    refused("a model of the family 'show-tell'; the recipe updown-scst is of 'up-down'", "updown-scst")
    refused("asks for a network of dimensions 24; the model to begin with has dimensions 16", overrides=["model.dimensions=24"])
    refused("trained on regions from a file .toy.; those of diorama come from pictures", data="diorama")
    (tmp_path / "wide").mkdir()
    wide = stored(tmp_path / "wide", change=lambda features: np.repeat(features, 2, axis=2))
    refused("regions of 16 numbers; those of .* have 32", data=wide)
    refused("there is no model.json", begin=tmp_path / "nowhere")
    refused("it is trained already", overrides=[*SECOND, "begin.train.epochs=3"])
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/model.json").write_text("{")
    refused("cannot be read", begin=tmp_path / "broken", error=CrossmatchError)
    with pytest.raises(WrongWords, match="also where the model would be written"):
        train_zoo("show-tell", home / "base", data=data, begin=home / "base", restart=True)
    with pytest.raises(WrongWords, match="the recipe show-tell begins with none"):
        train_zoo("show-tell", tmp_path / "a", data=data, overrides=["begin.train.epochs=3"])
    assert make_model(str(home / "base")).weights == base.weights


def test_regions_of_another_kind_are_refused(home, tmp_path):
    """A model of pixels, and a recipe of other pixels or of crops."""
    from crossmatch.train.sources import Asked

    tiny, pixels = Asked(size="tiny", images=24), ["features.kind=pixels", "features.side=16", "features.width=4"]
    small = ["train.epochs=1", "train.validation=10", "model.dimensions=16", "model.word_dimensions=8"]
    first = train_zoo("show-tell", tmp_path / "base", asked=tiny, overrides=[*pixels, *small])
    for features in (["features.name=namer"], ["features.kind=pixels", "features.side=32"]):
        with pytest.raises(WrongWords, match="was trained on regions of the kind pixels, side = 16, width = 4; the recipe"):
            train_zoo("show-tell-scst", tmp_path / "a", asked=tiny, begin=tmp_path / "base", overrides=features)
    with pytest.raises(WrongWords, match=r"regions from pictures; those of precomp:\S+ come from a file"):
        train_zoo("show-tell-scst", tmp_path / "a", data="precomp:nowhere", begin=tmp_path / "base")
    model = train_zoo("show-tell-scst", tmp_path / "a", asked=tiny, begin=tmp_path / "base", overrides=small[:2])
    assert model.config.features == first.config.features == {"kind": "pixels", "side": 16, "width": 4}


def test_recipes_that_begin_with_each_other_are_refused(tmp_path, data, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, other, family in (("a", "b.toml", "show-tell"), ("b", "a.toml", "show-tell"), ("c", "updown", "show-tell")):
        Path(f"{name}.toml").write_text(
            f'family = "{family}"\nabout = "mine"\npaper = "x"\nbegins_with = "{other}"\n[objective]\nname = "cross-entropy"\n'
        )
    with pytest.raises(WrongWords, match="the recipe a begins with itself: a <- b <- a"):
        train_zoo("a.toml", "out", data=data)
    with pytest.raises(WrongWords, match="of the family 'show-tell' begins with updown of 'up-down'"):
        train_zoo("c.toml", "out", data=data)
    assert not Path("out").exists()


@pytest.mark.parametrize("name", [name for name in names() if load_recipe(name).begins_with])
def test_every_packaged_recipe_that_begins_with_another_fits_it(name):
    recipe = load_recipe(name)
    other = load_recipe(recipe.begins_with)
    assert recipe.family == other.family
    assert not recipe.features or recipe.features == other.features
    assert {**other.model, **recipe.model} == other.model


# Killed


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """What became of a recipe at each moment, by its name; each is trained once."""

    @lru_cache
    def told(recipe):
        home = tmp_path_factory.mktemp("killed")
        (home / "toy").mkdir()
        stored(home / "toy")
        done = subprocess.run(
            [sys.executable, str(HERE / "interrupted_begin.py"), str(home), recipe], capture_output=True, text=True, timeout=600,
            env={**os.environ, "PYTHONPATH": str(HERE.parents[2] / "src"), "XDG_CACHE_HOME": str(home / "cache")},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return {told["moment"]: told for told in map(json.loads, done.stdout.splitlines())}

    return told


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.parametrize(("recipe", "moment"), [(recipe, moment) for recipe, case in CASES.items() for moment in case.moments])
def test_killed_in_either_training_it_ends_with_the_same_weights(interrupted, recipe, moment):
    whole, told = interrupted(recipe)["never"], interrupted(recipe)[moment]
    assert told["ends"] == [9] * (len(told["ends"]) - 1) + [0]
    assert len(told["ends"]) > 1
    assert told["end"] == whole["end"]
    assert told["logs"] == whole["logs"]
    assert [len(rows) for rows in whole["logs"]] == ([2] if recipe == "updown" else [3, 2])
