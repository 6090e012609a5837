"""Models on precomputed region features: their mean, or a trained model of the zoo.

regions:FILE            the mean over the regions, for image-to-image tasks
regions:FILE+FOLDER     the model in the folder (`crossmatch train`) with these regions

The model may also ground texts in the regions, for TIGEr, or write captions. Images are then known by their ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.arrays import FloatArray, IdArray, IntArray
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.grounding import Grounding
from crossmatch.data.io.progress import track
from crossmatch.data.loaded_data import Retrieval
from crossmatch.data.rated_pairs import Similarity
from crossmatch.data.scores import Embeddings, Matrix
from crossmatch.data.trials import Trials, TrialScores
from crossmatch.models.decoding_options import DecodingOptions
from crossmatch.models.distinct_items import collect_items
from crossmatch.models.regions.feature_files import RegionFile

IMAGES_PER_BLOCK = 512  # whose regions are in memory at a time: 150 MB of 36 regions with 2,048 numbers
TRIALS_PER_BLOCK = 8  # compared at a time; with more, most compared pairs would belong to no trial


def average_regions(features: NDArray[np.float32], is_region: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Average the regions of each image, without padding: (N, K, F) to (N, F).

    >>> average_regions(np.float32([[[1, 2], [3, 4], [9, 9]]]), np.array([[True, True, False]]))
    array([[2., 3.]], dtype=float32)
    """
    total = (features * is_region[:, :, None]).sum(axis=1, dtype=np.float64)
    return np.asarray(total / is_region.sum(axis=1, keepdims=True), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class RegionModel:
    """Scores from regions in a file.

    A model with `embed_regions(regions)` and `embed_texts(texts)` embeds both in one space; a model with `compare(regions, texts)`
    scores each image with each text. Without a model there are embeddings of images only.
    """

    file: RegionFile
    model: Any = field(default=None, repr=False)
    name: str = ""  # of the model's folder

    def __post_init__(self) -> None:
        if self.model is None:
            return
        if not (self._is_dual_encoder or hasattr(self.model, "compare")):
            raise UsageError(
                f"{self.name} contains a {type(self.model).__name__}, which cannot compare regions with texts. Name the folder of "
                "a zoo model, such as one trained by crossmatch train scan-t2i -o FOLDER."
            )
        expected = getattr(getattr(self.model, "extractor", None), "dimensions", None)
        if expected is not None and expected != self.file.dimensions:
            raise CrossmatchError(
                f"{self.file.path} has {self.file.dimensions} numbers for each region; {self.name} was trained with {expected}. "
                "Use the features that it was trained with."
            )

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def signature(self) -> str:
        method = "mean" if self.model is None else f"model:{getattr(self.model, 'signature', self.name)}"
        return f"regions:{self.file.path.name}|{self.file.layout}:{self.file.hash}|{method}"

    @property
    def longest(self) -> int:
        """The number of tokens that the model reads."""
        return int(getattr(self.model, "longest", 0))

    def truncated(self, texts: list[str]) -> NDArray[np.bool_]:
        """Which texts the model truncates; none if it does not say or there is no model."""
        truncated = getattr(self.model, "truncated", None)
        return np.zeros(len(texts), dtype=bool) if truncated is None else np.asarray(truncated(texts), dtype=bool)

    @property
    def _is_dual_encoder(self) -> bool:
        return hasattr(self.model, "embed_regions") and hasattr(self.model, "embed_texts")

    def scores(self, data: Retrieval | Similarity | Trials) -> Embeddings | Matrix | TrialScores:
        """Embeddings or a score matrix for a collection; for trials, the scores within each trial.

        Trials with an image that is not in the file stay unanswered, unless that holds for all trials.
        """
        if not isinstance(data, Trials):
            return self._score_collection(data.collection)
        if self.model is None:
            raise CrossmatchError(
                f"regions:{self.path} cannot compare images with texts, which trials need. Add the folder of a trained model: "
                f"regions:{self.path}+FOLDER"
            )
        is_available = (self.file.find_rows(data.images.ravel()) >= 0).reshape(data.images.shape).all(axis=1)
        trials = data.select(np.flatnonzero(is_available)) if is_available.any() else data
        return TrialScores(
            trials.ids, self._score_by_embeddings(trials) if self._is_dual_encoder else self._score_by_comparison(trials)
        )

    # collections

    def _score_collection(self, collection: Collection) -> Embeddings | Matrix:
        if self.model is None:
            return Embeddings(collection.image_ids, self._embed_images(collection.image_ids), None, None)
        texts, member = np.unique(np.asarray(collection.texts()), return_inverse=True)
        if self._is_dual_encoder:
            caption_vectors = np.asarray(self.model.embed_texts(texts.tolist()))[member.ravel()]
            similarity = getattr(self.model, "similarity", "cosine")
            return Embeddings(
                collection.image_ids, self._embed_images(collection.image_ids), collection.caption_ids, caption_vectors, similarity
            )
        store = self.file.select(collection.image_ids)
        values = np.empty((len(store), len(texts)), dtype=np.float32)
        for block in _blocks(len(store), "comparing regions"):
            values[block] = self.model.compare(store.take(block), texts.tolist())
        return Matrix(collection.image_ids, collection.caption_ids, values[:, member.ravel()])

    def _embed_images(self, ids: IdArray) -> NDArray[Any]:
        """Embed images: one vector per image."""
        store = self.file.select(ids)
        blocks = _blocks(len(store), "reading regions")
        if self.model is None:
            return np.concatenate([average_regions(*self.file.read_rows(store.rows[block])[:2]) for block in blocks])
        return np.concatenate([np.asarray(self.model.embed_regions(store.take(block))) for block in blocks])

    # trials

    def _score_by_embeddings(self, trials: Trials) -> FloatArray:
        items, ((image, caption),) = collect_items([trials])
        embeddings = self._score_collection(items)
        assert isinstance(embeddings, Embeddings)
        rows, columns = np.broadcast_arrays(image[:, None, :], caption[:, :, None])
        return embeddings.score_pairs(rows.ravel(), columns.ravel()).reshape(rows.shape)

    def _score_by_comparison(self, trials: Trials) -> FloatArray:
        """Score all images with all captions of some trials at a time, and select the pairs of each trial."""
        self.file.require_rows(trials.images.ravel())
        out = np.empty((len(trials.ids), *trials.shape))
        for start in track(range(0, len(trials.ids), TRIALS_PER_BLOCK), "comparing regions"):
            images, image = np.unique(trials.images[start : start + TRIALS_PER_BLOCK], return_inverse=True)
            texts, caption = np.unique(trials.captions[start : start + TRIALS_PER_BLOCK], return_inverse=True)
            count = len(trials.ids[start : start + TRIALS_PER_BLOCK])
            scores = np.asarray(self.model.compare(self.file.select(images).take(np.arange(len(images))), texts.tolist()))
            out[start : start + count] = scores[image.reshape(count, 1, -1), caption.reshape(count, -1, 1)]
        return out


@dataclass(frozen=True, eq=False)
class RegionGrounder(RegionModel):
    """Scores from regions in a file by a model that also grounds texts in them."""

    inputs = "ids"

    def ground(self, images: Sequence[str], texts: Sequence[str]) -> Grounding:
        """Ground text n in each region of the image with id n; see `crossmatch.data.grounding.Grounder`."""
        if len(images) != len(texts):
            raise CrossmatchError(f"ground got {len(images)} images and {len(texts)} texts; pass equal numbers.")
        ids, position = np.unique(np.asarray(images, dtype=np.str_), return_inverse=True)
        regions = self.file.select(ids).take(np.arange(len(ids)))
        grounding: Grounding = self.model.ground_regions(regions, position.ravel(), texts)
        return grounding


@dataclass(frozen=True, eq=False)
class RegionCaptioner(RegionModel):
    """Scores from regions in a file by a model that also writes captions from them."""

    inputs = "ids"

    def caption(self, images: Sequence[str], **decoding: Any) -> Sequence[str]:
        """Write a caption for the image of each id; `decoding` as for the model."""
        captions: Sequence[str] = self.model.caption_regions(self.file.select(images).take(np.arange(len(images))), **decoding)
        return captions

    @property
    def default_decoding(self) -> DecodingOptions | None:
        return getattr(self.model, "default_decoding", None)

    def cut_short(self, captions: Sequence[str]) -> NDArray[np.bool_]:
        """Which captions reached the maximum length without an end."""
        return np.asarray(self.model.cut_short(captions), dtype=bool)

    def filled(self, captions: Sequence[str]) -> NDArray[np.bool_]:
        """Which captions ended exactly at the maximum length."""
        return np.asarray(self.model.filled(captions), dtype=bool)


def _blocks(n: int, label: str) -> Iterator[IntArray]:
    """Yield blocks of images, so that the regions of all images need not be in memory."""
    for start in track(range(0, n, IMAGES_PER_BLOCK), label):
        yield np.arange(start, min(start + IMAGES_PER_BLOCK, n))


def _split_argument(argument: str) -> tuple[Path, Path | None]:
    """Split `FILE+FOLDER` at the last plus sign after an existing file."""
    if Path(argument).exists():
        return Path(argument), None
    for plus in (n for n in range(len(argument) - 1, 0, -1) if argument[n] == "+"):
        if Path(argument[:plus]).exists():
            if not (Path(argument[plus + 1 :]) / "model.json").is_file():
                raise UsageError(
                    f"there is no trained model in {argument[plus + 1 :]!r}. Train one: crossmatch train scan-t2i -o FOLDER"
                )
            return Path(argument[:plus]), Path(argument[plus + 1 :])
    raise UsageError(f"there is no file {argument.partition('+')[0]}. Check the path of regions:FILE or regions:FILE+FOLDER.")


def make_region_model(argument: str) -> RegionModel:
    """Make the model of `regions:FILE[+FOLDER]`."""
    from crossmatch.models import make_model

    if not argument:
        raise UsageError("regions needs a file of region features, as in regions:testall_ims.npy+runs/scan")
    path, folder = _split_argument(argument)
    file = RegionFile.open(path)
    if folder is None:
        return RegionModel(file)
    model = make_model(str(folder))
    abilities = {"ground_regions": RegionGrounder, "caption_regions": RegionCaptioner}
    model_type = next((region_type for method, region_type in abilities.items() if hasattr(model, method)), RegionModel)
    return model_type(file, model, folder.name)
