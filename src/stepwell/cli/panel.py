"""Parts of the display: records as rich's tables and lines."""

from itertools import pairwise
from typing import Any

from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stepwell.cli.words import FIGURES, in_bytes, in_count, in_figure, in_percent

_SPARKS = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH = 40
_BAR_WIDTH = 24


def bar(total: float, completed: float, style: str) -> ProgressBar:
    """A bar that keeps its colour when it is full."""
    return ProgressBar(
        total=max(total, 1), completed=completed, width=_BAR_WIDTH, complete_style=style, finished_style=style
    )


def tiers(record: dict[str, Any]) -> Table:
    """Rows, hit rate and bytes of each tier."""
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    for column in ("tier", "rows", "hit rate", "bytes", "of budget"):
        table.add_column(column, justify="left" if column in ("tier", "of budget") else "right")
    table.add_column("")
    for name, tier in record["tiers"].items():
        budget = tier["budget_bytes"]
        table.add_row(
            name,
            in_count(tier["rows"]),
            in_percent(tier["hit_rate"]),
            in_bytes(tier["bytes_used"]),
            ProgressBar(
                total=max(budget, 1),
                completed=tier["bytes_used"],
                width=_BAR_WIDTH,
                complete_style="blue",
                finished_style="blue",
            ),
            in_bytes(budget),
        )
    return table


def stages(record: dict[str, Any]) -> Text:
    """How much of the time each stage worked, and which of them the others waited for."""
    text = Text("busy ", style="dim")
    for name, stage in record["stages"].items():
        total = stage["busy_s"] + stage["wait_s"]
        limits = name == record["limits"]
        text.append(f" {name} ", style="bold yellow" if limits else "default")
        text.append(
            in_percent(stage["busy_s"] / total if total else 0.0, digits=0), style="yellow" if limits else "default"
        )
    text.append(f"   {record['limits']} limits", style="bold yellow")
    return text


def evaluation(record: dict[str, Any]) -> Table:
    """An "eval" record, a row a task."""
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    table.add_column("evaluation")
    shown = [(label, key) for label, key in FIGURES if any(key in task for task in record["tasks"].values())]
    for label, _ in shown:
        table.add_column(label, justify="right")
    table.add_column(f"at step {record['step']:,}", style="dim")
    for name, figures in record["tasks"].items():
        table.add_row(
            name, *(in_figure(figures.get(key)) for _, key in shown), f"{in_count(record['samples'])} samples"
        )
    return table


def sparks(values: list[float]) -> str:
    """The values as a row of blocks, the lowest as the lowest block, averaged to the row's width."""
    if not values:
        return ""
    width = min(_SPARK_WIDTH, len(values))
    edges = [i * len(values) // width for i in range(width + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, span = min(means), max(means) - min(means)
    return "".join(_SPARKS[round((mean - low) / span * (len(_SPARKS) - 1)) if span else 0] for mean in means)
