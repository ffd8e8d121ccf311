"""ParquetSource: what it reads, and what it says about files that are not what they should be."""

import datetime
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stepwell.data import BatchReader, Column, ParquetSource, ReaderConfig, Strings, SyntheticSource
from stepwell.data.synthetic_files import SUMMARY, write_synthetic
from stepwell.errors import ConfigError, ReadProblem
from tests.data.plain_features import PlainFeatures

ROWS = 40


def write(path: Path | str, table: pa.Table | None = None, group: int = 16, **changes: Any) -> str:
    if table is None:
        numbers = np.arange(ROWS)
        columns = {
            "user": pa.array(numbers),
            "click": pa.array((numbers % 2).astype(np.int8)),
            "price": pa.array([None if row % 5 == 0 else row / 2 for row in numbers.tolist()], pa.float32()),
            "name": pa.array([None if row % 7 == 0 else f"n{row}" * (row % 3) for row in numbers.tolist()]),
            "history": pa.array([None if row % 9 == 0 else list(range(row % 4)) for row in numbers.tolist()]),
            "vector": pa.array([[row, None, 2.0] for row in numbers.tolist()], pa.list_(pa.float32())),
            "tags": pa.array([[f"t{i}" for i in range(row % 3)] for row in numbers.tolist()]),
        }
        table = pa.table(columns | changes)
    pq.write_table(table, path, row_group_size=group)
    return str(path)


def read(source: ParquetSource, name: str) -> list[Column]:
    return [source.read(unit, [name])[name] for unit in source.units()]


def as_lists(columns: list[Column]) -> list[Any]:
    """What pyarrow's `to_pylist` would give."""
    found: list[Any] = []
    for column in columns:
        values = list(column.values) if isinstance(column.values, Strings) else column.values.tolist()
        rows = values
        if column.offsets is not None:
            rows = [values[a:b] for a, b in zip(column.offsets[:-1], column.offsets[1:], strict=True)]
        there = column.valid.tolist() if column.valid is not None else [True] * len(rows)
        found += [row if is_there else None for row, is_there in zip(rows, there, strict=True)]
    return found


def test_columns_are_what_pyarrow_reads(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    source = ParquetSource(paths=(path,))
    assert [(unit.part, unit.num_rows, unit.first_row) for unit in source.units()] == [
        (0, 16, 0),
        (1, 16, 16),
        (2, 8, 32),
    ]
    table = pq.read_table(path)
    for name in ("user", "click", "price", "history"):
        assert as_lists(read(source, name)) == table[name].to_pylist()
    names = table["name"].to_pylist()
    assert as_lists(read(source, "name")) == [None if name is None else name.encode() for name in names]
    assert as_lists(read(source, "tags")) == [[tag.encode() for tag in tags] for tags in table["tags"].to_pylist()]
    vectors = np.array(as_lists(read(source, "vector")))
    assert np.isnan(vectors[:, 1]).all() and np.array_equal(vectors[:, 0], np.arange(ROWS))


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([True, False, None]), [1, 0, None]),
        (pa.array(["x", "yy", None]).dictionary_encode(), [b"x", b"yy", None]),
        (pa.array([b"x", None, b""], pa.large_binary()), [b"x", None, b""]),
        (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)), [[1, 2], None, [3, 4]]),
        (pa.array([[1, 2], None, []], pa.large_list(pa.int16())), [[1, 2], None, []]),
        (pa.array([1500, None, -1], pa.timestamp("ms")), [1.5, None, -0.001]),
        (pa.array([datetime.date(1970, 1, 2)] * 3), [86400.0] * 3),
        (pa.array([1, 2, (1 << 64) - 1], pa.uint64()), [1, 2, (1 << 64) - 1]),
        (pa.array([None, None, None], pa.int64()), [None] * 3),
        (pa.array([None, None, None], pa.string()), [None] * 3),
        (pa.array([[], [], []], pa.list_(pa.float64())), [[]] * 3),
    ],
)
def test_every_type_that_can_be_read(tmp_path: Path, array: pa.Array, expected: list[Any]) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"x": array}), group=2)
    assert as_lists(read(ParquetSource(paths=(path,)), "x")) == expected


