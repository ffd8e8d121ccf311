"""Deltas published under readers: whole rows, one epoch a call, held states, budgets, merging at the right moment."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from stepwell.errors import ConfigError, StoreFull, UnknownTable
from stepwell.rows import SGD, Adam, TableSpec
from stepwell.store import Delta, SsdSettings, StoreConfig, TieredStore
from stepwell.store import overlays as overlays_module
from stepwell.store.tables import Tables
from stepwell.store.twins import MemoryTier
from tests.store.model import IDS, Model, exported, int64s, made_records
from tests.store.test_tiered_model import dram_bytes_for

SPECS = (
    TableSpec(name="a", dim=16, optimizer=Adam(), expected_rows=100),
    TableSpec(name="b", dim=3, optimizer=SGD(), expected_rows=100),
)
OVERLAY = 2600  # rows of b in the bytes of an overlay's index
ALL = int64s(IDS)
NO_IDS = int64s([])


@pytest.fixture(autouse=True, scope="module")
def short_waits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlays_module, "_ROOM_WAIT_S", 1.0)
        yield


@contextmanager
def served(rows: int, stack: str = "dram", overlays: int = 4) -> Iterator[TieredStore]:
    with tempfile.TemporaryDirectory() as directory:
        config = StoreConfig(
            tables=SPECS,
            dram_bytes=dram_bytes_for(SPECS, rows + overlays * OVERLAY),
            ssd_bytes=1 << 30 if stack == "ssd" else 0,
            ssd_directory=directory if stack == "ssd" else "",
            ssd=SsdSettings(segment_bytes=1 << 16),
            mode="read",
            threads=2,
        )
        below = MemoryTier(Tables(SPECS, 0)) if stack == "memory" else None
        with TieredStore(config, below=below) as store:
            yield store


def epoch_of(store: TieredStore, table: str, records: np.ndarray) -> set[float]:
    """Every value that the records' fields have; rows of one epoch have one."""
    views = store.tables.named(table).layout.views(records)
    fields = [views.weight, views.count, *views.state.values()]
    return {float(value) for field in fields for value in np.unique(np.asarray(field, np.float64))}


