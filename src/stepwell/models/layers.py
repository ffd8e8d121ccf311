"""Linear layers and MLPs, whole and split in a user's part and an item's part."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from stepwell.embedding.inputs import SideInputs, SideSpec


def width_of(spec: SideSpec) -> int:
    """Columns of `flat`."""
    return spec.dense + sum(spec.pooled)


def flat(inputs: SideInputs) -> Tensor:
    """[n, width_of]: dense columns, then pooled ones."""
    if inputs.dense.shape[1] == 0:
        return inputs.pooled
    return torch.cat([inputs.dense, inputs.pooled], 1) if inputs.pooled.shape[1] else inputs.dense


def drawn(out: int, width: int, fan_in: int) -> nn.Parameter:
    """A weight [out, width]: normal with variance 2 / (fan_in + out)."""
    return nn.Parameter(torch.randn(out, width) * math.sqrt(2.0 / (fan_in + out)))


class Dense(nn.Module):
    """x W^T + b, W as `drawn` and b zero at first."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.weight = drawn(out, width, width)
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] -> [..., out]."""
        return functional.linear(x, self.weight, self.bias)


class MLP(nn.Module):
    """`Dense` layers with ReLU between them, and after the last too unless `linear_end`."""

    def __init__(self, width: int, layers: Sequence[int], *, linear_end: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Dense(a, b) for a, b in zip([width, *layers], layers, strict=False))
        self.linear_end = linear_end

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] -> [..., layers[-1]]; without layers x itself."""
        last = len(self.layers) - 1
        for at, layer in enumerate(self.layers):
            x = layer(x)
            if at < last or not self.linear_end:
                x = x.relu_()
        return x


class SplitDense(nn.Module):
    """`Dense` over [user, item]: the user's product is made once per user, the item's is added to it."""

    def __init__(self, user_width: int, item_width: int, out: int, *, bias: bool = True) -> None:
        super().__init__()
        width = user_width + item_width
        self.user_weight = drawn(out, user_width, width) if user_width else None
        self.item_weight = drawn(out, item_width, width) if item_width else None
        self.bias = nn.Parameter(torch.zeros(out)) if bias else None
        self.out = out

    def user(self, x: Tensor) -> Tensor:
        """[R, user_width] -> [R, out]."""
        if self.user_weight is not None:
            return functional.linear(x, self.user_weight, self.bias)
        zeros = x.new_zeros(x.shape[0], self.out)
        return zeros if self.bias is None else zeros + self.bias

    def score(self, partial: Tensor, x: Tensor) -> Tensor:
        """[N, out], [N, item_width] -> [N, out], a tensor of its own."""
        if self.item_weight is None:
            return partial.clone()
        return torch.addmm(partial, x, self.item_weight.t())


class SplitMLP(nn.Module):
    """`MLP` over [user, item]; `layers` is not empty."""

    def __init__(self, user_width: int, item_width: int, layers: Sequence[int], *, linear_end: bool = False) -> None:
        super().__init__()
        self.first = SplitDense(user_width, item_width, layers[0])
        self.rest = MLP(layers[0], layers[1:], linear_end=linear_end)
        self.relu_first = len(layers) > 1 or not linear_end

    def user(self, x: Tensor) -> Tensor:
        """[R, user_width] -> [R, layers[0]]."""
        partial: Tensor = self.first.user(x)
        return partial

    def score(self, partial: Tensor, x: Tensor) -> Tensor:
        """[N, layers[0]], [N, item_width] -> [N, layers[-1]]."""
        x = self.first.score(partial, x)
        out: Tensor = self.rest(x.relu_() if self.relu_first else x)
        return out


def by_task(tasks: tuple[str, ...], logits: Tensor) -> dict[str, Tensor]:
    """[N, tasks] -> task: float32 [N]."""
    return dict(zip(tasks, logits.float().unbind(1), strict=True))
