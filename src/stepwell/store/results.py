"""What a store's verbs give back: copies of a table's rows, rows of many tables by address, figures.

Where there are many tables, they come one after another in the order given, each one's rows in the order of its ids;
T tables, U rows in all.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stepwell.rows import RowLayout, RowViews, decode_weights
from stepwell.store.tables import I64, U8, U32, Mask
from stepwell.store.tier import TierStats

U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class StepRows:
    """A step's rows in DRAM, pinned until the step commits: their addresses hold until then."""

    step: int
    tables: tuple[str, ...]
    starts: I64  # [T + 1]: table t has rows starts[t] to starts[t + 1]
    ids: I64  # [U]
    slots: U32  # [U], in the range of each table's layout
    addresses: U64  # [U]: where each row's record lies


@dataclass(frozen=True, slots=True, eq=False)
class RowCopies:
    """Copies of rows. One that is not stored is as it would be born: first values, count 0.

    Keep this object for as long as its addresses are used.
    """

    tables: tuple[str, ...]
    starts: I64  # [T + 1]
    found: Mask  # [U]: stored, committed and live
    addresses: U64  # [U]: where each copy lies
    records: dict[str, U8] = field(repr=False)  # by table, uint8 [n, record_bytes]: what the addresses point to


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch of rows, copied out. Absent rows are zero and not `found`."""

    records: U8  # [n, record_bytes]
    found: Mask  # [n]
    layout: RowLayout

    @property
    def weights(self) -> npt.NDArray[np.float32]:
        """float32 [n, dim]."""
        return decode_weights(self.views.weight, self.layout.weight_dtype)

    @property
    def views(self) -> RowViews:
        """Weights as stored, state, counts and last steps, as views of `records`."""
        return self.layout.views(self.records)


@dataclass(frozen=True, slots=True)
class StoreStats:
    """A store at one moment."""

    step: int
    epoch: int
    rows: dict[str, int]  # live rows by table, as of `step`
    tiers: tuple[TierStats, ...]
    counters: dict[str, int]
