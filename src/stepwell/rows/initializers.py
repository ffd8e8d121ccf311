"""Initializers: what a row's weights are when it is born, and the reference that draws them (contract C6)."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from stepwell.config import Config
from stepwell.errors import ConfigError
from stepwell.rows.generator import F32, I64, normal_draws, table_key, truncated_draws, uniform_draws

KIND_ZEROS: Final = 0
KIND_CONSTANT: Final = 1
KIND_UNIFORM: Final = 2
KIND_NORMAL: Final = 3
KIND_TRUNCATED: Final = 4

MAX_S2: Final = 8 * 65535
STD_OF_S2: Final = 2.0 * math.sqrt(8 * (65536**2 - 1) / 12)  # of twice a sum of eight uniform 16-bit integers

_MAX_FLOAT32 = float(np.finfo(np.float32).max)
_MIN_NORMAL = 2.0**-126
_CHUNK_DRAWS = 1 << 17  # the reference's temporaries stay near the cache


class InitProgram(NamedTuple):
    """An initializer resolved for a dim: all that the core and the kernels take. See native/rows/initializer.h."""

    kind: int  # KIND_*
    scale: float = 0.0  # a float32 value: weight = float32(drawn int) * scale
    a: int = 0  # uniform: the lowest drawn int
    b: int = 0  # uniform: one past the highest drawn int; truncated: the highest |drawn int|
    constant: float = 0.0  # a float32 value

    @property
    def max_abs(self) -> float:
        """No initial weight is larger in magnitude."""
        reach = {KIND_UNIFORM: max(abs(self.a), abs(self.b)), KIND_NORMAL: MAX_S2, KIND_TRUNCATED: self.b}
        return abs(self.constant) if self.kind == KIND_CONSTANT else reach.get(self.kind, 0) * self.scale


@dataclass(frozen=True, kw_only=True, slots=True)
class Initializer(Config, ABC):
    """Base of the initializers."""

    @abstractmethod
    def program(self, dim: int) -> InitProgram:
        """The initializer for rows of `dim` weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Zeros(Initializer):
    """Every weight is 0."""

    def program(self, dim: int) -> InitProgram:
        """See Initializer.program."""
        return InitProgram(KIND_ZEROS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Constant(Initializer):
    """Every weight is `value`, rounded to float32."""

    value: float

    def __post_init__(self) -> None:
        self._require_float("value", -_MAX_FLOAT32, _MAX_FLOAT32)

    def program(self, dim: int) -> InitProgram:
        """See Initializer.program."""
        return InitProgram(KIND_CONSTANT, constant=float(np.float32(self.value)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Uniform(Initializer):
    """Uniform in [low, high), on a grid of 2**-24 of the larger bound."""

    low: float
    high: float

    def __post_init__(self) -> None:
        self._require_float("low", -_MAX_FLOAT32, _MAX_FLOAT32)
        self._require_float("high", -_MAX_FLOAT32, _MAX_FLOAT32)
        self._require(self.low < self.high, "high", f"more than low, {self.low!r}; for one value use Constant")
        self._require(max(abs(self.low), abs(self.high)) >= 2.0**-101, "high", "bounds not all within 2**-101 of 0")
        program = self.program(1)
        self._require(program.a < program.b, "high", f"at least 2**-24 of the larger bound above low, {self.low!r}")

    def program(self, dim: int) -> InitProgram:
        """See Initializer.program."""
        scale = float(np.float32(max(abs(self.low), abs(self.high)) * 2.0**-24))
        # Rounding `scale` can put the larger bound one past 2**24, which float32 would not hold exactly.
        a, b = (max(-(1 << 24), min(1 << 24, round(bound / scale))) for bound in (self.low, self.high))
        return InitProgram(KIND_UNIFORM, scale, a, b)


@dataclass(frozen=True, kw_only=True, slots=True)
class Normal(Initializer):
    """Near normal with mean 0 (a sum of eight uniforms): the tails end at 4.9 standard deviations."""

    std: float

    def __post_init__(self) -> None:
        self._require_float("std", STD_OF_S2 * _MIN_NORMAL * 2, _MAX_FLOAT32 / 8)

    def program(self, dim: int) -> InitProgram:
        """See Initializer.program."""
        return InitProgram(KIND_NORMAL, float(np.float32(self.std / STD_OF_S2)))


@dataclass(frozen=True, kw_only=True, slots=True)
class TruncatedNormal(Initializer):
    """Normal(std) drawn again while beyond `bound_sigmas` * std; `std` is the one before truncation."""

    std: float
    bound_sigmas: float = 2.0

    def __post_init__(self) -> None:
        self._require_float("std", STD_OF_S2 * _MIN_NORMAL * 2, _MAX_FLOAT32 / 8)
        # Below one sigma so many draws are refused that clamping after the last attempt would show.
        self._require_float("bound_sigmas", 1.0, math.inf)

    def program(self, dim: int) -> InitProgram:
        """See Initializer.program."""
        limit = min(MAX_S2, math.floor(self.bound_sigmas * STD_OF_S2))
        return InitProgram(KIND_TRUNCATED, float(np.float32(self.std / STD_OF_S2)), 0, limit)


@dataclass(frozen=True, kw_only=True, slots=True)
class Xavier(Initializer):
    """Uniform within sqrt(3 / dim), so that a row's expected squared norm is 1."""

    def program(self, dim: int) -> InitProgram:
        """See Initializer.program."""
        bound = math.sqrt(3.0 / dim)
        return Uniform(low=-bound, high=bound).program(dim)


def initial_rows(spec: Initializer, seed: int, table: str, ids: I64, dim: int) -> F32:
    """float32 [n, dim]: the first weights of `ids`, before rounding to the table's weight dtype."""
    return draw_weights(spec.program(dim), table_key(table, seed), ids, dim)


def draw_weights(program: InitProgram, key: int, ids: I64, dim: int) -> F32:
    """float32 [n, dim]: the same bits as the core's InitialWeights."""
    ids = np.asarray(ids)
    if ids.dtype != np.int64 or ids.ndim != 1:
        raise ConfigError(f"ids: found {ids.dtype} with {ids.ndim} dimensions, expected int64 with 1")
    if program.kind in (KIND_ZEROS, KIND_CONSTANT):
        return np.full((len(ids), dim), program.constant, np.float32)
    weights = np.empty((len(ids), dim), np.float32)
    scale, rows = np.float32(program.scale), max(1, _CHUNK_DRAWS // dim)
    for start in range(0, len(ids), rows):
        some = ids[start : start + rows]
        if program.kind == KIND_UNIFORM:
            drawn = uniform_draws(key, some, dim, program.a, program.b)
        elif program.kind == KIND_NORMAL:
            drawn = normal_draws(key, some, dim)
        else:
            drawn = truncated_draws(key, some, dim, program.b)
        weights[start : start + rows] = drawn.astype(np.float32) * scale
    return weights
