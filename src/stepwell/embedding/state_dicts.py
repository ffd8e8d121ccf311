"""Tables in the state dicts of others: nn.EmbeddingBag, TorchRec, FBGEMM. Ids are row numbers."""

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor

from stepwell.errors import ConfigError

_FBGEMM_PARTS = {0: "dev", 1: "uvm", 2: "uvm", 3: "host"}  # by placement: device, managed, managed caching, host
_FBGEMM_NEEDED = ("D_offsets", "hash_size_cumsum", "weights_placements", "weights_offsets")


def module_weights(state: Mapping[str, Tensor], name: str) -> Tensor:
    """The weights [rows, dim] at key `name`, or at the one key that is NAME.weight or ends in .NAME.weight.

    That is how nn.Embedding, nn.EmbeddingBag and TorchRec's collections save a table.
    """
    ends = (f".{name}.weight", f".{name}")
    found = [key for key in (name, f"{name}.weight") if key in state] or [key for key in state if key.endswith(ends)]
    if len(found) != 1:
        known = ", ".join(sorted(found or state)) or "none"
        raise ConfigError(f"state dict: found {len(found)} keys for {name!r}, expected one; keys: {known}")
    return state[found[0]]


def fbgemm_weights(state: Mapping[str, Tensor], prefix: str = "") -> tuple[Tensor, ...]:
    """Each table's weights [rows, dim], in the order of its embedding_specs, as views.

    From the state dict of an FBGEMM SplitTableBatchedEmbeddingBagsCodegen, which keeps all tables in flat arrays.
    `prefix` is the module's path in a larger state dict, with its dot. Call its `flush()` before `state_dict()`: rows
    that are changed in its cache only are not in the arrays.
    """
    absent = [key for key in _FBGEMM_NEEDED if prefix + key not in state]
    if absent:
        raise ConfigError(f"state dict: found no {prefix}{absent[0]}, expected FBGEMM's state dict under {prefix!r}")
    dims = state[f"{prefix}D_offsets"].diff().tolist()
    starts = state[f"{prefix}hash_size_cumsum"].tolist()  # of each feature's table, among all tables' rows
    placements = state[f"{prefix}weights_placements"].tolist()
    offsets = state[f"{prefix}weights_offsets"].tolist()
    if not len(dims) == len(starts) - 1 == len(placements) == len(offsets):
        raise ConfigError(
            f"state dict: found {len(dims)} dims, {len(starts) - 1} tables, {len(placements)} placements and "
            f"{len(offsets)} offsets of features under {prefix!r}, expected as many of each"
        )
    tables: list[Tensor] = []
    firsts = {start: feature for feature, start in reversed(list(enumerate(starts[:-1])))}  # features share tables
    bounds = [*sorted(firsts), starts[-1]]
    for start, end in pairwise(bounds):
        feature = firsts[start]
        key = f"{prefix}weights_{_FBGEMM_PARTS.get(placements[feature], placements[feature])}"
        if key not in state:
            raise ConfigError(f"state dict: found no {key}, where the placements say that table {len(tables)} is")
        flat, begin, rows = state[key].detach().flatten(), offsets[feature], end - start
        if not flat.is_floating_point() or begin + rows * dims[feature] > flat.numel():
            raise ConfigError(
                f"state dict: {key} holds {flat.numel()} {flat.dtype}, expected floats for {rows} rows of dim "
                f"{dims[feature]} from {begin} on"
            )
        tables.append(flat[begin : begin + rows * dims[feature]].view(rows, dims[feature]))
    return tuple(tables)


def as_floats(weights: Tensor) -> Tensor:
    """float32 on the host, from any floating type (float64 is rounded)."""
    if not weights.is_floating_point():
        raise ConfigError(f"weights: found {weights.dtype}, expected floats (of quantized weights, their values)")
    return weights.detach().to("cpu", torch.float32)
