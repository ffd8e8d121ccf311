"""Snapshots: a store at one commit, whole or not there, and the same store again in any tiers."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepwell.errors import BudgetTooSmall, ConfigError, DiskFull, StoreCorrupt, StoreError, StoreFormatError, StoreFull
from stepwell.native import check_ssd_dir
from stepwell.native._core import FaultOp, FaultyEnv
from stepwell.rows import SGD, TTL, Adam, L2Below, MaxRows, MinCount, Probability, RowWiseAdaGrad, TableSpec
from stepwell.store import SsdSettings, StoreConfig, TieredStore, manifest, restore, snapshot
from stepwell.store.ssd import log_directory
from tests.store import writer

SPECS = (
    TableSpec(name="plain", dim=16, optimizer=Adam()),
    TableSpec(name="also_16", dim=16, optimizer=Adam(), expiry=(TTL(steps=4),)),
    TableSpec(name="counted", dim=5, admission=MinCount(n=3, expected_ids=2000)),
    TableSpec(name="drawn", dim=5, admission=Probability(p=0.3), expiry=(TTL(seconds=25.0),)),
    TableSpec(name="most", dim=3, weight_dtype="bf16", optimizer=SGD(), expiry=(MaxRows(n=150),)),
    TableSpec(
        name="most_lfu", dim=3, weight_dtype="fp16", optimizer=RowWiseAdaGrad(), expiry=(MaxRows(n=150, by="lfu"),)
    ),
    TableSpec(name="small", dim=8, expiry=(L2Below(norm=0.02, min_count=2),)),
)
Contents = dict[str, dict[int, bytes]]


def config(directory: Path | None, *, dram_bytes: int = 16 << 20, specs: tuple[TableSpec, ...] = SPECS) -> StoreConfig:
    settings = SsdSettings(segment_bytes=1 << 16, write_buffer_bytes=1 << 16, direct=has_direct())
    if directory is None:
        return StoreConfig(tables=specs, dram_bytes=dram_bytes, ssd=settings)
    return StoreConfig(
        tables=specs, dram_bytes=dram_bytes, ssd_bytes=64 << 20, ssd_directory=str(directory), ssd=settings
    )


def has_direct() -> bool:
    return all(writer.has_direct(Path(path)) for path in (tempfile.gettempdir(), "/dev/shm") if os.path.isdir(path))


def contents(store: TieredStore) -> Contents:
    result: Contents = {}
    for spec in store.config.tables:
        rows: dict[int, bytes] = {}
        for ids, records in store.export_batch(spec.name):
            for row_id, record in zip(ids.tolist(), records, strict=True):
                assert row_id not in rows
                rows[row_id] = record.tobytes()
        assert store.num_rows(spec.name) == len(rows), spec.name
        found = store.find(spec.name, np.array([*rows], np.int64))
        assert found.found.all()
        assert [record.tobytes() for record in found.records] == [*rows.values()]
        result[spec.name] = rows
    return result


def batch(step: int, name: str) -> writer.I64:
    rng = np.random.default_rng([step, len(name), ord(name[0])])
    return np.unique(np.minimum(rng.zipf(1.3, 120), 4000)) * np.int64(0x9E3779B97F4A7C1)


def train(store: TieredStore, first: int, last: int) -> None:
    """Steps that write every row through its slot, as a function of its id, the step and what it was."""
    for step in range(first, last + 1):
        for spec in store.config.tables:
            ids = batch(step, spec.name)
            slots = store.pin(spec.name, ids, step=step)
            memory = store.slots(spec.name)
            rows = memory[slots]
            weight = spec.layout.views(rows).weight
            new = weight.astype(np.float32) * 0.5 if weight.dtype != np.uint16 else weight
            weight[...] = new if step % 5 else (ids % 11)[:, None]
            memory[slots] = rows
            store.unpin(spec.name, slots, dirty=True)
        store.commit(step, event_time=10.0 * step, cursor={"sample": step * 100, "files": ["a", step]})


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name not in ("LOCK", "SYNCED")  # written by who opens them
    }


@pytest.fixture
def other_file_system() -> Iterator[Path]:
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK) or shared.stat().st_dev == Path(tempfile.gettempdir()).stat().st_dev:
        pytest.skip("/dev/shm is no other file system here")
    folder = Path(tempfile.mkdtemp(dir=shared))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("source", ["dram", "dram over ssd", "little dram over ssd"])
def test_round_trips(source: str, tmp_path: Path, other_file_system: Path) -> None:
    """Into every stack of tiers: the same rows, and every later step goes as it does in the store itself."""
    directory = None if source == "dram" else tmp_path / "store"
    with TieredStore(config(directory, dram_bytes=4 << 20 if source[0] == "l" else 16 << 20)) as store:
        train(store, 1, 12)
        store.insert_or_assign("plain", np.arange(5), np.ones((5, 16), np.float32))
        store.erase("plain", np.arange(3))
        expected = contents(store)
        assert all(expected.values())
        snapshot(store, tmp_path / "snapshot")
        train(store, 13, 18)
        later = contents(store)
    before = files_of(tmp_path / "snapshot")
    targets = {
        "dram": config(None),
        "over ssd": config(tmp_path / "over"),
        "little over ssd": config(tmp_path / "little", dram_bytes=4 << 20),
        "smaller segments": replace(
            config(tmp_path / "larger"), ssd=replace(config(tmp_path).ssd, segment_bytes=1 << 17)
        ),
        "elsewhere": config(other_file_system / "store"),
    }
    for name, target in targets.items():
        with restore(tmp_path / "snapshot", target) as restored:
            assert (restored.step, restored.cursor) == (12, {"sample": 1200, "files": ["a", 12]}), name
            assert contents(restored) == expected, name
            train(restored, 13, 18)
            assert contents(restored) == later, name
            if target.ssd_directory:
                restored.sync()
        if target.ssd_directory:
            with TieredStore(target) as again:
                assert contents(again) == later, name
    read_only = replace(config(tmp_path / "read"), dram_bytes=0, mode="read")
    with restore(tmp_path / "snapshot", read_only) as restored:
        for table, rows in expected.items():
            if table in ("also_16", "drawn", "most"):
                continue
            found = restored.find(table, np.array([*rows], np.int64))
            assert [record.tobytes() for record in found.records] == [*rows.values()]
    assert files_of(tmp_path / "snapshot") == before


@pytest.mark.parametrize("ssd", [False, True])
def test_what_is_pinned_ahead_is_not_in_it(ssd: bool, tmp_path: Path) -> None:
    with TieredStore(config(tmp_path / "store" if ssd else None)) as store:
        train(store, 1, 8)
        expected = contents(store)
        held = {}
        for step in (9, 10, 11):  # births, rows that have expired and begin again, rows from below
            for spec in SPECS:
                ids = np.concatenate([batch(step, spec.name), np.arange(step * 10, step * 10 + 5)])
                held[step, spec.name] = store.pin(spec.name, ids, step=step)
        store.find("plain", batch(9, "plain"), "train", step=9)
        snapshot(store, tmp_path / "snapshot")
        for (_, name), slots in held.items():
            store.unpin(name, slots, dirty=False)
        for step in (9, 10, 11):
            store.commit(step, event_time=10.0 * step)
        assert contents(store) != expected
    for target in (config(None), config(tmp_path / "restored")):
        with restore(tmp_path / "snapshot", target) as restored:
            assert restored.step == 8
            assert contents(restored) == expected


def test_the_store_goes_on(tmp_path: Path) -> None:
    """Whatever the store and a restored one do later, the files of a snapshot stay as they are."""
    target = tmp_path / "snapshot"
    with TieredStore(config(tmp_path / "store")) as store:
        train(store, 1, 6)
        expected = contents(store)
        snapshot(store, target)
        before = files_of(target)
        shared = [path for path in target.glob("rows-*/seg-*") if path.stat().st_nlink > 1]
        assert shared
        train(store, 7, 16)
        store.erase("plain", batch(3, "plain"))
        store.sync()
        for log in store._below._logs.values():  # type: ignore[union-attr]
            log.compact(True)
        snapshot(store, tmp_path / "second")
        with pytest.raises(ConfigError, match="exists"):
            snapshot(store, target)
    with restore(target, config(tmp_path / "restored")) as restored:
        train(restored, 7, 9)
        restored.erase("plain", batch(2, "plain"))
        restored.sync()
    assert files_of(target) == before
    # A repair rewrites; what others link to keeps its bytes.
    (tmp_path / "restored-2").mkdir()
    restore(target, config(tmp_path / "restored-2")).close()
    log = log_directory(tmp_path / "restored-2", SPECS[0].layout.fingerprint)
    segment = next(path for path in sorted(log.glob("seg-*")) if path.stat().st_size >= 4 * 4096)
    damaged = segment.read_bytes()
    with segment.open("r+b") as file:
        file.seek(4096 + 100)
        file.write(b"damage")
    torn = files_of(target)
    assert check_ssd_dir(str(log), True)["repaired"]
    assert files_of(target) == torn
    with (target / log.name / segment.name).open("r+b") as file:
        file.write(damaged)
    shutil.rmtree(tmp_path / "store")
    with restore(target, config(tmp_path / "restored-3")) as restored:
        assert contents(restored) == expected
    with TieredStore(config(target)) as opened:  # it is a store itself
        assert contents(opened) == expected


def test_refused(tmp_path: Path) -> None:
    with TieredStore(config(tmp_path / "store")) as store:
        train(store, 1, 3)
        snapshot(store, tmp_path / "snapshot")
        expected = contents(store)
    with pytest.raises(ConfigError, match="holds a store already"):
        restore(tmp_path / "snapshot", config(tmp_path / "store"))
    with pytest.raises(ConfigError, match="holds a store already"):
        restore(tmp_path / "snapshot", config(tmp_path / "snapshot"))
    with TieredStore(config(tmp_path / "store")) as store:
        assert contents(store) == expected
    target = tmp_path / "target"
    with pytest.raises(StoreFormatError, match="'plain'"):
        restore(tmp_path / "snapshot", config(target, specs=SPECS[1:]))
    wider = (replace(SPECS[0], dim=17), *SPECS[1:])
    with pytest.raises(StoreFormatError, match="'plain'"):
        restore(tmp_path / "snapshot", config(target, specs=wider))
    with pytest.raises(StoreFormatError, match="seed"):
        restore(tmp_path / "snapshot", replace(config(target), seed=1))
    with pytest.raises(StoreFormatError, match=manifest.FILE):
        restore(tmp_path, config(target))
    with pytest.raises((BudgetTooSmall, StoreFull)):
        restore(tmp_path / "snapshot", replace(config(target), ssd_bytes=1 << 20))
    with pytest.raises((BudgetTooSmall, StoreFull)):
        restore(tmp_path / "snapshot", config(None, dram_bytes=1_300_000))
    new = TableSpec(name="new", dim=7)
    with restore(tmp_path / "snapshot", config(target, specs=(new, *SPECS))) as store:  # nothing is in the way
        assert contents(store) == expected | {"new": {}}


TORN = ["store.json", "SYNCED", "all rows", "a segment", "a page of a segment", "a byte of a row", "a filter"]


@pytest.mark.parametrize("torn", TORN)
@pytest.mark.parametrize("linked", [False, True])
def test_torn(torn: str, linked: bool, tmp_path: Path) -> None:
    with TieredStore(config(tmp_path / "store" if linked else None)) as store:
        train(store, 1, 6)
        snapshot(store, tmp_path / "snapshot")
    target = tmp_path / "torn"
    shutil.copytree(tmp_path / "snapshot", target)
    log = log_directory(target, SPECS[0].layout.fingerprint)
    segment = max(log.glob("seg-*"), key=lambda path: path.stat().st_size)
    if torn == "store.json":
        (target / manifest.FILE).unlink()
    elif torn == "SYNCED":
        (log / "SYNCED").unlink()
    elif torn == "all rows":
        shutil.rmtree(log)
    elif torn == "a segment":
        segment.unlink()
    elif torn == "a page of a segment":
        with segment.open("r+b") as file:
            file.truncate(segment.stat().st_size - 4096)
    elif torn == "a byte of a row":
        data = bytearray(segment.read_bytes())
        data[4096 + 60] ^= 1
        segment.write_bytes(data)
    else:
        next(target.glob("filter-*")).unlink()
    with pytest.raises(StoreError):
        restore(target, config(None))
    place = config(tmp_path / "restored")
    if torn != "a byte of a row":
        with pytest.raises(StoreError):
            restore(target, place)
        restore(tmp_path / "snapshot", place).close()  # nothing is in the way
        return
    try:
        restored = restore(target, place)
    except StoreCorrupt as error:
        assert segment.name in str(error)
        return
    with restored, pytest.raises(StoreCorrupt, match=segment.name):
        for spec in SPECS:
            restored.find(spec.name, np.concatenate([batch(step, spec.name) for step in range(1, 7)]))


def test_a_snapshot_that_fails(tmp_path: Path, other_file_system: Path) -> None:
    env = FaultyEnv()
    with TieredStore(config(tmp_path / "store"), env=env) as store:
        train(store, 1, 4)
        expected = contents(store)
        for op, kind in ((FaultOp.LINK, StoreError), (FaultOp.SYNC, StoreError), (FaultOp.WRITE, DiskFull)):
            env.add(op, error=28 if op is FaultOp.WRITE else 5)
            with pytest.raises(kind):
                snapshot(store, tmp_path / "snapshot")
            env.clear()
            assert os.listdir(tmp_path) == ["store"]
        with pytest.raises(ConfigError, match="another file system"):
            snapshot(store, other_file_system / "snapshot")
        assert os.listdir(other_file_system) == []
        assert contents(store) == expected
        train(store, 5, 6)
        expected = contents(store)
        snapshot(store, tmp_path / "snapshot")
    with restore(tmp_path / "snapshot", config(tmp_path / "restored")) as restored:
        assert contents(restored) == expected
