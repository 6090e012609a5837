"""Training of detectors of synthetic images and captions: a sigmoid neuron on each side of a frozen model (BiVLC, sec. 5.3).

`crossmatch.train.loop` is not used: the two neurons have their own numbers of epochs, batches of unequal size with a loss per item,
and logs with other columns. The training takes seconds, and resumes from cached embeddings instead of checkpoints.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.benchmarks import load_benchmark_data
from crossmatch.data.arrays import BoolArray, FloatArray
from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.io.file_contents import read_json_object
from crossmatch.data.io.image_loading import hash_image, load_image
from crossmatch.data.io.progress import track
from crossmatch.data.loaded_data import data_hash
from crossmatch.data.settings import validate_settings
from crossmatch.data.trials import Trials
from crossmatch.diorama.edits import IMAGE_EDITS
from crossmatch.diorama.trials import make_edit_trials, two_style_trials
from crossmatch.diorama.world import Diorama
from crossmatch.models import make_model
from crossmatch.models.abilities import ImageEncoder
from crossmatch.models.baselines.precomputed_synthetic_detector import is_type_correct
from crossmatch.models.baselines.synthetic_detector import (
    EVEN_LOG_ODDS,
    FAMILY,
    DetectorConfig,
    EmbeddingOptions,
    TrainedDetector,
    embed_captions,
    embed_images,
    load_detector,
    log_odds,
    require_embedder,
)
from crossmatch.models.cache import Cache, default_cache_folder
from crossmatch.models.distinct_items import collect_items
from crossmatch.train.checkpoints import TrainingIdentity, ignore_message, require_same_training
from crossmatch.train.data.region_feature_cache import hash_images
from crossmatch.train.data.sources import DataOptions, world_sizes
from crossmatch.train.output_folder import explain_write_errors, lock_folder, remove_outputs, require_writable_folder, write_log
from crossmatch.train.recipe import MAX_RATE, TrainingRecipe, TrainSettings
from crossmatch.train.reproducibility import reproducible

try:
    import torch
    from torch import nn
    from torch.nn import functional as F  # noqa: N812 - the usual name
except ImportError as absent:
    raise MissingDependencyError("PyTorch", "models") from absent

VALIDATION_SHARE = 0.2  # of the trials, unless a validation task is named; miranda2024bivlc, app. E.2
SCENES = {"train": 2000, "val": 500}  # default numbers of scenes of the embedded world
MIN_SCENES = 5  # fewer scenes have no edits of some categories
DIORAMA = "diorama"
PROBED_IMAGES = 4  # images that identify the version of the embedded world
ACCURACY = "val accuracy"  # in per cent; the best epoch is chosen by it


@dataclass(frozen=True)
class DetectorSettings:
    """Settings of the training: Adam (β 0.9 and 0.999, ε 1e-8), no weight decay. Source: miranda2024bivlc, app. E.3.

    The published learning rate belongs to 1,185 steps per epoch: 80 % of 592,140 items (app. E.2). A neuron that starts at zero has
    the right signs long before its probabilities are extreme, so accuracies are meaningful. With less data it may be larger.
    """

    learning_rate: float = field(default=1e-6, metadata={"above": 0, "most": MAX_RATE})
    batch: int = field(default=400, metadata={"least": 1, "most": 10**9})
    text_epochs: int = field(default=10, metadata={"least": 1, "most": 10**6})
    image_epochs: int = field(default=1, metadata={"least": 1, "most": 10**6})
    seed: int = field(default=0, metadata={"least": 0, "most": 2**32 - 1})

    def epochs(self, side: str) -> int:
        return int(getattr(self, f"{side}_epochs"))


@dataclass(frozen=True)
class DetectorObjective:
    """The table `[objective]` of the recipe."""

    name: str = "binary-cross-entropy"
    image_epochs: int = field(default=0, metadata={"least": 0, "most": 10**6})  # 0: train.epochs


@dataclass(frozen=True)
class DetectorFeatures:
    """The table `[features]` of the recipe."""

    batch: int = field(default=EmbeddingOptions.batch, metadata={"least": 1})


USED_TRAIN_SETTINGS = ("learning_rate", "batch", "epochs", "images", "seed", "fewest", "validation")  # the last two are diorama's


def require_valid_recipe(recipe: TrainingRecipe) -> None:
    """Refuse unknown settings, and training settings without effect on the neurons."""
    where = f"The recipe {recipe.name}"
    validate_settings(recipe.objective, DetectorObjective, f"{where}: [objective]")
    validate_settings(recipe.features, DetectorFeatures, f"{where}: [features]")
    if recipe.objective.get("name") != DetectorObjective.name:
        raise UsageError(f"{where} has the objective {recipe.objective.get('name')!r}; a detector has {DetectorObjective.name!r}.")
    defaults = asdict(TrainSettings())
    unused = [
        f"train.{key}" for key, value in asdict(recipe.train).items() if key not in USED_TRAIN_SETTINGS and value != defaults[key]
    ]
    unused += [f"model.{key}" for key in recipe.model]
    if unused:
        raise UsageError(f"{where}: {unused[0]} has no effect on a detector. Remove it.")
    detector_settings(recipe)


def detector_settings(recipe: TrainingRecipe) -> DetectorSettings:
    """The settings of both neurons."""
    train = recipe.train
    image_epochs = DetectorObjective(**recipe.objective).image_epochs or train.epochs
    settings = DetectorSettings(train.learning_rate, train.batch, train.epochs, image_epochs, train.seed)
    validate_settings(asdict(settings), DetectorSettings, f"The recipe {recipe.name}")
    return settings


def train_detector_recipe(
    recipe: TrainingRecipe, model: str | None, output: Path, data: str, options: DataOptions, restart: bool,
    notify: Callable[[str], object],
) -> TrainedDetector:  # fmt: skip
    """Train the detectors of a recipe over a frozen model. Its embeddings are kept in the user's cache."""
    if model is None:
        raise UsageError(f"The recipe {recipe.name} needs a model that embeds texts: --begin MODEL (`crossmatch list models`).")
    if options.regions is not None or options.negatives is not None:
        option = "--negatives" if options.regions is None else "--regions"
        raise UsageError(f"{option} has no effect on the recipe {recipe.name}. Remove it.")
    return train_detector(
        model,
        output,
        detector_settings(recipe),
        data=data,
        validation=options.validation,
        images=options.images or recipe.train.images or None,
        size=options.size,
        embedding=EmbeddingOptions(DetectorFeatures(**recipe.features).batch, Cache(default_cache_folder(), notify)),
        restart=restart,
        notify=notify,
    )


