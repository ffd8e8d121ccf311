"""Cases of `benchmarks.train_cpu` about training with 90% of the rows on SSD.

Ours is the five stages over a store whose DRAM holds a tenth of the rows. The peer is what could limit it: the smaller
of the same run with all rows in DRAM, and the disk's random reads divided by the pages that a sample needs. Both runs
see the same batches, and their losses must be the same bits.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness import Case, Run, Sides
from benchmarks.peers.fio import random_read_iops
from benchmarks.train_cpu_rows import (
    BATCH,
    I64,
    LR,
    OFFSETS,
    ROWS,
    SEED,
    TABLES,
    THREADS,
    first_weights,
    ids_of,
    row_numbers,
)
from stepwell.data import Batch, ReaderConfig, SyntheticSource, criteo_features
from stepwell.jagged import JaggedIds
from stepwell.models import DLRM
from stepwell.rows import AdaGrad, TableSpec, Zeros
from stepwell.store import StoreConfig, TieredStore
from stepwell.train import Learner, Pipeline, Task, TrainConfig, Work, five_stages

_DIM = 16
_SHARE = 0.1  # of the rows that DRAM holds
_INDEX_BYTES = 21  # of a row in DRAM beside its record, and of a table: docs/architecture.md
_TABLE_BYTES = 128 << 10
_DEPTH, _WINDOW = 10, 4
_WARM_UP = 40  # steps
_FEATURES = criteo_features()
_NAMES = tuple(feature.name for feature in _FEATURES.features_with_ids)
_SPECS = tuple(
    TableSpec(name=feature.table, dim=_DIM, optimizer=AdaGrad(lr=LR), initializer=Zeros())
    for feature in _FEATURES.features_with_ids
)


def _batch(number: int, alpha: float) -> Batch:
    random = np.random.default_rng((SEED, 7, number))
    ids = JaggedIds(features=_NAMES, values=torch.from_numpy(ids_of(row_numbers(number, alpha))), offsets=OFFSETS)
    dense = torch.from_numpy(random.normal(size=(BATCH, sum(_FEATURES.dense_dims.values()))).astype(np.float32))
    return Batch(ids=ids, dense=dense, labels=torch.from_numpy((random.random((BATCH, 1)) < 0.25).astype(np.float32)))


class _Trained:
    """A store with all rows in it, and a model that trains on it round after round."""

    def __init__(self, stack: ExitStack, dram_rows: int, directory: Path | None) -> None:
        dram_bytes = dram_rows * (_SPECS[0].layout.record_bytes + _INDEX_BYTES) + (TABLES + 1) * _TABLE_BYTES
        below = {"ssd_bytes": 8 << 30, "ssd_directory": str(directory)} if directory is not None else {}
        store = StoreConfig(tables=_SPECS, dram_bytes=dram_bytes, threads=THREADS, **below)
        config = TrainConfig(
            train=SyntheticSource(rows=1),
            features=_FEATURES,
            tasks=(Task(name="click"),),
            store=store,
            model=DLRM(bottom=(64,), top=(128, 64)),
            reader=ReaderConfig(batch_size=BATCH),
            depth=_DEPTH,
            fetch_window=_WINDOW if directory is not None else 1,
        )
        self.store = stack.enter_context(TieredStore(store))
        every: I64 = ids_of(np.arange(ROWS))
        for table, spec in enumerate(_SPECS):
            self.store.insert_or_assign(spec.name, every, first_weights(table, _DIM))
        self._learner = Learner(config, self.store)
        self.stages: dict[str, dict[str, float]] = {}

    def train(self, batches: list[Batch]) -> tuple[float, list[float]]:
        """(Samples per second, the losses)."""
        losses: list[float] = []

        def on_step(step: int, work: Work) -> None:
            losses.append(work.loss)

        stages = five_stages(self._learner, iter(batches), on_step, lambda *_: None)
        pipeline = Pipeline(stages, depth=_DEPTH)
        start = time.perf_counter()
        pipeline.run(self.store.step + 1)
        seconds = time.perf_counter() - start
        self.stages = pipeline.report()
        return len(batches) * BATCH / seconds, losses

    def reads(self) -> dict[str, int]:
        """Rows that came up from SSD, and pages read for them, so far."""
        stats = self.store.stats()
        (log,) = stats.tiers[-1].details["logs"]
        return {"missing_rows": stats.counters["promoted"], "pages_read": log["pages_read"], "requests": log["reads"]}


class _OnSsd:
    """Ours. What a round observed is in `config`."""

    def __init__(self, trained: _Trained, batches: Callable[[int], list[Batch]], config: dict[str, Any]) -> None:
        self._trained, self._batches, self._config = trained, batches, config
        self.pages_per_sample = 0.0

    def measure(self, round_: int) -> tuple[float, object]:
        batches = self._batches(round_)
        before = self._trained.reads()
        figure, losses = self._trained.train(batches)
        read = {name: value - before[name] for name, value in self._trained.reads().items()}
        samples = len(batches) * BATCH
        self.pages_per_sample = read["pages_read"] / samples
        self._config.update(
            missing_rows_per_sample=read["missing_rows"] / samples,
            pages_read_per_sample=self.pages_per_sample,
            pages_read_per_missing_row=read["pages_read"] / max(1, read["missing_rows"]),
            requests_per_sample=read["requests"] / samples,
            busy_s={name: round(stage["busy_s"], 3) for name, stage in self._trained.stages.items()},
            limits=max(self._trained.stages, key=lambda name: self._trained.stages[name]["busy_s"]),
        )
        return figure, losses


class _Limit:
    """The peer: the smaller of all rows in DRAM, and the disk."""

    def __init__(
        self,
        trained: _Trained,
        batches: Callable[[int], list[Batch]],
        config: dict[str, Any],
        disk: Callable[[], float],
        ours: _OnSsd,
    ) -> None:
        self._trained, self._batches, self._config = trained, batches, config
        self._disk, self._ours = disk, ours

    def measure(self, round_: int) -> tuple[float, object]:
        in_dram, losses = self._trained.train(self._batches(round_))
        iops = self._disk()
        by_disk = iops / self._ours.pages_per_sample if self._ours.pages_per_sample else float("inf")
        for name, value in (("all_dram_samples_per_s", in_dram), ("fio_iops", iops), ("disk_samples_per_s", by_disk)):
            self._config[name] = max(self._config.get(name, 0.0), value)
        return min(in_dram, by_disk), losses


def _agree(mine: object, theirs: object) -> None:
    if mine != theirs:
        raise ValueError("losses over two tiers and in DRAM are not the same bits")


@contextmanager
def _on_ssd(alpha: float, run: Run) -> Iterator[Sides]:
    steps = 10 if run.quick else 30
    config: dict[str, Any] = {"tables": TABLES, "rows": ROWS, "dim": _DIM, "batch": BATCH, "alpha": alpha}
    config |= {"threads": THREADS, "share_in_dram": _SHARE, "steps_per_round": steps, "depth": _DEPTH}
    config |= {"fetch_window": _WINDOW}

    def batches(round_: int) -> list[Batch]:
        return [_batch(_WARM_UP + round_ * steps + i, alpha) for i in range(steps)]

    with ExitStack() as stack:
        total = TABLES * ROWS
        tiers = _Trained(stack, round(total * _SHARE), run.directory / "rows")
        memory = _Trained(stack, total, None)
        warm_up = [_batch(i, alpha) for i in range(_WARM_UP)]
        _agree(tiers.train(warm_up)[1], memory.train(warm_up)[1])
        tiers.store.sync()
        size = sum(path.stat().st_size for path in (run.directory / "rows").rglob("*") if path.is_file())
        config["rows_in_dram"] = tiers.store.stats().tiers[0].rows
        config["rows_on_ssd"] = tiers.store.stats().tiers[1].rows
        ours = _OnSsd(tiers, batches, config)
        disk = partial(random_read_iops, run.directory, size, 0.5 if run.quick else 1.5)
        yield Sides(ours=ours, peer=_Limit(memory, batches, config, disk, ours), agree=_agree, config=config)


def _case(name: str, alpha: float) -> Case:
    def setup(run: Run) -> AbstractContextManager[Sides]:
        return _on_ssd(alpha, run)

    peer = "min(all rows in DRAM, fio 4 KiB random reads / pages per sample)"
    return Case(name=name, setup=setup, unit="samples/s", peer_name=peer)


CASES = [_case("rows_90_percent_on_ssd", 1.05), _case("rows_90_percent_on_ssd_alpha_1.2", 1.2)]
