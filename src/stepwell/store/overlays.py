"""Overlays: deltas built off the path, published by one swap, merged into the tiers when nobody needs the old state."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from stepwell.errors import ConfigError, StoreError, StoreFull
from stepwell.store.contents import Editor
from stepwell.store.dram import SHARDS, DramTier
from stepwell.store.epochs import Epochs, Overlay
from stepwell.store.placement import Placement
from stepwell.store.tables import I64, U8, Table, Tables, check_ids, check_records

_ROOM_WAIT_S = 60.0
_MERGE_TRY_S = 0.2


@dataclass(frozen=True, slots=True)
class Delta:
    """Rows written and rows removed since another state, by table name. Records are whole, counts at least 1."""

    rows: Mapping[str, tuple[I64, U8]] = field(default_factory=dict)
    erased: Mapping[str, I64] = field(default_factory=dict)


class Overlays:
    """The deltas laid over one store that is read, and the thread that merges them."""

    def __init__(
        self,
        tables: Tables,
        top: DramTier,
        epochs: Epochs,
        editor: Editor,
        placement: Placement,
        lock: threading.Condition,
    ) -> None:
        self._tables = tables
        self._top = top
        self._epochs = epochs
        self._editor = editor
        self._placement = placement
        self._lock = lock
        self._publishing = threading.Lock()
        self._merging = threading.Lock()
        self._work = threading.Condition()
        self._stop = False
        self._merger: threading.Thread | None = None
        self._spare: dict[int, list[int]] = {}  # table -> indexes that an overlay had and that are empty again
        self._retired: list[Overlay] = []  # merged, but some reader still has them; guarded by _merging
        self.failed_merges = 0

    def publish(self, delta: Delta) -> int:
        """Readers that come after this see the delta whole; its epoch. StoreFull leaves the store as it was."""
        with self._publishing:
            overlay = Overlay(self._epochs.current + 1, {}, {})
            try:
                for name, (ids, records) in delta.rows.items():
                    self._build(overlay, self._tables.named(name), check_ids(ids), records)
                for name, ids in delta.erased.items():
                    written = delta.rows[name][0] if name in delta.rows else np.empty(0, np.int64)
                    gone = np.setdiff1d(check_ids(ids), written)  # sorted; a row that was written again is there
                    if len(gone):
                        overlay.erased[self._tables.named(name).number] = gone
            except BaseException:
                self._give_back(overlay)
                raise
            self._epochs.publish(overlay)
            with self._work:
                if self._merger is None:
                    self._merger = threading.Thread(target=self._run, name="stepwell-merge", daemon=True)
                    self._merger.start()
                self._work.notify_all()
            return overlay.epoch

    def merge(self, timeout_s: float) -> int:
        """Merge overlays, oldest first, until none is left or readers hold one back; how many still take memory."""
        with self._merging:
            while (overlay := self._epochs.oldest_overlay()) is not None:
                if not self._epochs.wait_mergeable(overlay, timeout_s):
                    break
                for table in self._tables:
                    self._merge_table(overlay, table)
                self._epochs.retire(overlay)
                self._retired.append(overlay)
                self._free_retired()
            self._free_retired()
            return self._epochs.num_overlays() + len(self._retired)

    def close(self) -> None:
        """Stop merging."""
        with self._work:
            self._stop = True
            self._work.notify_all()
        if self._merger is not None:
            self._merger.join()

    def _free_retired(self) -> None:
        for overlay in [overlay for overlay in self._retired if not self._epochs.in_use(overlay)]:
            self._retired.remove(overlay)
            self._give_back(overlay)

    def _build(self, overlay: Overlay, table: Table, ids: I64, records: U8) -> None:
        records = check_records(records, len(ids), table)
        if (table.layout.views(records).count == 0).any():
            raise ConfigError(f"delta, table {table.spec.name!r}: found a count of 0, expected counts of at least 1")
        if len(ids) == 0:
            return
        core, _ = self._top.core(table.number)
        deadline = time.monotonic() + _ROOM_WAIT_S
        number = self._take_index(table, deadline)
        overlay.indexes[table.number] = (core, number)
        with self._lock:
            # One slot stays free: merging moves rows through it, however full the tier is.
            self._placement.check_fits(table, len(ids) + 1)
            self._placement.make_room(table, len(ids) + 1, self._editor.now, deadline)
            core.insert_or_assign(number, ids, records, np.empty(len(ids), np.uint8))

    def _take_index(self, table: Table, deadline: float) -> int:
        """An empty index: one that an overlay had, or a new one if there is room for it."""
        while True:
            with self._lock:
                if self._spare.get(table.number):
                    return self._spare[table.number].pop()
                soon = min(deadline, time.monotonic() + _MERGE_TRY_S)
                try:
                    self._placement.make_room(table, self._top.rows_for_index(table), self._editor.now, soon)
                except StoreFull:
                    if not self._placement.has_below or time.monotonic() >= deadline:
                        raise
                else:
                    return self._top.add_overlay_index(table)

    def _merge_table(self, overlay: Overlay, table: Table) -> None:
        if table.number in overlay.erased:
            with self._lock:
                self._editor.erase(table, overlay.erased[table.number])
        if table.number in overlay.indexes:
            core, number = overlay.indexes[table.number]
            for shard in range(SHARDS):
                ids, records = core.copy_shard(number, shard, False)
                while len(ids):
                    with self._lock:
                        n = max(1, self._placement.rows_at_hand(table))
                        self._editor.assign(table, ids[:n], records[:n], _ROOM_WAIT_S)
                        # A reader who misses a row here from now on finds it in the tiers.
                        core.erase(number, ids[:n], np.empty(len(ids[:n]), np.uint8))
                        self._lock.notify_all()
                    ids, records = ids[n:], records[n:]

    def _give_back(self, overlay: Overlay) -> None:
        for table, (core, number) in overlay.indexes.items():
            core.drop(number, True)
            self._spare.setdefault(table, []).append(number)
        with self._lock:
            self._lock.notify_all()

    def _run(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: self._stop or self._epochs.num_overlays() > 0 or bool(self._retired))
                if self._stop:
                    return
            try:
                left = self.merge(_MERGE_TRY_S)
            except StoreError:  # stays an overlay, which readers see as well; counted, and tried again
                self.failed_merges += 1
                left = 1
            if left:
                with self._work:
                    self._work.wait(_MERGE_TRY_S)
