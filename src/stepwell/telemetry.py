"""Spans and counters: what a run says about itself while it runs, and the trace file that viewers open.

Recording costs well under a microsecond and never waits for a reader: spans go to a bounded ring that forgets the
oldest, counters are sums. Times are seconds of `time.perf_counter()`. Nothing here is read to decide what a run does.
"""

import itertools
import json
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from stepwell.errors import ConfigError

_FORMAT = "%(asctime)s %(levelname)s %(message)s"


@dataclass(frozen=True, slots=True)
class Span:
    """What one thread did for one step, from when to when."""

    name: str
    step: int
    thread: str  # the thread's name
    start_s: float
    end_s: float

    def to_dict(self) -> dict[str, Any]:
        """A line of `timeline.jsonl`."""
        return {
            "name": self.name,
            "step": self.step,
            "thread": self.thread,
            "start_s": self.start_s,
            "end_s": self.end_s,
        }


class _Here(threading.local):
    """The calling thread's name, looked up once per thread."""

    def __init__(self) -> None:
        self.name = threading.current_thread().name


class Spans:
    """A ring of the newest spans. Any thread records, any thread drains."""

    def __init__(self, capacity: int = 1 << 16) -> None:
        if capacity < 1:
            raise ConfigError(f"capacity: found {capacity}, expected at least 1")
        self._ring: deque[tuple[int, str, int, str, float, float]] = deque(maxlen=capacity)
        self._numbers = itertools.count()  # next() is atomic, and so is the ring's append
        self._here = _Here()
        self._draining = threading.Lock()
        self._last = -1
        self._drained = 0

    def record(self, name: str, step: int, start_s: float, end_s: float) -> None:
        """Add a span that has ended; when the ring is full the oldest goes."""
        self._ring.append((next(self._numbers), name, step, self._here.name, start_s, end_s))

    def span(self, name: str, step: int) -> "_Open":
        """A `with` block that records itself, also when it ends in an exception."""
        return _Open(self, name, step)

    def drain(self) -> list[Span]:
        """Take every span out, in the order in which they were recorded."""
        taken = []
        with self._draining:
            while True:
                try:
                    number, *fields = self._ring.popleft()
                except IndexError:
                    break
                self._last = max(self._last, number)
                taken.append(Span(*fields))  # type: ignore[arg-type]  # star-unpacking loses the tuple's types
            self._drained += len(taken)
        return taken

    @property
    def dropped(self) -> int:
        """How many spans the ring had forgotten when it was last drained."""
        return self._last + 1 - self._drained


class _Open:
    """A span that has begun."""

    __slots__ = ("_name", "_spans", "_start_s", "_step")

    def __init__(self, spans: Spans, name: str, step: int) -> None:
        self._spans = spans
        self._name = name
        self._step = step
        self._start_s = 0.0

    def __enter__(self) -> None:
        self._start_s = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._spans.record(self._name, self._step, self._start_s, time.perf_counter())


class Counters:
    """Named sums that any thread adds to."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, name: str, amount: float = 1) -> None:
        """Add to a sum, which begins at 0."""
        with self._lock:
            self._sums[name] = self._sums.get(name, 0) + amount

    def snapshot(self) -> dict[str, float]:
        """Every sum at one moment."""
        with self._lock:
            return dict(self._sums)


def write_chrome_trace(spans: Iterable[Span], path: str | Path) -> None:
    """Write spans in the Trace Event format, for ui.perfetto.dev and chrome://tracing; threads keep their names."""
    process = os.getpid()
    rows: dict[str, int] = {}
    events: list[dict[str, Any]] = []
    for span in spans:
        row = rows.setdefault(span.thread, len(rows) + 1)
        events.append(
            {
                "name": span.name,
                "cat": "stage",
                "ph": "X",
                "ts": span.start_s * 1e6,
                "dur": (span.end_s - span.start_s) * 1e6,
                "pid": process,
                "tid": row,
                "args": {"step": span.step},
            }
        )
    names: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": process, "tid": 0, "args": {"name": "stepwell"}}
    ]
    for thread, row in rows.items():
        names.append({"name": "thread_name", "ph": "M", "pid": process, "tid": row, "args": {"name": thread}})
        names.append({"name": "thread_sort_index", "ph": "M", "pid": process, "tid": row, "args": {"sort_index": row}})
    with Path(path).open("w") as out:
        json.dump({"traceEvents": names + events, "displayTimeUnit": "ms"}, out)


class _Stderr(logging.Handler):
    """Writes to what `sys.stderr` is at that moment: a display that redraws itself may stand in for it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr)
        except Exception:  # what logging asks of a handler
            self.handleError(record)


def setup_logging(level: int = logging.INFO) -> None:
    """Send every logger's records to stderr, in place of handlers that are there. Called by the command line only."""
    logging.basicConfig(level=level, format=_FORMAT, datefmt="%H:%M:%S", handlers=[_Stderr()], force=True)
