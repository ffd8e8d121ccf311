"""Parquet files through pyarrow: finding them, opening them, columns out of row groups. Imported when one is read."""

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import fsspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from stepwell.data.columns import I64, Column, Columns, Mask, Strings
from stepwell.data.source import Unit
from stepwell.errors import ReadProblem

_MAGIC = "*?["
_SECONDS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True, slots=True)
class File:
    """A Parquet file that could be opened."""

    path: str
    metadata: Any  # pyarrow.parquet.FileMetaData
    kinds: dict[str, str]  # column -> what it holds, in words that are equal where the values mean the same


def units_of(paths: Sequence[str]) -> tuple[Unit, ...]:
    """The row groups of all files, in order."""
    units: list[Unit] = []
    first: File | None = None
    for path in [found for given in paths for found in _expand(given)]:
        file = _open(path)
        first = first or file
        for name, kind in file.kinds.items():
            if first.kinds.get(name, kind) != kind:
                raise ReadProblem(path, None, name, f"found {kind}, expected {first.kinds[name]} as in {first.path}")
        row = 0
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            if group.num_rows:
                units.append(Unit(path, number, group.num_rows, group.total_byte_size, row, handle=file))
            row += group.num_rows
    return tuple(units)


def read_unit(unit: Unit, names: Sequence[str], *, skip_bad_rows: bool) -> Columns:
    """One row group's columns."""
    file: File = unit.handle
    for name in names:
        if name not in file.kinds:
            raise ReadProblem(unit.file, None, name, f"found no such column, only {', '.join(file.kinds)}")
    try:
        with _stream(unit.file) as stream, pq.ParquetFile(stream, metadata=file.metadata) as opened:
            table = opened.read_row_group(unit.part, columns=list(names), use_threads=False)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise ReadProblem(
            unit.file, unit.first_row, "", f"row group {unit.part} cannot be read, the file is damaged ({error})"
        ) from error
    columns: dict[str, Column] = {}
    bad: Mask | None = None
    for name in names:
        columns[name], wrong = _column(unit.file, name, table.column(name))
        if wrong is not None:
            if not skip_bad_rows:
                row = (unit.first_row or 0) + int(np.argmax(wrong))
                raise ReadProblem(unit.file, row, name, "found a null inside a list, expected a value")
            bad = wrong if bad is None else bad | wrong
    assert unit.num_rows is not None and unit.first_row is not None
    made = Columns(columns, unit.num_rows, origin=(unit.file, unit.first_row))
    return made if bad is None else made.where(~bad)


def _expand(path: str) -> list[str]:
    """Files that a path, folder, glob or URL names, in order of name."""
    if "://" in path:
        system, inside = fsspec.core.url_to_fs(path)
        pattern = f"{inside.rstrip('/')}/*.parquet" if system.isdir(inside) else inside
        found = sorted(system.glob(pattern)) if any(c in pattern for c in _MAGIC) else [pattern]
        urls = [system.unstrip_protocol(name) for name in found]
    else:
        pattern = f"{path.rstrip('/')}/*.parquet" if os.path.isdir(path) else path
        urls = sorted(glob.glob(pattern, recursive=True)) if any(c in pattern for c in _MAGIC) else [pattern]
    if not urls:
        raise ReadProblem(path, None, "", "found no such file")
    return urls


def _stream(path: str) -> IO[bytes]:
    if "://" in path:
        stream: IO[bytes] = fsspec.open(path, "rb").open()
        return stream
    return pa.OSFile(path, "rb")  # type: ignore[no-any-return]


def _open(path: str) -> File:
    try:
        with _stream(path) as stream, pq.ParquetFile(stream) as opened:
            metadata, schema = opened.metadata, opened.schema_arrow
    except FileNotFoundError as error:
        raise ReadProblem(path, None, "", "found no such file") from error
    except (pa.ArrowException, OSError, EOFError) as error:
        raise ReadProblem(path, None, "", f"not a whole Parquet file: empty or truncated? ({error})") from error
    if not metadata.num_rows:
        raise ReadProblem(path, None, "", "found no rows: leave empty files out of `paths`")
    return File(path, metadata, {field.name: _kind(field.type) for field in schema})


