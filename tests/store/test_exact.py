"""A pipeline of any depth over any budgets and threads makes the rows that a plain loop makes, bit for bit."""

import tempfile
import time
from contextlib import ExitStack
from queue import Queue
from threading import Thread

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.rows import (
    LFU,
    TTL,
    AdaGrad,
    Adam,
    L2Below,
    MaxRows,
    MinCount,
    Probability,
    RowWiseAdaGrad,
    TableSpec,
    Uniform,
    decode_weights,
    encode_weights,
    stochastic_round_bits,
)
from stepwell.store import SsdSettings, StoreConfig, TieredStore
from stepwell.store.tables import Tables
from stepwell.store.twins import MemoryTier
from tests.store.model import IDS, Model, State, exported, int64s
from tests.store.test_tiered_model import dram_bytes_for

I64 = npt.NDArray[np.int64]
MOST = 16  # ids of a table in a step
POOL = int64s(IDS + list(range(1000, 1300)))
SPECS = (
    TableSpec(name="plain", dim=6, optimizer=AdaGrad(lr=0.1), expected_rows=50),
    TableSpec(
        name="counted",
        dim=6,
        optimizer=AdaGrad(lr=0.1),
        admission=MinCount(n=3),
        eviction=LFU(decay_steps=7),
        expiry=(TTL(steps=9), MaxRows(n=40)),
        expected_rows=50,
    ),
    TableSpec(
        name="drawn",
        dim=9,
        weight_dtype="bf16",
        initializer=Uniform(low=-0.1, high=0.1),
        optimizer=Adam(lr=0.05),
        admission=Probability(p=0.5),
        expiry=(MaxRows(n=120, by="lfu"), L2Below(norm=0.14, min_count=2)),
        expected_rows=100,
    ),
    TableSpec(
        name="timed",
        dim=4,
        optimizer=RowWiseAdaGrad(lr=0.3),
        expiry=(TTL(seconds=12.0), L2Below(norm=0.02)),
        expected_rows=100,
    ),
)


