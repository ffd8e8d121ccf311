"""A full disk, a disk that cannot be read, a tier that fails: nothing is lost, the store goes on."""

import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from stepwell import SsdSettings, StoreConfig, TableSpec, TieredStore
from stepwell.errors import DiskFull, StoreFull, StoreIOError
from stepwell.native import FaultyEnv
from stepwell.native._core import FaultOp
from stepwell.rows import SGD
from stepwell.store.tables import Tables
from stepwell.store.twins import FaultyTier, MemoryTier

I64 = npt.NDArray[np.int64]

SPEC = TableSpec(name="rows", dim=60, optimizer=SGD(lr=0.1))
SEGMENT = 1 << 20
BATCH = 600


def weights_of(ids: I64, mark: int) -> npt.NDArray[np.float32]:
    return (ids[:, None] % 1000 + np.arange(SPEC.dim) + 10_000 * mark).astype(np.float32)


def batch(number: int) -> I64:
    return np.arange(number * BATCH, (number + 1) * BATCH)


class Kept:
    """A store, and what it must hold: which batch was last written with which mark."""

    def __init__(self, store: TieredStore) -> None:
        self.store = store
        self.marks: dict[int, int] = {}

    def write(self, number: int, mark: int) -> None:
        """Eviction writes the SSD tier. A batch is below a quarter of DRAM, so it is written whole or not at all."""
        self.store.insert_or_assign("rows", batch(number), weights_of(batch(number), mark))
        self.marks[number] = mark

    def check(self) -> None:
        for number, mark in self.marks.items():
            rows = self.store.find("rows", batch(number))
            assert rows.found.all(), f"{(~rows.found).sum()} rows of batch {number} are gone"
            assert (rows.weights == weights_of(batch(number), mark)).all(), f"batch {number} is not what was written"


