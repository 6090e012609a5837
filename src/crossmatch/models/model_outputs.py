"""Checks of the arrays that a model returns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.user_code_errors import describe_error

TORCH_ONLY_DTYPES = ("torch.bfloat16", "torch.float8_e4m3fn", "torch.float8_e5m2")  # NumPy has no such types


def as_array(values: ArrayLike, label: str) -> NDArray[Any]:
    """Convert what a model returned, PyTorch tensors included, to an array; `label` says in errors what the values are."""
    try:
        return np.asarray(_detach(values))
    except ValueError:
        raise CrossmatchError(f"{label}: the rows differ in length. Return an array whose rows all have the same length.") from None
    except (TypeError, RuntimeError) as error:  # for example a sparse tensor
        raise CrossmatchError(
            f"{label}: cannot convert a {type(values).__name__} to an array ({describe_error(error)}). Return a NumPy array."
        ) from error


def _detach(values: Any) -> Any:
    """Move a tensor, or a list of tensors, to the CPU without its gradient, in a dtype that NumPy has."""
    if isinstance(values, list | tuple) and values and hasattr(values[0], "detach"):
        return [_detach(row) for row in values]
    if not hasattr(values, "detach"):
        return values
    tensor = values.detach().cpu()
    return tensor.float() if str(tensor.dtype) in TORCH_ONLY_DTYPES else tensor


def as_vectors(values: ArrayLike, expected: int, label: str) -> NDArray[Any]:
    """Convert embeddings to an array of floating-point numbers with one row for each of the `expected` items."""
    vectors = as_array(values, label)
    if vectors.ndim != 2 or len(vectors) != expected:
        raise CrossmatchError(
            f"{label}: expected an array of shape ({expected}, dimensions), one row per item, got shape {vectors.shape}."
        )
    _require_real(vectors, label)
    return vectors if vectors.dtype.kind == "f" else vectors.astype(np.float64)


def as_scores(values: ArrayLike, shape: tuple[int, ...], function: str) -> NDArray[Any]:
    """Convert the scores that `function` returned to an array of real numbers of shape (images, texts) or (pairs,)."""
    scores = as_array(values, function)
    if scores.shape != shape:
        axes = "images x texts" if len(shape) == 2 else "pairs"
        raise CrossmatchError(f"{function}: expected shape {shape} ({axes}), got {scores.shape}.")
    _require_real(scores, function)
    return scores


def _require_real(values: NDArray[Any], label: str) -> None:
    if values.dtype.kind not in "fiub":
        raise CrossmatchError(f"{label}: expected real numbers, got dtype {values.dtype}.")
