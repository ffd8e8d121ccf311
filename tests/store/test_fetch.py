"""Fetching whole steps, committing them, and reading many tables at once."""

import ctypes

import numpy as np
import numpy.typing as npt
import pytest

from stepwell.errors import BudgetTooSmall, ConfigError
from stepwell.rows import RowWiseAdaGrad, TableSpec
from stepwell.store import RowCopies, StepRows, StoreConfig, TieredStore
from tests.store.model import IDS, first_records, int64s

SPECS = (
    TableSpec(name="a", dim=4, optimizer=RowWiseAdaGrad()),
    TableSpec(name="b", dim=4, optimizer=RowWiseAdaGrad()),
    TableSpec(name="wide", dim=24, weight_dtype="bf16"),
)


def at(address: int, length: int) -> npt.NDArray[np.uint8]:
    """The bytes there, as they are now."""
    return np.frombuffer((ctypes.c_uint8 * length).from_address(address), np.uint8)


def record_of(rows: StepRows | RowCopies, i: int, store: TieredStore) -> npt.NDArray[np.uint8]:
    table = rows.tables[int(np.searchsorted(rows.starts, i, side="right")) - 1]
    return at(int(rows.addresses[i]), store.tables.named(table).layout.record_bytes)


@pytest.fixture
def store() -> TieredStore:
    return TieredStore(StoreConfig(tables=SPECS, dram_bytes=4 << 20, threads=2))


def test_rows_come_in_the_order_asked(store: TieredStore) -> None:
    wanted = {"wide": int64s(IDS[::-1]), "a": int64s(IDS), "b": int64s([])}
    [rows] = store.fetch([(1, wanted)])
    assert (rows.step, rows.tables) == (1, ("wide", "a", "b"))
    assert rows.starts.tolist() == [0, len(IDS), 2 * len(IDS), 2 * len(IDS)]
    assert rows.ids.tolist() == IDS[::-1] + IDS
    for name, start in (("wide", 0), ("a", len(IDS))):
        first = first_records(store.tables.named(name).spec, wanted[name])
        for i in range(len(IDS)):
            assert (record_of(rows, start + i, store) == first[i]).all()
        assert (store.slots(name)[rows.slots[start : start + len(IDS)]] == first).all()


def test_reading_rows_changes_nothing_and_draws_first_values(store: TieredStore) -> None:
    [rows] = store.fetch([(1, {"a": int64s([7, 5])})])
    record_of(rows, 1, store)[:4].view(np.float32)[:] = 9.0
    asked = {"a": int64s([5, 6, 7, 5]), "wide": int64s([5])}
    before = store.read_rows(asked)
    assert before.found.tolist() == [False] * 5
    store.commit(1)
    after = store.read_rows(asked)
    assert after.found.tolist() == [True, False, True, True, False]
    stored = store.find("a", asked["a"])
    first = first_records(SPECS[0], asked["a"])
    for i in range(4):
        expected = stored.records[i] if after.found[i] else first[i]
        assert (record_of(after, i, store) == expected).all()
        assert (after.records["a"][i] == expected).all()
    assert (record_of(after, 4, store) == first_records(SPECS[2], asked["wide"])[0]).all()
    assert store.num_rows("a") == 2
    assert store.num_rows("wide") == 0


def test_bad_arguments(store: TieredStore) -> None:
    with pytest.raises(ConfigError, match="step: found 0, expected 1"):
        list(store.fetch([(0, {"a": int64s([1])})]))
    with pytest.raises(ConfigError, match="int64"):
        list(store.fetch([(1, {"a": np.zeros(3, np.int32)})]))  # type: ignore[dict-item]
    with pytest.raises(BudgetTooSmall, match="dram_bytes"):
        list(store.fetch([(1, {"a": np.arange(1_000_000)})]))
