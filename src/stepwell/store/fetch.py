"""Fetch: brings whole steps up into DRAM, several at a time, ahead of the step that computes.

A window is the steps of one call. Rows that are resident are pinned at once, for all of its steps; what is missing is
read from below in one pass; then steps are placed one after another.

Invariants
1. Steps are placed in order, whoever fetches them. A step that waits, for room or for its turn, has no pins, nor have
   the steps after it in its window. So every pin belongs to a step that is placed wholly and was given to whoever
   computes, or to a caller of `pin`: when those let go, the step that waits goes on, if it alone fits the budget.
2. A row read from below is placed only if its location there is what it was when the read began, under the store's
   lock (see store.placement); else it is read again.
"""

import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Condition

import numpy as np
import numpy.typing as npt

from stepwell.errors import StoreFull
from stepwell.store.groups import Group
from stepwell.store.placement import Placement
from stepwell.store.results import StepRows
from stepwell.store.steps import Steps
from stepwell.store.tables import I64, U32, Mask, Tables
from stepwell.store.tier import Parts, Tier

U64 = npt.NDArray[np.uint64]
NO_SLOT = 0xFFFFFFFF
_WINDOWS = 8  # windows whose needs say how much room to keep


@dataclass(slots=True, eq=False)
class Wanted:
    """A step on its way up. `known` positions were looked for below, at `locations`; records are at `sources`, or 0."""

    rows: StepRows
    group: Group
    held: bool = False  # has pins
    missing: U32 = field(default_factory=lambda: np.empty(0, np.uint32))
    known: Mask | None = None
    locations: U32 = field(default_factory=lambda: np.empty(0, np.uint32))
    sources: U64 = field(default_factory=lambda: np.empty(0, np.uint64))
    buffers: list[object] = field(default_factory=list)  # that sources point into
    reads: int = 0

    def look(self) -> None:
        """Pin what is resident by now."""
        rows = self.rows
        absent = self.group.core.pin(rows.starts, rows.ids, rows.slots, rows.addresses)
        self.held = True
        self.missing = np.flatnonzero(rows.slots == NO_SLOT).astype(np.uint32) if absent else self.missing[:0]

    def let_go(self) -> None:
        """Take the pins off."""
        if self.held:
            self.group.core.unpin(self.rows.starts, self.rows.ids, self.rows.slots)
            self.held = False

    def parts(self, positions: U32) -> list[tuple[int, I64]]:
        """The ids at positions (rising) by table."""
        cuts = np.searchsorted(positions, self.rows.starts)
        ids = self.rows.ids[positions]
        return [
            (table.number, ids[first:last])
            for table, first, last in zip(self.group.tables, cuts.tolist(), cuts[1:].tolist(), strict=False)
            if first < last
        ]

    def rows_missing(self) -> dict[int, int]:
        """Layout fingerprint -> rows to place."""
        return self.group.rows_by_layout(np.searchsorted(self.missing, self.rows.starts))

    def learn(self, positions: U32, locations: U32, sources: U64, buffer: object) -> None:
        """What a read from below said."""
        if self.known is None:
            self.known = np.zeros(len(self.rows.ids), np.bool_)
            self.locations = np.zeros(len(self.rows.ids), np.uint32)
            self.sources = np.zeros(len(self.rows.ids), np.uint64)
        self.known[positions] = True
        self.locations[positions] = locations
        self.sources[positions] = sources
        self.buffers.append(buffer)
        self.reads += 1

    def unknown(self) -> U32:
        """Missing positions that were not looked for below."""
        return self.missing if self.known is None else self.missing[~self.known[self.missing]]


