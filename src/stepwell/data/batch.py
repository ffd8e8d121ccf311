"""Batch: what a training step takes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stepwell.errors import ConfigError
from stepwell.jagged import JaggedIds

Cursor = dict[str, Any]  # plain JSON values: where a reader stands, shuffle state included


@dataclass(frozen=True, slots=True)
class Batch:
    """B samples. `cursor` continues right after the last of them."""

    ids: JaggedIds
    dense: Tensor  # float32 [B, D]; D may be 0
    labels: Tensor  # float32 [B, L]; L may be 0
    sample_weight: Tensor | None = None  # float32 [B]
    event_time: Tensor | None = None  # float64 [B], seconds
    group: Tensor | None = None  # int64 [B]: the key of grouped metrics
    cursor: Cursor | None = None

    def __post_init__(self) -> None:
        size = self.ids.batch_size
        shapes = {"dense": (self.dense, torch.float32, 2), "labels": (self.labels, torch.float32, 2)}
        for name, tensor, dtype in (
            ("sample_weight", self.sample_weight, torch.float32),
            ("event_time", self.event_time, torch.float64),
            ("group", self.group, torch.int64),
        ):
            if tensor is not None:
                shapes[name] = (tensor, dtype, 1)
        for name, (tensor, dtype, dims) in shapes.items():
            if tensor.dtype != dtype or tensor.dim() != dims or tensor.shape[0] != size:
                raise ConfigError(
                    f"{name}: found {tensor.dtype} {tuple(tensor.shape)}, expected {dtype} with {dims} dimensions and "
                    f"{size} rows, as many as the ids have samples"
                )

    @property
    def size(self) -> int:
        """Samples: B."""
        return self.ids.batch_size

    def pin_memory(self) -> "Batch":
        """A copy in pinned host memory, from which a GPU copies while it computes."""
        return self._mapped(lambda tensor: tensor.pin_memory(), self.ids.pin_memory())

    def to(self, device: torch.device | str) -> "Batch":
        """The same on a device."""
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=True), self.ids.to(device))

    def _mapped(self, move: Callable[[Tensor], Tensor], ids: JaggedIds) -> "Batch":
        def maybe(tensor: Tensor | None) -> Tensor | None:
            return move(tensor) if tensor is not None else None

        return Batch(
            ids=ids,
            dense=move(self.dense),
            labels=move(self.labels),
            sample_weight=maybe(self.sample_weight),
            event_time=maybe(self.event_time),
            group=maybe(self.group),
            cursor=self.cursor,
        )
