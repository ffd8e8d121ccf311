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


@dataclass(frozen=True, slots=True)
class Columns:
    """Some rows of some columns. `origin` is the file and its first row, for messages: ("part-0.parquet", 1000)."""

    columns: Mapping[str, Column]
    num_rows: int
    origin: tuple[str, int] = ("", 0)

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            if column.num_rows != self.num_rows:
                raise ConfigError(f"column {name!r}: found {column.num_rows} rows, expected {self.num_rows}")

    def __getitem__(self, name: str) -> Column:
        if name not in self.columns:
            raise ConfigError(f"{self.origin[0]}: found no column {name!r}, only {', '.join(sorted(self.columns))}")
        return self.columns[name]
