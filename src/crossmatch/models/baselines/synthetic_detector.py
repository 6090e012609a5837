"""A trained detector of synthetic images and captions: a sigmoid neuron for each side of a frozen dual encoder.

It answers trials by the protocol of BiVLC, section 5.3 (`precomputed_synthetic_detector`), without comparing images with captions.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.arrays import FloatArray
from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.loaded_data import data_hash
from crossmatch.data.trials import TrialOutcomes, Trials, TrialScores
from crossmatch.models.abilities import ScoreSource, TextEncoder, cache_signature
from crossmatch.models.baselines.precomputed_synthetic_detector import SyntheticProbabilities, make_detector_outcomes
from crossmatch.models.cache import Cache
from crossmatch.models.cache.cross_encoder_scores import BATCH
from crossmatch.models.cache.embeddings import open_embeddings
from crossmatch.models.distinct_items import collect_items, require_images
from crossmatch.models.embedding_pipeline import embed_images_of, embed_texts_of
from crossmatch.models.files.checkpoint_files import require_finite
from crossmatch.models.files.model_folder import FolderModel, load_model_folder

try:
    from torch import nn
except ImportError as absent:
    raise MissingDependencyError("PyTorch", "models") from absent

FAMILY = "detector"
EVEN_LOG_ODDS = 0.0  # of p = 0.5


@dataclass(frozen=True)
class EmbeddingOptions:
    """How the frozen encoder is run: batch size, cache, and threads that open images."""

    batch: int = BATCH
    cache: Cache | None = field(default=None, repr=False)
    workers: int | None = None


# -- the inputs of the neurons


def normalise(vectors: NDArray[Any]) -> FloatArray:
    """Scale vectors to unit length, in float64; zero vectors stay zero.

    >>> normalise(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8], [0. , 0. ]])
    """
    values = np.asarray(vectors, dtype=np.float64)
    return np.asarray(values / np.maximum(np.linalg.norm(values, axis=-1, keepdims=True), np.finfo(np.float64).tiny))


def embed_captions(encoder: Any, trials: Trials, embedding: EmbeddingOptions) -> FloatArray:
    """Embed the captions of trials as unit vectors (N, C, D)."""
    distinct, positions = np.unique(trials.captions, return_inverse=True)
    with open_embeddings(embedding.cache, cache_signature(encoder)) as cached:
        vectors = normalise(embed_texts_of(encoder, distinct.tolist(), batch=embedding.batch, cache=cached))
    return vectors[positions.reshape(trials.captions.shape)]


def embed_images(encoder: Any, trials: Trials, embedding: EmbeddingOptions) -> FloatArray:
    """Embed the images of trials as unit vectors (N, I, D)."""
    items, ((positions, _),) = collect_items([trials])
    require_images(items)
    with open_embeddings(embedding.cache, cache_signature(encoder)) as cached:
        vectors = normalise(embed_images_of(encoder, items, batch=embedding.batch, workers=embedding.workers, cache=cached))
    return vectors[positions]


def require_embedder(model: object, name: str) -> str:
    """Return the signature of a model; raise an error if a detector cannot use its embeddings."""
    if not isinstance(model, TextEncoder) or isinstance(model, ScoreSource):
        raise UsageError(f"{name} embeds no texts, which a detector needs. Use a model that embeds (see `crossmatch list models`).")
    if hasattr(model, "fitted"):
        raise UsageError(
            f"{name} is fitted to the texts of each collection, so its vectors differ between collections. Use another model, such "
            "as a dual encoder."
        )
    system = cache_signature(model) or getattr(model, "signature", None)
    if not isinstance(system, str) or not system.strip():
        raise UsageError(
            f"{name} has no signature, by which the detector identifies it. Give it one that changes with its weights."
        )
    return system


# -- the neurons


@dataclass(frozen=True)
class DetectorConfig:
    """The configuration in model.json: name and signature of the frozen encoder, and the lengths of its vectors."""

    embedder: str
    system: str
    text: int
    image: int = 0  # 0: it detects texts only
    vocabulary: tuple[str, ...] = ("natural", "synthetic")  # its classes


class DetectorNet(nn.Module):
    """One neuron for each side: the log-odds of being synthetic, log p/(1 − p) = w·v + b, from a unit vector v.

    The weights begin at zero: the paper gives no initialisation, and the loss has one minimum.
    Source: miranda2024bivlc, sec. 5.3 and app. E.3.
    """

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.text = nn.Linear(config.text, 1)
        self.image = nn.Linear(config.image, 1) if config.image else None
        for values in self.parameters():
            nn.init.zeros_(values)


def log_odds(neuron: nn.Linear, units: FloatArray) -> FloatArray:
    """Return w·v + b for each vector, in float64, so that neither batches nor a sigmoid near 1 make two items equal.

    >>> import torch
    >>> neuron = nn.Linear(2, 1)
    >>> _ = torch.nn.init.constant_(neuron.weight, 2.0), torch.nn.init.constant_(neuron.bias, -1.0)
    >>> log_odds(neuron, np.array([[1.0, 0.0], [0.0, -1.0]]))
    array([ 1., -3.])
    """
    weight, bias = (values.detach().double().numpy() for values in (neuron.weight[0], neuron.bias))
    return np.asarray((units * weight).sum(axis=-1) + bias[0])


class TrainedDetector(FolderModel):
    """Answers trials of two captions with one or two images, from the log-odds of each item of being synthetic.

    Trials with two images are decided by `decide_detector_wins`. With one image, the caption that is less likely synthetic is
    chosen, because all images are natural (miranda2024bivlc, sec. 5.3, for SugarCrepe). Log-odds order items as probabilities do. The
    encoder is not part of the saved folder.
    """

    family = FAMILY
    net: DetectorNet

    def __init__(
        self,
        config: DetectorConfig,
        embedder: object,
        recipe: Mapping[str, Any] | None = None,
        embedding: EmbeddingOptions | None = None,
    ) -> None:
        self.config, self.embedder, self.recipe = config, embedder, dict(recipe or {})
        self.net = DetectorNet(config).eval()
        self.embedding = embedding or EmbeddingOptions()
        self._detections: dict[tuple[str, bytes], tuple[object, SyntheticProbabilities]] = {}
        for name in ("truncated", "longest"):  # reports on truncated texts are those of the encoder
            if hasattr(embedder, name):
                setattr(self, name, getattr(embedder, name))

    def settled(self, batch: int, cache: Cache | None, workers: int | None) -> TrainedDetector:
        """Return the same detector with other embedding options; both share the results so far."""
        detector = copy.copy(self)
        detector.embedding = EmbeddingOptions(batch, cache, workers)
        return detector

    def detect(self, trials: Trials) -> SyntheticProbabilities:
        """Return the log-odds of being synthetic of the captions and, if a trial has two, of the images."""
        key = data_hash(trials), trials.ids.tobytes()
        if key not in self._detections or self._detections[key][0] is not trials.open_image:
            text = log_odds(self.net.text, embed_captions(self.embedder, trials, self.embedding))
            image = None
            if trials.shape[1] == 2 and self.net.image is not None:
                image = log_odds(self.net.image, embed_images(self.embedder, trials, self.embedding))
            self._detections[key] = trials.open_image, SyntheticProbabilities(text, image, trials.ids)
        return self._detections[key][1]

    def scores(self, data: object) -> TrialScores | TrialOutcomes:
        """The answers to trials; other tasks are refused."""
        if not isinstance(data, Trials) or data.shape not in ((2, 1), (2, 2)):
            raise CrossmatchError(
                "a detector answers trials of two captions with one or two images; this task is of another kind. Use bivlc, "
                "sugarcrepe, or those of diorama."
            )
        detection = self.detect(data)
        if data.shape == (2, 1):
            return TrialScores(data.ids, -detection.text[:, :, None])
        if detection.image is None:
            raise CrossmatchError(
                f"this detector was trained on {self.config.embedder}, which embeds texts only, but these trials have two images. "
                "Train one on a model that embeds both: crossmatch train detector --begin MODEL"
            )
        return TrialOutcomes(data.ids, make_detector_outcomes(detection.text, detection.image, EVEN_LOG_ODDS))

    def notes_on(self, trials: Trials) -> tuple[str, ...]:
        """How often the type of an item is predicted correctly (miranda2024bivlc, tab. 5), and whether it was trained on them."""
        shares = self.detect(trials).accuracies(EVEN_LOG_ODDS).items()
        was_trained_on = data_hash(trials) in self.recipe.get("trials", ())
        warning = ("the detector was trained on some of these trials",) if was_trained_on else ()
        return (*(f"{side}: {100 * share:.2f} % right" for side, share in shares), *warning)

    @property
    def signature(self) -> str:
        """The signature of the neurons, and that of the encoder."""
        return f"detector|weights:{self.weights}|threshold:0.5|over:{self.config.system}"


def load_detector(folder: Path, embedder: str | None = None) -> TrainedDetector:
    """Load the detector of a folder; `embedder` names the encoder, if it is no longer the one in model.json."""
    from crossmatch.models import make_model

    def build(config: Mapping[str, Any], recipe: Mapping[str, Any]) -> TrainedDetector:
        return TrainedDetector(DetectorConfig(**config), None, recipe)

    saved = load_model_folder(folder, FAMILY, "detector", build)
    name = embedder or saved.config.embedder
    try:
        model = make_model(name)
    except CrossmatchError as error:
        raise type(error)(
            f"{folder} is a detector on {saved.config.embedder}: {error} Or name the encoder: -m {FAMILY}:{folder}+MODEL"
        ) from None
    system = require_embedder(model, name)
    if system != saved.config.system:
        raise CrossmatchError(
            f"{folder} was trained on {saved.config.system!r}, but {name} is {system!r}, whose embeddings differ. Name the right "
            f"model (-m {FAMILY}:{folder}+MODEL), or train again: crossmatch train detector --begin {name} -o FOLDER"
        )
    detector = TrainedDetector(saved.config, model, saved.recipe)
    detector.net.load_state_dict(saved.net.state_dict())
    require_finite(detector.net, str(folder))
    return detector


def make_trained_detector(argument: str) -> TrainedDetector:
    """Make the detector of `FOLDER` or `FOLDER+MODEL`."""
    folder, has_model, embedder = (argument, "", "") if (Path(argument) / "model.json").is_file() else argument.partition("+")
    if has_model and not embedder:
        raise UsageError(f"{FAMILY}:{argument} names no model after the +. Name the encoder: {FAMILY}:{folder}+MODEL")
    return load_detector(Path(folder), embedder or None)
