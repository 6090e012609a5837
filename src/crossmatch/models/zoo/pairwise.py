"""Score matrices whose backward pass recomputes only the pairs with a gradient.

A hinge on the hardest negatives has a gradient at about 3 B of the B² pairs of a batch. So the matrix is computed without a
graph, a block at a time, and the backward pass recomputes what it needs: single pairs if few have a gradient, else whole columns.
Both passes need the memory of one block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

SPARSE_SHARE = 0.125  # up to this share of pairs with a gradient, single pairs are recomputed


@dataclass(frozen=True, eq=False)
class PairwiseScores:
    """Three functions that compute the same scores from the same inputs; the last two are differentiable.

        matrix(*inputs) -> (R, C)                  every row item with every column item
        columns(which, *inputs) -> (R, c)          every row item with some column items
        pairs(rows, columns, *inputs) -> (n,)      row item rows[n] with column item columns[n]

    The backward pass takes the columns as `parts` says, which has each of them once, or `pairs_per_step` pairs at a time.
    `parameters` are weights that the functions use besides their inputs.
    """

    matrix: Callable[..., Tensor]
    columns: Callable[..., Tensor]
    pairs: Callable[..., Tensor]
    parts: Sequence[Tensor]
    pairs_per_step: int
    parameters: tuple[Tensor, ...] = ()

    def scores(self, *inputs: Tensor) -> Tensor:
        """Compute the score matrix (R, C)."""
        scores: Tensor = _Scores.apply(self, len(inputs), *inputs, *self.parameters)  # type: ignore[no-untyped-call]
        return scores

    def recompute(self, grad: Tensor, inputs: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Recompute the scores with a graph, a part at a time; yield each part with its gradient."""
        positions = grad.nonzero()
        if len(positions) > SPARSE_SHARE * grad.numel():
            for which in self.parts:
                yield self.columns(which, *inputs), grad[:, which]
        elif len(positions):
            for part in torch.split(positions, max(1, self.pairs_per_step)):
                rows, columns = part.unbind(dim=1)
                yield self.pairs(rows, columns, *inputs), grad[rows, columns]


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, work: PairwiseScores, number: int, *tensors: Tensor) -> Tensor:
        ctx.work = work
        ctx.save_for_backward(*tensors[:number])
        return work.matrix(*tensors[:number])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        work, needs_grad = ctx.work, ctx.needs_input_grad[2:]
        inputs = [x.detach().requires_grad_(needed) for x, needed in zip(ctx.saved_tensors, needs_grad, strict=False)]
        leaves = [x for x, needed in zip((*inputs, *work.parameters), needs_grad, strict=True) if needed]
        totals = [torch.zeros_like(x) for x in leaves]
        with torch.enable_grad():
            for scores, score_grad in work.recompute(grad, inputs):
                for total, more in zip(totals, torch.autograd.grad(scores, leaves, score_grad, allow_unused=True), strict=True):
                    if more is not None:
                        total += more
        remaining = iter(totals)
        return None, None, *(next(remaining) if needed else None for needed in needs_grad)


def group_by_length(lengths: Tensor, at_once: int) -> list[Tensor]:
    """Split the positions of all items into groups of `at_once` with similar lengths, to save padding.

    >>> group_by_length(torch.tensor([5, 2, 4, 2]), 2)
    [tensor([1, 3]), tensor([2, 0])]
    """
    return list(torch.split(torch.argsort(lengths, stable=True), max(1, at_once))) if len(lengths) else []


def trim_padding(vectors: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Drop trailing columns that are padding in all sets, of vectors (N, K, D) and mask (N, K); keep at least one."""
    used = mask.any(dim=0).nonzero()
    longest = int(used.max()) + 1 if len(used) else min(1, mask.shape[1])
    return vectors[:, :longest], mask[:, :longest]
