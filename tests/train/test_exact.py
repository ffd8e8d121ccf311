"""Any depth, DRAM budget, window and number of threads make the bits that an unpipelined run in memory makes.

One run has a table for every optimizer, with every dtype of weights and every admission, eviction and expiry policy
among them; the dense model drops out, clips and decays. Compared are losses, rows with state and stamps, dense weights
and their optimizer's state.
"""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from stepwell.data import ArraySource, BatchReader, DenseFeature, FeatureSet, IdFeature, ReaderConfig, SequenceFeature
from stepwell.embedding import SideInputs, SideSpec
from stepwell.errors import NotFinite
from stepwell.models import ModelConfig, RankingModel, side_inputs
from stepwell.rows import (
    FTRL,
    LAMB,
    LFU,
    SGD,
    TTL,
    AdaGrad,
    Adam,
    AdamW,
    L2Below,
    MaxRows,
    MinCount,
    MomentumScaledRowWiseAdaGrad,
    Probability,
    RowWiseAdaGrad,
    RowWiseAdam,
    TableSpec,
    Uniform,
)
from stepwell.store import SsdSettings, StoreConfig, TieredStore
from stepwell.train import CosineDecay, DenseAdamW, Learner, Pipeline, Task, TrainConfig, Work, five_stages
from tests.store.test_tiered_model import dram_bytes_for
from tests.train.runs import exported

