"""ArraySource: samples that are in memory already."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepwell.data.columns import I64, Column, Columns, Strings
from stepwell.data.source import Source, Unit
from stepwell.errors import ConfigError, ReadProblem

_NAME = "arrays"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ArraySource(Source):
    """Columns in memory. Numpy arrays are not copied; do not change them afterwards.

    A column is a numeric array [n], masked or not; strings (an array, or a list with None where missing); an array
    [n, k] or a list of arrays, a list column; or a `Column`. JSON gets a description, from which nothing can be read.
    """

    columns: dict[str, str | Any]
    unit_rows: int = 65536

    def __post_init__(self) -> None:
        self._require_int("unit_rows", 1, 1 << 40)
        self._require_instance("columns", Mapping)
        self._require(bool(self.columns), "columns", "at least one column")
        made = {name: _column(name, given) for name, given in self.columns.items()}
        rows = {name: column.num_rows for name, column in made.items()}
        if len(set(rows.values())) > 1:
            raise ConfigError(f"ArraySource.columns: found {rows}, expected as many rows in every column")
        if not next(iter(rows.values())):
            raise ConfigError("ArraySource.columns: found no rows, expected at least one")
        object.__setattr__(self, "columns", made)

    @property
    def _made(self) -> dict[str, Column]:
        return self.columns  # type: ignore[return-value]

    @property
    def num_rows(self) -> int:
        """Rows in all."""
        return next(iter(self._made.values())).num_rows

    def to_dict(self) -> dict[str, Any]:
        """What is there, in words: the values themselves are not saved."""
        described = {name: _describe(column) for name, column in self._made.items()}
        return {"kind": "ArraySource", "columns": described, "unit_rows": self.unit_rows}

    def units(self) -> tuple[Unit, ...]:
        """Slices of `unit_rows`."""
        num = self.num_rows
        starts = range(0, num, self.unit_rows)
        return tuple(
            Unit(_NAME, part, min(self.unit_rows, num - start), first_row=start) for part, start in enumerate(starts)
        )

    def read(self, unit: Unit, names: Sequence[str], *, skip_bad_rows: bool = False) -> Columns:
        """Views."""
        start = unit.part * self.unit_rows
        stop = min(start + self.unit_rows, self.num_rows)
        for name in names:
            if name not in self.columns:
                raise ReadProblem(_NAME, None, name, f"found no such column, only {', '.join(sorted(self.columns))}")
        return Columns(
            {name: self._made[name].slice(start, stop) for name in names}, stop - start, origin=(_NAME, start)
        )


def _column(name: str, given: Any) -> Column:
    where = f"ArraySource.columns[{name!r}]"
    if isinstance(given, Column):
        return given
    if isinstance(given, str):
        raise ConfigError(f"{where}: found the description {given!r}; arrays are not saved: give them again")
    if isinstance(given, np.ma.MaskedArray):
        valid = ~np.ma.getmaskarray(given)
        if given.ndim != 1 or given.dtype.kind not in "biuf":
            raise ConfigError(f"{where}: found a masked {given.dtype} {given.shape}, expected one that is numeric [n]")
        return Column(np.asarray(given.data), None, valid)
    if isinstance(given, np.ndarray):
        return _from_array(where, given)
    if isinstance(given, (list, tuple)):
        return _from_list(where, given)
    raise ConfigError(f"{where}: found a {type(given).__name__}, expected an array, a list of them, or of strings")


def _from_array(where: str, given: npt.NDArray[Any]) -> Column:
    if given.dtype.kind in "SU" and given.ndim == 1:
        return _strings(given.tolist())
    if given.dtype.kind == "O" and given.ndim == 1:
        return _from_list(where, given.tolist())
    if given.dtype.kind not in "biuf" or given.ndim not in {1, 2}:
        raise ConfigError(f"{where}: found {given.dtype} {given.shape}, expected numbers or strings, [n] or [n, k]")
    if given.ndim == 1:
        return Column(given)
    num, width = given.shape
    return Column(np.ascontiguousarray(given).reshape(-1), np.arange(num + 1, dtype=np.int64) * width)


def _from_list(where: str, given: Sequence[Any]) -> Column:
    present = [item for item in given if item is not None]
    valid = np.array([item is not None for item in given], np.bool_) if len(present) < len(given) else None
    if present and all(isinstance(item, (str, bytes)) for item in present):
        return Column(_strings(given).values, None, valid)
    rows = [np.asarray(item if item is not None else ()) for item in given]
    filled = [row for row in rows if row.size]
    if not given or any(row.ndim != 1 for row in rows) or len({row.dtype.kind in "SU" for row in filled}) > 1:
        raise ConfigError(f"{where}: found a list of other things, expected strings or one-dimensional arrays")
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    values: npt.NDArray[Any] = np.concatenate(filled) if filled else np.zeros(0, np.int64)
    if values.dtype.kind in "SU":
        return Column(_strings(values.tolist()).values, offsets, valid)
    if values.dtype.kind not in "biuf":
        raise ConfigError(f"{where}: found lists of {values.dtype}, expected numbers or strings")
    return Column(values, offsets, valid)


def _strings(items: Sequence[str | bytes | None]) -> Column:
    encoded = [item.encode() if isinstance(item, str) else item or b"" for item in items]
    offsets: I64 = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(item) for item in encoded], out=offsets[1:])
    return Column(Strings(np.frombuffer(b"".join(encoded), np.uint8), offsets))


def _describe(column: Column) -> str:
    kind = "strings" if isinstance(column.values, Strings) else str(column.values.dtype)
    return f"{'lists of ' if column.offsets is not None else ''}{kind} [{column.num_rows}]"
