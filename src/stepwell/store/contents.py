"""Contents: rows by name across the tiers, whatever step they belong to: reading, writing, erasing, exporting.

A row is where it is found first: DRAM, then the tier below. It leaves DRAM only after the tier below has it, and is
erased below first, so that a reader who holds no lock sees it as it was before or after, never an older state.
"""

import time
from collections.abc import Iterator

import numpy as np

from stepwell.errors import StoreError
from stepwell.rows import LFU
from stepwell.store.dram import DramTier
from stepwell.store.expiry import least_frequent
from stepwell.store.placement import Placement, first_of_each
from stepwell.store.steps import Steps
from stepwell.store.tables import I64, U8, U32, Mask, Table, Tables
from stepwell.store.tier import Tier


class Contents:
    """The rows of one store. The verbs that change rows require the store's lock."""

    def __init__(self, tables: Tables, top: DramTier | None, below: Tier | None) -> None:
        self._tables = tables
        self._top = top
        self._below = below

    def read(self, number: int, ids: I64) -> tuple[U8, Mask]:
        """Committed, live rows, and which of them there are. No lock needed."""
        if self._top is None:
            records = np.zeros((len(ids), self._tables.numbered(number).layout.record_bytes), np.uint8)
            there = np.zeros(len(ids), np.bool_)
        else:
            found = self._top.find(number, ids)
            records, there = found.records, found.found
        missing = np.flatnonzero(~there)
        if self._below is None or len(missing) == 0:
            return records, there
        if len(missing) == len(ids):
            below = self._below.find(number, ids)
            return below.records, below.found
        below = self._below.find(number, np.ascontiguousarray(ids[missing]))
        records[missing], there[missing] = below.records, below.found
        return records, there

    def export(self, table: Table) -> Iterator[tuple[I64, U8]]:
        """Every row once. Rows changed meanwhile come in an old or a new state. No lock needed."""
        known: list[I64] = []
        if self._top is not None:
            for ids, records in self._top.scan(table.number):
                if self._below is not None:
                    known.append(ids)
                yield ids, records
        if self._below is None:
            return
        seen = np.sort(np.concatenate(known)) if known else np.empty(0, np.int64)
        for ids, records in self._below.scan(table.number):
            new = ~_among(seen, ids)
            if new.any():
                yield ids[new], records[new]


def _among(ordered: I64, ids: I64) -> Mask:
    if len(ordered) == 0:
        return np.zeros(len(ids), np.bool_)
    return np.asarray(ordered[np.minimum(np.searchsorted(ordered, ids), len(ordered) - 1)] == ids)


class Editor(Contents):
    """Changes to rows by name. They are state at once, and belong to the step that commits next."""

    def __init__(self, tables: Tables, top: DramTier, below: Tier | None, steps: Steps, placement: Placement) -> None:
        super().__init__(tables, top, below)
        self._resident = top
        self._lower = below
        self._steps = steps
        self._placement = placement

    @property
    def now(self) -> int:
        """The last step that has committed."""
        return self._steps.committed

    def assign(self, table: Table, ids: I64, records: U8, timeout_s: float) -> None:
        """Write whole records; of equal ids the last wins.

        Over a tier below, a batch of more than a quarter of the slots goes in parts: an error's note says how many
        rows were written before it. A part is written as a whole or not at all.
        """
        last = np.flatnonzero(first_of_each(ids[::-1]))
        keep = np.sort(len(ids) - 1 - last)
        part = max(1, self._resident.capacity(table.number) // 4)
        if self._lower is None:  # in parts, a full tier would be found out half-way
            part = max(1, len(keep))
        for start in range(0, len(keep), part):
            chosen = keep[start : start + part]
            try:
                self._assign_part(table, np.ascontiguousarray(ids[chosen]), records[chosen], timeout_s)
            except StoreError as error:
                if start:
                    error.add_note(f"{start} of {len(keep)} rows were written before that")
                raise

    def _assign_part(self, table: Table, ids: I64, records: U8, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while True:  # making room can send rows of this very batch down
            absent = int((self._resident.find_slots(table.number, ids, pin=False) < 0).sum())
            if self._resident.rows_left(table.number) >= absent:
                break
            self._placement.make_room(table, absent, self._steps.committed, deadline)
        before, there = self.read(table.number, ids)
        self._resident.insert_or_assign(table.number, ids, np.ascontiguousarray(records))
        old_steps = table.layout.views(before).last_step
        self._steps.expiries[table.number].remove(ids[there], old_steps[there])
        self._steps.added(table, ids, table.layout.views(records).last_step)

    def erase(self, table: Table, ids: I64) -> Mask:
        """Remove rows from every tier; True at the first position of each id that was there."""
        before, there = self.read(table.number, ids)
        going = there & first_of_each(ids)
        if self._lower is not None:
            self._lower.erase(table.number, ids)
        self._resident.erase(table.number, ids)
        last_steps = table.layout.views(before).last_step
        self._steps.removed(table, ids[going], last_steps[going])
        return going

    def expire_by_lfu(self, table: Table) -> None:
        """MaxRows by lfu: erase the least frequently used rows, if there are too many."""
        going = self._steps.over_by_lfu(table)
        if going == 0:
            return
        ids: list[I64] = []
        counts: list[U32] = []
        for some, records in self.export(table):
            views = table.layout.views(records)
            ids.append(some)
            counts.append(_decayed(table, views.count, views.last_step, self._steps.committed))
        self.erase(table, least_frequent(np.concatenate(ids), np.concatenate(counts), going))


def _decayed(table: Table, counts: U32, last_steps: U32, now: int) -> U32:
    eviction = table.spec.eviction
    if not isinstance(eviction, LFU) or eviction.decay_steps == 0:
        return counts.copy()
    halvings = np.int64(now // eviction.decay_steps) - last_steps.astype(np.int64) // eviction.decay_steps
    decayed = counts.astype(np.int64) >> np.clip(halvings, 0, 62)
    return np.asarray(decayed, np.uint32)
