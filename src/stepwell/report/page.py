"""The page: tiles with the figures that matter, the pictures, the tables."""

import html
import statistics
from pathlib import Path

from stepwell.report import panels, tables
from stepwell.report.axes import byte_unit, in_count
from stepwell.report.run_files import RunFiles, read_run
from stepwell.report.timeline import timeline

_HERE = Path(__file__).parent
NAME = "report.html"


def write_report(directory: str | Path) -> Path:
    """Write `report.html` into a run's folder and return its path. The run may still be going on."""
    run = read_run(Path(directory))
    path = run.directory / NAME
    path.write_text(render(run), encoding="utf-8")
    return path


def render(run: RunFiles) -> str:
    """The page's HTML."""
    title = html.escape(run.directory.resolve().name)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title} - Stepwell</title>",
            f"<style>{_part('style.css')}</style></head><body><main>",
            f"<h1>{title}</h1>",
            f'<p class="sub">{_subtitle(run)}</p>',
            _tiles(run),
            *_sections(run),
            f"</main><script>{_part('hover.js')}</script></body></html>\n",
        ]
    )


def _sections(run: RunFiles) -> list[str]:
    if not run.train:
        return ['<p class="note">The run has not recorded a training step yet.</p>', tables.config_text(run)]
    parts = [
        "<h2>Quality</h2>",
        _cards([*panels.quality(run), _card(tables.evaluations_table(run), wide=len(run.tasks) % 2 == 0)]),
        "<h2>Speed</h2>",
        _cards([*panels.speed(run), timeline(run.spans, run.stages), tables.stages_table(run)]),
        "<h2>Tiers and memory</h2>",
        _cards(panels.memory(run)),
        "<h2>What ran</h2>",
        _cards(
            [
                _card(tables.model_tables(run), wide=True),
                _card(tables.machine_table(run)),
                _card(tables.counters_table(run)),
            ]
        ),
        "<br>",
        tables.config_text(run),
    ]
    return parts


def _subtitle(run: RunFiles) -> str:
    machine = run.start.get("machine", {})
    cpu, cores, torch = (machine.get(name, "unknown") for name in ("cpu", "cores", "torch"))
    if run.end:
        state = f"{run.end['step']:,} steps, ended: {str(run.end['reason']).replace('_', ' ')}"
    else:
        state = f"{run.train[-1]['step'] if run.train else 0:,} steps so far, no end recorded"
    return html.escape(f"{state}. {cpu}, {cores} cores, torch {torch}.")


def _tiles(run: RunFiles) -> str:
    tiles = []
    if run.evals:
        for task, figures in run.evals[-1]["tasks"].items():
            if figures.get("auc") is not None:
                tiles.append((f"{figures['auc']:.4f}", f"AUC of {task}, evaluation at step {run.evals[-1]['step']:,}"))
    if run.train:
        last = run.train[-1]
        recent = [record["loss"] for record in run.train[-10:]]
        tiles.append((f"{statistics.fmean(recent):.4f}", "training loss, mean of the last lines"))
        rate = statistics.median(record["samples_per_s"] for record in run.train)
        tiles.append((f"{rate:,.0f}", "samples/s, median"))
        tiles.append((in_count(last["samples"]), f"samples in {_duration(last['time_s'])}"))
        stage, share = tables.limiting_stage(run)
        tiles.append((stage, f"limits, in {100 * share:.0f}% of the lines"))
        for tier, figures in last["tiers"].items():
            size, unit = byte_unit(figures["bytes_used"])
            rows = in_count(figures["rows"])
            tiles.append((f"{figures['bytes_used'] / size:.3g} {unit}", f"in {tier}, {rows} rows"))
        peak = max(record["rss_bytes"] for record in run.train)
        size, unit = byte_unit(peak)
        tiles.append((f"{peak / size:.3g} {unit}", "peak memory of the process"))
    cells = "".join(
        f'<div class="tile"><b>{html.escape(value)}</b><span>{html.escape(what)}</span></div>' for value, what in tiles
    )
    return f'<div class="tiles">{cells}</div>'


def _cards(cards: list[str]) -> str:
    return f'<div class="grid-of-cards">{"".join(cards)}</div>'


def _card(inner: str, *, wide: bool = False) -> str:
    return f'<div class="card{" wide" if wide else ""}">{inner}</div>'


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    return f"{whole // 3600} h {whole // 60 % 60} min" if whole >= 3600 else f"{whole // 60} min {whole % 60} s"


def _part(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
