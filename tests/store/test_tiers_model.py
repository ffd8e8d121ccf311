"""Each tier alone against a dict, with random verbs on tables that share ids and layouts."""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stepwell.native import ExpiryRule, ThreadPool
from stepwell.rows import SGD, Adam, Constant, TableSpec
from stepwell.store import SsdSettings
from stepwell.store.dram import DramTier
from stepwell.store.expiry import tie_classes
from stepwell.store.ssd import SsdTier
from stepwell.store.tables import Tables
from stepwell.store.tier import ABSENT
from stepwell.store.twins import MemoryTier
from tests.store.model import IDS, State, exported, first_records, int64s, made_records

SPECS = (
    TableSpec(name="a", dim=3, optimizer=SGD()),
    TableSpec(name="b", dim=3, optimizer=SGD(), initializer=Constant(value=0.5)),  # shares slots and files with a
    TableSpec(name="wide", dim=70, optimizer=Adam()),  # 864 bytes: few to a page
    TableSpec(name="half", dim=5, weight_dtype="bf16"),
)
TABLES = Tables(SPECS, 0)
number = st.integers(0, len(SPECS) - 1)
batch = st.lists(st.sampled_from(IDS), max_size=80)
unique = st.lists(st.sampled_from(IDS), max_size=50, unique=True)
PROFILES = {
    "default": settings(
        max_examples=60,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    ),
    "nightly": settings(
        max_examples=600, stateful_step_count=80, deadline=None, suppress_health_check=list(HealthCheck)
    ),
}


class AnyTier(RuleBasedStateMachine):
    """The verbs of Tier. A tier may hold rows that expired; nobody may see them."""

    tier: Any

    def __init__(self) -> None:
        super().__init__()
        self.exit = ExitStack()
        self.rows: list[State] = [{} for _ in SPECS]
        self.rules = [(0, 0) for _ in SPECS]
        self.marks = 0
        self.pool = ThreadPool(2)

    def teardown(self) -> None:
        if hasattr(self, "tier"):
            self.tier.close()
        self.exit.close()

    def next_mark(self) -> int:
        self.marks = self.marks % 127 + 1
        return self.marks

    def expired(self, table: int, ids: Any, records: Any) -> Any:
        steps = TABLES.numbered(table).layout.views(records).last_step.astype(np.int64)
        least, tie = self.rules[table]
        return (steps < least) | ((steps == least) & (tie_classes(ids) < tie))

    @rule(table=number, ids=batch, step=st.integers(1, 6))
    def insert_or_assign(self, table: int, ids: list[int], step: int) -> None:
        wanted = int64s(ids)
        records = made_records(SPECS[table], wanted, self.next_mark(), 3, step)
        if len(ids):  # the last of equal ids wins, so let equal ids differ
            SPECS[table].layout.views(records).weight[:, 0] = np.arange(len(ids)) % 100
        self.tier.insert_or_assign(table, wanted, records)
        gone = self.expired(table, wanted, records)
        for row_id, record, dead in zip(ids, records, gone, strict=True):
            self.rows[table].pop(row_id, None)
            if not dead:
                self.rows[table][row_id] = record.tobytes()

    @rule(table=number, ids=batch)
    def erase(self, table: int, ids: list[int]) -> None:
        erased = self.tier.erase(table, int64s(ids))
        for i, row_id in enumerate(ids):
            had = self.rows[table].pop(row_id, None) is not None
            assert erased[i] or not had, f"{row_id} was there"
            assert not (erased[i] and row_id in ids[:i]), f"{row_id} is marked twice"

    @rule(table=number, ids=batch)
    def find(self, table: int, ids: list[int]) -> None:
        found = self.tier.find(table, int64s(ids))
        assert found.found.tolist() == [row_id in self.rows[table] for row_id in ids]
        for row_id, record in zip(ids, found.records, strict=True):
            assert record.tobytes() == self.rows[table].get(row_id, bytes(len(record)))

    @rule(table=number, ids=batch)
    def locate(self, table: int, ids: list[int]) -> None:
        for row_id, location in zip(ids, self.tier.locate(table, int64s(ids)).tolist(), strict=True):
            assert location != ABSENT or row_id not in self.rows[table]

    @rule(table=number, more=st.integers(0, 2), tie=st.integers(0, 256))
    def set_expiry(self, table: int, more: int, tie: int) -> None:
        before = self.rules[table]
        self.rules[table] = max(before, (min(6, before[0] + more), tie))
        self.tier.set_expiry(table, ExpiryRule(*self.rules[table]))
        for row_id, record in list(self.rows[table].items()):
            if self.expired(table, int64s([row_id]), np.frombuffer(record, np.uint8)[None])[0]:
                del self.rows[table][row_id]

    @rule()
    def make_room(self) -> None:
        self.tier.make_room()

    @rule(table=number)
    def scan(self, table: int) -> None:
        assert exported(self.tier.scan(table)) == self.rows[table]
        assert self.tier.num_rows(table) >= len(self.rows[table])

    @invariant()
    def within_budget(self) -> None:
        if hasattr(self, "tier"):
            stats = self.tier.stats()
            assert stats.budget_bytes == 0 or stats.bytes_used <= stats.budget_bytes


