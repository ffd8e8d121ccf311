"""What the store's benchmarks share: the table, its tiers, and records that can be checked from their id alone."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepwell.native import ThreadPool
from stepwell.rows import RowWiseAdaGrad, TableSpec, Uniform, mix64
from stepwell.store.config import SsdSettings
from stepwell.store.dram import DramTier
from stepwell.store.ssd import SsdTier
from stepwell.store.tables import Table, Tables

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

SEED = 20_240_817
NAME = "items"
TABLE = 0  # the number of the one table
BATCH = 50_000
RECORD_BYTES = 272
_PATTERNS = 1 << 15


def make_tables() -> Tables:
    """One table of rows of 272 bytes: 64 fp32 weights, row-wise AdaGrad, the stamp."""
    spec = TableSpec(name=NAME, dim=64, initializer=Uniform(low=-0.05, high=0.05), optimizer=RowWiseAdaGrad())
    tables = Tables((spec,), SEED)
    if the_table(tables).layout.record_bytes != RECORD_BYTES:
        raise ValueError(f"records of {the_table(tables).layout.record_bytes} bytes, expected {RECORD_BYTES}")
    return tables


def the_table(tables: Tables) -> Table:
    return tables.numbered(TABLE)


def make_ids(n: int, stream: int = 0) -> I64:
    """n different ids from all of int64; those of another stream (below 2**23) are different again."""
    first = np.uint64(stream) << np.uint64(40)
    return mix64(first + np.arange(n, dtype=np.uint64)).view(np.int64)


def batches(n: int, size: int = BATCH) -> Iterator[slice]:
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


class Records:
    """The record of an id at a version: one of 32768 random patterns, with id and version written into it."""

    def __init__(self, tables: Tables) -> None:
        layout = the_table(tables).layout
        rng = np.random.default_rng(SEED)
        self._patterns = np.zeros((_PATTERNS, RECORD_BYTES), np.uint8)
        views = layout.views(self._patterns)
        views.weight[...] = rng.uniform(-1, 1, views.weight.shape)
        for values in views.state.values():
            values[...] = rng.uniform(0, 1, values.shape)
        views.count[...] = 1
        views.last_step[...] = 1

    def of(self, ids: I64, versions: int | I64, out: U8 | None = None) -> U8:
        """uint8 [n, 272], in `out` if given."""
        picked = (ids ^ (np.asarray(versions, np.int64) * 7919)) & (_PATTERNS - 1)
        rows = np.take(self._patterns, picked, axis=0, out=out, mode="clip")  # clip: numpy buffers no copy then
        words = rows.view(np.int64)
        words[:, 0] = ids
        words[:, 1] = versions
        return rows

    def check(self, ids: I64, rows: U8, oldest: int, newest: int) -> None:
        """Raise ValueError unless each row is its id's record, whole, at one of the versions oldest..newest."""
        versions = rows.view(np.int64)[:, 1]
        wrong = (rows != self.of(ids, versions)).any(axis=1) | (versions < oldest) | (versions > newest)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"{int(wrong.sum())} of {len(ids)} rows are wrong, the first of them id {ids[at]} at position {at}, "
                f"which says id {rows[at].view(np.int64)[0]}, version {versions[at]}; expected {oldest} to {newest}"
            )


def require_all(found: NDArray[np.bool_] | U8) -> None:
    """Raise ValueError unless all rows were found."""
    if not found.all():
        raise ValueError(f"{len(found) - np.count_nonzero(found)} of {len(found)} rows were not found")


def dram_bytes(tables: Tables, rows: int) -> int:
    """The budget for `rows` and not many more."""
    small = DramTier(tables, 1 << 20, ThreadPool(1))
    try:
        return small.bytes_for(TABLE, rows)
    finally:
        small.close()


def dram_tier(tables: Tables, rows: int, threads: int) -> DramTier:
    """A tier with room for `rows`."""
    return DramTier(tables, dram_bytes(tables, rows), ThreadPool(threads))


def ssd_tier(tables: Tables, directory: Path, threads: int, *, segment_bytes: int = 64 << 20) -> SsdTier:
    """A tier of any size, as a store would open it."""
    directory.mkdir(exist_ok=True)
    settings = SsdSettings(segment_bytes=segment_bytes)
    return SsdTier(tables, str(directory), 0, settings, ThreadPool(threads))


def fill_ssd(tier: SsdTier, records: Records, ids: I64) -> None:
    """Write version 0 of the rows and make them durable."""
    for batch in batches(len(ids)):
        tier.insert_or_assign(TABLE, ids[batch], records.of(ids[batch], 0))
    tier.sync()


def fill_dram(tier: DramTier, records: Records, ids: I64) -> None:
    """Place version 0 of the rows."""
    for batch in batches(len(ids)):
        tier.insert_clean(TABLE, ids[batch], records.of(ids[batch], 0), pin=False)
