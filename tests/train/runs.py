"""Small runs over arrays, for the tests of training."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from stepwell.data import ArraySource, DenseFeature, FeatureSet, IdFeature, ReaderConfig, SequenceFeature, Source
from stepwell.models import DLRM
from stepwell.rows import AdaGrad, TableSpec
from stepwell.store import StoreConfig, TieredStore
from stepwell.train import DenseAdam, Task, TrainConfig, Trainer, open_run

Record = dict[str, Any]

FEATURES = FeatureSet(
    features=(
        IdFeature(name="user", side="user", column="user", table="users"),
        IdFeature(name="genres", side="user", column="genres", table="words", pooling="mean", max_ids=3),
        DenseFeature(name="age", side="user", columns=("age",)),
        IdFeature(name="item", side="item", column="item", table="items"),
        IdFeature(name="words", side="item", column="words", table="words", max_ids=4),
        DenseFeature(name="price", side="item", columns=("price", "stars"), log1p=True),
    )
)
TABLES = tuple(TableSpec(name=name, dim=8, optimizer=AdaGrad(lr=0.1)) for name in ("users", "items", "words"))


def columns(rows: int, seed: int = 0, ids: int = 200) -> dict[str, Any]:
    """Clicks that depend on user, item and price."""
    random = np.random.default_rng(seed)
    taste = np.random.default_rng(99).normal(size=(2, ids))
    user, item = (random.zipf(1.3, rows) % ids for _ in range(2))
    price = random.random(rows)
    logit = taste[0][user] + taste[1][item] + 2 * price - 1.5
    lists: list[npt.NDArray[np.int64]] = [random.integers(0, ids, random.integers(0, 4)) for _ in range(rows)]
    return {
        "user": user.astype(np.int64) - 7,
        "item": item.astype(np.int64) << 40,
        "genres": lists,
        "words": [np.concatenate([some, [3]])[:4] for some in lists],
        "age": random.normal(size=rows),
        "price": price,
        "stars": random.random(rows),
        "label": (random.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.float32),
        "bought": (random.random(rows) < 0.3).astype(np.float32),
        "weight": (random.random(rows) * 2).astype(np.float32),
        "time": np.arange(rows) * 0.01,
        "session": random.integers(0, 40, rows),
    }


def source(rows: int, seed: int = 0, unit_rows: int = 256, **replaced: Any) -> Source:
    return ArraySource(columns=columns(rows, seed) | replaced, unit_rows=unit_rows)


def config(rows: int = 1024, **changes: Any) -> TrainConfig:
    """DLRM over three tables, 16 steps of 64 samples unless said otherwise."""
    made: dict[str, Any] = {
        "train": source(rows),
        "features": FEATURES,
        "tasks": (Task(name="label"),),
        "model": DLRM(bottom=(8,), top=(16,)),
        "store": StoreConfig(tables=TABLES, dram_bytes=8 << 20, threads=2),
        "reader": ReaderConfig(batch_size=64),
        "optimizer": DenseAdam(lr=1e-2),
        "log_every": 4,
        "torch_threads": 1,
    }
    return TrainConfig(**(made | changes))


SEQUENCE_FEATURES = FeatureSet(
    features=(
        SequenceFeature(name="seen", side="user", column="words", table="words", max_len=4),
        IdFeature(name="item", side="item", column="item", table="items"),
        DenseFeature(name="price", side="item", columns=("price",)),
    )
)


def ran(made: TrainConfig, directory: Path | None = None, **kwargs: Any) -> list[Record]:
    records: list[Record] = []
    Trainer(made, directory, on_record=records.append, **kwargs).run()
    return records


def of_kind(records: list[Record], kind: str) -> list[Record]:
    return [record for record in records if record["kind"] == kind]


def exported(store: TieredStore) -> dict[str, dict[int, bytes]]:
    return {
        spec.name: {
            int(i): record.tobytes()
            for ids, records in store.export_batch(spec.name)
            for i, record in zip(ids, records, strict=True)
        }
        for spec in store.config.tables
    }


def parameters_of(run: Path) -> list[Tensor]:
    with open_run(run) as opened:
        return list(opened.model.parameters())