class Memory(AnyTier):
    """The twin that the other tests lean on."""

    @initialize()
    def open(self) -> None:
        self.tier = MemoryTier(TABLES)


class Dram(AnyTier):
    """Also placing, pins, commits, victims; `placed` rows are not committed."""

    tier: DramTier

    @initialize()
    def open(self) -> None:
        self.tier = DramTier(TABLES, 4 << 20, self.pool)
        self.pins: list[tuple[int, int, int]] = []  # table, id, slot
        self.placed: list[set[int]] = [set() for _ in SPECS]

    @rule(table=number, ids=batch, pin=st.booleans())
    def find_or_insert(self, table: int, ids: list[int], pin: bool) -> None:
        before, there = self.tier.read(table, int64s(ids))
        slots, fresh = self.tier.find_or_insert(table, int64s(ids), pin=pin)
        first = {row_id: i for i, row_id in reversed(list(enumerate(ids)))}
        assert fresh.tolist() == [not there[i] and first[row_id] == i for i, row_id in enumerate(ids)]
        assert len({(row_id, slot) for row_id, slot in zip(ids, slots.tolist(), strict=True)}) == len(set(ids))
        records, now = self.tier.read(table, int64s(ids))
        assert now.all() and (records[there] == before[there]).all()
        born = int64s(ids)[~there]
        assert (records[~there] == first_records(SPECS[table], born)).all()
        core, _ = self.tier.core(table)
        assert (core.memory()[slots] == records).all()
        if pin:
            self.pins += [(table, row_id, slot) for row_id, slot in zip(ids, slots.tolist(), strict=True)]

    @rule(data=st.data(), dirty=st.booleans())
    def unpin(self, data: st.DataObject, dirty: bool) -> None:
        if not self.pins:
            return
        which = data.draw(st.lists(st.sampled_from(range(len(self.pins))), unique=True))
        table = self.pins[which[0]][0] if which else 0
        which = [i for i in which if self.pins[i][0] == table]
        self.tier.unpin(table, int64s(self.pins[i][2] for i in which), np.full(len(which), dirty))
        self.pins = [pin for i, pin in enumerate(self.pins) if i not in which]

    @rule(table=number, ids=unique)
    def insert_clean(self, table: int, ids: list[int]) -> None:
        wanted = int64s(ids)
        records = made_records(SPECS[table], wanted, self.next_mark(), 5, 7)
        before, there = self.tier.read(table, wanted)
        slots, fresh = self.tier.insert_clean(table, wanted, records, pin=False)
        assert (fresh == ~there).all() and (slots >= 0).all()
        after, _ = self.tier.read(table, wanted)
        assert (after[there] == before[there]).all() and (after[~there] == records[~there]).all()
        for row_id, record, new in zip(ids, records, fresh, strict=True):
            if new:
                self.rows[table][row_id] = record.tobytes()

    @rule(table=number, data=st.data(), admit=st.booleans(), unpin=st.booleans())
    def commit(self, table: int, data: st.DataObject, admit: bool, unpin: bool) -> None:
        resident = [row_id for row_id in IDS if self.tier.find_slots(table, int64s([row_id]), pin=False)[0] >= 0]
        ids = sorted(set(data.draw(st.lists(st.sampled_from(resident))))) if resident else []
        wanted = int64s(ids)
        group, n = self.tier.group([table]), len(ids)
        starts, slots = int64s([0, n]), np.full(n, 0xFFFFFFFF, np.uint32)
        assert group.pin(starts, wanted, slots, np.empty(n, np.uint64)) == 0
        assert group.begin(starts, wanted, slots) <= sum(row_id not in self.rows[table] for row_id in ids)
        refused, outcomes = np.full(n, not admit).astype(np.uint8), np.empty(n, np.uint8)
        old_steps, born = np.empty(n, np.uint32), np.empty(1, np.int64)
        group.commit(starts, wanted, slots, 7, refused, unpin, outcomes, old_steps, born)
        if not unpin:
            group.unpin(starts, wanted, slots)
        records, _ = self.tier.read(table, wanted)
        views = SPECS[table].layout.views(records)
        assert born[0] == sum(admit and row_id not in self.rows[table] for row_id in ids)
        for i, row_id in enumerate(ids):
            had = self.rows[table].get(row_id)
            old = SPECS[table].layout.views(np.frombuffer(had, np.uint8)[None]) if had else None
            assert outcomes[i] == (2 if old else int(admit))
            assert old is None or old_steps[i] == old.last_step[0]
            assert views.count[i] == (old.count[0] + 1 if old else int(admit))
            if old or admit:
                self.rows[table][row_id] = records[i].tobytes()

    @rule(table=number, want=st.integers(1, 60))
    def send_down(self, table: int, want: int) -> None:
        """Victims have no pin, and what must be stored below is what the row was."""
        pinned = {row_id for pin_table, row_id, _ in self.pins if pin_table == table}
        ids, records, store = self.tier.victims(table, want, 7)
        assert len(set(ids.tolist())) == len(ids) <= want and not pinned & set(ids.tolist())
        assert len(ids) == min(want, self.tier.num_rows(table) - len(pinned))
        for row_id, record, needed in zip(ids.tolist(), records, store, strict=True):
            assert not needed or self.rows[table][row_id] == record.tobytes()
        assert self.tier.release(table, ids) == len(ids)
        for row_id in ids.tolist():
            self.rows[table].pop(row_id, None)

    @rule(table=number)
    def dirty_rows(self, table: int) -> None:
        dirty = exported(self.tier.dirty_rows(table))
        assert dirty.items() <= self.rows[table].items()
        assert exported(self.tier.dirty_rows(table)) == {}
        self.tier.mark_dirty(table, int64s(dirty))
        assert exported(self.tier.dirty_rows(table)) == dirty
        self.tier.mark_dirty(table, int64s(dirty))


