"""Tables from Parquet files and into them: a column of ids and a column of vectors."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from stepwell.embedding.transfer import BATCH_ROWS, dim_of, first_not_finite, publishing, rows_of
from stepwell.errors import ConfigError, DataError, StepwellError
from stepwell.store import TieredStore

I64 = npt.NDArray[np.int64]
F32 = npt.NDArray[np.float32]


def import_parquet(
    store: TieredStore,
    table: str,
    path: str | Path,
    *,
    id_column: str = "id",
    vector_column: str = "vector",
    batch_rows: int = BATCH_ROWS,
) -> int:
    """Write a row for each row of a file, with new optimizer state; returns how many. Of equal ids the last wins.

    Ids are of any integer type (uint64 by its bits), vectors lists of as many floats as the table's dim.
    """
    dim, total = dim_of(store, table), 0
    try:
        with pq.ParquetFile(path) as file:
            _check_schema(file.schema_arrow, path, id_column, vector_column, dim)
            for batch in file.iter_batches(batch_rows, columns=[id_column, vector_column]):
                ids = _ids(batch.column(id_column), path, id_column, total)
                vectors = _vectors(batch.column(vector_column), path, vector_column, total, dim)
                if (bad := first_not_finite(vectors)) is not None:
                    raise DataError(f"{path}, row {total + bad}: column {vector_column!r} holds what is not finite")
                store.insert_or_assign(table, ids, vectors)
                total += len(ids)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, StepwellError):
            raise
        raise DataError(f"{path}: row {total} and on could not be read ({error}); expected a Parquet file") from error
    return total


def export_parquet(
    store: TieredStore,
    table: str,
    path: str | Path,
    *,
    id_column: str = "id",
    vector_column: str = "vector",
    batch_rows: int = BATCH_ROWS,
) -> int:
    """Write a new file with a row per committed live row, in no order that is promised; returns how many.

    Vectors are fixed-size lists of float32. The schema's metadata names the table and the store's step.
    """
    dim, total = dim_of(store, table), 0
    vector = pa.list_(pa.field("element", pa.float32(), nullable=False), dim)
    fields = [pa.field(id_column, pa.int64(), nullable=False), pa.field(vector_column, vector, nullable=False)]
    schema = pa.schema(fields, metadata={"stepwell.table": table, "stepwell.step": str(store.step)})
    with publishing(path) as unfinished:
        with pq.ParquetWriter(unfinished, schema, use_dictionary=False) as writer:
            for ids, weights in rows_of(store, table, batch_rows):
                values = pa.FixedSizeListArray.from_arrays(pa.array(weights.reshape(-1)), type=vector)
                writer.write_batch(pa.record_batch([pa.array(ids), values], schema=schema))
                total += len(ids)
        with unfinished.open("rb+") as written:
            os.fsync(written.fileno())
    return total


def _check_schema(schema: Any, path: str | Path, id_column: str, vector_column: str, dim: int) -> None:
    for name, kind in ((id_column, "integers"), (vector_column, f"lists of {dim} floats")):
        if name not in schema.names:
            raise ConfigError(f"{path}: found no column {name!r}, only {', '.join(schema.names)}; expected {kind}")
    found = schema.field(id_column).type
    if not pa.types.is_integer(found):
        raise DataError(f"{path}: column {id_column!r} holds {found}, expected integers")
    found = schema.field(vector_column).type
    is_list = pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found)
    if not is_list or not pa.types.is_floating(found.value_type):
        raise DataError(f"{path}: column {vector_column!r} holds {found}, expected lists of floats")


def _ids(column: Any, path: str | Path, name: str, first: int) -> I64:
    _reject_nulls(column, path, name, first)
    values = column.to_numpy(zero_copy_only=False)
    ids: I64 = values.view(np.int64) if values.dtype == np.uint64 else values.astype(np.int64)
    return np.ascontiguousarray(ids)


def _vectors(column: Any, path: str | Path, name: str, first: int, dim: int) -> F32:
    _reject_nulls(column, path, name, first)
    if pa.types.is_fixed_size_list(column.type):
        lengths = np.full(len(column), column.type.list_size)
    else:
        lengths = np.diff(column.offsets.to_numpy())
    if (lengths != dim).any():
        row = int(np.argmax(lengths != dim))
        raise DataError(f"{path}, row {first + row}: column {name!r} holds {lengths[row]} floats, expected {dim}")
    values = column.flatten()
    if values.null_count:
        row = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))) // dim
        raise DataError(f"{path}, row {first + row}: column {name!r} holds a list with nothing in a place")
    with np.errstate(over="ignore"):  # what is beyond float32 is found to be not finite
        return np.ascontiguousarray(values.to_numpy(zero_copy_only=False), np.float32).reshape(len(column), dim)


def _reject_nulls(column: Any, path: str | Path, name: str, first: int) -> None:
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise DataError(f"{path}, row {first + row}: column {name!r} holds nothing, expected a value in every row")
