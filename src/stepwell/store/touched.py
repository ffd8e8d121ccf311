"""Touched: which ids each step wrote and removed, for as many steps as a bound allows."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from stepwell.errors import TouchedLogTruncated
from stepwell.store.groups import Group
from stepwell.store.tables import I64, Tables

_CHUNK_IDS = 1 << 19  # 4 MiB: what numpy puts on huge pages; a page fault every 512 ids took 4% of a sparse step


@dataclass(slots=True)
class StepLog:
    """The ids that one step, or the changes made between two commits, touched and erased, by table number."""

    step: int
    touched: dict[int, list[I64]] = field(default_factory=dict)
    erased: dict[int, list[I64]] = field(default_factory=dict)
    whole: list[tuple[Group, I64, I64]] = field(default_factory=list)  # touched too: starts and ids of all its tables

    def size(self) -> int:
        """Ids held."""
        named = sum(len(ids) for some in (self.touched, self.erased) for lists in some.values() for ids in lists)
        return named + sum(len(ids) for _, _, ids in self.whole)

    def touched_by_table(self) -> dict[int, list[I64]]:
        """Every id touched, by table number."""
        by_table = {number: list(lists) for number, lists in self.touched.items()}
        for group, starts, ids in self.whole:
            for member, number in enumerate(group.numbers):
                by_table.setdefault(number, []).append(ids[starts[member] : starts[member + 1]])
        return by_table


@dataclass(frozen=True, slots=True)
class Touched:
    """Ids by table name, each once and sorted: rows written since a step, and rows removed by name since then.

    An id may be in both; what it is now, only a look can tell. Rows that expire by rule are in neither.
    """

    ids: dict[str, I64]
    erased: dict[str, I64]


class TouchedLog:
    """The last steps' ids, as many as the bound allows; older steps are forgotten whole."""

    def __init__(self, tables: Tables, most_ids: int, since: int) -> None:
        self._tables = tables
        self._most_ids = most_ids
        self._logs: deque[StepLog] = deque()
        self._held = 0
        self._complete_since = since
        self._chunk = np.empty(0, np.int64)
        self._taken = 0  # of the chunk

    def copy(self, ids: I64) -> I64:
        """A copy for a StepLog: what a caller gives may change later, or be a part of all that its batch holds."""
        n = len(ids)
        if n > _CHUNK_IDS // 8:
            return ids.copy()
        if self._taken + n > len(self._chunk):
            self._chunk, self._taken = np.empty(_CHUNK_IDS, np.int64), 0
        mine = self._chunk[self._taken : self._taken + n]
        self._taken += n
        mine[:] = ids
        return mine

    def append(self, log: StepLog) -> None:
        """Remember a committed step."""
        self._logs.append(log)
        self._held += log.size()
        while self._held > self._most_ids and self._logs:
            oldest = self._logs.popleft()
            self._held -= oldest.size()
            self._complete_since = oldest.step

    def since(self, step: int, pending: StepLog) -> Touched:
        """Ids of the steps after `step`, and of changes made since the last commit."""
        if step < self._complete_since:
            raise TouchedLogTruncated(
                f"touched({step}): the log of touched ids goes back to step {self._complete_since} only; raise "
                f"touched_ids above {self._most_ids}, ask more often, or export the whole store"
            )
        logs = [log for log in self._logs if log.step > step] + [pending]
        return Touched(
            ids=self._merged([log.touched_by_table() for log in logs]),
            erased=self._merged([log.erased for log in logs]),
        )

    def _merged(self, parts: list[dict[int, list[I64]]]) -> dict[str, I64]:
        merged: dict[str, I64] = {}
        for table in self._tables:
            lists = [ids for part in parts for ids in part.get(table.number, [])]
            if lists:
                merged[table.spec.name] = np.unique(np.concatenate(lists))
        return merged