ROWS, BATCH, IDS = 1200, 24, 150
TABLES = (
    TableSpec(name="sgd", dim=4, optimizer=SGD(lr=0.3), admission=MinCount(n=2), expiry=(TTL(steps=12),)),
    TableSpec(name="momentum", dim=5, optimizer=SGD(lr=0.1, momentum=0.9, nesterov=True), weight_dtype="fp16"),
    TableSpec(name="adagrad", dim=8, optimizer=AdaGrad(lr=0.2), expiry=(MaxRows(n=60),)),
    TableSpec(name="rowwise", dim=16, optimizer=RowWiseAdaGrad(lr=0.2), admission=Probability(p=0.5)),
    TableSpec(
        name="scaled",
        dim=3,
        optimizer=MomentumScaledRowWiseAdaGrad(lr=0.2),
        eviction=LFU(decay_steps=9),
        expiry=(MaxRows(n=50, by="lfu"),),
    ),
    TableSpec(name="adam", dim=6, optimizer=Adam(lr=0.02), weight_dtype="bf16", expiry=(TTL(seconds=3.0),)),
    TableSpec(name="adamw", dim=4, optimizer=AdamW(lr=0.02, weight_decay=0.1), admission=MinCount(n=3)),
    TableSpec(name="rowadam", dim=7, optimizer=RowWiseAdam(lr=0.02, max_row_norm_grad=0.05)),
    TableSpec(
        name="ftrl",
        dim=4,
        optimizer=FTRL(lr=0.2, l1=0.001),
        initializer=Uniform(low=-0.05, high=0.05),
        expiry=(L2Below(norm=0.02, min_count=2), TTL(steps=25)),
    ),
    TableSpec(
        name="lamb",
        dim=8,
        optimizer=LAMB(lr=0.02),
        admission=Probability(p=0.7),
        expiry=(TTL(steps=9), MaxRows(n=80)),
    ),
)
FEATURES = FeatureSet(
    features=(
        *(
            IdFeature(name=f"{spec.name}_ids", side="user", column=f"ids_{i}", table=spec.name, max_ids=4)
            for i, spec in enumerate(TABLES)
        ),
        *(
            IdFeature(name=f"{spec.name}_one", side="item", column=f"one_{i}", table=spec.name, pooling="mean")
            for i, spec in enumerate(TABLES[::3])
        ),
        SequenceFeature(name="seen", side="user", column="ids_0", table="rowwise", max_len=4),
        DenseFeature(name="price", side="item", columns=("price",)),
    )
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropping(ModelConfig):
    """An MLP with dropout over all inputs: what draws from torch's generator must draw in step order."""

    def build(self, user: SideSpec, item: SideSpec, tasks: tuple[str, ...]) -> "DroppingNetwork":
        return DroppingNetwork(user, item, tasks)


class DroppingNetwork(RankingModel):
    def __init__(self, user: SideSpec, item: SideSpec, tasks: tuple[str, ...]) -> None:
        super().__init__()
        self.tasks = tasks
        width = sum(
            side.dense + sum(side.pooled) + sum(one.dim * one.max_len for one in side.sequences)
            for side in (user, item)
        )
        self.layers = nn.Sequential(nn.Linear(width, 16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, len(tasks)))

    def score(self, user: dict[str, Tensor], item: SideInputs) -> dict[str, Tensor]:
        sides = (side_inputs(user), item)
        parts = [part for side in sides for part in (side.dense, side.pooled)]
        parts += [one.values.flatten(1) for side in sides for one in side.sequences.values()]
        out = self.layers(torch.cat(parts, 1))
        return {name: out[:, i] for i, name in enumerate(self.tasks)}


@lru_cache(maxsize=1)
def samples() -> ArraySource:
    random = np.random.default_rng(3)
    names = np.concatenate([np.arange(IDS - 4), [-1, 0, -(1 << 63), (1 << 63) - 1]]).astype(np.int64)

    def some(n: int) -> npt.NDArray[np.int64]:
        return names[(random.zipf(1.2, n) + random.integers(0, 3, n)) % IDS]

    made: dict[str, Any] = {f"ids_{i}": [some(int(n)) for n in random.integers(0, 5, ROWS)] for i in range(len(TABLES))}
    made |= {f"one_{i}": some(ROWS) for i in range(4)}
    made["price"] = random.normal(size=ROWS)
    made["time"] = np.arange(ROWS) * 0.05
    made["click"] = (random.random(ROWS) < 0.4).astype(np.float32)
    made["buy"] = (random.random(ROWS) < 0.2).astype(np.float32)
    return ArraySource(columns=made, unit_rows=100)


def config(store: dict[str, Any] | None = None, **changes: Any) -> TrainConfig:
    made: dict[str, Any] = {
        "train": samples(),
        "features": FEATURES,
        "tasks": (Task(name="click"), Task(name="buy", weight=0.5)),
        "model": Dropping(),
        "store": StoreConfig(tables=TABLES, **({"dram_bytes": 32 << 20, "threads": 1} | (store or {}))),
        "reader": ReaderConfig(batch_size=BATCH, shuffle_rows=300, in_order=True, event_time="time"),
        "optimizer": DenseAdamW(lr=0.01),
        "schedule": CosineDecay(warmup_steps=5, steps=50),
        "clip_norm": 0.5,
        "depth": 1,
        "torch_threads": 1,
    }
    return TrainConfig(**(made | changes))


@dataclass(frozen=True)
class Outcome:
    losses: tuple[tuple[float, ...], ...]
    rows: dict[str, dict[int, bytes]]
    dense: dict[str, bytes]


def train(made: TrainConfig) -> tuple[Outcome, Counter[str]]:
    losses: list[tuple[float, ...]] = []

    def on_step(step: int, work: Work) -> None:
        assert step == len(losses) + 1
        losses.append(work.losses)

    def on_bad(step: int, work: Work, error: NotFinite) -> None:
        raise AssertionError("everything here is finite")

    with (
        TieredStore(made.store) as store,
        BatchReader(made.train, made.features, made.labels, made.reader) as reader,
    ):
        learner = Learner(made, store)
        Pipeline(five_stages(learner, iter(reader), on_step, on_bad), depth=made.depth).run()
        assert learner.optimizer is not None
        state = learner.optimizer.state_dict()["state"]
        dense = {name: tensor.numpy().tobytes() for name, tensor in learner.model.state_dict().items()}
        dense |= {f"{at}.{key}": value.numpy().tobytes() for at, of in state.items() for key, value in of.items()}
        return Outcome(tuple(losses), exported(store), dense), Counter(store.stats().counters)


def least_bytes(made: TrainConfig) -> int:
    """The budget that holds the largest step and hardly more."""
    most = 0
    with (
        TieredStore(made.store) as store,
        BatchReader(made.train, made.features, made.labels, made.reader) as reader,
    ):
        learner = Learner(made, store)
        batches = [learner.embedding.route(batch.ids).ids for batch in reader]
    for at in range(0, len(batches), made.accumulate):
        step = batches[at : at + made.accumulate]
        most = max(most, *(len(set().union(*(set(ids[spec.name].tolist()) for ids in step))) for spec in TABLES))
    return dram_bytes_for(TABLES, most)


@lru_cache(maxsize=4)
def plain(accumulate: int) -> tuple[Outcome, int]:
    """Unpipelined, all in memory, one thread; and the least budget."""
    made = config(accumulate=accumulate)
    torch.set_num_threads(1)
    return train(made)[0], least_bytes(made)


def check(directory: Path, depth: int, more_rows: float, threads: int, window: int, accumulate: int) -> None:
    expected, least = plain(accumulate)
    ssd = {
        "dram_bytes": int(least * more_rows),
        "ssd_bytes": 1 << 28,
        "ssd_directory": str(directory / "rows"),
        "ssd": SsdSettings(segment_bytes=1 << 16, write_buffer_bytes=1 << 16),
        "threads": threads,
    }
    found, counters = train(config(ssd, depth=depth, fetch_window=window, accumulate=accumulate))
    assert found.losses == expected.losses
    assert found.dense == expected.dense
    assert found.rows == expected.rows
    if more_rows < 1.2:
        assert counters["evicted"] > 0, "the budget was to be small"
        assert counters["promoted"] > 0


def test_the_run_exercises_what_it_is_for() -> None:
    outcome, _ = plain(1)
    assert len(outcome.losses) == ROWS // BATCH
    assert len(set(outcome.losses)) == len(outcome.losses)
    seen = {int(i) for i in range(IDS)}
    for name in ("adagrad", "scaled", "lamb"):
        most = {"adagrad": 60, "scaled": 50, "lamb": 80}[name]
        assert 0 < len(outcome.rows[name]) <= most < len(seen)
    for name in ("sgd", "adam", "adamw", "ftrl"):
        assert 0 < len(outcome.rows[name]) < IDS


# Every depth meets the least budget and a larger one, every number of threads, and windows.
COMBINATIONS = [
    # depth, budget, threads, window, accumulate
    (1, 1.0, 2, 1, 1),
    (2, 1.0, 1, 1, 1),
    (2, 4.0, 4, 2, 1),
    (3, 1.0, 3, 2, 1),
    (3, 1.3, 1, 1, 3),
    (4, 1.0, 4, 4, 1),
    (4, 1.7, 2, 1, 1),
    (5, 1.0, 2, 3, 1),
    (5, 1.0, 4, 2, 3),
    (5, 2.5, 3, 5, 1),
]


@pytest.mark.parametrize(("depth", "budget", "threads", "window", "accumulate"), COMBINATIONS)
def test_depth_budget_and_threads_do_not_show(
    tmp_path: Path, depth: int, budget: float, threads: int, window: int, accumulate: int
) -> None:
    check(tmp_path, depth, budget, threads, window, accumulate)


@pytest.mark.parametrize(("depth", "threads"), [(2, 1), (5, 4)])
def test_in_memory_too(depth: int, threads: int) -> None:
    expected, _ = plain(1)
    assert train(config({"threads": threads}, depth=depth))[0] == expected


@pytest.mark.nightly
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize("budget", [1.0, 1.1, 1.5, 3.0])
@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
def test_every_combination(tmp_path: Path, depth: int, budget: float, threads: int, accumulate: int) -> None:
    for window in {1, min(2, depth), depth}:
        check(tmp_path / str(window), depth, budget, threads, window, accumulate)
