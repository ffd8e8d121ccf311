"""`stepwell demo`: a store with eight times the rows that its memory holds, filled, updated and read back."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from stepwell.errors import ConfigError
from stepwell.rows import TableSpec, Uniform
from stepwell.store import Rows, StoreConfig, TieredStore
from stepwell.store.tables import I64

_BATCH = 50_000
_READS = 20
_MEMORY_SHARE = 8
_SEED = 1


def run(directory: Path, rows: int) -> int:
    """Fill, read, close, open, read again; print what each took. Every value is checked."""
    if rows < 2 * _BATCH:
        raise ConfigError(f"--rows: found {rows}, expected at least {2 * _BATCH}")
    if directory.exists():
        raise ConfigError(f"--directory: {directory} exists, and the demo removes what it makes there; name another")
    spec = TableSpec(name="items", dim=64, initializer=Uniform(low=-0.1, high=0.1), expected_rows=rows)
    row_bytes = spec.layout.record_bytes
    config = StoreConfig(
        tables=(spec,),
        dram_bytes=max(rows * row_bytes // _MEMORY_SHARE, 2 * _BATCH * row_bytes),
        ssd_bytes=4 * rows * row_bytes + (1 << 29),
        ssd_directory=str(directory),
    )
    console = Console()
    console.print(
        f"{rows:,} rows of {row_bytes} bytes ({rows * row_bytes / 1e6:,.0f} MB), DRAM budget "
        f"{config.dram_bytes / 1e6:,.0f} MB, {config.threads} threads, the rest on disk in {directory}"
    )
    ids = np.random.default_rng(_SEED).permutation(rows).astype(np.int64) * 7919 - rows
    speeds = Table("work", "rows/s", "seconds", "note", title="a store larger than its memory")
    for column in speeds.columns[1:3]:
        column.justify = "right"
    try:
        with TieredStore(config) as store:
            _timed(speeds, "insert and update new rows", rows, lambda: _fill(store, ids))
            _timed(speeds, "sync (durable)", rows, lambda: _sync(store))
            _timed(speeds, "read, rows in memory", _READS * _BATCH, lambda: _read_hot(store, ids))
            _timed(speeds, "read at random, memory and disk", _READS * _BATCH, lambda: _read(store, ids))
        started = time.perf_counter()
        with TieredStore(config) as store:
            opened = time.perf_counter() - started
            speeds.add_row("open again", f"{rows / opened:,.0f}", f"{opened:.2f}", "index rebuilt from footers")
            _timed(speeds, "read at random, all on disk", _READS * _BATCH, lambda: _read(store, ids))
            stats = store.stats()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    console.print(speeds)
    disk = stats.tiers[1]
    console.print(
        f"every row read was right; {stats.rows['items']:,} rows, {disk.bytes_used / 1e6:,.0f} MB on disk "
        f"({disk.bytes_used / (rows * row_bytes):.2f}x the rows), io {disk.details['io']}, "
        f"index {disk.details['index_bytes'] / rows:.1f} bytes a row"
    )
    return 0


def _timed(speeds: Table, work: str, rows: int, call: Callable[[], str]) -> None:
    started = time.perf_counter()
    note = call()
    seconds = time.perf_counter() - started
    speeds.add_row(work, f"{rows / seconds:,.0f}", f"{seconds:.2f}", note)


def _fill(store: TieredStore, ids: I64) -> str:
    memory = store.slots("items").view(np.float32)
    for start in range(0, len(ids), _BATCH):
        batch = ids[start : start + _BATCH]
        slots = store.pin("items", batch)
        memory[slots, 0] = _value(batch)
        store.unpin("items", slots, True)
        store.commit(store.step + 1)
    counters = store.stats().counters
    return f"{counters.get('written_back', 0):,} rows went down to disk"


def _sync(store: TieredStore) -> str:
    store.sync()
    return ""


def _read_hot(store: TieredStore, ids: I64) -> str:
    hot = ids[-_BATCH:]  # the last batch is in memory
    for _ in range(_READS):
        _check(store.find("items", hot), hot)
    return ""


def _read(store: TieredStore, ids: I64) -> str:
    random = np.random.default_rng(_SEED + 1)
    before = store.stats().tiers[1].details["logs"][0]
    for _ in range(_READS):
        batch = ids[random.integers(0, len(ids), _BATCH)]
        _check(store.find("items", batch), batch)
    after = store.stats().tiers[1].details["logs"][0]
    pages = after["pages_read"] - before["pages_read"]
    return f"{after['rows_read'] - before['rows_read']:,} rows from {pages:,} pages"


def _value(ids: I64) -> npt.NDArray[np.float32]:
    return (ids % 1_000_003).astype(np.float32)


def _check(rows: Rows, ids: I64) -> None:
    wrong = np.flatnonzero(~rows.found | (rows.weights[:, 0] != _value(ids)))
    if len(wrong):
        raise AssertionError(f"row {ids[wrong[0]]} is wrong or missing, and {len(wrong) - 1} more")
