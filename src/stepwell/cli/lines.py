"""Records as plain lines, where there is no terminal to redraw."""

from typing import Any

from stepwell.cli.words import FIGURES, in_bytes, in_duration, in_figure, in_percent, in_rate


def line_of(record: dict[str, Any], steps: int, left_s: float | None) -> str:
    """A record as one plain line."""
    kind, step = record["kind"], record["step"]
    if kind == "start":
        many = f"{steps:,} steps" if steps else "until the data ends"
        return f"start  {many}, {record['parameters']:,} dense parameters"
    if kind == "train":
        tiers = [
            f"{name} {in_bytes(tier['bytes_used'])} hit {in_percent(tier['hit_rate'])}"
            for name, tier in record["tiers"].items()
        ]
        return "  ".join(
            [
                f"step {step:,}" + (f"/{steps:,}" if steps else ""),
                f"loss {record['loss']:.4f}",
                f"auc {in_figure(record.get('auc'))}",
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
    return f"{name}: " + ", ".join(f"{label} {in_figure(figures[key])}" for label, key in FIGURES if key in figures)
