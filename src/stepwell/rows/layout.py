"""RowLayout: where each part of a row lies in its record, the one form in which rows travel between tiers.

    0                 weight         dim x weight dtype, padded with zeros to a multiple of 16 bytes
    weight_bytes      state fields   in the optimizer's order, fp32, one per row or one per element
    count_offset      count          u32
    last_step_offset  last step      u32
                      zeros to the next multiple of 16 bytes: record_bytes

Little-endian. bf16 weights are uint16 bit patterns in numpy, which has no bf16.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from stepwell.config import Config
from stepwell.errors import ConfigError
from stepwell.rows.generator import F32, MAX_DIM, U32, xxh64
from stepwell.rows.rounding import bf16_nearest, bf16_to_float, fp16_nearest

WeightDtype = Literal["fp32", "bf16", "fp16"]
WEIGHT_DTYPES: Final[tuple[WeightDtype, ...]] = ("fp32", "bf16", "fp16")  # the index is the core's code
U8 = npt.NDArray[np.uint8]
Stored = npt.NDArray[Any]  # float32, uint16 (bf16 bits) or float16

_STORED: Final[dict[str, np.dtype[Any]]] = {"fp32": np.dtype("<f4"), "bf16": np.dtype("<u2"), "fp16": np.dtype("<f2")}


def _round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


@dataclass(frozen=True, kw_only=True, slots=True)
class StateField(Config):
    """One field of optimizer state: a float per row or per weight, and its value in a new row."""

    name: str
    per: Literal["row", "element"]
    dtype: Literal["fp32"] = "fp32"
    initial: float = 0.0

    def __post_init__(self) -> None:
        self._require_instance("name", str)
        ok = self.name.isidentifier() and self.name.isascii()
        ok = ok and self.name not in ("weight", "count", "last_step")
        self._require(ok, "name", "an ASCII identifier that is not weight, count or last_step")
        self._require(self.per in ("row", "element"), "per", "'row' or 'element'")
        self._require(self.dtype == "fp32", "dtype", "'fp32'")
        self._require_float("initial", -float(np.finfo(np.float32).max), float(np.finfo(np.float32).max))


@dataclass(frozen=True, slots=True)
class RowViews:
    """Views into records: writing to them writes the records."""

    weight: Stored  # [n, dim], as stored
    state: dict[str, F32]  # [n, dim] for a field per element, [n] for a field per row
    count: U32  # [n]
    last_step: U32  # [n]


@dataclass(frozen=True, kw_only=True, slots=True)
class RowLayout(Config):
    """What a record holds and where. Layouts with one `fingerprint` can share slots and files."""

    dim: int
    weight_dtype: WeightDtype = "fp32"
    state: tuple[StateField, ...] = ()

    def __post_init__(self) -> None:
        self._require_int("dim", 1, MAX_DIM)
        self._require(self.weight_dtype in WEIGHT_DTYPES, "weight_dtype", f"one of {WEIGHT_DTYPES}")
        self._require_tuple_of("state", StateField)
        self._require(len({f.name for f in self.state}) == len(self.state), "state", "fields of different names")

    @property
    def weight_dtype_code(self) -> int:
        """0 fp32, 1 bf16, 2 fp16."""
        return WEIGHT_DTYPES.index(self.weight_dtype)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weight with its padding; the first state field starts here."""
        return _round_up(self.dim * _STORED[self.weight_dtype].itemsize, 16)

    @property
    def state_offsets(self) -> dict[str, int]:
        """The byte offset of each state field, in order."""
        offsets, at = {}, self.weight_bytes
        for field in self.state:
            offsets[field.name] = at
            at += self._state_bytes(field)
        return offsets

    @property
    def count_offset(self) -> int:
        """The byte offset of the count."""
        return self.weight_bytes + sum(self._state_bytes(field) for field in self.state)

    @property
    def last_step_offset(self) -> int:
        """The byte offset of the last step."""
        return self.count_offset + 4

    @property
    def record_bytes(self) -> int:
        """Bytes of a record: a multiple of 16."""
        return _round_up(self.last_step_offset + 4, 16)

    @property
    def fingerprint(self) -> int:
        """64 bits that name this layout on disk and between processes. Initial values are not part of it."""
        return _fingerprint(self)

    def views(self, records: U8) -> RowViews:
        """The parts of `records`, uint8 [n, record_bytes] with contiguous rows."""
        if records.dtype != np.uint8 or records.ndim != 2 or records.shape[1] != self.record_bytes:
            raise ConfigError(
                f"records: found {records.dtype} {records.shape}, expected uint8 [n, {self.record_bytes}]"
            )
        state, offsets = {}, self.state_offsets
        for field in self.state:
            start = offsets[field.name]
            values = records[:, start : start + self._state_bytes(field)].view("<f4")
            state[field.name] = values if field.per == "element" else values[:, 0]
        stored = _STORED[self.weight_dtype]
        weight = records[:, : self.dim * stored.itemsize].view(stored)
        count, last_step = (
            records[:, at : at + 4].view("<u4")[:, 0] for at in (self.count_offset, self.last_step_offset)
        )
        return RowViews(weight, state, count, last_step)

    def initial_record(self) -> U8:
        """uint8 [record_bytes]: a new row's record but for its weights, which are zero."""
        record = np.zeros(self.record_bytes, np.uint8)
        for name, values in self.views(record[None, :]).state.items():
            values[...] = next(field.initial for field in self.state if field.name == name)
        return record

    def _state_bytes(self, field: StateField) -> int:
        return 4 * self.dim if field.per == "element" else 4


def encode_weights(weights: F32, dtype: WeightDtype) -> Stored:
    """float32 -> the stored dtype, to nearest with ties to even."""
    if dtype == "fp32":
        return np.asarray(weights, np.float32)
    return bf16_nearest(weights) if dtype == "bf16" else fp16_nearest(weights)


def decode_weights(stored: Stored, dtype: WeightDtype) -> F32:
    """The stored dtype -> float32, exactly."""
    return bf16_to_float(stored) if dtype == "bf16" else np.asarray(stored, np.float32)


@lru_cache(maxsize=1024)
def _fingerprint(layout: RowLayout) -> int:
    state = ",".join(f"{field.name}:{field.per}:{field.dtype}" for field in layout.state)
    return xxh64(f"stepwell-row-1;dim={layout.dim};weight={layout.weight_dtype};state={state}".encode())
