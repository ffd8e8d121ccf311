"""ParquetSource: row groups of Parquet files."""

from collections.abc import Sequence
from dataclasses import dataclass

from stepwell.data.columns import Columns
from stepwell.data.source import Source, Unit


@dataclass(frozen=True, kw_only=True, slots=True)
class ParquetSource(Source):
    """Files, folders (their *.parquet), globs and fsspec URLs of all these, such as "s3://bucket/day=1/*.parquet".

    A unit is a row group. Only the columns that are asked for are read: integers, floats, booleans, strings and lists
    of them; timestamps and dates become float64 seconds. A null is a missing value; in a list of floats it is NaN, and
    in any other list it makes the row a bad one. All files must hold the same kind of values in a column.
    """

    paths: tuple[str, ...]

    def __post_init__(self) -> None:
        self._require_tuple_of("paths", str)
        self._require(bool(self.paths) and all(self.paths), "paths", "at least one path, none empty")

    def units(self) -> tuple[Unit, ...]:
        """Reads every file's footer."""
        from stepwell.data import parquet_files

        return parquet_files.units_of(self.paths)

    def read(self, unit: Unit, names: Sequence[str], *, skip_bad_rows: bool = False) -> Columns:
        """On the calling thread alone: readers read several row groups at once."""
        from stepwell.data import parquet_files

        return parquet_files.read_unit(unit, names, skip_bad_rows=skip_bad_rows)
