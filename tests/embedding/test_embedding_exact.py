"""ShardedEmbedding against the reference, bit for bit: every optimizer, dtype, pooling and policy, in every tier."""

from contextlib import ExitStack

import numpy as np
import pytest
import torch

from stepwell.embedding import Lookup, ShardedEmbedding
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
    Normal,
    Optimizer,
    Probability,
    RowWiseAdaGrad,
    RowWiseAdam,
    TableSpec,
)
from tests.embedding.reference import Reference, jagged
from tests.embedding.rig import both_backward, open_store, random_ids, state_of
from tests.store.test_exact import POOL as IDS

SEED = 7
OPTIMIZERS = (
    SGD(lr=0.1),
    SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    AdaGrad(lr=0.1, weight_decay=0.01),
    RowWiseAdaGrad(lr=0.1, max_row_norm_grad=1.0),
    MomentumScaledRowWiseAdaGrad(lr=0.1, scale=4.0),
    Adam(lr=0.02, weight_decay=0.01),
    AdamW(lr=0.02, weight_decay=0.1),
    RowWiseAdam(lr=0.02, max_row_norm_grad=2.0),
    FTRL(alpha=0.2, l1=0.01, l2=0.1),
    LAMB(lr=0.02, weight_decay=0.1),
)
LOOKUPS = (
    Lookup(name="clicked", table="items", side="user", pooling="none", max_len=4),
    Lookup(name="liked", table="items", side="user", pooling="mean"),
    Lookup(name="user", table="users", side="user", max_len=1),
    Lookup(name="item", table="items", side="item", max_len=1),
    Lookup(name="words", table="words", side="item", pooling="sum", max_len=6),
    Lookup(name="tags", table="words", side="item", pooling="none", max_len=2),
)
WEIGHTED = tuple(one.replace(weighted=True) for one in LOOKUPS)


def tables(optimizer: Optimizer) -> tuple[TableSpec, ...]:
    """Dims that are whole vectors and dims that are not, every weight dtype."""
    return (
        TableSpec(name="items", dim=8, optimizer=optimizer, initializer=Normal(std=0.3)),
        TableSpec(name="users", dim=5, optimizer=optimizer, weight_dtype="bf16"),
        TableSpec(name="words", dim=19, optimizer=optimizer, weight_dtype="fp16", initializer=Normal(std=0.1)),
    )


def train(specs: tuple[TableSpec, ...], lookups: tuple[Lookup, ...], *, rows: int, steps: int = 12) -> None:
    with ExitStack() as exit_stack:
        store = open_store(specs, exit_stack, rows=rows, seed=SEED)
        embedding, reference = ShardedEmbedding(lookups, store), Reference(specs, lookups, SEED)
        for step in range(1, steps + 1):
            ids = random_ids(lookups, 6, step, IDS, weights=lookups is WEIGHTED)
            factor = 1.0 / step
            both_backward(embedding, reference, ids, step)
            embedding.apply(lr_factor=factor)
            reference.apply(lr_factor=factor)
            store.commit(step, event_time=float(step))
            reference.commit(float(step))
            assert state_of(store) == reference.model.rows, f"after step {step}"
        if rows:
            assert store.stats().counters["evicted"] > 0


