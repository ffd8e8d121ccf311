"""Cases of `benchmarks.train_cpu` about the sparse path alone, through the calls that users make.

Ours finds rows by hash and keeps whole records of a store that could evict them; the peer indexes an array. A round is
several batches one right after the other, as a training loop runs them.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness import Case, Run, Sides, Timed
from benchmarks.peers.fbgemm import FbgemmTables
from benchmarks.train_cpu_rows import (
    ALPHA,
    BATCH,
    EPS,
    LR,
    OFFSETS,
    ROWS,
    TABLES,
    THREADS,
    Round,
    first_weights,
    make_round,
    our_embedding,
    require_close,
    weights_of,
)
from stepwell.rows import RowWiseAdaGrad

_PEER = "FBGEMM CPU TBE"
_STEPS = 8  # of a round


def fbgemm_tables(dim: int) -> FbgemmTables:
    """With the first weights."""
    tables = FbgemmTables(TABLES, ROWS, dim, lr=LR, eps=EPS)
    for table in range(TABLES):
        tables.set_weights(table, first_weights(table, dim))
    return tables


def _config(dim: int) -> dict[str, Any]:
    shape = {"tables": TABLES, "rows": ROWS, "dim": dim, "batch": BATCH, "alpha": ALPHA}
    return {**shape, "threads": THREADS, "steps_per_round": _STEPS}


def _batches(round_: int) -> list[Round]:
    return [make_round(round_ * _STEPS + step) for step in range(_STEPS)]


def _side(step: Callable[[Round], Any]) -> Timed:
    """All batches of a round; the result is the last one's."""

    def call(given: list[Round]) -> Any:
        for one in given[:-1]:
            step(one)
        return step(given[-1])

    return Timed(call=call, prepare=_batches, work=_STEPS * TABLES * BATCH)


@contextmanager
def _forward(dim: int, _: Run) -> Iterator[Sides]:
    peer_tables = fbgemm_tables(dim)
    with our_embedding(dim, RowWiseAdaGrad(lr=LR, eps=EPS)) as embedding:
        embedding.eval()

        def ours(given: Round) -> Tensor:
            with torch.no_grad():
                return embedding(given.ids)[1].pooled

        def peer(given: Round) -> Tensor:
            with torch.no_grad():
                return peer_tables(given.rows, OFFSETS)

        def agree(mine: Tensor, theirs: Tensor) -> None:
            if not torch.equal(mine, theirs):
                raise ValueError("the rows looked up are not the peer's")

        yield Sides(ours=_side(ours), peer=_side(peer), agree=agree, config=_config(dim))


@contextmanager
def _train(dim: int, _: Run) -> Iterator[Sides]:
    peer_tables = fbgemm_tables(dim)
    grads = torch.empty(BATCH, TABLES * dim).normal_(0, 1e-2, generator=torch.Generator().manual_seed(1))
    with our_embedding(dim, RowWiseAdaGrad(lr=LR, eps=EPS)) as embedding:
        store = embedding.store

        def ours(given: Round) -> tuple[Round, Tensor]:
            step = store.step + 1
            fetched = embedding.fetch(embedding.route(given.ids), step)
            pooled = embedding(fetched)[1].pooled
            pooled.backward(grads)
            embedding.apply()
            store.commit(step)
            return given, pooled

        def peer(given: Round) -> Tensor:
            pooled = peer_tables(given.rows, OFFSETS)
            pooled.backward(grads)
            return pooled

        def agree(mine: tuple[Round, Tensor], theirs: Tensor) -> None:
            given, pooled = mine
            require_close("outputs", pooled.detach().numpy(), theirs.detach().numpy(), 1e-4)
            for table in range(TABLES):
                rows = given.rows.numpy()[table * BATCH : (table + 1) * BATCH]
                now = peer_tables.weights(table)[rows].detach().numpy()
                require_close(f"weights of table {table}", weights_of(embedding, table, rows), now, 1e-4)

        yield Sides(ours=_side(ours), peer=_side(peer), agree=agree, config=_config(dim))


def _cases(verb: str, setup: Callable[[int, Run], AbstractContextManager[Sides]]) -> list[Case]:
    return [
        Case(name=f"sparse_{verb}_d{dim}", setup=partial(setup, dim), unit="ids/s", peer_name=_PEER) for dim in (16, 64)
    ]


CASES = [*_cases("forward", _forward), *_cases("train", _train)]
