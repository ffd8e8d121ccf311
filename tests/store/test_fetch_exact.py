"""Whole steps fetched in windows, ahead of commits, over any budget: the rows that a plain loop makes, bit for bit."""

import contextlib
from collections import deque
from contextlib import ExitStack
from queue import Queue
from threading import Event, Thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.store import StepRows, TieredStore
from tests.store.model import first_records
from tests.store.test_exact import I64, MOST, batches, by_the_model, event_time, open_store, state_of, update

PER_STEP = 2 * MOST  # rows of a step in the fullest layout, at most: plain and counted share one


def wanted(batch: dict[str, I64], step: int) -> tuple[int, dict[str, I64]]:
    """Unique ids in an order that is not theirs; tables in one that is not the store's."""
    random = np.random.default_rng(step)
    names = random.permutation(list(batch)).tolist()
    return step, {name: random.permutation(np.unique(batch[name])) for name in names}


def compute(store: TieredStore, rows: StepRows) -> None:
    for i, name in enumerate(rows.tables):
        mine = slice(rows.starts[i], rows.starts[i + 1])
        order = np.argsort(rows.ids[mine])  # the model's update goes by sorted ids
        memory, slots = store.slots(name), rows.slots[mine][order]
        assert (rows.addresses[mine][order] == memory.ctypes.data + slots.astype(np.uint64) * memory.shape[1]).all()
        records = memory[slots]
        update(store.tables.named(name).spec, records, rows.ids[mine][order], rows.step)
        memory[slots] = records


def check_here(stack: str, window: int, depth: int, rows: int, threads: int, seed: int, steps: int) -> None:
    """One thread: windows are fetched before the step `depth` steps earlier computes."""
    work = batches(seed, steps)
    expected = by_the_model(work)
    with ExitStack() as exit_stack:
        store = open_store(stack, rows, threads, exit_stack)
        fetched: deque[StepRows] = deque()

        def finish(left: int) -> None:
            while len(fetched) > left:
                one = fetched.popleft()
                compute(store, one)
                store.commit(one.step, event_time=event_time(one.step))
                if one.step % 3 == 0:
                    store.evict_ahead()
                assert state_of(store) == expected[one.step - 1], f"after step {one.step}"

        for first in range(0, steps, window):
            some = [wanted(batch, first + 1 + i) for i, batch in enumerate(work[first : first + window])]
            for one in store.fetch(some, timeout_s=5.0):
                fetched.append(one)
                finish(depth - 1)
        finish(0)
        if stack != "dram" and rows == PER_STEP * depth:
            counters = store.stats().counters
            assert counters["evicted"] > 0
            assert counters["promoted"] > 0


@pytest.mark.parametrize("stack", ["dram", "ssd", "memory"])
@pytest.mark.parametrize(("window", "depth"), [(1, 1), (2, 2), (3, 1), (5, 3), (4, 5)])
def test_window_depth_and_budget_do_not_show(stack: str, window: int, depth: int) -> None:
    least = 10_000 if stack == "dram" else PER_STEP * depth
    check_here(stack, window, depth, least, 1 + depth % 4, seed=depth, steps=40)


@given(
    st.sampled_from(["ssd", "memory"]),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(0, 40),
    st.integers(1, 4),
    st.integers(0, 1 << 31),
)
@settings(max_examples=20, deadline=None, derandomize=True)
def test_random_windows(stack: str, window: int, depth: int, more: int, threads: int, seed: int) -> None:
    check_here(stack, window, depth, PER_STEP * depth + more, threads, seed, steps=25)


