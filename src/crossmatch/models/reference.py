"""Two scorers that frame every result: one that knows nothing and one that knows the answers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import IdArray
from crossmatch.core.benchmark import Retrieval
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.judgements import Judgements
from crossmatch.core.pairs import Similarity
from crossmatch.core.plausible import Plausible
from crossmatch.core.presented import uniform
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

    def scores(self, data: Retrieval | Similarity | Trials) -> Embeddings | TrialScores:
        if isinstance(data, Trials):
            drawn = uniform(data.ids, data.shape[0] * data.shape[1], "random scores", self.seed)
            return TrialScores(data.ids, drawn.reshape(-1, *data.shape))
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
    by_task: bool = True  # it answers each benchmark for itself

    def scores(self, data: Retrieval | Similarity | Trials) -> Matrix | Embeddings | TrialScores:
        if isinstance(data, Trials):
            same = np.eye(*data.shape)
            return TrialScores(data.ids, np.broadcast_to(same, (len(data.ids), *data.shape)))
        values = np.zeros(data.collection.shape, dtype=np.uint8)
        judged = data.judgements.values() if isinstance(data, Retrieval) else [data.said]
        across = [said for said in judged if isinstance(said, Plausible) or said.kind == "image-caption"]
        if not across:
            raise CrossmatchError("the oracle knows images with captions only, and this task compares two of a kind.")
        if isinstance(across[0], Plausible):
            match = across[0].level == 0
            values[:] = match[across[0].rows][:, across[0].columns]
            return Matrix(data.collection.image_ids, data.collection.caption_ids, values)
        said = max((j for j in across if isinstance(j, Judgements)), key=lambda j: (j.complete, j.count))
        if isinstance(data, Similarity):
            graded = np.zeros(data.collection.shape, dtype=np.float32)
            graded[said.rows, said.columns] = said.grades
            return Matrix(data.collection.image_ids, data.collection.caption_ids, graded)
        for each in across:  # judgements made for one direction each are all true
            if isinstance(each, Judgements) and (each is said or each.only):
                positive = each.grades >= each.positive
                values[each.rows[positive], each.columns[positive]] = 1
        return Matrix(data.collection.image_ids, data.collection.caption_ids, values)
