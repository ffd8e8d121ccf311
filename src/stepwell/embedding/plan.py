"""Plan: what does not change from batch to batch: which rows each lookup takes, and where they go."""

from collections.abc import Sequence as Several
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepwell.embedding.inputs import Sequence, SequenceSpec, SideInputs, SideSpec
from stepwell.embedding.lookup import Lookup, Side
from stepwell.errors import ConfigError, UnknownTable
from stepwell.jagged import JaggedIds
from stepwell.native import POOLINGS, Routed, SparseFeature, SparsePlan, sparse_table
from stepwell.rows import TableSpec
from stepwell.store import TableIds, TieredStore
from stepwell.store.buffers import Buffers

I64 = npt.NDArray[np.int64]
F32 = npt.NDArray[np.float32]
_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class RoutedIds:
    """A batch's ids without repeats, and how its positions refer to them."""

    plan: "Plan"
    core: Routed
    ids: TableIds  # by table, unique, in order of first occurrence
    weights: F32 | None  # [N]
    batch_size: int  # samples: B
    lengths: dict[int, I64]  # lookup that is not pooled -> [B]: ids of each sample
    gradients: bool  # can be trained with

    @property
    def num_unique(self) -> int:
        """Unique ids of all tables: U."""
        return len(self.ids.ids)


