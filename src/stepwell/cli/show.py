"""`stepwell show`: what a recipe is, and what it would take, before anything is allocated."""

import argparse
import dataclasses

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from stepwell.cli.recipe import load_recipe
from stepwell.cli.words import in_bytes, in_count
from stepwell.config import Config
from stepwell.rows import TableSpec
from stepwell.train import MemoryPlan, TrainConfig, predict_memory


def run(parsed: argparse.Namespace) -> int:
    """Print the resolved config, the tables, and memory by part and in total."""
    config = load_recipe(parsed.recipe, parsed.set, TrainConfig)
    console = Console()
    console.print_json(config.to_json())
    console.print(_tables(config))
    plan = predict_memory(config)
    console.print(_memory(plan))
    console.print(f"in total [bold]{in_bytes(plan.total_bytes)}[/] of memory, {in_bytes(plan.disk_bytes)} of disk")
    return 0


def _tables(config: TrainConfig) -> Table:
    """Tables that are alike but for their names share a row."""
    shown = Table(title=f"{len(config.store.tables)} tables")
    shown.add_column("table", no_wrap=True)
    for column in ("dim", "row bytes", "expected rows"):
        shown.add_column(column, justify="right")
    for column in ("optimizer", "admission", "eviction", "expiry"):
        shown.add_column(column)
    alike: dict[tuple[str, ...], list[str]] = {}
    for spec in config.store.tables:
        alike.setdefault(_row(spec), []).append(spec.name)
    for row, names in alike.items():
        name = names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]} ({len(names)})"
        shown.add_row(*(escape(text) for text in (name, *row)))
    return shown


def _row(spec: TableSpec) -> tuple[str, ...]:
    return (
        str(spec.dim),
        str(spec.layout.record_bytes),
        in_count(spec.expected_rows) if spec.expected_rows else "not said",
        _words(spec.optimizer),
        _words(spec.admission),
        _words(spec.eviction),
        ", ".join(map(_words, spec.expiry)) or "never",
    )


def _words(config: Config) -> str:
    """A spec and what in it is not its default: RowWiseAdaGrad(lr=0.02)."""
    changed = [
        f"{field.name}={getattr(config, field.name)}"
        for field in dataclasses.fields(config)  # type: ignore[arg-type]  # every Config is a dataclass
        if getattr(config, field.name) != field.default
    ]
    return type(config).__name__ + (f"({', '.join(changed)})" if changed else "")


def _memory(plan: MemoryPlan) -> Table:
    shown = Table(title="memory")
    for column in ("where", "what", "bytes", "how"):
        shown.add_column(column, justify="right" if column == "bytes" else "left")
    for part in plan.parts:
        shown.add_row(part.where, part.name, in_bytes(part.bytes), part.how)
    return shown