class Fetch:
    """The way up for whole steps, for one store."""

    def __init__(
        self,
        tables: Tables,
        below: Tier | None,
        steps: Steps,
        placement: Placement,
        changed: Condition,
        counters: Counter[str],
    ) -> None:
        """`changed` is the store's lock, notified when rows lose pins or leave."""
        self._below = below
        self._steps = steps
        self._placement = placement
        self._changed = changed
        self._counters = counters
        self._layouts = tables.by_layout()
        self._ahead: set[int] = set()  # steps that were asked for and are not placed
        self._needs: deque[dict[int, int]] = deque(maxlen=_WINDOWS)  # rows placed, by layout

    def run(self, window: list[Wanted], timeout_s: float) -> Iterator[StepRows]:
        """Place and pin the window's steps, each given as soon as it is."""
        with self._changed:
            self._ahead |= {one.rows.step for one in window}
        left = deque(window)
        placed: Counter[int] = Counter()
        try:
            for one in window:
                one.look()
            self._read(window)
            while left:
                for layout, rows in self._place(left, time.monotonic() + timeout_s).items():
                    placed[layout] += rows
                yield left.popleft().rows
        finally:
            with self._changed:
                for one in left:
                    one.let_go()
                self._ahead -= {one.rows.step for one in left}
                self._needs.append(placed)
                self._changed.notify_all()

    def needs(self) -> dict[int, int]:
        """Layout fingerprint -> slots that a window took lately, at most. REQUIRES: the store's lock."""
        most: dict[int, int] = {}
        for placed in self._needs:
            for layout, rows in placed.items():
                most[layout] = max(rows, most.get(layout, 0))
        return most

    def _place(self, left: Sequence[Wanted], deadline: float) -> dict[int, int]:
        """Place the first step of those that are left; rows that it brought up, by layout."""
        one = left[0]
        while True:
            with self._changed:
                if self._try(left, deadline):
                    placed = one.rows_missing()
                    if not any(later.rows.step == one.rows.step for later in left if later is not one):
                        self._ahead.discard(one.rows.step)
                    self._steps.opened(one.rows, one.group)
                    self._changed.notify_all()
                    return placed
            self._read(left)

    def _try(self, left: Sequence[Wanted], deadline: float) -> bool:
        """Whether the first step is placed; else rows are missing that must be read. REQUIRES: the store's lock."""
        one = left[0]
        rows = one.rows
        while True:
            if min(self._ahead) < rows.step:
                self._wait(left, deadline, "its turn")
                continue
            self._steps.check_open(rows.step)
            self._check_fits(one)
            if len(one.missing) or not one.held:
                one.look()
            if len(one.missing) == 0:
                self._counters["hits_dram"] += len(rows.ids)
                self._counters["rows_fetched"] += len(rows.ids)
                return True
            if len(one.unknown()) and self._below is not None:
                return False
            if not all(self._room(one, layout, wanted) for layout, wanted in one.rows_missing().items()):
                if any(later.held for later in left if later is not one):
                    for later in left:
                        if later is not one:
                            later.let_go()
                else:
                    self._wait(left, deadline, "room")
                continue
            if self._below is not None and self._forget_moved(one):
                return False
            self._bring_up(one)
            return True

    def _bring_up(self, one: Wanted) -> None:
        rows, missing = one.rows, one.missing
        sources = one.sources[missing] if one.known is not None else np.zeros(len(missing), np.uint64)
        clean, new = one.group.core.place(rows.starts, rows.ids, rows.slots, rows.addresses, missing, sources)
        one.buffers.clear()
        counters = self._counters
        counters["rows_fetched"] += len(rows.ids)
        counters["hits_dram"] += len(rows.ids) - clean - new
        counters["promoted"] += clean
        counters["placed_new"] += new

    def _room(self, one: Wanted, layout: int, rows: int) -> bool:
        table = self._layouts[layout][0]
        if self._placement.try_room(table, rows, self._steps.committed):
            return True
        if self._below is None and not self._steps.others_open(one.rows.step):
            raise self._placement.full(table, rows)
        return False

    def _check_fits(self, one: Wanted) -> None:
        wanted = one.group.rows_by_layout(one.rows.starts)
        if self._steps.is_open(one.rows.step):  # fetched in several parts
            wanted = self._steps.rows_with(one.rows.step, one.parts(np.arange(len(one.rows.ids), dtype=np.uint32)))
        for layout, rows in wanted.items():
            self._placement.check_fits(self._layouts[layout][0], rows)

    def _wait(self, left: Sequence[Wanted], deadline: float, what: str) -> None:
        """Let go of all pins and wait until something changed."""
        for one in left:
            one.let_go()
        self._changed.notify_all()
        if not self._placement.wait(deadline):
            rows = left[0].rows
            raise StoreFull(
                f"step {rows.step} waited for {what} in DRAM until its timeout: its {len(rows.ids)} rows need slots "
                "that steps in flight or callers of pin hold: commit or unpin them, fetch fewer at once, or raise "
                "dram_bytes"
            )

    def _read(self, window: Sequence[Wanted]) -> None:
        """Look below for all that is missing and was not looked for, in one pass."""
        if self._below is None:
            return
        wants = [(one, one.unknown()) for one in window]
        parts: Parts = [part for one, positions in wants for part in one.parts(positions)]
        if not parts:
            return
        found = iter(self._below.find_parts(parts))
        for one, positions in wants:
            if len(positions) == 0:
                continue
            mine = [next(found) for _ in one.parts(positions)]
            if one.reads:
                self._counters["reread"] += len(positions)
            sources = np.concatenate(
                [
                    np.where(
                        some.found,
                        np.uint64(some.records.ctypes.data)
                        + np.arange(len(some.found), dtype=np.uint64) * np.uint64(some.records.shape[1]),
                        np.uint64(0),
                    )
                    for some in mine
                ]
            )
            one.learn(positions, np.concatenate([some.locations for some in mine]), sources, mine)

    def _forget_moved(self, one: Wanted) -> bool:
        """Forget what was read of rows that moved below since; whether there were any. REQUIRES: the store's lock."""
        if self._below is None or one.known is None:
            return False
        now = np.concatenate(self._below.locate_parts(one.parts(one.missing)))
        moved = one.missing[now != one.locations[one.missing]]
        one.known[moved] = False
        return len(moved) > 0
