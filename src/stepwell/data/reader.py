"""BatchReader: a source's rows as batches, read ahead by threads, the same ones whatever their number.

Memory: at most `workers + 1` units are read ahead, beside the units of the window that batches are cut from (and of
the one before it, while a batch lies across both).
"""

import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count

import numpy as np

from stepwell.data.batch import Batch, Cursor
from stepwell.data.columns import I64
from stepwell.data.order import permutation
from stepwell.data.prepare import Features, Preparation, ReaderConfig
from stepwell.data.samples import Pool, Samples
from stepwell.data.source import Source, Unit, digest
from stepwell.errors import ConfigError, DataError, ReaderClosed

_UNITS, _ROWS = 0, 1  # what a permutation is for


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a reader stands: before row `row` of window `window`, whose first unit is at `unit` in the rank's order."""

    epoch: int = 0
    window: int = 0
    unit: int = 0
    row: int = 0
    skipped: int = 0  # rows left out before this window


@dataclass(frozen=True, slots=True)
class _Read:
    """The unit at place `at` of the rank's order."""

    epoch: int
    at: int
    last: bool  # of its epoch
    unit: Unit


@dataclass(slots=True)
class _Window:
    start: _Place
    pool: Pool
    order: I64 | None
    num_units: int
    skipped: int
    ends_epoch: bool

    def rows(self, start: int, stop: int) -> I64:
        return self.order[start:stop] if self.order is not None else np.arange(start, stop, dtype=np.int64)

    def after(self, row: int) -> _Place:
        at = self.start
        if row < self.pool.num_rows:
            return _Place(at.epoch, at.window, at.unit, row, at.skipped)
        skipped = at.skipped + self.skipped
        if self.ends_epoch:
            return _Place(at.epoch + 1, skipped=skipped)
        return _Place(at.epoch, at.window + 1, at.unit + self.num_units, 0, skipped)


