"""Tables of the page: stages, evaluations, the model's tables, machine and config."""

import html
import json
from collections import Counter
from typing import Any

from stepwell.report.axes import byte_unit
from stepwell.report.run_files import RunFiles

_FIGURES = (
    ("AUC", "auc"),
    ("normalised entropy", "normalised_entropy"),
    ("log loss", "log_loss"),
    ("calibration", "calibration"),
    ("grouped AUC", "grouped_auc"),
)
_TABLE_COLUMNS = ("dim", "weight_dtype", "initializer", "optimizer", "admission", "eviction", "expiry")


def html_table(columns: list[str], rows: list[list[str]], *, text: frozenset[int] = frozenset()) -> str:
    """A table of cells that are HTML already; `text` names the columns that are words, not numbers."""

    def cells(tag: str, row: list[str]) -> str:
        return "".join(f"<{tag}{' class=text' if i in text else ''}>{cell}</{tag}>" for i, cell in enumerate(row))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{cells("th", columns)}</tr>{body}</table></div>'


def limiting_stage(run: RunFiles) -> tuple[str, float]:
    """The stage that most lines name, and the share of lines that do."""
    named = Counter(record["limits"] for record in run.train)
    if not named:
        return "", 0.0
    stage, times = named.most_common(1)[0]
    return stage, times / len(run.train)


def stages_table(run: RunFiles) -> str:
    """Busy and waiting time of every stage, the limiting one marked."""
    limits, share = limiting_stage(run)
    rows = []
    for stage in run.stages:
        found = [record["stages"][stage] for record in run.train if stage in record["stages"]]
        busy, wait = sum(one["busy_s"] for one in found), sum(one["wait_s"] for one in found)
        part = busy / (busy + wait) if busy + wait else 0.0
        queue = sum(one["queue"] for one in found) / len(found) if found else 0.0
        named = sum(record["limits"] == stage for record in run.train) / len(run.train)
        bar = f'<span class="bar"><i style="width:{100 * part:.0f}%"></i></span>'
        cells = [html.escape(stage), f"{busy:,.1f}", f"{wait:,.1f}", f"{100 * part:.1f}%", bar, f"{queue:.2f}"]
        style = ' class="limits"' if stage == limits else ""
        rows.append(f"<tr{style}>" + "".join(f"<td>{cell}</td>" for cell in [*cells, f"{100 * named:.0f}%"]) + "</tr>")
    heads = ("stage", "busy, s", "waiting, s", "busy", "", "batches queued before it", "limits, of the time")
    head = "".join(f"<th>{name}</th>" for name in heads)
    note = ""
    if limits:
        words = f"{limits} limits: the others waited for it in {100 * share:.0f}% of the lines."
        note = f'<p class="note">{html.escape(words)}</p>'
    return f'<div class="card wide"><div class="scroll"><table><tr>{head}</tr>{"".join(rows)}</table></div>{note}</div>'


def evaluations_table(run: RunFiles) -> str:
    """Every evaluation, a row a task."""
    rows = []
    found = [figures for record in run.evals for figures in record["tasks"].values()]
    shown = [(name, key) for name, key in _FIGURES if any(key in figures for figures in found)]
    for record in run.evals:
        for task, figures in record["tasks"].items():
            values = ["" if figures.get(key) is None else f"{figures[key]:.4f}" for _, key in shown]
            samples = f"{record['samples']:,}" if "samples" in record else ""
            rows.append([html.escape(task), f"{record['step']:,}", samples, *values])
    return html_table(["task", "step", "samples", *(name for name, _ in shown)], rows)


def model_tables(run: RunFiles) -> str:
    """The tables of the store: what their rows are and which policies they have; those that are alike share a row."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for spec in run.config.get("store", {}).get("tables", []):
        alike.setdefault(tuple(_cell(spec.get(column)) for column in _TABLE_COLUMNS), []).append(str(spec.get("name")))
    rows = []
    for cells, names in alike.items():
        name = names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]} ({len(names)})"
        rows.append([html.escape(name), *cells])
    columns = ["table", *(column.replace("_", " ") for column in _TABLE_COLUMNS)]
    return html_table(columns, rows, text=frozenset({2, 3, 4, 5, 6, 7}))


def machine_table(run: RunFiles) -> str:
    """Where the run ran."""
    machine = dict(run.start.get("machine", {}))
    if "memory_bytes" in machine:
        size, unit = byte_unit(machine["memory_bytes"])
        machine["memory_bytes"] = f"{machine['memory_bytes'] / size:.1f} {unit}"
    rows = [[html.escape(name.removesuffix("_bytes")), html.escape(str(value))] for name, value in machine.items()]
    return html_table(["machine", ""], rows, text=frozenset({1}))


def counters_table(run: RunFiles) -> str:
    """Sums at the end of the run."""
    counters = run.train[-1].get("counters", {}) if run.train else {}
    rows = [[html.escape(name.replace("_", " ")), f"{value:,.6g}"] for name, value in sorted(counters.items())]
    return html_table(["counter", "at the end"], rows)


def config_text(run: RunFiles) -> str:
    """The resolved config, folded away."""
    text = html.escape(json.dumps(run.config, indent=2))
    return f'<details class="card"><summary>The resolved config</summary><pre>{text}</pre></details>'


def _cell(value: Any) -> str:
    """A field as words: a policy is its class and what was set, for example TTL(steps=1000)."""
    if isinstance(value, dict):
        fields = [f"{key}={_cell(part)}" for key, part in value.items() if key != "kind"]
        return html.escape(str(value.get("kind", ""))) + (f"({', '.join(fields)})" if fields else "")
    if isinstance(value, list):
        return ", ".join(_cell(part) for part in value) or "-"
    if isinstance(value, float):
        return f"{value:g}"
    return "-" if value is None else html.escape(str(value))
