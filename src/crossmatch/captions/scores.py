"""What a caption metric gives."""

from __future__ import annotations

from dataclasses import dataclass

from crossmatch.core.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class Scores:
    """One number for the corpus and one for each candidate. The first need not be the mean of the others: BLEU's is not."""

    value: float
    values: FloatArray
