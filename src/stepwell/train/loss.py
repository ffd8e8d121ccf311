"""The loss of a step: weighted log losses of its tasks, summed over samples, divided by the step's samples."""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from stepwell.data import Batch
from stepwell.errors import ConfigError
from stepwell.train.config import Task


def task_losses(tasks: tuple[Task, ...], logits: dict[str, Tensor], batch: Batch, num_samples: int) -> list[Tensor]:
    """Each task's part of the loss, its weight included: the parts of a step's batches add up to the step's loss.

    A sample's weight multiplies its loss and does not change `num_samples`, which is the step's count: a step of
    several batches, or of several ranks, is divided by all of its samples.
    """
    parts = []
    for i, task in enumerate(tasks):
        scores = logits[task.name]
        if scores.shape != (batch.size,):
            raise ConfigError(
                f"task {task.name!r}: the model gave logits {tuple(scores.shape)}, expected ({batch.size},)"
            )
        summed = binary_cross_entropy_with_logits(
            scores.to(torch.float32), batch.labels[:, i], weight=batch.sample_weight, reduction="sum"
        )
        parts.append(summed * (task.weight / num_samples))
    return parts
