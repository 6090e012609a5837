"""Every family learns something from a tiny world, by recipes of its own with a smaller network."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from crossmatch.run import evaluate_all
from crossmatch.train.recipe import load_recipe, names
from crossmatch.train.sources import Asked
from crossmatch.train.zoo import train_zoo

# The embedded world's recipes are for 10,000 images; 200 want more epochs and fewer words at once.
SMALLER = ("train.epochs=6", "train.batch=50", "train.learning_rate=5e-3", "features.lessons=200")
SIZES = {
    "vse": ("model.dimensions=32", "model.word_dimensions=16"),
    "vse-infinity": ("model.dimensions=32", "model.word_dimensions=16"),
    "scan": ("model.dimensions=32", "model.word_dimensions=16"),
    "sgraf": (
        "model.dimensions=32",
        "model.word_dimensions=16",
        "model.similarity_dimensions=16",
        "train.learning_rate=4e-3",
        "train.batch=32",
        "train.epochs=12",  # half as many are near chance with some seeds
        "objective.warm_up=1",  # all negatives throughout: with the hardest alone, so few steps end in one point
    ),
    "vsrn": ("model.dimensions=32", "model.word_dimensions=16", "model.decoder=16"),
    "pvse": ("model.dimensions=32", "model.word_dimensions=16"),
    "pcme": ("model.dimensions=32", "model.word_dimensions=16"),
    "show-att-tell": (  # a language must be learnt as well
        "model.dimensions=48",
        "model.word_dimensions=24",
        "model.attention=24",
        "model.dropout=0",
        "train.learning_rate=2e-2",
        "train.epochs=12",
    ),
    "dual-encoder": ("model.dimensions=32", "train.learning_rate=1e-3"),
    "clip": (
        "model.dimensions=32",
        "model.image_width=32",
        "model.text_width=32",
        "train.learning_rate=2e-3",
        "train.warm_up_steps=20",
    ),
}
PROBES = ("vse++", "convnet-bow", "obj-bigru", "vse-infinity", "scan-t2i", "scan-i2t", "sgr", "saf", "vsrn", "pvse-k2", "pcme",
          "de-i2t", "clip", "show-att-tell")  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def one_cache(tmp_path_factory):
    """Features and the namer are made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize("name", PROBES)
def test_a_recipe_is_better_than_chance(name, tmp_path):
    family = load_recipe(name).family
    model = train_zoo(name, tmp_path, asked=Asked(size="tiny"), overrides=[*SMALLER, *SIZES[family]])
    (found,) = evaluate_all(model, ["diorama/retrieval"], size="tiny", samples=200)
    for way in ("i2t", "t2i"):
        row = found[f"{way}/truth/hit@10"]
        assert row.low > row.chance, way


def test_captions_alone_find_their_like(tmp_path):
    model = train_zoo("de-t2t", tmp_path, asked=Asked(size="tiny"), overrides=[*SMALLER, *SIZES["dual-encoder"]])
    (found,) = evaluate_all(model, ["diorama/cxc"], size="tiny", samples=200)
    row = found["t2t/hit@1"]
    assert row.low > row.chance
    assert np.isfinite(model.embed_texts(["A cat."])).all()


def test_every_family_is_tried():
    captioners = {"show-tell", "up-down"}  # tried in test_captioners_learn.py
    assert {load_recipe(name).family for name in PROBES} | captioners == {load_recipe(name).family for name in names()}
