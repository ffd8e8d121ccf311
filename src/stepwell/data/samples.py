"""Samples: rows with their features computed, and the gathering of some of them into a Batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from stepwell.data.batch import Batch, Cursor
from stepwell.data.columns import I64
from stepwell.jagged import JaggedIds
from stepwell.native import JaggedGather, JaggedRows, gather_fixed

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Samples:
    """n rows of a unit. Arrays as in Batch."""

    num_rows: int
    skipped: int  # rows of the unit that were left out
    features: tuple[str, ...]
    weighted: bool
    ids: JaggedRows
    dense: F32
    labels: F32
    sample_weight: F32 | None = None
    event_time: npt.NDArray[np.float64] | None = None
    group: I64 | None = None

    @property
    def num_bytes(self) -> int:
        """Of everything it holds."""
        arrays = (self.dense, self.labels, self.sample_weight, self.event_time, self.group)
        return self.ids.num_bytes + sum(array.nbytes for array in arrays if array is not None)


class Pool:
    """Samples of several units side by side, numbered through. Nothing is copied before a batch is made."""

    def __init__(self, parts: Sequence[Samples]) -> None:
        self._parts = tuple(parts)
        self._ids = JaggedGather()
        for part in parts:
            self._ids.add(part.ids)

    @property
    def num_rows(self) -> int:
        """Rows of all units."""
        return self._ids.num_rows

    def joined(self, other: "Pool") -> "Pool":
        """Both; the other's rows come after."""
        return Pool(self._parts + other._parts)

    def batch(self, rows: I64, cursor: Cursor) -> Batch:
        """The given rows, in their order."""
        return Batch(
            ids=self._gathered_ids(rows),
            dense=torch.from_numpy(self._gathered(rows, lambda part: part.dense)),
            labels=torch.from_numpy(self._gathered(rows, lambda part: part.labels)),
            sample_weight=self._optional(rows, lambda part: part.sample_weight),
            event_time=self._optional(rows, lambda part: part.event_time),
            group=self._optional(rows, lambda part: part.group),
            cursor=cursor,
        )

    def _optional(self, rows: I64, of: Callable[[Samples], npt.NDArray[Any] | None]) -> torch.Tensor | None:
        return torch.from_numpy(self._gathered(rows, of)) if of(self._parts[0]) is not None else None

    def _gathered(self, rows: I64, of: Callable[[Samples], npt.NDArray[Any] | None]) -> npt.NDArray[Any]:
        arrays = [array for part in self._parts if (array := of(part)) is not None]
        out = np.empty((len(rows), *arrays[0].shape[1:]), arrays[0].dtype)
        if out.size:
            gather_fixed([_as_bytes(array) for array in arrays], rows, _as_bytes(out))
        return out

    def _gathered_ids(self, rows: I64) -> JaggedIds:
        first = self._parts[0]
        offsets = np.empty(len(first.features) * len(rows) + 1, np.int64)
        values = np.empty(self._ids.place(rows, offsets), np.int64)
        weights = np.empty(len(values), np.float32) if first.weighted else None
        self._ids.copy(rows, offsets, values, weights)
        return JaggedIds(
            features=first.features,
            values=torch.from_numpy(values),
            offsets=torch.from_numpy(offsets),
            weights=torch.from_numpy(weights) if weights is not None else None,
        )


def _as_bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    row_bytes = array.itemsize * int(np.prod(array.shape[1:]))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(len(array), row_bytes)