def check_threads(stack: str, window: int, rows: int, threads: int, seed: int, steps: int, queue: int) -> TieredStore:
    """Fetching, computing and evicting in threads of their own."""
    work = batches(seed, steps)
    expected = by_the_model(work)
    with ExitStack() as exit_stack:
        store = open_store(stack, rows, threads, exit_stack)
        ready: Queue[StepRows | BaseException] = Queue(queue)
        stop = Event()

        def fetch() -> None:
            try:
                for first in range(0, steps, window):
                    some = [wanted(batch, first + 1 + i) for i, batch in enumerate(work[first : first + window])]
                    for one in store.fetch(some, timeout_s=60.0):
                        ready.put(one)
            except BaseException as error:
                ready.put(error)

        def evict() -> None:
            while not stop.wait(0.001):
                store.evict_ahead()

        helpers = [Thread(target=fetch), Thread(target=evict)]
        for helper in helpers:
            helper.start()
        try:
            for step in range(1, steps + 1):
                one = ready.get(timeout=120)
                assert isinstance(one, StepRows), one
                assert one.step == step
                compute(store, one)
                store.commit(step, event_time=event_time(step))
                if step % 20 == 0:
                    assert state_of(store) == expected[step - 1], f"after step {step}"
                if stack == "ssd" and step % 15 == 0:
                    store.sync()
        finally:
            stop.set()
            with contextlib.suppress(Exception):
                while helpers[0].is_alive():
                    ready.get(timeout=0.1)
            for helper in helpers:
                helper.join()
        assert state_of(store) == expected[-1]
    return store


@pytest.mark.parametrize("stack", ["ssd", "memory"])
@pytest.mark.parametrize(
    ("window", "steps_of_room", "threads"), [(1, 1, 2), (5, 1, 3), (1, 2, 1), (3, 2, 4), (5, 4, 2)]
)
def test_fetching_thread(stack: str, window: int, steps_of_room: int, threads: int) -> None:
    """A window never holds what the step that computes waits for, down to a budget of one batch."""
    check_threads(stack, window, PER_STEP * steps_of_room, threads, seed=window, steps=60, queue=3)


@pytest.mark.nightly
@given(
    st.sampled_from(["ssd", "memory"]),
    st.integers(1, 6),
    st.integers(0, 4 * PER_STEP),
    st.integers(1, 4),
    st.integers(0, 1 << 31),
    st.integers(1, 4),
)
@settings(max_examples=300, deadline=None)
def test_many_fetching_threads(stack: str, window: int, more: int, threads: int, seed: int, queue: int) -> None:
    check_threads(stack, window, PER_STEP + more, threads, seed, 60, queue)


def test_a_step_in_parts_is_stamped_once() -> None:
    """Two batches and a pin in one step share rows: each counts once, and all pins go at the commit."""
    work = batches(5, 12)
    expected = by_the_model(work)
    with ExitStack() as exit_stack:
        store = open_store("ssd", 3 * PER_STEP, 2, exit_stack)
        for step, batch in enumerate(work, 1):
            unique = {name: np.unique(ids) for name, ids in batch.items()}
            half = {name: ids[: len(ids) * 2 // 3] for name, ids in unique.items()}
            [_] = store.fetch([(step, half)])
            [rows] = store.fetch([(step, unique)])
            for name, ids in unique.items():
                slots = store.pin(name, ids, step=step)
                store.unpin(name, slots, False)
            compute(store, rows)
            store.commit(step, event_time=event_time(step))
            assert state_of(store) == expected[step - 1], f"after step {step}"
        for name in ("plain", "drawn", "timed"):
            store.evict(name, 1 << 40)
        assert store.stats().tiers[0].rows == 0


def test_what_was_fetched_and_not_committed_was_never_there() -> None:
    with ExitStack() as exit_stack:
        store = open_store("memory", 4 * PER_STEP, 1, exit_stack)
        ids = np.arange(5)
        [rows] = store.fetch([(3, {"plain": ids})])
        assert store.read_rows({"plain": ids}).found.sum() == 0
        assert (store.slots("plain")[rows.slots] == first_records(store.tables.named("plain").spec, ids)).all()
        assert store.num_rows("plain") == 0
