"""ShardedEmbedding against torch: nn.EmbeddingBag's values and gradients, torch.optim's rows, touched rows only."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from stepwell.embedding import Lookup, RowOptimizer, ShardedEmbedding
from stepwell.jagged import JaggedIds
from stepwell.rows import SGD, AdaGrad, Adam, AdamW, Normal, Optimizer, TableSpec
from stepwell.store import StoreConfig, TieredStore
from tests.embedding.reference import jagged

NUM_ROWS, DIM = 30, 8
LOOKUPS = (
    Lookup(name="sum", table="t", side="user", pooling="sum", weighted=True),
    Lookup(name="mean", table="t", side="item", pooling="mean"),
    Lookup(name="list", table="t", side="item", pooling="none", max_len=4),
)


def open_store(optimizer: Optimizer) -> TieredStore:
    table = TableSpec(name="t", dim=DIM, optimizer=optimizer, initializer=Normal(std=1.0))
    return TieredStore(StoreConfig(tables=(table,), dram_bytes=16 << 20))


def batches(n: int) -> Iterator[JaggedIds]:
    random = np.random.default_rng(3)
    for _ in range(n):
        lists = [[random.integers(0, NUM_ROWS, random.integers(0, 5)).tolist() for _ in range(6)] for _ in range(3)]
        num = [sum(map(len, one)) for one in lists]
        weights = [*random.normal(size=num[0]).tolist(), *[1.0] * (num[1] + num[2])]
        yield jagged(dict(zip(("sum", "mean", "list"), lists, strict=True)), weights)


class Plain(nn.Module):
    """The same look-ups over one dense weight, which begins as the store's rows do."""

    def __init__(self, store: TieredStore) -> None:
        super().__init__()
        everything = {"t": np.arange(NUM_ROWS, dtype=np.int64)}
        first = store.tables.named("t").layout.views(store.read_rows(everything).records["t"]).weight
        self.weight = nn.Parameter(torch.from_numpy(first.copy()))

    def forward(self, ids: JaggedIds) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        (sums, sum_at), (means, mean_at), (lists, list_at) = (ids.of(name) for name in ids.features)
        weights = ids.weights[: len(sums)]
        bag = nn.functional.embedding_bag
        padded = nn.utils.rnn.pad_sequence(
            [self.weight[one] for one in lists.tensor_split(list_at[1:-1])], batch_first=True
        )
        missing = 4 - padded.shape[1]
        return (
            bag(sums, self.weight, sum_at, mode="sum", per_sample_weights=weights, include_last_offset=True),
            bag(means, self.weight, mean_at, mode="mean", include_last_offset=True),
            nn.functional.pad(padded, (0, 0, 0, missing)),
        )


def loss_of(summed: torch.Tensor, mean: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return (summed * mean).tanh().sum() + (rows.sin().sum(1) * summed).sum() + mean.square().sum()


def test_values_and_gradients_are_those_of_embedding_bag() -> None:
    with open_store(SGD(lr=1.0)) as store:
        embedding, plain = ShardedEmbedding(LOOKUPS, store), Plain(store)
        for ids in batches(5):
            before = plain.weight.detach().clone()
            user, item = embedding(ids)
            expected = plain(ids)
            found = (user.pooled, item.pooled, item.sequences["list"].values)
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other)
            assert item.sequences["list"].lengths.tolist() == ids.of("list")[1].diff().tolist()
            loss_of(*found).backward()
            loss_of(*expected).backward()
            embedding.apply()
            store.commit(store.step + 1)
            with torch.no_grad():
                plain.weight -= plain.weight.grad
            plain.weight.grad = None
            stored = store.find("t", np.arange(NUM_ROWS, dtype=np.int64))
            found, expected = torch.from_numpy(stored.weights)[stored.found], plain.weight[stored.found]
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
            torch.testing.assert_close(plain.weight[~stored.found], before[~stored.found])


