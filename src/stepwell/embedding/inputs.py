"""What a dense network receives: one SideInputs for the user side and one for the item side."""

from dataclasses import dataclass, field

from torch import Tensor

from stepwell.config import Config


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceSpec(Config):
    """A feature whose rows are not pooled."""

    name: str
    dim: int
    max_len: int

    def __post_init__(self) -> None:
        self._require_instance("name", str)
        self._require_int("dim", 1, 1 << 16)
        self._require_int("max_len", 1, 1 << 20)


@dataclass(frozen=True, kw_only=True, slots=True)
class SideSpec(Config):
    """The shape of one side's inputs: what a model's sizes follow from."""

    dense: int = 0  # columns
    pooled: tuple[int, ...] = ()  # the dim of each pooled feature, in order
    pooled_names: tuple[str, ...] = ()  # their names; may be left out where no model asks for a feature by name
    sequences: tuple[SequenceSpec, ...] = ()

    def __post_init__(self) -> None:
        self._require_int("dense", 0, 1 << 20)
        self._require_tuple_of("pooled", int)
        self._require(all(dim > 0 for dim in self.pooled), "pooled", "dims of at least 1")
        self._require_tuple_of("pooled_names", str)
        num_names = len(self.pooled_names)
        self._require(num_names in {0, len(self.pooled)}, "pooled_names", f"none, or {len(self.pooled)} as in pooled")
        self._require(len(set(self.pooled_names)) == num_names, "pooled_names", "names that differ")
        self._require_tuple_of("sequences", SequenceSpec)


@dataclass(frozen=True, slots=True)
class Sequence:
    """Rows of a feature that is not pooled, padded with zeros after each sample's own."""

    values: Tensor  # float [n, max_len, dim]
    lengths: Tensor  # int64 [n]


@dataclass(frozen=True, slots=True)
class SideInputs:
    """One side of n samples (user side: one per request when serving, one per sample in training)."""

    dense: Tensor  # float32 [n, D]
    pooled: Tensor  # float32 [n, sum of SideSpec.pooled]
    sequences: dict[str, Sequence] = field(default_factory=dict)
