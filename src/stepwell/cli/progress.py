"""What a person sees while a model trains: a display that redraws itself, or plain lines where there is no terminal.

It takes the records that a trainer emits, from whichever thread, and nothing else.
"""

import threading
import time
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stepwell.cli.words import in_bytes, in_count, in_duration, in_rate

_REDRAWS_PER_S = 4
_SPARKS = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH = 40
_BAR_WIDTH = 24
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
            line = _line(record, self._start.get("steps", 0), self._left_s())
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
                parts += [_tiers(self._train), _stages(self._train)]
            if self._evals:
                parts.append(_evaluation(self._evals[-1]))
            return Panel(Group(*parts), title=f"[bold]stepwell[/] {escape(self._title)}", title_align="left", width=88)

    def _progress(self) -> RenderableType:
        step, steps = self._train.get("step", 0), self._start.get("steps", 0)
        seconds = self._end.get("seconds", time.monotonic() - self._began_s)
        row = Table.grid(padding=(0, 1))
        text = f"step [bold]{step:,}[/]" + (f" of {steps:,}" if steps else "")
        if self._end:
            state = f"done: {self._end['reason'].replace('_', ' ')}"
        else:
            left = self._left_s()
            state = f"{in_duration(left)} left" if left is not None else "starting" if not self._train else ""
        if steps:
            row.add_row(ProgressBar(total=steps, completed=step, width=_BAR_WIDTH), text, in_duration(seconds), state)
        else:
            row.add_row(text, in_duration(seconds), state)
        return row

    def _figures(self) -> RenderableType:
        if not self._train:
            return Text("waiting for the first batch", style="dim")
        record = self._train
        row = Table.grid(padding=(0, 3))
        row.add_row(
            f"loss [bold]{record['loss']:.4f}[/]",
            f"AUC [bold]{_figure(record.get('auc'))}[/]",
            f"[bold]{in_rate(record['samples_per_s'])}[/] samples/s",
            f"memory {in_bytes(record['rss_bytes'])}",
            f"lr x {record['lr_factor']:.3g}",
        )
        return Group(row, Text(f"loss {_sparks(self._losses)}", style="cyan"))


def _line(record: dict[str, Any], steps: int, left_s: float | None) -> str:
    """A record as one plain line."""
    kind, step = record["kind"], record["step"]
    if kind == "start":
        many = f"{steps:,} steps" if steps else "until the data ends"
        return f"start  {many}, {record['parameters']:,} dense parameters"
    if kind == "train":
        tiers = [
            f"{name} {in_bytes(tier['bytes_used'])} hit {_percent(tier['hit_rate'])}"
            for name, tier in record["tiers"].items()
        ]
        return "  ".join(
            [
                f"step {step:,}" + (f"/{steps:,}" if steps else ""),
                f"loss {record['loss']:.4f}",
                f"auc {_figure(record.get('auc'))}",
                f"{in_rate(record['samples_per_s'])} samples/s",
                *tiers,
                f"limits {record['limits']}",
                *([f"left {in_duration(left_s)}"] if left_s is not None else []),
            ]
        )
    if kind == "eval":
        return f"eval  step {step:,}  " + "; ".join(_task_text(*task) for task in record["tasks"].items())
    if kind == "end":
        reason = record["reason"].replace("_", " ")
        return f"end  step {step:,}  {record['samples']:,} samples in {in_duration(record['seconds'])} ({reason})"
    return ""


def _task_text(name: str, figures: dict[str, Any]) -> str:
    wanted = (
        ("AUC", "auc"),
        ("NE", "normalised_entropy"),
        ("log loss", "log_loss"),
        ("calibration", "calibration"),
        ("grouped AUC", "grouped_auc"),
    )
    return f"{name}: " + ", ".join(f"{label} {_figure(figures[key])}" for label, key in wanted if key in figures)


def _tiers(record: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    for column in ("tier", "rows", "hit rate", "bytes", "of budget"):
        table.add_column(column, justify="left" if column in ("tier", "of budget") else "right")
    table.add_column("")
    for name, tier in record["tiers"].items():
        budget = tier["budget_bytes"]
        table.add_row(
            name,
            in_count(tier["rows"]),
            _percent(tier["hit_rate"]),
            in_bytes(tier["bytes_used"]),
            ProgressBar(total=max(budget, 1), completed=tier["bytes_used"], width=_BAR_WIDTH, complete_style="blue"),
            in_bytes(budget),
        )
    return table


def _stages(record: dict[str, Any]) -> Text:
    text = Text("busy ", style="dim")
    for name, stage in record["stages"].items():
        total = stage["busy_s"] + stage["wait_s"]
        limits = name == record["limits"]
        text.append(f" {name} ", style="bold yellow" if limits else "default")
        text.append(
            _percent(stage["busy_s"] / total if total else 0.0, digits=0), style="yellow" if limits else "default"
        )
    text.append(f"   {record['limits']} limits", style="bold yellow")
    return text


def _evaluation(record: dict[str, Any]) -> Text:
    text = Text(f"evaluation at step {record['step']:,}  ", style="dim")
    text.append("\n".join(_task_text(*task) for task in record["tasks"].items()), style="default")
    return text


def _sparks(values: list[float]) -> str:
    """The values as a row of blocks, the lowest as the lowest block, averaged to the row's width."""
    if not values:
        return ""
    width = min(_SPARK_WIDTH, len(values))
    edges = [i * len(values) // width for i in range(width + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, span = min(means), max(means) - min(means)
    return "".join(_SPARKS[round((mean - low) / span * (len(_SPARKS) - 1)) if span else 0] for mean in means)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _percent(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{100 * value:.{digits}f}%"
