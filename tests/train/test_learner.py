"""What one step does: losses, gradients, accumulation, weights, tasks, what stays frozen, what is not finite."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from stepwell.data import ArraySource, BatchReader, ReaderConfig
from stepwell.embedding import SideInputs
from stepwell.errors import NotFinite
from stepwell.rows import SGD
from stepwell.store import StoreConfig, TieredStore
from stepwell.train import DenseSGD, Learner, LinearDecay, Task, TrainConfig, Trainer, Work, open_run
from tests.train.runs import FEATURES, TABLES, columns, config, exported, of_kind, parameters_of, ran, source


class BrokenNetwork(torch.nn.Module):
    """DLRM whose logits or gradients break in one step, and which counts its steps in a buffer."""

    def __init__(self, inner: torch.nn.Module, how: str, at: int) -> None:
        super().__init__()
        self.inner, self.how, self.at, self.calls = inner, how, at, 0
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, user: SideInputs, item: SideInputs) -> dict[str, Tensor]:
        if self.training:
            self.calls += 1
            self.seen += 1
        logits: dict[str, Tensor] = self.inner(user, item)
        if self.training and self.calls == self.at:
            if self.how == "loss":
                logits = {name: scores * torch.nan for name, scores in logits.items()}
            else:
                for scores in logits.values():
                    scores.register_hook(lambda grad: grad * torch.inf)
        return logits


def learner_at(made: TrainConfig, store: TieredStore, how: str, at: int) -> Learner:
    learner = Learner(made, store)
    broken = BrokenNetwork(learner.model, how, at)
    learner.replace_model(broken)  # type: ignore[arg-type]
    return learner


@pytest.mark.parametrize("how", ["loss", "gradient"])
def test_not_finite_changes_nothing(how: str) -> None:
    made = config(depth=1)
    with TieredStore(made.store) as store, BatchReader(made.train, made.features, made.labels, made.reader) as reader:
        learner = learner_at(made, store, how, at=3)
        for step, batch in enumerate(reader, 1):
            work = Work((batch,))
            work.routed = [learner.embedding.route(batch.ids)]
            work.fetched = [learner.embedding.fetch(work.routed[0], step)]
            rows = exported(store)
            dense = {name: tensor.clone() for name, tensor in learner.model.state_dict().items()}
            if step == 3:
                with pytest.raises(NotFinite, match="is nan" if how == "loss" else "gradient of a row is not"):
                    learner.learn(step, work)
                break
            learner.learn(step, work)
        assert exported(store) == rows
        assert store.step == 2
        after = learner.model.state_dict()
        assert all(torch.equal(after[name], tensor) for name, tensor in dense.items())
        assert after["seen"].item() == 2


def bad_price(rows: int, at: int) -> npt.NDArray[np.float64]:
    price = np.asarray(columns(rows)["price"]).copy()
    price[at] = 1e38
    return price


def overflowing() -> TrainConfig:
    """Step 7's third sample overflows in the first layer."""
    made = config(rows=1024, features=FEATURES)
    features = made.features.replace(
        features=tuple(
            feature.replace(log1p=False) if feature.name == "price" else feature for feature in made.features.features
        )
    )
    return made.replace(train=source(1024, price=bad_price(1024, 6 * 64 + 2)), features=features)


@pytest.mark.parametrize("depth", [1, 3])
def test_a_batch_that_is_not_finite_is_saved(tmp_path: Path, depth: int) -> None:
    made = overflowing().replace(depth=depth, optimizer=DenseSGD(lr=10.0))
    with pytest.raises(NotFinite) as caught:
        Trainer(made, tmp_path / "run").run()
    notes = " ".join(caught.value.__notes__)
    assert "bad_batch-7.npz" in notes
    assert "in stage 'compute', step 7" in notes
    saved = np.load(tmp_path / "run" / "bad_batch-7.npz")
    assert saved["dense"][2, 1] == np.float32(1e38)
    assert saved["features"].tolist() == ["user", "genres", "item", "words"]
    expected = np.asarray(columns(1024)["user"])[6 * 64 : 7 * 64]
    assert saved["ids"][saved["offsets"][0] : saved["offsets"][64]].tolist() == expected.tolist()
    with open_run(tmp_path / "run") as opened:
        assert opened.store.step == 6


