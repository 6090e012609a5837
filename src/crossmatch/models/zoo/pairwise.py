"""Scores of every image with every text, whose gradient is taken only where there is one.

A hinge on the hardest negatives asks for the gradient of some 3 B of the B² pairs of a batch. So the matrix is made without a
graph, a block at a time, and the backward pass makes again what it needs: single pairs where few have a gradient, whole columns
else. Memory is that of a block in both passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from crossmatch.core.errors import MissingDependency

try:
    import torch
    from torch import Tensor
    from torch.autograd.function import once_differentiable
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

FEW = 0.125  # share of the pairs with a gradient, up to which they are made again one by one


@dataclass(frozen=True, eq=False)
class Pairwise:
    """Three ways to the same scores, all functions of the same `inputs`; the last two can be differentiated.

        matrix(*inputs) -> (R, C)                  every row item with every column item
        columns(which, *inputs) -> (R, c)          the same for some of the column items
        pairs(rows, columns, *inputs) -> (n,)      these with those, one by one

    The backward pass takes the columns as `parts` says, which has each of them once, or `at_once` pairs at a time. `parameters` are
    weights that the functions use besides their inputs.
    """

    matrix: Callable[..., Tensor]
    columns: Callable[..., Tensor]
    pairs: Callable[..., Tensor]
    parts: Sequence[Tensor]
    at_once: int
    parameters: tuple[Tensor, ...] = ()

    def scores(self, *inputs: Tensor) -> Tensor:
        """The matrix (R, C)."""
        found: Tensor = _Scores.apply(self, len(inputs), *inputs, *self.parameters)  # type: ignore[no-untyped-call]
        return found

    def again(self, grad: Tensor, inputs: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Scores with a graph, a part at a time, and the gradient of each part."""
        where = grad.nonzero()
        if len(where) > FEW * grad.numel():
            for some in self.parts:
                yield self.columns(some, *inputs), grad[:, some]
        elif len(where):
            for part in torch.split(where, max(1, self.at_once)):
                rows, columns = part.unbind(dim=1)
                yield self.pairs(rows, columns, *inputs), grad[rows, columns]


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, work: Pairwise, number: int, *given: Tensor) -> Tensor:
        ctx.work = work
        ctx.save_for_backward(*given[:number])
        return work.matrix(*given[:number])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        work, wanted = ctx.work, ctx.needs_input_grad[2:]
        inputs = [x.detach().requires_grad_(need) for x, need in zip(ctx.saved_tensors, wanted, strict=False)]
        leaves = [x for x, need in zip((*inputs, *work.parameters), wanted, strict=True) if need]
        total = [torch.zeros_like(x) for x in leaves]
        with torch.enable_grad():
            for found, pull in work.again(grad, inputs):
                for kept, more in zip(total, torch.autograd.grad(found, leaves, pull, allow_unused=True), strict=True):
                    if more is not None:
                        kept += more
        left = iter(total)
        return None, None, *(next(left) if need else None for need in wanted)


def alike(lengths: Tensor, at_once: int) -> list[Tensor]:
    """The places of all items, so many at a time, those of like length together: little of what is made for them is filling.

    >>> alike(torch.tensor([5, 2, 4, 2]), 2)
    [tensor([1, 3]), tensor([2, 0])]
    """
    return list(torch.split(torch.argsort(lengths, stable=True), max(1, at_once))) if len(lengths) else []


def trimmed(vectors: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Sets (N, K, D) and what is real of them (N, K), without the last columns that none of them needs; one is left at least."""
    used = real.any(dim=0).nonzero()
    longest = int(used.max()) + 1 if len(used) else min(1, real.shape[1])
    return vectors[:, :longest], real[:, :longest]
