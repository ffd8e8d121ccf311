"""Which columns of pooled features a part of a model takes."""

from collections.abc import Sequence
from itertools import groupby, pairwise

import torch
from torch import Tensor


class Columns:
    """Pooled features in two kinds, cut in runs of one kind: views where a kind is one run, one copy otherwise."""

    def __init__(self, dims: Sequence[int], is_first: Sequence[bool]) -> None:
        runs = [
            (kind, sum(dim for dim, _ in run))
            for kind, run in groupby(zip(dims, is_first, strict=True), lambda e: e[1])
        ]
        ends = [0]
        for _, width in runs:
            ends.append(ends[-1] + width)
        self._slices = [(kind, slice(*place)) for (kind, _), place in zip(runs, pairwise(ends), strict=True)]
        self.widths = tuple(sum(width for kind, width in runs if kind is wanted) for wanted in (True, False))

    def split(self, pooled: Tensor) -> tuple[Tensor, Tensor]:
        """[n, sum of dims] -> the first kind's columns, and the others."""
        parts = []
        for wanted in (True, False):
            runs = [pooled[:, place] for kind, place in self._slices if kind is wanted]
            parts.append(runs[0] if len(runs) == 1 else torch.cat(runs, 1) if runs else pooled[:, :0])
        return parts[0], parts[1]
