"""RowOptimizer: the embedding's update in the shape of a torch optimizer, for a training loop of one's own."""

from collections.abc import Callable, Collection
from typing import Any

import torch

from stepwell.embedding.sharded import ShardedEmbedding
from stepwell.errors import ConfigError


class RowOptimizer(torch.optim.Optimizer):
    """Each table's own optimizer for its rows, behind `step` and `zero_grad`.

    A row's rate is its table's `lr` times `lr_factor`, which is the "lr" of the one parameter group: torch's schedulers
    scale it from 1. It holds no state: that is in the rows.
    """

    def __init__(self, embedding: ShardedEmbedding, *, lr_factor: float = 1.0, frozen: Collection[str] = ()) -> None:
        """`frozen` names tables whose rows stay as they are."""
        if not isinstance(embedding, ShardedEmbedding):
            raise ConfigError(f"embedding: found a {type(embedding).__name__}, expected a ShardedEmbedding")
        super().__init__([embedding.anchor], {"lr": lr_factor})
        self.embedding = embedding
        self.frozen = tuple(frozen)

    @property
    def lr_factor(self) -> float:
        """What every table's `lr` is multiplied by."""
        return float(self.param_groups[0]["lr"])

    @lr_factor.setter
    def lr_factor(self, factor: float) -> None:
        self.param_groups[0]["lr"] = factor

    def step(
        self, closure: Callable[[], Any] | None = None, *, event_time: float | None = None, cursor: Any = None
    ) -> Any:
        """Update the rows of the batches since the last step, and commit: what they changed is the state now."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.embedding.apply(self.lr_factor, self.frozen)
        store = self.embedding.store
        store.commit(store.step + 1, event_time=event_time, cursor=cursor)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients that no step has taken."""
        self.embedding.zero_grad()
