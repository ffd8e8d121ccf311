"""DeepFM: a factorisation machine and an MLP over the same feature vectors."""

from dataclasses import dataclass

import torch
from torch import Tensor

from stepwell.embedding.inputs import SideInputs, SideSpec
from stepwell.models.checks import check_layers, check_pooled_only, check_tasks, one_dim
from stepwell.models.layers import SplitMLP, by_task
from stepwell.models.linear_part import LinearSide
from stepwell.models.ranking import ModelConfig, RankingModel


@dataclass(frozen=True, kw_only=True, slots=True)
class DeepFM(ModelConfig):
    """First order: features of dim 1 (rows are the weights of ids) and dense columns. Second order: the others' pairs.

    All features but those of dim 1 have one dim. Several tasks share the factorisation machine.
    """

    deep: tuple[int, ...] = (128, 64)  # hidden layers; the last one gives a logit per task

    def __post_init__(self) -> None:
        check_layers(self, "deep")

    def build(self, user: SideSpec, item: SideSpec, tasks: tuple[str, ...]) -> "DeepFMNetwork":
        """See ModelConfig.build."""
        check_tasks(self, tasks)
        check_pooled_only(self, user, item)
        return DeepFMNetwork(self, one_dim(self, user, item, but_for=1), user, item, tasks)


class DeepFMNetwork(RankingModel):
    """See DeepFM. The sum of all pairs' products is half of |sum of vectors|^2 - sum of |vector|^2, side by side."""

    def __init__(self, config: DeepFM, dim: int, user: SideSpec, item: SideSpec, tasks: tuple[str, ...]) -> None:
        super().__init__()
        self.dim, self.tasks = dim, tasks
        self.user_linear, self.item_linear = LinearSide(user, len(tasks)), LinearSide(item, len(tasks))
        widths = (user.dense + self.user_linear.deep_width, item.dense + self.item_linear.deep_width)
        self.deep = SplitMLP(*widths, (*config.deep, len(tasks)), linear_end=True)

    def user(self, inputs: SideInputs) -> dict[str, Tensor]:
        """See RankingModel.user."""
        linear, deep = self.user_linear(inputs.dense, inputs.pooled)
        total, pairs = self._second_order(deep)
        return {
            "first_and_second": linear + pairs,
            "total": total,
            "deep": self.deep.user(torch.cat([inputs.dense, deep], 1)),
        }

    def score(self, user: dict[str, Tensor], item: SideInputs) -> dict[str, Tensor]:
        """See RankingModel.score."""
        linear, deep = self.item_linear(item.dense, item.pooled)
        total, pairs = self._second_order(deep)
        crossed = (user["total"] * total).sum(1, keepdim=True)
        hidden = self.deep.score(user["deep"], torch.cat([item.dense, deep], 1))
        return by_task(self.tasks, user["first_and_second"] + linear + pairs + crossed + hidden)

    def _second_order(self, deep: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of a side's vectors [n, dim] and of its pairs' products [n, 1]."""
        vectors = deep.view(deep.shape[0], deep.shape[1] // self.dim, self.dim)
        total = vectors.sum(1)
        return total, 0.5 * ((total * total).sum(1, keepdim=True) - (deep * deep).sum(1, keepdim=True))
