"""BatchReader: what comes, in which order, and that a cursor continues with exactly the next sample."""

import gc
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from stepwell.data import ArraySource, Batch, BatchReader, Columns, ReaderConfig, Source, Unit
from stepwell.errors import ConfigError, DataError, ReaderClosed, ReadProblem
from tests.data.plain_features import PlainFeatures

FEATURES = PlainFeatures(("user", "history"), ("price",))
ROWS = 103


def source(rows: int = ROWS, unit_rows: int = 10, **changes: object) -> ArraySource:
    numbers = np.arange(rows)
    columns = {
        "user": numbers,
        "history": [np.arange(row % 4) + 1000 * row for row in range(rows)],
        "price": numbers.astype(np.float32) / 2,
        "click": (numbers % 2).astype(np.int8),
        "weight": numbers.astype(np.float64),
        "time": numbers * 1000,
        "session": numbers // 3,
    }
    return ArraySource(columns=columns | changes, unit_rows=unit_rows)


def config(**changes: object) -> ReaderConfig:
    settings: dict[str, object] = {"batch_size": 8, "sample_weight": "weight", "event_time": "time", "group": "session"}
    return ReaderConfig(**(settings | changes))  # type: ignore[arg-type]


def reader(given: ReaderConfig, data: Source | None = None, **more: object) -> BatchReader:
    return BatchReader(data or source(), FEATURES, ("click",), given, **more)  # type: ignore[arg-type]


def users(batches: Sequence[Batch]) -> list[int]:
    return [user for batch in batches for user in batch.ids.of("user")[0].tolist()]


def same(a: Batch, b: Batch) -> bool:
    tensors = [
        (getattr(a, name), getattr(b, name)) for name in ("dense", "labels", "sample_weight", "event_time", "group")
    ]
    tensors += [(a.ids.values, b.ids.values), (a.ids.offsets, b.ids.offsets)]
    return a.cursor == b.cursor and all(torch.equal(x, y) for x, y in tensors)


