"""TieredStore against a dict: random verbs, policies and budgets; steps are fetched ahead of the one that commits."""

import tempfile
from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from stepwell.errors import StoreFull
from stepwell.native import ThreadPool
from stepwell.rows import (
    LFU,
    LRU,
    SGD,
    TTL,
    Adam,
    Admission,
    Always,
    Eviction,
    Expiry,
    L2Below,
    MaxRows,
    MinCount,
    Normal,
    Probability,
    TableSpec,
)
from stepwell.store import SsdSettings, StoreConfig, TieredStore
from stepwell.store.dram import DramTier
from stepwell.store.tables import Tables
from stepwell.store.twins import MemoryTier
from tests.store.model import I64, IDS, Model, exported, int64s, made_records, train

NAMES = ("a", "b", "wide")
MOST = 12  # ids of a batch
name = st.sampled_from(NAMES)
batch = st.lists(st.sampled_from(IDS), max_size=MOST)
policies = st.fixed_dictionaries(
    {
        "admission": st.sampled_from([Always(), Always(), MinCount(n=2), Probability(p=0.6)]),
        "eviction": st.sampled_from([LRU(), LFU(), LFU(decay_steps=3)]),
        "ttl": st.sampled_from([None, None, TTL(steps=1), TTL(steps=4), TTL(seconds=2.5)]),
        "most": st.sampled_from(
            [None, None, MaxRows(n=1), MaxRows(n=20), MaxRows(n=9, by="lfu"), MaxRows(n=25, by="lfu")]
        ),
        "small": st.sampled_from([None, None, L2Below(norm=0.005), L2Below(norm=0.01, min_count=3)]),
    }
)


def table(
    table_name: str,
    admission: Admission,
    eviction: Eviction,
    ttl: Expiry | None,
    most: Expiry | None,
    small: Expiry | None,
) -> TableSpec:
    """a and b share a row layout, wide has its own."""
    return TableSpec(
        name=table_name,
        dim=24 if table_name == "wide" else 3,
        weight_dtype="bf16" if table_name == "wide" else "fp32",
        optimizer=Adam() if table_name == "wide" else SGD(momentum=0.5),
        initializer=Normal(std=0.01),
        admission=admission,
        eviction=eviction,
        expiry=tuple(policy for policy in (ttl, most, small) if policy is not None),
        expected_rows=100 if table_name == "wide" else 50,
    )


def dram_bytes_for(specs: tuple[TableSpec, ...], rows: int) -> int:
    """The budget with which every layout holds at least `rows`, one of them hardly more."""
    tables = Tables(specs, 0)
    tier = DramTier(tables, 1 << 30, ThreadPool(1))
    return max(tier.bytes_for(one.number, rows) for one in tables)


