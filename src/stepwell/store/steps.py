"""Steps: what a step touched, and the moment it commits.

Fetching places and pins rows ahead of time and changes nothing that anybody can read. A step's births, stamps,
admission counts and expiries take effect together in `commit`, whatever later steps have pinned already.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stepwell.errors import ConfigError, TouchedLogTruncated
from stepwell.rows import decode_weights
from stepwell.store.admission import Admission
from stepwell.store.dram import DramTier
from stepwell.store.expiry import Expiry, norms
from stepwell.store.tables import I64, U8, U32, Table, Tables
from stepwell.store.tier import Tier

MAX_STEP = (1 << 32) - 2  # stamps are u32
_EMPTY = np.empty(0, np.int64)


@dataclass(slots=True)
class StepLog:
    """The ids that one step, or the changes made between two commits, touched and erased, by table number."""

    step: int
    touched: dict[int, list[I64]] = field(default_factory=dict)
    erased: dict[int, list[I64]] = field(default_factory=dict)

    def size(self) -> int:
        """Ids held."""
        return sum(len(ids) for some in (self.touched, self.erased) for lists in some.values() for ids in lists)


@dataclass(frozen=True, slots=True)
class Touched:
    """Ids by table name, each once and sorted: rows written since a step, and rows removed by name since then.

    An id may be in both; what it is now, only a look can tell. Rows that expire by rule are in neither.
    """

    ids: dict[str, I64]
    erased: dict[str, I64]


class TouchedLog:
    """The last steps' ids, as many as the bound allows; older steps are forgotten whole."""

    def __init__(self, tables: Tables, most_ids: int, since: int) -> None:
        self._tables = tables
        self._most_ids = most_ids
        self._logs: deque[StepLog] = deque()
        self._held = 0
        self._complete_since = since

    def append(self, log: StepLog) -> None:
        """Remember a committed step."""
        self._logs.append(log)
        self._held += log.size()
        while self._held > self._most_ids and self._logs:
            oldest = self._logs.popleft()
            self._held -= oldest.size()
            self._complete_since = oldest.step

    def since(self, step: int, pending: StepLog) -> Touched:
        """Ids of the steps after `step`, and of changes made since the last commit."""
        if step < self._complete_since:
            raise TouchedLogTruncated(
                f"touched({step}): the log of touched ids goes back to step {self._complete_since} only; raise "
                f"touched_ids above {self._most_ids}, ask more often, or export the whole store"
            )
        logs = [log for log in self._logs if log.step > step] + [pending]
        return Touched(
            ids=self._merged([log.touched for log in logs]), erased=self._merged([log.erased for log in logs])
        )

    def _merged(self, parts: list[dict[int, list[I64]]]) -> dict[str, I64]:
        merged: dict[str, I64] = {}
        for table in self._tables:
            lists = [ids for part in parts for ids in part.get(table.number, [])]
            if lists:
                merged[table.spec.name] = np.unique(np.concatenate(lists))
        return merged


