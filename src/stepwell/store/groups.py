"""Group: tables that one step uses together, and what of their policies matters when it commits."""

import numpy as np

from stepwell.native import TableGroup
from stepwell.rows import TTL, Always, L2Below, MaxRows
from stepwell.store.tables import I64, U8, Table, Tables
from stepwell.store.tier import ResidentTier


class Group:
    """Some tables in a fixed order; members are named by their positions in it."""

    def __init__(self, tables: tuple[Table, ...], top: ResidentTier) -> None:
        self.tables = tables
        self.names = tuple(table.spec.name for table in tables)
        self.numbers = tuple(table.number for table in tables)
        self.widths = [table.layout.record_bytes for table in tables]
        self.core: TableGroup = top.group(list(self.numbers))
        self.layouts: dict[int, list[int]] = {}
        for member, table in enumerate(tables):
            self.layouts.setdefault(table.layout.fingerprint, []).append(member)
        self.choosy = [m for m, table in enumerate(tables) if not isinstance(table.spec.admission, Always)]
        self.choosy_marks: U8 = np.zeros(len(tables), np.uint8)
        self.choosy_marks[self.choosy] = 1
        self.small = [m for m, table in enumerate(tables) if _has(table, L2Below)]
        self.counting = [m for m, table in enumerate(tables) if _has(table, TTL) or _has(table, MaxRows)]

    def rows_by_layout(self, starts: I64) -> dict[int, int]:
        """Layout fingerprint -> rows of a batch; a layout without any is left out."""
        if len(self.layouts) == 1:
            return {layout: int(starts[-1]) for layout in self.layouts} if starts[-1] else {}
        rows = np.diff(starts)
        counts = {layout: int(rows[members].sum()) for layout, members in self.layouts.items()}
        return {layout: count for layout, count in counts.items() if count}


class Groups:
    """The groups that a store has met, made once each."""

    def __init__(self, tables: Tables, top: ResidentTier) -> None:
        self._tables = tables
        self._top = top
        self._made: dict[tuple[str, ...], Group] = {}

    def of(self, names: tuple[str, ...]) -> Group:
        """The group of the tables of these names in this order, or UnknownTable."""
        group = self._made.get(names)
        if group is None:
            tables = tuple(self._tables.named(name) for name in names)
            group = self._made.setdefault(names, Group(tables, self._top))
        return group


def _has(table: Table, policy: type) -> bool:
    return any(isinstance(one, policy) for one in table.spec.expiry)
