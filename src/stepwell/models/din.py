"""DIN: what a user did, summed with weights that say how much each act has to do with the target item."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stepwell.embedding.inputs import SideInputs, SideSpec
from stepwell.models.behaviours import Behaviours, check_behaviours
from stepwell.models.checks import check_layers, check_tasks
from stepwell.models.layers import MLP, Dense, SplitMLP, by_task, drawn, flat, width_of
from stepwell.models.ranking import ModelConfig, RankingModel


@dataclass(frozen=True, kw_only=True, slots=True)
class DIN(ModelConfig):
    """An act's weight is an MLP of its vector k, the target's q and k * q; weights are not made to sum to 1.

    The MLP on top takes the weighted sum, the target, and all dense columns and pooled features, of any dims.
    """

    behaviours: dict[str, str]  # the user's sequence feature -> the item's pooled feature like it
    attention: tuple[int, ...] = (64, 32)  # hidden layers
    deep: tuple[int, ...] = (128, 64)  # hidden layers; the last one gives a logit per task

    def __post_init__(self) -> None:
        check_behaviours(self)
        check_layers(self, "attention", least=1)
        check_layers(self, "deep")

    def build(self, user: SideSpec, item: SideSpec, tasks: tuple[str, ...]) -> "DINNetwork":
        """See ModelConfig.build."""
        check_tasks(self, tasks)
        return DINNetwork(self, Behaviours(self, self.behaviours, user, item), width_of(user), width_of(item), tasks)


class TargetAttention(nn.Module):
    """The first layer over k, q and k * q is three products, of which that of k is made once per user.

    (Over k, q, k * q and k - q, as it is often written, it says nothing more: k - q is linear in the others.)
    """

    def __init__(self, dim: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.act = Dense(dim, hidden[0])
        self.target_weight, self.product_weight = drawn(hidden[0], dim, 3 * dim), drawn(hidden[0], dim, 3 * dim)
        self.rest = MLP(hidden[0], (*hidden[1:], 1), linear_end=True)

    def forward(self, keys: Tensor, hidden: Tensor, present: Tensor, target: Tensor) -> Tensor:
        """[N, L, dim], `act` of them, bool [N, L], [N, dim] -> [N, dim]: weighted sums; zeros where none is present."""
        of_target = nn.functional.linear(target, self.target_weight)[:, None]
        of_product = nn.functional.linear(keys * target[:, None], self.product_weight)
        weights = self.rest((hidden + of_target + of_product).relu_()).squeeze(2)
        weights = weights.masked_fill(~present, 0.0)
        return torch.bmm(weights[:, None], keys.to(weights.dtype)).squeeze(1)


class DINNetwork(RankingModel):
    """See DIN."""

    def __init__(
        self, config: DIN, behaviours: Behaviours, user_width: int, item_width: int, tasks: tuple[str, ...]
    ) -> None:
        super().__init__()
        self.behaviours, self.tasks = behaviours, tasks
        self.attention = TargetAttention(behaviours.dim, config.attention)
        self.deep = SplitMLP(user_width, item_width + behaviours.dim, (*config.deep, len(tasks)), linear_end=True)

    def user(self, inputs: SideInputs) -> dict[str, Tensor]:
        """See RankingModel.user."""
        keys, lengths = self.behaviours.of(inputs)
        return {
            "deep": self.deep.user(flat(inputs)),
            "keys": keys,
            "hidden": self.attention.act(keys),
            "present": self.behaviours.present(lengths),
        }

    def score(self, user: dict[str, Tensor], item: SideInputs) -> dict[str, Tensor]:
        """See RankingModel.score."""
        target = self.behaviours.target(item)
        attended = self.attention(user["keys"], user["hidden"], user["present"], target)
        x = torch.cat([flat(item), attended.to(item.pooled.dtype)], 1)
        return by_task(self.tasks, self.deep.score(user["deep"], x))
