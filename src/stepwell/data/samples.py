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

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Samples:
    """n rows of a unit. Arrays as in Batch."""

    num_rows: int
    skipped: int  # rows of the unit that were left out
    ids: JaggedIds
    lengths: I64 | None  # [F, n] ids of each feature and row; None where all are 1
    dense: F32
    labels: F32
    sample_weight: F32 | None = None
    event_time: npt.NDArray[np.float64] | None = None
    group: I64 | None = None


def lengths_of(ids: JaggedIds) -> I64 | None:
    """`Samples.lengths`."""
    lengths = np.diff(ids.offsets.numpy())
    return None if bool((lengths == 1).all()) else lengths.reshape(len(ids.features), -1)


class Pool:
    """Samples of several units side by side, numbered through."""

    def __init__(self, parts: Sequence[Samples]) -> None:
        self._parts = tuple(parts)
        self._starts: I64 = np.cumsum([0] + [part.num_rows for part in parts])
        self._one_id_each = all(part.lengths is None for part in parts)

    @property
    def num_rows(self) -> int:
        """Rows of all units."""
        return int(self._starts[-1])

    def joined(self, other: "Pool") -> "Pool":
        """Both; the other's rows come after."""
        return Pool(self._parts + other._parts)

    def batch(self, rows: I64, cursor: Cursor) -> Batch:
        """The given rows, in their order."""
        places = self._places(rows)
        return Batch(
            ids=self._ids(places, len(rows)),
            dense=torch.from_numpy(self._fixed(places, len(rows), lambda part: part.dense)),
            labels=torch.from_numpy(self._fixed(places, len(rows), lambda part: part.labels)),
            sample_weight=self._optional(places, len(rows), lambda part: part.sample_weight),
            event_time=self._optional(places, len(rows), lambda part: part.event_time),
            group=self._optional(places, len(rows), lambda part: part.group),
            cursor=cursor,
        )

    def _places(self, rows: I64) -> list[tuple[Samples, I64, I64 | slice]]:
        """For each unit that has some of the rows: it, which of its own, and where in the batch they go."""
        if len(self._parts) == 1:
            return [(self._parts[0], rows, slice(None))]
        of = np.searchsorted(self._starts, rows, side="right") - 1
        found: list[tuple[Samples, I64, I64 | slice]] = []
        for number, part in enumerate(self._parts):
            at = np.flatnonzero(of == number)
            if len(at):
                found.append((part, rows[at] - self._starts[number], at))
        return found

    def _optional(
        self, places: list[tuple[Samples, I64, I64 | slice]], num: int, of: Callable[[Samples], npt.NDArray[Any] | None]
    ) -> torch.Tensor | None:
        if of(self._parts[0]) is None:
            return None
        return torch.from_numpy(self._fixed(places, num, of))

    def _fixed(
        self, places: list[tuple[Samples, I64, I64 | slice]], num: int, of: Callable[[Samples], npt.NDArray[Any] | None]
    ) -> npt.NDArray[Any]:
        first = of(self._parts[0])
        assert first is not None
        if len(places) == 1:
            return np.take(of(places[0][0]), places[0][1], axis=0)  # type: ignore[arg-type]
        out = np.empty((num, *first.shape[1:]), first.dtype)
        for part, rows, at in places:
            out[at] = np.take(of(part), rows, axis=0)  # type: ignore[arg-type]
        return out

    def _ids(self, places: list[tuple[Samples, I64, I64 | slice]], num: int) -> JaggedIds:
        first = self._parts[0].ids
        num_features = len(first.features)
        weighted = first.weights is not None
        lengths = np.ones((num_features, num), np.int64)
        if not self._one_id_each:
            for part, rows, at in places:
                lengths[:, at] = part.lengths[:, rows] if part.lengths is not None else 1
        offsets = np.zeros(num_features * num + 1, np.int64)
        np.cumsum(lengths.reshape(-1), out=offsets[1:])
        values = np.empty(offsets[-1], np.int64)
        weights = np.empty(offsets[-1], np.float32) if weighted else None
        for part, rows, at in places:
            self._copy_ids(part, rows, at, offsets, lengths, values, weights)
        return JaggedIds(
            features=first.features,
            values=torch.from_numpy(values),
            offsets=torch.from_numpy(offsets),
            weights=torch.from_numpy(weights) if weights is not None else None,
        )

    def _copy_ids(
        self,
        part: Samples,
        rows: I64,
        at: I64 | slice,
        offsets: I64,
        lengths: I64,
        values: I64,
        weights: F32 | None,
    ) -> None:
        num_features, num = lengths.shape
        pairs: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]] = [(values, part.ids.values.numpy())]
        if weights is not None:
            assert part.ids.weights is not None
            pairs.append((weights, part.ids.weights.numpy()))
        if self._one_id_each:
            for out, own in pairs:
                out.reshape(num_features, num)[:, at] = np.take(own.reshape(num_features, part.num_rows), rows, axis=1)
            return
        starts = part.ids.offsets.numpy()[:-1].reshape(num_features, part.num_rows)[:, rows].reshape(-1)
        goes = offsets[:-1].reshape(num_features, num)[:, at].reshape(-1)
        counts = lengths[:, at].reshape(-1)
        steps = np.arange(counts.sum(), dtype=np.int64)
        steps -= np.repeat(np.cumsum(counts) - counts, counts)  # 0, 1, .. within each bag
        read_at, write_at = np.repeat(starts, counts) + steps, np.repeat(goes, counts) + steps
        for out, own in pairs:
            out[write_at] = own[read_at]
