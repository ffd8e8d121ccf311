"""RowOptimizer: `apply` and `commit` in the shape of a torch optimizer."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from stepwell.embedding import Lookup, RowOptimizer, ShardedEmbedding
from stepwell.errors import ConfigError
from stepwell.rows import SGD, TTL, Constant, TableSpec
from stepwell.store import StoreConfig, TieredStore
from tests.embedding.reference import jagged

ONE = np.array([1], np.int64)
IDS = jagged({"slow": [[1]], "fast": [[1]]})


@pytest.fixture
def embedding() -> Iterator[ShardedEmbedding]:
    tables = (
        TableSpec(name="slow", dim=1, initializer=Constant(value=0.0), optimizer=SGD(lr=1.0)),
        TableSpec(name="fast", dim=1, initializer=Constant(value=0.0), optimizer=SGD(lr=4.0)),
    )
    with TieredStore(StoreConfig(tables=tables, dram_bytes=8 << 20)) as store:
        yield ShardedEmbedding([Lookup(name=name, table=name, side="item") for name in IDS.features], store)


def weights(embedding: ShardedEmbedding) -> tuple[float, float]:
    """Both rows; each has moved by its table's rate, as every gradient is -1."""
    return tuple(float(embedding.store.find(name, ONE).weights[0, 0]) for name in ("slow", "fast"))


def loss(embedding: ShardedEmbedding) -> torch.Tensor:
    return -embedding(IDS)[1].pooled.sum()


def test_a_step_updates_and_commits(embedding: ShardedEmbedding) -> None:
    optimizer = RowOptimizer(embedding)
    for step in (1, 2):
        optimizer.zero_grad()
        loss(embedding).backward()
        assert optimizer.step(cursor={"row": step}) is None
        assert embedding.store.step == step
        assert embedding.store.cursor == {"row": step}
        assert weights(embedding) == (step, 4.0 * step)  # a rate for each table


def test_the_factor_scales_every_tables_rate(embedding: ShardedEmbedding) -> None:
    optimizer = RowOptimizer(embedding, lr_factor=0.5)
    loss(embedding).backward()
    optimizer.step()
    optimizer.lr_factor = 0.25
    loss(embedding).backward()
    optimizer.step()
    assert weights(embedding) == (0.75, 3.0)
    assert optimizer.lr_factor == 0.25


def test_torchs_schedulers_set_the_factor(embedding: ShardedEmbedding) -> None:
    optimizer = RowOptimizer(embedding)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    for _ in range(3):
        loss(embedding).backward()
        optimizer.step()
        schedule.step()
    assert weights(embedding) == (1.75, 7.0)
    assert optimizer.lr_factor == 0.125


def test_a_closure_gives_the_loss(embedding: ShardedEmbedding) -> None:
    def closure() -> torch.Tensor:
        found = loss(embedding)
        found.backward()
        return found

    with torch.no_grad():
        assert RowOptimizer(embedding).step(closure).item() == 0.0
    assert weights(embedding) == (1.0, 4.0)


def test_zero_grad_drops_what_backward_left(embedding: ShardedEmbedding) -> None:
    optimizer = RowOptimizer(embedding)
    loss(embedding).backward()
    optimizer.zero_grad()
    with pytest.raises(ConfigError, match="apply: found no gradients"):
        optimizer.step()
    assert embedding.store.step == 0
    for _ in range(2):  # two passes without it: accumulation
        loss(embedding).backward()
    optimizer.step()
    assert weights(embedding) == (2.0, 8.0)


def test_frozen_tables_keep_their_rows(embedding: ShardedEmbedding) -> None:
    optimizer = RowOptimizer(embedding, frozen=("fast",))
    loss(embedding).backward()
    optimizer.step()
    assert weights(embedding) == (1.0, 0.0)
    optimizer.frozen = ()
    loss(embedding).backward()
    optimizer.step()
    assert weights(embedding) == (2.0, 4.0)


def test_event_time_reaches_the_commit() -> None:
    table = TableSpec(name="t", dim=1, optimizer=SGD(lr=1.0), expiry=(TTL(seconds=5.0),))
    with TieredStore(StoreConfig(tables=(table,), dram_bytes=8 << 20)) as store:
        embedding = ShardedEmbedding([Lookup(name="f", table="t", side="user")], store)
        optimizer = RowOptimizer(embedding)
        for row, seconds in ((1, 0.0), (2, 4.0), (3, 8.0)):
            embedding(jagged({"f": [[row]]}))[0].pooled.sum().backward()
            optimizer.step(event_time=seconds)
        assert store.find("t", np.array([1, 2, 3], np.int64)).found.tolist() == [False, True, True]


def test_the_dense_network_trains_beside_it(embedding: ShardedEmbedding) -> None:
    """Gradients of dense weights and rows come from one backward; the embedding itself has no parameters."""
    network = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.constant_(network.weight, -0.5)
    assert list(embedding.parameters()) == []
    assert embedding.state_dict() == {}
    dense, rows = torch.optim.SGD(network.parameters(), lr=0.25), RowOptimizer(embedding)
    for expected in ((0.5, 2.0), (1.0, 4.0), (1.625, 8.0)):  # by 0.5, 0.5, (0.625, 1)
        network(embedding(IDS)[1].pooled).sum().backward()
        dense.step()
        rows.step()
        dense.zero_grad()
        assert weights(embedding) == expected
    assert network.weight.tolist() == [[-0.875, -2.0]]
