"""Train the detectors of synthetic images and captions: a sigmoid neuron over each side of a frozen encoder (BiVLC, sec. 5.3)."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.benchmarks import load_data
from crossmatch.core.arrays import BoolArray, FloatArray
from crossmatch.core.benchmark import data_hash
from crossmatch.core.declared import checked
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.core.pictures import fingerprint, opened
from crossmatch.core.progress import steps as bar
from crossmatch.core.trials import Trials
from crossmatch.diorama.edits import IN_PICTURES
from crossmatch.diorama.trials import in_two_styles, made_by
from crossmatch.diorama.world import SIZES, Diorama
from crossmatch.models import make_model
from crossmatch.models.detector import detected
from crossmatch.models.detector_model import (
    EVEN,
    FAMILY,
    DetectorConfig,
    Embedding,
    Neurons,
    TrainedDetector,
    image_units,
    load,
    log_odds,
    require_embedder,
    sides_of,
    text_units,
)
from crossmatch.models.pair_cache import items_of
from crossmatch.train.checkpoints import Identity, alone, require_same
from crossmatch.train.dual import reproducible
from crossmatch.train.features import identities
from crossmatch.train.log import write_log
from crossmatch.train.place import require_place
from crossmatch.train.recipe import LARGEST

try:
    import torch
    from torch import nn
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

SHARE = 0.2  # of the trials that validate, where no others are named; miranda2024bivlc, app. E.2
SCENES = {"train": 2000, "val": 500}  # of the embedded world, unless told otherwise
DIORAMA = "diorama"
PROBED = 4  # pictures that the embedded world is known by
VALUE = "val accuracy"  # in per cent: what an epoch is chosen by


@dataclass(frozen=True)
class DetectorSettings:
    """How the neurons are trained: Adam (β 0.9 and 0.999, ε 1e-8), no weight decay. Source: miranda2024bivlc, app. E.3.

    The published learning rate is for 1,185 steps an epoch: 592,140 items, of which 80 % are trained on (app. E.2). A neuron that
    begins at zero has the right signs long before it is sure of anything, so that accuracies are meaningful with it. For less data
    it may be larger.
    """

    learning_rate: float = field(default=1e-6, metadata={"above": 0, "most": LARGEST})
    batch: int = field(default=400, metadata={"least": 1, "most": 10**9})
    text_epochs: int = field(default=10, metadata={"least": 1, "most": 10**6})
    image_epochs: int = field(default=1, metadata={"least": 1, "most": 10**6})
    seed: int = field(default=0, metadata={"least": 0, "most": 2**32 - 1})

    def epochs(self, side: str) -> int:
        return int(getattr(self, f"{side}_epochs"))


PUBLISHED = DetectorSettings()
ON_DIORAMA = DetectorSettings(learning_rate=0.1, text_epochs=100, image_epochs=100)  # 14 steps an epoch: 2,800 trials


# -- what they are trained on: natural items and synthetic ones, by trials of two images and two captions


@dataclass(frozen=True, eq=False)
class DetectorData:
    """Trials to train on and to validate with: the first image and caption of each are natural, the second are synthetic."""

    name: str
    train: Trials
    validation: Trials
    known: tuple[str, ...] = field(default=(), kw_only=True)  # hashes of the tasks that they are of

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits of all texts and all pictures, of which those of the embedded world follow from their names.

        A picture is known by the bytes of its file, or else by its pixels.
        """
        told = hashlib.sha256(" ".join(data_hash(trials) for trials in (self.train, self.validation)).encode())
        if self.name == DIORAMA and self.train.open_image is not None:
            for name in self.train.images.ravel()[:PROBED].tolist():
                told.update(fingerprint(opened(self.train.open_image, name)) or b"")
            return told.hexdigest()[:12]
        for trials in (self.train, self.validation):
            if trials.open_image is not None:
                told.update(" ".join(identities(items_of([trials])[0])).encode())
        return told.hexdigest()[:12]


def detector_data(name: str, *, validation: str | None = None, images: int | None = None, size: str = "default") -> DetectorData:
    """The data of this name: `diorama`, or any task of two images and two captions, such as bivlc or trials:FILE.

    The embedded world trains on edits of its train split and validates with edits of its val split. A task validates with a fifth
    of its trials, drawn once and for all; trials that share an image stay together. `validation` names a task of its own for that.
    """
    return looked_at(name, validation=validation, images=images, size=size)()


def looked_at(name: str, *, validation: str | None, images: int | None, size: str) -> Callable[[], DetectorData]:
    """The same, after all that can be wrong with them has been seen; the scenes of the embedded world are yet to be imagined."""
    if name == DIORAMA:
        if validation is not None:
            raise WrongWords("--validation goes with a task; diorama has a split of its own. Leave it out.")
        there = {split: _scenes(split, images, size) for split in SCENES}
        return lambda: DetectorData(DIORAMA, *(drawn_apart(split, there[split]) for split in ("train", "val")))
    if images is not None:
        raise WrongWords(f"--images are scenes of diorama; {name} has trials of its own. Leave it out.")
    whole = _pairs(name)
    if validation is not None:
        found = DetectorData(name, whole, _pairs(validation), known=(data_hash(whole),))
    else:
        held = held_out(whole)
        found = DetectorData(name, *(whole.chosen(np.flatnonzero(kept)) for kept in (~held, held)), known=(data_hash(whole),))
    return lambda: found


