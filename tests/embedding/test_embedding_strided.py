"""Gradients that are slices of larger tensors update rows as copies of them would."""

import numpy as np
import torch

from stepwell.embedding import Lookup, ShardedEmbedding
from stepwell.jagged import JaggedIds
from stepwell.rows import AdaGrad, TableSpec
from stepwell.store import StoreConfig, TieredStore

SPECS = tuple(TableSpec(name=name, dim=dim, optimizer=AdaGrad(lr=0.1)) for name, dim in (("a", 5), ("b", 16)))
LOOKUPS = (
    Lookup(name="one", table="a", side="item"),
    Lookup(name="two", table="b", side="item"),
    Lookup(name="seen", table="b", side="item", pooling="none", max_len=3),
)
SIZE = 40


def batch() -> JaggedIds:
    random = np.random.default_rng(7)
    lengths = np.concatenate([np.ones(2 * SIZE, np.int64), random.integers(0, 4, SIZE)])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = random.integers(-9, 9, offsets[-1])
    return JaggedIds(("one", "two", "seen"), torch.from_numpy(values), torch.from_numpy(offsets))


def trained(pooled: torch.Tensor, sequence: torch.Tensor) -> dict[str, bytes]:
    """The rows after a step whose outputs have these gradients."""
    with TieredStore(StoreConfig(tables=SPECS, dram_bytes=8 << 20, threads=2)) as store:
        embedding = ShardedEmbedding(LOOKUPS, store)
        _, item = embedding(batch())
        torch.autograd.backward([item.pooled, item.sequences["seen"].values], [pooled, sequence])
        embedding.apply()
        store.commit(1)
        return {
            spec.name: b"".join(
                record.tobytes()
                for ids, records in store.export_batch(spec.name)
                for record in records[np.argsort(ids)]
            )
            for spec in SPECS
        }


def test_slices_expanded_and_transposed() -> None:
    torch.manual_seed(3)
    wide, deep = torch.randn(SIZE, 33), torch.randn(SIZE, 5, 16)
    pooled, sequence = wide[:, 4:25], deep[:, 1:4]
    expected = trained(pooled.contiguous(), sequence.contiguous())
    assert trained(pooled, sequence) == expected
    assert trained(pooled.t().contiguous().t(), sequence.transpose(1, 2).contiguous().transpose(1, 2)) == expected
    row = torch.randn(1, 21)
    assert trained(row.expand(SIZE, 21), sequence) == trained(row.repeat(SIZE, 1), sequence)
    assert trained(torch.ones(()).expand(SIZE, 21), sequence) == trained(torch.ones(SIZE, 21), sequence)
    assert trained(row.expand(SIZE, 21), sequence) != expected
