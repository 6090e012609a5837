"""Two scorers that frame every result: one that knows nothing and one that knows the answers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import IdArray
from crossmatch.core.benchmark import Retrieval
from crossmatch.core.scores import Embeddings, Matrix
from crossmatch.core.trials import Trials, TrialScores


@dataclass(frozen=True)
class RandomScorer:
    """A random direction for each id. It lands on chance, and depends on nothing but the ids and the seed."""

    seed: int = 0
    dimensions: int = 64

    @property
    def signature(self) -> str:
        return f"random|seed:{self.seed}"

    def scores(self, data: Retrieval | Trials) -> Embeddings | TrialScores:
        if isinstance(data, Trials):
            cells = data.shape[0] * data.shape[1]
            return TrialScores(data.ids, self._vectors(data.ids, cells).reshape(-1, *data.shape))
        held = data.collection
        width = self.dimensions
        return Embeddings(
            held.image_ids,
            self._vectors(held.image_ids, width),
            held.caption_ids,
            self._vectors(held.caption_ids, width),
        )

    def _vectors(self, ids: IdArray, width: int) -> NDArray[np.float64]:
        """Sums of random bytes, which is close enough to a normal distribution for a random direction."""
        raw = b"".join(
            hashlib.shake_128(f"crossmatch random {self.seed} {name}".encode()).digest(4 * width) for name in ids.tolist()
        )
        summed = np.frombuffer(raw, np.uint8).reshape(len(ids), width, 4).sum(axis=2, dtype=np.float64)
        return np.asarray(summed - 510, dtype=np.float64)


@dataclass(frozen=True)
class Oracle:
    """Scores 1 what the fullest set of judgements calls positive, and 0 the rest: the best that can be said, ties and all."""

    signature: str = "oracle"

    def scores(self, data: Retrieval | Trials) -> Matrix | TrialScores:
        if isinstance(data, Trials):
            same = np.eye(*data.shape)
            return TrialScores(data.ids, np.broadcast_to(same, (len(data.ids), *data.shape)))
        fullest = max(data.judgements.values(), key=lambda said: (said.complete, said.count))
        values = np.zeros(data.collection.shape, dtype=np.uint8)
        positive = fullest.grades >= fullest.positive
        values[fullest.rows[positive], fullest.columns[positive]] = 1
        return Matrix(data.collection.image_ids, data.collection.caption_ids, values)
