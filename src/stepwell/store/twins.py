"""Twins of a tier: one in a dict, one that holds nothing, one that fails on demand. For tests and benchmarks."""

from collections.abc import Callable, Iterator

import numpy as np

from stepwell.native import ExpiryRule
from stepwell.store.tables import I64, U8, U32, Mask, Tables
from stepwell.store.tier import ABSENT, Found, Parts, Tier, TierStats

_SCAN_ROWS = 1024


class MemoryTier:
    """Rows in a dict: what every tier must agree with. Implements Tier."""

    name = "memory"

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._rows: dict[int, dict[int, U8]] = {table.number: {} for table in tables}
        self._places: dict[int, dict[int, int]] = {table.number: {} for table in tables}
        self._rules: dict[int, ExpiryRule] = {}
        self._next = 0

    def find(self, table: int, ids: I64) -> Found:
        """See Tier.find."""
        layout = self._tables.numbered(table).layout
        records = np.zeros((len(ids), layout.record_bytes), np.uint8)
        found = np.zeros(len(ids), np.bool_)
        for i, row_id in enumerate(ids.tolist()):
            record = self._rows[table].get(row_id)
            if record is not None:
                records[i], found[i] = record, True
        found &= ~self._expired(table, ids, records)
        records[~found] = 0
        return Found(records, found, self.locate(table, ids))

    def locate(self, table: int, ids: I64) -> U32:
        """See Tier.locate."""
        places = self._places[table]
        return np.array([places.get(row_id, ABSENT) for row_id in ids.tolist()], np.uint32)

    def find_parts(self, parts: Parts) -> list[Found]:
        """See Tier.find_parts."""
        return [self.find(table, ids) for table, ids in parts]

    def locate_parts(self, parts: Parts) -> list[U32]:
        """See Tier.locate_parts."""
        return [self.locate(table, ids) for table, ids in parts]

    def insert_or_assign(self, table: int, ids: I64, records: U8) -> None:
        """See Tier.insert_or_assign."""
        for row_id, record in zip(ids.tolist(), records, strict=True):
            self._rows[table][row_id] = record.copy()
            self._places[table][row_id] = self._next
            self._next = (self._next + 1) % ABSENT

    def erase(self, table: int, ids: I64) -> Mask:
        """See Tier.erase."""
        erased = np.zeros(len(ids), np.bool_)
        for i, row_id in enumerate(ids.tolist()):
            erased[i] = self._rows[table].pop(row_id, None) is not None
            self._places[table].pop(row_id, None)
        return erased

    def set_expiry(self, table: int, rule: ExpiryRule) -> None:
        """See Tier.set_expiry."""
        self._rules[table] = rule

    def make_room(self) -> int:
        """See Tier.make_room."""
        dropped = 0
        for table, rows in self._rows.items():
            for ids, records in self._batches(rows):
                dropped += int(self.erase(table, ids[self._expired(table, ids, records)]).sum())
        return dropped

    def scan(self, table: int) -> Iterator[tuple[I64, U8]]:
        """See Tier.scan."""
        for ids, records in self._batches(self._rows[table]):
            live = ~self._expired(table, ids, records)
            yield ids[live], records[live]

    def num_rows(self, table: int) -> int:
        """See Tier.num_rows."""
        return len(self._rows[table])

    def sync(self) -> None:
        """See Tier.sync; a dict outlives nothing."""

    def stats(self) -> TierStats:
        """See Tier.stats."""
        rows = sum(len(rows) for rows in self._rows.values())
        used = sum(len(rows) * self._tables.numbered(table).layout.record_bytes for table, rows in self._rows.items())
        return TierStats(name=self.name, rows=rows, bytes_used=used, budget_bytes=0)

    def close(self) -> None:
        """See Tier.close."""

    def _expired(self, table: int, ids: I64, records: U8) -> Mask:
        rule = self._rules.get(table)
        if rule is None:
            return np.zeros(len(ids), np.bool_)
        last_steps = np.ascontiguousarray(self._tables.numbered(table).layout.views(records).last_step)
        expired = np.empty(len(ids), np.uint8)
        rule.expired(ids, last_steps, expired)
        return expired.view(np.bool_)

    @staticmethod
    def _batches(rows: dict[int, U8]) -> Iterator[tuple[I64, U8]]:
        ids = np.fromiter(rows, np.int64, len(rows))
        for start in range(0, len(ids), _SCAN_ROWS):
            some = ids[start : start + _SCAN_ROWS]
            yield some, np.stack([rows[row_id] for row_id in some.tolist()])


class NullTier(MemoryTier):
    """Takes every row and keeps none: the cost of the tiers above it alone."""

    name = "null"

    def insert_or_assign(self, table: int, ids: I64, records: U8) -> None:
        """Forget the rows."""


class FaultyTier:
    """Another tier, but for the calls that `fault(verb, table)` raises in. Implements Tier."""

    def __init__(self, inner: Tier, fault: Callable[[str, int], None]) -> None:
        self._inner = inner
        self._fault = fault
        self.name = inner.name

    def find(self, table: int, ids: I64) -> Found:
        """See Tier.find."""
        self._fault("find", table)
        return self._inner.find(table, ids)

    def locate(self, table: int, ids: I64) -> U32:
        """See Tier.locate."""
        self._fault("locate", table)
        return self._inner.locate(table, ids)

    def find_parts(self, parts: Parts) -> list[Found]:
        """See Tier.find_parts."""
        return [self.find(table, ids) for table, ids in parts]

    def locate_parts(self, parts: Parts) -> list[U32]:
        """See Tier.locate_parts."""
        return [self.locate(table, ids) for table, ids in parts]

    def insert_or_assign(self, table: int, ids: I64, records: U8) -> None:
        """See Tier.insert_or_assign."""
        self._fault("insert_or_assign", table)
        self._inner.insert_or_assign(table, ids, records)

    def erase(self, table: int, ids: I64) -> Mask:
        """See Tier.erase."""
        self._fault("erase", table)
        return self._inner.erase(table, ids)

    def set_expiry(self, table: int, rule: ExpiryRule) -> None:
        """See Tier.set_expiry."""
        self._fault("set_expiry", table)
        self._inner.set_expiry(table, rule)

    def make_room(self) -> int:
        """See Tier.make_room."""
        self._fault("make_room", -1)
        return self._inner.make_room()

    def scan(self, table: int) -> Iterator[tuple[I64, U8]]:
        """See Tier.scan."""
        self._fault("scan", table)
        return self._inner.scan(table)

    def num_rows(self, table: int) -> int:
        """See Tier.num_rows."""
        return self._inner.num_rows(table)

    def sync(self) -> None:
        """See Tier.sync."""
        self._fault("sync", -1)
        self._inner.sync()

    def stats(self) -> TierStats:
        """See Tier.stats."""
        return self._inner.stats()

    def close(self) -> None:
        """See Tier.close."""
        self._inner.close()