@pytest.mark.parametrize("rows", [0, 72], ids=["dram", "ssd"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda spec: type(spec).__name__)
def test_every_optimizer_in_every_tier(optimizer: Optimizer, rows: int) -> None:
    train(tables(optimizer), LOOKUPS, rows=rows)


@pytest.mark.parametrize("rows", [0, 72], ids=["dram", "ssd"])
def test_weights_of_ids(rows: int) -> None:
    train(tables(RowWiseAdaGrad(lr=0.1)), WEIGHTED, rows=rows)


@pytest.mark.parametrize("rows", [0, 72], ids=["dram", "ssd"])
def test_policies(rows: int) -> None:
    items, users, words = tables(Adam(lr=0.05))
    specs = (
        items.replace(admission=MinCount(n=2), eviction=LFU(decay_steps=5), expiry=(TTL(steps=3), MaxRows(n=40))),
        users.replace(admission=Probability(p=0.5), expiry=(TTL(seconds=4.0), L2Below(norm=0.02))),
        words.replace(expiry=(MaxRows(n=30, by="lfu"),)),
    )
    train(specs, LOOKUPS, rows=rows, steps=25)


@pytest.mark.parametrize("rows", [0, 150], ids=["dram", "ssd"])
def test_accumulation(rows: int) -> None:
    """A step of several batches: each row's gradients are summed by batch, and updated once."""
    specs = tables(Adam(lr=0.02, max_row_norm_grad=1.0))
    with ExitStack() as exit_stack:
        store = open_store(specs, exit_stack, rows=rows, seed=SEED)
        embedding, reference = ShardedEmbedding(LOOKUPS, store), Reference(specs, LOOKUPS, SEED)
        for step in range(1, 9):
            for part in range(1 + step % 3):
                ids = random_ids(LOOKUPS, 4, 10 * step + part, IDS)
                both_backward(embedding, reference, ids, 10 * step + part)
            for one in (embedding, reference):
                one.apply(lr_factor=0.5)
            store.commit(step)
            reference.commit()
            assert state_of(store) == reference.model.rows, f"after step {step}"


def test_several_backward_passes_of_one_forward_are_added_in_their_order() -> None:
    specs = tables(SGD(lr=1.0))
    ids = random_ids(LOOKUPS, 8, 3, IDS)
    with ExitStack() as exit_stack:
        store = open_store(specs, exit_stack)
        embedding, reference = ShardedEmbedding(LOOKUPS, store), Reference(specs, LOOKUPS)
        _, item = embedding(ids)
        reference.forward(ids)
        for scale in (1.0, 3.0):
            pooled = torch.full_like(item.pooled, scale / 3)
            torch.autograd.backward([item.pooled], [pooled], retain_graph=True)
            reference.backward(ids, {"item": pooled[:, :8].numpy(), "words": pooled[:, 8:].numpy()})
        embedding.apply()
        reference.apply()
        store.commit(1)
        reference.commit()
        assert state_of(store) == reference.model.rows


def test_long_rows_are_summed_in_chunks() -> None:
    lookups = (Lookup(name="a", table="t", side="item"), Lookup(name="b", table="t", side="item", pooling="mean"))
    specs = (TableSpec(name="t", dim=3, optimizer=SGD(lr=0.1)),)
    ids = jagged({"a": [[5] * 100, [5, 6] * 90], "b": [[6] * 77, [5] * 33]})
    with ExitStack() as exit_stack:
        store = open_store(specs, exit_stack)
        embedding, reference = ShardedEmbedding(lookups, store), Reference(specs, lookups)
        both_backward(embedding, reference, ids, 1)
        embedding.apply()
        reference.apply()
        store.commit(1)
        reference.commit()
        assert state_of(store) == reference.model.rows


@pytest.mark.parametrize("accumulated", [False, True])
def test_frozen_tables_keep_their_weights_and_state(accumulated: bool) -> None:
    specs = tables(Adam(lr=0.1))
    with ExitStack() as exit_stack:
        store = open_store(specs, exit_stack)
        embedding, reference = ShardedEmbedding(LOOKUPS, store), Reference(specs, LOOKUPS)
        for step in range(1, 5):
            for part in range(1 + accumulated):
                both_backward(embedding, reference, random_ids(LOOKUPS, 5, step, IDS), step + part)
            frozen = ("items", "words")[: step - 1]
            embedding.apply(frozen=frozen)
            reference.apply(frozen=frozen)
            store.commit(step)
            reference.commit()
            assert state_of(store) == reference.model.rows, f"after step {step}"


def test_tables_that_no_gradient_reached_stay_as_they_are() -> None:
    specs = tables(SGD(lr=0.1, weight_decay=0.5))
    ids = jagged({"clicked": [[1]], "liked": [[2]], "user": [[3]], "item": [[4]], "words": [[5]], "tags": [[6]]})
    with ExitStack() as exit_stack:
        store = open_store(specs, exit_stack)
        embedding, reference = ShardedEmbedding(LOOKUPS, store), Reference(specs, LOOKUPS)
        user, _ = embedding(ids)
        outputs = reference.forward(ids)
        user.sequences["clicked"].values.sum().backward()
        reference.backward(ids, {"clicked": np.ones_like(outputs["clicked"])})
        embedding.apply()
        reference.apply()
        store.commit(1)
        reference.commit()
        assert state_of(store) == reference.model.rows


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_do_not_show(threads: int) -> None:
    specs = tables(RowWiseAdaGrad(lr=0.1))
    with ExitStack() as exit_stack:
        stores = [open_store(specs, exit_stack, threads=n, seed=SEED) for n in (2, threads)]
        embeddings = [ShardedEmbedding(LOOKUPS, store) for store in stores]
        for step in range(1, 4):
            ids = random_ids(LOOKUPS, 500, step, range(4000))
            for embedding, store in zip(embeddings, stores, strict=True):
                user, item = embedding(ids)
                (user.pooled.square().sum() + item.pooled.square().sum()).backward()
                embedding.apply()
                store.commit(step)
        assert state_of(stores[0]) == state_of(stores[1])
