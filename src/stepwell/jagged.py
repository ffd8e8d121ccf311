"""JaggedIds: a batch's ids by feature, and how many each sample has.

Shapes, here and everywhere above: B samples, F id features, N ids, U unique ids, T tables, D dense columns, L labels.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from stepwell.errors import ConfigError


@dataclass(frozen=True, slots=True)
class JaggedIds:
    """Feature-major: the ids of feature f, sample b are values[offsets[f * B + b] : offsets[f * B + b + 1]]."""

    features: tuple[str, ...]
    values: Tensor  # int64 [N]
    offsets: Tensor  # int64 [F * B + 1], from 0 to N
    weights: Tensor | None = None  # float32 [N], one per id

    def __post_init__(self) -> None:
        num = len(self.features)
        if self.values.dtype != torch.int64 or self.values.dim() != 1:
            raise ConfigError(f"values: found {self.values.dtype} {tuple(self.values.shape)}, expected int64 [N]")
        if self.offsets.dtype != torch.int64 or self.offsets.dim() != 1 or self.offsets.numel() == 0:
            raise ConfigError(
                f"offsets: found {self.offsets.dtype} {tuple(self.offsets.shape)}, expected int64 [F*B+1]"
            )
        if num == 0 or (self.offsets.numel() - 1) % num:
            raise ConfigError(
                f"offsets: found {self.offsets.numel()}, expected 1 more than a multiple of {num} features"
            )
        if self.weights is not None and (
            self.weights.dtype != torch.float32 or self.weights.shape != self.values.shape
        ):
            found = f"{self.weights.dtype} {tuple(self.weights.shape)}"
            raise ConfigError(f"weights: found {found}, expected float32 {tuple(self.values.shape)}, one per id")

    @property
    def batch_size(self) -> int:
        """Samples: B."""
        return (self.offsets.numel() - 1) // len(self.features)

    def check(self) -> None:
        """ConfigError unless offsets rise from 0 to N. Reads every offset: for data from outside."""
        rises = bool((self.offsets[1:] >= self.offsets[:-1]).all())
        ends = (int(self.offsets[0]), int(self.offsets[-1]))
        if not rises or ends != (0, self.values.numel()):
            raise ConfigError(
                f"offsets: found {ends[0]} to {ends[1]}{'' if rises else ', falling somewhere'}, expected to rise "
                f"from 0 to {self.values.numel()}, the number of ids"
            )

    def of(self, feature: str) -> tuple[Tensor, Tensor]:
        """One feature's ids, a view, and their offsets int64 [B + 1], from 0."""
        at, size = self.features.index(feature), self.batch_size
        offsets = self.offsets[at * size : (at + 1) * size + 1]
        return self.values[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0]

    def pin_memory(self) -> "JaggedIds":
        """A copy in pinned host memory."""
        return self._mapped(lambda tensor: tensor.pin_memory())

    def to(self, device: torch.device | str) -> "JaggedIds":
        """The same on a device."""
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=True))

    def _mapped(self, move: Callable[[Tensor], Tensor]) -> "JaggedIds":
        weights = move(self.weights) if self.weights is not None else None
        return replace(self, values=move(self.values), offsets=move(self.offsets), weights=weights)