def _kind(arrow: Any) -> str:
    kinds = pa.types
    if kinds.is_dictionary(arrow):
        return _kind(arrow.value_type)
    if kinds.is_list(arrow) or kinds.is_large_list(arrow) or kinds.is_fixed_size_list(arrow):
        return f"lists of {_kind(arrow.value_type)}"
    if kinds.is_boolean(arrow) or kinds.is_integer(arrow):
        return "integers"
    if kinds.is_floating(arrow):
        return "floats"
    if _is_text(arrow):
        return "strings"
    return str(arrow)


def _is_text(arrow: Any) -> bool:
    kinds = pa.types
    return any(
        check(arrow) for check in (kinds.is_string, kinds.is_large_string, kinds.is_binary, kinds.is_large_binary)
    )


def _column(file: str, name: str, chunked: Any) -> tuple[Column, Mask | None]:
    """A column, and the rows of it that cannot be used."""
    array = chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()
    arrow, valid = array.type, _valid(array)
    if not (pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow)):
        return Column(_values(file, name, array), None, valid), None
    if pa.types.is_fixed_size_list(arrow):
        inner = array.flatten()  # without those of null lists
        lengths = np.full(len(array), arrow.list_size, np.int64)
        if valid is not None:
            lengths[~valid] = 0
        offsets: I64 = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    else:
        offsets = array.offsets.to_numpy().astype(np.int64)
        inner = array.values.slice(offsets[0], offsets[-1] - offsets[0])
        offsets -= offsets[0]
    values, there = _values(file, name, inner), _valid(inner)
    if there is None:
        return Column(values, offsets, valid), None
    if not isinstance(values, Strings) and values.dtype.kind == "f":
        return Column(np.where(there, values, values.dtype.type(np.nan)), offsets, valid), None
    nulls = np.concatenate([np.zeros(1, np.int64), np.cumsum(~there)])
    return Column(values, offsets, valid), nulls[offsets[1:]] > nulls[offsets[:-1]]


def _valid(array: Any) -> Mask | None:
    if not array.null_count:
        return None
    if pa.types.is_dictionary(array.type) or array.buffers()[0] is None:
        return array.is_valid().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].view(np.bool_)


def _values(file: str, name: str, array: Any) -> npt.NDArray[Any] | Strings:
    """Without regard to nulls."""
    kinds, arrow = pa.types, array.type
    if kinds.is_dictionary(arrow):
        return _values(file, name, array.dictionary_decode())
    if kinds.is_boolean(arrow):
        return _values(file, name, array.cast(pa.uint8()))
    if kinds.is_integer(arrow) or kinds.is_floating(arrow):
        return _buffer(array, 1, arrow.to_pandas_dtype(), len(array))
    if kinds.is_timestamp(arrow):
        return _buffer(array, 1, np.int64, len(array)) / np.float64(_SECONDS[arrow.unit])
    if kinds.is_date32(arrow):
        return _buffer(array, 1, np.int32, len(array)) * np.float64(86400)
    if _is_text(arrow):
        large = kinds.is_large_string(arrow) or kinds.is_large_binary(arrow)
        offsets = _buffer(array, 1, np.int64 if large else np.int32, len(array) + 1).astype(np.int64)
        data = array.buffers()[2]
        return Strings(np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8), offsets)
    raise ReadProblem(file, None, name, f"found {arrow}, expected numbers, strings, times, or lists of these")


def _buffer(array: Any, number: int, dtype: Any, length: int) -> npt.NDArray[Any]:
    buffer = array.buffers()[number]
    if buffer is None or not buffer.size:
        return np.zeros(length, dtype)
    return np.frombuffer(buffer, dtype)[array.offset : array.offset + length]