class BatchReader:
    """Iterates Batches, from `cursor` on. Each iteration begins there anew; `close` ends them all.

    `rank` of `world_size` gets every world_size-th unit of an epoch's order. `labels` are columns with values in 0..1.
    A cursor from other data, another seed, window or world size is a ConfigError; batch size, workers and epochs may
    differ.
    """

    def __init__(
        self,
        source: Source,
        features: Features,
        labels: Sequence[str],
        config: ReaderConfig,
        *,
        rank: int = 0,
        world_size: int = 1,
        cursor: Cursor | None = None,
    ) -> None:
        if not 0 <= rank < world_size:
            raise ConfigError(f"rank: found {rank} of {world_size}, expected 0 to {world_size - 1}")
        self.config = config
        self._units = source.units()
        if len(self._units) < world_size:
            raise DataError(
                f"{type(source).__name__} has {len(self._units)} units, fewer than the {world_size} ranks that share "
                "it: write smaller row groups or files, or use fewer ranks"
            )
        self._preparation = Preparation(source, features, labels, config)
        self._rank, self._world_size = rank, world_size
        self._identity = {
            "units": digest(self._units),
            "rank": [rank, world_size],
            "shuffle": [config.shuffle_rows, config.in_order, config.seed] if config.shuffle_rows else [0],
            "on_bad_row": config.on_bad_row,
        }
        self._start = self._place(cursor)
        self._live: weakref.WeakSet[_Stream] = weakref.WeakSet()
        self._closed = False
        self.skipped = self._start.skipped  # rows that on_bad_row="skip" left out, up to the last batch's window

    @property
    def num_rows(self) -> int | None:
        """Rows of an epoch, those of all ranks; None where that is not known before reading."""
        rows = [unit.num_rows for unit in self._units]
        return None if None in rows else sum(row for row in rows if row is not None)

    @property
    def cursor(self) -> Cursor:
        """The cursor that this reader begins at."""
        return self._cursor(self._start)

    def __iter__(self) -> Iterator[Batch]:
        if self._closed:
            raise ReaderClosed("the reader is closed: make another, from the last batch's cursor")
        stream = _Stream(self._preparation, self.config.workers, self._reads(self._start))
        self._live.add(stream)
        return self._batches(stream)

    def close(self) -> None:
        """Stop reading and free the threads. A thread that waits for a batch gets ReaderClosed."""
        self._closed = True
        for stream in list(self._live):
            stream.close()

    def __enter__(self) -> "BatchReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _batches(self, stream: "_Stream") -> Iterator[Batch]:
        try:
            yield from self._cut(stream)
        finally:
            stream.close()

    def _cut(self, stream: "_Stream") -> Iterator[Batch]:
        size = self.config.batch_size
        pool, rows, taken = None, np.zeros(0, np.int64), self._start.row  # the batch begun, and rows of it
        for window in self._windows(stream):
            if taken > window.pool.num_rows:
                raise ConfigError(f"cursor: found row {taken} of a window of {window.pool.num_rows}: the data changed")
            while taken < window.pool.num_rows or (window.ends_epoch and len(rows)):
                stop = min(taken + size - len(rows), window.pool.num_rows)
                more = window.rows(taken, stop)
                if pool is None:
                    pool, rows = window.pool, more
                elif stop > taken:
                    pool, rows = pool.joined(window.pool), np.concatenate([rows, more + pool.num_rows])
                taken = stop
                if len(rows) < size and not window.ends_epoch:
                    break  # the window is used up
                if len(rows) == size or not self.config.drop_last:
                    self.skipped = window.start.skipped + window.skipped
                    yield pool.batch(rows, self._cursor(window.after(taken)))
                pool, rows = None, rows[:0]
            taken = 0
            del window  # its units may go while the next are read

    def _windows(self, stream: "_Stream") -> Iterator[_Window]:
        config, at = self.config, self._start
        epoch, number, skipped = at.epoch, at.window, at.skipped
        parts: list[Samples] = []
        first_unit = 0
        for read, samples in stream:
            if read.epoch != epoch:
                epoch, number = read.epoch, 0
            if not parts:
                first_unit = read.at
            parts.append(samples)
            del samples
            if sum(part.num_rows for part in parts) < max(config.shuffle_rows, 1) and not read.last:
                continue
            pool, left_out = Pool(parts), sum(part.skipped for part in parts)
            order = permutation(pool.num_rows, config.seed, _ROWS, epoch, number) if config.shuffle_rows else None
            window = _Window(
                _Place(epoch, number, first_unit, 0, skipped), pool, order, len(parts), left_out, read.last
            )
            parts, number, skipped = [], number + 1, skipped + left_out
            del pool, order
            yield window
            del window

    def _reads(self, start: _Place) -> Iterator["_Read"]:
        first = start.unit
        for epoch in count(start.epoch):
            if self.config.epochs and epoch >= self.config.epochs:
                return
            order = self._order(epoch)
            for at in range(first, len(order)):
                yield _Read(epoch, at, at == len(order) - 1, self._units[order[at]])
            first = 0

    def _order(self, epoch: int) -> list[int]:
        num = len(self._units)
        permuted = self.config.shuffle_rows and not self.config.in_order
        order = permutation(num, self.config.seed, _UNITS, epoch) if permuted else np.arange(num)
        units: list[int] = order[self._rank :: self._world_size].tolist()
        return units

    def _cursor(self, place: _Place) -> Cursor:
        at = {"epoch": place.epoch, "window": place.window, "unit": place.unit, "row": place.row}
        return {**at, "skipped": place.skipped, **self._identity}

    def _place(self, cursor: Cursor | None) -> _Place:
        if cursor is None:
            return _Place()
        keys = ("epoch", "window", "unit", "row", "skipped")
        if set(cursor) != {*keys, *self._identity}:
            raise ConfigError(f"cursor: found the keys {sorted(cursor)}, expected {sorted({*keys, *self._identity})}")
        for name, expected in self._identity.items():
            if cursor[name] != expected:
                why = "the data set changed" if name == "units" else "a cursor only continues what it was made by"
                raise ConfigError(f"cursor: found {name} {cursor[name]!r}, expected {expected!r}: {why}")
        return _Place(*(int(cursor[key]) for key in keys))


class _Stream:
    """Prepared units in order, `workers` threads reading ahead. Holds no reference to the reader."""

    def __init__(self, preparation: Preparation, workers: int, reads: Iterator[_Read]) -> None:
        self._preparation, self._reads, self._num_ahead = preparation, reads, workers + 1
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="stepwell-read")
        self._ahead: deque[tuple[_Read, Future[Samples]]] = deque()
        self._closed = False

    def __iter__(self) -> Iterator[tuple[_Read, Samples]]:
        self._submit()
        while self._ahead:
            read, future = self._ahead.popleft()
            try:
                samples = future.result()
            except CancelledError:
                raise ReaderClosed("the reader was closed while a batch was waited for") from None
            del future
            self._submit()
            yield read, samples
            del samples

    def _submit(self) -> None:
        while len(self._ahead) < self._num_ahead and (read := next(self._reads, None)) is not None:
            try:
                self._ahead.append((read, self._pool.submit(self._preparation.run, read.unit)))
            except RuntimeError:
                if not self._closed:
                    raise
                raise ReaderClosed("the reader is closed: make another, from the last batch's cursor") from None

    def close(self) -> None:
        """Cancel what has not begun, wait for what has."""
        self._closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)
