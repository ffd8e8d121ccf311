"""DLRM: dot products of all pairs of feature vectors, and an MLP over them."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stepwell.embedding.inputs import SideInputs, SideSpec
from stepwell.models.checks import check_layers, check_pooled_only, check_tasks, one_dim
from stepwell.models.layers import MLP, SplitMLP, by_task
from stepwell.models.pairs import PairDots, cross_dots, num_pairs
from stepwell.models.ranking import ModelConfig, RankingModel


@dataclass(frozen=True, kw_only=True, slots=True)
class DLRM(ModelConfig):
    """A bottom MLP for each side that has dense columns makes them a vector of the features' dim.

    The top MLP takes the bottoms' vectors and the dot product of each pair of vectors. Pooled features have one dim.
    """

    bottom: tuple[int, ...] = (64,)  # hidden layers; the last one, of the features' dim, goes without saying
    top: tuple[int, ...] = (128, 64)  # hidden layers; the last one gives a logit per task

    def __post_init__(self) -> None:
        check_layers(self, "bottom")
        check_layers(self, "top")

    def build(self, user: SideSpec, item: SideSpec, tasks: tuple[str, ...]) -> "DLRMNetwork":
        """See ModelConfig.build."""
        check_tasks(self, tasks)
        check_pooled_only(self, user, item)
        return DLRMNetwork(self, one_dim(self, user, item), user, item, tasks)


class DLRMNetwork(RankingModel):
    """See DLRM. The user's bottom, the pairs of user vectors and the top's first layer over both are `user`."""

    def __init__(self, config: DLRM, dim: int, user: SideSpec, item: SideSpec, tasks: tuple[str, ...]) -> None:
        super().__init__()
        self.dim, self.tasks = dim, tasks
        self.user_bottom = MLP(user.dense, (*config.bottom, dim)) if user.dense else None
        self.item_bottom = MLP(item.dense, (*config.bottom, dim)) if item.dense else None
        self.num_user = len(user.pooled) + (user.dense > 0)
        self.num_item = len(item.pooled) + (item.dense > 0)
        self.user_pairs, self.item_pairs = PairDots(self.num_user), PairDots(self.num_item)
        user_width = dim * (user.dense > 0) + num_pairs(self.num_user)
        item_width = dim * (item.dense > 0) + num_pairs(self.num_item) + self.num_user * self.num_item
        self.top = SplitMLP(user_width, item_width, (*config.top, len(tasks)), linear_end=True)

    def user(self, inputs: SideInputs) -> dict[str, Tensor]:
        """See RankingModel.user."""
        vectors, parts = self._vectors(inputs, self.user_bottom)
        outputs = {"top": self.top.user(torch.cat([*parts, self.user_pairs(vectors)], 1))}
        if self.num_user and self.num_item:
            outputs["vectors"] = vectors
        return outputs

    def score(self, user: dict[str, Tensor], item: SideInputs) -> dict[str, Tensor]:
        """See RankingModel.score."""
        vectors, parts = self._vectors(item, self.item_bottom)
        if "vectors" in user:
            parts.append(cross_dots(user["vectors"], vectors))
        return by_task(self.tasks, self.top.score(user["top"], torch.cat([*parts, self.item_pairs(vectors)], 1)))

    def _vectors(self, inputs: SideInputs, bottom: nn.Module | None) -> tuple[Tensor, list[Tensor]]:
        pooled = (
            inputs.pooled.view(inputs.pooled.shape[0], inputs.pooled.shape[1] // self.dim, self.dim)
            if inputs.pooled.shape[1]
            else None
        )
        if bottom is None:
            n = inputs.dense.shape[0]
            return pooled if pooled is not None else inputs.dense.new_zeros(n, 0, self.dim), []
        x = bottom(inputs.dense)
        first = x[:, None]
        return first if pooled is None else torch.cat([first, pooled], 1), [x]
