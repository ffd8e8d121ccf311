"""BST: a transformer over what a user did and the target item.

Acts attend to acts, the target to itself and to acts. That acts do not attend to the target is what lets `user` encode
them once per request; `score` runs the target alone through the blocks, over the keys and values that `user` kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stepwell.embedding.inputs import SideInputs, SideSpec
from stepwell.models.behaviours import Behaviours, check_behaviours
from stepwell.models.checks import check_layers, check_tasks
from stepwell.models.layers import MLP, Dense, SplitMLP, by_task, flat, width_of
from stepwell.models.ranking import ModelConfig, RankingModel


@dataclass(frozen=True, kw_only=True, slots=True)
class BST(ModelConfig):
    """The MLP on top takes dense columns, pooled features, and the target's vector and acts' mean after the last block.

    A position is counted from the latest act, which is the last of the sequence.
    """

    behaviours: dict[str, str]  # the user's sequence feature -> the item's pooled feature like it
    num_blocks: int = 1
    num_heads: int = 2  # divides the dim of the behaviours
    feed_forward: int = 64  # hidden width in a block
    deep: tuple[int, ...] = (128, 64)  # hidden layers; the last one gives a logit per task

    def __post_init__(self) -> None:
        check_behaviours(self)
        self._require_int("num_blocks", 1, 64)
        self._require_int("num_heads", 1, 1024)
        self._require_int("feed_forward", 1, 1 << 20)
        check_layers(self, "deep")

    def build(self, user: SideSpec, item: SideSpec, tasks: tuple[str, ...]) -> "BSTNetwork":
        """See ModelConfig.build."""
        check_tasks(self, tasks)
        behaviours = Behaviours(self, self.behaviours, user, item)
        self._require(
            behaviours.dim % self.num_heads == 0,
            "num_heads",
            f"a divisor of {behaviours.dim}, the dim of {', '.join(map(repr, behaviours.names))} together",
        )
        return BSTNetwork(self, behaviours, width_of(user), width_of(item), tasks)


class Block(nn.Module):
    """Attention, then an MLP; each adds to its input, normalised after."""

    def __init__(self, dim: int, num_heads: int, feed_forward: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key_value, self.out = Dense(dim, dim), Dense(dim, 2 * dim), Dense(dim, dim)
        self.feed = MLP(dim, (feed_forward, dim), linear_end=True)
        self.attention_norm, self.feed_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x: Tensor, key_value: Tensor, allowed: Tensor) -> Tensor:
        """x [n, Q, dim] attends to key_value [n, K, 2 * dim] where `allowed`, bool [n, Q, K], each row with a True."""
        query = self._heads(self.query(x))
        key, value = (self._heads(part) for part in key_value.chunk(2, 2))
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, allowed[:, None])
        x = self.attention_norm(x + self.out(mixed.transpose(1, 2).flatten(2)))
        after: Tensor = self.feed_norm(x + self.feed(x))
        return after

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.num_heads, x.shape[2] // self.num_heads).transpose(1, 2)


class BSTNetwork(RankingModel):
    """See BST."""

    def __init__(
        self, config: BST, behaviours: Behaviours, user_width: int, item_width: int, tasks: tuple[str, ...]
    ) -> None:
        super().__init__()
        self.behaviours, self.tasks = behaviours, tasks
        dim = behaviours.dim
        self.positions = nn.Parameter(0.02 * torch.randn(behaviours.max_len + 1, dim))  # 0 is the target's
        blocks = (Block(dim, config.num_heads, config.feed_forward) for _ in range(config.num_blocks))
        self.blocks: Iterable[Block] = nn.ModuleList(blocks)  # type: ignore[assignment]
        self.deep = SplitMLP(user_width + dim, item_width + dim, (*config.deep, len(tasks)), linear_end=True)

    def user(self, inputs: SideInputs) -> dict[str, Tensor]:
        """See RankingModel.user."""
        x, lengths = self.behaviours.of(inputs)
        present = self.behaviours.present(lengths)
        # A position without an act attends to itself, so that no row of attention is empty; nothing reads its result.
        allowed = present[:, None] | torch.eye(present.shape[1], dtype=torch.bool, device=present.device)
        places = (lengths[:, None] - torch.arange(present.shape[1], device=present.device)).clamp_min(0)
        x = x + nn.functional.embedding(places, self.positions)
        outputs = {"present": present}
        for at, block in enumerate(self.blocks):
            outputs[f"key_value.{at}"] = key_value = block.key_value(x)
            x = block(x, key_value, allowed)
        total = x.masked_fill(~present[:, :, None], 0.0).sum(1)
        mean = total / lengths.clamp_min(1)[:, None]
        outputs["deep"] = self.deep.user(torch.cat([flat(inputs), mean], 1))
        return outputs

    def score(self, user: dict[str, Tensor], item: SideInputs) -> dict[str, Tensor]:
        """See RankingModel.score."""
        x = (self.behaviours.target(item) + self.positions[0])[:, None]
        allowed = torch.cat([user["present"], user["present"].new_ones(x.shape[0], 1)], 1)[:, None]
        for at, block in enumerate(self.blocks):
            own = block.key_value(x)
            x = block(x, torch.cat([user[f"key_value.{at}"].to(own.dtype), own], 1), allowed)
        return by_task(self.tasks, self.deep.score(user["deep"], torch.cat([flat(item), x.squeeze(1)], 1)))
