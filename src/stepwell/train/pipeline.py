"""Pipeline: a list of stages and one runner. Items go through the stages in order, each stage on a thread of its own.

The first stage makes items, the others take what the one before gave. One stage, `here`, runs on the calling thread.
`depth` is how many items are in flight at most, from the moment the first stage begins one to the end of the last
stage; so every queue is bounded by it. With depth 1 there are no threads: the caller does one stage after the other.

An exception in any stage ends the run: items before the failed one go through all stages, then the exception is
raised to the caller with its stage and step in a note. SIGINT ends the run between two items, as KeyboardInterrupt
(unless the program has a handler of its own for it). However a run ends, its threads have ended.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from time import perf_counter
from types import FrameType
from typing import Any, Final

from stepwell.errors import ConfigError
from stepwell.telemetry import Spans

END: Final = object()  # what the first stage gives when there are no more items
_WAKE: Final = object()


def _nothing() -> None:
    """No one to wake."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One station of a pipeline.

    `run(step, item)` gives the item for the next stage; the first stage gets None and gives END when there are no more.
    With `window` > 1, `run(first step, items)` gets a list of that many items of consecutive steps (fewer at the end)
    and gives an iterator over their results; each goes on as soon as it is there. `interrupt` is called, from the
    calling thread, when the run ends early: a `run` that waits for later stages must raise, and none may wait from
    then on.
    """

    name: str
    run: Callable[[int, Any], Any]
    window: int = 1
    here: bool = False
    interrupt: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True)
class _End:
    """Nothing follows. `error` is why, unless the items simply ended."""

    error: BaseException | None = None


class _Station:
    """A stage at work: its queue and what it spent."""

    def __init__(self, stage: Stage, spans: Spans | None) -> None:
        self.stage = stage
        self.queue: SimpleQueue[Any] = SimpleQueue()
        self.busy_s = 0.0
        self.wait_s = 0.0
        self.taken = 0
        self.queued = 0  # the sum, over items taken, of how many more were waiting
        self._spans = spans

    def take(self) -> Any:
        """The next of the queue."""
        started = perf_counter()
        got = self.queue.get()
        self.wait_s += perf_counter() - started
        self.taken += 1
        self.queued += self.queue.qsize()
        return got

    def work(self, step: int, item: Any) -> Any:
        """Run the stage once, timed. A note on what it raises says where."""
        started = perf_counter()
        try:
            return self.stage.run(step, item)
        except BaseException as error:
            _say_where(error, self.stage.name, step)
            raise
        finally:
            ended = perf_counter()
            self.busy_s += ended - started
            if self._spans is not None:
                self._spans.record(self.stage.name, step, started, ended)

    def work_window(self, window: list[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        """Run the stage on a window, each result timed; a window of a stage that has none is one item."""
        if self.stage.window == 1:
            [(step, item)] = window
            yield step, self.work(step, item)
            return
        results: Iterator[Any] = iter(())
        for i, (step, _) in enumerate(window):
            started = perf_counter()
            try:
                if i == 0:
                    results = iter(self.stage.run(step, [item for _, item in window]))
                result = next(results)
            except BaseException as error:
                _say_where(error, self.stage.name, step)
                raise
            finally:
                ended = perf_counter()
                self.busy_s += ended - started
                if self._spans is not None:
                    self._spans.record(self.stage.name, step, started, ended)
            yield step, result


class Pipeline:
    """Runs stages once. `run` belongs to one thread."""

    def __init__(self, stages: tuple[Stage, ...], *, depth: int, spans: Spans | None = None) -> None:
        """REQUIRES: exactly one stage is `here`, and it is not the first; later ones have no window."""
        most = max(stage.window for stage in stages)
        if depth < 1 or (depth > 1 and depth < most):
            raise ConfigError(f"depth: found {depth}, expected 1 or at least {most}, the largest window of a stage")
        self._stations = [_Station(stage, spans) for stage in stages]
        self._here = next(i for i, stage in enumerate(stages) if stage.here)
        self._depth = depth
        self._tokens: SimpleQueue[None] = SimpleQueue()
        self._stopping = False  # items ahead are dropped
        self._source_stopped = False  # no new items; those on their way go through
        self._interrupted = False  # SIGINT came once
        self._interrupted_between_items = False
        self._late_error: BaseException | None = None  # of a stage after `here`
        self._reported = [(0.0, 0.0, 0, 0)] * len(stages)

    def stop(self) -> None:
        """End after the item that the `here` stage is at; items ahead of it are dropped.

        From any thread, from a stage, or from a signal handler; before `run`, nothing will run.
        """
        self._stopping = True
        self._stations[self._here].queue.put(_WAKE)

    @property
    def stopping(self) -> bool:
        """Whether the run is about to end early, or has ended."""
        return self._stopping

    @property
    def interrupted(self) -> bool:
        """Whether SIGINT ended the run, between two items."""
        return self._interrupted_between_items

    def report(self) -> dict[str, dict[str, float]]:
        """Per stage, since the last report: seconds busy, seconds waited for something to do, items that waited.

        REQUIRES: one caller at a time; during `run`, that is the `here` stage.
        """
        figures = {}
        for i, station in enumerate(self._stations):
            now = (station.busy_s, station.wait_s, station.taken, station.queued)
            busy, wait, taken, queued = (a - b for a, b in zip(now, self._reported[i], strict=True))
            self._reported[i] = now
            figures[station.stage.name] = {"busy_s": busy, "wait_s": wait, "queue": queued / max(1, taken)}
        return figures

    def run(self, first_step: int = 1) -> int:
        """Until the items end or `stop`: the last step that went through all stages, first_step - 1 if none did."""
        with self._sigint_between_items():
            if self._depth == 1:
                return self._run_here(first_step)
            return self._run_threads(first_step)

    # Depth 1: everything in the caller's order

    def _run_here(self, first_step: int) -> int:
        step = first_step
        while not self._stopping:
            item: Any = None
            for station in self._stations:
                [(_, item)] = station.work_window([(step, item)])
                if item is END:
                    return step - 1
            step += 1
        self._raise_interrupt()
        return step - 1

    # Threads

    def _run_threads(self, first_step: int) -> int:
        for _ in range(self._depth):
            self._tokens.put(None)
        threads = [self._thread(0, partial(self._make, first_step))]
        for i in range(1, len(self._stations)):
            if i < self._here:
                threads.append(self._thread(i, partial(self._forward, i)))
            elif i > self._here:
                threads.append(self._thread(i, partial(self._finish, i)))
        for thread in threads:
            thread.start()
        end: _End | None = None
        last = first_step - 1
        try:
            while not self._stopping:
                got = self._stations[self._here].take()
                if isinstance(got, _End):
                    end = got
                    break
                if got is not _WAKE:
                    last, item = got
                    self._hand_on(self._here, last, self._stations[self._here].work(last, item))
        finally:
            self._end_threads(threads, early=end is None or end.error is not None)
        if self._late_error is not None:
            raise self._late_error
        if end is not None and end.error is not None:
            raise end.error
        self._raise_interrupt()
        return last

    def _thread(self, i: int, target: Callable[[], None]) -> threading.Thread:
        return threading.Thread(target=target, name=f"stepwell-{self._stations[i].stage.name}", daemon=True)

    def _end_threads(self, threads: list[threading.Thread], *, early: bool) -> None:
        self._stopping = True
        self._tokens.put(None)
        if early:
            for station in self._stations:
                station.stage.interrupt()
        if self._here + 1 < len(self._stations):
            self._stations[self._here + 1].queue.put(_End())
        for thread in threads:
            thread.join()

    def _make(self, first_step: int) -> None:
        """The first stage's thread."""
        station, step = self._stations[0], first_step
        try:
            while True:
                started = perf_counter()
                self._tokens.get()
                station.wait_s += perf_counter() - started
                if self._stopping or self._source_stopped:
                    break
                item = station.work(step, None)
                if item is END:
                    break
                self._stations[1].queue.put((step, item))
                step += 1
        except BaseException as error:  # the edge of a thread: the caller raises it
            self._stations[1].queue.put(_End(error))
        else:
            self._stations[1].queue.put(_End())

    def _forward(self, i: int) -> None:
        """The thread of a stage before `here`."""
        station, onward = self._stations[i], self._stations[i + 1].queue
        window: list[tuple[int, Any]] = []
        end: _End | None = None
        try:
            while end is None:
                got = station.take()
                if isinstance(got, _End):
                    end = got
                else:
                    window.append(got)
                if self._stopping:
                    window = []
                elif len(window) == station.stage.window or (end is not None and window):
                    for done in station.work_window(window):
                        onward.put(done)
                    window = []
        except BaseException as error:  # likewise
            self._source_stopped = True
            self._tokens.put(None)
            end = _End(error)
        onward.put(end)

    def _finish(self, i: int) -> None:
        """The thread of a stage after `here`."""
        station = self._stations[i]
        try:
            while not isinstance(got := station.take(), _End):
                self._hand_on(i, got[0], station.work(*got))
        except BaseException as error:  # likewise
            self._late_error = self._late_error or error
            self._stopping = True
            self._tokens.put(None)
            self._stations[self._here].queue.put(_WAKE)
        if i + 1 < len(self._stations):
            self._stations[i + 1].queue.put(_End())

    def _hand_on(self, i: int, step: int, item: Any) -> None:
        if i + 1 < len(self._stations):
            self._stations[i + 1].queue.put((step, item))
        else:
            self._tokens.put(None)

    # SIGINT

    @contextmanager
    def _sigint_between_items(self) -> Iterator[None]:
        mine = threading.current_thread() is threading.main_thread()
        if not mine or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return
        before = signal.signal(signal.SIGINT, self._on_sigint)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _on_sigint(self, _signal: int, _frame: FrameType | None) -> None:
        if self._interrupted:  # whoever asks twice does not want to wait for the item
            raise KeyboardInterrupt
        self._interrupted = True
        self.stop()

    def _raise_interrupt(self) -> None:
        if self._interrupted:
            self._interrupted_between_items = True
            raise KeyboardInterrupt


def _say_where(error: BaseException, stage: str, step: int) -> None:
    error.add_note(f"in stage {stage!r}, step {step}")
