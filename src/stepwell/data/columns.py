"""Columns: raw samples as sources read them and features take them, column by column, in numpy."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepwell.errors import ConfigError

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Strings:
    """n byte strings: string i is data[offsets[i] : offsets[i + 1]]."""

    data: npt.NDArray[np.uint8]
    offsets: I64  # [n + 1], not falling; the first need not be 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[bytes]:
        """One by one: for messages and tests, not for work."""
        data = self.data.tobytes()
        return (data[a:b] for a, b in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True))

    def slice(self, start: int, stop: int) -> "Strings":
        """Strings start .. stop - 1, a view."""
        return Strings(self.data, self.offsets[start : stop + 1])

    def where(self, keep: Mask) -> "Strings":
        """The strings that are kept."""
        data, offsets = _kept(self.data[self.offsets[0] : self.offsets[-1]], self.offsets - self.offsets[0], keep)
        return Strings(data, offsets)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of n rows.

    Scalar: `values` has n. List: `offsets` int64 [n + 1], from 0, not falling, and `values` has offsets[n].
    `valid` bool [n], None where all are: a row that is missing has an arbitrary value, or an empty list.
    """

    values: npt.NDArray[Any] | Strings  # any numeric dtype, or strings
    offsets: I64 | None = None
    valid: Mask | None = None

    @property
    def num_rows(self) -> int:
        """n."""
        return len(self.offsets) - 1 if self.offsets is not None else len(self.values)

    def slice(self, start: int, stop: int) -> "Column":
        """Rows start .. stop - 1, views but for a list's offsets."""
        valid = self.valid[start:stop] if self.valid is not None else None
        if self.offsets is None:
            return Column(_slice(self.values, start, stop), None, valid)
        low, high = int(self.offsets[start]), int(self.offsets[stop])
        return Column(_slice(self.values, low, high), self.offsets[start : stop + 1] - low, valid)

    def where(self, keep: Mask) -> "Column":
        """The rows that are kept."""
        valid = self.valid[keep] if self.valid is not None else None
        if self.offsets is None:
            return Column(_where(self.values, keep), None, valid)
        lengths = np.diff(self.offsets)
        return Column(_where(self.values, np.repeat(keep, lengths)), _offsets(lengths[keep]), valid)


def _slice(values: npt.NDArray[Any] | Strings, start: int, stop: int) -> npt.NDArray[Any] | Strings:
    return values.slice(start, stop) if isinstance(values, Strings) else values[start:stop]


def _where(values: npt.NDArray[Any] | Strings, keep: Mask) -> npt.NDArray[Any] | Strings:
    return values.where(keep) if isinstance(values, Strings) else values[keep]


def _kept(values: npt.NDArray[Any], offsets: I64, keep: Mask) -> tuple[npt.NDArray[Any], I64]:
    lengths = np.diff(offsets)
    return values[np.repeat(keep, lengths)], _offsets(lengths[keep])


def _offsets(lengths: I64) -> I64:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


@dataclass(frozen=True, slots=True)
class Columns:
    """Some rows of some columns. `origin` is the file and its first row, for messages: ("part-0.parquet", 1000)."""

    columns: Mapping[str, Column]
    num_rows: int
    origin: tuple[str, int] = ("", 0)
    skipped: int = 0  # rows between the first and the last that were left out because they could not be read

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            if column.num_rows != self.num_rows:
                raise ConfigError(f"column {name!r}: found {column.num_rows} rows, expected {self.num_rows}")

    def __getitem__(self, name: str) -> Column:
        if name not in self.columns:
            raise ConfigError(f"{self.origin[0]}: found no column {name!r}, only {', '.join(sorted(self.columns))}")
        return self.columns[name]

    def where(self, keep: Mask) -> "Columns":
        """The rows that are kept; the others count as skipped."""
        kept = int(keep.sum())
        columns = {name: column.where(keep) for name, column in self.columns.items()}
        return Columns(columns, kept, self.origin, self.skipped + self.num_rows - kept)
