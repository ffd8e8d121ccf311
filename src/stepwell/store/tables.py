"""Which tables a store has: their numbers, layouts and keys. Tables of one layout share slots and files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt

from stepwell.errors import ConfigError, UnknownTable
from stepwell.native import InitProgram, draw_weights
from stepwell.rows import RowLayout, TableSpec

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]

MAX_BATCH = 1 << 31  # ids in one call


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a store. `number` names it in every tier and on disk."""

    number: int
    spec: TableSpec
    layout: RowLayout
    key: int  # of the generator


class Tables:
    """The tables of one store, by name and by number."""

    def __init__(self, specs: tuple[TableSpec, ...], seed: int, numbers: dict[str, int] | None = None) -> None:
        """REQUIRES: `numbers`, where given, has a number for each spec's name."""
        chosen = numbers if numbers is not None else {spec.name: i for i, spec in enumerate(specs)}
        self._by_name = {spec.name: Table(chosen[spec.name], spec, spec.layout, spec.key(seed)) for spec in specs}
        self._by_number = {table.number: table for table in self._by_name.values()}

    def __iter__(self) -> Iterator[Table]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def named(self, name: str) -> Table:
        """The table of that name, or UnknownTable."""
        table = self._by_name.get(name)
        if table is None:
            near = get_close_matches(str(name), self._by_name, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UnknownTable(f"unknown table {name!r}; the store has {', '.join(sorted(self._by_name))}{hint}")
        return table

    def numbered(self, number: int) -> Table:
        """REQUIRES: a number of this store."""
        return self._by_number[number]

    def by_layout(self) -> dict[int, list[Table]]:
        """Layout fingerprint -> its tables, in the order of their numbers."""
        groups: dict[int, list[Table]] = {}
        for table in sorted(self, key=lambda table: table.number):
            groups.setdefault(table.layout.fingerprint, []).append(table)
        return groups

    def fractions(self) -> dict[int, float]:
        """Layout fingerprint -> its part of what there is for rows, by the bytes of its tables' expected rows.

        A table that does not say how many rows it expects counts as the mean of those that do.
        """
        known = [table.spec.expected_rows for table in self if table.spec.expected_rows]
        usual = sum(known) / len(known) if known else 1.0
        wants = {
            fingerprint: sum((table.spec.expected_rows or usual) * table.layout.record_bytes for table in tables)
            for fingerprint, tables in self.by_layout().items()
        }
        total = sum(wants.values())
        return {fingerprint: want / total for fingerprint, want in wants.items()}

    def shares(self, budget_bytes: int) -> dict[int, int]:
        """Layout fingerprint -> its part of a budget."""
        return {fingerprint: int(budget_bytes * part) for fingerprint, part in self.fractions().items()}


class TableIds(Mapping[str, I64]):
    """Ids of several tables in one array, one table's after another's; as a mapping, each table's by its name."""

    __slots__ = ("ids", "names", "starts")

    def __init__(self, names: Sequence[str], starts: I64, ids: I64) -> None:
        """REQUIRES: ids[starts[t] : starts[t + 1]] are those of names[t]; contiguous arrays of int64."""
        self.names = tuple(names)
        self.starts = starts
        self.ids = ids

    @classmethod
    def of(cls, tables: Mapping[str, I64]) -> "TableIds":
        """The same ids, checked, in one array."""
        if isinstance(tables, cls):
            return tables
        wanted = [check_ids(ids) for ids in tables.values()]
        starts = np.zeros(len(wanted) + 1, np.int64)
        np.cumsum([len(ids) for ids in wanted], out=starts[1:])
        return cls(tuple(tables), starts, np.concatenate([np.empty(0, np.int64), *wanted]))

    def __getitem__(self, name: str) -> I64:
        if name not in self.names:
            raise KeyError(name)
        table = self.names.index(name)
        return self.ids[self.starts[table] : self.starts[table + 1]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def first_records(table: Table, ids: I64) -> U8:
    """uint8 [n, record_bytes]: rows as they are born, not committed."""
    records = np.tile(table.spec.initial_record(), (len(ids), 1))
    program = table.spec.initializer.program(table.spec.dim)
    weights = np.empty((len(ids), table.layout.views(records).weight.itemsize * table.spec.dim), np.uint8)
    native = InitProgram(program.kind, program.scale, program.a, program.b, program.constant)
    draw_weights(native, table.key, ids, table.spec.dim, table.layout.weight_dtype_code, weights)
    records[:, : weights.shape[1]] = weights
    return records


def check_ids(ids: Any) -> I64:
    """`ids` as the core takes them, or ConfigError."""
    if not isinstance(ids, np.ndarray) or ids.dtype != np.int64 or ids.ndim != 1:
        found = f"{ids.dtype} {ids.shape}" if isinstance(ids, np.ndarray) else type(ids).__name__
        raise ConfigError(f"ids: found {found}, expected a numpy int64 array of one dimension")
    if len(ids) >= MAX_BATCH:
        raise ConfigError(f"ids: found {len(ids)} in one call, expected fewer than {MAX_BATCH}; split the batch")
    return np.ascontiguousarray(ids)


def check_records(records: Any, rows: int, table: Table) -> U8:
    """`records` as the core takes them, or ConfigError."""
    check_array(records, f"records of table {table.spec.name!r}", np.uint8, (rows, table.layout.record_bytes))
    return np.ascontiguousarray(records)


def check_array(array: Any, name: str, dtype: type[np.generic], shape: tuple[int, ...]) -> None:
    """ConfigError unless `array` is a numpy array of that dtype and shape."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
        found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise ConfigError(f"{name}: found {found}, expected {dtype.__name__} {shape}")
