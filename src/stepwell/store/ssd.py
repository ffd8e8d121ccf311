"""SsdTier: rows in append-only logs on disk, one directory per row layout. The files: docs/store_format.md."""

from collections.abc import Iterator
from pathlib import Path
from queue import Full, Queue
from threading import Event, Thread
from typing import Any

import numpy as np

from stepwell.errors import StoreCorrupt, StoreIOError
from stepwell.native import ExpiryRule, FaultyEnv, SsdLog, ThreadPool
from stepwell.store.config import SsdSettings
from stepwell.store.tables import I64, U8, U32, Mask, Tables
from stepwell.store.tier import Found, Parts, TierStats

_FOUND = 1
_UNREADABLE = 2
_SCAN_BATCHES_AHEAD = 2


def log_directory(directory: str | Path, fingerprint: int) -> Path:
    """Where the rows of one layout lie."""
    return Path(directory) / f"rows-{fingerprint:016x}"


class SsdTier:
    """Rows on disk; the last tier of a stack. Implements Tier."""

    name = "ssd"

    def __init__(
        self,
        tables: Tables,
        directory: str,
        budget_bytes: int,
        settings: SsdSettings,
        pool: ThreadPool,
        *,
        create: bool = True,
        env: FaultyEnv | None = None,
    ) -> None:
        """Open the logs, or make them. StoreLocked when another process has them."""
        self._tables = tables
        self._budget_bytes = budget_bytes
        self._logs: dict[int, SsdLog] = {}
        self._places: dict[int, SsdLog] = {}
        shares = tables.shares(budget_bytes)
        try:
            for fingerprint, members in tables.by_layout().items():
                layout = members[0].layout
                log = SsdLog(
                    directory=str(log_directory(directory, fingerprint)),
                    record_bytes=layout.record_bytes,
                    count_offset=layout.count_offset,
                    fingerprint=fingerprint,
                    budget_bytes=shares[fingerprint],
                    segment_bytes=settings.segment_bytes,
                    write_buffer_bytes=settings.write_buffer_bytes,
                    background_compaction=settings.background_compaction,
                    create=create,
                    io=settings.io,
                    direct=settings.direct,
                    queue_depth=settings.queue_depth,
                    pool=pool,
                    env=env,
                )
                self._logs[fingerprint] = log
                for table in members:
                    self._places[table.number] = log
        except BaseException:
            self.close()
            raise

    def find(self, table: int, ids: I64) -> Found:
        """See Tier.find. StoreCorrupt and StoreIOError say in a note which ids could not be read."""
        return self.find_parts([(table, ids)])[0]

    def locate(self, table: int, ids: I64) -> U32:
        """See Tier.locate."""
        return self.locate_parts([(table, ids)])[0]

    def find_parts(self, parts: Parts) -> list[Found]:
        """See Tier.find_parts: one read in the order on disk for all tables of a layout."""
        answers: dict[int, Found] = {}
        for log, chosen in self._by_log(parts):
            tables, starts, ids = _joined(parts, chosen)
            records = np.empty((len(ids), self._record_bytes(parts[chosen[0]][0])), np.uint8)
            states, locations = np.empty(len(ids), np.uint8), np.empty(len(ids), np.uint32)
            problem = log.find(tables, starts, ids, records, states, locations)
            if problem is not None:
                kind, message = problem.split(": ", 1)
                error = (StoreCorrupt if kind == "corrupt" else StoreIOError)(message)
                lost = ids[states == _UNREADABLE]
                error.add_note(f"{len(lost)} of {len(ids)} ids could not be read, the first {lost[:8].tolist()}")
                raise error
            found = states == _FOUND
            for part, first, last in zip(chosen, starts.tolist(), starts[1:].tolist(), strict=False):
                answers[part] = Found(records[first:last], found[first:last], locations[first:last])
        return [answers[part] for part in range(len(parts))]

    def locate_parts(self, parts: Parts) -> list[U32]:
        """See Tier.locate_parts."""
        answers: dict[int, U32] = {}
        for log, chosen in self._by_log(parts):
            tables, starts, ids = _joined(parts, chosen)
            locations = np.empty(len(ids), np.uint32)
            log.locate(tables, starts, ids, locations)
            for part, first, last in zip(chosen, starts.tolist(), starts[1:].tolist(), strict=False):
                answers[part] = locations[first:last]
        return [answers[part] for part in range(len(parts))]

    def insert_or_assign(self, table: int, ids: I64, records: U8) -> None:
        """See Tier.insert_or_assign. Findable at once, durable after `sync`."""
        self._places[table].append(table, ids, records)

    def erase(self, table: int, ids: I64) -> Mask:
        """See Tier.erase."""
        erased = np.empty(len(ids), np.uint8)
        self._places[table].erase(table, np.ascontiguousarray(ids[::-1]), erased)  # the log marks the last of equal ids
        return np.ascontiguousarray(erased[::-1]).view(np.bool_)

    def set_expiry(self, table: int, rule: ExpiryRule) -> None:
        """See Tier.set_expiry."""
        self._places[table].set_expiry(table, rule)

    def make_room(self) -> int:
        """See Tier.make_room. Space comes back as segments are compacted."""
        dropped = sum(log.drop_expired(table) for table, log in self._places.items())
        if dropped:
            self.compact()
        return dropped

    def compact(self, *, everything: bool = False) -> None:
        """Rewrite segments at least half stale, or every one that holds anything stale."""
        for log in self._logs.values():
            log.compact(everything)

    def scan(self, table: int) -> Iterator[tuple[I64, U8]]:
        """See Tier.scan; in the order on disk, read by a thread of its own a little ahead."""
        batches: Queue[tuple[I64, U8] | BaseException | None] = Queue(_SCAN_BATCHES_AHEAD)
        stop = Event()

        def put(item: tuple[I64, U8] | BaseException | None) -> None:
            while True:
                if stop.is_set():
                    raise _ScanStopped
                try:
                    return batches.put(item, timeout=0.1)
                except Full:
                    continue

        def read() -> None:
            try:
                self._places[table].scan(table, lambda _, ids, records: put((ids, records)))
                put(None)
            except _ScanStopped:
                pass
            except BaseException as error:  # handed to the thread that iterates
                batches.put(error)

        reader = Thread(target=read, name="stepwell-scan", daemon=True)
        reader.start()
        try:
            while (item := batches.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            stop.set()
            while reader.is_alive():
                while not batches.empty():
                    batches.get()
                reader.join(0.05)

    def num_rows(self, table: int) -> int:
        """See Tier.num_rows."""
        return int(self._places[table].stats()["rows_per_table"].get(table, 0))

    def sync(self) -> None:
        """See Tier.sync."""
        for log in self._logs.values():
            log.sync()

    def link_to(self, directory: str | Path) -> None:
        """Make `directory` hold the same rows by hard links. Implies `sync`."""
        for fingerprint, log in self._logs.items():
            log.link_to(str(log_directory(directory, fingerprint)))

    def stats(self) -> TierStats:
        """See Tier.stats; `logs` holds one dict of figures per layout, in docs/store_format.md's words."""
        logs: list[dict[str, Any]] = [log.stats() for log in self._logs.values()]
        return TierStats(
            name=self.name,
            rows=sum(stats["live_records"] for stats in logs),
            bytes_used=sum(stats["disk_bytes"] for stats in logs),
            budget_bytes=self._budget_bytes,
            details={
                "index_bytes": sum(stats["index_bytes"] for stats in logs),
                "io": logs[0]["io"] if logs else "",
                "direct": logs[0]["direct"] if logs else False,
                "logs": logs,
            },
        )

    def _by_log(self, parts: Parts) -> Iterator[tuple[SsdLog, list[int]]]:
        """Each log that parts go to, with the parts' positions."""
        chosen: dict[int, list[int]] = {}
        for part, (table, _) in enumerate(parts):
            chosen.setdefault(id(self._places[table]), []).append(part)
        for positions in chosen.values():
            yield self._places[parts[positions[0]][0]], positions

    def _record_bytes(self, table: int) -> int:
        return self._tables.numbered(table).layout.record_bytes

    def close(self) -> None:
        """See Tier.close. Rows written since the last `sync` may be lost."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()
        self._places.clear()


def _joined(parts: Parts, chosen: list[int]) -> tuple[U32, I64, I64]:
    """Tables, starts and ids of the chosen parts one after another, as the core takes them."""
    ids = [parts[part][1] for part in chosen]
    starts = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum([len(some) for some in ids], out=starts[1:])
    joined = np.ascontiguousarray(ids[0]) if len(ids) == 1 else np.concatenate(ids)
    return np.array([parts[part][0] for part in chosen], np.uint32), starts, joined


class _ScanStopped(Exception):
    """The iterating side went away."""
