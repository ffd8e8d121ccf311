"""Cases of `benchmarks.store` about a log's upkeep: space, reads meanwhile, the index, opening."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

from benchmarks.harness import Bar, Case, Measured, Run, Sides, Timed
from benchmarks.store_rows import (
    BATCH,
    I64,
    RECORD_BYTES,
    SEED,
    TABLE,
    Records,
    batches,
    fill_ssd,
    make_ids,
    make_tables,
    require_all,
    ssd_tier,
)
from stepwell.store.ssd import SsdTier

_THREADS = len(os.sched_getaffinity(0))
_OVERWRITES = 20  # of everything
_OPEN_ROUNDS = 5


def _disk_bytes(directory: Path) -> int:
    """What the file system says that the folder takes."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:  # compaction has just removed it
            continue
    return total


@dataclass
class _Churn:
    """All rows overwritten in random order, again and again, while one thread reads and one looks at the disk."""

    tier: SsdTier
    directory: Path
    records: Records
    ids: I64
    read_seconds: list[float] = field(default_factory=list)
    worst_bytes: int = 0
    write_seconds: float = 0.0
    _version: int = 0
    _failures: list[BaseException] = field(default_factory=list)
    _stop: Event = field(default_factory=Event)

    def run(self) -> None:
        rng = np.random.default_rng(SEED)
        threads = [Thread(target=self._guarded, args=(work,)) for work in (self._read, self._watch)]
        for thread in threads:
            thread.start()
        try:
            for version in range(1, _OVERWRITES + 1):
                self._version = version
                order = rng.permutation(len(self.ids))
                for batch in batches(len(order)):
                    some = self.ids[order[batch]]
                    rows = self.records.of(some, version)
                    start = time.perf_counter()
                    self.tier.insert_or_assign(TABLE, some, rows)
                    self.write_seconds += time.perf_counter() - start
                    if self._failures:
                        raise self._failures[0]
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
        if self._failures:
            raise self._failures[0]

    def _guarded(self, work: Any) -> None:
        try:
            while not self._stop.is_set():
                work()
        except BaseException as error:
            self._failures.append(error)

    def _read(self) -> None:
        rng = np.random.default_rng((SEED, len(self.read_seconds)))
        wanted = self.ids[rng.integers(0, len(self.ids), BATCH)]
        oldest = max(0, self._version - 1)
        start = time.perf_counter()
        found = self.tier.find(TABLE, wanted)
        self.read_seconds.append(time.perf_counter() - start)
        require_all(found.found)
        self.records.check(wanted, found.records, oldest, self._version)

    def _watch(self) -> None:
        self.worst_bytes = max(self.worst_bytes, _disk_bytes(self.directory))
        time.sleep(0.02)


@dataclass(frozen=True)
class _Outcome:
    config: dict[str, Any]
    worst_disk_over_live: float
    p99_over_median: float


class _ChurnOnce:
    """The churn, made by the first case that wants its figures; it takes minutes and gives both."""

    def __init__(self) -> None:
        self._outcomes: dict[bool, _Outcome] = {}  # by whether it was quick

    def outcome(self, run: Run) -> _Outcome:
        if run.quick not in self._outcomes:
            self._outcomes[run.quick] = _make_churn(run)
        return self._outcomes[run.quick]


def _make_churn(run: Run) -> _Outcome:
    # Twice the live rows must be many segments, hence small ones where rows are few.
    n, segment_bytes = (150_000, 2 << 20) if run.quick else (2_000_000, 64 << 20)
    records, ids = Records(make_tables()), make_ids(n)
    directory = run.directory / "ours"
    tier = ssd_tier(make_tables(), directory, _THREADS, segment_bytes=segment_bytes)
    try:
        fill_ssd(tier, records, ids)
        churn = _Churn(tier, directory, records, ids)
        churn.run()
        log = tier.stats().details["logs"][0]
        if log["compactions"] == 0:
            raise ValueError("nothing was compacted, so the figures would say nothing")
        for batch in batches(n):
            found = tier.find(TABLE, ids[batch])
            require_all(found.found)
            records.check(ids[batch], found.records, _OVERWRITES, _OVERWRITES)
    finally:
        tier.close()
    p50, p90, p99, worst = (float(np.quantile(churn.read_seconds, q)) for q in (0.5, 0.9, 0.99, 1.0))
    config = {
        "rows": n,
        "overwrites": _OVERWRITES,
        "batch": BATCH,
        "row_bytes": RECORD_BYTES,
        "segment_bytes": segment_bytes,
        "threads": _THREADS,
        "upserts_per_s": n * _OVERWRITES / churn.write_seconds,
        "read_batches": len(churn.read_seconds),
        "read_ms": {"p50": p50 * 1e3, "p90": p90 * 1e3, "p99": p99 * 1e3, "worst": worst * 1e3},
        "worst_disk_bytes": churn.worst_bytes,
        "peak_disk_bytes_by_stats": log["peak_disk_bytes"],
        "compactions": log["compactions"],
        "write_amplification": 1 + log["bytes_rewritten"] / (n * (_OVERWRITES + 1) * RECORD_BYTES),
        "space_stalls": log["space_stalls"],
        "write_stalls": log["write_stalls"],
    }
    return _Outcome(config, churn.worst_bytes / (n * RECORD_BYTES), p99 / p50)


