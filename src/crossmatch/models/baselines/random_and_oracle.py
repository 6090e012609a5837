"""The random scorer and the oracle: the chance level and the best possible result of every benchmark."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.arrays import IdArray
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.hashed_random_numbers import hash_uniform
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval
from crossmatch.data.plausible_matches import PlausibleMatches
from crossmatch.data.rated_pairs import Similarity
from crossmatch.data.scores import Embeddings, Matrix
from crossmatch.data.trials import Trials, TrialScores


@dataclass(frozen=True)
class RandomScorer:
    """A random vector for each id, which depends on the id and the seed alone. Its results are at chance level."""

    seed: int = 0
    dimensions: int = 64

    @property
    def signature(self) -> str:
        return f"random|seed:{self.seed}"

    def scores(self, data: Retrieval | Similarity | Trials) -> Embeddings | TrialScores:
        """Random embeddings of a collection, or random scores of trials."""
        if isinstance(data, Trials):
            values = hash_uniform(data.ids, data.shape[0] * data.shape[1], "random scores", self.seed)
            return TrialScores(data.ids, values.reshape(-1, *data.shape))
        images, captions = data.collection.image_ids, data.collection.caption_ids
        return Embeddings(images, self._vectors(images), captions, self._vectors(captions))

    def _vectors(self, ids: IdArray) -> NDArray[np.float64]:
        """Sums of four random bytes, which are close enough to a normal distribution for a random direction."""
        width = self.dimensions
        raw = b"".join(
            hashlib.shake_128(f"crossmatch random {self.seed} {name}".encode()).digest(4 * width) for name in ids.tolist()
        )
        sums = np.frombuffer(raw, np.uint8).reshape(len(ids), width, 4).sum(axis=2, dtype=np.float64)
        return np.asarray(sums - 510, dtype=np.float64)


def make_random_scorer(argument: str) -> RandomScorer:
    """Make the model of `random[:SEED]`."""
    if argument and not argument.isdecimal():
        raise UsageError(f"random:{argument}: the seed must be a whole number, as in random:7.")
    return RandomScorer(int(argument or 0))


@dataclass(frozen=True)
class Oracle:
    """Scores 1 for every positive of the most complete judgements and 0 for the rest: the best possible result, with ties."""

    signature: str = "oracle"
    by_task: bool = True  # its scores depend on the benchmark, not only on the collection

    def scores(self, data: Retrieval | Similarity | Trials) -> Matrix | Embeddings | TrialScores:
        """The true answers of a benchmark."""
        if isinstance(data, Trials):
            matches = np.eye(*data.shape)
            return TrialScores(data.ids, np.broadcast_to(matches, (len(data.ids), *data.shape)))
        values = np.zeros(data.collection.shape, dtype=np.uint8)
        judgement_sets = data.judgements.values() if isinstance(data, Retrieval) else [data.judgements]
        cross_modal = [j for j in judgement_sets if isinstance(j, PlausibleMatches) or j.kind == "image-caption"]
        if not cross_modal:
            raise CrossmatchError("the oracle scores images with captions only, but this task compares items of one kind.")
        if isinstance(cross_modal[0], PlausibleMatches):
            is_match = cross_modal[0].first_matching_zeta == 0
            values[:] = is_match[cross_modal[0].rows][:, cross_modal[0].columns]
            return Matrix(data.collection.image_ids, data.collection.caption_ids, values)
        fullest = max((j for j in cross_modal if isinstance(j, Judgements)), key=lambda j: (j.complete, j.positive_count))
        if isinstance(data, Similarity):
            grades = np.zeros(data.collection.shape, dtype=np.float32)
            grades[fullest.rows, fullest.columns] = fullest.grades
            return Matrix(data.collection.image_ids, data.collection.caption_ids, grades)
        for judgements in cross_modal:  # judgements made for one direction only are all true
            if isinstance(judgements, Judgements) and (judgements is fullest or judgements.only_direction):
                is_positive = judgements.grades >= judgements.positive
                values[judgements.rows[is_positive], judgements.columns[is_positive]] = 1
        return Matrix(data.collection.image_ids, data.collection.caption_ids, values)


def make_oracle(argument: str) -> Oracle:
    """Make the model `oracle`."""
    if argument:
        raise UsageError(f"oracle:{argument}: the oracle takes no argument. Use oracle.")
    return Oracle()
