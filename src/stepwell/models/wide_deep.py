"""Wide & Deep: a linear model of ids and their crosses, and an MLP, side by side."""

from dataclasses import dataclass

import torch
from torch import Tensor

from stepwell.embedding.inputs import SideInputs, SideSpec
from stepwell.errors import ConfigError
from stepwell.models.checks import check_layers, check_pooled_only, check_tasks
from stepwell.models.layers import SplitMLP, by_task
from stepwell.models.linear_part import LinearSide
from stepwell.models.ranking import ModelConfig, RankingModel


@dataclass(frozen=True, kw_only=True, slots=True)
class WideDeep(ModelConfig):
    """Wide: features of dim 1 (rows are the weights of ids; crosses belong here) and dense columns. Deep: the others.

    Several tasks share the weights of ids.
    """

    deep: tuple[int, ...] = (128, 64)  # hidden layers; the last one gives a logit per task

    def __post_init__(self) -> None:
        check_layers(self, "deep")

    def build(self, user: SideSpec, item: SideSpec, tasks: tuple[str, ...]) -> "WideDeepNetwork":
        """See ModelConfig.build."""
        check_tasks(self, tasks)
        check_pooled_only(self, user, item)
        dims = {*user.pooled, *item.pooled}
        if 1 not in dims or len(dims) == 1:
            found = ", ".join(map(str, sorted(dims))) or "none"
            raise ConfigError(
                f"WideDeep: dims of pooled features: found {found}; expected some of dim 1, the wide part (IdFeature "
                "or CrossFeature with a table of dim 1), and some of more, the deep part"
            )
        return WideDeepNetwork(self, user, item, tasks)


class WideDeepNetwork(RankingModel):
    """See WideDeep."""

    def __init__(self, config: WideDeep, user: SideSpec, item: SideSpec, tasks: tuple[str, ...]) -> None:
        super().__init__()
        self.tasks = tasks
        self.user_wide, self.item_wide = LinearSide(user, len(tasks)), LinearSide(item, len(tasks))
        widths = (user.dense + self.user_wide.deep_width, item.dense + self.item_wide.deep_width)
        self.deep = SplitMLP(*widths, (*config.deep, len(tasks)), linear_end=True)

    def user(self, inputs: SideInputs) -> dict[str, Tensor]:
        """See RankingModel.user."""
        wide, deep = self.user_wide(inputs.dense, inputs.pooled)
        return {"wide": wide, "deep": self.deep.user(torch.cat([inputs.dense, deep], 1))}

    def score(self, user: dict[str, Tensor], item: SideInputs) -> dict[str, Tensor]:
        """See RankingModel.score."""
        wide, deep = self.item_wide(item.dense, item.pooled)
        hidden = self.deep.score(user["deep"], torch.cat([item.dense, deep], 1))
        return by_task(self.tasks, user["wide"] + wide + hidden)
