"""What a person sees while a model trains: a display that redraws itself, or plain lines where there is no terminal.

It takes the records that a trainer emits, from whichever thread, and nothing else.
"""

import threading
import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from stepwell.cli.lines import line_of
from stepwell.cli.panel import bar, evaluation, sparks, stages, tiers
from stepwell.cli.words import in_bytes, in_duration, in_figure, in_rate

_REDRAWS_PER_S = 4
_WIDEST = 96
_KEPT_LOSSES = 1 << 12
_NEWEST = 0.1  # of the speed of the ETA comes from the newest line


class Progress:
    """A trainer's `on_record`. Use it as a context manager around the run."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        self._title = title
        self._console = console or Console()
        self._live: Live | None = None
        self._lock = threading.Lock()
        self._start: dict[str, Any] = {}
        self._train: dict[str, Any] = {}
        self._evals: list[dict[str, Any]] = []
        self._end: dict[str, Any] = {}
        self._losses: list[float] = []
        self._steps_per_s = 0.0
        self._began_s = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(self, console=self._console, refresh_per_second=_REDRAWS_PER_S)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, record: dict[str, Any]) -> None:
        """Take one record."""
        with self._lock:
            self._take(record)
        if self._live is None:
            line = line_of(record, self._start.get("steps", 0), self._left_s())
            if line:
                self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    def _take(self, record: dict[str, Any]) -> None:
        kind = record["kind"]
        if kind == "start":
            self._start = record
        elif kind == "train":
            seconds = record["time_s"] - self._train.get("time_s", self._start.get("time_s", 0.0))
            steps = record["step"] - self._train.get("step", self._start.get("step", 0))
            if seconds > 0:
                newest = steps / seconds
                self._steps_per_s += (newest - self._steps_per_s) * (_NEWEST if self._steps_per_s else 1.0)
            self._train = record
            self._losses.append(record["loss"])
            if len(self._losses) > _KEPT_LOSSES:  # the whole run, at half the resolution
                self._losses = [(a + b) / 2 for a, b in zip(self._losses[::2], self._losses[1::2], strict=False)]
        elif kind == "eval":
            self._evals.append(record)
        elif kind == "end":
            self._end = record

    def _left_s(self) -> float | None:
        left = self._start.get("steps", 0) - self._train.get("step", 0)
        return left / self._steps_per_s if self._start.get("steps") and self._steps_per_s else None

    def __rich__(self) -> RenderableType:
        with self._lock:
            parts = [self._progress(), self._figures()]
            if self._train:
                parts += ["", tiers(self._train), "", stages(self._train)]
            if self._evals:
                parts += ["", evaluation(self._evals[-1])]
            title = f"[bold]stepwell[/] {escape(self._title)}"
            width = min(self._console.width, _WIDEST)
            return Panel(Group(*parts), title=title, title_align="left", width=width)

    def _progress(self) -> RenderableType:
        step, steps = self._train.get("step", 0), self._start.get("steps", 0)
        seconds = self._end.get("seconds", time.monotonic() - self._began_s)
        row = Table.grid(padding=(0, 2))
        if self._end:
            state = f"done ({self._end['reason'].replace('_', ' ')})"
        else:
            left = self._left_s()
            state = f"{in_duration(left)} left" if left is not None else "" if self._train else "starting"
        cells: list[RenderableType] = [f"step [bold]{step:,}[/]" + (f" of {steps:,}" if steps else "")]
        if steps:
            cells.insert(0, bar(steps, step, "green"))
        row.add_row(*cells, f"{in_duration(seconds)} elapsed", state)
        return row

    def _figures(self) -> RenderableType:
        if not self._train:
            return Text("waiting for the first batch", style="dim")
        record = self._train
        row = Table.grid(padding=(0, 3))
        row.add_row(
            f"[bold]{in_rate(record['samples_per_s'])}[/] samples/s",
            f"AUC [bold]{in_figure(record.get('auc'))}[/]",
            f"memory {in_bytes(record['rss_bytes'])}",
            f"lr x {record['lr_factor']:.3g}",
        )
        loss = Text.assemble("loss ", (f"{record['loss']:.4f}", "bold"), "  ", (sparks(self._losses), "cyan"))
        return Group("", row, loss)
