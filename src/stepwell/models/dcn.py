"""DCNv2: layers that multiply the input with a linear function of themselves, and an MLP after them or beside them."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from stepwell.embedding.inputs import SideInputs, SideSpec
from stepwell.models.checks import check_layers, check_pooled_only, check_tasks
from stepwell.models.layers import MLP, Dense, SplitDense, SplitMLP, by_task, drawn, flat, width_of
from stepwell.models.ranking import ModelConfig, RankingModel


@dataclass(frozen=True, kw_only=True, slots=True)
class DCNv2(ModelConfig):
    """Cross layers x <- x0 * (W x + b) + x over dense columns and pooled features of any dims, x0 the input."""

    num_cross: int = 3
    rank: int = 0  # W = U V with so many rows in V; 0: W whole
    deep: tuple[int, ...] = (128, 64)  # hidden layers of the MLP
    structure: Literal["stacked", "parallel"] = "stacked"  # the MLP takes what the cross layers give, or the input

    def __post_init__(self) -> None:
        self._require_int("num_cross", 1, 64)
        self._require_int("rank", 0, 1 << 16)
        self._require(self.structure in {"stacked", "parallel"}, "structure", "'stacked' or 'parallel'")
        check_layers(self, "deep", least=int(self.structure == "parallel"))

    def build(self, user: SideSpec, item: SideSpec, tasks: tuple[str, ...]) -> "DCNv2Network":
        """See ModelConfig.build."""
        check_tasks(self, tasks)
        check_pooled_only(self, user, item)
        width = width_of(user) + width_of(item)
        self._require(self.rank < width, "rank", f"less than {width}, the columns of the inputs; 0 leaves W whole")
        return DCNv2Network(self, width_of(user), width_of(item), tasks)


class CrossLayer(nn.Module):
    """x0 * (W x + b) + x."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.down = drawn(rank, width, width) if rank else None
        self.up = Dense(rank or width, width)

    def forward(self, x0: Tensor, x: Tensor) -> Tensor:
        """[n, width] twice -> [n, width]."""
        y = self.up(x if self.down is None else nn.functional.linear(x, self.down))
        return torch.addcmul(x, x0, y.to(x.dtype))


class FirstCrossLayer(nn.Module):
    """The first: x is x0, so the user's part of W x, or of V x, is made once per user."""

    def __init__(self, user_width: int, item_width: int, rank: int) -> None:
        super().__init__()
        width = user_width + item_width
        self.down = SplitDense(user_width, item_width, rank or width, bias=not rank)
        self.up = Dense(rank, width) if rank else None

    def score(self, partial: Tensor, x0: Tensor, item: Tensor) -> Tensor:
        """[N, ...] -> [N, width]."""
        y = self.down.score(partial, item)
        y = y if self.up is None else self.up(y)
        return torch.addcmul(x0, x0, y.to(x0.dtype))


class DCNv2Network(RankingModel):
    """See DCNv2."""

    def __init__(self, config: DCNv2, user_width: int, item_width: int, tasks: tuple[str, ...]) -> None:
        super().__init__()
        self.tasks = tasks
        width = user_width + item_width
        self.first = FirstCrossLayer(user_width, item_width, config.rank)
        self.cross = nn.ModuleList(CrossLayer(width, config.rank) for _ in range(config.num_cross - 1))
        parallel = config.structure == "parallel"
        self.beside = SplitMLP(user_width, item_width, config.deep) if parallel else None
        after = () if parallel else config.deep
        self.after = MLP(width + (config.deep[-1] if parallel else 0), (*after, len(tasks)), linear_end=True)

    def user(self, inputs: SideInputs) -> dict[str, Tensor]:
        """See RankingModel.user."""
        x = flat(inputs)
        outputs = {"x": x, "cross": self.first.down.user(x)}
        if self.beside is not None:
            outputs["deep"] = self.beside.user(x)
        return outputs

    def score(self, user: dict[str, Tensor], item: SideInputs) -> dict[str, Tensor]:
        """See RankingModel.score."""
        item_x = flat(item)
        x0 = torch.cat([user["x"], item_x], 1)
        x = self.first.score(user["cross"], x0, item_x)
        for layer in self.cross:
            x = layer(x0, x)
        if self.beside is not None:
            x = torch.cat([x, self.beside.score(user["deep"], item_x).to(x.dtype)], 1)
        return by_task(self.tasks, self.after(x))
