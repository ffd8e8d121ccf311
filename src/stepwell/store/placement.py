"""Placement: brings a batch's rows up into the tier where they are used, and makes room there.

Invariants
1. A row leaves DRAM only when the tier below holds it as it is, or when nobody's state has it.
2. A row read from below is placed only if its location below is still what it was when the read began, under the
   store's lock; else it is read again. An update, an erase or an eviction in between is therefore never lost.
3. While a batch waits for room, what it has pinned stays pinned; a batch that can never fit is refused first.
"""

import time
from collections import Counter
from threading import Condition

import numpy as np

from stepwell.errors import BudgetTooSmall, ConfigError, StoreFull
from stepwell.store.tables import I64, U8, Mask, Table, Tables
from stepwell.store.tier import ResidentTier, Tier

_EXTRA_SHARE = 64  # an eviction makes room for a 64th of the layout's slots more than asked, so that few are needed


class Placement:
    """Moves rows between the top tier and the one below, for one store."""

    def __init__(
        self, tables: Tables, top: ResidentTier, below: Tier | None, changed: Condition, counters: Counter[str]
    ) -> None:
        """`changed` is the store's lock, notified when rows lose pins or leave."""
        self._tables = tables
        self._top = top
        self._below = below
        self._changed = changed
        self._counters = counters
        self._layouts = tables.by_layout()
        self._gave_up = False

    def place(self, table: Table, ids: I64, *, insert: bool, now: int, timeout_s: float) -> I64:
        """Slots of unique ids, each with one pin more; absent ids are placed with first values, or -1."""
        slots = np.full(len(ids), -1, np.int64)
        try:
            self._place(table, ids, slots, insert, now, time.monotonic() + timeout_s)
        except BaseException:
            pinned = slots[slots >= 0]
            with self._changed:
                self._top.unpin(table.number, pinned, np.zeros(len(pinned), np.bool_))
                self._changed.notify_all()
            raise
        return slots

    def _place(self, table: Table, ids: I64, slots: I64, insert: bool, now: int, deadline: float) -> None:
        number = table.number
        slots[:] = self._top.find_slots(number, ids, pin=True)
        todo = np.flatnonzero(slots < 0)
        self._counters["hits_dram"] += len(ids) - len(todo)
        while len(todo):
            below = self._below.find(number, ids[todo]) if self._below is not None else None
            with self._changed:
                settled = np.ones(len(todo), np.bool_)
                rows = np.zeros(len(todo), np.bool_)
                if self._below is not None and below is not None:
                    settled = self._below.locate(number, ids[todo]) == below.locations
                    rows = below.found & settled
                new = settled & ~rows if insert else np.zeros(len(todo), np.bool_)
                if self.make_room(table, int(rows.sum() + new.sum()), now, deadline):
                    continue  # the lock was let go while waiting for room: look again
                if below is not None and rows.any():
                    promoted = todo[rows]
                    slots[promoted], fresh = self._top.insert_clean(
                        number, ids[promoted], np.ascontiguousarray(below.records[rows]), pin=True
                    )
                    self._counters["promoted"] += int(fresh.sum())
                if new.any():
                    born = todo[new]
                    slots[born], fresh = self._top.find_or_insert(number, ids[born], pin=True)
                    self._counters["placed_new"] += int(fresh.sum())
            todo = todo[~settled]
            self._counters["reread"] += len(todo)

    def make_room(self, table: Table, rows: int, now: int, deadline: float) -> bool:
        """Free slots for `rows` rows of the table's layout; whether the lock was let go meanwhile.

        REQUIRES: the store's lock is held. StoreFull when there is no room and none comes until the deadline.
        """
        waited = False
        while not self.try_room(table, rows, now):
            if self._below is None:
                raise self.full(table, rows)
            if not self.wait(deadline):
                raise StoreFull(
                    f"table {table.spec.name!r} needs room for {rows} rows of {table.layout.record_bytes} bytes and "
                    f"every one of {self._top.capacity(table.number)} slots is pinned by batches in flight or held "
                    "by deltas that readers keep from being merged: unpin them, use fewer at once, or raise dram_bytes"
                )
            waited = True
        return waited

    def wait(self, deadline: float) -> bool:
        """Wait until rows lose pins or leave; False when none did in time or none will. REQUIRES: the store's lock."""
        start = time.monotonic()
        self._counters["waits_for_pins"] += 1
        changed = not self._gave_up and start < deadline and self._changed.wait(deadline - start)
        self._counters["waits_for_pins_us"] += int((time.monotonic() - start) * 1e6)
        return changed and not self._gave_up

    def give_up(self) -> None:
        """Who waits for room, now or from now on, gets StoreFull. REQUIRES: the store's lock is held."""
        self._gave_up = True
        self._changed.notify_all()

    def try_room(self, table: Table, rows: int, now: int) -> bool:
        """Free slots for `rows` rows of the table's layout if rows without pins can make way.

        REQUIRES: the store's lock is held.
        """
        while (left := self._top.rows_left(table.number)) < rows:
            extra = self._top.capacity(table.number) // _EXTRA_SHARE
            went = self._top.make_room() if self._below is None else self.evict(table, rows - left + extra, now)
            if went == 0:
                return False
        return True

    def full(self, table: Table, rows: int) -> StoreFull:
        """What to say when the only tier is full."""
        return StoreFull(
            f"table {table.spec.name!r} needs {rows} more rows and {self._top.name}, the only tier, has room for "
            f"{self._top.rows_left(table.number)}: raise dram_bytes to "
            f"{self._top.bytes_for(table.number, self._top.capacity(table.number) + rows)}, add an SSD tier, or give "
            "the table an expiry policy"
        )

    @property
    def has_below(self) -> bool:
        """Whether rows can leave for a tier below."""
        return self._below is not None

    def rows_at_hand(self, table: Table) -> int:
        """Slots of the table's layout that are free or that rows could leave now, pins aside."""
        rows = self._top.rows_left(table.number)
        if self._below is not None:
            rows += sum(self._top.num_rows(member.number) for member in self._layouts[table.layout.fingerprint])
        return rows

    def evict(self, table: Table, want: int, now: int) -> int:
        """Send about `want` rows of the table's layout down, from its tables by their sizes; how many left.

        REQUIRES: the store's lock is held.
        """
        members = self._layouts[table.layout.fingerprint]
        sizes = [self._top.num_rows(member.number) for member in members]
        total = max(1, sum(sizes))
        left = 0
        for member, size in zip(members, sizes, strict=True):
            part = min(size, -(-want * size // total))
            if part > 0:
                ids, records, store = self._top.victims(member.number, part, now)
                self._send_down(member, ids[store], records[store])
                left += self._top.release(member.number, ids)
        self._counters["evicted"] += left
        return left

    def evict_ahead(self, table: Table, rows: int, now: int) -> int:
        """Free slots for `rows` rows of the table's layout, at most a quarter of them; how many rows left.

        REQUIRES: the store's lock is held.
        """
        capacity = self._top.capacity(table.number)
        short = min(rows, capacity // 4) - self._top.rows_left(table.number)
        if self._below is None or short <= 0:
            return 0
        return self.evict(table, short + capacity // _EXTRA_SHARE, now)

    def flush(self) -> None:
        """Make the tier below hold every committed row as it is. REQUIRES: the store's lock is held."""
        for table in self._tables:
            for ids, records in self._top.dirty_rows(table.number):
                self._send_down(table, ids, records)

    def _send_down(self, table: Table, ids: I64, records: U8) -> None:
        if self._below is None:
            raise ConfigError("there is no tier below DRAM to send rows to; give the store an ssd_directory")
        if len(ids) == 0:
            return
        try:
            try:
                self._below.insert_or_assign(table.number, ids, np.ascontiguousarray(records))
            except StoreFull:
                if self._below.make_room() == 0:
                    raise
                self._below.insert_or_assign(table.number, ids, np.ascontiguousarray(records))
        except BaseException:
            self._top.mark_dirty(table.number, ids)
            raise
        self._counters["written_back"] += len(ids)

    def check_fits(self, table: Table, rows: int) -> None:
        """BudgetTooSmall unless `rows` rows of the table's layout can be in use at once."""
        if rows > self._top.capacity(table.number):
            raise BudgetTooSmall(
                f"a step has {rows} different ids in table {table.spec.name!r} and those of its row layout, and "
                f"dram_bytes holds {self._top.capacity(table.number)} such rows: raise dram_bytes to at least "
                f"{self._top.bytes_for(table.number, rows)}, or make batches smaller"
            )


def first_of_each(ids: I64) -> Mask:
    """True at the first position of each id."""
    first = np.zeros(len(ids), np.bool_)
    first[np.unique(ids, return_index=True)[1]] = True
    return first
