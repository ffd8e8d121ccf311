"""DramTier: rows in host memory. One range of slots per row layout; see docs/architecture.md for its bytes."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from stepwell.errors import BudgetTooSmall, StoreFull
from stepwell.native import DramTable, ExpiryRule, InitProgram, TableGroup, ThreadPool
from stepwell.rows import LFU
from stepwell.store.tables import I64, U8, U32, Mask, Table, Tables
from stepwell.store.tier import ABSENT, Found, Parts, TierStats

SHARDS = 256
_ROW_OVERHEAD_BYTES = 21  # index (14.5 at worst, a little more while small arrays grow) and the slot's mark
_TABLE_BYTES = 128 << 10  # a table's index with hardly a row in it
_LAYOUT_BYTES = 64 << 10  # rounding to pages


class DramTier:
    """Rows in memory, all of them or those in use over a tier below. Implements ResidentTier."""

    name = "dram"

    def __init__(self, tables: Tables, budget_bytes: int, pool: ThreadPool) -> None:
        self._tables = tables
        self._budget_bytes = budget_bytes
        self._pool = pool
        self._cores: dict[int, DramTable] = {}
        self._held: Counter[int] = Counter()  # layout -> slots that nobody gets: their bytes are overlays' indexes
        self._places: dict[int, tuple[DramTable, int]] = {}
        groups = tables.by_layout()
        self._fractions = tables.fractions()
        self._fixed_bytes = sum(_LAYOUT_BYTES + _TABLE_BYTES * len(members) for members in groups.values())
        for fingerprint, members in groups.items():
            layout = members[0].layout
            share = int(max(0, budget_bytes - self._fixed_bytes) * self._fractions[fingerprint])
            rows = min(share // (layout.record_bytes + _ROW_OVERHEAD_BYTES), ABSENT - 1)
            if rows < 1:
                needed = max(self._bytes_for(group[0], 1) for group in groups.values())
                raise BudgetTooSmall(
                    f"dram_bytes is {budget_bytes}, which holds no row of {layout.record_bytes} bytes beside the "
                    f"{self._fixed_bytes} bytes of the tables' indexes: raise it to at least {needed}, which holds one "
                    "of every layout"
                )
            core = DramTable(layout.record_bytes, layout.count_offset, rows, pool)
            self._cores[fingerprint] = core
            for table in members:
                self._places[table.number] = (core, self.add_index(table))

    def add_index(self, table: Table) -> int:
        """One more index over the slots of the table's layout, empty; its number in the layout's core."""
        core = self._cores[table.layout.fingerprint]
        program = table.spec.initializer.program(table.spec.dim)
        return core.add_table(
            key=table.key,
            program=InitProgram(program.kind, program.scale, program.a, program.b, program.constant),
            dim=table.spec.dim,
            weight_dtype=table.layout.weight_dtype_code,
            blank=table.spec.initial_record(),
        )

    def rows_for_index(self, table: Table) -> int:
        """How many rows take as many bytes as one more index."""
        return -(-_TABLE_BYTES // (table.layout.record_bytes + _ROW_OVERHEAD_BYTES))

    def add_overlay_index(self, table: Table) -> int:
        """`add_index` within the budget: for good, so use it again. StoreFull without `rows_for_index` free slots."""
        rows = self.rows_for_index(table)
        if not self._cores[table.layout.fingerprint].hold_rows(rows):
            raise StoreFull(
                f"an overlay of table {table.spec.name!r} needs {_TABLE_BYTES} bytes for its index, {self.name} has no "
                f"room for them: raise dram_bytes to {self._budget_bytes + _TABLE_BYTES}"
            )
        self._held[table.layout.fingerprint] += rows
        return self.add_index(table)

    def core(self, table: int) -> tuple[DramTable, int]:
        """The core's table and the number it knows this table by."""
        return self._places[table]

    def find(self, table: int, ids: I64) -> Found:
        """See Tier.find; locations are slots."""
        core, number = self._places[table]
        records = np.empty((len(ids), core.record_bytes), np.uint8)
        found = np.empty(len(ids), np.uint8)
        core.find(number, ids, True, 0, records, found)
        return Found(records, found.view(np.bool_), np.full(len(ids), ABSENT, np.uint32))

    def find_parts(self, parts: Parts) -> list[Found]:
        """See Tier.find_parts."""
        return [self.find(table, ids) for table, ids in parts]

    def read(self, table: int, ids: I64) -> tuple[U8, Mask]:
        """See ResidentTier.read."""
        core, number = self._places[table]
        records = np.empty((len(ids), core.record_bytes), np.uint8)
        found = np.empty(len(ids), np.uint8)
        core.find(number, ids, False, 0, records, found)
        return records, found.view(np.bool_)

    def live(self, table: int, ids: I64) -> Mask:
        """Which rows are resident, committed and not expired."""
        core, number = self._places[table]
        found = np.empty(len(ids), np.uint8)
        stamps = np.empty((len(ids), 8), np.uint8)
        core.find(number, ids, True, self._tables.numbered(table).layout.count_offset, stamps, found)
        return found.view(np.bool_)

    def stamps(self, table: int, ids: I64) -> tuple[U32, U32]:
        """Counts and last steps of resident rows, 0 for the others."""
        core, number = self._places[table]
        stamps = np.empty((len(ids), 8), np.uint8)
        found = np.empty(len(ids), np.uint8)
        core.find(number, ids, False, self._tables.numbered(table).layout.count_offset, stamps, found)
        both = stamps.view("<u4")
        return np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])

    def locate(self, table: int, ids: I64) -> U32:
        """See Tier.locate; a slot."""
        return self.find_slots(table, ids, pin=False).astype(np.uint32)

    def locate_parts(self, parts: Parts) -> list[U32]:
        """See Tier.locate_parts."""
        return [self.locate(table, ids) for table, ids in parts]

    def find_slots(self, table: int, ids: I64, *, pin: bool) -> I64:
        """See ResidentTier.find_slots."""
        core, number = self._places[table]
        slots = np.empty(len(ids), np.int64)
        core.find_slots(number, ids, pin, slots)
        return slots

    def find_or_insert(self, table: int, ids: I64, *, pin: bool) -> tuple[I64, Mask]:
        """See ResidentTier.find_or_insert."""
        core, number = self._places[table]
        slots, fresh = np.empty(len(ids), np.int64), np.empty(len(ids), np.uint8)
        core.find_or_insert(number, ids, pin, slots, fresh)
        return slots, fresh.view(np.bool_)

    def insert_clean(self, table: int, ids: I64, records: U8, *, pin: bool) -> tuple[I64, Mask]:
        """See ResidentTier.insert_clean."""
        core, number = self._places[table]
        slots, fresh = np.empty(len(ids), np.int64), np.empty(len(ids), np.uint8)
        core.insert_clean(number, ids, records, pin, slots, fresh)
        return slots, fresh.view(np.bool_)

    def insert_or_assign(self, table: int, ids: I64, records: U8) -> None:
        """See Tier.insert_or_assign."""
        core, number = self._places[table]
        core.insert_or_assign(number, ids, records, np.empty(len(ids), np.uint8))

    def erase(self, table: int, ids: I64) -> Mask:
        """See Tier.erase. A pinned row goes back to its first values in its slot."""
        core, number = self._places[table]
        erased = np.empty(len(ids), np.uint8)
        core.erase(number, ids, erased)
        return erased.view(np.bool_)

    def unpin(self, table: int, slots: I64, dirty: Mask) -> None:
        """See ResidentTier.unpin."""
        core, _ = self._places[table]
        core.unpin(slots, dirty.view(np.uint8))

    def group(self, tables: Sequence[int]) -> TableGroup:
        """See ResidentTier.group."""
        return TableGroup([(*self._places[table], self._decay_steps(table)) for table in tables], self._pool)

    def victims(self, table: int, want: int, now: int) -> tuple[I64, U8, Mask]:
        """See ResidentTier.victims."""
        core, number = self._places[table]
        by_count = isinstance(self._tables.numbered(table).spec.eviction, LFU)
        ids, records, need_store = core.take_victims(number, want, by_count, self._decay_steps(table), now)
        return ids, records, need_store.view(np.bool_)

    def release(self, table: int, ids: I64) -> int:
        """See ResidentTier.release."""
        core, number = self._places[table]
        return core.release_clean(number, ids)

    def mark_dirty(self, table: int, ids: I64) -> None:
        """See ResidentTier.mark_dirty."""
        core, number = self._places[table]
        core.mark_dirty(number, ids)

    def dirty_rows(self, table: int) -> Iterator[tuple[I64, U8]]:
        """See ResidentTier.dirty_rows."""
        core, number = self._places[table]
        for shard in range(SHARDS):
            ids, records = core.copy_shard(number, shard, True)
            if len(ids):
                yield ids, records

    def scan(self, table: int) -> Iterator[tuple[I64, U8]]:
        """See Tier.scan; in the order of the ids' hashes."""
        core, number = self._places[table]
        for shard in range(SHARDS):
            ids, records = core.copy_shard(number, shard, False)
            if len(ids):
                yield ids, records

    def set_expiry(self, table: int, rule: ExpiryRule) -> None:
        """See Tier.set_expiry."""
        core, number = self._places[table]
        core.set_expiry(number, rule)

    def make_room(self) -> int:
        """See Tier.make_room; rows that were placed and never committed go too."""
        return sum(core.drop(number, False) for core, number in self._places.values())

    def num_rows(self, table: int) -> int:
        """See Tier.num_rows; rows placed and not committed count."""
        core, number = self._places[table]
        return core.num_rows(number)

    def rows_left(self, table: int) -> int:
        """See ResidentTier.rows_left."""
        return self._places[table][0].rows_left

    def capacity(self, table: int) -> int:
        """See ResidentTier.capacity."""
        fingerprint = self._tables.numbered(table).layout.fingerprint
        return self._cores[fingerprint].max_rows - self._held[fingerprint]

    def bytes_for(self, table: int, rows: int) -> int:
        """See ResidentTier.bytes_for."""
        return self._bytes_for(self._tables.numbered(table), rows)

    def sync(self) -> None:
        """Memory is not durable; the tier below is."""

    def stats(self) -> TierStats:
        """See Tier.stats: `index_bytes`, `row_bytes` and, per layout, `rows_taken` of `max_rows`."""
        cores = self._cores.values()
        taken = {fingerprint: core.rows_taken - self._held[fingerprint] for fingerprint, core in self._cores.items()}
        return TierStats(
            name=self.name,
            rows=sum(taken.values()),
            bytes_used=sum(core.bytes_used for core in cores),
            budget_bytes=self._budget_bytes,
            details={
                "index_bytes": sum(core.index_bytes for core in cores),
                "row_bytes": sum(taken[layout] * core.record_bytes for layout, core in self._cores.items()),
                "layouts": [
                    {
                        "record_bytes": core.record_bytes,
                        "rows_taken": taken[layout],
                        "max_rows": core.max_rows - self._held[layout],
                    }
                    for layout, core in self._cores.items()
                ],
            },
        )

    def close(self) -> None:
        """See Tier.close."""
        self._places.clear()
        self._cores.clear()

    def _bytes_for(self, table: Table, rows: int) -> int:
        row_bytes = table.layout.record_bytes + _ROW_OVERHEAD_BYTES
        budget = self._fixed_bytes + int((rows * row_bytes + 1) / self._fractions[table.layout.fingerprint]) + 1
        return budget + (budget >> 48)  # what a float does not say

    def _decay_steps(self, table: int) -> int:
        eviction = self._tables.numbered(table).spec.eviction
        return eviction.decay_steps if isinstance(eviction, LFU) else 0
