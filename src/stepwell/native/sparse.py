"""What the core's sparse path takes for a table, made from its spec."""

from dataclasses import fields
from typing import Final

from stepwell.native._core import SparseTable
from stepwell.rows import TableSpec

POOLINGS: Final = ("sum", "mean", "none")  # the index is the core's code

_NUMBERS = (
    "weight_decay",
    "max_row_norm_grad",
    "momentum",
    "nesterov",
    "eps",
    "scale",
    "beta1",
    "beta2",
    "alpha",
    "beta",
    "l1",
    "l2",
)


def sparse_table(spec: TableSpec, seed: int) -> SparseTable:
    """The table for a `SparsePlan`, of a store with this seed."""
    layout, optimizer = spec.layout, spec.optimizer
    has = {field.name for field in fields(optimizer)}
    return SparseTable(
        dim=spec.dim,
        weight_dtype=layout.weight_dtype_code,
        state_offsets=list(layout.state_offsets.values()),
        key=spec.key(seed),
        kind=optimizer.kind,
        **{name: getattr(optimizer, name) for name in _NUMBERS if name in has},
    )