def batches(seed: int, steps: int) -> list[dict[str, I64]]:
    """Per step and table, ids with repetitions; some tables sit a step out."""
    random = np.random.default_rng(seed)
    rare = random.permutation(len(POOL))

    def some() -> I64:
        usual = random.zipf(1.3, random.integers(1, MOST // 2)) % len(POOL)
        return np.concatenate([POOL[rare[usual]], random.choice(POOL, MOST // 2)])

    return [{spec.name: some() for spec in SPECS if random.random() < 0.9} for _ in range(steps)]


def update(spec: TableSpec, records: npt.NDArray[np.uint8], ids: I64, step: int) -> None:
    """One real optimizer step on unique rows in place: gradients depend on the weights that were read."""
    views = spec.layout.views(records)
    weights = decode_weights(views.weight, spec.weight_dtype).copy()
    noise = stochastic_round_bits(spec.key(9), ids, step, spec.dim).astype(np.float32) * np.float32(2.0**-32)
    state = {name: values.copy() for name, values in views.state.items()}
    spec.optimizer.apply(weights, state, (weights * 2 + noise - np.float32(0.5)).astype(np.float32), step, 0.05)
    views.weight[...] = encode_weights(weights, spec.weight_dtype)
    for name, values in state.items():
        views.state[name][...] = values


def event_time(step: int) -> float:
    return step * 1.1 - (step % 3)


def by_the_model(work: list[dict[str, I64]]) -> list[dict[str, State]]:
    model = Model(SPECS)
    states = []
    for step, batch in enumerate(work, 1):
        worked = {}
        for name, ids in batch.items():
            unique = np.unique(ids)
            records = model.batch(name, unique)
            update(model.specs[name], records, unique, step)
            worked[name] = (unique, records)
        model.commit(worked, event_time(step))
        states.append({name: dict(rows) for name, rows in model.rows.items()})
    return states


def compute(store: TieredStore, batch: dict[str, I64], slots: dict[str, I64], step: int) -> None:
    for name, ids in batch.items():
        unique, first = np.unique(ids, return_index=True)
        memory, where = store.slots(name), slots[name][first]
        records = memory[where]
        update(store.tables.named(name).spec, records, unique, step)
        memory[where] = records
        store.unpin(name, slots[name], True)
    store.commit(step, event_time=event_time(step))


def state_of(store: TieredStore) -> dict[str, State]:
    rows = {spec.name: exported(store.export_batch(spec.name)) for spec in SPECS}
    assert {name: len(some) for name, some in rows.items()} == store.stats().rows
    return rows


def open_store(stack: str, rows: int, threads: int, exit_stack: ExitStack) -> TieredStore:
    directory = exit_stack.enter_context(tempfile.TemporaryDirectory()) if stack == "ssd" else ""
    config = StoreConfig(
        tables=SPECS,
        dram_bytes=dram_bytes_for(SPECS, rows),
        ssd_bytes=1 << 30 if directory else 0,
        ssd_directory=directory,
        ssd=SsdSettings(segment_bytes=1 << 16, write_buffer_bytes=1 << 16, io="pread" if rows % 2 else "auto"),
        threads=threads,
    )
    below = MemoryTier(Tables(SPECS, 0)) if stack == "memory" else None
    return exit_stack.enter_context(TieredStore(config, below=below))


def check(stack: str, depth: int, rows: int, threads: int, seed: int, steps: int) -> None:
    """Step s is fetched before step s - depth computes, by the same thread."""
    work = batches(seed, steps)
    expected = by_the_model(work)
    with ExitStack() as exit_stack:
        store = open_store(stack, rows, threads, exit_stack)
        fetched: list[dict[str, I64]] = []
        for step in range(1, steps + depth):
            if step <= steps:
                batch = work[step - 1]
                fetched.append({name: store.pin(name, ids, step=step, timeout_s=5.0) for name, ids in batch.items()})
            done = step - depth + 1
            if done >= 1:
                compute(store, work[done - 1], fetched[done - 1], done)
                assert state_of(store) == expected[done - 1], f"after step {done}"
        if stack != "dram" and rows == 2 * MOST * depth:
            assert store.stats().counters.get("evicted", 0) > 0


@pytest.mark.parametrize("stack", ["dram", "ssd", "memory"])
@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_depth_and_budget_do_not_show(stack: str, depth: int) -> None:
    # plain and counted share a layout: what `depth` steps pin of it is the least that a pipeline can do with
    least = 10_000 if stack == "dram" else 2 * MOST * depth
    for rows, threads in ((least, 1 + depth % 4), (10_000, 4)):
        check(stack, depth, rows, threads, seed=depth, steps=40)


@given(
    st.sampled_from(["ssd", "memory"]),
    st.integers(1, 5),
    st.integers(0, 20),
    st.integers(1, 4),
    st.integers(0, 1 << 31),
)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_random_pipelines(stack: str, depth: int, more: int, threads: int, seed: int) -> None:
    check(stack, depth, 2 * MOST * depth + more, threads, seed, steps=25)


@pytest.mark.nightly
@given(
    st.sampled_from(["ssd", "memory"]),
    st.integers(1, 5),
    st.integers(0, 60),
    st.integers(1, 4),
    st.integers(0, 1 << 31),
)
@settings(max_examples=800, deadline=None)
def test_many_random_pipelines(stack: str, depth: int, more: int, threads: int, seed: int) -> None:
    check(stack, depth, 2 * MOST * depth + more, threads, seed, steps=60)


@pytest.mark.parametrize("stack", ["ssd", "memory"])
def test_fetching_thread(stack: str) -> None:
    """Fetching runs as far ahead as the budget lets it, and waits for pins; readers and sync come in between."""
    steps = 150
    work = batches(77, steps)
    expected = by_the_model(work)[-1]
    with ExitStack() as exit_stack:
        store = open_store(stack, 5 * MOST, 3, exit_stack)
        ready: Queue[dict[str, I64] | BaseException] = Queue()

        def fetch() -> None:
            try:
                for step, batch in enumerate(work, 1):
                    ready.put({name: store.pin(name, ids, step=step, timeout_s=60.0) for name, ids in batch.items()})
            except BaseException as error:
                ready.put(error)

        fetcher = Thread(target=fetch)
        fetcher.start()
        deadline = time.monotonic() + 60
        while not store.stats().counters.get("waits_for_pins"):  # the budget holds a few steps: it comes to that
            assert fetcher.is_alive() and time.monotonic() < deadline
            time.sleep(0.001)
        for step in range(1, steps + 1):
            slots = ready.get(timeout=120)
            assert not isinstance(slots, BaseException), slots
            compute(store, work[step - 1], slots, step)
            if step % 40 == 0:
                state_of(store)
            if stack == "ssd" and step % 25 == 0:
                store.sync()
        fetcher.join()
        assert state_of(store) == expected