_CHURN = _ChurnOnce()


@contextmanager
def _space(run: Run) -> Iterator[Sides]:
    outcome = _CHURN.outcome(run)
    yield Sides(ours=Measured(lambda _: outcome.worst_disk_over_live), peer=Bar(2.0), config=outcome.config)


@contextmanager
def _read_during_compaction(run: Run) -> Iterator[Sides]:
    outcome = _CHURN.outcome(run)
    yield Sides(ours=Measured(lambda _: outcome.p99_over_median), peer=Bar(5.0), config=outcome.config)


@contextmanager
def _index_bytes(run: Run) -> Iterator[Sides]:
    n = 2_000_000
    config: dict[str, Any] = {"rows": n, "growing_from_rows": n // 10}

    def measure(_: int) -> float:
        records, ids = Records(make_tables()), make_ids(n)
        tier = ssd_tier(make_tables(), run.directory / "ours", _THREADS)
        try:
            worst = 0.0
            for batch in batches(n):
                tier.insert_or_assign(TABLE, ids[batch], records.of(ids[batch], 0))
                if batch.stop >= n // 10:
                    worst = max(worst, tier.stats().details["index_bytes"] / batch.stop)
            config.update(worst_while_growing=worst, buffer_bytes=tier.stats().details["logs"][0]["buffer_bytes"])
            found = tier.find(TABLE, ids[:BATCH])
            require_all(found.found)
            records.check(ids[:BATCH], found.records, 0, 0)
            return float(tier.stats().details["index_bytes"] / n)
        finally:
            tier.close()

    yield Sides(ours=Measured(measure), peer=Bar(13.0), config=config)


@contextmanager
def _open(run: Run) -> Iterator[Sides]:
    n = 2_000_000 if run.quick else 20_000_000
    tables, directory = make_tables(), run.directory / "ours"
    records, ids = Records(tables), make_ids(n)
    current = [ssd_tier(tables, directory, _THREADS)]
    fill_ssd(current[0], records, ids)

    def call(_: object) -> SsdTier:
        current[0] = ssd_tier(tables, directory, _THREADS)
        return current[0]

    def agree(tier: SsdTier, _: object) -> None:
        if tier.num_rows(TABLE) != n:
            raise ValueError(f"{tier.num_rows(TABLE)} rows are there after opening, expected {n}")
        sample = np.random.default_rng(SEED).choice(ids, BATCH)
        found = tier.find(TABLE, sample)
        require_all(found.found)
        records.check(sample, found.records, 0, 0)

    try:
        yield Sides(
            ours=Timed(call=call, prepare=lambda _: current[0].close()),
            peer=Bar(60.0),
            agree=agree,
            config={"rows": n, "row_bytes": RECORD_BYTES, "threads": _THREADS, "disk_bytes": _disk_bytes(directory)},
        )
    finally:
        current[0].close()


CASES = [
    Case(
        name="ssd_space",
        setup=_space,
        unit="disk bytes / live bytes, worst",
        peer_name="bar: 2",
        higher_is_better=False,
        rounds=1,
    ),
    Case(
        name="ssd_read_during_compaction",
        setup=_read_during_compaction,
        unit="p99 / median of a read batch",
        peer_name="bar: 5",
        higher_is_better=False,
        rounds=1,
    ),
    Case(
        name="ssd_index_bytes",
        setup=_index_bytes,
        unit="bytes per row",
        peer_name="bar: 13",
        higher_is_better=False,
        rounds=1,
    ),
    Case(
        name="ssd_open",
        setup=_open,
        unit="seconds",
        peer_name="bar: 60 s",
        higher_is_better=False,
        rounds=_OPEN_ROUNDS,
    ),
]
