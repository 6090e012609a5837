"""Captioners learn a tiny world, choose the image of a caption, and improve by self-critical training."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from crossmatch.captions.cider import cider_d
from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.models.zoo.decoding import MAX_CAPTION_WORDS, sample_captions
from crossmatch.models.zoo.network_inputs import END
from crossmatch.models.zoo.trained_model import build_model
from crossmatch.train.data.sources import DataOptions, open_source
from crossmatch.train.data.training_set import ArrayStore, TrainingSet
from crossmatch.train.objectives.cider_reward import Reward
from crossmatch.train.run_recipe import train_recipe
from crossmatch.train.validation import validate

sys.path.insert(0, str(Path(__file__).parent))
from toy import CODES, WORDS, write_scan_folder

SIZES = ("model.dimensions=48", "model.word_dimensions=24", "model.dropout=0", "train.fewest=1", "train.batch=32")
ATTENTION = {"show-tell": (), "show-att-tell": ("model.attention=24",), "updown": ("model.attention=24",)}
FIRST = ("train.epochs=1", "train.schedule=one-cycle", "train.learning_rate=2e-2", "train.clip=1")
SECOND = ("train.batch=48", "train.epochs=1", "train.learning_rate=3e-3", "train.clip=5")


def pets(images, seed):
    """Images of two animals. One caption names them; two others are the same for all images."""
    rng = np.random.default_rng(seed)
    animals = np.stack([np.sort(rng.permutation(len(WORDS))[:2]) for _ in range(images)])
    texts = [text for a, b in animals for text in (f"a {WORDS[a]} and a {WORDS[b]}", "look at that", "look at this")]
    links = np.stack([np.repeat(np.arange(images), 3), np.arange(3 * images)], axis=1)
    features = CODES[animals] + 0.1 * rng.standard_normal((images, 2, 16)).astype(np.float32)
    return TrainingSet(ArrayStore(features), tuple(texts), links)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """In SCAN's layout."""
    folder = tmp_path_factory.mktemp("captioners")
    write_scan_folder(folder, pets(1600, 0), pets(40, 1))
    return folder


@pytest.fixture(scope="module", params=ATTENTION)
def first(request, home):
    words = [*SIZES, *ATTENTION[request.param], *FIRST]
    return train_recipe(request.param, home / request.param, data=f"precomp:{home}", overrides=words)


def reward_of_training(model, home):
    """The mean reward of captions that are drawn for the training images."""
    train, _ = open_source(f"precomp:{home}", {}, DataOptions()).load()
    images = np.arange(len(train.store))
    with torch.random.fork_rng(), torch.inference_mode():
        torch.manual_seed(0)
        captions = sample_captions(model.match, model.match.images(train.store.take(images)), MAX_CAPTION_WORDS)
    return Reward.from_training_set(train, model.vocabulary)(captions.numbers.numpy(), images).mean()


def test_captioner_chooses_the_image_of_a_caption(first):
    """As in BISON, for every caption that names animals and every other image: chance is 50 %."""
    validation = pets(40, 1)
    scores = first.compare(validation.store.take(np.arange(40)), validation.captions[::3])
    own = scores.diagonal()
    right = ((own > scores).sum() + ((own == scores).sum() - 40) / 2) / (39 * 40)
    assert right > 0.75


def test_training_raises_the_likelihood(first):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        untrained = build_model(first.config)
    before, after = (validate(model, pets(40, 1)) for model in (untrained, first))
    assert after["log-likelihood per word"] > before["log-likelihood per word"] + 1
    assert after["sum"] == after["CIDEr-D"]


def test_self_critical_training_raises_reward_and_validation(first, home):
    """Cross-entropy favours the frequent captions, whose reward is 0; CIDEr-D rewards the names of the animals."""
    name = f"{first.recipe['name']}-scst"
    second = train_recipe(name, home / name, data=f"precomp:{home}", overrides=SECOND, begin=home / first.recipe["name"])
    assert reward_of_training(second, home) > 2 * reward_of_training(first, home) > 0
    assert second.recipe["validation"] > first.recipe["validation"] + 50


def test_validation_equals_metric_and_loss(first):
    validation = pets(40, 1)
    values, regions = validate(first, validation), validation.store.take(np.arange(40))
    captions = {str(n): text for n, text in enumerate(first.caption_regions(regions, decoding="greedy"))}
    references = {str(n): [validation.captions[c] for i, c in validation.links if i == n] for n in range(40)}
    assert values["CIDEr-D"] == pytest.approx(100 * cider_d(CaptionCorpus.from_texts(captions, references))[0].value)
    pairs = first.log_likelihood_of_regions(regions, validation.captions)
    total = sum(pairs[i, c] for i, c in validation.links)
    words = sum(len(text.split()) + 1 for text in validation.captions)
    assert values["log-likelihood per word"] == pytest.approx(total / words, rel=1e-5)
    assert values["captions cut"] == 0


def test_validation_counts_cut_captions(first):
    with torch.no_grad():
        first.match.next_word.linear.bias[END] -= 100
        assert validate(first, pets(40, 1))["captions cut"] == 100
        first.match.next_word.linear.bias[END] += 100
