"""Cases of `benchmarks.train_cpu` about reading: samples per second out of files into batches."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.harness import Bar, Case, Run, Sides, Timed
from stepwell.data import (
    CRITEO_CATS,
    CRITEO_INTS,
    BatchReader,
    Columns,
    CriteoSource,
    ParquetSource,
    ReaderConfig,
    Source,
    SyntheticSource,
    criteo_features,
)
from stepwell.data.prepare import Features
from stepwell.data.samples import F32
from stepwell.data.synthetic_files import write_synthetic
from stepwell.jagged import JaggedIds

_ROWS, _QUICK_ROWS = 1 << 20, 1 << 19
_BATCH = 2048
_SHUFFLE_ROWS = 1 << 17
_WORKERS = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class _AsTheyAre:
    """Columns handed on: ids side by side, counts as float32. What is missing is 0."""

    columns: tuple[str, ...] = (*CRITEO_INTS, *CRITEO_CATS)

    def compute(self, columns: Columns, /) -> tuple[JaggedIds, F32]:
        n = columns.num_rows
        ids, dense = np.empty((len(CRITEO_CATS), n), np.int64), np.empty((n, len(CRITEO_INTS)), np.float32)
        for at, name in enumerate(CRITEO_CATS):
            ids[at] = columns[name].values
        for at, name in enumerate(CRITEO_INTS):
            dense[:, at] = columns[name].values
        offsets = torch.arange(len(CRITEO_CATS) * n + 1)
        return JaggedIds(CRITEO_CATS, torch.from_numpy(ids.reshape(-1)), offsets), dense


def _reading(source: Source, features: Features, label: str, rows: int, bar: float, **more: object) -> Sides:
    config = ReaderConfig(batch_size=_BATCH, shuffle_rows=_SHUFFLE_ROWS, workers=_WORKERS)

    def read(_: object) -> int:
        clicks = num = 0
        with BatchReader(source, features, (label,), config) as batches:
            for batch in batches:
                num += batch.size
                clicks += int(batch.labels.sum())
        if num != rows or not 0.2 < clicks / num < 0.3:
            raise ValueError(f"read {num} rows with {clicks} clicks, expected {rows} with a quarter")
        return num

    shape = {"rows": rows, "batch": _BATCH, "shuffle_rows": _SHUFFLE_ROWS, "workers": _WORKERS}
    return Sides(ours=Timed(call=read, work=rows), peer=Bar(bar), config={**shape, **more})


def _case(name: str, format: str, features: Callable[[], Features], bar: float) -> Case:
    @contextmanager
    def setup(run: Run) -> Iterator[Sides]:
        rows = _QUICK_ROWS if run.quick else _ROWS
        folder = run.directory / "samples"
        summary = write_synthetic(SyntheticSource(rows=rows), folder, "tsv" if format == "tsv" else "parquet")
        yield _reading(_source(folder, format), features(), "click", rows, bar, bytes_per_row=summary.num_bytes / rows)

    return Case(name=name, setup=setup, unit="samples/s", peer_name=f"bar: {bar / 1e3:,.0f} k samples/s")


def _source(folder: Path, format: str) -> Source:
    if format == "tsv":
        return CriteoSource(paths=(f"{folder}/*.tsv",), label="click")
    return ParquetSource(paths=(str(folder),))


CASES = [
    _case("read_parquet", "parquet", _AsTheyAre, 1.0e6),
    _case("read_parquet_features", "parquet", criteo_features, 4.0e5),
    _case("read_tsv", "tsv", criteo_features, 1.5e5),
]
