"""Captioners learn to tell a tiny world, choose the right image for a caption, and are made better by self-critical training."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from crossmatch.captions.cider import cider_d
from crossmatch.captions.corpus import Corpus
from crossmatch.models.zoo.decoding import LONGEST_TOLD, sampled
from crossmatch.models.zoo.inputs import END
from crossmatch.models.zoo.model import made
from crossmatch.train.data import ArrayStore, TrainingSet
from crossmatch.train.judge import judged
from crossmatch.train.reward import Reward
from crossmatch.train.sources import Asked, source
from crossmatch.train.zoo import train_zoo

sys.path.insert(0, str(Path(__file__).parent))
from toy import CODES, WORDS

SIZES = ("model.dimensions=48", "model.word_dimensions=24", "model.dropout=0", "train.fewest=1", "train.batch=32")
ATTENTION = {"show-tell": (), "show-att-tell": ("model.attention=24",), "updown": ("model.attention=24",)}
FIRST = ("train.epochs=1", "train.schedule=one-cycle", "train.learning_rate=2e-2", "train.clip=1")
SECOND = ("train.batch=48", "train.epochs=1", "train.learning_rate=3e-3", "train.clip=5")


def pets(images, seed):
    """Pictures of two things. One caption names them; two more are of every picture, and say nothing of it."""
    rng = np.random.default_rng(seed)
    things = np.stack([np.sort(rng.permutation(len(WORDS))[:2]) for _ in range(images)])
    texts = [text for a, b in things for text in (f"a {WORDS[a]} and a {WORDS[b]}", "look at that", "look at this")]
    links = np.stack([np.repeat(np.arange(images), 3), np.arange(3 * images)], axis=1)
    features = CODES[things] + 0.1 * rng.standard_normal((images, 2, 16)).astype(np.float32)
    return TrainingSet(ArrayStore(features), tuple(texts), links)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """In SCAN's layout."""
    folder = tmp_path_factory.mktemp("captioners")
    for split, many, seed in (("train", 1600, 0), ("dev", 40, 1)):
        held = pets(many, seed)
        np.save(folder / f"{split}_ims.npy", held.store.features)
        (folder / f"{split}_caps.txt").write_text("".join(f"{text}\n" for text in held.captions))
    return folder


@pytest.fixture(scope="module", params=ATTENTION)
def first(request, home):
    words = [*SIZES, *ATTENTION[request.param], *FIRST]
    return train_zoo(request.param, home / request.param, data=f"precomp:{home}", overrides=words)


def reward_of_training(model, home):
    """The mean reward of captions that are drawn for the training images."""
    train, _ = source(f"precomp:{home}", {}, Asked()).load()
    images = np.arange(len(train.store))
    with torch.random.fork_rng(), torch.inference_mode():
        torch.manual_seed(0)
        told = sampled(model.match, model.match.images(train.store.take(images)), LONGEST_TOLD)
    return Reward.of(train, model.vocabulary)(told.numbers.numpy(), images).mean()


def test_it_chooses_the_image_that_a_caption_is_of(first):
    """BISON's question, asked of every caption that names something, with every other image: chance is 50 %."""
    held = pets(40, 1)
    scores = first.compare(held.store.take(np.arange(40)), held.captions[::3])
    own = scores.diagonal()
    right = ((own > scores).sum() + ((own == scores).sum() - 40) / 2) / (39 * 40)
    assert right > 0.75


def test_it_has_learnt_more_than_an_untrained_one_knows(first):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        untrained = made(first.config)
    before, after = (judged(model, pets(40, 1)) for model in (untrained, first))
    assert after["log-likelihood per word"] > before["log-likelihood per word"] + 1
    assert after["sum"] == after["CIDEr-D"]


def test_self_critical_training_raises_the_reward_and_what_is_validated(first, home):
    """Cross-entropy tells what is said most often, which is worth nothing; CIDEr-D wants to hear what is in the picture."""
    name = f"{first.recipe['name']}-scst"
    second = train_zoo(name, home / name, data=f"precomp:{home}", overrides=SECOND, begin=home / first.recipe["name"])
    assert reward_of_training(second, home) > 2 * reward_of_training(first, home) > 0
    assert second.recipe["validation"] > first.recipe["validation"] + 50


def test_what_validation_says_is_the_metric_and_the_loss(first):
    held = pets(40, 1)
    found, regions = judged(first, held), held.store.take(np.arange(40))
    told = {str(n): text for n, text in enumerate(first.caption_regions(regions, decoding="greedy"))}
    references = {str(n): [held.captions[c] for i, c in held.links if i == n] for n in range(40)}
    assert found["CIDEr-D"] == pytest.approx(100 * cider_d(Corpus.of(told, references))[0].value)
    pairs = first.log_likelihood_of_regions(regions, held.captions)
    total = sum(pairs[i, c] for i, c in held.links)
    words = sum(len(text.split()) + 1 for text in held.captions)
    assert found["log-likelihood per word"] == pytest.approx(total / words, rel=1e-5)
    assert found["captions cut"] == 0


def test_validation_says_how_many_captions_were_cut(first):
    with torch.no_grad():
        first.match.next_word.linear.bias[END] -= 100
        assert judged(first, pets(40, 1))["captions cut"] == 100
        first.match.next_word.linear.bias[END] += 100