def _scenes(split: str, images: int | None, size: str) -> int:
    if size not in SIZES:
        raise WrongWords(f"the world has no size {size!r}; it comes as {', '.join(SIZES)}.")
    wanted = SCENES[split] if images is None or split != "train" else images
    return min(wanted, SIZES[size][split])


def drawn_apart(split: str, scenes: int) -> Trials:
    """Scenes of the embedded world with a caption, as the camera draws them, and both after an edit, as the generator draws them.

    As `crossmatch.diorama.trials.bivlc`, of the first scenes of a split: a fifth as many trials of each category as scenes.

    >>> drawn_apart("train", 5).images[0].tolist()
    ['train-00004', 'train-00004~replace-obj-0']
    """
    world = Diorama.make(split, scenes)
    return in_two_styles(world, made_by(world, "bivlc", IN_PICTURES))


def _pairs(name: str) -> Trials:
    found = load_data(name)
    if not isinstance(found, Trials) or found.shape != (2, 2):
        what = f"trials of {found.shape[1]} images x {found.shape[0]} captions" if isinstance(found, Trials) else "no trials"
        raise WrongWords(
            f"{name} has {what}; a detector learns from two images and two captions each, the natural one first: diorama, bivlc, "
            "or your own by trials:FILE."
        )
    return found


def held_out(trials: Trials, share: float = SHARE) -> BoolArray:
    """Which trials validate: those of clusters drawn at random until they are a share of all. No image is on both sides."""
    clusters, sizes = trials.clusters, np.bincount(trials.clusters)
    if len(sizes) < 2:
        raise CrossmatchError(
            f"the {len(clusters):,} trials share images, all of them, so that none can be kept apart. Name a task to validate "
            "with: --validation TASK"
        )
    order = np.random.default_rng(7).permutation(len(sizes))
    enough = int(np.searchsorted(np.cumsum(sizes[order]), share * len(clusters))) + 1
    return np.isin(clusters, order[: min(enough, len(sizes) - 1)])


# -- one neuron


@dataclass(frozen=True, eq=False)
class Sample:
    """Unit vectors (N, 2, D) of N natural items and their synthetic counterparts."""

    train: FloatArray
    validation: FloatArray


Row = dict[str, float]


def fit_neuron(neuron: nn.Linear, held: Sample, epochs: int, settings: DetectorSettings) -> Iterator[Row]:
    """Train by binary cross-entropy, a row of the log after each epoch; at the end, the neuron is that of the epoch with the best
    validation accuracy, the first of equals.

        L = − 1/B · Σ_n  y_n log σ(w·v_n + b) + (1 − y_n) log(1 − σ(w·v_n + b)),      y = 1 for what is synthetic

    The order of the items follows from seed and epoch alone. Source: miranda2024bivlc, app. E.3.
    """
    vectors = torch.from_numpy(held.train.reshape(-1, held.train.shape[2]).astype(np.float32))
    synthetic = torch.tensor([0.0, 1.0]).repeat(len(held.train))
    optimiser = torch.optim.Adam(neuron.parameters(), settings.learning_rate, betas=(0.9, 0.999), eps=1e-8)
    best: tuple[float, dict[str, Any]] = (-math.inf, {})
    for epoch in range(epochs):
        order = torch.from_numpy(np.random.default_rng([settings.seed, epoch]).permutation(len(vectors)))
        losses = []
        for chosen in torch.split(order, settings.batch):
            loss = F.binary_cross_entropy_with_logits(neuron(vectors[chosen])[:, 0], synthetic[chosen])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            losses.append(loss.item() * len(chosen))
        _require_numbers(neuron, losses, epoch + 1, settings)
        right = accuracy(neuron, held.validation)
        if right > best[0]:
            best = right, {name: values.detach().clone() for name, values in neuron.state_dict().items()}
        yield {"epoch": epoch + 1, "loss": sum(losses) / len(vectors), VALUE: 100 * right}
    neuron.load_state_dict(best[1])


def _require_numbers(neuron: nn.Linear, losses: list[float], epoch: int, settings: DetectorSettings) -> None:
    if not (np.isfinite(losses).all() and all(bool(torch.isfinite(values).all()) for values in neuron.parameters())):
        raise CrossmatchError(
            f"the loss or a weight of the detector is no finite number after epoch {epoch}. Train with a lower learning rate, such "
            f"as --learning-rate {settings.learning_rate / 10:g}, or look for vectors of the model that are not finite."
        )


