"""A writer that is killed at any moment: what it was told is durable is there, and nothing else ever was."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from stepwell.native import check_ssd_dir
from stepwell.store import TieredStore, restore
from stepwell.store.ssd import SsdTier
from tests.store import writer
from tests.store.writer import I64, IDS, PER_TABLE, SPECS, U8, U32

ROOT = Path(__file__).parents[2]
LONGEST_S = 0.7
ROUNDS_PER_DIRECTORY = 5  # what one crash left behind is there in the next
ORDER = np.argsort(IDS)


@dataclass(frozen=True)
class Said:
    """What a writer had said when it was killed: numbers of ops."""

    last: int  # that it had begun
    synced: int  # the last that was acknowledged
    attempted: list[int]  # snapshots
    published: list[int]


def killed(kind: str, directory: Path, seed: int, first: int, after_s: float) -> Said:
    """Start a writer, and kill it `after_s` seconds after it began to open its directory."""
    job = {"kind": kind, "directory": str(directory), "seed": seed, "first": first, "ops": 100_000}
    command = [sys.executable, "-m", "tests.store.writer", json.dumps(job)]
    said = directory.parent / "said"
    with said.open("w") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, cwd=ROOT) as process:
        while process.poll() is None and said.stat().st_size == 0:
            time.sleep(0.005)
        try:
            errors = process.communicate(timeout=after_s)[1]
        except subprocess.TimeoutExpired:
            process.kill()
        else:
            pytest.fail(f"the writer ended by itself: {errors.decode()}")
    lines = [line.split() for line in said.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def numbers(word: str) -> list[int]:
        return [int(line[1]) for line in lines if line[0] == word]

    return Said(
        last=max(numbers("begin"), default=first - 1),
        synced=max(numbers("synced"), default=first - 1),
        attempted=numbers("snapshot"),
        published=numbers("published"),
    )


def states(start: U32, seed: int, first: int, last: int) -> list[U32]:
    """The states before op `first` and after each op up to `last`."""
    result = [start]
    for number in range(first, last + 1):
        state = result[-1].copy()
        writer.apply(state, writer.op(seed, number))
        result.append(state)
    return result


def nothing() -> U32:
    return np.zeros((len(SPECS), PER_TABLE), np.uint32)


def versions(table: int, ids: I64, records: U8) -> U32:
    """uint32 [PER_TABLE] by place in IDS; fails where an id comes twice or was never written."""
    places = ORDER[np.minimum(np.searchsorted(IDS[ORDER], ids), PER_TABLE - 1)]
    assert np.array_equal(IDS[places], ids)
    assert len(np.unique(places)) == len(places)
    state = np.zeros(PER_TABLE, np.uint32)
    state[places] = writer.versions_of(SPECS[table].layout, table, ids, records)
    return state


def joined(batches: list[tuple[I64, U8]], table: int) -> tuple[I64, U8]:
    if not batches:
        return IDS[:0], np.zeros((0, SPECS[table].layout.record_bytes), np.uint8)
    return np.concatenate([ids for ids, _ in batches]), np.concatenate([records for _, records in batches])


def read_tier(tier: SsdTier) -> U32:
    """All rows' versions, found and scanned alike."""
    state = nothing()
    for table in range(len(SPECS)):
        found = tier.find(table, IDS)
        state[table] = versions(table, IDS[found.found], found.records[found.found])
        assert np.array_equal(versions(table, *joined(list(tier.scan(table)), table)), state[table])
        assert tier.num_rows(table) == np.count_nonzero(state[table])
    return state


def read_store(store: TieredStore) -> U32:
    """All rows' versions, found and exported alike."""
    state = nothing()
    for table, spec in enumerate(SPECS):
        rows = store.find(spec.name, IDS)
        state[table] = versions(table, IDS[rows.found], rows.records[rows.found])
        exported = joined(list(store.export_batch(spec.name)), table)
        assert np.array_equal(versions(table, *exported), state[table])
        assert store.num_rows(spec.name) == np.count_nonzero(state[table])
    return state


def check_files(directory: Path) -> None:
    """A crash of the process damages nothing: what was not synced is no problem, and is not there."""
    for log in directory.glob("rows-*"):
        if (log / "SYNCED").exists():
            assert check_ssd_dir(str(log), False)["problems"] == []


