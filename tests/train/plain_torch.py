"""DLRM and BST as one would write them in plain PyTorch: nn.EmbeddingBag, nn.Embedding, whole vectors.

Nothing here knows of a user's part or a store. `weights_of` copies the first weights of ours, whose first layers are in
two parts, into theirs.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from stepwell.data import Batch
from stepwell.embedding import Lookup
from stepwell.models import RankingModel
from stepwell.rows import TableSpec, initial_rows


class Tables(nn.Module):
    """A dense weight per table, with a row for each id of some batches, sparse gradients."""

    def __init__(
        self, specs: Sequence[TableSpec], lookups: Sequence[Lookup], batches: Sequence[Batch], seed: int
    ) -> None:
        super().__init__()
        self.lookups, self.ids = lookups, {}
        self.bags, self.rows = nn.ModuleDict(), nn.ModuleDict()
        for spec in specs:
            names = [one.name for one in lookups if one.table == spec.name]
            seen = np.unique(np.concatenate([batch.ids.of(name)[0].numpy() for batch in batches for name in names]))
            self.ids[spec.name] = torch.from_numpy(seen)
            weight = torch.from_numpy(initial_rows(spec.initializer, seed, spec.name, seen, spec.dim))
            self.bags[spec.name] = nn.EmbeddingBag.from_pretrained(
                weight, freeze=False, mode="sum", sparse=True, include_last_offset=True
            )
            self.rows[spec.name] = nn.Embedding.from_pretrained(weight, freeze=False, sparse=True)
            self.rows[spec.name].weight = self.bags[spec.name].weight

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """feature -> [B, dim], or [B, max_len, dim] padded with zeros."""
        found = {}
        for one in self.lookups:
            ids, offsets = batch.ids.of(one.name)
            at = torch.searchsorted(self.ids[one.table], ids)
            if one.pooling == "none":
                held = torch.arange(one.max_len) < offsets.diff()[:, None]
                rows = self.rows[one.table](at)
                padded = rows.new_zeros(batch.size, one.max_len, rows.shape[1])
                found[one.name] = padded.index_put((held,), rows)
            else:
                found[one.name] = self.bags[one.table](at, offsets)
        return found


def mlp(widths: Sequence[int], linear_end: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1] if linear_end else layers)


class PlainDLRM(nn.Module):
    """Two sides with dense columns, so two bottoms."""

    def __init__(self, lookups: Sequence[Lookup], dense: tuple[int, int], dim: int, bottom: int, top: int) -> None:
        super().__init__()
        self.lookups, self.dense, self.dim = lookups, dense, dim
        self.user_bottom, self.item_bottom = (mlp((width, bottom, dim), False) for width in dense)
        num = len(lookups) + 2
        self.top = mlp((2 * dim + num * (num - 1) // 2, top, 1), True)
        num_user = 1 + sum(one.side == "user" for one in lookups)
        pairs = [(i, j) for i in range(num) for j in range(i)]
        within = [pair for pair in pairs if pair[0] < num_user]
        across = [(u, i) for u in range(num_user) for i in range(num_user, num)]
        items = [pair for pair in pairs if pair[1] >= num_user]
        self.user_pairs, self.item_pairs = torch.tensor(within), torch.tensor(across + items)

    def forward(self, dense: Tensor, vectors: dict[str, Tensor]) -> Tensor:
        u, i = self.user_bottom(dense[:, : self.dense[0]]), self.item_bottom(dense[:, self.dense[0] :])
        users, items = ([vectors[one.name] for one in self.lookups if one.side == side] for side in ("user", "item"))
        z = torch.stack([u, *users, i, *items], 1)
        k = torch.einsum("bid,bjd->bij", z, z)
        x = [u, k[:, *self.user_pairs.T], i, k[:, *self.item_pairs.T]]
        return self.top(torch.cat(x, 1)).squeeze(1)

    def weights_of(self, ours: RankingModel) -> None:
        theirs = {
            **{f"{side}_bottom.{2 * n}": f"{side}_bottom.layers.{n}" for side in ("user", "item") for n in (0, 1)},
            "top.0": "top.first",
            "top.2": "top.rest.layers.0",
        }
        copy_weights(self, ours, theirs)


class PlainBST(nn.Module):
    """History and target in one sequence, through nn.MultiheadAttention with a mask."""

    def __init__(self, columns: int, dim: int, max_len: int, num_blocks: int, feed: int, deep: int) -> None:
        super().__init__()
        self.num_heads, self.max_len = 2, max_len
        self.positions = nn.Parameter(torch.empty(max_len + 1, dim))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, self.num_heads, feed, dropout=0.0, batch_first=True)
            for _ in range(num_blocks)
        )
        self.deep = mlp((columns + 2 * dim, deep, 1), True)

    def forward(self, user: Tensor, history: Tensor, lengths: Tensor, item: Tensor, target: Tensor) -> Tensor:
        n, at = len(lengths), torch.arange(self.max_len)
        held = at < lengths[:, None]
        places = torch.where(held, lengths[:, None] - at, 0)
        x = torch.cat([history + self.positions[places], (target + self.positions[0])[:, None]], 1)
        hidden = torch.ones(n, self.max_len + 1, self.max_len + 1, dtype=torch.bool)  # from each (rows) each
        hidden[:, :, :-1] = ~held[:, None]
        own = torch.arange(self.max_len + 1)
        hidden[:, own, own] = False
        for block in self.blocks:
            x = block(x, src_mask=hidden.repeat_interleave(self.num_heads, 0))
        mean = (x[:, :-1] * held[:, :, None]).sum(1) / lengths.clamp_min(1)[:, None]
        return self.deep(torch.cat([user, mean, item, x[:, -1]], 1)).squeeze(1)

    def weights_of(self, ours: RankingModel) -> None:
        state = ours.state_dict()
        with torch.no_grad():
            self.positions.copy_(state["positions"])
            for n, block in enumerate(self.blocks):
                for kind in ("weight", "bias"):
                    parts = [state[f"blocks.{n}.{part}.{kind}"] for part in ("query", "key_value")]
                    getattr(block.self_attn, f"in_proj_{kind}").copy_(torch.cat(parts))
        theirs = {"deep.0": "deep.first", "deep.2": "deep.rest.layers.0"}
        for n in range(len(self.blocks)):
            theirs |= {
                f"blocks.{n}.{their}": f"blocks.{n}.{our}"
                for their, our in {
                    "self_attn.out_proj": "out",
                    "linear1": "feed.layers.0",
                    "linear2": "feed.layers.1",
                    "norm1": "attention_norm",
                    "norm2": "feed_norm",
                }.items()
            }
        copy_weights(self, ours, theirs)


def copy_weights(plain: nn.Module, ours: RankingModel, theirs: dict[str, str]) -> None:
    """theirs -> ours: modules by name."""
    state = ours.state_dict()
    with torch.no_grad():
        for their, our in theirs.items():
            module = plain.get_submodule(their)
            parts = [
                state[key] for key in (f"{our}.user_weight", f"{our}.item_weight", f"{our}.weight") if key in state
            ]
            module.weight.copy_(torch.cat(parts, 1) if len(parts) > 1 else parts[0])
            module.bias.copy_(state[f"{our}.bias"])
