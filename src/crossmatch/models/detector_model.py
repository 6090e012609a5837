"""A trained detector of synthetic images and captions: a sigmoid neuron over each side of a frozen dual encoder, as a model folder.

It answers trials by the protocol of BiVLC's section 5.3 (`detector`), and so shows how far a benchmark gets one that compares
nothing with anything.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import FloatArray
from crossmatch.core.benchmark import data_hash
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.core.trials import TrialOutcomes, Trials, TrialScores
from crossmatch.models.abilities import ImageEncoder, Source, TextEncoder, known_by
from crossmatch.models.cache import BATCH, ScoreCache, require_pictures
from crossmatch.models.checkpoint import require_finite
from crossmatch.models.detector import Detected, outcomes_of_detector
from crossmatch.models.embedding_cache import kept_embeddings
from crossmatch.models.folder import load_folder, save_folder, weights_of
from crossmatch.models.pair_cache import items_of
from crossmatch.models.pipeline import image_vectors, text_vectors

try:
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

FAMILY = "detector"
EVEN = 0.0  # the log-odds of p = 0.5


@dataclass(frozen=True)
class Embedding:
    """How the frozen encoder is asked: items at a time, where vectors are kept, threads that open pictures."""

    batch: int = BATCH
    cache: ScoreCache | None = field(default=None, repr=False)
    workers: int | None = None


# -- what the neurons look at


def unit(vectors: NDArray[Any]) -> FloatArray:
    """Vectors at unit length, in float64; one of zeros stays as it is.

    >>> unit(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8], [0. , 0. ]])
    """
    given = np.asarray(vectors, dtype=np.float64)
    return np.asarray(given / np.maximum(np.linalg.norm(given, axis=-1, keepdims=True), np.finfo(np.float64).tiny))


def text_units(encoder: Any, trials: Trials, asking: Embedding) -> FloatArray:
    """The captions of trials as unit vectors (N, C, D)."""
    distinct, at = np.unique(trials.captions, return_inverse=True)
    with kept_embeddings(asking.cache, known_by(encoder)) as shelf:
        found = unit(text_vectors(encoder, distinct.tolist(), batch=asking.batch, shelf=shelf))
    return found[at.reshape(trials.captions.shape)]


def image_units(encoder: Any, trials: Trials, asking: Embedding) -> FloatArray:
    """The images of trials as unit vectors (N, I, D)."""
    items, ((at, _),) = items_of([trials])
    require_pictures(items)
    with kept_embeddings(asking.cache, known_by(encoder)) as shelf:
        found = unit(image_vectors(encoder, items, batch=asking.batch, workers=asking.workers, shelf=shelf))
    return found[at]


def require_embedder(model: object, name: str) -> str:
    """The signature of a model that a detector can be trained over; any other is refused."""
    if not isinstance(model, TextEncoder) or isinstance(model, Source):
        raise WrongWords(
            f"{name} embeds no texts, and a detector looks at embeddings. Name a model that embeds (see `crossmatch models`)."
        )
    if hasattr(model, "fitted"):
        raise WrongWords(
            f"{name} is fitted to the texts of each collection, so that a vector means something else in every one. Take another "
            "model, such as a dual encoder."
        )
    system = known_by(model) or getattr(model, "signature", None)
    if not isinstance(system, str) or not system.strip():
        raise WrongWords(
            f"{name} has no signature, by which the detector knows it again. Give it one that changes with its weights."
        )
    return system


# -- the neurons


@dataclass(frozen=True)
class DetectorConfig:
    """What must be known to build it again: the frozen encoder by name and signature, and the lengths of its vectors."""

    embedder: str
    system: str
    text: int
    image: int = 0  # 0: it detects texts alone
    vocabulary: tuple[str, ...] = ("natural", "synthetic")  # what it can say


class Neurons(nn.Module):
    """One neuron for each side: the log-odds of being synthetic, log p/(1 − p) = w·v + b, from a unit vector v.

    Both begin at zero, where nothing is known: the paper does not say where, and its loss has one minimum.
    Source: miranda2024bivlc, sec. 5.3 and app. E.3.
    """

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.text = nn.Linear(config.text, 1)
        self.image = nn.Linear(config.image, 1) if config.image else None
        for values in self.parameters():
            nn.init.zeros_(values)


def log_odds(neuron: nn.Linear, units: FloatArray) -> FloatArray:
    """w·v + b for each vector, in float64, so that neither batches nor a sigmoid near 1 make two items equal.

    >>> import torch
    >>> neuron = nn.Linear(2, 1)
    >>> _ = torch.nn.init.constant_(neuron.weight, 2.0), torch.nn.init.constant_(neuron.bias, -1.0)
    >>> log_odds(neuron, np.array([[1.0, 0.0], [0.0, -1.0]]))
    array([ 1., -3.])
    """
    weight, bias = (_doubles(values) for values in (neuron.weight[0], neuron.bias))
    return np.asarray((units * weight).sum(axis=-1) + bias[0])


def _doubles(values: Tensor) -> FloatArray:
    return np.asarray(values.detach().numpy(), dtype=np.float64)


class TrainedDetector:
    """Answers trials of two captions with one image or two, from the log-odds of being synthetic of each item by itself.

    With two images by `detector.detector_outcomes`; with one, the caption that is less likely synthetic is taken, as all images are
    natural there (miranda2024bivlc, sec. 5.3, for SugarCrepe). Log-odds order items as probabilities do, with 0 for one half.
    """

    def __init__(
        self,
        config: DetectorConfig,
        embedder: object,
        recipe: Mapping[str, Any] | None = None,
        asking: Embedding | None = None,
    ) -> None:
        self.config, self.embedder, self.recipe = config, embedder, dict(recipe or {})
        self.net = Neurons(config).eval()
        self.asking = asking or Embedding()
        self._told: dict[tuple[str, bytes], tuple[object, Detected]] = {}
        for name in ("truncated", "longest"):  # what must be said of texts is what the encoder says
            if hasattr(embedder, name):
                setattr(self, name, getattr(embedder, name))

    def settled(self, batch: int, cache: ScoreCache | None, workers: int | None) -> TrainedDetector:
        """The same, which embeds in this way; what one has detected, the other knows."""
        other = copy.copy(self)
        other.asking = Embedding(batch, cache, workers)
        return other

    def detect(self, trials: Trials) -> Detected:
        """The log-odds of being synthetic of the captions and, where there are two, of the images of each trial."""
        key = data_hash(trials), trials.ids.tobytes()
        if key not in self._told or self._told[key][0] is not trials.open_image:
            text = log_odds(self.net.text, text_units(self.embedder, trials, self.asking))
            image = None
            if trials.shape[1] == 2 and self.net.image is not None:
                image = log_odds(self.net.image, image_units(self.embedder, trials, self.asking))
            self._told[key] = trials.open_image, Detected(text, image, trials.ids)
        return self._told[key][1]

    def scores(self, data: object) -> TrialScores | TrialOutcomes:
        """What comes of trials; any other kind of task is refused."""
        if not isinstance(data, Trials) or data.shape not in ((2, 1), (2, 2)):
            raise CrossmatchError(
                "a detector answers trials of two captions with one image or two images; this task is of another kind. Take bivlc "
                "or sugarcrepe, or diorama's."
            )
        found = self.detect(data)
        if data.shape == (2, 1):
            return TrialScores(data.ids, -found.text[:, :, None])
        if found.image is None:
            raise CrossmatchError(
                f"this detector was trained over {self.config.embedder}, which embeds texts alone, and these trials have two "
                "images. Train one over a model that embeds both: crossmatch train detector -m MODEL"
            )
        return TrialOutcomes(data.ids, outcomes_of_detector(found.text, found.image, EVEN))

    def notes_on(self, trials: Trials) -> tuple[str, ...]:
        """How often the type of an item is predicted right (miranda2024bivlc, tab. 5), and whether it knows these trials."""
        shares = self.detect(trials).accuracies(EVEN).items()
        known = data_hash(trials) in self.recipe.get("trials", ())
        own = ("the detector was trained on some of these very trials",) if known else ()
        return (*(f"{what}: {100 * share:.2f} % right" for what, share in shares), *own)

    @property
    def weights(self) -> str:
        """Twelve hexadecimal digits of the neurons' weights."""
        return weights_of(self.net)

    @property
    def signature(self) -> str:
        """The system line: the neurons, and the encoder below them."""
        return f"detector|weights:{self.weights}|threshold:0.5|over:{self.config.system}"

    def save(self, folder: Path) -> None:
        """Write the detector as a folder; its encoder stays where it is."""
        save_folder(self, FAMILY, folder)


