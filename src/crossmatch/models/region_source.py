"""Images stand for the region features that a file has for them: compared by their mean, or by a trained model of the zoo.

regions:FILE            the mean over the regions, for image-to-image tasks
regions:FILE+FOLDER     what the model in the folder (`crossmatch train`) makes of regions and texts
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import FloatArray, IdArray, IntArray
from crossmatch.core.benchmark import Retrieval
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.pairs import Similarity
from crossmatch.core.progress import track
from crossmatch.core.scores import Embeddings, Matrix
from crossmatch.core.trials import Trials, TrialScores
from crossmatch.models.pair_cache import items_of
from crossmatch.models.region_files import RegionFile

IMAGES = 512  # whose regions are in memory at once: 150 MB of 36 regions with 2,048 numbers
TRIALS = 8  # that are compared at once; more would compare many pairs that no trial asks for


def mean_region(features: NDArray[np.float32], real: NDArray[np.bool_]) -> NDArray[np.float32]:
    """The mean over the real regions of each image: (N, K, F) to (N, F).

    >>> mean_region(np.float32([[[1, 2], [3, 4], [9, 9]]]), np.array([[True, True, False]]))
    array([[2., 3.]], dtype=float32)
    """
    total = (features * real[:, :, None]).sum(axis=1, dtype=np.float64)
    return np.asarray(total / real.sum(axis=1, keepdims=True), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class RegionSource:
    """Scores from regions in a file.

    A model with `embed_regions(regions)` and `embed_texts(texts)` puts both into one space; one with `compare(regions, texts)`
    compares each image with each text. Without a model there are vectors of images alone.
    """

    file: RegionFile
    model: Any = field(default=None, repr=False)
    name: str = ""  # of the model's folder

    @classmethod
    def from_name(cls, rest: str, load: Callable[[Path], object] | None = None) -> RegionSource:
        """`FILE` or `FILE+FOLDER`; `load` gives the model of a folder."""
        if not rest:
            raise WrongWords("regions needs a file of region features, as in regions:testall_ims.npy+runs/scan")
        path, folder = _parts(rest)
        file = RegionFile.open(path)
        return cls(file) if folder is None else cls(file, (load or _trained)(folder), folder.name)

    def __post_init__(self) -> None:
        if self.model is None:
            return
        if not (self._embeds or hasattr(self.model, "compare")):
            raise WrongWords(
                f"{self.name} holds a {type(self.model).__name__}, which cannot compare regions with texts. Name the folder of "
                "a model of the zoo, as crossmatch train scan-t2i -o FOLDER makes."
            )
        expected = getattr(getattr(self.model, "eyes", None), "dimensions", None)
        if expected is not None and expected != self.file.dimensions:
            raise CrossmatchError(
                f"{self.file.path} has {self.file.dimensions} numbers for each region; {self.name} was trained with {expected}. "
                "Name the features that it was trained with."
            )

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def signature(self) -> str:
        how = "mean" if self.model is None else f"model:{getattr(self.model, 'signature', self.name)}"
        return f"regions:{self.file.path.name}|{self.file.layout}:{self.file.hash}|{how}"

    @property
    def longest(self) -> int:
        """How many tokens of a text the model reads."""
        return int(getattr(self.model, "longest", 0))

    def truncated(self, texts: list[str]) -> NDArray[np.bool_]:
        """Which texts the model cuts off; none, where it does not say or there is no model."""
        cut = getattr(self.model, "truncated", None)
        return np.zeros(len(texts), dtype=bool) if cut is None else np.asarray(cut(texts), dtype=bool)

    @property
    def _embeds(self) -> bool:
        return hasattr(self.model, "embed_regions") and hasattr(self.model, "embed_texts")

    def scores(self, data: Retrieval | Similarity | Trials) -> Embeddings | Matrix | TrialScores:
        """Embeddings or a matrix for a collection; for trials, the scores within each of them.

        Trials with an image that the file does not have are left unanswered, unless they all are.
        """
        if not isinstance(data, Trials):
            return self._of(data.collection)
        if self.model is None:
            raise CrossmatchError(
                f"regions:{self.path} alone compares no images with texts, which every trial needs. Add the folder of a trained "
                f"model: regions:{self.path}+FOLDER"
            )
        there = (self.file.find(data.images.ravel()) >= 0).reshape(data.images.shape).all(axis=1)
        trials = data.chosen(np.flatnonzero(there)) if there.any() else data
        return TrialScores(trials.ids, self._embedded(trials) if self._embeds else self._compared(trials))

    # collections

    def _of(self, held: Collection) -> Embeddings | Matrix:
        if self.model is None:
            return Embeddings(held.image_ids, self._images(held.image_ids), None, None)
        texts, member = np.unique(np.asarray(held.texts()), return_inverse=True)
        if self._embeds:
            said = np.asarray(self.model.embed_texts(texts.tolist()))[member.ravel()]
            similarity = getattr(self.model, "similarity", "cosine")
            return Embeddings(held.image_ids, self._images(held.image_ids), held.caption_ids, said, similarity)
        store = self.file.as_store(held.image_ids)
        values = np.empty((len(store), len(texts)), dtype=np.float32)
        for at in _blocks(len(store), "comparing regions"):
            values[at] = self.model.compare(store.take(at), texts.tolist())
        return Matrix(held.image_ids, held.caption_ids, values[:, member.ravel()])

    def _images(self, ids: IdArray) -> NDArray[Any]:
        """A vector for each image."""
        store = self.file.as_store(ids)
        blocks = _blocks(len(store), "reading regions")
        if self.model is None:
            return np.concatenate([mean_region(*self.file.at(store.places[at])[:2]) for at in blocks])
        return np.concatenate([np.asarray(self.model.embed_regions(store.take(at))) for at in blocks])

    # trials

    def _embedded(self, trials: Trials) -> FloatArray:
        items, ((image, caption),) = items_of([trials])
        found = self._of(items)
        assert isinstance(found, Embeddings)
        rows, columns = np.broadcast_arrays(image[:, None, :], caption[:, :, None])
        return found.pairs(rows.ravel(), columns.ravel()).reshape(rows.shape)

    def _compared(self, trials: Trials) -> FloatArray:
        """Some trials at a time: their images with their captions, of which each trial takes its own."""
        self.file.where(trials.images.ravel())
        out = np.empty((len(trials.ids), *trials.shape))
        for at in track(range(0, len(trials.ids), TRIALS), "comparing regions"):
            images, image = np.unique(trials.images[at : at + TRIALS], return_inverse=True)
            texts, caption = np.unique(trials.captions[at : at + TRIALS], return_inverse=True)
            few = len(trials.ids[at : at + TRIALS])
            found = np.asarray(self.model.compare(self.file.as_store(images).take(np.arange(len(images))), texts.tolist()))
            out[at : at + few] = found[image.reshape(few, 1, -1), caption.reshape(few, -1, 1)]
        return out


def _blocks(n: int, label: str) -> Iterator[IntArray]:
    """Some images at a time, so that the regions of all need not be in memory."""
    for at in track(range(0, n, IMAGES), label):
        yield np.arange(at, min(at + IMAGES, n))


def _parts(rest: str) -> tuple[Path, Path | None]:
    """The file, and the folder after the last plus that leaves a file before it."""
    if Path(rest).exists():
        return Path(rest), None
    for at in (n for n in range(len(rest) - 1, 0, -1) if rest[n] == "+"):
        if Path(rest[:at]).exists():
            if not (Path(rest[at + 1 :]) / "model.json").is_file():
                raise WrongWords(f"there is no trained model in {rest[at + 1 :]!r}. Train one: crossmatch train scan-t2i -o FOLDER")
            return Path(rest[:at]), Path(rest[at + 1 :])
    raise WrongWords(f"there is no file {rest.partition('+')[0]}. Check the path of regions:FILE or regions:FILE+FOLDER.")


def _trained(folder: Path) -> object:
    from crossmatch.models import make_model

    return make_model(str(folder))


def region_source(rest: str) -> RegionSource:
    """The source of a name, as after `regions:`."""
    return RegionSource.from_name(rest)
