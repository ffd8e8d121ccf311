"""SyntheticSource: samples made on the fly, a function of the settings and the row number alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

import numpy as np

from stepwell.data.columns import Column, Columns
from stepwell.data.draws import F32
from stepwell.data.source import Source, Unit
from stepwell.data.synthetic_criteo import CriteoWorld
from stepwell.data.synthetic_sequence import SequenceWorld
from stepwell.errors import ReadProblem

_BLOCK = 16384  # rows that are drawn together
_BLOCKS_PER_UNIT = 4
_FIRST_SECOND = 1_700_000_000


class _World(Protocol):
    dense_auc: float  # of the best model that sees no ids

    def block(self, block: int, n: int, days: F32) -> dict[str, Column]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class SyntheticSource(Source):
    """Rows first_row .. first_row + rows - 1 of an endless table, in order of time.

    Shape "criteo": click, convert, event_time, user, int_1 .. int_13 (counts, some missing), cat_1 .. cat_26 (ids below
    2**32, some missing), teacher, teacher_convert. Shape "sequence": click, convert, event_time, user, item, category,
    history and history_category (lists of 1 to `max_history`), price, hour, teacher, teacher_convert. `convert` is only
    ever 1 where `click` is. The teacher's columns are the probabilities that the labels were drawn with; `auc` is its
    own expected AUC for click, which no model can beat, and `click_rate` the mean.
    """

    rows: int
    shape: Literal["criteo", "sequence"] = "criteo"
    first_row: int = 0
    seed: int = 0
    alpha: float = 1.05  # of the power law that ids are drawn with
    vocabulary: int = 1_000_000  # ids that the largest column has at a time
    churn: float = 0.05  # share of a column's ids replaced in a day
    rows_per_day: int = 1_000_000
    auc: float = 0.80
    click_rate: float = 0.25
    max_history: int = 0  # "sequence" only, where 0 means 50

    def __post_init__(self) -> None:
        self._require_int("rows", 1, 1 << 40)
        self._require(self.shape in {"criteo", "sequence"}, "shape", "'criteo' or 'sequence'")
        self._require_int("first_row", 0, 1 << 40)
        self._require_int("seed", 0, (1 << 63) - 1)
        self._require_float("alpha", 0, 4)
        self._require_int("vocabulary", 1000, 1 << 26)
        self._require_float("churn", 0, 10)
        self._require_int("rows_per_day", 1, 1 << 40)
        self._require_float("auc", 0.6, 0.9)
        self._require_float("click_rate", 0.01, 0.9)
        self._require_int("max_history", 0, 512)
        self._require(self.shape == "sequence" or not self.max_history, "max_history", "0 where shape is 'criteo'")

    def units(self) -> tuple[Unit, ...]:
        """At most 65536 rows each, cut at multiples of that."""
        size, end = _BLOCK * _BLOCKS_PER_UNIT, self.first_row + self.rows
        numbers = range(self.first_row // size, -(-end // size))
        starts = [max(number * size, self.first_row) for number in numbers]
        stops = [min((number + 1) * size, end) for number in numbers]
        return tuple(
            Unit(self._name, number, stop - start, first_row=start)
            for number, start, stop in zip(numbers, starts, stops, strict=True)
        )

    def read(self, unit: Unit, names: Sequence[str], *, skip_bad_rows: bool = False) -> Columns:
        """Drawn now; no row is ever bad."""
        assert unit.num_rows is not None and unit.first_row is not None
        start, stop = unit.first_row, unit.first_row + unit.num_rows
        pieces = []
        for block in range(start // _BLOCK, -(-stop // _BLOCK)):
            low, high = max(start - block * _BLOCK, 0), min(stop - block * _BLOCK, _BLOCK)
            made = self._block(block, high)
            for name in names:
                if name not in made:
                    raise ReadProblem(self._name, None, name, f"found no such column, only {', '.join(made)}")
            pieces.append({name: made[name].slice(low, high) for name in names})
        columns = {name: _joined([piece[name] for piece in pieces]) for name in names}
        return Columns(columns, unit.num_rows, origin=(self._name, start))

    @property
    def names(self) -> tuple[str, ...]:
        """Every column, in order."""
        return tuple(self._block(0, 1))

    @property
    def dense_auc(self) -> float:
        """The expected AUC of the best model that sees no ids, on a sample of rows."""
        return self._world().dense_auc

    @property
    def _name(self) -> str:
        return f"synthetic {self.shape}"

    def _world(self) -> _World:
        shared = (self.seed, self.alpha, self.vocabulary, self.churn, self.auc, self.click_rate)
        return _criteo(*shared) if self.shape == "criteo" else _sequence(*shared, self.max_history or 50)

    def _block(self, block: int, n: int) -> dict[str, Column]:
        rows = block * _BLOCK + np.arange(n, dtype=np.int64)
        days = rows / self.rows_per_day
        columns = self._world().block(block, n, days.astype(np.float32))
        columns["event_time"] = Column(days * 86400.0 + _FIRST_SECOND)
        return columns


@lru_cache(maxsize=8)
def _criteo(seed: int, alpha: float, vocabulary: int, churn: float, auc: float, click_rate: float) -> CriteoWorld:
    return CriteoWorld(seed, alpha, vocabulary, churn, auc, click_rate)


@lru_cache(maxsize=8)
def _sequence(
    seed: int, alpha: float, vocabulary: int, churn: float, auc: float, click_rate: float, max_history: int
) -> SequenceWorld:
    return SequenceWorld(seed, alpha, vocabulary, churn, auc, click_rate, max_history)


def _joined(parts: list[Column]) -> Column:
    if len(parts) == 1:
        return parts[0]
    values = np.concatenate([np.asarray(part.values) for part in parts])
    present = [part.valid for part in parts if part.valid is not None]
    valid = np.concatenate(present) if present else None
    offsets = [part.offsets for part in parts if part.offsets is not None]
    if not offsets:
        return Column(values, None, valid)
    ends = np.cumsum([0] + [int(own[-1]) for own in offsets])
    moved = [own[1:] + end for own, end in zip(offsets, ends[:-1].tolist(), strict=True)]
    return Column(values, np.concatenate([np.zeros(1, np.int64), *moved]), valid)
