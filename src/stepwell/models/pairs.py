"""Dot products of pairs of vectors."""

from typing import Any

import torch
from torch import Tensor, nn


def num_pairs(count: int) -> int:
    """Pairs of different ones of `count` vectors."""
    return count * (count - 1) // 2


def cross_dots(a: Tensor, b: Tensor) -> Tensor:
    """[n, k, dim], [n, m, dim] -> [n, k * m]: a_i . b_j, i by i."""
    return torch.bmm(a, b.transpose(1, 2)).flatten(1)


class PairDots(nn.Module):
    """[n, count, dim] -> [n, num_pairs(count)]: v_i . v_j for j < i, i by i."""

    below: Tensor
    pair_of: Tensor

    def __init__(self, count: int) -> None:
        super().__init__()
        i, j = torch.tril_indices(count, count, -1)
        pair_of = torch.full((count, count), num_pairs(count))
        pair_of[i, j] = pair_of[j, i] = torch.arange(num_pairs(count))
        self.register_buffer("below", i * count + j, persistent=False)  # the pairs' places in the flat matrix
        self.register_buffer("pair_of", pair_of.flatten(), persistent=False)  # each place's; the diagonal's is one past

    def forward(self, vectors: Tensor) -> Tensor:
        """See the class."""
        if self.below.numel() == 0:
            return vectors.new_zeros(vectors.shape[0], 0)
        kind = vectors.device.type
        if torch.is_autocast_enabled(kind):
            vectors = vectors.to(torch.get_autocast_dtype(kind))
        dots: Tensor = _PairDots.apply(vectors, self.below, self.pair_of)  # type: ignore[no-untyped-call]
        return dots


class _PairDots(torch.autograd.Function):
    """Autograd would scatter the gradient and make two products. As G is symmetric, one gather and one product do."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, below: Tensor, pair_of: Tensor) -> Tensor:
        ctx.save_for_backward(vectors, pair_of)
        return torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, below)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        vectors, pair_of = ctx.saved_tensors
        n, k, _ = vectors.shape
        padded = torch.cat([grad, grad.new_zeros(n, 1)], 1)
        return torch.bmm(padded.index_select(1, pair_of).view(n, k, k), vectors), None, None