def ssd(settings_: SsdSettings) -> type[AnyTier]:
    class Ssd(AnyTier):
        """Also sync and compaction, and opening again as of the last sync."""

        @initialize()
        def open(self) -> None:
            self.directory = self.exit.enter_context(tempfile.TemporaryDirectory())
            self.synced: list[State] = [{} for _ in SPECS]
            self.reopen()

        def reopen(self) -> None:
            self.tier = SsdTier(TABLES, self.directory, 1 << 28, settings_, self.pool)
            for table, rule_ in enumerate(self.rules):
                self.tier.set_expiry(table, ExpiryRule(*rule_))

        @rule()
        def sync(self) -> None:
            self.tier.sync()
            self.synced = [dict(rows) for rows in self.rows]

        @rule(everything=st.booleans())
        def compact(self, everything: bool) -> None:
            self.tier.compact(everything=everything)

        @rule(again=st.booleans())
        def close_and_open(self, again: bool) -> None:
            if again:
                self.sync()
                self.tier.close()
                self.reopen()

    return Ssd


BACKGROUND = SsdSettings(segment_bytes=1 << 16, write_buffer_bytes=1 << 16)
QUIET = BACKGROUND.replace(background_compaction=False)
MACHINES: dict[str, Callable[[], type[AnyTier]]] = {
    "memory": lambda: Memory,
    "dram": lambda: Dram,
    "ssd-uring": lambda: ssd(BACKGROUND.replace(io="uring")),
    "ssd-pread": lambda: ssd(BACKGROUND.replace(io="pread")),
    "ssd-uring-quiet": lambda: ssd(QUIET.replace(io="uring")),
    "ssd-pread-quiet": lambda: ssd(QUIET.replace(io="pread", direct=False)),
}


def uring_works() -> bool:
    with tempfile.TemporaryDirectory() as directory:
        tier = SsdTier(TABLES, directory, 1 << 28, QUIET, ThreadPool(1))
        works = tier.stats().details["io"] == "uring"
        tier.close()
        return works


@pytest.mark.parametrize("profile", ["default", pytest.param("nightly", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", MACHINES)
def test_tier_against_a_dict(name: str, profile: str) -> None:
    if "uring" in name and not uring_works():
        pytest.skip("io_uring is not allowed here")
    case = MACHINES[name]().TestCase
    case.settings = PROFILES[profile]
    case("runTest").runTest()
