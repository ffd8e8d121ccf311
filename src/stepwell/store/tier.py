"""What a store asks of a tier: two protocols, one for any tier, one for the tier that rows are used in.

Ids are int64 [n], records uint8 [n, record_bytes] (rows.RowLayout), tables are numbers. Every verb takes a batch,
may be called from any thread and either does what it says or raises with nothing changed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from stepwell.native import ExpiryRule, TableGroup
from stepwell.store.tables import I64, U8, U32, Mask

Parts = Sequence[tuple[int, I64]]  # ids of several tables, by their numbers; a table may come more than once
ABSENT = 0xFFFFFFFF  # a location that is none


@dataclass(frozen=True, slots=True)
class TierStats:
    """One tier at one moment. `details` are the tier's own figures, by the names its documentation gives."""

    name: str
    rows: int
    bytes_used: int
    budget_bytes: int
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """Records of a batch; an absent row's bytes are 0. A location that has not changed says the row has not."""

    records: U8
    found: Mask
    locations: U32


class Tier(Protocol):
    """Holds records by (table, id). Rows that were never committed never reach one below the top."""

    name: str

    def find(self, table: int, ids: I64) -> Found:
        """The rows that are there, are committed and have not expired."""

    def locate(self, table: int, ids: I64) -> U32:
        """Each row's location as `find` gives it, ABSENT if it has none, without reading rows."""

    def find_parts(self, parts: Parts) -> list[Found]:
        """`find` for every part, in one pass over the tier's storage however many parts want a row."""

    def locate_parts(self, parts: Parts) -> list[U32]:
        """`locate` for every part."""

    def insert_or_assign(self, table: int, ids: I64, records: U8) -> None:
        """Write whole records; of equal ids the last wins. StoreFull or DiskFull when there is no room."""

    def erase(self, table: int, ids: I64) -> Mask:
        """Remove rows for good; True at the first of equal ids where one was there."""

    def set_expiry(self, table: int, rule: ExpiryRule) -> None:
        """From now on rows the rule names are absent."""

    def make_room(self) -> int:
        """Drop what expired and give its place back; how many rows went."""

    def scan(self, table: int) -> Iterator[tuple[I64, U8]]:
        """Every row once, in batches, if nobody writes meanwhile."""

    def num_rows(self, table: int) -> int:
        """Rows held, those included that expired and were not dropped yet."""

    def sync(self) -> None:
        """What was written before is durable afterwards."""

    def stats(self) -> TierStats:
        """Figures for operators."""

    def close(self) -> None:
        """Let go of memory, files and locks. Closing twice is fine."""


class ResidentTier(Tier, Protocol):
    """A tier that rows are used in: they have slots, pins and a dirty mark, and can be evicted to the tier below."""

    def find_slots(self, table: int, ids: I64, *, pin: bool) -> I64:
        """Each row's slot, -1 where it is not resident."""

    def find_or_insert(self, table: int, ids: I64, *, pin: bool) -> tuple[I64, Mask]:
        """Slots, and which rows were placed now with their first values, not committed."""

    def insert_clean(self, table: int, ids: I64, records: U8, *, pin: bool) -> tuple[I64, Mask]:
        """Place rows that the tier below holds too; a row that is resident stays as it is."""

    def read(self, table: int, ids: I64) -> tuple[U8, Mask]:
        """Resident records, those not committed included."""

    def unpin(self, table: int, slots: I64, dirty: Mask) -> None:
        """Take one pin off each slot, as often as it is named."""

    def group(self, tables: Sequence[int]) -> TableGroup:
        """The core's verbs over all of these tables at once, in this order."""

    def victims(self, table: int, want: int, now: int) -> tuple[I64, U8, Mask]:
        """Unpinned rows that should leave first: ids, records, and which must be stored below before `release`."""

    def release(self, table: int, ids: I64) -> int:
        """Drop rows that are unpinned and clean; how many."""

    def mark_dirty(self, table: int, ids: I64) -> None:
        """Undo `victims`' word that rows were stored."""

    def dirty_rows(self, table: int) -> Iterator[tuple[I64, U8]]:
        """Committed rows that the tier below does not have as they are; each batch counts as stored."""

    def rows_left(self, table: int) -> int:
        """Slots free for the table's layout."""

    def capacity(self, table: int) -> int:
        """Slots of the table's layout."""

    def bytes_for(self, table: int, rows: int) -> int:
        """The budget with which `capacity` would be at least `rows`."""
