"""Train the small grounding model on the embedded world, whose pictures come with the boxes of their things. Takes minutes."""

from __future__ import annotations

import csv
import hashlib
import json
import time
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.core.judgements import Judgements
from crossmatch.core.progress import track
from crossmatch.core.ranks import Ranks
from crossmatch.core.scores import Matrix
from crossmatch.core.sweep import stand
from crossmatch.diorama.grammar import describe
from crossmatch.diorama.kinds import KINDS
from crossmatch.diorama.layout import sample_scene
from crossmatch.diorama.scenes import COLOURS, SETTINGS, TEXTURES
from crossmatch.diorama.world import CAPTIONS_PER_SCENE, SIZES
from crossmatch.metrics.table import metric
from crossmatch.models.dual import PAD, UNKNOWN, numbered, vocabulary_of
from crossmatch.models.grounded import Grounded, GroundedConfig, GroundedNet, members_of, places_of
from crossmatch.models.regions import crops_of, regions_of
from crossmatch.train.dual import LARGEST_SCALE, WATCHED, WAYS, reproducible
from crossmatch.train.pictures import Part, in_parts
from crossmatch.train.place import require_place_of

try:
    import torch
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

NAMES = ((*SETTINGS, *(kind.name for kind in KINDS)), COLOURS, TEXTURES)  # of a whole picture or of a thing; of things alone
NUMBERED = tuple({name: n for n, name in enumerate(names)} for names in NAMES)
WEIGHTS = (1.5, 0.1, 0.1)  # of naming the kind, colour and texture: captions teach the latter two well enough
UNNAMED = -100  # what a whole picture has instead of a colour and a texture; `cross_entropy` leaves it out
LARGEST_GRADIENT = 1.0  # a word that no region is like has a steep sim: the slope of x / ‖x‖ near 0
FORGOTTEN = 0.02  # the share of words that are shown as unknown, so that words know what to make of an unknown neighbour


@dataclass(frozen=True)
class GroundedRecipe:
    """Everything that the weights depend on, apart from the machine."""

    images: int = 8_000
    validation: int = 300
    epochs: int = 3
    seed: int = 0
    pixels: int = 32
    width: int = 14
    dimensions: int = 128
    smoothing: float = 4.0  # λ
    batch: int = 32
    learning_rate: float = 3e-3
    weight_decay: float = 0.05
    warm_up: float = 0.15  # the share of the steps in which the learning rate rises

    def digest(self) -> str:
        """Twelve hexadecimal digits of the recipe and of what the world looks like today."""
        drawn = draw_regions("train", 4, self.pixels)
        told = json.dumps([asdict(self), drawn.captions]).encode()
        return hashlib.sha256(told + drawn.crops.tobytes() + drawn.boxes.tobytes()).hexdigest()[:12]


@dataclass(frozen=True, eq=False)
class Drawn:
    """A split of the world: all regions, where those of each picture begin, and five captions for each picture."""

    crops: NDArray[np.uint8]  # (regions, side, side, 3)
    boxes: FloatArray  # (regions, 4)
    labels: IntArray  # (regions, 3): the kind of thing, or the setting; colour; texture; as numbers in `NAMES`
    begin: IntArray  # (pictures + 1,)
    captions: list[str]

    def __len__(self) -> int:
        return len(self.begin) - 1


def draw_regions(split: str, images: int, pixels: int, seed: int = 0, workers: int = 2) -> Drawn:
    """The pictures of `Diorama.make(split, images)`, cut into their regions, drawn by two processes if there are many.

    >>> drawn = draw_regions("val", 2, pixels=16)
    >>> drawn.crops.shape, drawn.begin.tolist(), len(drawn.captions)
    ((8, 16, 16, 3), [0, 2, 8], 10)
    """
    drawn = in_parts(_draw, split, images, pixels, seed, workers)
    crops, boxes, labels = (np.concatenate([getattr(d, name) for d in drawn]) for name in ("crops", "boxes", "labels"))
    begin = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(d.begin) for d in drawn]))])
    return Drawn(crops, boxes, labels, begin, [text for d in drawn for text in d.captions])


