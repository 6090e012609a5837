"""Train the small dual encoder on the embedded world: a baseline of our own, in two minutes and without any download."""

from __future__ import annotations

import csv
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.core.judgements import Judgements
from crossmatch.core.progress import track
from crossmatch.core.ranks import Ranks
from crossmatch.core.scores import Embeddings
from crossmatch.core.sweep import stand
from crossmatch.diorama.world import CAPTIONS_PER_SCENE, SIZES
from crossmatch.metrics.table import metric
from crossmatch.models.dual import PAD, Dual, DualConfig, DualEncoderNet, numbered, vocabulary_of
from crossmatch.train.losses import symmetric_contrastive
from crossmatch.train.pictures import draw_split
from crossmatch.train.place import require_place_of

try:
    import torch
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

LARGEST_SCALE = 100.0  # the temperature stays above 0.01; radford2021clip, sec. 2.5
WAYS, WATCHED = ("i2t", "t2i"), ("hit@1", "hit@10")


@dataclass(frozen=True)
class DualRecipe:
    """Everything that the weights depend on, apart from the machine."""

    images: int = 10_000
    validation: int = 1_000
    epochs: int = 3
    seed: int = 0
    pixels: int = 64
    width: int = 12
    dimensions: int = 256
    batch: int = 100
    learning_rate: float = 3e-3
    weight_decay: float = 0.05
    warm_up: float = 0.15  # the share of the steps in which the learning rate rises

    def digest(self) -> str:
        """Twelve hexadecimal digits of the recipe and of what the world looks like today."""
        pictures, captions = draw_split("train", 4, self.pixels)
        told = json.dumps([asdict(self), captions]).encode()
        return hashlib.sha256(told + pictures.tobytes()).hexdigest()[:12]


def train_dual(
    folder: Path | str,
    *,
    images: int | None = None,
    epochs: int = DualRecipe.epochs,
    seed: int = 0,
    pixels: int = DualRecipe.pixels,
    size: str = "default",
) -> Dual:
    """Train on the train split, watch the val split, and leave model, weights and log.csv in `folder`.

    `images` is the number of training images (all of the split, if not given). A folder that holds a finished model of
    the same recipe is loaded instead. The same recipe gives the same weights on one machine.
    """
    if size not in SIZES:
        raise CrossmatchError(f"the world has no size {size!r}; it comes as {', '.join(SIZES)}.")
    recipe = DualRecipe(SIZES[size]["train"] if images is None else images, SIZES[size]["val"], epochs, seed, pixels)
    if recipe.images < 2 or recipe.epochs < 1 or recipe.pixels < 8:
        raise CrossmatchError(f"{recipe} cannot be trained: it takes 2 images, 1 epoch and 8 pixels at least.")
    folder, digest = Path(folder), recipe.digest()
    require_place_of("dual", folder)
    finished = _finished(folder, digest)
    if finished is not None:
        return finished
    folder.mkdir(parents=True, exist_ok=True)
    model = fit(
        recipe, draw_split("train", recipe.images, pixels), draw_split("val", recipe.validation, pixels), folder / "log.csv"
    )
    model.recipe = {"name": "dual", "hash": digest, **asdict(recipe)}
    model.save(folder)
    return model


def _finished(folder: Path, digest: str) -> Dual | None:
    try:
        model = Dual.load(folder)
    except CrossmatchError:
        return None
    return model if model.recipe.get("hash") == digest else None


Data = tuple[NDArray[np.uint8], list[str]]  # pictures, and five captions for each