def accuracy(neuron: nn.Linear, units: FloatArray) -> float:
    """The share of items whose type is predicted right; column 0 is natural, column 1 synthetic."""
    return float(detected(log_odds(neuron, units), EVEN).mean())


# -- both, and the folder


def train_detector(
    model: str,
    output: Path | str,
    *,
    data: str = "diorama",
    validation: str | None = None,
    images: int | None = None,
    size: str = "default",
    learning_rate: float | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    seed: int = 0,
    asking: Embedding | None = None,
    restart: bool = False,
    tell: Callable[[str], object] = lambda said: None,
) -> TrainedDetector:
    """Detectors of synthetic captions and, if the model embeds images, of synthetic images; they are in the folder `output`.

    `model` stays frozen; its vectors are kept where `asking` says, so that an interrupted training embeds nothing twice, and comes
    to the same weights. A folder that holds the finished detector of the same model, settings and data is loaded instead; one of
    others is refused unless `restart`.
    """
    folder, asking = Path(output), asking or Embedding()
    changed: dict[str, Any] = {
        "learning_rate": learning_rate,
        "batch": batch,
        "text_epochs": epochs,
        "image_epochs": epochs,
        "seed": seed,
    }
    settings = replace(
        ON_DIORAMA if data == DIORAMA else PUBLISHED, **{key: value for key, value in changed.items() if value is not None}
    )
    checked(asdict(settings), DetectorSettings, "the training of a detector")
    require_place(folder, restart)
    make = looked_at(data, validation=validation, images=images, size=size)  # before a model that may take long to load
    encoder = make_model(model)
    system = require_embedder(encoder, model)
    with alone(folder):
        held = make()
        recipe = hashlib.sha256(json.dumps([asdict(settings), system]).encode()).hexdigest()[:12]
        identity = Identity(recipe, held.digest, {"settings": asdict(settings), "system": system})
        if restart:
            _clear(folder)
        finished = _finished(folder, identity, model)
        if finished is not None:
            tell(f"{folder} holds the finished detector of this model and these data; nothing is left to train")
            return finished
        samples = {side: _sample(side, encoder, held, asking) for side in sides_of(encoder)}
        config = DetectorConfig(model, system, **{side: sample.train.shape[2] for side, sample in samples.items()})
        made = TrainedDetector(config, encoder, asking=asking)
        rows = _fitted(made.net, samples, settings)
        made.recipe = {
            "name": FAMILY, "hash": recipe, "data": held.name, "data_hash": identity.data, "trials": list(held.known),
            "settings": asdict(settings), "trained_on": len(held.train.ids), "validated_with": len(held.validation.ids),
            "validation": {side: max(row[VALUE] for row in log) for side, log in rows.items()},
        }  # fmt: skip
        _save(made, folder, rows)
    return made


def _sample(side: str, encoder: object, held: DetectorData, asking: Embedding) -> Sample:
    look = {"text": text_units, "image": image_units}[side]
    return Sample(*(look(encoder, trials, asking) for trials in (held.train, held.validation)))


def _fitted(net: Neurons, samples: dict[str, Sample], settings: DetectorSettings) -> dict[str, list[Row]]:
    """Train the neuron of every side; gives what the log says of each."""
    rows: dict[str, list[Row]] = {side: [] for side in samples}
    with reproducible(settings.seed), bar(sum(map(settings.epochs, samples)), "training") as show:
        for side, sample in samples.items():
            for row in fit_neuron(getattr(net, side), sample, settings.epochs(side), settings):
                rows[side].append(row)
                show(sum(map(len, rows.values())), f"{side}: loss {row['loss']:.4g} · val {row[VALUE]:.1f}")
    return rows


def _finished(folder: Path, identity: Identity, model: str) -> TrainedDetector | None:
    """The finished detector in a folder, if it is of the same model, settings and data; of others, it is refused."""
    try:
        told = json.loads((folder / "model.json").read_bytes())
        family, recipe = told["family"], told["recipe"]
        there = {"settings": recipe.get("settings", {}), "system": told.get("config", {}).get("system")}
        found = Identity(str(recipe.get("hash")), str(recipe.get("data_hash")), there)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if family != FAMILY:
        raise CrossmatchError(f"{folder} holds a model of another kind ({family}). Name another folder with -o.")
    require_same(found, identity, folder, "the finished detector")
    try:
        return load(folder, model)
    except CrossmatchError:
        return None


def _save(made: TrainedDetector, folder: Path, rows: dict[str, list[Row]]) -> None:
    for side, log in rows.items():
        write_log(folder / f"log-{side}.csv", log)
    try:
        made.save(folder)
    except OSError as error:
        raise CrossmatchError(
            f"the detector cannot be written to {folder} ({error.strerror or error}). Mend that, and start again with the same "
            "words: no embedding is computed twice."
        ) from None


def _clear(folder: Path) -> None:
    """Remove what an earlier training left, and nothing else."""
    for path in (folder / "model.json", *folder.glob("log*.csv"), *folder.glob("weights-*.pt")):
        path.unlink(missing_ok=True)
