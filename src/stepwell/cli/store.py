"""`stepwell store ...`: a directory of rows, seen by an operator."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from stepwell.rows import decode_weights
from stepwell.store import operator

_SHOWN_WEIGHTS = 8
_LOG_FIGURES = (
    "segments",
    "live_records",
    "stale_records",
    "tombstone_records",
    "live_bytes",
    "disk_bytes",
    "index_bytes",
)


def stats(directory: Path, *, direct: bool) -> int:
    """Print what the directory holds."""
    found = operator.stats(directory, direct=direct)
    console = Console()
    tables = Table(title=escape(str(directory)), caption=f"step {found.manifest.step}, seed {found.manifest.seed}")
    tables.add_column("table")
    for column in ("rows", "dim", "row bytes"):
        tables.add_column(column, justify="right")
    for spec in found.manifest.specs:
        bytes_ = spec.layout.record_bytes
        tables.add_row(escape(spec.name), f"{found.rows[spec.name]:,}", str(spec.dim), str(bytes_))
    console.print(tables)
    logs = Table(title=f"logs (io {found.tier.details['io']}, direct {found.tier.details['direct']})")
    names = (
        "segments",
        "live_records",
        "stale_records",
        "tombstone_records",
        "live_bytes",
        "disk_bytes",
        "index_bytes",
    )
    for name in names:
        logs.add_column(name.replace("_", " "), justify="right")
    for log in found.tier.details["logs"]:
        logs.add_row(*(f"{log[name]:,}" for name in names))
    console.print(logs)
    warnings = [warning for log in found.tier.details["logs"] for warning in log["warnings"]]
    for warning in warnings:
        console.print(f"warning: {escape(warning)}")
    return 0


def check(directory: Path, *, repair: bool) -> int:
    """Verify every record; 1 when something is damaged and was not repaired."""
    console = Console()
    damaged = 0
    for log in operator.check(directory, repair=repair):
        console.print(
            f"{escape(str(log.directory))}: {log.records:,} intact records, {log.live_rows:,} live rows, "
            f"{len(log.problems)} problems"
        )
        for file, offset, what in log.problems:
            console.print(f"  {escape(file)} at byte {offset}: {escape(what)}", soft_wrap=True)
        for table, row_id in log.lost:
            console.print(f"  dropped: table {escape(table)}, id {row_id}")
        if log.lost_unnamed:
            console.print(f"  dropped: {log.lost_unnamed} records that no footer names")
        damaged += bool(log.problems) and not log.repaired
    if damaged:
        console.print("damaged; `stepwell store check --repair` drops what fails its checksum and keeps the rest")
    return 1 if damaged else 0


def get(directory: Path, table: str, ids: list[int], *, direct: bool) -> int:
    """Print rows; 1 when one is absent."""
    wanted = np.array(ids, np.int64)
    found, tables = operator.get(directory, table, wanted, direct=direct)
    spec = tables.named(table).spec
    views = spec.layout.views(found.records)
    weights = decode_weights(views.weight, spec.weight_dtype)
    shown = Table(title=f"table {escape(table)}, dim {spec.dim}")
    state = list(views.state)
    for column in ("id", "count", "last step", "weight", *state):
        shown.add_column(column, justify="left" if column == "weight" or column in state else "right")
    for i, row_id in enumerate(ids):
        if found.found[i]:
            values = [_some(np.atleast_1d(views.state[name][i])) for name in state]
            shown.add_row(str(row_id), str(views.count[i]), str(views.last_step[i]), _some(weights[i]), *values)
        else:
            shown.add_row(str(row_id), "", "", "absent")
    Console().print(shown)
    return 0 if found.found.all() else 1


def erase(directory: Path, table: str, ids: list[int], *, direct: bool) -> int:
    """Remove rows for good and say which were there."""
    erased = operator.erase(directory, table, np.array(ids, np.int64), direct=direct)
    for row_id, was_there in zip(ids, erased.tolist(), strict=True):
        print(f"{row_id}: {'erased' if was_there else 'was not there'}")
    return 0


def _some(values: npt.NDArray[np.float32]) -> str:
    text = " ".join(f"{value:.6g}" for value in values[:_SHOWN_WEIGHTS])
    return text + (" ..." if len(values) > _SHOWN_WEIGHTS else "")
