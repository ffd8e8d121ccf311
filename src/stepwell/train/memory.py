"""What a run will take, said before it takes it: bytes of every tier, and of the process around them.

Budgets and buffers follow from the config. How many ids a sample has, what a unit of the data takes once it is read and
what the dense network keeps for its backward pass are measured on the first unit and on batches of a few samples.
"""

import ctypes
import gc
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import torch

from stepwell.data import Batch
from stepwell.data.columns import Columns, Strings
from stepwell.data.prepare import Preparation
from stepwell.data.samples import Pool, Samples
from stepwell.errors import ConfigError
from stepwell.rows import NUM_BUCKETS, TTL, MaxRows, MinCount, TableSpec
from stepwell.store import StoreConfig, TieredStore
from stepwell.train.config import TrainConfig
from stepwell.train.learner import Learner, Work
from stepwell.train.run_folder import resolved

_ROW_OVERHEAD_BYTES: Final = 21  # of a row in DRAM: index and mark (docs/architecture.md)
_SSD_INDEX_BYTES: Final = 13  # of a row on SSD
_INDEX_BYTES: Final = 128 << 10  # of a table's index with hardly a row in it, in either tier
_FOOTER_BYTES: Final = 24  # of a place in an open segment
_READ_BUFFER_BYTES: Final = 64 << 10  # of one read in flight
_METRIC_BYTES: Final = 14 << 20  # a task's, see train/metrics.py
_SORTING_BYTES: Final = 40 << 20  # for a moment, one task at a time
_PROBE: Final = (32, 96)  # samples: from two sizes follows what a sample takes
_ENDLESS: Final = 1 << 40

Where = Literal["dram", "process", "ssd"]


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One thing that takes bytes: of memory in the DRAM tier or around it, or of disk."""

    name: str
    bytes: int
    where: Where
    how: str  # what the number comes from


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Everything a run takes in its steady state."""

    parts: tuple[MemoryPart, ...]

    @property
    def total_bytes(self) -> int:
        """Of memory: what the process's resident set will come to."""
        return sum(part.bytes for part in self.parts if part.where != "ssd")

    @property
    def disk_bytes(self) -> int:
        """Of the SSD tier."""
        return sum(part.bytes for part in self.parts if part.where == "ssd")


def predict_memory(config: TrainConfig) -> MemoryPlan:
    """What training this config will take. Reads one unit of the data; DataError where there is none."""
    config = resolved(config, None)
    sample = _read_sample(config)
    probe = _probe(config, sample)
    steps = _steps(config, sample)
    most_ids = steps * config.accumulate * probe.unique_ids
    parts = [
        *_tiers(config.store, most_ids),
        *_around_tiers(config, min(config.store.touched_ids, most_ids), steps),
        *_reading(config, sample),
        *_computing(config, probe),
    ]
    del sample, probe
    base = MemoryPart("Python, torch and the core", _base_bytes(), "process", "after a step of a few samples")
    return MemoryPlan((base, *(part for part in parts if part.bytes > 0)))


def _base_bytes() -> int:
    """What the process has now, its free memory given back where the C library can."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return resident_bytes()


def resident_bytes() -> int:
    """This process's memory, as the system counts it."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class _Sample:
    """The first unit, raw and prepared, and how many rows and units there are."""

    samples: Samples
    raw_bytes: int
    unit_rows: int
    num_units: int
    num_rows: int | None  # None: not known before all are read


@dataclass(frozen=True, slots=True)
class _Probe:
    """What a batch of the config's size takes."""

    batch_bytes: int
    unique_ids: int  # of a batch
    routed_bytes: int
    row_bytes: int  # of the unique rows' records
    saved_bytes: int  # what the network keeps for its backward pass
    output_bytes: int  # of the embedding
    parameters: int
    optimizer_bytes: int


def _read_sample(config: TrainConfig) -> _Sample:
    units = config.train.units()
    if not units:
        raise ConfigError("TrainConfig.train: found no samples, expected at least one")
    skip = config.reader.on_bad_row == "skip"
    reader = config.reader
    beside = [name for name in (reader.sample_weight, reader.event_time, reader.group) if name]
    names = list(dict.fromkeys([*config.features.columns, *config.labels, *beside]))
    raw_bytes = _bytes_of_columns(config.train.read(units[0], names, skip_bad_rows=skip))
    samples = Preparation(config.train, config.features, config.labels, reader).run(units[0])
    if samples.num_rows == 0:
        raise ConfigError(f"{units[0].file}: found no samples in its first unit, expected some to measure")
    rows = [unit.num_rows for unit in units if unit.num_rows is not None]
    num_rows = sum(rows) if len(rows) == len(units) else None
    return _Sample(samples, raw_bytes, max([samples.num_rows, *rows]), len(units), num_rows)