def rows_saying(table: str, ids: np.ndarray, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    spec = next(spec for spec in SPECS if spec.name == table)
    records = np.tile(spec.initial_record(), (len(ids), 1))
    views = spec.layout.views(records)
    for field in (views.weight, views.count, *views.state.values()):
        field[...] = epoch
    return ids, records


@pytest.mark.parametrize("stack", ["dram", "ssd", "memory"])
def test_readers_never_see_two_epochs(stack: str) -> None:
    ids = np.arange(-300, 300)
    with served(2400 if stack == "dram" else 700, stack) as store:
        for table in ("a", "b"):
            store.insert_records(table, *rows_saying(table, ids, 1))
        problems: list[object] = []
        calls = [0] * 4
        stop = Event()

        def read(who: int) -> None:
            random = np.random.default_rng(who)
            newest = 1.0
            try:
                while not stop.is_set():
                    table = "ab"[random.integers(2)]
                    asked = random.choice(ids, random.integers(1, 400))
                    if who % 2:
                        rows = store.find(table, asked)
                        seen = epoch_of(store, table, rows.records) if rows.found.all() else {-1.0}
                    else:  # several calls of one epoch, of both tables
                        with store.reading() as epoch:
                            seen = set()
                            for one in "ab":
                                rows = store.find(one, asked, epoch=epoch)
                                seen |= epoch_of(store, one, rows.records) if rows.found.all() else {-1.0}
                    if len(seen) != 1 or min(seen) < newest:
                        problems.append((who, table, seen, newest))
                    newest = max(seen)
                    calls[who] += 1
            except BaseException as error:
                problems.append(error)

        readers = [Thread(target=read, args=(who,)) for who in range(len(calls))]
        for reader in readers:
            reader.start()
        try:
            epoch, until = 1, time.monotonic() + 3
            while time.monotonic() < until and not problems:
                epoch += 1
                delta = Delta(rows={table: rows_saying(table, ids, epoch) for table in ("a", "b")})
                try:
                    assert store.publish(delta) == epoch - 1
                except StoreFull:  # older overlays are not merged yet
                    epoch -= 1
                    store.merge_overlays(5.0)
        finally:
            stop.set()
            for reader in readers:
                reader.join()
        assert not problems, problems[:3]
        assert min(calls) > 3 and epoch > 3
        assert store.merge_overlays() == 0
        assert epoch_of(store, "a", store.find("a", ids).records) == {float(epoch)}
        assert store.stats().counters["overlays"] == 0


def test_a_held_epoch_stays_and_is_merged_after_its_last_reader() -> None:
    with served(400) as store:
        ids = np.arange(50)
        store.insert_records("a", *rows_saying("a", ids, 1))
        with store.reading() as first:
            store.publish(Delta(rows={"a": rows_saying("a", ids[:20], 2)}, erased={"a": ids[40:], "b": ids}))
            with store.reading() as second:
                store.publish(Delta(rows={"a": rows_saying("a", ids[10:45], 3)}))
                assert store.epoch == second + 1 == first + 2
                assert store.merge_overlays(0.05) == 2, "the first epoch is being read"
                assert epoch_of(store, "a", store.find("a", ids, epoch=first).records) == {1.0}
                old = store.find("a", ids, epoch=second)
                assert old.found.tolist() == [True] * 40 + [False] * 10
                assert epoch_of(store, "a", old.records[:20]) == {2.0} and not old.records[40:].any()
                new = store.find("a", ids)
                assert new.found.tolist() == [True] * 45 + [False] * 5
                assert epoch_of(store, "a", new.records[10:45]) == {3.0}
        assert store.merge_overlays(5.0) == 0
        assert exported(store.export_batch("a")).keys() == set(range(45))
        assert (store.find("a", ids).records == new.records).all()
        with pytest.raises(ConfigError, match=rf"epoch: found {first}, .*newest, {store.epoch}"):
            store.find("a", ids, epoch=first)


def test_overlays_count_to_the_budget() -> None:
    """A delta without room changes nothing, and the one after a merge fits."""
    with served(0, overlays=2) as store:
        store.publish(Delta(rows={"a": rows_saying("a", np.arange(1), 1)}))
        assert store.merge_overlays(5.0) == 0
        capacity = store.stats().tiers[0].details["layouts"][0]["max_rows"]
        ids = np.arange(capacity * 2 // 3)
        store.insert_records("a", *rows_saying("a", ids, 1))
        with store.reading() as held:
            room = capacity - len(ids)
            store.publish(Delta(rows={"a": rows_saying("a", ids[: room - 10], 2)}))
            taken = store.stats().tiers[0]
            assert taken.bytes_used <= taken.budget_bytes and taken.rows == capacity - 10
            with pytest.raises(StoreFull, match="raise dram_bytes to"):
                store.publish(Delta(rows={"b": rows_saying("b", ids[:5], 3), "a": rows_saying("a", ids[:11], 3)}))
            assert epoch_of(store, "a", store.find("a", ids).records) == {1.0, 2.0}
            assert store.epoch == held + 1 and store.stats().tiers[0].rows == capacity - 10
            assert epoch_of(store, "a", store.find("a", ids[: room - 10]).records) == {2.0}
            assert epoch_of(store, "a", store.find("a", ids, epoch=held).records) == {1.0}
            assert not store.find("b", ids).found.any()
        assert store.merge_overlays(5.0) == 0
        assert store.stats().tiers[0].rows == len(ids)
        store.publish(Delta(rows={"a": rows_saying("a", ids[: room - 10], 5)}))
        assert epoch_of(store, "a", store.find("a", ids[: room - 10]).records) == {5.0}


def test_many_small_deltas_stay_within_the_budget() -> None:
    with served(300, overlays=6) as store:
        with store.reading(), pytest.raises(StoreFull):
            for epoch in range(1, 60):
                random_ids = np.random.default_rng(epoch).integers(-(1 << 62), 1 << 62, 40)
                store.publish(Delta(rows={name: rows_saying(name, random_ids, epoch) for name in "ab"}))
                tier = store.stats().tiers[0]
                assert tier.bytes_used <= tier.budget_bytes
        assert epoch > 6
        assert store.merge_overlays(5.0) == 0


def test_bad_deltas_change_nothing() -> None:
    with served(300) as store:
        ids = np.arange(8)
        store.insert_records("a", *rows_saying("a", ids, 1))
        good = rows_saying("a", ids, 2)
        for delta, kind in (
            (Delta(rows={"a": good, "aa": good}), UnknownTable),
            (Delta(rows={"a": good}, erased={"nope": ids}), UnknownTable),
            (Delta(rows={"a": (ids[:7], good[1])}), ConfigError),
            (Delta(rows={"a": (ids, np.zeros_like(good[1]))}), ConfigError),
            (Delta(rows={"a": (ids.astype(np.int32), good[1])}), ConfigError),
            (Delta(rows={"a": good}, erased={"a": ids.astype(np.float64)}), ConfigError),
        ):
            with pytest.raises(kind):
                store.publish(delta)
            assert store.epoch == 0
            assert epoch_of(store, "a", store.find("a", ids).records) == {1.0}
            assert store.stats().tiers[0].rows == len(ids)


class Served(RuleBasedStateMachine):
    """Deltas, readers that hold epochs and merges, against dicts by epoch."""

    @initialize(stack=st.sampled_from(["dram", "ssd", "memory"]))
    def open(self, stack: str) -> None:
        self.scope = served(600 if stack == "dram" else 120, stack, overlays=12)
        self.store = self.scope.__enter__()
        self.model = Model(SPECS)
        self.now = {name: dict(rows) for name, rows in self.model.rows.items()}
        self.held: list[tuple[object, int, dict[str, dict[int, bytes]]]] = []

    def teardown(self) -> None:
        for reader, _, _ in self.held:
            reader.__exit__(None, None, None)  # type: ignore[attr-defined]
        if hasattr(self, "scope"):
            self.scope.__exit__(None, None, None)

    @rule(
        written=st.lists(st.sampled_from(IDS), max_size=20),
        erased=st.lists(st.sampled_from(IDS), max_size=20),
        tables=st.sampled_from(["a", "b", "ab"]),
        mark=st.integers(1, 127),
    )
    def publish(self, written: list[int], erased: list[int], tables: str, mark: int) -> None:
        rows = {}
        for spec in SPECS:
            if spec.name in tables:
                records = made_records(spec, int64s(written), mark)
                spec.layout.views(records).count[...] = np.arange(1, len(written) + 1)  # of equal ids the last wins
                rows[spec.name] = (int64s(written), records)
        delta = Delta(rows=rows, erased={name: int64s(erased) for name in tables})
        try:
            self.store.publish(delta)
        except StoreFull:
            if self.held:
                return
            assert self.store.merge_overlays(5.0) == 0
            self.store.publish(delta)
        for name, (ids, records) in rows.items():
            self.model.erase(name, int64s(erased))
            self.model.assign(name, ids, records)
        self.now = {name: dict(some) for name, some in self.model.rows.items()}

    @rule()
    def hold(self) -> None:
        if len(self.held) < 3:
            reader = self.store.reading()
            self.held.append((reader, reader.__enter__(), self.now))

    @rule(which=st.integers(0, 2))
    def let_go(self, which: int) -> None:
        if which < len(self.held):
            reader, _, _ = self.held.pop(which)
            reader.__exit__(None, None, None)  # type: ignore[attr-defined]

    @rule()
    def merge(self) -> None:
        left = self.store.merge_overlays(0.0 if self.held else 5.0)
        assert left == 0 or self.held

    @rule(ids=st.lists(st.sampled_from(IDS), max_size=60))
    def find(self, ids: list[int]) -> None:
        for epoch, state in [(None, self.now), *((epoch, state) for _, epoch, state in self.held)]:
            for name in self.now:
                rows = self.store.find(name, int64s(ids), epoch=epoch)
                assert rows.found.tolist() == [row_id in state[name] for row_id in ids]
                for row_id, record in zip(ids, rows.records, strict=True):
                    assert record.tobytes() == state[name].get(row_id, bytes(len(record)))


@pytest.mark.parametrize("examples", [40, pytest.param(1500, marks=pytest.mark.nightly)])
def test_epochs_against_dicts(examples: int) -> None:
    case = Served.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=30,
        deadline=None,
        derandomize=examples == 40,
        suppress_health_check=list(HealthCheck),
    )
    case("runTest").runTest()
