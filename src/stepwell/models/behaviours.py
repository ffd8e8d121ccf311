"""Behaviours: what a user did, in one sequence feature or several side by side, and the target item."""

from collections.abc import Mapping
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from stepwell.config import Config
from stepwell.embedding.inputs import SideInputs, SideSpec
from stepwell.errors import ConfigError


def check_behaviours(config: Config) -> None:
    """`config.behaviours` maps sequence features of the user to pooled features of the item."""
    found = getattr(config, "behaviours")  # noqa: B009  (a field that the base class does not have)
    ok = isinstance(found, Mapping) and found and all(isinstance(n, str) for pair in found.items() for n in pair)
    config._require(bool(ok), "behaviours", "{the user's sequence feature: the item's pooled feature like it}")


class Behaviours:
    """A model's `behaviours`, matched with its inputs.

    Position t of each sequence is the same act, so sequences have one max_len, and the first one's lengths count. An
    act's vector is the sequences' side by side, and the target's is the matching pooled features', side by side.
    """

    def __init__(self, model: Config, pairs: Mapping[str, str], user: SideSpec, item: SideSpec) -> None:
        name = type(model).__name__
        sequences = {sequence.name: sequence for sequence in user.sequences}
        unread = [repr(s.name) for side in (user, item) for s in side.sequences if side is item or s.name not in pairs]
        if unread:
            raise ConfigError(
                f"{name}.behaviours: found no use for the sequences {', '.join(unread)}, expected the user's sequences "
                f"{sorted(pairs)} and no others: name them in behaviours, or declare IdFeatures with pooling"
            )
        ends = dict(zip(item.pooled_names, pairwise(accumulate(item.pooled, initial=0)), strict=False))
        for behaviour, target in pairs.items():
            if behaviour not in sequences:
                expected = f"one of the user's sequence features, {sorted(sequences)}"
                raise ConfigError(f"{name}.behaviours: found {behaviour!r}, expected {expected}")
            if target not in ends:
                raise ConfigError(
                    f"{name}.behaviours: found {target!r} as the target of {behaviour!r}, expected one of the item's "
                    f"pooled features, {sorted(ends)}"
                )
            width = ends[target][1] - ends[target][0]
            if width != sequences[behaviour].dim:
                found = f"{behaviour!r} of dim {sequences[behaviour].dim} and its target {target!r} of dim {width}"
                raise ConfigError(f"{name}.behaviours: found {found}, expected one dim: give them the same table")
        lengths = {sequences[behaviour].max_len for behaviour in pairs}
        if len(lengths) != 1:
            found = ", ".join(f"{behaviour!r} {sequences[behaviour].max_len}" for behaviour in pairs)
            raise ConfigError(f"{name}.behaviours: max_len: found {found}, expected one for all")
        self.names = tuple(pairs)
        self.max_len = lengths.pop()
        self.dim = sum(sequences[behaviour].dim for behaviour in pairs)
        self._targets = [slice(*ends[target]) for target in pairs.values()]

    def of(self, inputs: SideInputs) -> tuple[Tensor, Tensor]:
        """The acts' vectors [R, max_len, dim], and how many there are [R]."""
        values = [inputs.sequences[name].values for name in self.names]
        return values[0] if len(values) == 1 else torch.cat(values, 2), inputs.sequences[self.names[0]].lengths

    def target(self, inputs: SideInputs) -> Tensor:
        """[N, dim]."""
        parts = [inputs.pooled[:, columns] for columns in self._targets]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def present(self, lengths: Tensor) -> Tensor:
        """bool [R, max_len]: which positions hold an act."""
        return torch.arange(self.max_len, device=lengths.device) < lengths[:, None]
