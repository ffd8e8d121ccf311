"""Learner: what one step does to the rows and to the dense model; Scorer: the part of it that only reads."""

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepwell.data import Batch
from stepwell.embedding import Fetched, ShardedEmbedding, lookups
from stepwell.embedding.plan import RoutedIds
from stepwell.errors import NotFinite
from stepwell.models import RankingModel
from stepwell.store import TieredStore
from stepwell.train.config import TrainConfig
from stepwell.train.loss import task_losses


@dataclass(slots=True)
class Work:
    """One step's way through the stages: each adds its part."""

    batches: tuple[Batch, ...]  # more than one: their gradients are accumulated
    routed: list[RoutedIds] = field(default_factory=list)
    fetched: list[Fetched] = field(default_factory=list)
    logits: list[dict[str, Tensor]] = field(default_factory=list)  # detached, before the step's update
    losses: tuple[float, ...] = ()  # by task, weights included
    loss: float = math.nan
    lr_factor: float = math.nan

    @property
    def num_samples(self) -> int:
        """Of all batches."""
        return sum(batch.size for batch in self.batches)


@dataclass(frozen=True, slots=True)
class Scorer:
    """A model over its embedding. It is one thread's."""

    config: TrainConfig
    embedding: ShardedEmbedding
    model: RankingModel

    def train(self) -> None:
        """Rows are trained, dropout drops."""
        self.embedding.train()
        self.model.train()

    def eval(self) -> None:
        """Rows are read, nothing changes."""
        self.embedding.eval()
        self.model.eval()

    def score(self, batch: Batch, rows: Fetched) -> dict[str, Tensor]:
        """Each task's logits."""
        user, item = self.embedding(rows, batch.dense)
        with self._autocast():
            logits: dict[str, Tensor] = self.model(user, item)
        return logits

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.config.autocast == "off":
            return nullcontext()
        return torch.autocast("cpu", torch.bfloat16)


def embedding_of(config: TrainConfig, store: TieredStore) -> ShardedEmbedding:
    """The features' rows in a store."""
    dense = config.features.dense_dims
    return ShardedEmbedding(lookups(config.features), store, dense=(dense["user"], dense["item"]))


class Learner:
    """REQUIRES: one thread, in step order. The same config and steps make the same bits.

    The dense model's first weights, and its dropout, come from torch's generator, which this seeds.
    """

    def __init__(self, config: TrainConfig, store: TieredStore) -> None:
        """ConfigError where the model does not fit the features."""
        self.config = config
        self.store = store
        self.embedding = embedding_of(config, store)
        torch.manual_seed(config.seed)
        self.replace_model(config.model.build(self.embedding.user_spec, self.embedding.item_spec, config.task_names))

    def replace_model(self, model: RankingModel) -> None:
        """Train this model, with a new optimizer, in place of the config's."""
        config = self.config
        self.model = model
        self.scorer = Scorer(config, self.embedding, self.model)
        if config.frozen_dense:
            self.model.requires_grad_(False)
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = config.optimizer.build(self.parameters) if self.parameters else None
        self._rates = [group["lr"] for group in self.optimizer.param_groups] if self.optimizer is not None else []
        self._has_buffers = next(self.model.buffers(), None) is not None
        self.scorer.train()

    def learn(self, step: int, work: Work) -> None:
        """Forward and backward; if all is finite: rows, commit, dense model. NotFinite has changed nothing."""
        buffers = [buffer.clone() for buffer in self.model.buffers()] if self._has_buffers else []
        try:
            self._backward(work)
            self._check_gradients()
        except NotFinite:
            for buffer, before in zip(self.model.buffers(), buffers, strict=False):
                buffer.copy_(before)
            raise
        work.lr_factor = self.config.schedule.factor(step)
        self.embedding.apply(lr_factor=work.lr_factor, frozen=self.config.frozen_tables)
        self.store.commit(step, event_time=self._event_time(work), cursor=work.batches[-1].cursor)
        if self.optimizer is not None:
            for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate * work.lr_factor
            self.optimizer.step()
            self.optimizer.zero_grad()

    def _backward(self, work: Work) -> None:
        num_samples = work.num_samples
        sums = [0.0] * len(self.config.tasks)
        for batch, rows in zip(work.batches, work.fetched, strict=True):
            logits = self.scorer.score(batch, rows)
            parts = task_losses(self.config.tasks, logits, batch, num_samples)
            for i, part in enumerate(parts):
                sums[i] += part.item()
                if not math.isfinite(sums[i]):
                    raise NotFinite(f"the loss of task {self.config.tasks[i].name!r} is {part.item()}")
            loss = parts[0] if len(parts) == 1 else torch.stack(parts).sum()
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
            work.logits.append({name: scores.detach() for name, scores in logits.items()})
        work.losses = tuple(sums)
        work.loss = math.fsum(sums)

    def _check_gradients(self) -> None:
        """NotFinite unless every gradient is finite; the dense ones are clipped on the way."""
        if not self.embedding.gradients_finite():
            raise NotFinite("the loss is finite, and a gradient of a row is not")
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if not gradients:
            return
        norm = torch.nn.utils.get_total_norm(gradients)
        if not math.isfinite(norm.item()):
            raise NotFinite(f"the loss is finite, and the L2 norm of the dense model's gradients is {norm.item()}")
        if self.config.clip_norm:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.config.clip_norm, norm)

    def _event_time(self, work: Work) -> float | None:
        if not self.config.needs_event_time:
            return None
        return max(float(batch.event_time.max()) for batch in work.batches if batch.event_time is not None)


def bad_batch_arrays(work: Work) -> dict[str, npt.NDArray[Any]]:
    """What `bad_batch-STEP.npz` holds. Of several batches, the second's names begin with "1.", and so on."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    for i, batch in enumerate(work.batches):
        front = f"{i}." if i else ""
        arrays[f"{front}features"] = np.array(batch.ids.features)
        tensors = {
            "ids": batch.ids.values,
            "offsets": batch.ids.offsets,
            "id_weights": batch.ids.weights,
            "dense": batch.dense,
            "labels": batch.labels,
            "sample_weight": batch.sample_weight,
            "event_time": batch.event_time,
            "group": batch.group,
        }
        arrays |= {front + name: tensor.numpy() for name, tensor in tensors.items() if tensor is not None}
    return arrays