def check_rows(batch: Batch) -> None:
    """Everything in a batch belongs to the row that its user names."""
    rows = batch.ids.of("user")[0]
    history, offsets = batch.ids.of("history")
    expected = torch.cat([torch.arange(row % 4) + 1000 * row for row in rows.tolist()] or [torch.zeros(0)])
    assert torch.equal(history, expected)
    assert torch.equal(torch.diff(offsets), rows % 4)
    assert torch.equal(batch.dense[:, 0], rows / 2)
    assert torch.equal(batch.labels[:, 0], (rows % 2).float())
    assert batch.sample_weight is not None and torch.equal(batch.sample_weight, rows.float())
    assert batch.event_time is not None and torch.equal(batch.event_time, rows.double() * 1000)
    assert batch.group is not None and torch.equal(batch.group, rows // 3)


@pytest.mark.parametrize("unit_rows", [1, 3, 8, 10, 200])
@pytest.mark.parametrize("drop_last", [False, True])
def test_without_shuffle_rows_come_in_the_sources_order(unit_rows: int, drop_last: bool) -> None:
    with reader(config(drop_last=drop_last), source(unit_rows=unit_rows)) as batches:
        got = list(batches)
    assert users(got) == list(range(96 if drop_last else ROWS))
    assert [batch.size for batch in got] == [8] * 12 + [7] * (not drop_last)
    for batch in got:
        check_rows(batch)


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("shuffle_rows", [1, 25, 1000])
def test_each_epoch_has_every_row_once_in_an_order_of_its_own(shuffle_rows: int, in_order: bool) -> None:
    given = config(shuffle_rows=shuffle_rows, in_order=in_order, epochs=2, batch_size=10)
    with reader(given) as batches:
        got = list(batches)
    for batch in got:
        check_rows(batch)
    rows = users(got)
    first, second = rows[:ROWS], rows[ROWS:]
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second and first != list(range(ROWS))
    if in_order:  # a row leaves its window at no time
        width = -(-shuffle_rows // 10) * 10
        assert all(row // width == place // width for place, row in enumerate(first))
    with reader(given.replace(seed=1)) as batches:
        assert users(list(batches)) != rows


@pytest.mark.parametrize("settings", [{}, {"shuffle_rows": 25}, {"shuffle_rows": 25, "drop_last": True}])
@pytest.mark.parametrize("size", [1, 7, 64])
def test_a_cursor_continues_with_exactly_the_next_sample(settings: dict[str, object], size: int) -> None:
    given = config(batch_size=size, epochs=2, **settings)
    with reader(given) as batches:
        whole = list(batches)
    for at in range(0, len(whole), max(1, len(whole) // 20)):
        cursor = json.loads(json.dumps(whole[at].cursor))
        with reader(given.replace(workers=1 + at % 4), cursor=cursor) as batches:
            rest = list(batches)
        assert len(rest) == len(whole) - at - 1
        assert all(same(a, b) for a, b in zip(rest, whole[at + 1 :], strict=True))


def test_a_cursor_outlives_a_change_of_batch_size() -> None:
    with reader(config(shuffle_rows=30)) as batches:
        whole = users(list(batches))
    with reader(config(shuffle_rows=30)) as batches:
        cursor = [batch.cursor for batch in batches][4]
    with reader(config(shuffle_rows=30, batch_size=3), cursor=cursor) as batches:
        assert users(list(batches)) == whole[5 * 8 :]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_threads_change_nothing(workers: int) -> None:
    with reader(config(shuffle_rows=40)) as alone, reader(config(shuffle_rows=40, workers=workers)) as many:
        assert all(same(a, b) for a, b in zip(alone, many, strict=True))


@pytest.mark.parametrize("shuffle_rows", [0, 20])
def test_ranks_share_an_epoch(shuffle_rows: int) -> None:
    got = []
    for rank in range(3):
        with reader(config(shuffle_rows=shuffle_rows), rank=rank, world_size=3) as batches:
            got.append(users(list(batches)))
            assert batches.num_rows == ROWS
    assert sorted([row for rank in got for row in rank]) == list(range(ROWS))
    if not shuffle_rows:
        assert [row // 10 % 3 for row in got[1]] == [1] * len(got[1])


def test_more_ranks_than_units_is_an_error() -> None:
    with pytest.raises(DataError, match="has 2 units, fewer than the 3 ranks"):
        reader(config(), source(20), world_size=3)


def test_iterating_again_begins_again_and_no_end_is_an_endless_loop() -> None:
    with reader(config(epochs=0)) as batches:
        first, second = iter(batches), iter(batches)
        assert users([next(first) for _ in range(30)]) == users([next(second) for _ in range(30)])
    assert next(iter(reader(config(), cursor=batches.cursor))).size == 8


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (reader(config(shuffle_rows=20), source(ROWS + 1)), "units.*data set changed"),
        (reader(config(shuffle_rows=20, seed=3)), "shuffle"),
        (reader(config(shuffle_rows=21)), "shuffle"),
        (reader(config(shuffle_rows=20), world_size=2), "rank"),
    ],
)
def test_a_cursor_of_something_else_is_an_error(changed: BatchReader, why: str) -> None:
    with reader(config(shuffle_rows=20)) as batches:
        cursor = next(iter(batches)).cursor
    with pytest.raises(ConfigError, match=f"cursor: found {why}"):
        changed._place(cursor)
    with pytest.raises(ConfigError, match="found the keys"):
        reader(config(), cursor={"epoch": 0})


BAD = {
    "click": (np.where(np.arange(ROWS) == 57, 1.5, 0.0), "found 1.5, expected a number from 0 to 1"),
    "weight": (np.where(np.arange(ROWS) == 57, -1.0, 1.0), "found -1.0, expected a finite number of at least 0"),
    "time": (np.where(np.arange(ROWS) == 57, np.nan, 1.0), "found nan, expected a finite number of seconds"),
    "session": (np.ma.array(np.arange(ROWS), mask=np.arange(ROWS) == 57), "found no value, expected an integer"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("shuffle_rows", [0, 20])
def test_a_bad_row_is_named_or_left_out_and_counted(name: str, shuffle_rows: int) -> None:
    column, message = BAD[name]
    data = source(**{name: column})
    with reader(config(shuffle_rows=shuffle_rows), data) as batches, pytest.raises(ReadProblem) as caught:
        list(batches)
    assert (caught.value.file, caught.value.row, caught.value.column) == ("arrays", 57, name)
    assert message in str(caught.value) and "row 57" in str(caught.value)
    skipping = config(shuffle_rows=shuffle_rows, on_bad_row="skip", epochs=2)
    with reader(skipping, data) as batches:
        got = list(batches)
        assert batches.skipped == 2
    assert sorted(users(got)) == sorted([row for row in range(ROWS) if row != 57] * 2)
    for at in (0, 6, 12, 20):
        with reader(skipping, data, cursor=got[at].cursor) as batches:
            rest = list(batches)
            assert batches.skipped == 2
        assert users(rest) == users(got[at + 1 :])


def test_labels_that_are_not_numbers_are_no_row_to_skip() -> None:
    for column in (["a"] * ROWS, [np.zeros(1)] * ROWS):
        wrong = pytest.raises(ReadProblem, match=r"column 'click': found .*, expected one number")
        with reader(config(on_bad_row="skip"), source(click=column)) as batches, wrong:
            list(batches)
    with reader(config(group="price")) as batches, pytest.raises(ReadProblem, match="expected one integer"):
        list(batches)


def test_a_missing_column_names_those_there_are() -> None:
    wrong = pytest.raises(ReadProblem, match="arrays, column 'sessions': found no such column, only click, history")
    with reader(config(group="sessions")) as batches, wrong:
        next(iter(batches))


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowSource(Source):
    """Counts what is read and not yet forgotten."""

    inner: ArraySource
    held: list[int]  # type: ignore[misc]
    wait_s: float = 0.0

    def units(self) -> tuple[Unit, ...]:
        return self.inner.units()

    def read(self, unit: Unit, names: Sequence[str], *, skip_bad_rows: bool = False) -> Columns:
        time.sleep(self.wait_s)
        self.held.append(unit.part)
        return self.inner.read(unit, names)


def reading_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("stepwell-read")]


def test_reading_ahead_is_bounded() -> None:
    for workers in (1, 3):
        data = SlowSource(inner=source(1000), held=[])
        with reader(config(batch_size=10, workers=workers), data) as batches:
            for number, _ in enumerate(batches):
                time.sleep(0.002)
                assert len(data.held) <= number + 1 + workers + 1


@pytest.mark.parametrize("how", ["close", "abandon", "break", "error"])
def test_no_thread_is_left(how: str) -> None:
    bad = source(click=np.full(ROWS, 2.0)) if how == "error" else source()
    batches = reader(config(workers=3, epochs=0), SlowSource(inner=bad, held=[], wait_s=0.001))
    if how == "error":
        with pytest.raises(ReadProblem):
            next(iter(batches))
    elif how == "break":
        for _ in batches:
            break
    else:
        going = iter(batches)
        next(going)
        assert reading_threads()
        if how == "close":
            batches.close()
            with pytest.raises(ReaderClosed):
                list(going)
            with pytest.raises(ReaderClosed):
                iter(batches)
        else:
            del going
    gc.collect()
    assert reading_threads() == []


def test_close_wakes_who_waits() -> None:
    batches = reader(config(epochs=0), SlowSource(inner=source(), held=[], wait_s=0.05))
    ended = []

    def consume() -> None:
        try:
            list(batches)
        except ReaderClosed as error:
            ended.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    time.sleep(0.06)
    batches.close()
    thread.join(10)
    assert len(ended) == 1 and not thread.is_alive()


@pytest.mark.parametrize(
    "wrong",
    [{"batch_size": 0}, {"shuffle_rows": -1}, {"in_order": True}, {"workers": 0}, {"on_bad_row": "ignore"}],
)
def test_a_setting_that_cannot_work_is_an_error(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"ReaderConfig.{next(iter(wrong))}"):
        config(**wrong)
