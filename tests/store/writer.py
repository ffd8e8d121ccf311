"""Writes rows that are a function of (table, id, version), in an order that is a function of a seed.

The tests of crashes run it as a process (`python -m tests.store.writer JOB`), kill it, and know what it did: what it is
about to do goes to standard output before, what was acknowledged after.
"""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

import numpy as np
import numpy.typing as npt

from stepwell.native import ThreadPool
from stepwell.rows import Adam, RowLayout, RowWiseAdaGrad, TableSpec
from stepwell.store import SsdSettings, StoreConfig, TieredStore, snapshot
from stepwell.store.ssd import SsdTier
from stepwell.store.tables import Tables

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]

PER_TABLE = 1500
SPECS = (  # a and b share a layout and all ids
    TableSpec(name="a", dim=16, optimizer=Adam(), expected_rows=1500),
    TableSpec(name="b", dim=16, optimizer=Adam(), expected_rows=1500),
    TableSpec(name="c", dim=5, optimizer=RowWiseAdaGrad(), expected_rows=6000),
)
_EDGES = [0, -1, 1, np.iinfo(np.int64).min, np.iinfo(np.int64).max]
_MIXED = np.arange(PER_TABLE - len(_EDGES), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(77)
IDS: I64 = np.concatenate([np.array(_EDGES, np.int64), _MIXED.view(np.int64)])

Verb = Literal["write", "train", "erase", "evict", "sync", "compact"]


def payload(layout: RowLayout, table: int, ids: I64, versions: U32) -> U8:
    """uint8 [n, count_offset]: weight and state; the version comes first."""
    words = layout.count_offset // 4
    mixed = ids.view(np.uint64) * np.uint64(0xD1342543DE82EF95) + versions * np.uint64(1000003) + np.uint64(table)
    columns = np.arange(words, dtype=np.uint64) * np.uint64(0x2545F4914F6CDD1D)
    values = ((mixed[:, None] ^ columns) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)).astype("<u4")
    values[:, 0] = versions
    return np.ascontiguousarray(values).view(np.uint8)


def records_of(layout: RowLayout, table: int, ids: I64, version: int) -> U8:
    """Whole records; count and last step are the version as well."""
    records = np.zeros((len(ids), layout.record_bytes), np.uint8)
    records[:, : layout.count_offset] = payload(layout, table, ids, np.full(len(ids), version, np.uint32))
    views = layout.views(records)
    views.count[...] = version
    views.last_step[...] = version
    return records


def versions_of(layout: RowLayout, table: int, ids: I64, records: U8) -> U32:
    """The rows' versions; AssertionError where a row was never written like that."""
    versions = np.ascontiguousarray(records[:, :4]).view("<u4")[:, 0]
    wrong = (payload(layout, table, ids, versions) != records[:, : layout.count_offset]).any(axis=1)
    assert not wrong.any(), f"table {table}: rows of ids {ids[wrong][:5]} are no rows that were written"
    return versions


@dataclass(frozen=True)
class Op:
    """One call, or one step, of the writer. Its number is the version of what it writes."""

    number: int
    verb: Verb
    table: int
    chosen: I64  # indexes into IDS


def op(seed: int, number: int) -> Op:
    """What the writer does as its `number`-th op, from 1 on."""
    rng = np.random.default_rng([seed, number])
    verbs: tuple[Verb, ...] = ("write", "train", "erase", "evict", "sync", "compact")
    verb = verbs[int(rng.choice(len(verbs), p=[0.42, 0.3, 0.12, 0.05, 0.09, 0.02]))]
    chosen = rng.permutation(PER_TABLE)[: int(rng.integers(1, 400))]
    return Op(number, verb, int(rng.integers(len(SPECS))), np.sort(chosen))


