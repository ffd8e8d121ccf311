"""Steps: what a step touched, and the moment it commits.

Fetching places and pins rows ahead of time and changes nothing that anybody can read. A step's births, stamps,
admission counts and expiries take effect together in `commit`, whatever later steps have pinned already.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stepwell.errors import ConfigError
from stepwell.rows import decode_weights
from stepwell.store.admission import Admission
from stepwell.store.dram import DramTier
from stepwell.store.expiry import Expiry, norms
from stepwell.store.groups import Group, Groups
from stepwell.store.results import StepRows
from stepwell.store.tables import I64, U8, U32, Table, Tables
from stepwell.store.tier import Parts, Tier
from stepwell.store.touched import StepLog, TouchedLog

MAX_STEP = (1 << 32) - 2  # stamps are u32
_EMPTY = np.empty(0, np.int64)
_STAMPED = 2  # what the core says of a row that was committed before


@dataclass(slots=True)
class OpenStep:
    """What belongs to a step that has not committed. A row may be in several places; it is stamped once."""

    pinned: dict[int, tuple[I64, I64]] = field(default_factory=dict)  # table -> unique sorted ids, their slots
    fetched: list[tuple[StepRows, Group]] = field(default_factory=list)


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
        self.groups = Groups(tables, top)
        self._acting = [number for number, expiry in self.expiries.items() if expiry.acts]
        self._needs_event_time = [number for number, expiry in self.expiries.items() if expiry.needs_event_time]
        self.limited_by_lfu = tuple(table for table in tables if self.expiries[table.number].max_rows_by_lfu)
        self._layouts = {table.number: layout for layout, members in tables.by_layout().items() for table in members}
        self._open: dict[int, OpenStep] = {}
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

    def is_open(self, step: int) -> bool:
        """Whether rows belong to the step already."""
        return step in self._open

    def others_open(self, step: int) -> bool:
        """Whether rows belong to other steps: room may come when they commit."""
        return any(other != step for other in self._open)

    def rows_with(self, step: int, parts: Parts) -> dict[int, int]:
        """Layout fingerprint -> rows that a step uses together with these, of the layouts that these have."""
        ids: dict[int, list[I64]] = {}
        for number, some in [*parts, *self._parts(step)]:
            ids.setdefault(number, []).append(some)
        rows: dict[int, int] = {self._layouts[number]: 0 for number, _ in parts}
        for number, lists in ids.items():
            if self._layouts[number] in rows:
                used = lists[0] if len(lists) == 1 else np.unique(np.concatenate(lists))
                rows[self._layouts[number]] += len(used)
        return rows

    def touch(self, step: int, table: Table, ids: I64, slots: I64) -> I64:
        """A step uses these unique sorted ids. Their pins become the step's own; returns surplus pins' slots."""
        pinned = self._open.setdefault(step, OpenStep()).pinned
        had_ids, had_slots = pinned.get(table.number, (_EMPTY, _EMPTY))
        new = ~np.isin(ids, had_ids, assume_unique=True)
        order = np.argsort(np.concatenate([had_ids, ids[new]]), kind="stable")
        pinned[table.number] = (
            np.concatenate([had_ids, ids[new]])[order],
            np.concatenate([had_slots, slots[new]])[order],
        )
        if step == self.committed + 1:
            self._begin(*self._batch(step, {table.number: (ids[new], slots[new])}))
        return slots[~new]

    def opened(self, rows: StepRows, group: Group) -> None:
        """A step uses these rows; their pins are its own."""
        self._open.setdefault(rows.step, OpenStep()).fetched.append((rows, group))
        if rows.step == self.committed + 1:
            self._begin(rows, group)

    def commit(self, step: int, event_time: float | None, remove: Callable[[Table, I64], object]) -> None:
        """Make a step's changes the state and take its pins off.

        `remove` erases rows that a policy names one by one. Everything that can fail is checked before anything
        changes, but for `remove`.
        """
        if step != self.committed + 1:
            raise ConfigError(f"commit({step}): expected {self.committed + 1}; steps commit one after the other")
        if event_time is None and self._needs_event_time:
            name = self._tables.numbered(self._needs_event_time[0]).spec.name
            raise ConfigError(f"commit({step}): table {name!r} expires by seconds; give the step's event_time")
        if event_time is not None and not math.isfinite(event_time):
            raise ConfigError(f"commit({step}): event_time: found {event_time}, expected a finite number of seconds")
        batches = self._batches(step)
        self._open.pop(step, None)
        for (rows, group), refused in zip(batches, self._refused(batches, step), strict=True):
            self._stamp(rows, group, refused, unpin=len(batches) == 1)
        self.committed = step
        if len(batches) > 1:  # a row may be in several, and is stamped once
            for rows, group in batches:
                group.core.unpin(rows.starts, rows.ids, rows.slots)
        for rows, group in batches:
            for member in group.small:
                self._remove_small(
                    group.tables[member], rows.ids[rows.starts[member] : rows.starts[member + 1]], remove
                )
        for number in self._acting:
            if self.expiries[number].advance(step, event_time):
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
        for rows, group in self._batches(self.committed + 1):
            self._begin(rows, group)

    def added(self, table: Table, ids: I64, last_steps: U32) -> None:
        """Rows were written by name."""
        expiry = self.expiries[table.number]
        dead = expiry.expired(ids, last_steps)
        expiry.add(ids[~dead], last_steps[~dead])
        if dead.any():
            self.begin_next()
        if self._logging:
            self.pending.touched.setdefault(table.number, []).append(self.log.copy(ids))

    def removed(self, table: Table, ids: I64, last_steps: U32) -> None:
        """Live rows were removed by name."""
        self.expiries[table.number].remove(ids, last_steps)
        if self._logging:
            self.pending.erased.setdefault(table.number, []).append(self.log.copy(ids))

    def over_by_lfu(self, table: Table) -> int:
        """How many rows must go, least frequently used first."""
        expiry = self.expiries[table.number]
        most = expiry.max_rows_by_lfu
        return expiry.live - (most - most // 20) if 0 < most < expiry.live else 0

    def _parts(self, step: int) -> Iterator[tuple[int, I64]]:
        """The ids of a step by table."""
        opened = self._open.get(step, OpenStep())
        for number, (ids, _) in opened.pinned.items():
            yield number, ids
        for rows, group in opened.fetched:
            for member, table in enumerate(group.tables):
                yield table.number, rows.ids[rows.starts[member] : rows.starts[member + 1]]

    def _batches(self, step: int) -> list[tuple[StepRows, Group]]:
        """All rows of a step. A row may be in several."""
        opened = self._open.get(step)
        if opened is None:
            return []
        return [*opened.fetched, self._batch(step, opened.pinned)] if opened.pinned else opened.fetched

    def _batch(self, step: int, pinned: dict[int, tuple[I64, I64]]) -> tuple[StepRows, Group]:
        group = self.groups.of(tuple(self._tables.numbered(number).spec.name for number in pinned))
        starts = np.zeros(len(pinned) + 1, np.int64)
        np.cumsum([len(ids) for ids, _ in pinned.values()], out=starts[1:])
        ids = np.concatenate([ids for ids, _ in pinned.values()])
        slots = np.concatenate([slots for _, slots in pinned.values()]).astype(np.uint32)
        return StepRows(step, group.names, starts, ids, slots, np.empty(0, np.uint64)), group

    def _begin(self, rows: StepRows, group: Group) -> None:
        if group.counting:
            group.core.begin(rows.starts, rows.ids, rows.slots)

    def _refused(self, batches: list[tuple[StepRows, Group]], step: int) -> list[U8]:
        """For each batch, 1 where a new row is not admitted; empty where every one is."""
        refused = [np.zeros(len(rows.ids) if group.choosy else 0, np.uint8) for rows, group in batches]
        new: dict[int, list[tuple[int, U32]]] = {}  # table -> batches with positions in them
        for batch, (rows, group) in enumerate(batches):
            if not group.choosy:
                continue
            positions = group.core.unborn(rows.starts, rows.ids, rows.slots, group.choosy_marks)
            cuts = np.searchsorted(positions, rows.starts).tolist()
            for member in group.choosy:
                if cuts[member] < cuts[member + 1]:
                    some = positions[cuts[member] : cuts[member + 1]]
                    new.setdefault(group.tables[member].number, []).append((batch, some))
        for number, places in new.items():
            ids = np.concatenate([batches[batch][0].ids[some] for batch, some in places])
            unique, which = np.unique(ids, return_inverse=True)
            refuse = (~self.admissions[number].decide(unique, step))[which]
            for batch, some in places:
                refused[batch][some], refuse = refuse[: len(some)], refuse[len(some) :]
        return refused

    def _stamp(self, rows: StepRows, group: Group, refused: U8, *, unpin: bool) -> None:
        n = len(rows.ids)
        outcomes = np.empty(n if group.choosy or group.counting else 0, np.uint8)
        old_steps = np.empty(n if group.counting else 0, np.uint32)
        born = np.empty(len(group.tables), np.int64)
        group.core.commit(rows.starts, rows.ids, rows.slots, rows.step, refused, unpin, outcomes, old_steps, born)
        starts, births = rows.starts.tolist(), born.tolist()
        if not group.choosy and not group.counting:
            for member, number in enumerate(group.numbers):
                self.expiries[number].live += births[member]
            if len(rows.ids):
                self.pending.whole.append((group, rows.starts.copy(), self.log.copy(rows.ids)))
            return
        for member, table in enumerate(group.tables):
            mine = slice(starts[member], starts[member + 1])
            ids, expiry = rows.ids[mine], self.expiries[table.number]
            if len(outcomes) and (expiry.counts_steps or member in group.choosy):
                stored = ids[outcomes[mine] != 0]
            else:
                stored = ids
            if expiry.counts_steps:
                was = outcomes[mine] == _STAMPED
                expiry.remove(ids[was], old_steps[mine][was])
                expiry.add(stored, np.full(len(stored), rows.step, np.uint32))
            else:
                expiry.live += births[member]
            if len(stored):
                self.pending.touched.setdefault(table.number, []).append(self.log.copy(stored))

    def _remove_small(self, table: Table, ids: I64, remove: Callable[[Table, I64], object]) -> None:
        small = self.expiries[table.number].small
        if small is None or len(ids) == 0:
            return
        records, _ = self._top.read(table.number, ids)
        views = table.layout.views(records)
        weights = decoded(table, records)
        going = (views.count > 0) & (views.count >= small.min_count) & (norms(weights) < small.norm)
        if going.any():
            remove(table, ids[going])


def decoded(table: Table, records: U8) -> npt.NDArray[np.float32]:
    """float32 [n, dim]: the weights of records."""
    return decode_weights(table.layout.views(records).weight, table.spec.weight_dtype)
