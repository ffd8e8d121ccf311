"""The least that a reader needs of features: id columns as they are, dense columns as they are."""

from dataclasses import dataclass

import numpy as np
import torch

from stepwell.data.columns import Columns
from stepwell.data.samples import F32
from stepwell.jagged import JaggedIds


@dataclass(frozen=True)
class PlainFeatures:
    ids: tuple[str, ...]
    dense: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.ids, *self.dense)

    def compute(self, columns: Columns, /) -> tuple[JaggedIds, F32]:
        n, values, lengths = columns.num_rows, [], []
        for name in self.ids:
            column = columns[name]
            values.append(np.asarray(column.values, np.int64))
            lengths.append(np.diff(column.offsets) if column.offsets is not None else np.ones(n, np.int64))
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
        ids = JaggedIds(self.ids, torch.from_numpy(np.concatenate(values)), torch.from_numpy(offsets))
        dense = [np.asarray(columns[name].values, np.float32) for name in self.dense]
        return ids, np.stack(dense, axis=1) if dense else np.zeros((n, 0), np.float32)
