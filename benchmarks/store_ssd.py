"""Cases of `benchmarks.store` that write to and read from disk, against RocksDB, LMDB and the disk itself."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from benchmarks.harness import Case, Measured, Run, Sides, Timed
from benchmarks.peers import Keys
from benchmarks.peers.fio import random_read_iops
from benchmarks.peers.lmdb_store import LmdbStore
from benchmarks.peers.rocksdb import RocksStore
from benchmarks.store_rows import (
    BATCH,
    I64,
    NAME,
    RECORD_BYTES,
    SEED,
    TABLE,
    U8,
    Records,
    batches,
    dram_bytes,
    fill_ssd,
    make_ids,
    make_tables,
    require_all,
    ssd_tier,
    the_table,
)
from stepwell.store import StoreConfig, TieredStore
from stepwell.store.ssd import SsdTier

_THREADS = len(os.sched_getaffinity(0))
_SAMPLE = 20_000
_IN_DRAM = 0.1
_RECORDS_PER_PAGE = (4096 - 16) // (RECORD_BYTES + 16)  # a page's header, a record's key; see docs/store_format.md


class _KeyValueStore(Protocol):
    def upsert(self, keys: Keys, rows: U8) -> None: ...
    def multi_get(self, keys: Keys) -> list[bytes]: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class _OurStore:
    """The SSD tier behind the peers' verbs."""

    def __init__(self, path: Path) -> None:
        self._tier = ssd_tier(make_tables(), path, _THREADS)

    def upsert(self, keys: Keys, rows: U8) -> None:
        self._tier.insert_or_assign(TABLE, keys.view(np.int64), rows)

    def multi_get(self, keys: Keys) -> list[bytes]:
        found = self._tier.find(TABLE, keys.view(np.int64))
        require_all(found.found)
        return [found.records.tobytes()]

    def flush(self) -> None:
        self._tier.sync()

    def close(self) -> None:
        self._tier.close()


@dataclass
class _Contender:
    """One side of an upsert case: an empty store a round, filled and made durable."""

    make: Callable[[Path], _KeyValueStore]
    folder: Path
    store: _KeyValueStore | None = None

    def begin(self) -> None:
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.store = self.make(self.folder)

    def write(self, keys: Keys, rows: U8) -> None:
        assert self.store is not None
        for batch in batches(len(keys)):
            self.store.upsert(keys[batch], rows[batch])
        self.store.flush()

    def read_again(self, keys: Keys) -> bytes:
        """The rows, from a store opened anew."""
        self.close()
        self.store = self.make(self.folder)
        rows = b"".join(self.store.multi_get(keys))
        self.close()
        return rows

    def close(self) -> None:
        if self.store is not None:
            self.store.close()
            self.store = None


def _upsert_against(
    make_peer: Callable[[Path], _KeyValueStore], quick_rows: int
) -> Callable[[Run], AbstractContextManager[Sides]]:
    @contextmanager
    def setup(run: Run) -> Iterator[Sides]:
        n = quick_rows if run.quick else 2_000_000
        records, ids = Records(make_tables()), make_ids(n)
        rows = np.zeros((n, RECORD_BYTES), np.uint8)
        version = [-1]
        ours, peer = _Contender(_OurStore, run.directory / "ours"), _Contender(make_peer, run.directory / "peer")

        def side(mine: _Contender, other: _Contender) -> Timed:
            def prepare(round_: int) -> None:
                if version[0] != round_:
                    records.of(ids, round_, out=rows)
                    version[0] = round_
                other.close()  # or its compaction would run beside this one's writes
                mine.begin()

            return Timed(call=lambda _: mine.write(ids.view(np.uint64), rows), prepare=prepare, work=n)

        def agree(_: object, __: object) -> None:
            keys = np.sort(np.random.default_rng((SEED, version[0])).choice(ids, _SAMPLE).view(np.uint64))
            wanted = records.of(keys.view(np.int64), version[0]).tobytes()
            for name, contender in (("our", ours), ("the peer's", peer)):
                if contender.read_again(keys) != wanted:
                    raise ValueError(f"{name} rows are not those that were written")

        try:
            yield Sides(
                ours=side(ours, peer),
                peer=side(peer, ours),
                agree=agree,
                config={"rows": n, "batch": BATCH, "row_bytes": RECORD_BYTES, "threads": _THREADS, "durable": True},
            )
        finally:
            ours.close()
            peer.close()

    return setup


def _open_store(run: Run, records: Records, ids: I64, resident: int) -> tuple[TieredStore, SsdTier]:
    """All rows on disk, the first `resident` of them in DRAM too."""
    tables = make_tables()
    below = ssd_tier(tables, run.directory / "ours", _THREADS)
    fill_ssd(below, records, ids)
    config = StoreConfig(tables=(the_table(tables).spec,), dram_bytes=dram_bytes(tables, resident), seed=SEED)
    store = TieredStore(config, below=below)
    for batch in batches(resident):
        store.warm(NAME, ids[batch])
    if store.stats().tiers[0].rows != resident:
        raise ValueError(f"DRAM holds {store.stats().tiers[0].rows} rows, expected {resident}")
    return store, below


