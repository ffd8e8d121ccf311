"""What features say about columns that they cannot use."""

from collections.abc import Callable

import numpy as np

from stepwell.data.columns import Column, Columns, Mask, Strings
from stepwell.data.feature_specs import Feature
from stepwell.errors import BadRows, ConfigError, DataError


def column_of(columns: Columns, name: str, feature: Feature) -> Column:
    """The column that a feature takes."""
    try:
        return columns[name]
    except ConfigError as error:
        raise ConfigError(f"{error}; feature {feature.name!r} takes it") from None


def reject_column(columns: Columns, name: str, feature: Feature, expected: str) -> DataError:
    """The error for a column of the wrong kind."""
    column = columns[name]
    kind = "strings" if isinstance(column.values, Strings) else str(column.values.dtype)
    found = kind if column.offsets is None else f"lists of {kind}"
    where = f"{_place(columns, 0)}: " if columns.num_rows else ""
    return DataError(f"{where}column {name!r} holds {found}, feature {feature.name!r} expects {expected}")


def reject_rows(
    columns: Columns, name: str, feature: Feature, bad: Mask, found: Callable[[int], str], expected: str
) -> BadRows:
    """The error for rows that a feature cannot use; `found(row)` says what the first of them holds."""
    rows = np.flatnonzero(bad)
    first = int(rows[0])
    more = f" ({len(rows) - 1} more such rows up to {_place(columns, int(rows[-1]))})" if len(rows) > 1 else ""
    message = f"{_place(columns, first)}: column {name!r} holds {found(first)}, feature {feature.name!r} expects "
    return BadRows(f"{message}{expected}{more}", tuple(rows.tolist()))


def _place(columns: Columns, row: int) -> str:
    file, first_row = columns.origin
    return f"{file}, row {first_row + row}" if file else f"row {first_row + row}"
