"""What the sparse benchmarks of `train_cpu` share: 26 tables of 200k rows, their ids, our embedding over them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stepwell.embedding import Lookup, ShardedEmbedding
from stepwell.jagged import JaggedIds
from stepwell.rows import Optimizer, TableSpec, Zeros, mix64
from stepwell.store import StoreConfig, TieredStore

I64 = NDArray[np.int64]
F32 = NDArray[np.float32]

TABLES, ROWS, BATCH, ALPHA = 26, 200_000, 2048, 1.05
SEED = 20_240_817
LR, EPS = 0.01, 1e-8
THREADS = len(os.sched_getaffinity(0))
NAMES = tuple(f"f{table:02}" for table in range(TABLES))
OFFSETS = torch.arange(TABLES * BATCH + 1)  # one id per feature and sample


def row_numbers(round_: int, alpha: float = ALPHA) -> I64:
    """[TABLES * BATCH]: rows by a power law of exponent alpha, table after table; other ones in every round."""
    uniform = np.random.default_rng((SEED, round_)).random(TABLES * BATCH)
    reach = (ROWS + 1.0) ** (1 - alpha) - 1
    rank = ((uniform * reach + 1) ** (1 / (1 - alpha)) - 1).astype(np.int64)
    return np.clip(rank, 0, ROWS - 1) * 2_654_435_761 % ROWS  # so that ranks lie nowhere near each other


def ids_of(rows: I64) -> I64:
    """The ids of rows: 64 bits each, as hashed features have them."""
    return mix64(rows).view(np.int64)


@dataclass(frozen=True)
class Round:
    """The same batch as ours and the peer's take it."""

    number: int
    ids: JaggedIds
    rows: Tensor  # int64 [TABLES * BATCH]


def make_round(number: int) -> Round:
    rows = row_numbers(number)
    ids = JaggedIds(features=NAMES, values=torch.from_numpy(ids_of(rows)), offsets=OFFSETS)
    return Round(number, ids, torch.from_numpy(rows))


def first_weights(table: int, dim: int) -> F32:
    """[ROWS, dim]: what both sides begin with."""
    rng = np.random.default_rng((SEED, 1 << 20, table))
    return rng.uniform(-0.05, 0.05, (ROWS, dim)).astype(np.float32)


@contextmanager
def our_embedding(dim: int, optimizer: Optimizer) -> Iterator[ShardedEmbedding]:
    """All rows in DRAM, committed, with the first weights; torch has as many threads as the core."""
    specs = tuple(TableSpec(name=name, dim=dim, optimizer=optimizer, initializer=Zeros()) for name in NAMES)
    row_bytes = specs[0].layout.record_bytes + 64
    config = StoreConfig(tables=specs, dram_bytes=TABLES * (ROWS * row_bytes + (1 << 20)), threads=THREADS)
    threads_before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        with TieredStore(config) as store:
            every = ids_of(np.arange(ROWS))
            for table, name in enumerate(NAMES):
                store.insert_or_assign(name, every, first_weights(table, dim))
            yield ShardedEmbedding([Lookup(name=name, table=name, side="item") for name in NAMES], store)
    finally:
        torch.set_num_threads(threads_before)


def weights_of(embedding: ShardedEmbedding, table: int, rows: I64) -> F32:
    """What our rows are now, committed."""
    found = embedding.store.find(NAMES[table], ids_of(rows))
    return np.asarray(found.weights)


def require_close(what: str, mine: F32, theirs: F32, tolerance: float) -> None:
    """Raise ValueError where two sides differ."""
    if not np.allclose(mine, theirs, rtol=tolerance, atol=tolerance * 0.05):
        raise ValueError(f"{what}: ours and the peer's differ by up to {np.abs(mine - theirs).max()}")
