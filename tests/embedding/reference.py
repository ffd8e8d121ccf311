"""What an embedding must do, in dicts and numpy: one occurrence and one row at a time, nothing fetched ahead."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from stepwell.embedding import Lookup
from stepwell.jagged import JaggedIds
from stepwell.rows import TableSpec, bf16_stochastic, decode_weights, fp16_stochastic, stochastic_round_bits
from tests.store.model import Model

F32 = npt.NDArray[np.float32]
U8 = npt.NDArray[np.uint8]
CHUNK = 128
ROUND = {"bf16": bf16_stochastic, "fp16": fp16_stochastic}
Sums = dict[str, dict[int, F32]]  # by table and id


def jagged(features: dict[str, Sequence[Sequence[int]]], weights: Sequence[float] | None = None) -> JaggedIds:
    """Ids by feature and sample."""
    lengths = [len(ids) for samples in features.values() for ids in samples]
    values = [one for samples in features.values() for ids in samples for one in ids]
    return JaggedIds(
        features=tuple(features),
        values=torch.tensor(values, dtype=torch.int64),
        offsets=torch.tensor(np.cumsum([0, *lengths]), dtype=torch.int64),
        weights=torch.tensor(weights, dtype=torch.float32) if weights is not None else None,
    )


class Reference:
    """Rows of `specs` under `lookups`; `commit` ends a step."""

    def __init__(self, specs: Iterable[TableSpec], lookups: Sequence[Lookup], seed: int = 0) -> None:
        self.model = Model(specs, seed)
        self.lookups = lookups
        self._open: dict[str, dict[int, U8]] = {}  # the step's rows by table and id
        self._passes: list[Sums] = []

    def forward(self, ids: JaggedIds) -> dict[str, F32]:
        """By lookup: [B, dim], or [B, max_len, dim]."""
        return {one.name: self._look_up(one, ids) for one in self.lookups}

    def backward(self, ids: JaggedIds, grads: dict[str, F32]) -> None:
        """`grads` by lookup, as `forward` gives outputs; none for lookups whose output nothing depends on.

        A table that a gradient reaches is updated whole, its other rows by zeros; one that none reaches is not.
        """
        reached = {lookup.table for lookup in self.lookups if lookup.name in grads}
        parts: dict[str, dict[int, list[F32]]] = {name: {} for name in reached}
        for lookup in (one for one in self.lookups if one.table in reached):
            zeros = np.zeros((ids.batch_size, self.model.specs[lookup.table].dim), np.float32)
            table, whole = parts[lookup.table], grads.get(lookup.name, zeros)
            for sample, bag in enumerate(bags(ids, lookup.name)):
                for k, (one, weight) in enumerate(bag):
                    grad = whole[sample]
                    grad = grad[k] if grad.ndim == 2 else grad
                    if lookup.pooling == "mean":
                        grad = grad / np.float32(len(bag))
                    table.setdefault(one, []).append(grad * weight)
        self._passes.append({name: {one: in_chunks(g) for one, g in some.items()} for name, some in parts.items()})

    def apply(self, lr_factor: float = 1.0, frozen: Sequence[str] = ()) -> None:
        for name, spec in self.model.specs.items():
            sums: dict[int, F32] = {}
            for one in self._passes:
                for row, grad in one.get(name, {}).items():
                    sums[row] = sums[row] + grad if row in sums else grad
            if sums and name not in frozen:
                self._update(spec, sums, spec.optimizer.lr * lr_factor)
        self._passes = []

    def commit(self, event_time: float | None = None) -> None:
        worked = {}
        for name, rows in self._open.items():
            ids = np.array(sorted(rows), np.int64)
            records = np.array([rows[one] for one in ids.tolist()], np.uint8)
            worked[name] = (ids, records.reshape(len(ids), self.model.specs[name].layout.record_bytes))
        self.model.commit(worked, event_time)
        self._open = {}

    def _look_up(self, lookup: Lookup, ids: JaggedIds) -> F32:
        dim = self.model.specs[lookup.table].dim
        shape = (ids.batch_size, lookup.max_len, dim) if lookup.pooling == "none" else (ids.batch_size, dim)
        out = np.zeros(shape, np.float32)
        for sample, bag in enumerate(bags(ids, lookup.name)):
            for k, (one, weight) in enumerate(bag):
                row = self._weights(lookup.table, one) * weight
                if lookup.pooling == "none":
                    out[sample, k] = row
                else:
                    out[sample] += row
            if lookup.pooling == "mean" and bag:
                out[sample] /= np.float32(len(bag))
        return out

    def _weights(self, table: str, one: int) -> F32:
        rows = self._open.setdefault(table, {})
        if one not in rows:
            rows[one] = self.model.batch(table, np.array([one], np.int64))[0]
        spec = self.model.specs[table]
        return decode_weights(spec.layout.views(rows[one][None]).weight, spec.weight_dtype)[0]

    def _update(self, spec: TableSpec, sums: dict[int, F32], rate: float) -> None:
        step = self.model.step + 1
        for one, grad in sums.items():
            record = self._open[spec.name][one][None]
            views = spec.layout.views(record)
            weights = decode_weights(views.weight, spec.weight_dtype).copy()
            state = {name: values.copy() for name, values in views.state.items()}
            spec.optimizer.apply(weights, state, grad[None], step, rate)
            if spec.weight_dtype == "fp32":
                views.weight[...] = weights
            else:
                draws = stochastic_round_bits(spec.key(self.model.seed), np.array([one], np.int64), step, spec.dim)
                views.weight[...] = ROUND[spec.weight_dtype](weights, draws)
            for name, values in state.items():
                views.state[name][...] = values


def bags(ids: JaggedIds, feature: str) -> list[list[tuple[int, np.float32]]]:
    """By sample: ids and their weights."""
    at, size = ids.features.index(feature), ids.batch_size
    offsets = ids.offsets.tolist()
    weights = ids.weights.numpy() if ids.weights is not None else np.ones(ids.values.numel(), np.float32)
    found = []
    for bag in range(at * size, (at + 1) * size):
        begin, end = offsets[bag], offsets[bag + 1]
        found.append(list(zip(ids.values[begin:end].tolist(), weights[begin:end], strict=True)))
    return found


def in_chunks(grads: list[F32]) -> F32:
    """The sum of a row's occurrences in order: chunks of 128 from 0, then the chunks from 0."""
    total = np.zeros_like(grads[0])
    for first in range(0, len(grads), CHUNK):
        part = np.zeros_like(total)
        for grad in grads[first : first + CHUNK]:
            part = part + grad
        total = total + part
    return total