def apply(state: U32, done: Op) -> None:
    """Make `state`, uint32 [tables, PER_TABLE] of versions (0: no row), what it is after an op."""
    if done.verb in ("write", "train"):
        state[done.table, done.chosen] = done.number
    elif done.verb == "erase":
        state[done.table, done.chosen] = 0


def has_direct(directory: Path) -> bool:
    """Whether files there can be opened with O_DIRECT."""
    probe = directory / "probe"
    try:
        os.close(os.open(probe, os.O_RDWR | os.O_CREAT | os.O_DIRECT))
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)
    return True


def settings(directory: Path) -> SsdSettings:
    """Segments so small that compaction never rests."""
    return SsdSettings(segment_bytes=64 << 10, write_buffer_bytes=64 << 10, direct=has_direct(directory.parent))


SSD_BYTES = 3 << 20


def store_config(directory: Path, *, dram_bytes: int = 900_000) -> StoreConfig:
    """A store whose DRAM holds few of its rows and whose disk budget makes compaction write SYNCED by itself."""
    return StoreConfig(
        tables=SPECS,
        dram_bytes=dram_bytes,
        ssd_bytes=SSD_BYTES,
        ssd_directory=str(directory),
        ssd=settings(directory),
        threads=2,
    )


def open_tier(directory: Path) -> SsdTier:
    """The SSD tier alone over the same tables."""
    directory.mkdir(parents=True, exist_ok=True)
    return SsdTier(Tables(SPECS, 0), str(directory), SSD_BYTES, settings(directory), ThreadPool(2))


def run_on_tier(tier: SsdTier, done: Op) -> None:
    """An op on the SSD tier alone."""
    ids, layout = IDS[done.chosen], SPECS[done.table].layout
    if done.verb in ("write", "train"):
        tier.insert_or_assign(done.table, ids, records_of(layout, done.table, ids, done.number))
    elif done.verb == "erase":
        tier.erase(done.table, ids)
    elif done.verb == "sync":
        tier.sync()
    elif done.verb == "compact":
        tier.compact(everything=True)


def run_on_store(store: TieredStore, done: Op) -> None:
    """An op on a store; "train" is a step that writes through slots."""
    spec = SPECS[done.table]
    ids, layout = IDS[done.chosen], spec.layout
    if done.verb == "write":
        store.insert_records(spec.name, ids, records_of(layout, done.table, ids, done.number))
    elif done.verb == "train":
        slots = store.pin(spec.name, ids)
        written = payload(layout, done.table, ids, np.full(len(ids), done.number, np.uint32))
        store.slots(spec.name)[slots, : layout.count_offset] = written
        store.unpin(spec.name, slots, dirty=True)
        store.commit(store.step + 1, cursor=done.number)
    elif done.verb == "erase":
        store.erase(spec.name, ids)
    elif done.verb == "evict":
        store.evict(spec.name, len(ids))
    elif done.verb == "sync":
        store.sync()


def _ops(job: dict[str, int], out: TextIO) -> Iterator[Op]:
    for number in range(job["first"], job["first"] + job["ops"]):
        done = op(job["seed"], number)
        print("begin", number, file=out, flush=True)
        yield done
        if done.verb == "sync":
            print("synced", number, file=out, flush=True)


def main() -> None:
    """Do a job, given as JSON: kind, directory, seed, first, ops."""
    job = json.loads(sys.argv[1])
    directory, out = Path(job["directory"]), sys.stdout
    print("started", file=out, flush=True)
    if job["kind"] == "tier":
        tier = open_tier(directory)
        for done in _ops(job, out):
            run_on_tier(tier, done)
        return
    store = TieredStore(store_config(directory))
    for done in _ops(job, out):
        run_on_store(store, done)
        if job["kind"] == "snapshot" and done.verb in ("sync", "train"):
            target = directory.parent / f"snapshot-{done.number}"
            print("snapshot", done.number, file=out, flush=True)
            snapshot(store, target)
            print("published", done.number, file=out, flush=True)


if __name__ == "__main__":
    main()
