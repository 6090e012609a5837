"""TIGEr's grounding, one number at a time in plain Python: jiang2019tiger, eq. 1 to 6."""

from __future__ import annotations

import math

Vector = list[float]


def dot(x: Vector, y: Vector) -> float:
    return math.fsum(a * b for a, b in zip(x, y, strict=True))


def cosine(x: Vector, y: Vector) -> float:
    """Equations 4 and 6; 0 with a zero vector."""
    lengths = math.sqrt(dot(x, x)) * math.sqrt(dot(y, y))
    return dot(x, y) / lengths if lengths else 0.0


def similarity(v: list[Vector], w: list[Vector], i: int, j: int) -> float:
    """Equation 3; 0 if no region has a positive cosine with the word."""
    length = math.sqrt(math.fsum(max(0.0, cosine(v[k], w[j])) ** 2 for k in range(len(v))))
    return max(0.0, cosine(v[i], w[j])) / length if length else 0.0


def ground_by_loops(v: list[Vector], w: list[Vector], smoothing: float) -> Vector:
    """Equations 1, 2, 5 and 6: one cosine per region; zeros for a caption without words."""
    scores = []
    for i in range(len(v)):
        weights = [math.exp(smoothing * similarity(v, w, i, j)) for j in range(len(w))]
        attended = [math.fsum(weights[j] / sum(weights) * w[j][d] for j in range(len(w))) for d in range(len(v[i]))]
        scores.append(cosine(v[i], attended))
    return scores