def test_gradients_are_those_of_finite_differences() -> None:
    """Central differences of one row's weights, against the update of SGD with rate 1."""
    ids = next(batches(1))
    with open_store(SGD(lr=1.0)) as store:
        embedding = ShardedEmbedding(LOOKUPS, store)
        row = int(ids.of("mean")[0][0])

        def loss(change: float, column: int) -> float:
            weights = store.find("t", np.array([row], np.int64)).weights.copy()
            weights[0, column] += change
            store.insert_or_assign("t", np.array([row], np.int64), weights)
            user, item = embedding(ids)
            found = loss_of(user.pooled, item.pooled, item.sequences["list"].values)
            weights[0, column] -= change
            store.insert_or_assign("t", np.array([row], np.int64), weights)
            return found.item()

        records = store.read_rows({"t": np.array([row], np.int64)}).records["t"]
        first = np.ascontiguousarray(store.tables.named("t").layout.views(records).weight)
        store.insert_or_assign("t", np.array([row], np.int64), first)
        embedding.eval()
        slopes = [(loss(1e-2, column) - loss(-1e-2, column)) / 2e-2 for column in range(DIM)]
        before = store.find("t", np.array([row], np.int64)).weights
        embedding.train()
        user, item = embedding(ids)
        loss_of(user.pooled, item.pooled, item.sequences["list"].values).backward()
        embedding.apply()
        store.commit(1)
        after = store.find("t", np.array([row], np.int64)).weights
        np.testing.assert_allclose((before - after)[0], slopes, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize(
    ("spec", "make"),
    [
        (SGD(lr=0.05), lambda p: torch.optim.SGD(p, lr=0.05)),
        (SGD(lr=0.05, momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)),
        (
            SGD(lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1),
            lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1),
        ),
        (AdaGrad(lr=0.05), lambda p: torch.optim.Adagrad(p, lr=0.05)),
        (
            AdaGrad(lr=0.05, weight_decay=0.1, initial_accumulator=0.2),
            lambda p: torch.optim.Adagrad(p, lr=0.05, weight_decay=0.1, initial_accumulator_value=0.2),
        ),
        (Adam(lr=0.05), lambda p: torch.optim.Adam(p, lr=0.05)),
        (Adam(lr=0.05, weight_decay=0.1), lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.1)),
        (AdamW(lr=0.05, weight_decay=0.1), lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1)),
    ],
    ids=lambda case: type(case).__name__ if isinstance(case, Optimizer) else "",
)
def test_a_step_is_torchs_for_the_rows_it_touches(spec: Optimizer, make) -> None:
    """torch updates every row in each step; here those without an occurrence are put back, state and all."""
    with open_store(spec) as store:
        embedding, plain = ShardedEmbedding(LOOKUPS, store), Plain(store)
        rows, optimizer = RowOptimizer(embedding), make([plain.weight])
        for ids in batches(8):
            user, item = embedding(ids)
            loss_of(user.pooled, item.pooled, item.sequences["list"].values).backward()
            rows.step()
            optimizer.zero_grad()
            loss_of(*plain(ids)).backward()
            untouched = torch.ones(NUM_ROWS, dtype=torch.bool)
            untouched[ids.values] = False
            kept = [tensor.clone() for tensor in row_tensors(plain, optimizer)]
            optimizer.step()
            with torch.no_grad():
                now = row_tensors(plain, optimizer)
                for tensor, old in zip(now, kept or now, strict=False):
                    tensor[untouched] = old[untouched]
                for tensor in now[len(kept) :]:  # state that this step has made
                    tensor[untouched] = 0.0
            stored = store.find("t", np.arange(NUM_ROWS, dtype=np.int64))
            expected = plain.weight.detach()[torch.from_numpy(stored.found)]
            torch.testing.assert_close(torch.from_numpy(stored.weights[stored.found]), expected, rtol=1e-4, atol=1e-5)


def row_tensors(plain: Plain, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    state = optimizer.state[plain.weight]
    return [plain.weight, *(state[name] for name in sorted(state) if name != "step" and state[name] is not None)]
