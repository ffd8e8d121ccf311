"""Policies' specs: which new ids get a row, which rows leave a tier first, which rows leave the store."""

import math
from abc import ABC
from dataclasses import dataclass
from typing import ClassVar, Literal

from stepwell.config import Config

_MAX_U32 = (1 << 32) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Admission(Config, ABC):
    """Base of the admission policies. Until it is admitted, an id has its initial row for each batch only."""

    kind: ClassVar[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Always(Admission):
    """Every id is admitted when first seen."""

    kind: ClassVar[int] = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class MinCount(Admission):
    """An id is admitted in the step in which a counting filter has counted it `n` times, once per step."""

    kind: ClassVar[int] = 1
    n: int
    expected_ids: int = 1 << 20  # ids that are counted and not admitted; sizes the filter

    def __post_init__(self) -> None:
        self._require_int("n", 1, (1 << 16) - 1)  # the filter's counters are 16 bits
        self._require_int("expected_ids", 1, 1 << 48)


@dataclass(frozen=True, kw_only=True, slots=True)
class Probability(Admission):
    """An id is admitted with probability `p` in each step that has it, by a draw from (seed, table, id, step)."""

    kind: ClassVar[int] = 2
    p: float

    def __post_init__(self) -> None:
        self._require_float("p", 0.0, 1.0, above_low=True)
        self._require(self.threshold > 0, "p", "at least 2**-32, the smallest probability a draw can have")

    @property
    def threshold(self) -> int:
        """0..2**32: the id is admitted where `admission_draw` is below it."""
        return int(self.p * 2.0**32)


@dataclass(frozen=True, kw_only=True, slots=True)
class Eviction(Config, ABC):
    """Base of the eviction orders: which unpinned row gives up its place in a tier first."""

    kind: ClassVar[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class LRU(Eviction):
    """The row whose last step is the oldest."""

    kind: ClassVar[int] = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LFU(Eviction):
    """The row whose effective count is the smallest. Counts halve at every multiple of `decay_steps`."""

    kind: ClassVar[int] = 1
    decay_steps: int = 0  # 0: counts never halve

    def __post_init__(self) -> None:
        self._require_int("decay_steps", 0, _MAX_U32)

    def effective_count(self, count: int, last_step: int, now: int) -> int:
        """The count that orders a row at step `now`; REQUIRES last_step <= now."""
        return count >> min(63, now // self.decay_steps - last_step // self.decay_steps) if self.decay_steps else count


@dataclass(frozen=True, kw_only=True, slots=True)
class Expiry(Config, ABC):
    """Base of the expiry policies. They compose: a row expires when any of its table's says so."""

    kind: ClassVar[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class TTL(Expiry):
    """A row expires when unused for more than `steps` steps, or `seconds` of event time: give exactly one."""

    kind: ClassVar[int] = 0
    steps: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._require_int("steps", 0, _MAX_U32)
        self._require_float("seconds", 0.0, math.inf)
        if self.steps:
            self._require(not self.seconds, "seconds", f"0, because steps is {self.steps}: give exactly one")
        else:
            self._require(self.seconds > 0, "seconds", "more than 0, because steps is 0: give exactly one")


@dataclass(frozen=True, kw_only=True, slots=True)
class MaxRows(Expiry):
    """Rows beyond `n` expire when a step commits: the least recently or least frequently used, ties by id hash.

    "lru" costs a histogram of last steps. "lfu" (counts decay as the table's LFU eviction says) reads every row's
    stamps when the table is full, so it then makes room for n // 20 rows at once.
    """

    kind: ClassVar[int] = 1
    n: int
    by: Literal["lru", "lfu"] = "lru"

    def __post_init__(self) -> None:
        self._require_int("n", 1, 1 << 48)
        self._require(self.by in ("lru", "lfu"), "by", "'lru' or 'lfu'")


@dataclass(frozen=True, kw_only=True, slots=True)
class L2Below(Expiry):
    """A row seen at least `min_count` times expires when the L2 norm of its weight is below `norm`."""

    kind: ClassVar[int] = 2
    norm: float
    min_count: int = 1

    def __post_init__(self) -> None:
        self._require_float("norm", 0.0, math.inf, above_low=True)
        self._require_int("min_count", 1, _MAX_U32)
