"""Recipes: packaged ones are valid, files are checked strictly, and the hash depends on all settings."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.train.recipe import NegativeSettings, TrainSettings, load_recipe, recipe_names, recipes

BIB = (Path(__file__).parents[3] / "docs/references.bib").read_text()
KEYS = set(re.findall(r"@\w+\{([a-z0-9]+),", BIB))
FIVE = {"hu2019bison", "parekh2021cxc", "jiang2019tiger", "miranda2024bivlc", "chun2022eccv"}
MINE = """
family = "vse"
about = "mine"
paper = "faghri2018vse"
[model]
dimensions = 1024
[objective]
name = "triplet"
margin = 0.2
[train]
epochs = 30
learning_rate = 1
[diorama.model]
dimensions = 64
[diorama.train]
epochs = 2
"""


@pytest.fixture
def recipe_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    return path


@pytest.mark.parametrize("name", recipe_names())
def test_packaged_recipe_is_valid_as_published_and_on_diorama(name):
    from crossmatch.train.run_recipe import require_valid_recipe

    for data in ("", "diorama"):
        recipe = load_recipe(name, data)
        require_valid_recipe(recipe)
        assert recipe.about
        assert set(recipe.evaluated_by) <= FIVE
        assert {recipe.paper, *recipe.evaluated_by} <= KEYS


def test_vse_recipes_differ_in_negatives_only():
    zero, hardest, semi = (recipes()[name] for name in ("vse0", "vse++", "vse-semi-hard"))
    assert [r.objective["negatives"] for r in (zero, hardest, semi)] == ["sum", "hardest", "semi-hard"]
    for recipe in (hardest, semi):
        objective = {**recipe.objective, "negatives": "sum"}
        assert (recipe.model, recipe.train, objective) == (zero.model, zero.train, zero.objective)
    assert (zero.train.learning_rate, zero.train.batch, zero.train.epochs, zero.train.decay_every, zero.train.clip) == (
        2e-4, 128, 30, 15, 2.0,
    )  # fmt: skip


def test_clip_recipes_have_the_published_settings():
    texts, pairs, plain = (recipes()[name] for name in ("clip-hard-texts", "clip-hard-pairs", "clip-in-batch"))
    assert [r.negatives.kind for r in (plain, texts, pairs)] == ["none", "texts", "pairs"]
    assert [r.train.batch for r in (plain, texts, pairs)] == [400, 200, 200]
    for recipe in (texts, pairs, plain):
        assert (recipe.begins_with, recipe.objective) == ("clip", {"name": "info-nce"})
        assert replace(recipe.train, batch=400) == TrainSettings(
            optimiser="adamw", learning_rate=1e-6, beta1=0.9, beta2=0.98, eps=1e-6, weight_decay=0.1, batch=400, epochs=10,
            schedule="cosine", warm_up_steps=50,
        )  # fmt: skip
    assert recipes()["clip"].negatives.kind == "none"


def test_diorama_tables_take_precedence(recipe_file):
    published, small = load_recipe(recipe_file, "collection"), load_recipe(recipe_file, "diorama")
    assert (published.model["dimensions"], published.train.epochs, published.train.fewest) == (1024, 30, 4)
    assert (small.model["dimensions"], small.train.epochs, small.train.fewest) == (64, 2, 1)
    assert isinstance(published.train.learning_rate, float)
    assert published.name == "mine"


def test_overrides_are_applied_last(recipe_file):
    overrides = ["train.epochs=5", "objective.margin=1", 'objective.negatives="sum"', "model.text=bow", "train.schedule=one-cycle"]
    recipe = load_recipe(recipe_file, overrides=overrides)
    assert recipe.train.epochs == 5
    assert recipe.objective == {"name": "triplet", "margin": 1.0, "negatives": "sum"}
    assert recipe.model["text"] == "bow"
    assert recipe.train.schedule == "one-cycle"


WRONG = [
    ("epochs = 30", "epoch = 30", r"mine.toml: \[train\] has no key 'epoch'. Did you mean 'epochs'\?"),
    ("epochs = 30", 'epochs = "many"', r"\[train\] has epochs = \"many\"; expected a whole number"),
    ("epochs = 30", "epochs = 3.5", "expected a whole number"),
    ("epochs = 30", "epochs = true", "expected a whole number"),
    ("epochs = 30", "epochs = 0", "it must be at least 1"),
    ("learning_rate = 1", "learning_rate = 0", "it must be above 0"),
    ("learning_rate = 1", "learning_rate = inf", "learning_rate"),
    ("learning_rate = 1", 'optimiser = "adma"', "expected one of adam, adamw"),
    ("[objective]", "[objectiv]", "no key 'objectiv'. Did you mean 'objective'"),
    ('about = "mine"', "about = 3", "expected a text"),
    ('about = "mine"', "", "has no about"),
    ('about = "mine"', 'about = "mine', "is not TOML"),
    ("[diorama.train]", "[diorama.trian]", r"no table \[diorama.trian\]. Did you mean 'train'"),
    ('paper = "faghri2018vse"', 'paper = "faghri2018vse"\nevaluated_by = "chun2022eccv"', "expected a list"),
    ('paper = "faghri2018vse"', 'paper = "faghri2018vse"\nfeatures = 3', "expected a table"),
]


@pytest.mark.parametrize(("was", "now", "message"), WRONG, ids=[now[:40] for _, now, _ in WRONG])
def test_error_in_a_file_is_named(recipe_file, was, now, message):
    recipe_file.write_text(MINE.replace(was, now, 1))
    with pytest.raises(CrossmatchError, match=message) as error:
        load_recipe(recipe_file, "collection")
    assert "\n" not in str(error.value).strip()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.epoch=3", "Did you mean 'epochs'"),
        ("trian.epochs=3", "Did you mean 'train'"),
        ("epochs=3", "TABLE.KEY=VALUE"),
        ("train.epochs", "TABLE.KEY=VALUE"),
        ("train.epochs=few", "expected a whole number"),
        ("objective.margin=wide", "expected a number"),
        ("negatives.noise=1.5", "it must be at least 0 and at most 1"),
        ("negatives.kind=pair", "expected one of none, unused, texts, pairs"),
        ("negatives.nose=0.5", "Did you mean 'noise'"),
        ("train.beta2=1", "it must be below 1 and at least 0"),
    ],
)
def test_error_in_an_override_is_named(recipe_file, override, message):
    with pytest.raises(UsageError, match=message):
        load_recipe(recipe_file, overrides=[override])


def test_missing_recipe():
    with pytest.raises(UsageError, match=r"no recipe 'vse\+'. Did you mean 'vse\+\+'"):
        load_recipe("vse+")
    with pytest.raises(UsageError, match=r"nowhere.toml cannot be read"):
        load_recipe("nowhere.toml")


def test_hash_depends_on_everything_that_changes_weights(recipe_file):
    recipe = load_recipe(recipe_file)
    assert replace(recipe, name="other", about="other").digest() == recipe.digest()
    changed = [
        load_recipe(recipe_file, overrides=[word]).digest()
        for word in ("train.seed=1", "train.threads=2", "model.dimensions=65", "objective.margin=0.3", "features.kind=pixels")
    ]  # fmt: skip
    changed.append(replace(recipe, negatives=NegativeSettings(noise=0.5)).digest())
    assert len({recipe.digest(), *changed}) == 7


def test_unused_negatives_are_refused(recipe_file):
    with pytest.raises(UsageError, match="the objective 'triplet' does not use them"):
        load_recipe(recipe_file, overrides=["negatives.kind=texts"])
    digests = {load_recipe("clip-hard-pairs", overrides=[word]).digest() for word in ("negatives.kind=texts", "negatives.seed=3")}
    assert len(digests | {load_recipe("clip-hard-pairs").digest()}) == 3


def test_defaults_are_within_their_limits():
    from dataclasses import asdict

    from crossmatch.train.recipe import validate_settings

    assert validate_settings(asdict(TrainSettings()), TrainSettings, "here") == asdict(TrainSettings())
