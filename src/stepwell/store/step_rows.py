"""What fetching and reading of many tables at once give: rows by address, in the order of the ids that were asked for.

Tables come one after another in the order given, and within a table rows in the order of its ids. U rows in all.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stepwell.store.tables import I64, U8, U32, Mask

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
