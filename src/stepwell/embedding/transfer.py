"""Rows in and out of a store, in batches: memory stays bounded whatever the size of the table.

What is exported is written under another name and appears under its own when it is whole.
"""

import errno
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepwell.embedding.state_dicts import as_floats, module_weights
from stepwell.errors import ConfigError, DiskFull, StoreIOError
from stepwell.rows import decode_weights
from stepwell.store import TieredStore
from stepwell.store.manifest import sync_directory

I64 = npt.NDArray[np.int64]
F32 = npt.NDArray[np.float32]
BATCH_ROWS: Final = 1 << 16


def import_table(
    store: TieredStore,
    table: str,
    weights: Tensor | npt.NDArray[np.floating[Any]],
    ids: Tensor | I64 | None = None,
    *,
    batch_rows: int = BATCH_ROWS,
) -> int:
    """Write rows with these weights [n, dim] and new optimizer state; returns n. Ids are row numbers by default.

    Of equal ids the last wins. The rows are state at once and belong to the step that commits next.
    """
    dim = dim_of(store, table)
    tensor = torch.as_tensor(weights)
    numbers = None if ids is None else torch.as_tensor(ids)
    if tensor.dim() != 2 or tensor.shape[1] != dim:
        raise ConfigError(f"weights of table {table!r}: found {tuple(tensor.shape)}, expected [n, {dim}], its dim")
    if numbers is not None and (numbers.dtype != torch.int64 or numbers.shape != tensor.shape[:1]):
        found = f"{numbers.dtype} {tuple(numbers.shape)}"
        raise ConfigError(f"ids of table {table!r}: found {found}, expected torch.int64 [{len(tensor)}], one per row")
    for start in range(0, len(tensor), batch_rows):
        part = np.ascontiguousarray(as_floats(tensor[start : start + batch_rows]).numpy())
        stop = start + len(part)
        some = np.arange(start, stop) if numbers is None else numbers[start:stop].cpu().numpy()
        if (bad := first_not_finite(part)) is not None:
            raise ConfigError(f"weights of table {table!r}: row {start + bad} (id {some[bad]}) is not finite")
        store.insert_or_assign(table, np.ascontiguousarray(some), part)
    return len(tensor)


def import_state_dict(
    store: TieredStore, state: Mapping[str, Tensor], names: Mapping[str, str] | None = None
) -> dict[str, int]:
    """Tables from the state dict of a torch or TorchRec module, ids as row numbers; rows by table.

    `names` says where a table's weights are: {table: module or key}; by default each of the store's tables is looked
    for under its own name. For FBGEMM see `fbgemm_weights`.
    """
    wanted = names if names is not None else {found.spec.name: found.spec.name for found in store.tables}
    weights = {table: module_weights(state, name) for table, name in wanted.items()}
    for table, found in weights.items():  # before a row is written
        if found.dim() != 2 or found.shape[1] != dim_of(store, table):
            raise ConfigError(
                f"weights of table {table!r}: found {tuple(found.shape)}, expected [n, {dim_of(store, table)}], its dim"
            )
    return {table: import_table(store, table, found) for table, found in weights.items()}


def export_numpy(store: TieredStore, table: str, directory: str | Path, *, batch_rows: int = BATCH_ROWS) -> int:
    """Write ids.npy, int64 [n], and vectors.npy, float32 [n, dim], into a new directory; returns n.

    In no order that is promised. `numpy.load(..., mmap_mode="r")` reads them without loading them.
    """
    dim = dim_of(store, table)
    total = 0
    with publishing(directory) as folder:
        folder.mkdir()
        with (folder / "ids.npy").open("wb") as ids_file, (folder / "vectors.npy").open("wb") as vectors_file:
            files: tuple[tuple[IO[bytes], str, tuple[int, ...]], ...] = (
                (ids_file, "<i8", ()),
                (vectors_file, "<f4", (dim,)),
            )
            starts = [_write_header(file, descr, (0, *shape)) for file, descr, shape in files]
            for ids, vectors in rows_of(store, table, batch_rows):
                ids_file.write(np.ascontiguousarray(ids, "<i8").data)
                vectors_file.write(np.ascontiguousarray(vectors, "<f4").data)
                total += len(ids)
            for start, (file, descr, shape) in zip(starts, files, strict=True):
                file.seek(0)
                if _write_header(file, descr, (total, *shape)) != start:
                    raise RuntimeError("numpy's header grew with the number of rows")
                file.flush()
                os.fsync(file.fileno())
        sync_directory(folder)
    return total


def rows_of(store: TieredStore, table: str, batch_rows: int = BATCH_ROWS) -> Iterator[tuple[I64, F32]]:
    """Every committed live row once, as (ids, weights) of at most `batch_rows` rows."""
    if batch_rows < 1:
        raise ConfigError(f"batch_rows: found {batch_rows}, expected at least 1")
    layout = store.tables.named(table).layout
    for ids, records in store.export_batch(table):
        for start in range(0, len(ids), batch_rows):
            part = layout.views(records[start : start + batch_rows]).weight
            yield ids[start : start + batch_rows], decode_weights(part, layout.weight_dtype)


def first_not_finite(weights: F32) -> int | None:
    """The first row that has a NaN or an infinity."""
    bad = ~np.isfinite(weights).all(axis=1)
    return int(np.argmax(bad)) if bad.any() else None


def dim_of(store: TieredStore, table: str) -> int:
    """The dim of a table's vectors."""
    return store.tables.named(table).spec.dim


@contextmanager
def publishing(path: str | Path) -> Iterator[Path]:
    """A path to write a file or directory to; it becomes `path`, which must not exist, when the block ends well."""
    target = Path(path)
    if target.exists():
        raise ConfigError(f"{target} exists; an export needs a new path")
    unfinished = target.with_name(f"{target.name}.unfinished-{os.getpid()}-{threading.get_native_id()}")
    try:
        _remove(unfinished)  # of a process that had this one's numbers and was killed
        target.parent.mkdir(parents=True, exist_ok=True)
        yield unfinished
        unfinished.rename(target)
        sync_directory(target.parent)
    except OSError as error:
        if isinstance(error, StoreIOError):
            raise
        kind = DiskFull if error.errno == errno.ENOSPC else StoreIOError
        raise kind(error.errno, f"could not write {target}: {error.strerror or error}") from error
    finally:
        _remove(unfinished)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _write_header(file: IO[bytes], descr: str, shape: tuple[int, ...]) -> int:
    """Write a .npy header, which numpy pads so that more rows fit; where the values begin."""
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.tell()
