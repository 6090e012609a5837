"""How much of a step of self-critical training the reward takes, and beam search for many images at once against one by one.

The captioners have the sizes of their recipes for the embedded world, whose captions they are trained on: 5 for each of as many
scenes as recipes train on, since the reward's tables grow with the references. Their regions are random numbers, as nothing here
depends on what they show. Each captioner first learns from these captions for a few steps, so that its own are about as long as
they will be.

    reward   CIDEr-D of 128 drawn and 128 greedy captions against the whole step: encoding, both decodings, reward, gradient, Adam.
             At most a tenth is asked for.
    beam     beam search of width 5 as `caption` does it, against one image at a time, on as many threads as suit that best. The
             captions are compared. 10 times as fast is asked for.

`limit_ratio` is at most 1 where the limit is kept.

    python bench/scst.py [--case reward beam] [--families show-tell show-att-tell updown] [--scenes 10000] [--threads 2]
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from typing import Any

import numpy as np
import torch

from crossmatch.diorama.grammar import describe
from crossmatch.diorama.layout import sample_scene
from crossmatch.models.zoo.inputs import Vocabulary
from crossmatch.models.zoo.model import ZooConfig, made
from crossmatch.train.data import ArrayStore, TrainingSet
from crossmatch.train.loop import Training
from crossmatch.train.objectives.cross_entropy import cross_entropy
from crossmatch.train.objectives.self_critical import SelfCritical
from crossmatch.train.recipe import load_recipe
from crossmatch.train.reward import Reward
from timing import best_of

FEATURES, REGIONS, BATCH, WIDTH = 260, 8, 128, 5
SHARE, FASTER = 0.1, 10  # of a step that the reward may take; times as fast as one by one


def world(scenes: int) -> TrainingSet:
    """Captions of the embedded world, and regions that are noise."""
    captions = [
        caption.text
        for n in range(scenes)
        for caption in describe(sample_scene("diorama", 0, "train", n), "diorama", 0, "train", n)
    ]
    owners = np.arange(len(captions)) * scenes // len(captions)
    features = np.random.default_rng(0).standard_normal((scenes, REGIONS, FEATURES)).astype(np.float32)
    return TrainingSet(ArrayStore(features), tuple(captions), np.stack([owners, np.arange(len(captions))], axis=1))


def taught(name: str, data: TrainingSet, steps: int) -> tuple[Any, Training]:
    """A captioner after a few steps of cross-entropy."""
    torch.manual_seed(0)
    recipe, words = load_recipe(name), Vocabulary.of(data.captions).words
    model = made(ZooConfig(recipe.family, recipe.model, words, {"kind": "file", "dimensions": FEATURES}))
    training = Training(model, cross_entropy, {}, data, data, recipe.train)
    texts, optimiser = model.vocabulary.numbered(data.captions), torch.optim.Adam(model.net.parameters(), 5e-3)
    done = 0
    model.net.train()
    for epoch in range(steps):
        for batch in training.batches(epoch, texts):
            if done == steps:
                return model, training
            stepped(model, optimiser, cross_entropy(model.match, batch, {}))
            done += 1
    return model, training


def stepped(model: Any, optimiser: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def reward_case(name: str, model: Any, training: Training, repeat: int) -> dict[str, Any]:
    reward = Reward.of(training.data, model.vocabulary, load_recipe(f"{name}-scst").objective["end"])
    inside = []

    def timed(numbers: np.ndarray, image: np.ndarray) -> np.ndarray:
        begun = time.perf_counter()
        found = reward(numbers, image)
        inside.append(time.perf_counter() - begun)
        return found

    objective, optimiser = SelfCritical(timed), torch.optim.Adam(model.net.parameters(), 1e-4)
    batches = training.batches(0, model.vocabulary.numbered(training.data.captions))
    model.net.train()
    whole = []
    for batch in (next(batches) for _ in range(repeat + 1)):
        begun = time.perf_counter()
        stepped(model, optimiser, objective(model.match, batch, {}))
        whole.append(time.perf_counter() - begun)
    ours, step = float(np.median(inside[1:])), float(np.median(whole[1:]))  # the first has memory to ask for
    return {
        "workload": f"scst/{name}/reward/2x{BATCH}/{len(training.data.store)}", "ours_s": round(ours, 5),
        "peer": "the whole step", "peer_s": round(step, 4),
        "ratio": round(step / ours, 1), "share": round(ours / step, 4), "limit_ratio": round(ours / step / SHARE, 3),
    }  # fmt: skip


def beam_case(name: str, model: Any, data: TrainingSet, images: int, threads: int, repeat: int) -> dict[str, Any]:
    model.net.eval()
    regions = data.store.take(np.arange(images))
    told: dict[str, list[str]] = {}

    def at_once() -> None:
        told["ours"] = model.caption_regions(regions, decoding="beam", width=WIDTH)

    def one_by_one() -> None:
        told["theirs"] = [model.caption_regions(regions[n : n + 1], decoding="beam", width=WIDTH)[0] for n in range(images)]

    def alone() -> None:
        torch.set_num_threads(1)
        one_by_one()
        torch.set_num_threads(threads)

    ours, *theirs = best_of(repeat, at_once, one_by_one, alone)
    same = np.mean([a == b for a, b in zip(told["ours"], told["theirs"], strict=True)])
    assert same > 0.98, same  # rounding alone may decide between two captions that are equally good
    peer = min(theirs)
    return {
        "workload": f"scst/{name}/beam/{images}x{WIDTH}", "ours_s": round(ours, 4), "peer": "one image at a time",
        "peer_s": round(peer, 4), "ratio": round(peer / ours, 1), "limit_ratio": round(FASTER * ours / peer, 3),
        "words": round(float(np.mean([len(text.split()) for text in told["ours"]])), 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="+", choices=("reward", "beam"), default=["reward", "beam"])
    parser.add_argument("--families", nargs="+", default=["show-tell", "show-att-tell", "updown"])
    parser.add_argument("--scenes", type=int, default=10_000, help="whose captions are the references")
    parser.add_argument("--steps", type=int, default=150, help="of cross-entropy beforehand")
    parser.add_argument("--images", type=int, default=256, help="that beam search tells")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data = world(options.scenes)
    for name in options.families:
        model, training = taught(name, data, options.steps)
        for case in options.case:
            if case == "reward":
                line = reward_case(name, model, training, options.repeat)
            else:
                line = beam_case(name, model, data, min(options.images, options.scenes), options.threads, options.repeat)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(json.dumps(line | {"peak_mb": round(peak)}), flush=True)


if __name__ == "__main__":
    main()
