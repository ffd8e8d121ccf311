"""Records: what metrics.jsonl says of a run, line by line, and the figures that the lines are made of."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from stepwell.store import TieredStore
from stepwell.telemetry import Counters
from stepwell.train.learner import Work
from stepwell.train.metrics import BinaryMetrics
from stepwell.train.pipeline import Pipeline

Record = dict[str, Any]


class Records:
    """Where records go: a line each to metrics.jsonl, where there is a run folder, and to `on_record`."""

    def __init__(self, directory: Path | None, on_record: Callable[[Record], None]) -> None:
        self._file = (directory / "metrics.jsonl").open("w") if directory is not None else None
        self._on_record = on_record
        self._started_s = perf_counter()

    def write(self, kind: str, step: int, **figures: Any) -> Record:
        """Add a line; what is not defined (NaN) is null."""
        record = {"kind": kind, "step": step, "time_s": self.time_s, **_without_nan(figures)}
        if self._file is not None:
            self._file.write(json.dumps(record, allow_nan=False) + "\n")
            self._file.flush()
        self._on_record(record)
        return record

    @property
    def time_s(self) -> float:
        """Since the run began."""
        return perf_counter() - self._started_s

    def close(self) -> None:
        """No more lines."""
        if self._file is not None:
            self._file.close()


class Figures:
    """What a "train" line says: figures since the line before."""

    def __init__(self, task_names: tuple[str, ...], store: TieredStore, counters: Counters) -> None:
        self._store = store
        self._counters = counters
        self._metrics = {name: BinaryMetrics() for name in task_names}
        self._lookups = _Lookups(store)
        self.num_samples = 0  # in all
        self._begin()

    def _begin(self) -> None:
        self._since_s = perf_counter()
        self._not_training_s = 0.0
        self.num_steps = 0  # since the last line
        self._samples = 0
        self._loss = 0.0
        self._losses = dict.fromkeys(self._metrics, 0.0)
        for metrics in self._metrics.values():
            metrics.reset()

    def add(self, work: Work) -> None:
        """A step has committed. Its logits are from before its update, which makes the AUC progressive."""
        self.num_steps += 1
        self._samples += work.num_samples
        self.num_samples += work.num_samples
        self._loss += work.loss
        for i, (name, metrics) in enumerate(self._metrics.items()):
            self._losses[name] += work.losses[i]
            for batch, logits in zip(work.batches, work.logits, strict=True):
                metrics.update(logits[name].float(), batch.labels[:, i], batch.sample_weight)

    def pause(self, seconds: float) -> None:
        """So long nothing was trained: an evaluation."""
        self._not_training_s += seconds

    def line(self, lr_factor: float, pipeline: Pipeline) -> Record:
        """The figures, and a new beginning."""
        steps = max(1, self.num_steps)
        seconds = perf_counter() - self._since_s - self._not_training_s
        stages = pipeline.report()
        stages["compute"]["busy_s"] -= self._not_training_s
        tasks = {
            name: {"loss": self._losses[name] / steps, "auc": metrics.compute()["auc"]}
            for name, metrics in self._metrics.items()
        }
        record: Record = {
            "loss": self._loss / steps,
            "samples": self.num_samples,
            "samples_per_s": self._samples / seconds if seconds > 0 else math.nan,
            "lr_factor": lr_factor,
            "auc": next(iter(tasks.values()))["auc"],  # the first task's
            "tasks": tasks,
            "rss_bytes": rss_bytes(),
            "stages": stages,
            "limits": max(stages, key=lambda name: stages[name]["busy_s"]),
            "tiers": self._lookups.tiers(),
            "counters": self._counters.snapshot() | self._store.stats().counters,
        }
        self._begin()
        return record


class _Lookups:
    """Tiers as lines show them. A tier's hit rate is of the rows that were looked for in it."""

    def __init__(self, store: TieredStore) -> None:
        self._store = store
        self._before: dict[str, int] = {}

    def tiers(self) -> dict[str, Record]:
        stats = self._store.stats()
        hits, promoted, placed = (
            stats.counters.get(name, 0) - self._before.get(name, 0) for name in ("hits_dram", "promoted", "placed_new")
        )
        self._before = stats.counters
        looked_for = {"dram": (hits, hits + promoted + placed), "ssd": (promoted, promoted + placed)}
        shown = {}
        for tier in stats.tiers:
            found, wanted = looked_for.get(tier.name, (0, 0))
            shown[tier.name] = {
                "rows": tier.rows,
                "bytes_used": tier.bytes_used,
                "budget_bytes": tier.budget_bytes,
                "hit_rate": found / wanted if wanted else math.nan,
            }
        return shown


def rss_bytes() -> int:
    """This process's memory, as the system counts it."""
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    return value
