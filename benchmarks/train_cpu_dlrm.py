"""Cases of `benchmarks.train_cpu` about a DLRM step: what is left of it when the dense part alone is taken off.

A round runs the dense part alone and the whole step several times, in turn; its figure is the difference of the best of
each. The dense part alone takes rows that are there already and computes their gradients too.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.harness import Case, Run, Sides
from benchmarks.train_cpu_rows import (
    ALPHA,
    BATCH,
    EPS,
    LR,
    OFFSETS,
    ROWS,
    SEED,
    TABLES,
    THREADS,
    Round,
    first_weights,
    make_round,
    our_embedding,
    require_close,
)
from benchmarks.train_cpu_sparse import fbgemm_tables
from stepwell.rows import AdaGrad, Optimizer, RowWiseAdaGrad

_DIM, _DENSE, _STEPS = 16, 13, 6  # of a round
_TORCH_EPS = 1e-10


def _layers(*sizes: int) -> list[nn.Module]:
    return [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]


class _Network(nn.Module):
    """DLRM without its tables: a bottom network, dot products of all pairs, a top network."""

    def __init__(self) -> None:
        super().__init__()
        pairs = torch.triu_indices(TABLES + 1, TABLES + 1, 1)
        self.left, self.right = pairs[0], pairs[1]
        self.bottom = nn.Sequential(*_layers(_DENSE, 64, _DIM))
        self.top = nn.Sequential(*_layers(_DIM + len(self.left), 128, 64), nn.Linear(64, 1))

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        low = self.bottom(dense)
        vectors = torch.cat([low[:, None], pooled.view(len(dense), TABLES, _DIM)], dim=1)
        dots = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.left, self.right]
        scores: Tensor = self.top(torch.cat([low, dots], dim=1)).squeeze(1)
        return scores


class _Side:
    """One contender: a network of its own, its look-up, and what updates its rows after backward."""

    def __init__(self, look_up: Callable[[Round], Tensor], update: Callable[[], None], best: dict[str, float]) -> None:
        torch.manual_seed(SEED)
        self._network, self._alone = _Network(), _Network()
        self._adam = torch.optim.Adam(self._network.parameters(), 1e-3, fused=True)
        self._adam_alone = torch.optim.Adam(self._alone.parameters(), 1e-3, fused=True)
        self._dense = torch.randn(BATCH, _DENSE)
        self._labels = (torch.rand(BATCH) < 0.25).float()
        self._there = torch.randn(BATCH, TABLES * _DIM, requires_grad=True)
        self._look_up, self._update, self._best = look_up, update, best

    def measure(self, round_: int) -> tuple[float, object]:
        """The sparse share's seconds, and the losses."""
        alone, whole, losses = [], [], []
        for number in range(_STEPS):
            given = make_round(round_ * _STEPS + number)
            start = time.perf_counter()
            self._dense_step(self._alone, self._adam_alone, self._there)
            alone.append(time.perf_counter() - start)
            self._there.grad = None
            start = time.perf_counter()
            losses.append(self._dense_step(self._network, self._adam, self._look_up(given)))
            self._update()
            whole.append(time.perf_counter() - start)
        for name, seconds in (("dense_alone_ms", min(alone)), ("step_ms", min(whole))):
            self._best[name] = min(self._best.get(name, float("inf")), seconds * 1e3)
        return max(min(whole) - min(alone), 1e-9), np.array(losses, np.float32)

    def _dense_step(self, network: _Network, adam: torch.optim.Optimizer, pooled: Tensor) -> float:
        loss = nn.functional.binary_cross_entropy_with_logits(network(self._dense, pooled), self._labels)
        loss.backward()
        adam.step()
        adam.zero_grad()
        return float(loss.detach())


def _agree(mine: object, theirs: object) -> None:
    # After 200 steps of two trainings, sums in different orders have grown to differences of that size.
    require_close("losses", np.asarray(mine), np.asarray(theirs), 5e-3)


@contextmanager
def _share(optimizer: Optimizer, peer: Callable[[dict[str, float]], _Side]) -> Iterator[Sides]:
    config: dict[str, Any] = {"tables": TABLES, "rows": ROWS, "dim": _DIM, "batch": BATCH, "alpha": ALPHA}
    config |= {"threads": THREADS, "steps_per_round": _STEPS, "ours": {}, "peer": {}}
    with our_embedding(_DIM, optimizer) as embedding:
        store = embedding.store

        def look_up(given: Round) -> Tensor:
            fetched = embedding.fetch(embedding.route(given.ids), store.step + 1)
            pooled: Tensor = embedding(fetched)[1].pooled
            return pooled

        def update() -> None:
            embedding.apply()
            store.commit(store.step + 1)

        yield Sides(ours=_Side(look_up, update, config["ours"]), peer=peer(config["peer"]), agree=_agree, config=config)


def _fbgemm_side(best: dict[str, float]) -> _Side:
    tables = fbgemm_tables(_DIM)
    return _Side(lambda given: tables(given.rows, OFFSETS), lambda: None, best)


def _torch_side(best: dict[str, float]) -> _Side:
    bags = nn.ModuleList([nn.EmbeddingBag(ROWS, _DIM, mode="sum", sparse=True) for _ in range(TABLES)])
    for table, bag in enumerate(bags):
        bag.weight.data.copy_(torch.from_numpy(first_weights(table, _DIM)))
    adagrad = torch.optim.Adagrad(bags.parameters(), LR, eps=_TORCH_EPS)

    def look_up(given: Round) -> Tensor:
        rows = given.rows.view(TABLES, BATCH, 1)
        return torch.cat([bag(some) for bag, some in zip(bags, rows, strict=True)], dim=1)

    def update() -> None:
        adagrad.step()
        adagrad.zero_grad()

    return _Side(look_up, update, best)


def _share_fbgemm(_: Run) -> Any:
    return _share(RowWiseAdaGrad(lr=LR, eps=EPS), _fbgemm_side)


def _share_torch(_: Run) -> Any:
    return _share(AdaGrad(lr=LR, eps=_TORCH_EPS), _torch_side)


CASES = [
    Case(
        name="dlrm_sparse_share_fbgemm",
        setup=_share_fbgemm,
        unit="s of a step",
        peer_name="FBGEMM CPU TBE",
        higher_is_better=False,
    ),
    Case(
        name="dlrm_sparse_share_torch",
        setup=_share_torch,
        unit="s of a step",
        peer_name="torch EmbeddingBag(sparse) + Adagrad",
        higher_is_better=False,
    ),
]
