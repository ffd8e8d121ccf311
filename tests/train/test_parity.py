"""The same data, first rows, dense weights and schedule in plain PyTorch: the same losses, the same AUC.

Losses differ by about 2e-7, relatively. A ReLU whose input is zero but for rounding may open in one of the two alone;
small networks, rates and gradients that an optimizer scales keep what follows from that below 1e-4.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from stepwell.data import (
    Batch,
    BatchReader,
    DenseFeature,
    FeatureSet,
    IdFeature,
    ReaderConfig,
    SequenceFeature,
    SyntheticSource,
    criteo_features,
)
from stepwell.embedding import ShardedEmbedding, lookups
from stepwell.models import BST, DLRM, ModelConfig
from stepwell.rows import AdaGrad, Adam, Normal, Optimizer, TableSpec
from stepwell.store import StoreConfig, TieredStore
from stepwell.train.comparison import auc_difference
from stepwell.train.metrics import BinaryMetrics
from tests.train.plain_torch import PlainBST, PlainDLRM, Tables

STEPS, BATCH, SEED, DIM = 200, 128, 11, 8
EVALUATED = 10_000


@dataclass(frozen=True)
class Case:
    """One model on one data set, and its plain twin as a function of (batch, vectors by feature)."""

    source: SyntheticSource
    features: FeatureSet
    config: ModelConfig
    optimizer: Optimizer
    torch_optimizer: Callable[..., torch.optim.Optimizer]
    plain: nn.Module
    score: Callable[[nn.Module, Batch, dict[str, Tensor]], Tensor]


@pytest.fixture(autouse=True)
def one_thread():
    """Networks this small only wait for a second one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def source(shape: str) -> SyntheticSource:
    return SyntheticSource(
        rows=STEPS * BATCH + EVALUATED, shape=shape, vocabulary=3000, max_history=8 if shape == "sequence" else 0
    )


def dlrm(optimizer: Optimizer, torch_optimizer: Callable[..., torch.optim.Optimizer]) -> Case:
    features = criteo_features(num_user_cats=12)
    return Case(
        source=source("criteo"),
        features=features,
        config=DLRM(bottom=(8,), top=(16,)),
        optimizer=optimizer,
        torch_optimizer=torch_optimizer,
        plain=PlainDLRM(lookups(features), (6, 7), DIM, 8, 16),
        score=lambda plain, batch, vectors: plain(batch.dense, vectors),
    )


def bst(optimizer: Optimizer, torch_optimizer: Callable[..., torch.optim.Optimizer]) -> Case:
    features = FeatureSet(
        features=(
            IdFeature(name="user", side="user", column="user", table="user"),
            SequenceFeature(name="items", side="user", column="history", table="item", max_len=8),
            SequenceFeature(name="categories", side="user", column="history_category", table="category", max_len=8),
            IdFeature(name="item", side="item", column="item", table="item"),
            IdFeature(name="category", side="item", column="category", table="category"),
            DenseFeature(name="price", side="item", columns=("price",), log1p=True),
        )
    )

    def score(plain: nn.Module, batch: Batch, vectors: dict[str, Tensor]) -> Tensor:
        history = torch.cat([vectors["items"], vectors["categories"]], 2)
        target = torch.cat([vectors["item"], vectors["category"]], 1)
        lengths = batch.ids.of("items")[1].diff()
        return plain(vectors["user"], history, lengths, torch.cat([batch.dense, target], 1), target)

    return Case(
        source=source("sequence"),
        features=features,
        config=BST(behaviours={"items": "item", "categories": "category"}, num_blocks=2, feed_forward=8, deep=(16,)),
        optimizer=optimizer,
        torch_optimizer=torch_optimizer,
        plain=PlainBST(1 + 3 * DIM, 2 * DIM, 8, 2, 8, 16),
        score=score,
    )


def lr_factor(step: int) -> float:
    """Up for 40 steps, then down."""
    return min(step / 40, 1.0) * 0.995 ** max(step - 40, 0)