def load(folder: Path, embedder: str | None = None) -> TrainedDetector:
    """The detector in this folder, over the encoder that it names; `embedder` says where that is, if it has moved."""
    from crossmatch.models import make_model

    def build(config: Mapping[str, Any], recipe: Mapping[str, Any]) -> TrainedDetector:
        return TrainedDetector(DetectorConfig(**config), None, recipe)

    read = load_folder(folder, FAMILY, "detector", build)
    name = embedder or read.config.embedder
    try:
        model = make_model(name)
    except CrossmatchError as error:
        raise type(error)(
            f"{folder} is a detector over {read.config.embedder}: {error} Or say where it is now: -m {FAMILY}:{folder}+MODEL"
        ) from None
    found = require_embedder(model, name)
    if found != read.config.system:
        raise CrossmatchError(
            f"{folder} was trained over {read.config.system!r}, but {name} is {found!r}: to its neurons, other weights mean "
            f"nothing. Name that model (-m {FAMILY}:{folder}+MODEL), or train again: crossmatch train detector -m {name} -o FOLDER"
        )
    made = TrainedDetector(read.config, model, read.recipe)
    made.net.load_state_dict(read.net.state_dict())
    require_finite(made.net, str(folder))
    return made


def trained_detector(rest: str) -> TrainedDetector:
    """The detector of `FOLDER` or `FOLDER+MODEL`, as it follows the colon of its name."""
    folder, plus, embedder = (rest, "", "") if (Path(rest) / "model.json").is_file() else rest.partition("+")
    if plus and not embedder:
        raise WrongWords(f"{FAMILY}:{rest} names no model after the +. Say where the encoder is: {FAMILY}:{folder}+MODEL")
    return load(Path(folder), embedder or None)


def sides_of(model: object) -> Sequence[str]:
    """The sides of an encoder that a detector can look at."""
    return ("text", "image") if isinstance(model, ImageEncoder) else ("text",)