def config(directory: Path, *, background: bool = False, batches: int = 5, direct: bool = True) -> StoreConfig:
    return StoreConfig(
        tables=(SPEC,),
        dram_bytes=(batches * BATCH + BATCH // 2) * (SPEC.layout.record_bytes + 21) + (256 << 10),
        ssd_bytes=1 << 30,
        ssd_directory=str(directory),
        ssd=SsdSettings(
            segment_bytes=SEGMENT, write_buffer_bytes=1 << 19, background_compaction=background, direct=direct
        ),
        threads=2,
    )


@pytest.fixture(params=["ext4 in a file", "tmpfs"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 MiB."""
    where = tmp_path / "disk"
    where.mkdir()
    if request.param == "tmpfs":
        commands = [["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(where)]]
    else:
        image = tmp_path / "image"
        image.write_bytes(b"")
        with image.open("r+b") as file:
            file.truncate(40 << 20)
        commands = [["mkfs.ext4", "-q", "-m", "0", str(image)], ["mount", "-o", "loop", str(image), str(where)]]
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip(f"{command[0]} is not on this machine")
        if done.returncode:
            pytest.skip(f"{command[0]} is not allowed here: {done.stderr.strip()}")
    yield where
    subprocess.run(["umount", str(where)], check=True)


def fill(disk: Path, leave: int) -> Path:
    """A file that leaves this many bytes of the disk."""
    filler = disk / "filler"
    with filler.open("wb") as file:
        try:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        except OSError as error:
            assert error.errno == errno.ENOSPC
        file.truncate(max(0, file.seek(0, 2) - leave))
    return filler


def test_disk_full_in_append(small_disk: Path) -> None:
    settings = config(small_disk / "store", direct=not is_tmpfs(small_disk))
    with TieredStore(settings) as store:
        kept = Kept(store)
        for number in range(10):
            kept.write(number, 1)
        store.sync()
        synced = dict(kept.marks)
        filler = fill(small_disk, leave=2 * SEGMENT)
        with pytest.raises(DiskFull) as refused:
            for number in range(10, 400):
                kept.write(number, 1)
        assert str(small_disk) in str(refused.value)  # which disk
        kept.check()
        with pytest.raises(DiskFull):
            kept.write(500, 1)
        kept.check()
        filler.unlink()
        for number in range(500, 505):
            kept.write(number, 2)
        kept.check()
        store.sync()
        expected = dict(kept.marks)
    with TieredStore(settings) as store:
        kept = Kept(store)
        kept.marks = expected
        kept.check()
        assert set(synced) <= set(expected)


def test_disk_full_in_compaction(small_disk: Path) -> None:
    settings = config(small_disk / "store", direct=not is_tmpfs(small_disk))
    with TieredStore(settings) as store:
        kept = Kept(store)
        for number in range(40):
            kept.write(number, 1)
        for number in range(0, 40, 2):  # half of each segment is stale, the other half must be copied
            kept.write(number, 2)
        store.sync()
        filler = fill(small_disk, leave=0)
        log = store._below._logs[SPEC.layout.fingerprint]  # type: ignore[union-attr]  # compacts when told, here
        with pytest.raises(DiskFull, match=str(small_disk)):
            log.compact(True)
        kept.check()
        filler.unlink()
        log.compact(True)
        kept.check()
        for number in range(40):
            kept.write(number, 3)
        store.sync()
        expected = dict(kept.marks)
    with TieredStore(settings) as store:
        kept = Kept(store)
        kept.marks = expected
        kept.check()


def test_disk_full_in_background_compaction(small_disk: Path) -> None:
    """Writes go on into what the disk has; the error, when there is one, is DiskFull, and no row is lost."""
    settings = config(small_disk / "store", background=True, direct=not is_tmpfs(small_disk))
    refused = 0
    with TieredStore(settings) as store:
        kept = Kept(store)
        for number in range(40):
            kept.write(number, 0)
        filler = fill(small_disk, leave=SEGMENT)
        for mark in range(1, 8):
            for number in range(40):
                try:
                    kept.write(number, mark)
                except DiskFull:
                    refused += 1
                    if refused in (1, 10):
                        kept.check()
        assert refused
        filler.unlink()
        for number in range(40):
            kept.write(number, 9)
        kept.check()
        store.sync()


def is_tmpfs(disk: Path) -> bool:
    return any(line.split()[1:3] == [str(disk), "tmpfs"] for line in Path("/proc/mounts").read_text().splitlines())


def test_a_disk_that_cannot_be_read(tmp_path: Path) -> None:
    env = FaultyEnv()
    with TieredStore(config(tmp_path / "store"), env=env) as store:
        kept = Kept(store)
        for number in range(8):
            kept.write(number, 1)
        store.sync()
        env.add(FaultOp.READ, "seg-", errno.EIO)
        with pytest.raises(StoreIOError, match="seg-") as refused:
            store.find("rows", batch(0))
        assert any("could not be read" in note for note in refused.value.__notes__)
        with pytest.raises(StoreIOError):
            store.find("rows", batch(1), "train", step=1)
        recent = batch(7)  # still in DRAM: no read
        assert store.find("rows", recent).found.all()
        env.clear()
        kept.check()
        store.commit(1)
        kept.write(8, 2)
        kept.check()


@pytest.mark.parametrize("op", [FaultOp.WRITE, FaultOp.ALLOCATE, FaultOp.OPEN, FaultOp.SYNC])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_disk_that_cannot_be_written(op: FaultOp, error: int, tmp_path: Path) -> None:
    """An accepted row may not be lost because its write fails later: it is found, and written when the disk can."""
    env = FaultyEnv()
    with TieredStore(config(tmp_path / "store"), env=env) as store:
        kept = Kept(store)
        for number in range(4):
            kept.write(number, 1)
        store.sync()
        env.add(op, "seg-", error)
        refused = 0
        for number in range(4, 16):
            try:
                kept.write(number, 1)
            except StoreIOError:
                refused += 1
        with pytest.raises(StoreIOError):
            store.sync()
        assert refused or op is FaultOp.SYNC
        assert env.num_failed
        kept.check()
        env.clear()
        store.sync()
        kept.write(20, 2)
        store.sync()
        kept.check()
        expected = dict(kept.marks)
    with TieredStore(config(tmp_path / "store")) as store:
        kept = Kept(store)
        kept.marks = expected
        kept.check()


def test_a_batch_in_parts_says_how_far_it_came(tmp_path: Path) -> None:
    env = FaultyEnv()
    with TieredStore(config(tmp_path / "store"), env=env) as store:
        Kept(store).write(0, 1)
        ids = np.arange(40 * BATCH)
        env.add(FaultOp.ALLOCATE, "seg-", errno.ENOSPC, skip=1)
        with pytest.raises(DiskFull) as refused:
            store.insert_or_assign("rows", ids, weights_of(ids, 2))
        (note,) = (note for note in refused.value.__notes__ if "were written" in note)
        written = int(note.split()[0])
        assert BATCH < written < len(ids)
        rows = store.find("rows", ids)
        assert rows.found[: max(written, BATCH)].all() and not rows.found[max(written, BATCH) :].any()
        assert (rows.weights[:written] == weights_of(ids[:written], 2)).all()


@pytest.mark.parametrize("seed", range(6))
def test_a_tier_below_that_fails_now_and_then(seed: int) -> None:
    """Random verbs over a tier of which every tenth call fails: a call either did all or nothing."""
    rng = np.random.default_rng(seed)
    tables = Tables((SPEC,), 0, {"rows": 0})
    failures = 0

    def fault(verb: str, table: int) -> None:
        nonlocal failures
        if armed and rng.random() < 0.1:
            failures += 1
            raise (
                DiskFull(errno.ENOSPC, f"{verb}: the disk is full")
                if verb == "insert_or_assign"
                else StoreIOError(errno.EIO, f"{verb} of table {table} failed")
            )

    armed = True
    settings = StoreConfig(tables=(SPEC,), dram_bytes=700 * (SPEC.layout.record_bytes + 21) + (256 << 10))
    truth: dict[int, int] = {}
    with TieredStore(settings, below=FaultyTier(MemoryTier(tables), fault)) as store:
        step = 0
        for mark in range(1, 200):
            ids = np.unique(rng.integers(0, 4000, 150))
            action = rng.random()
            try:
                if action < 0.45:
                    store.insert_or_assign("rows", ids, weights_of(ids, mark))
                    truth |= dict.fromkeys(ids.tolist(), mark)
                elif action < 0.6:
                    store.erase("rows", ids[:50])
                    for row in ids[:50].tolist():
                        truth.pop(row, None)
                elif action < 0.8:
                    found = store.find("rows", ids)
                    assert found.found.tolist() == [row in truth for row in ids.tolist()]
                elif action < 0.9:
                    store.evict("rows", 100)
                else:
                    try:
                        store.find("rows", ids, "train", step=step + 1)
                    finally:  # an erase of rows that a later step holds would let them be born again
                        step += 1
                        store.commit(step)
            except (StoreIOError, StoreFull):
                if 0.45 <= action < 0.6:  # erased from some tiers at the most: again, until it is done
                    armed = False
                    store.erase("rows", ids[:50])
                    armed = True
                    for row in ids[:50].tolist():
                        truth.pop(row, None)
            if rng.random() < 0.2:
                step += 1
                store.commit(step)
        armed = False
        assert failures > 10
        ids = np.arange(4000)
        rows = store.find("rows", ids)
        assert rows.found.tolist() == [row in truth for row in range(4000)]
        there = ids[rows.found]
        marks = np.array([truth[row] for row in there.tolist()])
        expected = there[:, None] % 1000 + np.arange(SPEC.dim) + 10_000 * marks[:, None]
        assert (rows.weights[rows.found] == expected.astype(np.float32)).all()