def train_ours(case: Case, specs: tuple[TableSpec, ...], batches: list[Batch], held_out: list[Batch]):
    """(losses, logits of what is held out); the plain model has our first weights afterwards."""
    with TieredStore(StoreConfig(tables=specs, dram_bytes=64 << 20, seed=SEED, threads=2)) as store:
        dense = case.features.dense_dims
        embedding = ShardedEmbedding(lookups(case.features), store, (dense["user"], dense["item"]))
        torch.manual_seed(SEED)
        model = case.config.build(embedding.user_spec, embedding.item_spec, ("click",))
        case.plain.weights_of(model)
        optimizer = torch.optim.Adam(model.parameters(), 2e-3)
        losses = []
        for step, batch in enumerate(batches, 1):
            logits = model(*embedding(batch.ids, batch.dense))["click"]
            loss = nn.functional.binary_cross_entropy_with_logits(logits, batch.labels[:, 0])
            optimizer.zero_grad()
            loss.backward()
            set_rate(optimizer, 2e-3 * lr_factor(step))
            optimizer.step()
            embedding.apply(lr_factor(step))
            store.commit(step)
            losses.append(loss.item())
        embedding.eval()
        with torch.no_grad():
            return losses, torch.cat([model(*embedding(batch.ids, batch.dense))["click"] for batch in held_out])


def train_plain(case: Case, specs: tuple[TableSpec, ...], batches: list[Batch], held_out: list[Batch]):
    tables = Tables(specs, lookups(case.features), [*batches, *held_out], SEED)
    of_rows = case.torch_optimizer([bag.weight for bag in tables.bags.values()], case.optimizer.lr)
    optimizer = torch.optim.Adam(case.plain.parameters(), 2e-3)
    losses = []
    for step, batch in enumerate(batches, 1):
        logits = case.score(case.plain, batch, tables(batch))
        loss = nn.functional.binary_cross_entropy_with_logits(logits, batch.labels[:, 0])
        for one, rate in ((of_rows, case.optimizer.lr), (optimizer, 2e-3)):
            one.zero_grad()
            set_rate(one, rate * lr_factor(step))
        loss.backward()
        of_rows.step()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        return losses, torch.cat([case.score(case.plain, batch, tables(batch)) for batch in held_out])


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


@pytest.mark.filterwarnings("ignore:.*[Ss]parse.*invariant.*:UserWarning")
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: dlrm(AdaGrad(lr=0.05), torch.optim.Adagrad), id="DLRM-AdaGrad"),
        pytest.param(lambda: bst(AdaGrad(lr=0.05), torch.optim.Adagrad), id="BST-AdaGrad"),
        # SparseAdam adds eps before it corrects the bias, torch.optim.Adam and ours after: a small one is the same.
        pytest.param(lambda: bst(Adam(lr=0.005, eps=1e-12), partial(torch.optim.SparseAdam, eps=1e-12)), id="BST-Adam"),
    ],
)
def test_same_losses_and_auc_as_plain_torch(make):
    case = make()
    batches = list(BatchReader(case.source, case.features, ["click"], ReaderConfig(batch_size=BATCH)))
    batches, held_out = batches[:STEPS], batches[STEPS:]
    tables = dict.fromkeys(one.table for one in lookups(case.features))
    specs = tuple(
        TableSpec(name=name, dim=DIM, optimizer=case.optimizer, initializer=Normal(std=0.05)) for name in tables
    )
    losses, logits = train_ours(case, specs, batches, held_out)
    plain_losses, plain_logits = train_plain(case, specs, batches, held_out)

    np.testing.assert_allclose(losses, plain_losses, rtol=1e-4)
    assert np.mean(losses[-20:]) < np.mean(losses[:20]) - 0.005  # it learned something
    labels = torch.cat([batch.labels[:, 0] for batch in held_out])
    areas = []
    for found in (logits, plain_logits):
        metrics = BinaryMetrics()
        metrics.update(found, labels)
        areas.append(metrics.compute()["auc"])
    difference, error = auc_difference(labels, logits, plain_logits)
    print(f"AUC {areas[0]:.5f}, plain torch {areas[1]:.5f}, difference {difference:.2e} +- {error:.1e}")
    assert areas[0] > 0.55
    assert abs(difference) < 5e-4 and areas[0] - areas[1] == pytest.approx(difference, abs=1e-5)
