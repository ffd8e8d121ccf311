"""TrainConfig: all of a run."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, Literal

from stepwell.config import Config
from stepwell.data import FeatureSet, ReaderConfig, Source
from stepwell.errors import ConfigError
from stepwell.models import ModelConfig
from stepwell.rows import TTL
from stepwell.store import StoreConfig
from stepwell.train.dense import DenseAdam, DenseOptimizer
from stepwell.train.schedules import ConstantRate, Schedule

METRICS: Final = {  # of an evaluation: whether more is better; calibration is best at 1, which early stop cannot follow
    "auc": True,
    "grouped_auc": True,
    "log_loss": False,
    "normalised_entropy": False,
}
_MOST: Final = 1 << 40


@dataclass(frozen=True, kw_only=True, slots=True)
class Task(Config):
    """What the model predicts. The loss is the sum over tasks of `weight` times the task's log loss."""

    name: str
    label: str = ""  # the labels' column; "": the one that is named like the task
    weight: float = 1.0

    def __post_init__(self) -> None:
        self._require_instance("name", str)
        self._require(self.name.isidentifier(), "name", "a name like a variable's")
        self._require_instance("label", str)
        self._require_float("weight", 0.0, math.inf, above_low=True)

    @property
    def column(self) -> str:
        """The labels' column."""
        return self.label or self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlyStop(Config):
    """Stop when `patience` evaluations one after the other were no better than the best by more than `min_gain`."""

    metric: str = "auc"
    task: str = ""  # "": the first
    patience: int = 3
    min_gain: float = 0.0

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ConfigError(f"EarlyStop.metric: found {self.metric!r}, expected {_one_of(self.metric, METRICS)}")
        self._require_instance("task", str)
        self._require_int("patience", 1, _MOST)
        self._require_float("min_gain", 0.0, math.inf)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig(Config):
    """All of a run: data, features, rows, the dense model, how it learns, and for how long.

    What cannot work together is a ConfigError when the config is made. An `ssd_directory` that is a relative path lies
    in the run folder, if there is one.
    """

    # what is learned from what
    train: Source
    evaluate: Source | None = None
    features: FeatureSet
    tasks: tuple[Task, ...] = (Task(name="label"),)
    store: StoreConfig
    model: ModelConfig
    reader: ReaderConfig

    # how
    optimizer: DenseOptimizer = field(default_factory=DenseAdam)  # of the dense model; each table has its own
    schedule: Schedule = field(default_factory=ConstantRate)  # of every rate, the tables' included
    accumulate: int = 1  # batches of the reader in one step
    clip_norm: float = 0.0  # the dense gradients together are scaled down to this L2 norm; 0: never
    autocast: Literal["off", "bf16"] = "off"  # bf16: the dense model computes in it where torch holds it safe
    frozen_tables: tuple[str, ...] = ()  # their rows are read, stamped and born, and never change
    frozen_dense: bool = False
    seed: int = 0  # of the dense model's first weights and its dropout; reader and store have their own

    # how long
    steps: int = 0  # 0: until the data ends
    evaluate_every: int = 0  # steps; 0: when training ends only
    evaluate_batches: int = 0  # of each evaluation; 0: all
    early_stop: EarlyStop | None = None

    # how fast, and what is shown
    depth: int = 4  # batches in flight; 1: no pipeline
    fetch_window: int = 1  # steps whose rows are read from SSD together
    torch_threads: int = 0  # of torch's operators; 0: as torch has it
    log_every: int = 50  # steps between two lines of metrics.jsonl
    timeline_steps: int = 20  # whose spans go to timeline.jsonl
    tensorboard: bool = False

    def __post_init__(self) -> None:
        self._require_instance("train", Source)
        self._require_instance("features", FeatureSet)
        self._require_instance("store", StoreConfig)
        self._require_instance("model", ModelConfig)
        self._require_instance("reader", ReaderConfig)
        self._require_instance("optimizer", DenseOptimizer)
        self._require_instance("schedule", Schedule)
        self._require(self.evaluate is None or isinstance(self.evaluate, Source), "evaluate", "a Source or None")
        ok = self.early_stop is None or isinstance(self.early_stop, EarlyStop)
        self._require(ok, "early_stop", "an EarlyStop or None")
        self._require_int("accumulate", 1, 1 << 20)
        self._require_float("clip_norm", 0.0, math.inf)
        self._require(self.autocast in ("off", "bf16"), "autocast", "'off' or 'bf16'")
        self._require_tuple_of("frozen_tables", str)
        for name in ("frozen_dense", "tensorboard"):
            self._require(type(getattr(self, name)) is bool, name, "True or False")
        self._require_int("seed", 0, (1 << 63) - 1)
        for name in ("steps", "evaluate_every", "evaluate_batches"):
            self._require_int(name, 0, _MOST)
        self._require_int("depth", 1, 1024)
        self._require_int("fetch_window", 1, 1024)
        self._require_int("torch_threads", 0, 1024)
        self._require_int("log_every", 1, _MOST)
        self._require_int("timeline_steps", 0, 10_000)
        self._check_tasks()
        self._check_tables()
        self._check_evaluation()
        self._check_pipeline()

    @property
    def task_names(self) -> tuple[str, ...]:
        """In order."""
        return tuple(task.name for task in self.tasks)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels' column of each task."""
        return tuple(task.column for task in self.tasks)

    @property
    def needs_event_time(self) -> bool:
        """Whether a table expires by seconds."""
        return any(isinstance(p, TTL) and p.seconds > 0 for spec in self.store.tables for p in spec.expiry)

    def _check_tasks(self) -> None:
        self._require_tuple_of("tasks", Task)
        names = self.task_names
        self._require(len(names) > 0 and len(set(names)) == len(names), "tasks", "one or more, no two of one name")

    def _check_tables(self) -> None:
        tables = [spec.name for spec in self.store.tables]
        used = []
        for feature in self.features.features:
            table = getattr(feature, "table", None)
            if table is not None and table not in tables:
                raise ConfigError(
                    f"TrainConfig.features: feature {feature.name!r} names the table {table!r}, expected "
                    f"{_one_of(table, tables)} (store.tables)"
                )
            used.append(table)
        for name in tables:
            if name not in used:
                raise ConfigError(f"TrainConfig.store: table {name!r} is named by no feature: leave it out")
        for name in self.frozen_tables:
            if name not in tables:
                raise ConfigError(f"TrainConfig.frozen_tables: found {name!r}, expected {_one_of(name, tables)}")
        self._require(self.store.mode == "train", "store", "mode 'train'")
        if self.needs_event_time and not self.reader.event_time:
            raise ConfigError(
                "TrainConfig.reader: a table expires by seconds: expected event_time to name the column with each "
                "sample's time"
            )

    def _check_evaluation(self) -> None:
        if self.evaluate is None:
            for name in ("evaluate_every", "evaluate_batches", "early_stop"):
                self._require(not getattr(self, name), name, "nothing, because there is no source `evaluate`")
        stop = self.early_stop
        if stop is None:
            return
        self._require(self.evaluate_every > 0, "evaluate_every", "at least 1, because there is an early stop")
        if stop.task and stop.task not in self.task_names:
            raise ConfigError(f"EarlyStop.task: found {stop.task!r}, expected {_one_of(stop.task, self.task_names)}")
        if stop.metric == "grouped_auc" and not self.reader.group:
            raise ConfigError("EarlyStop.metric: found 'grouped_auc', and reader.group names no column of group keys")

    def _check_pipeline(self) -> None:
        if self.fetch_window > 1:
            self._require(self.store.ssd_bytes > 0, "fetch_window", "1, because the store has no SSD tier")
            least = self.fetch_window
            self._require(self.depth >= least, "depth", f"at least {least}, which is fetch_window")


def _one_of(found: str, names: Iterable[str]) -> str:
    """The legal names in words, the closest first named."""
    known = list(names)
    close = get_close_matches(str(found), known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"one of {', '.join(known)}{hint}"
