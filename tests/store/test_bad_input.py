"""What a user gets wrong: an error of its own class, what was found and what to do; every row is still there."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepwell import SsdSettings, StoreConfig, TableSpec, TieredStore
from stepwell.errors import (
    BudgetTooSmall,
    ConfigError,
    StoreClosed,
    StoreFormatError,
    StoreFull,
    StoreIOError,
    StoreLocked,
    UnknownTable,
)

SPEC = TableSpec(name="items", dim=4)
IDS = np.array([0, -1, 1 << 62, 7], np.int64)
WEIGHTS = np.arange(16, dtype=np.float32).reshape(4, 4)


def config(directory: Path) -> StoreConfig:
    return StoreConfig(
        tables=(SPEC,),
        dram_bytes=1 << 20,
        ssd_bytes=1 << 26,
        ssd_directory=str(directory),
        ssd=SsdSettings(segment_bytes=1 << 16),
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TieredStore]:
    with TieredStore(config(tmp_path / "rows")) as made:
        made.insert_or_assign("items", IDS, WEIGHTS)
        made.commit(1)
        made.sync()
        yield made
        check(made)


def check(store: TieredStore) -> None:
    rows = store.find("items", IDS)
    assert rows.found.all() and (rows.weights == WEIGHTS).all() and store.num_rows("items") == len(IDS)


Call = Callable[[TieredStore], Any]
CALLS: dict[str, tuple[Call, type[Exception], str]] = {
    "ids of int32": (lambda s: s.find("items", IDS.astype(np.int32)), ConfigError, "ids: found int32"),
    "ids as floats": (lambda s: s.pin("items", np.array([1.5])), ConfigError, "ids: found float64"),
    "ids as a list": (lambda s: s.find("items", [1, 2]), ConfigError, "ids: found list"),
    "ids of two dimensions": (lambda s: s.erase("items", IDS[None]), ConfigError, r"ids: found .*\(1, 4\)"),
    "fewer rows than ids": (
        lambda s: s.insert_or_assign("items", IDS, WEIGHTS[:3]),
        ConfigError,
        r"\(3, 4\).*\(4, 4\)",
    ),
    "rows of another dim": (
        lambda s: s.insert_or_assign("items", IDS, np.zeros((4, 5), np.float32)),
        ConfigError,
        r"weights of table 'items'.*\(4, 5\).*\(4, 4\)",
    ),
    "rows of float64": (
        lambda s: s.insert_or_assign("items", IDS, WEIGHTS.astype(np.float64)),
        ConfigError,
        "float64.*float32",
    ),
    "records of another size": (
        lambda s: s.insert_records("items", IDS, np.zeros((4, 3), np.uint8)),
        ConfigError,
        str(SPEC.layout.record_bytes),
    ),
    "records never committed": (
        lambda s: s.insert_records("items", IDS, np.zeros((4, SPEC.layout.record_bytes), np.uint8)),
        ConfigError,
        "count of 0",
    ),
    "a table that is not there": (lambda s: s.find("item", IDS), UnknownTable, "'item'.*items"),
    "a mode that is none": (lambda s: s.find("items", IDS, "write"), ConfigError, "'write'.*'read' or 'train'"),
    "a step of the past": (lambda s: s.pin("items", IDS, step=1), ConfigError, "step: found 1, expected 2"),
    "a commit out of order": (lambda s: s.commit(5), ConfigError, r"commit\(5\): expected 2"),
    "an event time that is none": (
        lambda s: s.commit(2, event_time=float("nan")),
        ConfigError,
        "event_time: found nan",
    ),
    "a slot without a pin": (
        lambda s: s.unpin("items", np.array([0], np.int64), False),
        ConfigError,
        "slot 0 .*no pin",
    ),
    "a slot that is none": (
        lambda s: s.unpin("items", np.array([1 << 40], np.int64), False),
        ConfigError,
        str(1 << 40),
    ),
    "marks of another length": (
        lambda s: s.unpin("items", np.array([0], np.int64), np.zeros(2, np.bool_)),
        ConfigError,
        r"dirty.*\(2,\).*\(1,\)",
    ),
    "a store that trains, given a delta": (lambda s: s.publish(None), ConfigError, "mode: found 'train'"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_changes_nothing(name: str, store: TieredStore) -> None:
    call, kind, words = CALLS[name]
    with pytest.raises(kind, match=words):
        call(store)


def test_a_batch_that_can_never_fit_names_the_bytes_it_needs(tmp_path: Path) -> None:
    small = replace(config(tmp_path / "rows"), dram_bytes=300_000)
    ids = np.arange(20_000)
    with TieredStore(small) as store, pytest.raises(BudgetTooSmall, match=r"20000 different ids.*'items'") as refused:
        store.pin("items", ids)
    needed = int(re.findall(r"at least (\d+)", str(refused.value))[0])
    with TieredStore(replace(small, dram_bytes=needed)) as store:
        assert len(store.pin("items", ids)) == len(ids)
    with TieredStore(replace(small, dram_bytes=needed - 2000)) as store, pytest.raises(BudgetTooSmall):
        store.pin("items", ids)


def test_a_budget_for_no_row_names_the_bytes_it_needs() -> None:
    with pytest.raises(BudgetTooSmall, match="dram_bytes is 1000") as refused:
        TieredStore(StoreConfig(tables=(SPEC,), dram_bytes=1000))
    needed = int(re.findall(r"at least (\d+)", str(refused.value))[0])
    TieredStore(StoreConfig(tables=(SPEC,), dram_bytes=needed)).close()


def test_a_full_only_tier_keeps_what_it_has() -> None:
    with TieredStore(StoreConfig(tables=(SPEC,), dram_bytes=400_000)) as store:
        store.insert_or_assign("items", IDS, WEIGHTS)
        with pytest.raises(StoreFull, match="raise dram_bytes to"):
            ids = np.arange(100, 50_000)
            store.insert_or_assign("items", ids, np.zeros((len(ids), 4), np.float32))
        check(store)


def test_a_directory_of_another_process(store: TieredStore) -> None:
    code = (
        "import sys; from stepwell import *; from stepwell.errors import StoreLocked\n"
        "try: TieredStore(StoreConfig.from_json(sys.argv[1]))\n"
        "except StoreLocked as error: print(error)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, store.config.to_json()], capture_output=True, text=True, check=True
    )
    assert store.config.ssd_directory in run.stdout and str(os.getpid()) in run.stdout
    with pytest.raises(StoreLocked, match=str(os.getpid())):
        TieredStore(store.config)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (replace(SPEC, dim=5), "'items'"),
        (replace(SPEC, weight_dtype="bf16"), "'items'"),
        (replace(SPEC, name="other"), "'items'"),
    ],
)
def test_tables_that_are_not_the_directorys(changed: TableSpec, words: str, tmp_path: Path) -> None:
    mine = config(tmp_path / "rows")
    with TieredStore(mine) as store:
        store.insert_or_assign("items", IDS, WEIGHTS)
        store.commit(1)
        store.sync()
    with pytest.raises(StoreFormatError, match=words):
        TieredStore(replace(mine, tables=(changed,)))
    with TieredStore(mine) as store:
        check(store)


def test_a_newer_version(tmp_path: Path) -> None:
    mine = config(tmp_path / "rows")
    with TieredStore(mine) as store:
        store.insert_or_assign("items", IDS, WEIGHTS)
        store.commit(1)
        store.sync()
    manifest = tmp_path / "rows" / "store.json"
    kept = manifest.read_text()
    manifest.write_text(re.sub(r'"format": (\d+)', '"format": 999', kept))
    with pytest.raises(StoreFormatError, match="999"):
        TieredStore(mine)
    manifest.write_text(kept)
    with TieredStore(mine) as store:
        check(store)


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("hello")
    with pytest.raises(StoreIOError, match="rows"):
        TieredStore(config(tmp_path / "rows"))


def test_a_closed_store(tmp_path: Path) -> None:
    store = TieredStore(config(tmp_path / "rows"))
    store.close()
    store.close()
    with pytest.raises(StoreClosed, match="open it again"):
        store.find("items", IDS)