def _steps(config: TrainConfig, sample: _Sample) -> int:
    """How many steps the run can have at most."""
    if sample.num_rows is None or not config.reader.epochs:
        return config.steps or _ENDLESS
    of_data = -(-sample.num_rows * config.reader.epochs // (config.reader.batch_size * config.accumulate))
    return min(config.steps or of_data, of_data)


def _tiers(store: StoreConfig, most_ids: int) -> list[MemoryPart]:
    """`most_ids` is how many the steps can meet, were all of them new."""
    rows = {spec.name: _rows_of(spec) for spec in store.tables}
    layouts = {spec.layout.fingerprint for spec in store.tables}
    needed = (len(layouts) << 16) + sum(
        _INDEX_BYTES + count * (spec.layout.record_bytes + _ROW_OVERHEAD_BYTES)
        for spec in store.tables
        for count in [rows[spec.name] or 0]
    )
    known = all(rows.values())
    widest = max(spec.layout.record_bytes for spec in store.tables) + _ROW_OVERHEAD_BYTES
    ever = (len(layouts) << 16) + _INDEX_BYTES * len(store.tables) + most_ids * widest
    dram = min(store.dram_bytes, needed if known else store.dram_bytes, ever)
    how = (
        "dram_bytes"
        if dram == store.dram_bytes
        else "the tables' expected rows"
        if dram < ever
        else "every step's rows"
    )
    parts = [MemoryPart("rows and their index", dram, "dram", how)]
    if not store.ssd_bytes:
        return parts
    record_bytes = sum(spec.layout.record_bytes for spec in store.tables) / len(store.tables)
    most = store.ssd_bytes / record_bytes
    on_ssd = min(sum(count or 0 for count in rows.values()) if known else most, most, most_ids)
    how = "the tables' expected rows" if known else "as many as can be: not every table says its expected_rows"
    index = int(on_ssd * _SSD_INDEX_BYTES) + _INDEX_BYTES * len(store.tables)
    buffers = len(layouts) * (
        store.ssd.write_buffer_bytes
        + 2 * _FOOTER_BYTES * int(store.ssd.segment_bytes / record_bytes)
        + 2 * store.ssd.queue_depth * _READ_BUFFER_BYTES
    )
    parts.append(
        MemoryPart(
            "index of rows on SSD", index, "process", f"{_SSD_INDEX_BYTES} bytes for each of {on_ssd:,.0f} rows, {how}"
        )
    )
    parts.append(MemoryPart("buffers of the SSD tier", buffers, "process", "writing, footers and reads in flight"))
    parts.append(MemoryPart("rows", store.ssd_bytes, "ssd", "ssd_bytes, at most"))
    return parts


def _rows_of(spec: TableSpec) -> int | None:
    """How many rows a table will have; None where nothing says."""
    most = [policy.n for policy in spec.expiry if isinstance(policy, MaxRows)]
    counts = most + ([spec.expected_rows] if spec.expected_rows else [])
    return min(counts) if counts else None


def _around_tiers(config: TrainConfig, touched: int, steps: int) -> list[MemoryPart]:
    store = config.store
    filters = histograms = 0
    for spec in store.tables:
        if isinstance(spec.admission, MinCount):
            filters += 2 * NUM_BUCKETS * max(8, -(-spec.admission.expected_ids * 4 // NUM_BUCKETS))
        for policy in spec.expiry:
            if isinstance(policy, TTL):
                histograms += 300 * min(policy.steps or 10_000, steps)
            elif isinstance(policy, MaxRows) and policy.by == "lru":
                histograms += 2400 * min(10_000, steps)
    return [
        MemoryPart("log of touched ids", 8 * touched + (4 << 20), "process", f"8 bytes for each of {touched:,} ids"),
        MemoryPart("admission filters", filters, "process", "counters of ids that have no row yet"),
        MemoryPart("histograms of last steps", histograms, "process", "for tables whose rows expire"),
    ]


def _reading(config: TrainConfig, sample: _Sample) -> list[MemoryPart]:
    scale = sample.unit_rows / sample.samples.num_rows
    unit = int(sample.samples.num_bytes * scale)
    raw = int(sample.raw_bytes * scale)
    workers = config.reader.workers
    window = max(1, -(-config.reader.shuffle_rows // sample.unit_rows))
    of_data = sample.num_units * (config.reader.epochs or sample.num_units)
    units = min(workers + 1 + window + 1, of_data)
    ahead = units * unit + workers * raw
    how = f"{units} units of {sample.unit_rows:,} samples, {unit / sample.unit_rows:.0f} bytes a sample"
    parts = [MemoryPart("samples read ahead", ahead, "process", how)]
    if config.evaluate is not None:
        units = min(workers + 3, len(config.evaluate.units()))
        how = f"{units} units of its data, while it runs"
        parts.append(MemoryPart("samples to evaluate", units * unit + workers * raw, "process", how))
    return parts


def _computing(config: TrainConfig, probe: _Probe) -> list[MemoryPart]:
    flight = config.depth * config.accumulate * (probe.batch_bytes + probe.routed_bytes)
    if config.store.ssd_bytes:
        flight += 2 * config.fetch_window * probe.row_bytes
    dense = 4 * 2 * probe.parameters + probe.optimizer_bytes
    step = int(1.3 * probe.saved_bytes) + 2 * probe.output_bytes
    metrics = len(config.tasks) * _METRIC_BYTES * (2 if config.evaluate is not None else 1) + _SORTING_BYTES
    return [
        MemoryPart(
            "batches in flight",
            flight,
            "process",
            f"{config.depth * config.accumulate} of {probe.unique_ids:,} unique ids",
        ),
        MemoryPart(
            "dense model",
            dense,
            "process",
            f"{probe.parameters:,} parameters, gradients, {type(config.optimizer).__name__}",
        ),
        MemoryPart("a step", step, "process", "what forward keeps for backward, the rows' outputs and gradients"),
        MemoryPart("metrics", metrics, "process", "sketches of the scores, and their sorting"),
    ]


def _probe(config: TrainConfig, sample: _Sample) -> _Probe:
    """Train steps of a few samples on a small store of their own, and see what they keep."""
    rows = min(config.reader.batch_size, sample.samples.num_rows)
    batch = _batch(sample, rows)
    scale = config.reader.batch_size / rows
    small = config.store.replace(
        dram_bytes=_probe_budget(config.store, _batch(sample, min(max(_PROBE), rows))),
        ssd_bytes=0,
        ssd_directory="",
        tables=tuple(spec.replace(expiry=(), expected_rows=0) for spec in config.store.tables),
    )
    with torch.random.fork_rng(devices=[]), TieredStore(small) as store:
        learner = Learner(config.replace(store=small, fetch_window=1), store)
        kept = [(size, _kept_bytes(learner, _batch(sample, size))) for size in _PROBE if size <= rows]
        routed = learner.embedding.route(batch.ids)
        unique = {name: len(ids) for name, ids in routed.ids.items()}
        specs = (learner.embedding.user_spec, learner.embedding.item_spec)
    width = sum(sum(spec.pooled) + sum(one.dim * one.max_len for one in spec.sequences) for spec in specs)
    record_bytes = {spec.name: spec.layout.record_bytes for spec in config.store.tables}
    state = learner.optimizer.state if learner.optimizer is not None else {}
    return _Probe(
        batch_bytes=int(_bytes_of_batch(batch) * scale),
        unique_ids=int(sum(unique.values()) * scale),
        routed_bytes=int((8 * batch.ids.values.numel() + 40 * sum(unique.values())) * scale),
        row_bytes=int(sum(count * record_bytes[name] for name, count in unique.items()) * scale),
        saved_bytes=_extrapolated(kept, config.reader.batch_size),
        output_bytes=4 * width * config.reader.batch_size,
        parameters=sum(parameter.numel() for parameter in learner.model.parameters()),
        optimizer_bytes=sum(
            value.nbytes for one in state.values() for value in one.values() if isinstance(value, torch.Tensor)
        ),
    )


def _kept_bytes(learner: Learner, batch: Batch) -> int:
    """Bytes of the tensors that forward keeps for backward; the step is finished, so that torch is all there."""
    seen: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    step = learner.store.step + 1
    work = Work((batch,))
    work.routed = [learner.embedding.route(batch.ids)]
    work.fetched = [learner.embedding.fetch(work.routed[0], step)]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        learner.learn(step, work)
    return sum(seen.values())


def _extrapolated(kept: list[tuple[int, int]], batch_size: int) -> int:
    if len(kept) < 2:
        return kept[-1][1] * batch_size // kept[-1][0] if kept else 0
    (few, few_bytes), (many, many_bytes) = kept
    each = max(0, many_bytes - few_bytes) / (many - few)
    return int(few_bytes + each * (batch_size - few))


def _probe_budget(store: StoreConfig, batch: Batch) -> int:
    """Room for the ids of a few samples in every layout, whatever share of the budget it gets."""
    layouts = {spec.layout.fingerprint for spec in store.tables}
    widest = max(spec.layout.record_bytes for spec in store.tables) + _ROW_OVERHEAD_BYTES
    ids = max(1024, 2 * batch.ids.values.numel())
    return (2 * _INDEX_BYTES) * len(store.tables) + len(store.tables) * len(layouts) * ids * widest


def _batch(sample: _Sample, rows: int) -> Batch:
    return Pool([sample.samples]).batch(np.arange(rows, dtype=np.int64), {})


def _bytes_of_columns(columns: Columns) -> int:
    total = 0
    for column in columns.columns.values():
        values: Any = column.values
        total += values.data.nbytes + values.offsets.nbytes if isinstance(values, Strings) else values.nbytes
        total += sum(part.nbytes for part in (column.offsets, column.valid) if part is not None)
    return total


def _bytes_of_batch(batch: Batch) -> int:
    tensors = (batch.ids.values, batch.ids.offsets, batch.ids.weights, batch.dense, batch.labels)
    beside = (batch.sample_weight, batch.event_time, batch.group)
    return sum(part.nbytes for part in (*tensors, *beside) if part is not None)