class Steps:
    """The committed step, the open ones, and the policies that act at a commit. The store's lock is held around it."""

    def __init__(self, tables: Tables, top: DramTier, below: Tier | None, touched_ids: int, committed: int) -> None:
        self.admissions = {table.number: Admission(table) for table in tables}
        self.expiries = {table.number: Expiry(table) for table in tables}
        self._logging = touched_ids > 0  # not in a store that is only read: its steps never commit
        self._tables = tables
        self._top = top
        self._below = below
        self._touched_ids = touched_ids
        self._open: dict[int, dict[int, tuple[I64, I64]]] = {}  # step -> table -> unique sorted ids, their slots
        self.restart(committed)

    def restart(self, committed: int) -> None:
        """Nothing is open, and `committed` was the last step."""
        self.committed = committed
        self.pending = StepLog(committed + 1)  # changes by name, made since the last commit
        self.log = TouchedLog(self._tables, self._touched_ids, committed)

    def check_open(self, step: int | None) -> int:
        """The step that a verb belongs to: the one after the last commit unless said otherwise."""
        if step is None:
            return self.committed + 1
        if not self.committed < step <= MAX_STEP:
            raise ConfigError(
                f"step: found {step}, expected {self.committed + 1} (the one after the last commit) or a later one"
            )
        return step

    def rows_with(self, step: int, table: Table, ids: I64, enough: int) -> int:
        """How many rows of the table's layout a step uses with these unique ids; too high where `enough` anyway."""
        used = 0
        for number, (had, _) in self._open.get(step, {}).items():
            if self._tables.numbered(number).layout.fingerprint == table.layout.fingerprint:
                used += len(had)
        if used + len(ids) <= enough:
            return used + len(ids)
        had, _ = self._open.get(step, {}).get(table.number, (_EMPTY, _EMPTY))
        return used + int((~np.isin(ids, had, assume_unique=True)).sum())

    def touch(self, step: int, table: Table, ids: I64, slots: I64) -> I64:
        """A step uses these unique sorted ids. Their pins become the step's own; returns surplus pins' slots."""
        tables = self._open.setdefault(step, {})
        had_ids, had_slots = tables.get(table.number, (_EMPTY, _EMPTY))
        new = ~np.isin(ids, had_ids, assume_unique=True)
        order = np.argsort(np.concatenate([had_ids, ids[new]]), kind="stable")
        tables[table.number] = (
            np.concatenate([had_ids, ids[new]])[order],
            np.concatenate([had_slots, slots[new]])[order],
        )
        if step == self.committed + 1:
            self._begin(table.number, ids[new])
        return slots[~new]

    def commit(self, step: int, event_time: float | None, remove: Callable[[Table, I64], object]) -> None:
        """Make a step's changes the state and take its pins off.

        `remove` erases rows that a policy names one by one. Everything that can fail is checked before anything
        changes, but for `remove`.
        """
        if step != self.committed + 1:
            raise ConfigError(f"commit({step}): expected {self.committed + 1}; steps commit one after the other")
        for number, expiry in self.expiries.items():
            if expiry.needs_event_time and event_time is None:
                name = self._tables.numbered(number).spec.name
                raise ConfigError(f"commit({step}): table {name!r} expires by seconds; give the step's event_time")
        if event_time is not None and not math.isfinite(event_time):
            raise ConfigError(f"commit({step}): event_time: found {event_time}, expected a finite number of seconds")
        tables = self._open.pop(step, {})
        for number, (ids, _) in tables.items():
            self.pending.touched.setdefault(number, []).append(self._stamp(number, ids, step))
        self.committed = step
        for number, (ids, slots) in tables.items():
            self._top.unpin(number, slots, np.zeros(len(slots), np.bool_))
            self._remove_small(number, ids, remove)
        for number, expiry in self.expiries.items():
            if expiry.advance(step, event_time):
                self.tell_rule(number)

    def tell_rule(self, number: int) -> None:
        """Tell every tier which rows of a table have expired."""
        rule = self.expiries[number].rule
        if self._below is not None:  # first, so that a reader who misses a row in the top finds no older one below
            self._below.set_expiry(number, rule)
        self._top.set_expiry(number, rule)

    def begin_next(self) -> None:
        """After a commit and what it removed: the next step's rows that have expired begin again."""
        self.log.append(self.pending)
        self.pending = StepLog(self.committed + 1)
        for number, (ids, _) in self._open.get(self.committed + 1, {}).items():
            self._begin(number, ids)

    def added(self, table: Table, ids: I64, last_steps: U32) -> None:
        """Rows were written by name."""
        expiry = self.expiries[table.number]
        dead = expiry.expired(ids, last_steps)
        expiry.add(ids[~dead], last_steps[~dead])
        if dead.any():
            self.begin_next()
        if self._logging:
            self.pending.touched.setdefault(table.number, []).append(ids)

    def removed(self, table: Table, ids: I64, last_steps: U32) -> None:
        """Live rows were removed by name."""
        self.expiries[table.number].remove(ids, last_steps)
        if self._logging:
            self.pending.erased.setdefault(table.number, []).append(ids)

    def over_by_lfu(self, table: Table) -> int:
        """How many rows must go, least frequently used first."""
        expiry = self.expiries[table.number]
        most = expiry.max_rows_by_lfu
        return expiry.live - (most - most // 20) if 0 < most < expiry.live else 0

    def _begin(self, number: int, ids: I64) -> None:
        if len(ids):
            self._top.begin_step(number, ids)

    def _stamp(self, number: int, ids: I64, step: int) -> I64:
        counts, _ = self._top.stamps(number, ids)
        new = np.flatnonzero(counts == 0)
        admitted = np.ones(len(ids), np.bool_)
        if len(new):
            admitted[new] = self.admissions[number].decide(ids[new], step)
        old_counts, old_steps = self._top.commit(number, ids, step, admitted)
        expiry = self.expiries[number]
        was = old_counts > 0
        expiry.remove(ids[was], old_steps[was])
        stored = ids[was | admitted]
        expiry.add(stored, np.full(len(stored), step, np.uint32))
        return stored

    def _remove_small(self, number: int, ids: I64, remove: Callable[[Table, I64], object]) -> None:
        small = self.expiries[number].small
        if small is None or len(ids) == 0:
            return
        table = self._tables.numbered(number)
        records, _ = self._top.read(number, ids)
        views = table.layout.views(records)
        weights = decoded(table, records)
        going = (views.count > 0) & (views.count >= small.min_count) & (norms(weights) < small.norm)
        if going.any():
            remove(table, ids[going])


def decoded(table: Table, records: U8) -> npt.NDArray[np.float32]:
    """float32 [n, dim]: the weights of records."""
    return decode_weights(table.layout.views(records).weight, table.spec.weight_dtype)
