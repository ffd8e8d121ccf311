"""Passes: what backward leaves behind, until the step's update takes it.

A pass is one backward through one look-up: the gradients of its outputs, no more. Rows see gradients in the update.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from stepwell.embedding.plan import F32, I64, Plan, RoutedIds

U64 = npt.NDArray[np.uint64]
FROZEN = math.nan  # as a table's rate: the core leaves its rows alone


class Pass:
    """A look-up's rows, and the gradients of its outputs; None where nothing depended on an output."""

    def __init__(self, routed: RoutedIds, addresses: U64, grads: tuple[Tensor | None, ...]) -> None:
        self.routed = routed
        self.addresses = addresses
        self._grads = grads

    @property
    def reached(self) -> frozenset[int]:
        """The numbers of the tables that a gradient reached."""
        plan = self.routed.plan
        some = [plan.reached[output] for output, grad in enumerate(self._grads) if grad is not None]
        return frozenset().union(*some)

    def is_finite(self) -> bool:
        """Whether every gradient is. In numpy: one pass takes less time than waking torch's threads."""
        some = [grad.numpy() for grad in self._grads if grad is not None and grad.numel()]
        return all(bool(np.isfinite(grad.max()) and np.isfinite(grad.min())) for grad in some)

    def arrays(self) -> list[F32]:
        """The gradients as the core takes them."""
        shapes = self.routed.plan.shapes(self.routed.batch_size)
        return [
            np.zeros(shape, np.float32) if grad is None else _with_whole_samples(grad).numpy()
            for shape, grad in zip(shapes, self._grads, strict=True)
        ]

    def update(self, step: int, rates: list[float]) -> None:
        """Sum each row's gradient and update the row, in one pass over the rows. `rates` by table."""
        plan, routed = self.routed.plan, self.routed
        plan.core.update(routed.core, self.addresses, routed.weights, self.arrays(), step, np.array(rates, np.float64))

    def sums(self) -> list[F32]:
        """By table, float32 [U_t, dim]: the gradient of each unique row."""
        plan, ids = self.routed.plan, self.routed.ids
        sums = [np.empty((len(ids[name]), spec.dim), np.float32) for name, spec in plan.specs.items()]
        plan.core.sum_gradients(self.routed.core, self.routed.weights, self.arrays(), sums)
        return sums


def _with_whole_samples(grad: Tensor) -> Tensor:
    """The gradient, copied unless the floats of each sample lie together. Those of a slice of columns do."""
    samples_apart = grad.shape[0] > 0 and grad[0].is_contiguous() and grad.stride(0) >= 0
    return grad if samples_apart else grad.contiguous()


def update_from(passes: list[Pass], step: int, rates: list[float]) -> None:
    """Update each row of several passes once, by its passes' sums added in their order."""
    core = passes[0].routed.plan.core
    sums = [one.sums() for one in passes]
    for number, rate in enumerate(rates):
        some = [(one, sums[i][number]) for i, one in enumerate(passes) if number in one.reached]
        if some and not math.isnan(rate):
            core.update_rows(number, *_added(number, some), step, rate)


def _added(number: int, passes: list[tuple[Pass, F32]]) -> tuple[I64, U64, F32]:
    name = passes[0][0].routed.plan.tables[number]
    parts = [one.routed.ids[name] for one, _ in passes]
    ids, first, inverse = np.unique(np.concatenate(parts), return_index=True, return_inverse=True)
    addresses = np.concatenate([_of_table(one, number) for one, _ in passes])[first]
    total = np.concatenate([sums for _, sums in passes])[first]  # `first` is the earliest pass that has the id
    at = 0
    for part, (_, sums) in zip(parts, passes, strict=True):
        rows = inverse[at : at + len(part)]
        again = first[rows] < at
        total[rows[again]] += sums[again]
        at += len(part)
    return ids, addresses, total


def _of_table(one: Pass, number: int) -> U64:
    starts = one.routed.core.starts
    return one.addresses[starts[number] : starts[number + 1]]


class _LookUp(torch.autograd.Function):
    """Rows to outputs; its backward hands the outputs' gradients to `keep` and computes nothing."""

    @staticmethod
    def forward(
        ctx: Any,
        anchor: Tensor,  # requires a gradient, so that backward comes here; gets none
        plan: Plan,
        routed: RoutedIds,
        addresses: U64,
        keep: Callable[[Pass], None],
    ) -> tuple[Tensor, ...]:
        """See Plan.look_up."""
        ctx.set_materialize_grads(False)
        ctx.of_rows = (routed, addresses, keep)
        return plan.look_up(routed, addresses)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[None, ...]:
        """Hand the gradients over."""
        routed, addresses, keep = ctx.of_rows
        keep(Pass(routed, addresses, grads))
        return (None,) * 5


def look_up(
    anchor: Tensor, plan: Plan, routed: RoutedIds, addresses: U64, keep: Callable[[Pass], None]
) -> tuple[Tensor, ...]:
    """The outputs; backward gives `keep` their gradients."""
    outputs: tuple[Tensor, ...] = _LookUp.apply(anchor, plan, routed, addresses, keep)  # type: ignore[no-untyped-call]
    return outputs
