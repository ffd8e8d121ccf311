"""Fetching ahead, from threads, over any budgets: the bits of a plain loop with all rows in DRAM."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from queue import Queue
from threading import Event, Thread

import numpy as np
import pytest
import torch

from stepwell.embedding import Fetched, Lookup, ShardedEmbedding
from stepwell.jagged import JaggedIds
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
from stepwell.store import TieredStore
from tests.embedding.rig import open_store, random_ids, state_of
from tests.store.test_exact import POOL

BATCH, STEPS = 6, 40
LOOKUPS = (
    Lookup(name="clicked", table="items", side="user", pooling="none", max_len=3),
    Lookup(name="liked", table="items", side="user", pooling="mean", max_len=4),
    Lookup(name="user", table="users", side="user", max_len=1),
    Lookup(name="words", table="words", side="item", max_len=5),
)
ONE_BATCH = BATCH * 7 + BATCH * 5  # rows of items and words at most, which share a layout
Run = tuple[list[float], dict[str, dict[int, bytes]]]


def tables(optimizer: Optimizer, *, policies: bool = True) -> tuple[TableSpec, ...]:
    specs = (
        TableSpec(name="items", dim=6, optimizer=optimizer, initializer=Normal(std=0.3)),
        TableSpec(name="users", dim=9, optimizer=optimizer, initializer=Normal(std=0.3), weight_dtype="bf16"),
        TableSpec(name="words", dim=6, optimizer=optimizer, initializer=Normal(std=0.3)),
    )
    if not policies:
        return specs
    items, users, words = specs
    return (
        items.replace(admission=MinCount(n=2), eviction=LFU(decay_steps=7), expiry=(TTL(steps=6), MaxRows(n=60))),
        users.replace(admission=Probability(p=0.6), expiry=(TTL(seconds=9.0), L2Below(norm=0.6))),
        words.replace(expiry=(MaxRows(n=45, by="lfu"),)),
    )


def loss_of(embedding: ShardedEmbedding, batch: JaggedIds | Fetched) -> torch.Tensor:
    user, item = embedding(batch)
    clicked = user.sequences["clicked"]
    together = user.pooled[:, :6] * item.pooled + clicked.values.sum(1)
    return together.tanh().sum() + (user.pooled[:, 6:].sin().sum(1) * clicked.lengths).sum()


def compute(embedding: ShardedEmbedding, batch: JaggedIds | Fetched) -> float:
    step = embedding.store.step + 1
    loss = loss_of(embedding, batch)
    loss.backward()
    embedding.apply(lr_factor=1.0 / (1 + step % 3))
    embedding.store.commit(step, event_time=step * 1.1 - step % 3)
    return loss.item()


def plainly(specs: tuple[TableSpec, ...], batches: Iterable[JaggedIds]) -> Run:
    with ExitStack() as exit_stack:
        store = open_store(specs, exit_stack, threads=1)
        embedding = ShardedEmbedding(LOOKUPS, store)
        return [compute(embedding, ids) for ids in batches], state_of(store)


def fetched_ahead(
    embedding: ShardedEmbedding, batches: list[JaggedIds], window: int, depth: int
) -> Iterator[Fetched | BaseException]:
    """`depth` batches wait at most; another thread routes and fetches, `window` of them in a call."""
    waiting: Queue[Fetched | BaseException | None] = Queue(maxsize=depth)

    def work() -> None:
        try:
            for first in range(0, len(batches), window):
                some = enumerate(batches[first : first + window], first + 1)
                for fetched in embedding.fetch_window([(embedding.route(ids), step) for step, ids in some]):
                    waiting.put(fetched)
        except BaseException as error:
            waiting.put(error)
        waiting.put(None)

    thread = Thread(target=work)
    thread.start()
    while (fetched := waiting.get()) is not None:
        yield fetched
    thread.join()


def pipelined(
    specs: tuple[TableSpec, ...], batches: list[JaggedIds], *, rows: int, threads: int, depth: int, window: int
) -> Run:
    with ExitStack() as exit_stack:
        store = open_store(specs, exit_stack, rows=rows, threads=threads)
        embedding = ShardedEmbedding(LOOKUPS, store)
        done = Event()
        reader = Thread(target=read_meanwhile, args=(store, batches, done))
        reader.start()
        losses = []
        try:
            for fetched in fetched_ahead(embedding, batches, window, depth):
                if isinstance(fetched, BaseException):
                    raise fetched
                losses.append(compute(embedding, fetched))
        finally:
            done.set()
            reader.join()
        if rows:
            assert store.stats().counters["evicted"] > 0
        return losses, state_of(store)


def read_meanwhile(store: TieredStore, batches: list[JaggedIds], done: Event) -> None:
    embedding = ShardedEmbedding(LOOKUPS, store).eval()
    for ids in batches * 100:
        if done.wait(0.002):
            return
        embedding(ids)


def check(specs: tuple[TableSpec, ...], seed: int, **settings: int) -> None:
    batches = [random_ids(LOOKUPS, BATCH, 1000 * seed + step, POOL) for step in range(STEPS)]
    (losses, state), (expected_losses, expected) = pipelined(specs, batches, **settings), plainly(specs, batches)
    np.testing.assert_array_equal(losses, expected_losses)
    assert state == expected


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("rows", [0, ONE_BATCH], ids=["dram", "one_batch"])
def test_depth_and_budget_do_not_show(depth: int, rows: int) -> None:
    check(tables(Adam(lr=0.05)), depth, rows=rows, threads=1 + depth % 4, depth=depth, window=1 + depth // 2)


@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(lr=0.1, momentum=0.9),
        AdaGrad(lr=0.1),
        RowWiseAdaGrad(lr=0.1),
        MomentumScaledRowWiseAdaGrad(lr=0.1, scale=2.0),
        AdamW(lr=0.05, weight_decay=0.1),
        RowWiseAdam(lr=0.05),
        FTRL(alpha=0.1, l1=0.01),
        LAMB(lr=0.05),
    ],
    ids=lambda spec: type(spec).__name__,
)
def test_every_optimizer(optimizer: Optimizer) -> None:
    check(tables(optimizer), 1, rows=2 * ONE_BATCH, threads=3, depth=3, window=2)


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_threads_do_not_show(threads: int) -> None:
    check(tables(AdaGrad(lr=0.1), policies=False), threads, rows=ONE_BATCH, threads=threads, depth=4, window=4)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(40))
def test_many_pipelines(seed: int) -> None:
    random = np.random.default_rng(seed)
    optimizer = (Adam(lr=0.05), AdaGrad(lr=0.1), SGD(lr=0.1, momentum=0.9), FTRL())[seed % 4]
    depth, window, threads = (int(n) for n in random.integers(1, 6, 3))
    rows = ONE_BATCH + int(random.integers(0, 60))
    check(tables(optimizer, policies=seed % 3 > 0), 100 + seed, rows=rows, threads=threads, depth=depth, window=window)


@pytest.mark.parametrize("window", [1, 3, 4, 6, 24])
def test_a_step_in_several_fetched_parts(window: int) -> None:
    """Accumulation over batches that were fetched ahead, windows that cut steps included: the same as over ids."""
    specs = tables(Adam(lr=0.05))
    batches = [random_ids(LOOKUPS, BATCH, step, POOL) for step in range(24)]
    states = []
    for rows in (0, 3 * ONE_BATCH):
        with ExitStack() as exit_stack:
            store = open_store(specs, exit_stack, rows=rows)
            embedding = ShardedEmbedding(LOOKUPS, store)
            steps = [1 + part // 3 for part in range(24)]
            ahead: Iterable[JaggedIds | Fetched] = batches
            if rows:
                routed = [(embedding.route(ids), step) for ids, step in zip(batches, steps, strict=True)]
                windows = (routed[first : first + window] for first in range(0, 24, window))
                ahead = (fetched for some in windows for fetched in embedding.fetch_window(some))
            for number, part in enumerate(ahead, 1):
                loss_of(embedding, part).backward()
                if number % 3 == 0:
                    embedding.apply()
                    store.commit(store.step + 1, event_time=float(number))
            states.append(state_of(store))
    assert states[0] == states[1]