# -- data: trials of two images and two captions, natural and synthetic


@dataclass(frozen=True, eq=False)
class DetectorData:
    """Training and validation trials: the first image and caption of each are natural, the second are synthetic."""

    name: str
    train: Trials
    validation: Trials
    task_hashes: tuple[str, ...] = field(default=(), kw_only=True)  # of the tasks that the trials come from

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits of all texts and images; of the embedded world, of the first images only.

        An image is hashed by the bytes of its file, or by its pixels.
        """
        digest = hashlib.sha256(" ".join(data_hash(trials) for trials in (self.train, self.validation)).encode())
        if self.name == DIORAMA and self.train.open_image is not None:
            for name in self.train.images.ravel()[:PROBED_IMAGES].tolist():
                digest.update(hash_image(load_image(self.train.open_image, name)) or b"")
            return digest.hexdigest()[:12]
        for trials in (self.train, self.validation):
            if trials.open_image is not None:
                digest.update(" ".join(hash_images(collect_items([trials])[0])).encode())
        return digest.hexdigest()[:12]


def check_detector_data(name: str, *, validation: str | None, images: int | None, size: str) -> Callable[[], DetectorData]:
    """Check the data of a name and its options; return a function that makes the data. Scenes are not yet sampled.

    The name is `diorama`, or any task of two images and two captions, such as bivlc or trials:FILE. The embedded world trains on
    edits of its train split and validates on edits of its val split. A task validates on a fixed random fifth of its trials; trials
    that share an image stay together. `validation` names a separate task for that.
    """
    if name == DIORAMA:
        if validation is not None:
            raise UsageError("--validation applies to a task only; diorama has its own validation split. Remove it.")
        counts = {split: _scene_count(split, images, size) for split in SCENES}
        return lambda: DetectorData(DIORAMA, *(diorama_edit_trials(split, counts[split]) for split in ("train", "val")))
    if images is not None:
        raise UsageError(f"--images applies to diorama only; {name} has a fixed number of trials. Remove it.")
    whole = _load_trials(name)
    if validation is not None:
        data = DetectorData(name, whole, _load_trials(validation), task_hashes=(data_hash(whole),))
    else:
        is_held_out = hold_out(whole)
        splits = (whole.select(np.flatnonzero(rows)) for rows in (~is_held_out, is_held_out))
        data = DetectorData(name, *splits, task_hashes=(data_hash(whole),))
    return lambda: data


def _scene_count(split: str, images: int | None, size: str) -> int:
    if images is not None and images < MIN_SCENES:
        raise UsageError(f"--images must be at least {MIN_SCENES} for a detector (got {images}).")
    count = SCENES[split] if images is None or split != "train" else images
    return min(count, world_sizes(size)[split])


def diorama_edit_trials(split: str, scenes: int) -> Trials:
    """Trials of the embedded world: a scene and a caption in camera style, and both after an edit in generator style.

    They are those of `crossmatch.diorama.trials.bivlc` for the first scenes of a split; each category has a fifth as many trials as
    there are scenes.

    >>> diorama_edit_trials("train", 5).images[0].tolist()
    ['train-00004', 'train-00004~replace-obj-0']
    """
    world = Diorama.make(split, scenes)
    return two_style_trials(world, make_edit_trials(world, "bivlc", IMAGE_EDITS))


def _load_trials(name: str) -> Trials:
    data = load_benchmark_data(name)
    if not isinstance(data, Trials) or data.shape != (2, 2):
        shape = f"trials of {data.shape[1]} images x {data.shape[0]} captions" if isinstance(data, Trials) else "no trials"
        raise UsageError(
            f"{name} has {shape}; a detector needs trials of two images and two captions, the natural ones first: diorama, bivlc, or "
            "trials:FILE."
        )
    return data


def hold_out(trials: Trials, share: float = VALIDATION_SHARE) -> BoolArray:
    """Which trials validate: random clusters with about this share of the trials. No image is in both parts."""
    clusters, sizes = trials.clusters, np.bincount(trials.clusters)
    if len(sizes) < 2:
        raise CrossmatchError(
            f"All {len(clusters):,} trials share images, so none can be held out. Name a validation task: --validation TASK"
        )
    order = np.random.default_rng(7).permutation(len(sizes))
    count = int(np.searchsorted(np.cumsum(sizes[order]), share * len(clusters))) + 1
    return np.isin(clusters, order[: min(count, len(sizes) - 1)])


# -- one neuron


@dataclass(frozen=True, eq=False)
class DetectorSample:
    """Unit vectors (N, 2, D) of N natural items and their synthetic counterparts, for training and validation."""

    train: FloatArray
    validation: FloatArray


LogRow = dict[str, float]


def fit_neuron(neuron: nn.Linear, sample: DetectorSample, epochs: int, settings: DetectorSettings) -> list[LogRow]:
    """Train by binary cross-entropy; return a log row for each epoch. The neuron ends with the weights of the best epoch.

        L = − 1/B · Σ_n  y_n log σ(w·v_n + b) + (1 − y_n) log(1 − σ(w·v_n + b)),      y = 1 for synthetic items

    The best epoch has the highest validation accuracy; the first of equal ones wins. The order of the items follows from seed and
    epoch alone. Source: miranda2024bivlc, app. E.3.
    """
    vectors = torch.from_numpy(sample.train.reshape(-1, sample.train.shape[2]).astype(np.float32))
    is_synthetic = torch.tensor([0.0, 1.0]).repeat(len(sample.train))
    optimiser = torch.optim.Adam(neuron.parameters(), settings.learning_rate, betas=(0.9, 0.999), eps=1e-8)
    best: tuple[float, dict[str, Any]] = (-math.inf, {})
    rows: list[LogRow] = []
    for epoch in track(range(epochs), "training a detector"):
        order = torch.from_numpy(np.random.default_rng([settings.seed, epoch]).permutation(len(vectors)))
        losses = []
        for items in torch.split(order, settings.batch):
            loss = F.binary_cross_entropy_with_logits(neuron(vectors[items])[:, 0], is_synthetic[items])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            losses.append(loss.item() * len(items))
        _require_finite_training(neuron, losses, epoch + 1, settings)
        accuracy = measure_accuracy(neuron, sample.validation)
        if accuracy > best[0]:
            best = accuracy, {name: values.detach().clone() for name, values in neuron.state_dict().items()}
        rows.append({"epoch": epoch + 1, "loss": sum(losses) / len(vectors), ACCURACY: 100 * accuracy})
    neuron.load_state_dict(best[1])
    return rows


def _require_finite_training(neuron: nn.Linear, losses: list[float], epoch: int, settings: DetectorSettings) -> None:
    if not (np.isfinite(losses).all() and all(bool(torch.isfinite(values).all()) for values in neuron.parameters())):
        raise CrossmatchError(
            f"Epoch {epoch}: the loss or a weight of the detector is not finite. Use a lower learning rate, such as "
            f"--set train.learning_rate={settings.learning_rate / 10:g}, or check that the model's embeddings are finite."
        )


def measure_accuracy(neuron: nn.Linear, units: FloatArray) -> float:
    """Share of items whose type is predicted right; column 0 is natural, column 1 synthetic."""
    return float(is_type_correct(log_odds(neuron, units), EVEN_LOG_ODDS).mean())


# -- both neurons, and the folder


def train_detector(
    model: str,
    output: Path | str,
    settings: DetectorSettings,
    *,
    data: str = "diorama",
    validation: str | None = None,
    images: int | None = None,
    size: str = "default",
    embedding: EmbeddingOptions | None = None,
    restart: bool = False,
    notify: Callable[[str], object] = ignore_message,
) -> TrainedDetector:
    """Train detectors of synthetic captions and, if the model embeds images, of synthetic images.

    The model stays frozen. Its embeddings are cached as `embedding` says, so an interrupted training computes none of them twice,
    and ends with the same weights. A finished detector of the same model, settings and data is loaded instead of trained; one of
    others is refused unless `restart`.

    Args:
        model: Name of a model that embeds.
        output: Folder of the trained detector.
        settings: Learning rate, batch size, epochs and seed.
        data: "diorama" or a task of two images and two captions.
        validation: A separate validation task.
        images: Training scenes of diorama.
        size: Size of diorama.
        embedding: Batch size, cache and workers of the embedding.
        restart: Replace an earlier detector in the folder.
        notify: Called with messages about the progress.
    """
    folder, embedding = Path(output), embedding or EmbeddingOptions()
    require_writable_folder(folder, restart)
    load_data = check_detector_data(data, validation=validation, images=images, size=size)  # before loading the model
    encoder = make_model(model)
    system = require_embedder(encoder, model)
    with lock_folder(folder):
        trials = load_data()
        recipe = hashlib.sha256(json.dumps([asdict(settings), system]).encode()).hexdigest()[:12]
        identity = TrainingIdentity(recipe, trials.digest, {"settings": asdict(settings), "system": system})
        if restart:
            remove_outputs(folder, "log*.csv")
        finished = _load_finished(folder, identity, model)
        if finished is not None:
            notify(f"{folder} contains the finished detector of this model and these data; there is nothing left to train.")
            return finished
        sides = ("text", "image") if isinstance(encoder, ImageEncoder) else ("text",)
        samples = {side: _embed_sample(side, encoder, trials, embedding) for side in sides}
        config = DetectorConfig(model, system, **{side: sample.train.shape[2] for side, sample in samples.items()})
        detector = TrainedDetector(config, encoder, embedding=embedding)
        with reproducible(settings.seed):
            rows = {
                side: fit_neuron(getattr(detector.net, side), sample, settings.epochs(side), settings)
                for side, sample in samples.items()
            }
        detector.recipe = {
            "name": FAMILY, "hash": recipe, "data": trials.name, "data_hash": identity.data, "trials": list(trials.task_hashes),
            "settings": asdict(settings), "trained_on": len(trials.train.ids), "validated_with": len(trials.validation.ids),
            "validation": {side: max(row[ACCURACY] for row in log) for side, log in rows.items()},
        }  # fmt: skip
        _save(detector, folder, rows)
    return detector


def _embed_sample(side: str, encoder: object, data: DetectorData, embedding: EmbeddingOptions) -> DetectorSample:
    embed = {"text": embed_captions, "image": embed_images}[side]
    return DetectorSample(*(embed(encoder, trials, embedding) for trials in (data.train, data.validation)))


def _load_finished(folder: Path, identity: TrainingIdentity, model: str) -> TrainedDetector | None:
    """Load the finished detector of a folder, if it is complete; one of another model, settings or data is refused."""
    description = read_json_object(folder / "model.json") or {}
    family, recipe, config = description.get("family"), description.get("recipe"), description.get("config", {})
    if family is None or not isinstance(recipe, dict) or not isinstance(config, dict):
        return None
    saved_settings = {"settings": recipe.get("settings", {}), "system": config.get("system")}
    saved = TrainingIdentity(str(recipe.get("hash")), str(recipe.get("data_hash")), saved_settings)
    if family != FAMILY:
        raise CrossmatchError(f"-o {folder}: the folder contains a model of another family ({family}). Choose another folder.")
    require_same_training(saved, identity, folder, "the finished detector")
    try:
        return load_detector(folder, model)
    except CrossmatchError:
        return None


def _save(detector: TrainedDetector, folder: Path, rows: dict[str, list[LogRow]]) -> None:
    for side, log in rows.items():
        write_log(folder / f"log-{side}.csv", log)
    with explain_write_errors(f"The detector cannot be written to {folder}", " to resume: embeddings are cached"):
        detector.save(folder)