def _draw(part: Part) -> Drawn:
    """Scene n depends on the seed, the split and n alone, so any process can make its share."""
    from crossmatch.diorama.draw import draw

    split, numbers, pixels, seed = part
    crops, boxes, labels, texts = [], [], [], []
    for n in numbers:
        scene = sample_scene("diorama", seed, split, n)
        picture = draw(scene)
        boxes.append(regions_of(picture))
        crops.append(crops_of(picture, boxes[-1], pixels))
        names = [(scene.setting, "", ""), *((thing.kind, thing.colour, thing.texture) for thing in scene.things)]
        labels += [[at.get(name, UNNAMED) for at, name in zip(NUMBERED, few, strict=True)] for few in names]
        texts += [caption.text for caption in describe(scene, "diorama", seed, split, n)]
    begin = np.concatenate([[0], np.cumsum([len(few) for few in boxes])])
    return Drawn(np.concatenate(crops), np.concatenate(boxes), np.asarray(labels), begin, texts)


def train_grounded(
    output: Path | str,
    *,
    images: int | None = None,
    epochs: int = GroundedRecipe.epochs,
    seed: int = 0,
    pixels: int = GroundedRecipe.pixels,
    size: str = "default",
) -> Grounded:
    """Train on the train split, keep the epoch that is best on the val split, and leave model, weights and log.csv in `output`.

    `images` is the number of training images; the recipe's, if not given, or all of a smaller split. A folder that holds a
    finished model of the same recipe is loaded instead. The same recipe gives the same weights on one machine.
    """
    if size not in SIZES:
        raise CrossmatchError(f"the world has no size {size!r}; it comes as {', '.join(SIZES)}.")
    there = SIZES[size]
    wanted = min(GroundedRecipe.images, there["train"]) if images is None else images
    recipe = GroundedRecipe(wanted, min(GroundedRecipe.validation, there["val"]), epochs, seed, pixels)
    if recipe.images < 2 or recipe.epochs < 1 or recipe.pixels < 8:
        raise CrossmatchError(f"{recipe} cannot be trained: it takes 2 images, 1 epoch and 8 pixels at least.")
    folder, digest = Path(output), recipe.digest()
    require_place_of("grounded", folder)
    finished = _finished(folder, digest)
    if finished is not None:
        return finished
    folder.mkdir(parents=True, exist_ok=True)
    drawn = draw_regions("train", recipe.images, pixels), draw_regions("val", recipe.validation, pixels)
    model = fit(recipe, *drawn, folder / "log.csv")
    model.recipe = {"name": "grounded", "hash": digest, **asdict(recipe)}
    model.save(folder)
    return model


def _finished(folder: Path, digest: str) -> Grounded | None:
    try:
        model = Grounded.load(folder)
    except CrossmatchError:
        return None
    return model if model.recipe.get("hash") == digest else None


