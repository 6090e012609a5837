"""The reward's share of a step of self-critical training, and beam search for many images at once against one by one.

The captioners have the sizes of their recipes on the embedded world, and its captions: 5 for each of `--scenes` scenes, because the
reward's tables grow with the references. The regions are random numbers. Each captioner is first trained for `--steps` steps of
cross-entropy, so that its captions have a realistic length.

    reward   CIDEr-D of 128 sampled and 128 greedy captions against the whole step: encoding, both decodings, reward, gradient, Adam.
             The limit is a tenth.
    beam     beam search of width 5 for `--images` images at once, against one image at a time with one or all threads, whichever is
             faster. The captions are compared. The limit is 10 times as fast.

`limit_ratio` is at most 1 if the limit is met.

    python bench/scst.py [--case reward beam] [--families show-tell show-att-tell updown] [--scenes 10000] [--threads 2]
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from crossmatch.diorama.caption_writer import describe
from crossmatch.diorama.scene_sampling import sample_scene
from crossmatch.models.zoo.network_inputs import Vocabulary
from crossmatch.models.zoo.trained_model import ZooConfig, build_model
from crossmatch.train.data.training_set import ArrayStore, TrainingSet
from crossmatch.train.objectives import ObjectiveOptions
from crossmatch.train.objectives.cider_reward import Reward
from crossmatch.train.objectives.cross_entropy import cross_entropy
from crossmatch.train.objectives.self_critical import SelfCriticalLoss
from crossmatch.train.recipe import load_recipe
from crossmatch.train.zoo_training import ZooTraining
from timing import best_of, make_parser, peak_mb, report

FEATURES, REGIONS, BATCH, WIDTH = 260, 8, 128, 5
SHARE, FASTER = 0.1, 10  # limits: share of the reward in a step; speed compared with one image at a time


def world(scenes: int) -> TrainingSet:
    """Captions of the embedded world, with random regions."""
    captions = [
        caption.text
        for n in range(scenes)
        for caption in describe(sample_scene("diorama", 0, "train", n), "diorama", 0, "train", n)
    ]
    owners = np.arange(len(captions)) * scenes // len(captions)
    features = np.random.default_rng(0).standard_normal((scenes, REGIONS, FEATURES)).astype(np.float32)
    return TrainingSet(ArrayStore(features), tuple(captions), np.stack([owners, np.arange(len(captions))], axis=1))


def pretrain(name: str, data: TrainingSet, steps: int) -> tuple[Any, ZooTraining]:
    """A captioner after a few steps of cross-entropy."""
    torch.manual_seed(0)
    recipe, words = load_recipe(name), Vocabulary.from_texts(data.captions).words
    model = build_model(ZooConfig(recipe.family, recipe.model, words, {"kind": "file", "dimensions": FEATURES}))
    training = ZooTraining(model, cross_entropy, data, data, recipe.train)
    optimiser = torch.optim.Adam(model.net.parameters(), 5e-3)
    step = 0
    model.net.train()
    for epoch in range(steps):
        for batch in training.batches(epoch):
            if step == steps:
                return model, training
            take_step(model, optimiser, cross_entropy(model.match, batch, 1.0, ObjectiveOptions()))
            step += 1
    return model, training


def take_step(model: Any, optimiser: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def reward_case(name: str, model: Any, training: ZooTraining, repeat: int) -> None:
    reward = Reward.from_training_set(training.data, model.vocabulary, load_recipe(f"{name}-scst").objective["end"])
    reward_times = []

    def timed_reward(numbers: np.ndarray, image: np.ndarray) -> np.ndarray:
        start = time.perf_counter()
        rewards = reward(numbers, image)
        reward_times.append(time.perf_counter() - start)
        return rewards

    objective, optimiser = SelfCriticalLoss(timed_reward), torch.optim.Adam(model.net.parameters(), 1e-4)
    batches = training.batches(0)
    model.net.train()
    step_times = []
    for batch in (next(batches) for _ in range(repeat + 1)):
        start = time.perf_counter()
        take_step(model, optimiser, objective(model.match, batch, 1.0))
        step_times.append(time.perf_counter() - start)
    ours, step = float(np.median(reward_times[1:])), float(np.median(step_times[1:]))  # the first allocates memory
    report(
        f"scst/{name}/reward/2x{BATCH}/{len(training.data.store)}", ours, "the whole step", step, share=ours / step,
        limit_ratio=ours / step / SHARE, peak_mb=peak_mb(),
    )  # fmt: skip


def beam_case(name: str, model: Any, data: TrainingSet, images: int, threads: int, repeat: int) -> None:
    model.net.eval()
    regions = data.store.take(np.arange(images))
    captions: dict[str, list[str]] = {}

    def at_once() -> None:
        captions["ours"] = model.caption_regions(regions, decoding="beam", width=WIDTH)

    def one_by_one() -> None:
        captions["theirs"] = [model.caption_regions(regions[n : n + 1], decoding="beam", width=WIDTH)[0] for n in range(images)]

    def one_by_one_on_one_thread() -> None:
        torch.set_num_threads(1)
        one_by_one()
        torch.set_num_threads(threads)

    ours, *theirs = best_of(repeat, at_once, one_by_one, one_by_one_on_one_thread)
    agreement = np.mean([a == b for a, b in zip(captions["ours"], captions["theirs"], strict=True)])
    assert agreement > 0.98, agreement  # rounding may decide between equally likely captions
    peer = min(theirs)
    words = float(np.mean([len(text.split()) for text in captions["ours"]]))
    report(f"scst/{name}/beam/{images}x{WIDTH}", ours, "one image at a time", peer, limit_ratio=FASTER * ours / peer, words=words,
           peak_mb=peak_mb())  # fmt: skip


def main() -> None:
    parser = make_parser(__doc__, scenes=10_000, steps=150, images=256, threads=2, repeat=5)
    parser.add_argument("--case", nargs="+", choices=("reward", "beam"), default=["reward", "beam"])
    parser.add_argument("--families", nargs="+", default=["show-tell", "show-att-tell", "updown"])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data = world(options.scenes)
    for name in options.families:
        model, training = pretrain(name, data, options.steps)
        for case in options.case:
            if case == "reward":
                reward_case(name, model, training, options.repeat)
            else:
                beam_case(name, model, data, min(options.images, options.scenes), options.threads, options.repeat)


if __name__ == "__main__":
    main()
