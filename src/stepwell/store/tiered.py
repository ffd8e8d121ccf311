"""TieredStore: one rank's rows across the tiers its budgets name. The only class of this package that others use.

Verbs take a batch of ids of one table: numpy int64 [n], duplicates allowed, any value legal. Mode "read" looks and
changes nothing. Mode "train" belongs to a step: rows it brings up stay pinned until the step commits, and nothing it
does can be read before. Every method may be called from any thread.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from stepwell.errors import ConfigError, StoreClosed, StoreIOError
from stepwell.native import FaultyEnv, ThreadPool, pool_beside_torch
from stepwell.rows import encode_weights
from stepwell.store import manifest
from stepwell.store.buffers import Buffers
from stepwell.store.config import Mode, StoreConfig
from stepwell.store.contents import Contents, Editor
from stepwell.store.dram import DramTier
from stepwell.store.epochs import Epochs, View
from stepwell.store.fetch import NO_SLOT, Fetch, Wanted
from stepwell.store.overlays import Delta, Overlays
from stepwell.store.placement import Placement
from stepwell.store.reading import read_rows
from stepwell.store.results import RowCopies, Rows, StepRows, StoreStats
from stepwell.store.ssd import SsdTier
from stepwell.store.steps import Steps
from stepwell.store.tables import I64, U8, Mask, Table, TableIds, Tables, check_array, check_ids, check_records
from stepwell.store.tier import Tier
from stepwell.store.touched import Touched

_WAIT_S = 600.0  # for pins of other batches; a pipeline that stands still for ten minutes is stuck


class TieredStore:
    """Rows in DRAM, over SSD if the configuration says so.

    A directory that holds a store is opened as it was at its last `sync`; the configuration's tables must be its own
    (new ones may join). Budgets and settings may change. Close it, or use it as a context manager.
    """

    def __init__(self, config: StoreConfig, *, below: Tier | None = None, env: FaultyEnv | None = None) -> None:
        """`below` replaces the SSD tier (tests, benchmarks); `env` makes the SSD tier's files fail on demand."""
        self.config = config
        self._counters: Counter[str] = Counter()
        self._lock = threading.Condition(threading.RLock())
        self._closed = False
        self._cursor: Any = None
        saved = manifest.read_for(config) if config.ssd_directory else None
        self.tables = Tables(config.tables, config.seed, manifest.numbers_for(config, saved))
        self._by_layout = self.tables.by_layout()
        self._pool = pool_beside_torch(config.threads)
        self._buffers = Buffers()
        self._below = below
        self._top: DramTier | None = None
        try:
            if config.ssd_directory:
                _make_directory(config.ssd_directory)
                self._below = SsdTier(
                    self.tables, config.ssd_directory, config.ssd_bytes, config.ssd, self._pool, env=env
                )
            if config.dram_bytes:
                self._top = DramTier(self.tables, config.dram_bytes, self._pool)
            self._epochs = Epochs()
            self._contents = Contents(self.tables, self._top, self._below)
            if self._top is not None:
                self._build(self._top, saved)
            if config.ssd_directory and saved is None:
                manifest.write(config.ssd_directory, self.describe())
        except BaseException:
            self.close()
            raise

    # Reading

    def find(
        self,
        table: str,
        ids: I64,
        mode: Mode = "read",
        *,
        step: int | None = None,
        epoch: int | None = None,
        timeout_s: float = _WAIT_S,
    ) -> Rows:
        """The rows that are there.

        "read" sees what is committed (at `epoch`, in a store of mode "read") and changes nothing. "train" promotes
        the rows to DRAM, and counts and stamps them when `step` commits.
        """
        found = self._table(table)
        ids = check_ids(ids)
        if mode == "train":
            unique = np.unique(ids)
            self._touch(found, unique, step, insert=False, timeout_s=timeout_s)
            resident = self._trained().find(found.number, ids)
            return Rows(resident.records, resident.found, found.layout)
        if mode != "read":
            raise ConfigError(f"mode: found {mode!r}, expected 'read' or 'train'")
        with self._epochs.reading(epoch) as view:
            records, there = self._read(found.number, ids, view)
        return Rows(records, there, found.layout)

    @contextmanager
    def reading(self) -> Iterator[int]:
        """Hold the newest epoch: `find(..., epoch=epoch)` sees the same state until the block ends."""
        with self._epochs.reading() as view:
            yield view.epoch

    @property
    def epoch(self) -> int:
        """The newest epoch that was published."""
        return self._epochs.current

    # Training

    def find_or_insert(self, table: str, ids: I64, *, step: int | None = None, timeout_s: float = _WAIT_S) -> Rows:
        """The rows, those that are new with their first values; new rows are born when `step` commits."""
        found = self._table(table)
        ids = check_ids(ids)
        self._touch(found, np.unique(ids), step, insert=True, timeout_s=timeout_s)
        records, there = self._trained().read(found.number, ids)
        return Rows(records, there, found.layout)

    def fetch(
        self, steps: Iterable[tuple[int, Mapping[str, I64]]], *, timeout_s: float = _WAIT_S
    ) -> Iterator[StepRows]:
        """Place and pin whole steps, ids that are new with first values; yields each step as soon as it is pinned.

        REQUIRES: steps do not fall (one step may come in parts); a table's ids are unique. What is not in DRAM is read
        from below for all of them together, once. A step waits for other steps' pins (counted) holding none itself, so
        take each step from the iterator and let earlier ones commit meanwhile. A step that can never fit is
        BudgetTooSmall.
        """
        self._trainable()
        window = [self._wanted(step, tables) for step, tables in steps]
        if any(one.rows.step > later.rows.step for one, later in pairwise(window)):
            raise ConfigError(f"steps: found {[one.rows.step for one in window]}, expected steps that do not fall")
        return self._fetch.run(window, timeout_s)

    def read_rows(self, ids: Mapping[str, I64], *, epoch: int | None = None) -> RowCopies:
        """Copies of committed rows of several tables, first values where there is none. Changes nothing."""
        self._check_open()
        asked = TableIds.of(ids)
        group = self._steps.groups.of(asked.names) if self._top is not None else None
        tables = group.tables if group is not None else tuple(self.tables.named(name) for name in asked.names)
        with self._epochs.reading(epoch) as view:
            return read_rows(tables, asked, view, group, self._below, self._read, self._buffers)

    def pin(self, table: str, ids: I64, *, step: int | None = None, timeout_s: float = _WAIT_S) -> I64:
        """Slots in batch order, each pinned once per position: the rows stay where they are until `unpin`.

        Waits for other batches' pins when there is no room (counted); BudgetTooSmall if the batch can never fit.
        """
        found = self._table(table)
        ids = check_ids(ids)
        self._touch(found, np.unique(ids), step, insert=True, timeout_s=timeout_s)
        return self._trained().find_slots(found.number, ids, pin=True)

    def unpin(self, table: str, slots: I64, dirty: Mask | bool) -> None:
        """Take one pin off each position's slot; `dirty` says which rows were written through their slots."""
        found = self._table(table)
        slots = check_ids(slots)
        if isinstance(dirty, (bool, np.bool_)):
            marks = np.full(len(slots), dirty, np.bool_)
        else:
            check_array(dirty, "dirty", np.bool_, slots.shape)
            marks = np.ascontiguousarray(dirty)
        with self._lock:
            self._trained().unpin(found.number, slots, marks)
            self._lock.notify_all()

    def slots(self, table: str) -> npt.NDArray[np.uint8]:
        """uint8 [capacity, record_bytes]: the DRAM tier's records of the table's layout by slot.

        A view of live memory. Touch only rows that you have pinned.
        """
        core, _ = self._trained().core(self._table(table).number)
        return core.memory()

    def commit(self, step: int, *, event_time: float | None = None, cursor: Any = None) -> None:
        """Make everything that belongs to `step` the state: births, stamps, admission counts, expiry, `cursor`."""
        self._trained()
        with self._lock:
            self._steps.commit(step, event_time, self._editor.erase)
            for table in self._steps.limited_by_lfu:
                self._editor.expire_by_lfu(table)
            self._steps.begin_next()
            self._cursor = cursor
            self._lock.notify_all()

    def stop_waiting(self) -> None:
        """No more steps will commit: whoever waits for the pins of one, now or later, gets StoreFull at once."""
        self._trained()
        with self._lock:
            self._placement.give_up()

    @property
    def step(self) -> int:
        """The last step that has committed."""
        return self._steps.committed if self._top is not None else 0

    @property
    def cursor(self) -> Any:
        """What the last commit was given."""
        return self._cursor

    def touched(self, since_step: int) -> Touched:
        """Which rows were written, and which removed by name, after `since_step` committed."""
        self._trained()
        with self._lock:
            return self._steps.log.since(since_step, self._steps.pending)

    # Changes by name: they are state at once, and belong to the step that commits next.

    def insert_or_assign(self, table: str, ids: I64, weights: npt.NDArray[np.float32]) -> None:
        """Write rows with these weights, new optimizer state, and a count of 1; of equal ids the last wins."""
        found = self._table(table)
        ids = check_ids(ids)
        wanted = (len(ids), found.spec.dim)
        check_array(weights, f"weights of table {table!r}", np.float32, wanted)
        records = np.tile(found.spec.initial_record(), (len(ids), 1))
        views = found.layout.views(records)
        views.weight[...] = encode_weights(weights, found.spec.weight_dtype)
        views.count[...] = 1
        with self._lock:
            views.last_step[...] = self._steps.committed + 1
            self._editor.assign(found, ids, records, _WAIT_S)

    def insert_records(self, table: str, ids: I64, records: U8) -> None:
        """Write whole records as they are, stamps included (every count at least 1); of equal ids the last wins."""
        found = self._table(table)
        ids = check_ids(ids)
        records = check_records(records, len(ids), found)
        if (found.layout.views(records).count == 0).any():
            raise ConfigError(f"records of table {table!r}: found a count of 0, expected counts of at least 1")
        with self._lock:
            self._editor.assign(found, ids, records, _WAIT_S)

    def erase(self, table: str, ids: I64) -> Mask:
        """Remove rows from every tier; True at the first position of each id that was there."""
        found = self._table(table)
        ids = check_ids(ids)
        self._trained()
        with self._lock:
            return self._editor.erase(found, ids)

    def evict(self, table: str, rows: int) -> int:
        """Give about `rows` places of the table's layout in DRAM back; how many rows went down."""
        self._trained()
        with self._lock:
            return self._placement.evict(self._table(table), rows, self._steps.committed)

    def evict_ahead(self) -> int:
        """Send rows down that should leave, so that the next steps fetched find room; how many went."""
        self._trained()
        went = 0
        with self._lock:
            needs = self._fetch.needs()
        for layout, rows in needs.items():
            with self._lock:
                went += self._placement.evict_ahead(self._by_layout[layout][0], rows, self._steps.committed)
                self._lock.notify_all()
        return went

    def warm(self, table: str, ids: I64) -> int:
        """Bring rows up into DRAM, as many as have room without evicting others; how many came."""
        found = self._table(table)
        top = self._trained()
        ids = np.unique(check_ids(ids))
        absent = ids[top.find_slots(found.number, ids, pin=False) < 0][: top.rows_left(found.number)]
        if self._below is None or len(absent) == 0:
            return 0
        below = self._below.find(found.number, absent)
        with self._lock:
            same = below.found & (self._below.locate(found.number, absent) == below.locations)
            records = np.ascontiguousarray(below.records[same])
            _, fresh = top.insert_clean(found.number, absent[same], records, pin=False)
        return int(fresh.sum())

    # Freshness

    def publish(self, delta: Delta) -> int:
        """Lay a delta over the store: readers that come after this see it whole. Returns its epoch."""
        if self.config.mode != "read":
            raise ConfigError(f"mode: found {self.config.mode!r}, expected 'read': deltas go to stores that are served")
        self._trained()
        return self._overlays.publish(delta)

    def merge_overlays(self, timeout_s: float = _WAIT_S) -> int:
        """Merge every overlay that no older reader holds back; how many are left. Runs by itself after `publish`."""
        self._trained()
        return self._overlays.merge(timeout_s)

    # Whole store

    @property
    def pool(self) -> ThreadPool:
        """The threads of every call into the core, for those who compute on the store's rows."""
        return self._pool

    def num_rows(self, table: str) -> int:
        """Live rows as of the last commit (changes by name included)."""
        found = self._table(table)
        if self._top is None:
            return self._below.num_rows(found.number) if self._below is not None else 0
        return self._steps.expiries[found.number].live

    def export_batch(self, table: str) -> Iterator[tuple[I64, U8]]:
        """Every committed live row once, in batches of (ids, records). Changes made meanwhile may be in it or not."""
        return self._contents.export(self._table(table))

    def sync(self) -> None:
        """What is committed is durable: after a crash the directory opens as it is now."""
        self._check_open()
        if not isinstance(self._below, SsdTier):
            raise ConfigError("sync: the store has no SSD tier; use snapshot, or give it an ssd_directory")
        with self._lock:
            if self._top is not None:
                self._placement.flush()
            self._below.sync()
            manifest.write(self.config.ssd_directory, self.describe())

    @contextmanager
    def frozen(self) -> Iterator[SsdTier | None]:
        """Nothing changes in the block. Gives the SSD tier, if there is one; it then holds every committed row."""
        self._check_open()
        with self._lock:
            if isinstance(self._below, SsdTier):
                if self._top is not None:
                    self._placement.flush()
                yield self._below
            else:
                yield None

    def describe(self) -> manifest.Manifest:
        """What there is to know about the store beside its rows."""
        return manifest.Manifest(
            seed=self.config.seed,
            step=self.step,
            numbers={table.spec.name: table.number for table in self.tables},
            specs=self.config.tables,
            expiry={table.spec.name: self._steps.expiries[table.number].state() for table in self.tables}
            if self._top is not None
            else {},
            filters={
                table.spec.name: counters
                for table in self.tables
                if self._top is not None and (counters := self._steps.admissions[table.number].counters) is not None
            },
            cursor=self._cursor,
        )

    def stats(self) -> StoreStats:
        """Figures for operators."""
        self._check_open()
        tiers: tuple[Tier | None, ...] = (self._top, self._below)
        return StoreStats(
            step=self.step,
            epoch=self.epoch,
            rows={table.spec.name: self.num_rows(table.spec.name) for table in self.tables},
            tiers=tuple(tier.stats() for tier in tiers if tier is not None),
            counters=dict(self._counters) | {"overlays": self._epochs.num_overlays()},
        )

    def close(self) -> None:
        """Let go of memory, files and locks. Rows not synced are gone. Closing twice is fine."""
        if self._closed:
            return
        if hasattr(self, "_overlays"):
            self._overlays.close()
        with self._lock:
            self._closed = True
            for tier in (self._top, self._below):
                if tier is not None:
                    tier.close()
            self._lock.notify_all()

    def __enter__(self) -> "TieredStore":
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        self.close()
        return False

    # Inside

    def _table(self, name: str) -> Table:
        self._check_open()
        return self.tables.named(name)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store was closed; open it again")

    def _trained(self) -> DramTier:
        self._check_open()
        if self._top is None:
            raise ConfigError("dram_bytes is 0: this store can only be read; give it a DRAM budget to change rows")
        return self._top

    def _read(self, number: int, ids: I64, view: View) -> tuple[U8, Mask]:
        if not view.overlays:
            return self._contents.read(number, ids)
        records = np.zeros((len(ids), self.tables.numbered(number).layout.record_bytes), np.uint8)
        there, open_ = np.zeros(len(ids), np.bool_), np.ones(len(ids), np.bool_)
        for overlay in view.overlays:
            overlay.read(number, ids, records, there, open_)
        rest = np.flatnonzero(open_)
        records[rest], there[rest] = self._contents.read(number, np.ascontiguousarray(ids[rest]))
        return records, there

    def _wanted(self, step: int, tables: Mapping[str, I64]) -> Wanted:
        with self._lock:
            self._steps.check_open(step)
        asked = TableIds.of(tables)
        group = self._steps.groups.of(asked.names)
        slots = np.full(len(asked.ids), NO_SLOT, np.uint32)
        addresses = np.empty(len(asked.ids), np.uint64)
        return Wanted(StepRows(step, asked.names, asked.starts, asked.ids, slots, addresses), group)

    def _trainable(self) -> DramTier:
        top = self._trained()
        if self.config.mode != "train":
            raise ConfigError(f"mode: found {self.config.mode!r}, expected 'train': this store is only read")
        return top

    def _touch(self, table: Table, unique: I64, step: int | None, *, insert: bool, timeout_s: float) -> None:
        top = self._trainable()
        with self._lock:
            wanted = self._steps.check_open(step)
            for rows in self._steps.rows_with(wanted, [(table.number, unique)]).values():
                self._placement.check_fits(table, rows)
        now = self._steps.committed
        slots = self._placement.place(table, unique, insert=insert, now=now, timeout_s=timeout_s)
        with self._lock:
            here = slots >= 0
            if not insert:
                absent = here & ~top.live(table.number, unique)  # resident, and nobody's state yet or any more
                top.unpin(table.number, slots[absent], np.zeros(int(absent.sum()), np.bool_))
                here &= ~absent
            try:
                self._steps.check_open(wanted)
            except ConfigError:
                top.unpin(table.number, slots[here], np.zeros(int(here.sum()), np.bool_))
                raise
            surplus = self._steps.touch(wanted, table, unique[here], slots[here])
            top.unpin(table.number, surplus, np.zeros(len(surplus), np.bool_))

    def _build(self, top: DramTier, saved: manifest.Manifest | None) -> None:
        logged = self.config.touched_ids if self.config.mode == "train" else 0
        self._steps = Steps(self.tables, top, self._below, logged, saved.step if saved is not None else 0)
        self._placement = Placement(self.tables, top, self._below, self._lock, self._counters)
        self._fetch = Fetch(self.tables, self._below, self._steps, self._placement, self._lock, self._counters)
        self._editor = Editor(self.tables, top, self._below, self._steps, self._placement)
        self._contents = self._editor
        self._overlays = Overlays(self.tables, top, self._epochs, self._editor, self._placement, self._lock)
        if saved is not None:
            self.adopt(saved)
            self._recount()

    def adopt(self, saved: manifest.Manifest) -> None:
        """Go on where another store stood. REQUIRES: its live rows are here, and nothing else happened yet."""
        self._cursor = saved.cursor
        self._steps.restart(saved.step)
        for table in self.tables:
            if table.spec.name in saved.filters:
                self._steps.admissions[table.number].restore(saved.filters[table.spec.name])
            if table.spec.name in saved.expiry:
                self._steps.expiries[table.number].restore(saved.expiry[table.spec.name])
            self._steps.tell_rule(table.number)

    def _recount(self) -> None:
        for table in self.tables:
            expiry = self._steps.expiries[table.number]
            if expiry.counts_steps:
                for ids, records in self._contents.export(table):
                    expiry.add(ids, table.layout.views(records).last_step)
            elif self._below is not None:
                expiry.live = self._below.num_rows(table.number)


def _make_directory(directory: str) -> None:
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreIOError(
            f"ssd_directory {directory!r} could not be made ({error.strerror}); name another one"
        ) from error
