"""Opening a run that has ended: its model and its rows, to read from."""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stepwell.data import Columns, FeatureSet, Source, Unit
from stepwell.embedding import ShardedEmbedding
from stepwell.errors import ConfigError
from stepwell.models import RankingModel, load_model
from stepwell.store import TieredStore, restore
from stepwell.train.config import TrainConfig
from stepwell.train.evaluation import figures_of
from stepwell.train.learner import Scorer, embedding_of
from stepwell.train.run_folder import CONFIG, FEATURES, SNAPSHOT


@dataclass(frozen=True, kw_only=True, slots=True)
class UnsavedArrays(Source):
    """What is left of an ArraySource in a saved config: what its columns were. Nothing can be read from it."""

    columns: dict[str, str]
    unit_rows: int

    def units(self) -> tuple[Unit, ...]:
        """ConfigError."""
        raise ConfigError("the run was trained from arrays in memory, which are not saved: give a source")

    def read(self, unit: Unit, names: Sequence[str], *, skip_bad_rows: bool = False) -> Columns:
        """ConfigError."""
        raise ConfigError("the run was trained from arrays in memory, which are not saved: give a source")


class Run:
    """A finished run: the model and its rows as they were at the end, to be read. Close it, or use it with `with`."""

    def __init__(self, config: TrainConfig, model: RankingModel, store: TieredStore, rows: Path | None) -> None:
        """`rows` is a working directory of the store that goes when the run is closed."""
        self._scorer = Scorer(config, embedding_of(config, store), model)
        self._scorer.eval()
        self._rows = rows
        self.store = store

    @property
    def config(self) -> TrainConfig:
        """The resolved config; its `store` is the one that was trained."""
        return self._scorer.config

    @property
    def features(self) -> FeatureSet:
        """With their statistics."""
        return self._scorer.config.features

    @property
    def embedding(self) -> ShardedEmbedding:
        """In eval mode."""
        return self._scorer.embedding

    @property
    def model(self) -> RankingModel:
        """In eval mode."""
        return self._scorer.model

    @property
    def scorer(self) -> Scorer:
        """All three together."""
        return self._scorer

    def close(self) -> None:
        """Let go of rows and files."""
        self.store.close()
        if self._rows is not None:
            shutil.rmtree(self._rows, ignore_errors=True)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        self.close()
        return False


def open_run(directory: str | Path) -> Run:
    """The run that a Trainer left in this folder. Its rows have the budgets they were trained with.

    Sources, models and features of classes that are not Stepwell's must be imported before. Rows that lie on the SSD
    tier are linked into a working directory in the folder.
    """
    folder = Path(directory)
    config = _read_config(folder)
    rows = folder / f"reading-{os.getpid()}-{os.urandom(4).hex()}" if config.store.ssd_directory else None
    model = load_model(folder)
    store_config = config.store.replace(mode="read", ssd_directory=str(rows) if rows is not None else "")
    try:
        return Run(config, model, restore(folder / SNAPSHOT, store_config), rows)
    except BaseException:
        if rows is not None:
            shutil.rmtree(rows, ignore_errors=True)
        raise


def evaluate(run: Run, source: Source, most_batches: int = 0) -> dict[str, Any]:
    """An "eval" line's figures, {"samples": ..., "tasks": {task: {"auc": ..., ...}}}, of the run over a source."""
    return figures_of(run.scorer, source, most_batches)


def _read_config(folder: Path) -> TrainConfig:
    path = folder / CONFIG
    if not path.is_file() or not (folder / SNAPSHOT).is_dir():
        missing = CONFIG if not path.is_file() else f"{SNAPSHOT}/ (the run has not ended)"
        raise ConfigError(f"{folder} is no finished run: it has no {missing}")
    try:
        encoded = json.loads(path.read_text())
    except ValueError as error:
        raise ConfigError(f"{path}: found text that is not JSON ({error})") from error
    for name in ("train", "evaluate"):
        source = encoded.get(name)
        if isinstance(source, dict) and source.get("kind") == "ArraySource":
            encoded[name] = source | {"kind": "UnsavedArrays"}
    config = TrainConfig.from_dict(encoded)
    return config.replace(features=FeatureSet.from_json((folder / FEATURES).read_text()))
