"""A run folder and its records without a run: what the display and the report are tested with."""

import json
import math
from pathlib import Path
from typing import Any

STAGES = ("read", "route", "fetch", "compute", "write_back")
MACHINE = {
    "cpu": "AMD EPYC 7B13",
    "cores": 2,
    "memory_bytes": 24 << 30,
    "system": "Linux 6.1",
    "python": "3.11.7",
    "torch": "2.13.0+cpu",
    "stepwell": "0.1.0",
}
_BATCH = 2048
_STEP_S = 0.06


def records(steps: int = 1000, every: int = 10, task: str = "click") -> list[dict[str, Any]]:
    """What a trainer of `steps` steps emits, from "start" to "end"."""
    made: list[dict[str, Any]] = [
        {"kind": "start", "step": 0, "time_s": 0.0, "steps": steps, "parameters": 263_000, "machine": MACHINE}
    ]
    for step in range(every, steps + 1, every):
        made.append(_train(step, every))
        if step % (steps // 4) == 0:
            made.append(_eval(step, task))
    seconds = steps * _STEP_S
    end = {"samples": steps * _BATCH, "seconds": seconds, "reason": "steps"}
    return [*made, {"kind": "end", "step": steps, "time_s": seconds, **end}]


def _train(step: int, every: int) -> dict[str, Any]:
    wobble = math.sin(step * 0.7) * 0.01
    dram = min(200 << 20, step * (1 << 19))
    ssd = max(0, step - 300) * (1 << 20)
    busy = {"read": 0.2, "route": 0.1, "fetch": 0.55, "compute": 0.93, "write_back": 0.15}
    period = every * _STEP_S
    tiers = {
        "dram": {"rows": dram // 80, "bytes_used": dram, "budget_bytes": 200 << 20, "hit_rate": 0.9 + wobble},
        "ssd": {"rows": ssd // 80, "bytes_used": ssd, "budget_bytes": 4 << 30, "hit_rate": 0.08 - wobble},
    }
    return {
        "kind": "train",
        "step": step,
        "time_s": step * _STEP_S,
        "loss": 0.45 + 0.25 * math.exp(-step / 150) + wobble,
        "samples": step * _BATCH,
        "samples_per_s": _BATCH / _STEP_S * (1 + wobble),
        "lr_factor": min(1.0, step / 100),
        "auc": 0.8 - 0.3 * math.exp(-step / 200),
        "rss_bytes": (600 << 20) + dram,
        "stages": {
            name: {"busy_s": busy[name] * period, "wait_s": (1 - busy[name]) * period, "queue": 1 + busy[name]}
            for name in STAGES
        },
        "limits": "compute",
        "tiers": tiers,
        "counters": {"waits_for_pins": 0, "promoted": step * 40},
    }


def _eval(step: int, task: str) -> dict[str, Any]:
    curve = [[p / 20 + 0.025, min(1.0, (p / 20 + 0.025) * 1.04), 40_000 / (p + 1)] for p in range(20)]
    figures = {
        "auc": 0.795 - 0.3 * math.exp(-step / 180),
        "normalised_entropy": 0.82 + 0.1 * math.exp(-step / 200),
        "log_loss": 0.452 + 0.2 * math.exp(-step / 150),
        "calibration": 1.012,
        "calibration_curve": curve,
    }
    return {"kind": "eval", "step": step, "time_s": step * _STEP_S, "samples": 100_000, "tasks": {task: figures}}


def spans(first_step: int = 500, steps: int = 8) -> list[dict[str, Any]]:
    """Lines of `timeline.jsonl`: batches flow through the stages, compute back to back."""
    made = []
    lead = {"read": -3.1, "route": -2.4, "fetch": -1.9, "compute": 0.0, "write_back": 1.0}
    takes = {"read": 0.3, "route": 0.12, "fetch": 0.7, "compute": 0.95, "write_back": 0.2}
    for step in range(first_step, first_step + steps):
        for name in STAGES:
            start = 1000.0 + (step - first_step + lead[name]) * _STEP_S
            end = start + takes[name] * _STEP_S
            made.append({"name": name, "step": step, "thread": name, "start_s": start, "end_s": end})
    return made


def write_run(folder: Path, **kwargs: Any) -> Path:
    """The files of a finished run."""
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records(**kwargs)))
    (folder / "timeline.jsonl").write_text("".join(json.dumps(span) + "\n" for span in spans()))
    table = {"kind": "TableSpec", "name": "items", "dim": 16, "weight_dtype": "fp32", "expected_rows": 1_000_000}
    config = {
        "kind": "TrainConfig",
        "seed": 1,
        "store": {
            "kind": "StoreConfig",
            "tables": [table, {**table, "name": "users", "dim": 8}],
            "dram_bytes": 200 << 20,
        },
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return folder
