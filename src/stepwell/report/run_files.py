"""A run's folder, read back: its records, spans and config."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepwell.errors import ConfigError

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunFiles:
    """What a run's folder says. A run that is going on, or was killed, has no "end" record."""

    directory: Path
    config: Record
    start: Record
    train: list[Record]
    evals: list[Record]
    end: Record
    spans: list[Record]

    @property
    def tiers(self) -> list[str]:
        """Names of the tiers, top first."""
        return list(self.train[-1]["tiers"]) if self.train else []

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks that were evaluated."""
        return list(self.evals[-1]["tasks"]) if self.evals else []

    @property
    def stages(self) -> list[str]:
        """Names of the stages, in order."""
        return list(self.train[-1]["stages"]) if self.train else []


def read_run(directory: Path) -> RunFiles:
    """Read the folder; a line that was cut short at the very end is what a killed run leaves, and is left out."""
    metrics = directory / "metrics.jsonl"
    if not metrics.is_file():
        raise ConfigError(f"{directory}: found no metrics.jsonl, expected the folder of a run (stepwell train --out)")
    records = _lines(metrics)
    by_kind: dict[str, list[Record]] = {"start": [], "train": [], "eval": [], "end": []}
    for number, record in enumerate(records, 1):
        kind = record.get("kind")
        if kind not in by_kind:
            raise ConfigError(f"{metrics}, line {number}: found kind {kind!r}, expected one of {', '.join(by_kind)}")
        by_kind[kind].append(record)
    config, timeline = directory / "config.json", directory / "timeline.jsonl"
    return RunFiles(
        directory=directory,
        config=_object(config) if config.is_file() else {},
        start=by_kind["start"][-1] if by_kind["start"] else {},
        train=by_kind["train"],
        evals=by_kind["eval"],
        end=by_kind["end"][-1] if by_kind["end"] else {},
        spans=_lines(timeline) if timeline.is_file() else [],
    )


def _lines(path: Path) -> list[Record]:
    lines = path.read_text().splitlines(keepends=True)
    found = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except ValueError as error:
            if number == len(lines) and not line.endswith("\n"):
                break
            raise ConfigError(f"{path}, line {number}: found text that is not JSON ({error})") from error
        if not isinstance(record, dict):
            raise ConfigError(f"{path}, line {number}: found {line.strip()[:40]!r}, expected a JSON object")
        found.append(record)
    return found


def _object(path: Path) -> Record:
    try:
        found: Record = json.loads(path.read_text())
    except ValueError as error:
        raise ConfigError(f"{path}: found text that is not JSON ({error})") from error
    return found