def test_accumulated_batches_are_one_step() -> None:
    """With plain SGD a step of 4 x 16 samples is the step of 64, to rounding."""
    tables = tuple(spec.replace(optimizer=SGD(lr=0.5)) for spec in TABLES)
    store = StoreConfig(tables=tables, dram_bytes=4 << 20, threads=2)
    common = {"store": store, "optimizer": DenseSGD(lr=0.5), "log_every": 1}
    whole = of_kind(ran(config(reader=ReaderConfig(batch_size=64), **common)), "train")
    parts = of_kind(ran(config(reader=ReaderConfig(batch_size=16), accumulate=4, **common)), "train")
    assert len(whole) == len(parts) == 16
    for a, b in zip(whole, parts, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
        assert a["samples"] == b["samples"]


def test_the_last_step_may_have_fewer_batches() -> None:
    records = ran(config(rows=192, accumulate=2, log_every=1))
    assert [line["samples"] for line in of_kind(records, "train")] == [128, 192]


def test_sample_weights_weigh() -> None:
    """A weight of 0 is as if the label did not matter."""
    rows = 1024
    random = np.random.default_rng(1)
    weight = (random.random(rows) < 0.5).astype(np.float32)
    label = np.asarray(columns(rows)["label"])
    noise = np.where(weight > 0, label, 1 - label)
    reader = ReaderConfig(batch_size=64, sample_weight="weight")
    a = ran(config(train=source(rows, weight=weight), reader=reader))
    b = ran(config(train=source(rows, weight=weight, label=noise), reader=reader))
    assert [line["loss"] for line in of_kind(a, "train")] == [line["loss"] for line in of_kind(b, "train")]
    plain = ran(config(rows=rows))
    assert [line["loss"] for line in of_kind(plain, "train")] != [line["loss"] for line in of_kind(a, "train")]


def test_several_tasks_with_weights() -> None:
    tasks = (Task(name="click", label="label"), Task(name="bought", weight=0.25))
    line = of_kind(ran(config(tasks=tasks, log_every=16)), "train")[-1]
    assert line["loss"] == pytest.approx(sum(task["loss"] for task in line["tasks"].values()), rel=1e-6)
    assert 0.1 < line["tasks"]["bought"]["loss"] < 0.2  # a quarter of about 0.61
    assert line["auc"] == line["tasks"]["click"]["auc"]


def test_frozen_tables_and_a_frozen_model_stay(tmp_path: Path) -> None:
    made = config(frozen_tables=("items", "words"), frozen_dense=True)
    ran(made, tmp_path / "run")
    torch.manual_seed(made.seed)
    with TieredStore(made.store) as fresh:
        first = Learner(made, fresh)
        for now, before in zip(parameters_of(tmp_path / "run"), first.model.parameters(), strict=True):
            assert torch.equal(now, before)
        with open_run(tmp_path / "run") as opened:
            for table, changed in (("users", True), ("items", False), ("words", False)):
                ids = np.concatenate([ids for ids, _ in opened.store.export_batch(table)])
                born = fresh.read_rows({table: ids}).records[table]
                now = opened.store.find(table, ids).records
                weight_bytes = 8 * 4
                assert (now[:, :weight_bytes] != born[:, :weight_bytes]).any() == changed
                assert (opened.store.find(table, ids).views.count >= 1).all()


def test_rates_follow_the_schedule() -> None:
    made = config(schedule=LinearDecay(warmup_steps=4, steps=12), log_every=1)
    assert [line["lr_factor"] for line in of_kind(ran(made), "train")] == [
        made.schedule.factor(step) for step in range(1, 17)
    ]
    still = config(schedule=LinearDecay(steps=1, end_factor=0.0), log_every=8)
    losses = [line["loss"] for line in of_kind(ran(still.replace(train=same_batches())), "train")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6), "with a rate of 0 nothing moves"


def same_batches() -> ArraySource:
    once = columns(64)
    repeated = {
        name: [*values] * 16 if isinstance(values, list) else np.tile(values, 16) for name, values in once.items()
    }
    return ArraySource(columns=repeated)


def test_clipping_bounds_the_dense_step() -> None:
    made = config(optimizer=DenseSGD(lr=1.0), clip_norm=1e-3, depth=1)
    with TieredStore(made.store) as store, BatchReader(made.train, made.features, made.labels, made.reader) as reader:
        learner = Learner(made, store)
        batch = next(iter(reader))
        before = torch.cat([p.detach().reshape(-1).clone() for p in learner.model.parameters()])
        work = Work((batch,))
        work.routed = [learner.embedding.route(batch.ids)]
        work.fetched = [learner.embedding.fetch(work.routed[0], 1)]
        learner.learn(1, work)
        moved = torch.cat([p.detach().reshape(-1) for p in learner.model.parameters()]) - before
    assert moved.norm().item() == pytest.approx(1e-3, rel=1e-2)


def test_autocast_trains_in_bf16() -> None:
    plain = of_kind(ran(config()), "train")
    made = of_kind(ran(config(autocast="bf16")), "train")
    losses = [(a["loss"], b["loss"]) for a, b in zip(plain, made, strict=True)]
    assert all(a != b and a == pytest.approx(b, rel=0.02) for a, b in losses)
