"""Cases of `benchmarks.store` about the DRAM tier alone."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Any

import numpy as np
import torch

from benchmarks.harness import Bar, Case, Measured, Run, Sides, Timed
from benchmarks.store_rows import (
    BATCH,
    I64,
    RECORD_BYTES,
    SEED,
    TABLE,
    U8,
    Records,
    batches,
    dram_tier,
    fill_dram,
    make_ids,
    make_tables,
    require_all,
    the_table,
)
from stepwell.native import DramTable
from stepwell.rows import draw_weights
from stepwell.store.dram import DramTier

_FIND_ROWS = 100_000
_SAMPLE = 20_000
_THREADS = len(os.sched_getaffinity(0))
_GROWTH_FROM = 0.1  # of the final rows; below, rounding to huge pages is more than the rows


def _check_first_values(tier: DramTier, ids: I64, rng: np.random.Generator) -> None:
    table = the_table(make_tables())
    sample = rng.choice(ids, min(_SAMPLE, len(ids)))
    records, there = tier.read(TABLE, sample)
    require_all(there)
    weights = table.layout.views(records).weight
    if not np.array_equal(weights, draw_weights(table.spec.initializer.program(64), table.key, sample, 64)):
        raise ValueError("new rows do not have the initial values that the generator draws for them")


@contextmanager
def _find(run: Run) -> Iterator[Sides]:
    n = 1_000_000 if run.quick else 5_000_000
    tables = make_tables()
    records, ids = Records(tables), make_ids(n)
    tier = dram_tier(tables, n, _THREADS)
    matrix = torch.empty((n, RECORD_BYTES // 4), dtype=torch.float32)
    for batch in batches(n):
        rows = records.of(ids[batch], 0)
        tier.insert_or_assign(TABLE, ids[batch], rows)
        matrix[batch] = torch.from_numpy(rows.view(np.float32))
    core, number = tier.core(TABLE)
    out, found = np.zeros((_FIND_ROWS, RECORD_BYTES), np.uint8), np.zeros(_FIND_ROWS, np.uint8)
    torch_out = torch.zeros((_FIND_ROWS, RECORD_BYTES // 4))
    allocating: list[float] = []

    def positions(round_: int) -> I64:
        return np.random.default_rng((SEED, round_)).integers(0, n, _FIND_ROWS)

    def ours(wanted: I64) -> U8:
        core.find(number, wanted, True, 0, out, found)
        return out

    def prepare(round_: int) -> I64:
        start = time.perf_counter()
        tier.find(TABLE, ids[positions(round_)])
        allocating.append(_FIND_ROWS / (time.perf_counter() - start))
        config["tier_find_rows_per_s"] = max(allocating)  # into arrays that it makes
        return ids[positions(round_)]

    def peer(at: torch.Tensor) -> U8:
        torch.index_select(matrix, 0, at, out=torch_out)
        return torch_out.numpy().view(np.uint8)

    def agree(mine: U8, theirs: U8) -> None:
        require_all(found)
        if not np.array_equal(mine, theirs):
            raise ValueError("the rows found are not those that torch gathered")

    config: dict[str, Any] = {"rows": n, "batch": _FIND_ROWS, "row_bytes": RECORD_BYTES, "threads": _THREADS}
    threads_before = torch.get_num_threads()
    torch.set_num_threads(_THREADS)
    try:
        yield Sides(
            ours=Timed(call=ours, prepare=prepare, work=_FIND_ROWS),
            peer=Timed(call=peer, prepare=lambda round_: torch.from_numpy(positions(round_)), work=_FIND_ROWS),
            agree=agree,
            config=config,
        )
    finally:
        torch.set_num_threads(threads_before)
        tier.close()


@contextmanager
def _insert(run: Run) -> Iterator[Sides]:
    n = 1_000_000 if run.quick else 5_000_000
    tier = dram_tier(make_tables(), n, 1)
    core, number = tier.core(TABLE)
    slots, fresh = np.zeros(BATCH, np.int64), np.zeros(BATCH, np.uint8)
    rng = np.random.default_rng(SEED)

    def call(ids: I64) -> I64:
        for batch in batches(n):
            core.find_or_insert(number, ids[batch], False, slots, fresh)
        return ids

    def prepare(round_: int) -> I64:
        core.drop(number, True)
        return make_ids(n, round_ + 1)

    def agree(ids: I64, _: object) -> None:
        if tier.num_rows(TABLE) != n:
            raise ValueError(f"{tier.num_rows(TABLE)} rows are there after {n} were placed")
        _check_first_values(tier, ids, rng)

    try:
        call(make_ids(n))
        yield Sides(
            ours=Timed(call=call, prepare=prepare, work=n),
            peer=Bar(2.0e6),
            agree=agree,
            config={"rows": n, "batch": BATCH, "row_bytes": RECORD_BYTES, "threads": 1, "initializer": "uniform"},
        )
    finally:
        tier.close()


@contextmanager
def _growth(run: Run) -> Iterator[Sides]:
    n = 2_000_000 if run.quick else 5_000_000
    tables = make_tables()
    config: dict[str, Any] = {"rows": n, "batch": BATCH, "threads": _THREADS, "initializer": "uniform"}
    slots, fresh = np.zeros(BATCH, np.int64), np.zeros(BATCH, np.uint8)
    rng = np.random.default_rng(SEED)
    best = [float("inf")]

    def grow(round_: int) -> float:
        ids = make_ids(n, round_)
        tier = dram_tier(tables, n, _THREADS)
        core, number = tier.core(TABLE)
        seconds = []
        for batch in batches(n):
            some = ids[batch]
            start = time.perf_counter()
            core.find_or_insert(number, some, False, slots, fresh)
            seconds.append(time.perf_counter() - start)
        _check_first_values(tier, ids, rng)
        tier.close()
        worst, median = max(seconds), float(np.median(seconds))
        if worst / median < best[0]:
            best[0] = worst / median
            config.update(worst_ms=worst * 1e3, median_ms=median * 1e3, worst_call=int(np.argmax(seconds)))
        return worst / median

    yield Sides(ours=Measured(grow), peer=Bar(5.0), config=config)


@dataclass(frozen=True)
class _Mix:
    """Finds and updates of one round. Each update batch is (ids, records)."""

    finds: list[I64]
    updates: list[tuple[I64, U8]]


class _Callers:
    """The work of dram_two_callers, done by two threads together or by one alone."""

    def __init__(self, core: DramTable, number: int) -> None:
        self.busiest_s = self.alone_s = float("inf")  # CPU time: of the busier of two callers, of one alone
        self._core, self._number = core, number
        self._cpu_seconds: list[float] = []
        self._out = np.zeros((BATCH, RECORD_BYTES), np.uint8)
        self._found, self._fresh = np.zeros(BATCH, np.uint8), np.zeros(BATCH, np.uint8)

    def find(self, ids: I64) -> None:
        self._core.find(self._number, ids, True, 0, self._out, self._found)

    def update(self, batch: tuple[I64, U8]) -> None:
        self._core.insert_or_assign(self._number, *batch, self._fresh)

    def together(self, mix: _Mix) -> tuple[I64, U8]:
        threads = [
            Thread(target=self._each, args=(self.find, mix.finds)),
            Thread(target=self._each, args=(self.update, mix.updates)),
        ]
        self._cpu_seconds.clear()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.busiest_s = min(self.busiest_s, max(self._cpu_seconds))
        return self._result(mix)

    def _each(self, do: Callable[[Any], None], work: list[Any]) -> None:
        before = time.thread_time()
        for item in work:
            do(item)
        self._cpu_seconds.append(time.thread_time() - before)

    def alone(self, mix: _Mix) -> tuple[I64, U8]:
        before = time.thread_time()
        work: list[tuple[float, Callable[[], None]]] = []  # evenly mixed
        for i, ids in enumerate(mix.finds):
            work.append(((i + 0.5) / len(mix.finds), lambda ids=ids: self.find(ids)))
        for i, batch in enumerate(mix.updates):
            work.append(((i + 0.5) / len(mix.updates), lambda batch=batch: self.update(batch)))
        for _, do in sorted(work, key=lambda item: item[0]):
            do()
        self.alone_s = min(self.alone_s, time.thread_time() - before)
        return self._result(mix)

    def _result(self, mix: _Mix) -> tuple[I64, U8]:
        require_all(self._found)
        return mix.finds[-1], self._out.copy()


@contextmanager
def _two_callers(run: Run) -> Iterator[Sides]:
    n = 1_000_000 if run.quick else 5_000_000
    tables = make_tables()
    records, ids = Records(tables), make_ids(n)
    tier = dram_tier(tables, n + 10 * BATCH, 1)  # a batch of new rows would have room
    fill_dram(tier, records, ids)
    callers = _Callers(*tier.core(TABLE))
    version = [0]

    def make(round_: int, num_finds: int, num_updates: int) -> _Mix:
        rng = np.random.default_rng((SEED, round_))
        version[0] += 1
        some = [ids[rng.integers(0, n, BATCH)] for _ in range(8)]
        updates = [(batch, records.of(batch, version[0])) for batch in some]
        finds = [ids[rng.integers(0, n, BATCH)] for _ in range(num_finds)]
        return _Mix(finds, [updates[i % len(updates)] for i in range(num_updates)])

    def seconds(mix: _Mix) -> float:
        start = time.perf_counter()
        callers.alone(mix)
        return time.perf_counter() - start

    # As many of each that both threads should end together.
    find_s, update_s = (min(seconds(make(round_, *shape)) for round_ in range(5)) for shape in ((20, 1), (1, 20)))
    num_updates = 40
    num_finds = max(10, round(num_updates * update_s / find_s))
    work = (num_finds + num_updates) * BATCH
    callers.busiest_s = callers.alone_s = float("inf")
    config: dict[str, Any] = {"rows": n, "batch": BATCH, "pool_threads": 1, "finds": num_finds, "updates": num_updates}

    def agree(mine: tuple[I64, U8], theirs: tuple[I64, U8]) -> None:
        config["ratio_by_cpu_time"] = callers.alone_s / callers.busiest_s  # were there cores for both
        for wanted, rows in (mine, theirs):
            records.check(wanted, rows, 0, version[0])

    def prepare(round_: int) -> _Mix:
        return make(round_, num_finds, num_updates)

    try:
        yield Sides(
            ours=Timed(call=callers.together, prepare=prepare, work=work),
            peer=Timed(call=callers.alone, prepare=prepare, work=work),
            agree=agree,
            config=config,
        )
    finally:
        tier.close()


@contextmanager
def _overhead(_: Run) -> Iterator[Sides]:
    n = 5_000_000
    config: dict[str, Any] = {"rows": n, "row_bytes": RECORD_BYTES, "growing_from_rows": int(n * _GROWTH_FROM)}
    rng = np.random.default_rng(SEED)

    def measure(_: int) -> float:
        ids = make_ids(n)
        resident_before = _resident_bytes()
        tier = dram_tier(make_tables(), n, _THREADS)
        core, number = tier.core(TABLE)
        slots, fresh = np.zeros(BATCH, np.int64), np.zeros(BATCH, np.uint8)
        worst = 0.0
        for batch in batches(n):
            core.find_or_insert(number, ids[batch], False, slots, fresh)
            if batch.stop >= n * _GROWTH_FROM:
                worst = max(worst, core.bytes_used / (batch.stop * RECORD_BYTES))
        stats = tier.stats()
        config.update(
            worst_total_over_rows_while_growing=worst,
            index_bytes_per_row=stats.details["index_bytes"] / n,
            resident_bytes_per_row_beyond_row=(_resident_bytes() - resident_before) / n - RECORD_BYTES,
        )
        _check_first_values(tier, ids, rng)
        figure = (stats.bytes_used - n * RECORD_BYTES) / n
        tier.close()
        return figure

    yield Sides(ours=Measured(measure), peer=Bar(16.0), config=config)


def _resident_bytes() -> int:
    """Private memory of this process, by the kernel's account."""
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))


CASES = [
    Case(name="dram_find", setup=_find, unit="rows/s", peer_name="torch.index_select at known index"),
    Case(name="dram_insert", setup=_insert, unit="rows/s per core", peer_name="bar: 2 M rows/s per core"),
    Case(
        name="dram_growth",
        setup=_growth,
        unit="worst call / median",
        peer_name="bar: 5",
        higher_is_better=False,
    ),
    Case(name="dram_two_callers", setup=_two_callers, unit="rows/s", peer_name="one caller, one thread, same work"),
    Case(
        name="dram_overhead_bytes",
        setup=_overhead,
        unit="bytes per row beyond the row",
        peer_name="bar: 16",
        higher_is_better=False,
        rounds=1,
    ),
]