def _get_against(make_peer: Callable[[Path], _KeyValueStore]) -> Callable[[Run], AbstractContextManager[Sides]]:
    @contextmanager
    def setup(run: Run) -> Iterator[Sides]:
        n = 500_000 if run.quick else 2_000_000
        records, ids = Records(make_tables()), make_ids(n)
        store, _ = _open_store(run, records, ids, resident=n)
        (run.directory / "peer").mkdir()
        peer = make_peer(run.directory / "peer")
        for batch in batches(n):
            peer.upsert(ids[batch].view(np.uint64), records.of(ids[batch], 0))
        peer.flush()
        for batch in batches(n):  # every page is in the page cache then, every block in the peer's own
            peer.multi_get(ids[batch].view(np.uint64))

        def prepare(round_: int) -> I64:
            return ids[np.random.default_rng((SEED, round_)).integers(0, n, BATCH)]

        def ours(wanted: I64) -> tuple[I64, U8]:
            rows = store.find(NAME, wanted)
            require_all(rows.found)
            return wanted, rows.records

        def agree(mine: tuple[I64, U8], theirs: list[bytes]) -> None:
            wanted, rows = mine
            records.check(wanted, rows, 0, 0)
            if rows[np.argsort(wanted.view(np.uint64))].tobytes() != b"".join(theirs):
                raise ValueError("the rows found are not those that the peer found")

        try:
            yield Sides(
                ours=Timed(call=ours, prepare=prepare, work=BATCH),
                peer=Timed(
                    call=lambda wanted: peer.multi_get(wanted.view(np.uint64)),  # in the order of the sorted keys
                    prepare=prepare,
                    work=BATCH,
                ),
                agree=agree,
                config={"rows": n, "batch": BATCH, "row_bytes": RECORD_BYTES, "threads": _THREADS, "peer_sorted": True},
            )
        finally:
            peer.close()
            store.close()

    return setup


@dataclass(frozen=True)
class _Figures:
    """A side whose call returns the figure and the result."""

    call: Callable[[int], tuple[float, object]]

    def measure(self, round_: int) -> tuple[float, object]:
        return self.call(round_)


@contextmanager
def _get_10_percent(run: Run) -> Iterator[Sides]:
    n = 1_000_000 if run.quick else 2_000_000
    records, ids = Records(make_tables()), make_ids(n)
    resident = round(n * _IN_DRAM)
    store, below = _open_store(run, records, ids, resident)
    config: dict[str, Any] = {
        "rows": n,
        "batch": BATCH,
        "row_bytes": RECORD_BYTES,
        "threads": _THREADS,
        "rows_in_dram": resident,
        "io": below.stats().details["io"],
        "direct": below.stats().details["direct"],
    }
    files = sum(path.stat().st_size for path in (run.directory / "ours").rglob("*") if path.is_file())
    rows_per_page = [1.0]

    def counters() -> dict[str, Any]:
        log: dict[str, Any] = below.stats().details["logs"][0]
        return {name: log[name] for name in ("rows_read", "bytes_read", "reads")}

    def prepare(round_: int) -> tuple[I64, I64, dict[str, Any]]:
        at = np.random.default_rng((SEED, round_)).integers(0, n, BATCH)
        return at, ids[at], counters()

    def find(given: tuple[I64, I64, dict[str, Any]]) -> tuple[I64, I64, U8, dict[str, Any]]:
        at, wanted, before = given
        rows = store.find(NAME, wanted)
        require_all(rows.found)
        return at, wanted, rows.records, before

    timed = Timed(call=find, prepare=prepare, work=BATCH)

    def ours(round_: int) -> tuple[float, object]:
        figure, result = timed.measure(round_)
        at, wanted, found, before = cast(tuple[I64, I64, U8, dict[str, Any]], result)
        after = counters()
        locations = below.locate(TABLE, wanted[at >= resident])
        pages = len(np.unique(locations // _RECORDS_PER_PAGE))
        rows_per_page[0] = BATCH / pages  # the rows that DRAM has cost no page
        config.update({f"batch_{name}": after[name] - before[name] for name in after}, batch_distinct_pages=pages)
        return figure, (wanted, found)

    def limit(_: int) -> float:
        iops = random_read_iops(run.directory, files, 0.8 if run.quick else 1.5)
        config["fio_iops"] = max(config.get("fio_iops", 0.0), iops)
        return iops * rows_per_page[0]

    def agree(mine: tuple[I64, U8], _: object) -> None:
        records.check(*mine, 0, 0)

    try:
        yield Sides(ours=_Figures(ours), peer=Measured(limit), agree=agree, config=config)
    finally:
        store.close()


CASES = [
    Case(name="ssd_upsert_rocksdb", setup=_upsert_against(RocksStore, 500_000), unit="rows/s", peer_name="RocksDB"),
    Case(name="ssd_upsert_lmdb", setup=_upsert_against(LmdbStore, 300_000), unit="rows/s", peer_name="LMDB"),
    Case(name="get_in_dram_rocksdb", setup=_get_against(RocksStore), unit="rows/s", peer_name="RocksDB, sorted keys"),
    Case(name="get_in_dram_lmdb", setup=_get_against(LmdbStore), unit="rows/s", peer_name="LMDB, sorted keys"),
    Case(
        name="ssd_get_10_percent",
        setup=_get_10_percent,
        unit="rows/s",
        peer_name="fio 4 KiB random read QD32 x rows per distinct page",
    ),
]