class Tiered(RuleBasedStateMachine):
    """`open_ids` are the ids of steps that were fetched and have not committed."""

    def __init__(self) -> None:
        super().__init__()
        self.exit = ExitStack()

    @initialize(
        chosen=st.tuples(policies, policies, policies),
        stack=st.sampled_from(["dram", "ssd", "ssd", "memory", "memory"]),
        rows=st.sampled_from([2 * MOST, 2 * MOST + 1, 60, 1000]),
        threads=st.integers(1, 3),
    )
    def open(self, chosen: tuple[dict[str, object], ...], stack: str, rows: int, threads: int) -> None:
        specs = tuple(table(one, **how) for one, how in zip(NAMES, chosen, strict=True))  # type: ignore[arg-type]
        directory = self.exit.enter_context(tempfile.TemporaryDirectory()) if stack == "ssd" else ""
        self.stack = stack
        self.config = StoreConfig(
            tables=specs,
            dram_bytes=dram_bytes_for(specs, rows),
            ssd_bytes=1 << 30 if directory else 0,
            ssd_directory=directory,
            ssd=SsdSettings(segment_bytes=1 << 16, write_buffer_bytes=1 << 16),
            threads=threads,
        )
        below = MemoryTier(Tables(specs, 0)) if stack == "memory" else None
        self.store = TieredStore(self.config, below=below)
        self.model = Model(specs)
        self.open_ids: dict[int, dict[str, set[int]]] = {}
        self.pins: list[tuple[str, I64]] = []
        self.log_since = 0
        self.time = 0.0

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        self.exit.close()

    # Fetching

    def uses(self, step: int, one: str, ids: I64) -> None:
        self.open_ids.setdefault(step, {}).setdefault(one, set()).update(ids.tolist())

    def fits(self, step: int, one: str, ids: I64) -> bool:
        """A step of one batch for each table fits any budget that these tests use."""
        return len(self.open_ids.get(step, {}).get(one, set()) | set(ids.tolist())) <= MOST

    def may_be_full(self, step: int) -> bool:
        return self.stack == "dram" or any(other != step for other in self.open_ids)

    @rule(one=name, ids=batch, ahead=st.sampled_from([0, 0, 1, 2]))
    def pin(self, one: str, ids: list[int], ahead: int) -> None:
        step, wanted = self.model.step + 1 + ahead, int64s(ids)
        if not self.fits(step, one, wanted):
            return
        try:
            slots = self.store.pin(one, wanted, step=step, timeout_s=0.0)
        except StoreFull:
            assert self.may_be_full(step)
            return
        self.uses(step, one, wanted)
        self.pins.append((one, slots))
        if ahead == 0:
            assert (self.store.slots(one)[slots] == self.model.batch(one, wanted)).all()

    @rule(one=name, ids=batch, ahead=st.sampled_from([0, 0, 1]))
    def find_or_insert(self, one: str, ids: list[int], ahead: int) -> None:
        step, wanted = self.model.step + 1 + ahead, int64s(ids)
        if not self.fits(step, one, wanted):
            return
        try:
            rows = self.store.find_or_insert(one, wanted, step=step, timeout_s=0.0)
        except StoreFull:
            assert self.may_be_full(step)
            return
        self.uses(step, one, wanted)
        assert rows.found.all()
        if ahead == 0:
            assert (rows.records == self.model.batch(one, wanted)).all()

    @rule(one=name, ids=batch)
    def find_to_train(self, one: str, ids: list[int]) -> None:
        step, wanted = self.model.step + 1, int64s(ids)
        if not self.fits(step, one, wanted):
            return
        records, found = self.model.find(one, wanted)
        try:
            rows = self.store.find(one, wanted, "train", timeout_s=0.0)
        except StoreFull:
            assert self.may_be_full(step)
            return
        self.uses(step, one, wanted[found])
        assert (rows.found == found).all() and (rows.records == records).all()

    @rule()
    def unpin(self) -> None:
        for one, slots in self.pins:
            self.store.unpin(one, slots, False)
        self.pins = []

    # Committing

    @rule(passed=st.sampled_from([-1.0, 0.0, 0.5, 1.0, 3.0]), keep_pins=st.booleans())
    def step(self, passed: float, keep_pins: bool) -> None:
        step = self.model.step + 1
        worked = {}
        for one, used in self.open_ids.pop(step, {}).items():
            ids = int64s(sorted(used))
            slots = self.store.pin(one, ids, step=step, timeout_s=0.0)
            memory = self.store.slots(one)
            records = memory[slots]
            assert (records == self.model.batch(one, ids)).all()
            train(self.model.specs[one], records, ids, step)
            memory[slots] = records
            if keep_pins:
                self.pins.append((one, slots))
            else:
                self.store.unpin(one, slots, np.arange(len(slots)) % 2 == 0)  # a commit makes them all dirty
            worked[one] = (ids, records)
        self.time += passed
        self.store.commit(step, event_time=self.time, cursor={"step": step})
        self.model.commit(worked, self.time)
        self.agree()

    def agree(self) -> None:
        """Everything that can be read says what the model says."""
        assert self.store.step == self.model.step
        asked = int64s(IDS[::-1] + IDS[:5])
        for one in NAMES:
            rows = self.store.find(one, asked)
            records, found = self.model.find(one, asked)
            assert rows.found.tolist() == found.tolist()
            assert (rows.records == records).all()
            assert self.store.num_rows(one) == len(self.model.rows[one])
            assert exported(self.store.export_batch(one)) == self.model.rows[one]
        for since in {self.log_since, max(self.log_since, self.model.step - 1), self.model.step}:
            written, must, may = self.model.touched(since)
            touched = self.store.touched(since)
            assert {one: set(ids.tolist()) for one, ids in touched.ids.items() if len(ids)} == written
            for one in NAMES:
                erased = touched.erased.get(one, int64s([])).tolist()
                assert must.get(one, set()) <= set(erased) <= may.get(one, set())
                assert erased == sorted(set(erased))
        for tier in self.store.stats().tiers:
            assert tier.budget_bytes == 0 or tier.bytes_used <= tier.budget_bytes

    # Changes by name

    @rule(one=name, ids=batch, data=st.integers(0, 1000))
    def insert_or_assign(self, one: str, ids: list[int], data: int) -> None:
        wanted = int64s(ids)
        weights = np.random.default_rng(data).normal(size=(len(ids), self.model.specs[one].dim)).astype(np.float32)
        try:
            self.store.insert_or_assign(one, wanted, weights)
        except StoreFull:
            assert self.stack == "dram"
        else:
            self.model.insert_or_assign(one, wanted, weights)

    @precondition(lambda self: not self.open_ids)
    @rule(one=name, ids=batch, mark=st.integers(1, 127), count=st.integers(1, 4), age=st.integers(-1, 3))
    def insert_records(self, one: str, ids: list[int], mark: int, count: int, age: int) -> None:
        wanted = int64s(ids)
        records = made_records(self.model.specs[one], wanted, mark, count, max(0, self.model.step - age))
        try:
            self.store.insert_records(one, wanted, records)
        except StoreFull:
            assert self.stack == "dram"
        else:
            self.model.assign(one, wanted, records)

    @rule(one=name, ids=batch)
    def erase(self, one: str, ids: list[int]) -> None:
        assert (self.store.erase(one, int64s(ids)) == self.model.erase(one, int64s(ids))).all()

    # What must not matter

    @precondition(lambda self: self.stack != "dram")
    @rule(one=name, rows=st.sampled_from([1, 5, 1 << 40]))
    def evict(self, one: str, rows: int) -> None:
        self.store.evict(one, rows)

    @rule(one=name, ids=batch)
    def warm(self, one: str, ids: list[int]) -> None:
        self.store.warm(one, int64s(ids))

    @precondition(lambda self: self.stack == "ssd")
    @rule(again=st.booleans())
    def sync(self, again: bool) -> None:
        self.store.sync()
        if again and not self.open_ids:
            self.store.close()
            self.store = TieredStore(self.config)
            assert self.store.cursor == ({"step": self.model.step} if self.model.step else None)
            self.pins, self.log_since = [], self.model.step
            self.model.logs.pop(self.model.step + 1, None)
            self.agree()

    @rule()
    def compare(self) -> None:
        self.agree()


QUICK = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(max_examples=3000, stateful_step_count=80, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("profile", [QUICK, pytest.param(LONG, marks=pytest.mark.nightly)], ids=["quick", "long"])
def test_store_against_a_dict(profile: settings) -> None:
    case = Tiered.TestCase
    case.settings = profile
    case("runTest").runTest()