def fit(recipe: DualRecipe, train: Data, validation: Data, log: Path) -> Dual:
    """AdamW with one cycle of the learning rate (smith2019super). After each epoch a line goes to the log."""
    pictures, captions = torch.from_numpy(train[0]), train[1]
    with reproducible(recipe.seed), log.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["step", "seconds", "loss", *(f"val {way} {name}" for way in WAYS for name in WATCHED)])
        config = DualConfig(vocabulary_of(captions), recipe.pixels, recipe.dimensions, recipe.width)
        model = Dual(config, recipe=asdict(recipe))
        texts = torch.from_numpy(numbered(captions, config.vocabulary)).view(len(pictures), CAPTIONS_PER_SCENE, -1)
        batches = max(1, len(pictures) // recipe.batch)
        optimiser = torch.optim.AdamW(_groups(model.net, recipe.weight_decay), recipe.learning_rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, recipe.learning_rate, total_steps=batches * recipe.epochs, pct_start=recipe.warm_up
        )
        began = time.perf_counter()
        losses: list[float] = []
        for step in track(range(batches * recipe.epochs), "training"):
            batch = step % batches
            if batch == 0:
                order = torch.randperm(len(pictures))
                model.net.train()
            chosen = order[batch * recipe.batch :][: recipe.batch]
            loss = batch_loss(model.net, _shifted(pictures[chosen]), texts[chosen])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
            losses.append(loss.item())
            if batch == batches - 1:
                told = f"{time.perf_counter() - began:.1f}", f"{np.mean(losses[-batches:]):.4f}"
                found = retrieval(model, *validation).values()
                writer.writerow([step + 1, *told, *(f"{value:.4f}" for value in found)])
                file.flush()
    return model


def batch_loss(net: DualEncoderNet, pictures: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
    """The mean of five contrastive losses, one for each place in the lists of captions.

    A picture costs far more than a caption, so each is used with all of its captions at once. Captions of one place are
    alike in length, which saves padding, and in detail, which makes them each other's hard negatives.
    """
    seen = net.embed_images(pictures)
    scale = net.log_scale.exp().clamp(max=LARGEST_SCALE)
    places = [numbers[:, : int((numbers != PAD).sum(dim=1).max())] for numbers in texts.unbind(dim=1)]
    losses = [symmetric_contrastive(seen, net.embed_texts(numbers), scale) for numbers in places]
    return torch.stack(losses).mean()


def retrieval(model: Dual, pictures: NDArray[np.uint8], captions: Sequence[str]) -> dict[str, float]:
    """hit@1 and hit@10 in both directions by the original links."""
    own = np.array_split(np.asarray(captions), len(pictures))
    collection = Collection.of({str(n): few.tolist() for n, few in enumerate(own)})
    links = Judgements.from_links(collection)
    images, texts = model.embed_pixels(pictures), model.embed_texts(captions)
    said = Embeddings(collection.image_ids, images, collection.caption_ids, texts)
    there = stand(said, {way: links.listed(way) for way in WAYS})
    ranks = {way: Ranks.from_standing(standing) for way, standing in there.items()}
    return {f"{way} {name}": metric(name).summarise(ranks[way]) for way in ranks for name in WATCHED}


def _shifted(pictures: torch.Tensor) -> torch.Tensor:
    """All pictures of a batch moved by up to two pixels, around the edge. Not mirrored: captions speak of left and right."""
    down, right = torch.randint(-2, 3, (2,)).tolist()
    return pictures.roll((down, right), dims=(1, 2))


def _groups(net: DualEncoderNet, weight_decay: float) -> list[dict[str, object]]:
    """Matrices decay; biases, batch norms and the temperature do not (radford2021clip, sec. 2.5)."""
    matrices = [p for p in net.parameters() if p.ndim > 1]
    others = [p for p in net.parameters() if p.ndim <= 1]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


@contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """One seed, one thread; afterwards torch is as it was.

    Sums over several threads depend on their number. And where other work shares the cores, torch's threads wait for each
    other at every operation: on a busy machine with two cores, two of them are three times slower than one.
    """
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=[]):
        try:
            torch.set_num_threads(1)
            torch.use_deterministic_algorithms(True)
            torch.manual_seed(seed)
            yield
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(strict)