def fit(recipe: GroundedRecipe, train: Drawn, validation: Drawn, log: Path) -> Grounded:
    """AdamW with one cycle of the learning rate (smith2019super). After each epoch a line goes to the log.

    The weights are those of the epoch with the highest mean of all that is watched on the validation pictures.
    """
    with reproducible(recipe.seed), log.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["step", "seconds", "loss", *(f"val {way} {name}" for way in WAYS for name in WATCHED)])
        config = GroundedConfig(vocabulary_of(train.captions), recipe.pixels, recipe.dimensions, recipe.width, recipe.smoothing)
        model = Grounded(config, recipe=asdict(recipe))
        texts = torch.from_numpy(numbered(train.captions, config.vocabulary)).view(len(train), CAPTIONS_PER_SCENE, -1)
        batches = max(1, len(train) // recipe.batch)
        labelled = torch.nn.Linear(model.net.image_out.in_features - 4, sum(map(len, NAMES)))
        learners = torch.nn.ModuleList([model.net, labelled])
        optimiser = torch.optim.AdamW(_groups(learners, recipe.weight_decay), recipe.learning_rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, recipe.learning_rate, total_steps=batches * recipe.epochs, pct_start=recipe.warm_up
        )
        began, best, kept = time.perf_counter(), -1.0, model.net.state_dict()
        losses: list[float] = []
        for step in track(range(batches * recipe.epochs), "training"):
            batch = step % batches
            if batch == 0:
                order = torch.randperm(len(train)).numpy()
                model.net.train()
            chosen = order[batch * recipe.batch :][: recipe.batch]
            loss = batch_loss(model.net, labelled, train, chosen, _forgetful(texts[torch.from_numpy(chosen)]))
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(learners.parameters(), LARGEST_GRADIENT)
            optimiser.step()
            schedule.step()
            losses.append(loss.item())
            if batch == batches - 1:
                told = f"{time.perf_counter() - began:.1f}", f"{np.mean(losses[-batches:]):.4f}"
                found = retrieval(model, validation)
                writer.writerow([step + 1, *told, *(f"{value:.4f}" for value in found.values())])
                file.flush()
                if np.mean(list(found.values())) > best:
                    best, kept = float(np.mean(list(found.values()))), deepcopy(model.net.state_dict())
        model.net.load_state_dict(kept)
    return model


def batch_loss(net: GroundedNet, labelled: torch.nn.Linear, train: Drawn, chosen: IntArray, texts: torch.Tensor) -> torch.Tensor:
    """The mean of five contrastive losses over SCAN's similarities, and how badly the regions are named.

    Each image must find its own caption among the batch's, and each caption its image (radford2021clip, fig. 3). Not the hinge on
    the hardest negative of lee2018scan, sec. 3.2: short captions are true of many pictures, and the hardest negative is then often
    none. Captions of one place are alike in length, which saves padding, and in detail, which makes them each other's negatives.

    Colours, textures and settings tell most pictures of a batch apart, so that captions alone teach the kinds of things slowly.
    SCAN looks at regions with a detector that was trained to name what is in a box and how it looks (anderson2018bottomup,
    sec. 3.1); here `labelled` names the kind, colour and texture, or the setting, from the features of each region.
    """
    at, real = places_of(chosen, train.begin)
    mine = at[real]
    features = net.look(torch.from_numpy(train.crops[mine]))
    said, asked = labelled(features).split([len(names) for names in NAMES], dim=1), torch.from_numpy(train.labels[mine])
    naming = [weight * F.cross_entropy(part, labels) for weight, part, labels in zip(WEIGHTS, said, asked.T, strict=True)]
    seen, member = net.embed_regions(features, torch.from_numpy(train.boxes[mine]).float()), members_of(real)
    scale, own = net.log_scale.exp().clamp(max=LARGEST_SCALE), torch.arange(len(chosen))
    losses = []
    for padded in texts.unbind(dim=1):
        numbers = padded[:, : int((padded != PAD).sum(dim=1).max())]
        scores = scale * net.similarity(seen, net.embed_words(numbers), numbers != PAD, member)
        losses.append((F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2)
    return torch.stack(losses).mean() + torch.stack(naming).sum()


def retrieval(model: Grounded, drawn: Drawn) -> dict[str, float]:
    """hit@1 and hit@10 in both directions by the original links."""
    own = np.array_split(np.asarray(drawn.captions), len(drawn))
    collection = Collection.of({f"{n:06d}": few.tolist() for n, few in enumerate(own)})
    links = Judgements.from_links(collection)
    scores = model.compared(model.see(drawn.crops, drawn.boxes, drawn.begin), drawn.captions)
    said = Matrix(collection.image_ids, collection.caption_ids, scores)
    there = stand(said, {way: links.listed(way) for way in WAYS})
    ranks = {way: Ranks.from_standing(standing) for way, standing in there.items()}
    return {f"{way} {name}": metric(name).summarise(ranks[way]) for way in ranks for name in WATCHED}


def _forgetful(numbers: torch.Tensor) -> torch.Tensor:
    """With a few words that seem unknown."""
    return numbers.masked_fill((torch.rand(numbers.shape) < FORGOTTEN) & (numbers != PAD), UNKNOWN)


def _groups(net: torch.nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Matrices decay; biases, batch norms and the temperature do not (radford2021clip, sec. 2.5)."""
    matrices = [p for p in net.parameters() if p.ndim > 1]
    others = [p for p in net.parameters() if p.ndim <= 1]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