class Plan:
    """The lookups of one embedding over the tables of one store.

    Outputs are float32 tensors: [B, width] for the pooled lookups of the user side and of the item side, where there
    are any, then [B, max_len, dim] for each lookup that is not pooled.
    """

    def __init__(self, lookups: Several[Lookup], store: TieredStore, dense: tuple[int, int]) -> None:
        self.lookups = _checked(lookups)
        self.names = tuple(lookup.name for lookup in self.lookups)
        self.tables = tuple(dict.fromkeys(lookup.table for lookup in self.lookups))
        self.specs = _specs_of(self.lookups, store)
        self._dims = [self.specs[lookup.table].dim for lookup in self.lookups]
        self._table_of = np.array([self.tables.index(lookup.table) for lookup in self.lookups], np.uint32)
        self._most = np.array([lookup.max_len or _NO_LIMIT for lookup in self.lookups], np.int64)
        self._weighted = np.array([lookup.weighted for lookup in self.lookups])
        self._shapes: list[tuple[int, ...]] = []  # of the outputs, but for B
        self._places: dict[int, tuple[int, int]] = {}  # lookup -> output, first column there
        self._pooled = {side: self._place_pooled(side) for side in ("user", "item")}
        self._sequences = {side: self._place_sequences(side) for side in ("user", "item")}
        self.user, self.item = self._side_spec("user", dense[0]), self._side_spec("item", dense[1])
        self._pool = store.pool
        self._buffers = Buffers()
        self.core = SparsePlan(
            [
                SparseFeature(int(self._table_of[i]), POOLINGS.index(one.pooling), *self._places[i], one.max_len)
                for i, one in enumerate(self.lookups)
            ],
            [sparse_table(spec, store.config.seed) for spec in self.specs.values()],
            self._pool,
        )
        self.reached = [
            frozenset(int(self._table_of[i]) for i, place in self._places.items() if place[0] == output)
            for output in range(len(self._shapes))
        ]  # by output: the numbers of the tables that its rows are of

    def route(self, ids: JaggedIds, *, gradients: bool) -> RoutedIds:
        """A batch's ids without repeats, by table; ConfigError unless the lookups can take the batch."""
        self._check(ids)
        core = Routed(
            np.ascontiguousarray(ids.values.numpy()),
            np.ascontiguousarray(ids.offsets.numpy()),
            self._table_of,
            len(self.tables),
            self._pool,
            gradients,
        )
        lengths = self._lengths(ids, core)
        unique = TableIds(self.tables, core.starts, core.ids)
        weighted = ids.weights is not None and self._weighted.any()
        weights = np.ascontiguousarray(ids.weights.numpy()) if weighted and ids.weights is not None else None
        return RoutedIds(self, core, unique, weights, ids.batch_size, lengths, gradients)

    def shapes(self, batch_size: int) -> list[tuple[int, ...]]:
        """Of the outputs."""
        return [(batch_size, *shape) for shape in self._shapes]

    def look_up(self, routed: RoutedIds, addresses: npt.NDArray[np.uint64]) -> tuple[Tensor, ...]:
        """The outputs of a batch whose rows' records lie at `addresses`."""
        outputs = [
            self._buffers.take(4 * prod(shape)).view(np.float32).reshape(shape)
            for shape in self.shapes(routed.batch_size)
        ]
        self.core.lookup(routed.core, addresses, routed.weights, outputs)
        return tuple(torch.from_numpy(output) for output in outputs)

    def side_inputs(
        self, routed: RoutedIds, outputs: tuple[Tensor, ...], dense: Tensor
    ) -> tuple[SideInputs, SideInputs]:
        """Outputs and dense columns, taken apart by side."""
        made, at = [], 0
        for spec, side in ((self.user, "user"), (self.item, "item")):
            pooled = self._pooled[side]
            sequences = {
                self.names[i]: Sequence(outputs[self._places[i][0]], torch.from_numpy(routed.lengths[i]))
                for i in self._sequences[side]
            }
            made.append(
                SideInputs(
                    dense=dense[:, at : at + spec.dense],
                    pooled=outputs[self._places[pooled[0]][0]] if pooled else dense.new_empty((routed.batch_size, 0)),
                    sequences=sequences,
                )
            )
            at += spec.dense
        return made[0], made[1]

    def _place_pooled(self, side: Side) -> list[int]:
        pooled = [i for i, one in enumerate(self.lookups) if one.side == side and one.pooling != "none"]
        column = 0
        for i in pooled:
            self._places[i] = (len(self._shapes), column)
            column += self._dims[i]
        if pooled:
            self._shapes.append((column,))
        return pooled

    def _place_sequences(self, side: Side) -> list[int]:
        sequences = [i for i, one in enumerate(self.lookups) if one.side == side and one.pooling == "none"]
        for i in sequences:
            self._places[i] = (len(self._shapes), 0)
            self._shapes.append((self.lookups[i].max_len, self._dims[i]))
        return sequences

    def _side_spec(self, side: Side, dense: int) -> SideSpec:
        sequences = (
            SequenceSpec(name=self.names[i], dim=self._dims[i], max_len=self.lookups[i].max_len)
            for i in self._sequences[side]
        )
        pooled = tuple(self._dims[i] for i in self._pooled[side])
        names = tuple(self.names[i] for i in self._pooled[side])
        return SideSpec(dense=dense, pooled=pooled, pooled_names=names, sequences=tuple(sequences))

    def _check(self, ids: JaggedIds) -> None:
        if ids.values.device.type != "cpu":
            raise ConfigError(f"ids: found them on {ids.values.device}, expected them on the CPU, where the rows are")
        if ids.features != self.names:
            raise ConfigError(_other_features(ids.features, self.names))
        self._check_weights(ids)

    def _lengths(self, ids: JaggedIds, core: Routed) -> dict[int, I64]:
        """Of the lookups that are not pooled; ConfigError where a sample has more ids than its lookup takes."""

        def of(feature: int) -> I64:
            return np.diff(offsets[feature * size : (feature + 1) * size + 1])

        sequences = (*self._sequences["user"], *self._sequences["item"])
        if core.one_per_bag and not sequences:
            return {}
        offsets, size = ids.offsets.numpy(), ids.batch_size
        over = np.flatnonzero(core.longest > self._most)
        if len(over):
            feature, lengths = int(over[0]), of(int(over[0]))
            sample = int(np.argmax(lengths))
            raise ConfigError(
                f"feature {self.names[feature]!r}: found {lengths[sample]} ids in sample {sample} of the batch, "
                f"expected at most {self._most[feature]}: raise its max_len or cut its lists"
            )
        return {feature: of(feature) for feature in sequences}

    def _check_weights(self, ids: JaggedIds) -> None:
        if ids.weights is None:
            if self._weighted.any():
                first = self.names[int(np.argmax(self._weighted))]
                raise ConfigError(f"feature {first!r} is weighted: found a batch without weights, expected one per id")
            return
        weights, size = ids.weights.numpy(), ids.batch_size
        offsets = ids.offsets[::size].tolist() if size else [0] * (len(self.names) + 1)
        for feature in np.flatnonzero(~self._weighted):
            if (weights[offsets[feature] : offsets[feature + 1]] != 1).any():
                raise ConfigError(
                    f"feature {self.names[feature]!r} is not weighted: found weights other than 1 for its ids; set "
                    "weighted in its Lookup, or give it ones"
                )


def _checked(lookups: Several[Lookup]) -> tuple[Lookup, ...]:
    given = tuple(lookups)
    if not given or not all(isinstance(lookup, Lookup) for lookup in given):
        raise ConfigError(f"lookups: found {lookups!r}, expected one Lookup or more")
    names = [lookup.name for lookup in given]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"lookups: found {', '.join(map(repr, twice))} more than once, expected different names")
    return given


def _specs_of(lookups: tuple[Lookup, ...], store: TieredStore) -> dict[str, TableSpec]:
    specs = {}
    for lookup in lookups:
        try:
            specs[lookup.table] = store.tables.named(lookup.table).spec
        except UnknownTable as error:
            raise UnknownTable(f"feature {lookup.name!r}: {error}") from error
    return specs


def _other_features(found: tuple[str, ...], expected: tuple[str, ...]) -> str:
    missing, unknown = [one for one in expected if one not in found], [one for one in found if one not in expected]
    parts = [f"without {', '.join(map(repr, missing))}"] if missing else []
    parts += [f"with {', '.join(map(repr, unknown))}, which no lookup takes"] if unknown else []
    how = " and ".join(parts) or f"in the order {', '.join(found)}"
    return f"ids: found a batch {how}; expected the features {', '.join(expected)}, in this order"