def test_files_folders_globs_and_urls(tmp_path: Path) -> None:
    tables = [pa.table({"x": pa.array([number])}) for number in range(3)]
    for number, table in enumerate(tables):
        write(tmp_path / f"part-{number}.parquet", table)
    memory = fsspec.filesystem("memory")
    for number, table in enumerate(tables):
        with memory.open(f"/samples/part-{number}.parquet", "wb") as file:
            pq.write_table(table, file)
    for paths in (
        (str(tmp_path),),
        (f"{tmp_path}/part-*.parquet",),
        (f"{tmp_path}/part-0.parquet", f"{tmp_path}/part-[12].parquet"),
        ("memory://samples",),
        ("memory://samples/*.parquet",),
        ("memory://samples/part-0.parquet", f"file://{tmp_path}/part-[12].parquet"),
    ):
        assert as_lists(read(ParquetSource(paths=paths), "x")) == [0, 1, 2]
    for absent in (f"{tmp_path}/none-*.parquet", f"{tmp_path}/none.parquet", "memory://samples/none.parquet"):
        with pytest.raises(ReadProblem, match=r"none.*found no such file"):
            ParquetSource(paths=(absent,)).units()
    with pytest.raises(ConfigError, match=r"ParquetSource\.paths"):
        ParquetSource(paths=())


def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", odd=pa.array([{"a": 1}] * ROWS))
    source = ParquetSource(paths=(path,))
    assert len(read(source, "user")) == 3
    with pytest.raises(ReadProblem, match=r"a.parquet, column 'odd': found struct<a: int64>, expected numbers"):
        read(source, "odd")
    with pytest.raises(ReadProblem, match=r"a.parquet, column 'usr': found no such column, only user, click"):
        read(source, "usr")


def test_a_file_that_is_not_whole_is_an_error_whatever_the_policy(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "a.parquet"))
    whole = path.read_bytes()
    for cut in (0, 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(ReadProblem, match=r"a\.parquet: not a whole Parquet file"):
            ParquetSource(paths=(str(path),)).units()
    write(path, pa.table({"x": pa.array([], pa.int64())}))
    with pytest.raises(ReadProblem, match=r"a\.parquet: found no rows"):
        ParquetSource(paths=(str(path),)).units()
    path.write_bytes(whole)
    source = ParquetSource(paths=(str(path),))
    units = source.units()
    for change in (lambda: path.write_bytes(whole[:200]), path.unlink):
        change()
        with pytest.raises(ReadProblem, match=r"a\.parquet, row 32 \(from 0\): row group 2 cannot be read"):
            source.read(units[2], ["user"], skip_bad_rows=True)


def test_files_that_disagree_are_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet")
    write(tmp_path / "b.parquet", user=pa.array([str(row) for row in range(ROWS)]))
    with pytest.raises(ReadProblem, match=r"b.parquet, column 'user': found strings, expected integers as in .*a.parq"):
        ParquetSource(paths=(str(tmp_path),)).units()


def test_a_null_inside_a_list_of_ids_is_a_bad_row(tmp_path: Path) -> None:
    lists = [[1, 2], None, [3, None], [], [None], [4]]
    path = write(tmp_path / "a.parquet", pa.table({"history": pa.array(lists), "click": pa.array([1] * 6)}), group=2)
    source = ParquetSource(paths=(path,))
    config, features = ReaderConfig(batch_size=10), PlainFeatures(("history",))
    with BatchReader(source, features, ("click",), config) as batches, pytest.raises(ReadProblem) as caught:
        list(batches)
    assert (caught.value.file, caught.value.row, caught.value.column) == (path, 2, "history")
    with BatchReader(source, features, ("click",), config.replace(on_bad_row="skip")) as batches:
        [batch] = batches
        assert batches.skipped == 2 and batches.num_rows == 6
    assert batch.ids.values.tolist() == [1, 2, 4] and batch.ids.offsets.tolist() == [0, 2, 2, 2, 3]


@pytest.mark.parametrize("shape", ["criteo", "sequence"])
def test_synthetic_samples_are_the_same_from_files(tmp_path: Path, shape: str) -> None:
    made = SyntheticSource(rows=70_000, shape=shape, vocabulary=5000)  # type: ignore[arg-type]
    heard: list[int] = []
    summary = write_synthetic(made, tmp_path / "out", on_part=heard.append)
    assert summary.rows == heard[-1] == 70_000 and (tmp_path / "out" / SUMMARY).is_file()
    files = ParquetSource(paths=(str(tmp_path / "out"),))
    for ours, theirs in zip(made.units(), files.units(), strict=True):
        expected, found = made.read(ours, made.names), files.read(theirs, made.names)
        for name in made.names:
            a, b = expected[name], found[name]
            assert np.array_equal(a.valid, b.valid) if a.valid is not None else b.valid is None  # type: ignore[arg-type]
            there = slice(None) if a.valid is None else a.valid
            assert np.array_equal(np.asarray(a.values)[there], np.asarray(b.values)[there])
            assert a.offsets is None or np.array_equal(a.offsets, b.offsets)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is not empty"):
        write_synthetic(made, tmp_path / "out")
