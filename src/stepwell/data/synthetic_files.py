"""Synthetic samples written to files, Parquet or Criteo's TSV. Imported when they are written.

Parquet that decodes fast: columns without missing values are required, ids dictionary-encoded in row groups of 65536
(a power law repeats its ids), LZ4. Against plain uncompressed pages that is a third of the bytes, and as fast to read.
"""

import json
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from stepwell.data.columns import Column, Columns
from stepwell.data.criteo_features import CRITEO_CATS, CRITEO_INTS
from stepwell.data.synthetic import SyntheticSource
from stepwell.data.teacher import TeacherAuc
from stepwell.errors import ConfigError

SUMMARY = "synthetic.json"
_UNITS_PER_PART = 16
_U8 = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Summary:
    """What was written."""

    rows: int
    num_parts: int
    num_bytes: int
    teacher_auc: float  # no model can be expected to do better on these rows
    dense_auc: float  # of the best model that sees no ids
    click_rate: float


def write_synthetic(
    source: SyntheticSource,
    directory: Path,
    format: Literal["parquet", "tsv"] = "parquet",
    on_part: Callable[[int], None] = lambda rows: None,
) -> Summary:
    """Write part-00000.parquet (.tsv), ..., and what they are to synthetic.json. `on_part` hears of rows written."""
    if format == "tsv" and source.shape != "criteo":
        raise ConfigError(f"format: found 'tsv' with shape {source.shape!r}, which has lists: expected 'parquet'")
    if directory.exists() and any(directory.iterdir()):
        raise ConfigError(f"{directory} is not empty: name a folder that is not there yet")
    directory.mkdir(parents=True, exist_ok=True)
    auc, parts, rows = TeacherAuc(), 0, 0
    part: _ParquetPart | _TsvPart | None = None
    for number, columns in enumerate(_generated(source)):
        if number % _UNITS_PER_PART == 0:
            if part is not None:
                part.close()
            name = f"part-{parts:05}.{format}"
            part = _ParquetPart(directory / name) if format == "parquet" else _TsvPart(directory / name)
            parts += 1
        assert part is not None
        part.write(columns)
        auc.update(np.asarray(columns["teacher"].values))
        rows += columns.num_rows
        on_part(rows)
    if part is not None:
        part.close()
    num_bytes = sum(path.stat().st_size for path in directory.iterdir())
    summary = Summary(rows, parts, num_bytes, auc.compute(), source.dense_auc, auc.mean)
    described = {"teacher_auc": summary.teacher_auc, "dense_auc": summary.dense_auc, "click_rate": summary.click_rate}
    (directory / SUMMARY).write_text(json.dumps({**described, "source": source.to_dict()}, indent=2) + "\n")
    return summary


def _generated(source: SyntheticSource) -> Iterator[Columns]:
    """Every unit with all its columns, in order; drawn ahead on all cores."""
    workers = len(os.sched_getaffinity(0))
    ahead: deque[Future[Columns]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="stepwell-synth") as pool:
        for unit in source.units():
            ahead.append(pool.submit(source.read, unit, source.names))
            if len(ahead) > workers:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


class _ParquetPart:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None

    def write(self, columns: Columns) -> None:
        arrays, fields = [], []
        for name, column in columns.columns.items():
            arrays.append(_arrow(column))
            fields.append(pa.field(name, arrays[-1].type, nullable=column.valid is not None))
        table = pa.table(arrays, schema=pa.schema(fields))
        if self._writer is None:
            ids = [field.name for field in fields if not pa.types.is_floating(field.type)]
            self._writer = pq.ParquetWriter(
                self._path, table.schema, compression="lz4", use_dictionary=ids, write_statistics=False
            )
        self._writer.write_table(table, row_group_size=columns.num_rows)

    def close(self) -> None:
        self._writer.close()


def _arrow(column: Column) -> Any:
    values = pa.array(column.values, mask=~column.valid if column.valid is not None else None)
    if column.offsets is None:
        return values
    field = pa.field("element", values.type, nullable=False)
    return pa.ListArray.from_arrays(pa.array(column.offsets.astype(np.int32)), values, type=pa.list_(field))


class _TsvPart:
    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, columns: Columns) -> None:
        self._file.write(_lines(columns).tobytes())

    def close(self) -> None:
        self._file.close()


def _lines(columns: Columns) -> _U8:
    """Lines of label, counts and hex ids: fields of fixed width side by side, of which zero bytes are then dropped."""
    fields = [_decimal(columns["click"])]
    fields += [_decimal(columns[name]) for name in CRITEO_INTS] + [_hex(columns[name]) for name in CRITEO_CATS]
    end = np.full((columns.num_rows, 1), ord("\t"), np.uint8)
    wide = np.concatenate([piece for field in fields for piece in (field, end)], axis=1)
    wide[:, -1] = ord("\n")
    flat = wide.reshape(-1)
    return np.compress(flat != 0, flat)


def _decimal(column: Column) -> _U8:
    left = np.asarray(column.values).astype(np.int64)
    width = len(str(int(left.max(initial=0))))
    digits = np.zeros((len(left), width), np.uint8)
    for at in range(width - 1, -1, -1):
        there = (left > 0) | (at == width - 1)
        left, digit = np.divmod(left, 10)
        digits[:, at] = np.where(there, digit + ord("0"), 0)
    return _present(digits, column)


def _hex(column: Column) -> _U8:
    nibbles = np.asarray(column.values)[:, None] >> np.arange(28, -4, -4) & 15
    return _present(np.frombuffer(b"0123456789abcdef", np.uint8)[nibbles], column)


def _present(digits: _U8, column: Column) -> _U8:
    if column.valid is not None:
        digits[~column.valid] = 0
    return digits
