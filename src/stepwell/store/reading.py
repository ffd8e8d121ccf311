"""Reading rows of several tables at once, for evaluation and serving: copies by address, first values where none is."""

from collections.abc import Callable, Sequence

import numpy as np

from stepwell.store.buffers import Buffers
from stepwell.store.epochs import View
from stepwell.store.groups import Group
from stepwell.store.results import RowCopies
from stepwell.store.tables import I64, U8, Mask, Table, TableIds, first_records
from stepwell.store.tier import Tier

ReadTable = Callable[[int, I64, View], tuple[U8, Mask]]


def read_rows(
    tables: Sequence[Table],
    asked: TableIds,
    view: View,
    group: Group | None,
    below: Tier | None,
    read_table: ReadTable,
    buffers: Buffers,
) -> RowCopies:
    """Copies of the view's rows.

    REQUIRES: `read_table` reads one table through every tier and overlay; `group` is None where there is no DRAM tier.
    """
    starts, ids = asked.starts, asked.ids
    widths = group.widths if group is not None else [table.layout.record_bytes for table in tables]
    ends = np.zeros(len(starts), np.int64)
    np.cumsum(np.diff(starts) * widths, out=ends[1:])
    buffer = buffers.take(int(ends[-1]))
    records = {table.spec.name: buffer[ends[m] : ends[m + 1]].reshape(-1, widths[m]) for m, table in enumerate(tables)}
    found, addresses = np.empty(len(ids), np.uint8), np.empty(len(ids), np.uint64)
    if group is not None and not view.overlays:
        core = group.core
        core.read(starts, ids, buffer, addresses, found)
        if below is not None:
            _read_below(tables, asked, below, records, found)
        core.first_values(starts, ids, np.flatnonzero(found == 0).astype(np.uint32), addresses)
    else:
        for m, table in enumerate(tables):
            mine, copies = slice(starts[m], starts[m + 1]), records[table.spec.name]
            some = ids[mine]
            copies[...], there = read_table(table.number, some, view)
            copies[~there] = first_records(table, some[~there])
            found[mine] = there
            base = np.uint64(buffer.ctypes.data + int(ends[m]))
            addresses[mine] = base + np.arange(len(some), dtype=np.uint64) * np.uint64(widths[m])
    return RowCopies(asked.names, starts, found.view(np.bool_), addresses, records)


def _read_below(tables: Sequence[Table], asked: TableIds, below: Tier, records: dict[str, U8], found: U8) -> None:
    starts = asked.starts
    missing = np.flatnonzero(found == 0)
    cuts = np.searchsorted(missing, starts).tolist()
    members = [m for m in range(len(tables)) if cuts[m] < cuts[m + 1]]
    positions = [missing[cuts[m] : cuts[m + 1]] for m in members]
    parts = [(tables[m].number, asked.ids[some]) for m, some in zip(members, positions, strict=True)]
    for m, some, answer in zip(members, positions, below.find_parts(parts) if parts else [], strict=True):
        there = some[answer.found]
        records[tables[m].spec.name][there - starts[m]] = answer.records[answer.found]
        found[there] = 1
