"""MMoE: experts that all tasks share, and a gate per task that mixes them."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stepwell.embedding.inputs import SideInputs, SideSpec
from stepwell.models.checks import check_layers, check_pooled_only, check_tasks
from stepwell.models.layers import MLP, SplitDense, flat, width_of
from stepwell.models.ranking import ModelConfig, RankingModel


@dataclass(frozen=True, kw_only=True, slots=True)
class MMoE(ModelConfig):
    """Experts and gates take dense columns and pooled features of any dims; a tower per task takes its mix."""

    num_experts: int = 4
    expert: tuple[int, ...] = (128, 64)  # layers of each expert
    tower: tuple[int, ...] = (32,)  # hidden layers; the last one gives the task's logit

    def __post_init__(self) -> None:
        self._require_int("num_experts", 2, 1024)
        check_layers(self, "expert", least=1)
        check_layers(self, "tower")

    def build(self, user: SideSpec, item: SideSpec, tasks: tuple[str, ...]) -> "MMoENetwork":
        """See ModelConfig.build."""
        check_tasks(self, tasks)
        check_pooled_only(self, user, item)
        return MMoENetwork(self, width_of(user), width_of(item), tasks)


class ExpertLayer(nn.Module):
    """A `Dense` per expert, in one batched product."""

    def __init__(self, num_experts: int, width: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_experts, width, out) * (2.0 / (width + out)) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(num_experts, 1, out))

    def forward(self, x: Tensor) -> Tensor:
        """[experts, n, width] -> [experts, n, out]."""
        return torch.baddbmm(self.bias, x, self.weight)


class MMoENetwork(RankingModel):
    """See MMoE. The user's part of the gates and of each expert's first layer is made once per user."""

    def __init__(self, config: MMoE, user_width: int, item_width: int, tasks: tuple[str, ...]) -> None:
        super().__init__()
        self.num_experts, self.tasks = config.num_experts, tasks
        self.gates = SplitDense(user_width, item_width, len(tasks) * config.num_experts)
        # Each expert is drawn as a layer of its own would be.
        first = (SplitDense(user_width, item_width, config.expert[0]) for _ in range(config.num_experts))
        self.first: Iterable[SplitDense] = nn.ModuleList(first)  # type: ignore[assignment]
        widths = zip(config.expert, config.expert[1:], strict=False)
        self.experts = nn.ModuleList(ExpertLayer(config.num_experts, *shape) for shape in widths)
        self.towers = nn.ModuleList(MLP(config.expert[-1], (*config.tower, 1), linear_end=True) for _ in tasks)

    def user(self, inputs: SideInputs) -> dict[str, Tensor]:
        """See RankingModel.user."""
        x = flat(inputs)
        experts = {f"expert.{at}": first.user(x) for at, first in enumerate(self.first)}
        return {"gates": self.gates.user(x), **experts}

    def score(self, user: dict[str, Tensor], item: SideInputs) -> dict[str, Tensor]:
        """See RankingModel.score."""
        x = flat(item)
        hidden = torch.stack([first.score(user[f"expert.{at}"], x) for at, first in enumerate(self.first)]).relu_()
        for layer in self.experts:
            hidden = layer(hidden).relu_()
        gates = self.gates.score(user["gates"], x).view(-1, len(self.tasks), self.num_experts).softmax(2)
        mixed = torch.bmm(gates.to(hidden.dtype), hidden.transpose(0, 1))  # [N, tasks, expert[-1]]
        logits = [tower(mixed[:, at]).squeeze(1).float() for at, tower in enumerate(self.towers)]
        return dict(zip(self.tasks, logits, strict=True))