def tier_rounds(rounds: int, seed: int, tmp_path: Path) -> None:
    """The SSD tier alone: its rows are exactly those after some op, the last acknowledged sync or a later one."""
    rng = np.random.default_rng(seed)
    for turn in range(rounds):
        if turn % ROUNDS_PER_DIRECTORY == 0:
            directory, state, first = tmp_path / f"tier-{turn}", nothing(), 1
        said = killed("tier", directory, seed, first, rng.uniform(0, LONGEST_S))
        check_files(directory)
        tier = writer.open_tier(directory)
        after = read_tier(tier)
        tier.close()
        possible = states(state, seed, first, said.last)[said.synced - first + 1 :]
        for tables in ([0, 1], [2]):  # one log each
            assert any(np.array_equal(after[tables], one[tables]) for one in possible), f"round {turn}: {said}"
        state, first = after, said.last + 1
        if turn % ROUNDS_PER_DIRECTORY == ROUNDS_PER_DIRECTORY - 1:
            shutil.rmtree(directory)


def check_moment(store: TieredStore, after: U32, possible: list[U32], seed: int, said: Said, cursor: object) -> None:
    """Each row is as it was at the last acknowledged sync or after a later op; step and cursor are a sync's."""
    fits = np.zeros_like(after, np.bool_)
    for one in possible:
        fits |= after == one
    table, place = np.argwhere(~fits)[0] if not fits.all() else (0, 0)
    assert fits.all(), f"{said}: table {table}, id {IDS[place]}: found {after[table, place]}"
    cursors = [cursor]
    for number in range(said.last - len(possible) + 2, said.last + 1):
        cursors.append(number if writer.op(seed, number).verb == "train" else cursors[-1])
    assert store.cursor in cursors, f"{said}: found cursor {store.cursor}, expected one of {cursors}"


def store_rounds(rounds: int, seed: int, tmp_path: Path) -> None:
    """A store of DRAM over SSD: every row is as at the last acknowledged sync, or as it was written later."""
    rng = np.random.default_rng(seed)
    for turn in range(rounds):
        if turn % ROUNDS_PER_DIRECTORY == 0:
            directory, state, first, cursor = tmp_path / f"store-{turn}", nothing(), 1, None
        said = killed("store", directory, seed, first, rng.uniform(0, LONGEST_S))
        check_files(directory)
        for number in range(first, said.synced + 1):
            cursor = number if writer.op(seed, number).verb == "train" else cursor
        with TieredStore(writer.store_config(directory)) as store:
            after = read_store(store)
            possible = states(state, seed, first, said.last)[said.synced - first + 1 :]
            check_moment(store, after, possible, seed, said, cursor)
            assert store.step == 0 or store.cursor is not None
            cursor = store.cursor
        state, first = after, said.last + 1
        if turn % ROUNDS_PER_DIRECTORY == ROUNDS_PER_DIRECTORY - 1:
            shutil.rmtree(directory)


def snapshot_rounds(rounds: int, seed: int, tmp_path: Path) -> None:
    """A snapshot is absent or whole: the store after the very op before it."""
    rng = np.random.default_rng(seed)
    for turn in range(rounds):
        folder = tmp_path / f"snapshots-{turn}"
        folder.mkdir()
        said = killed("snapshot", folder / "store", seed, 1, rng.uniform(0.1, LONGEST_S + 0.3))
        there = {int(path.name.split("-")[1]): path for path in folder.glob("snapshot-*") if path.name.count(".") == 0}
        assert set(said.published) <= set(there) <= set(said.attempted)
        expected = states(nothing(), seed, 1, said.last)
        for number in sorted(there)[:1] + sorted(there)[-2:]:
            check_files(there[number])
            config = writer.store_config(folder / f"restored-{number}-{rng.integers(1 << 40)}")
            with restore(there[number], config) as store:
                assert np.array_equal(read_store(store), expected[number])
        shutil.rmtree(folder)


ROUNDS: list[tuple[Callable[[int, int, Path], None], int, int]] = [
    (tier_rounds, 8, 80),
    (store_rounds, 8, 80),
    (snapshot_rounds, 4, 40),
]


@pytest.mark.parametrize(("rounds", "few", "many"), ROUNDS)
def test_killed(rounds: Callable[[int, int, Path], None], few: int, many: int, tmp_path: Path) -> None:
    rounds(few, 1, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize(("rounds", "few", "many"), ROUNDS)
def test_killed_many_times(rounds: Callable[[int, int, Path], None], few: int, many: int, tmp_path: Path) -> None:
    rounds(many, int(time.time()), tmp_path)
