"""The run folder: what a run writes beside its metrics, and opening what it wrote. docs/training.md lists the files."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stepwell.errors import ConfigError
from stepwell.models import save_model
from stepwell.store import snapshot
from stepwell.telemetry import Span, write_chrome_trace
from stepwell.train.config import TrainConfig
from stepwell.train.learner import Learner

CONFIG, FEATURES, SNAPSHOT = "config.json", "features.json", "snapshot"
TIMELINE, TRACE = "timeline.jsonl", "trace.json"


def resolved(config: TrainConfig, directory: Path | None) -> TrainConfig:
    """The config with the statistics of its features, and with the place of its rows.

    Features to standardise that have no mean and std yet get those of the first unit of the training data. An
    `ssd_directory` that is a relative path lies in the run folder, if there is one.
    """
    if not config.features.is_fitted:
        skip = config.reader.on_bad_row == "skip"
        columns = config.train.read(config.train.units()[0], config.features.columns, skip_bad_rows=skip)
        config = config.replace(features=config.features.fit(columns))
    rows = config.store.ssd_directory
    if rows and directory is not None:
        config = config.replace(store=config.store.replace(ssd_directory=str((directory / rows).absolute())))
    return config


@contextmanager
def new_folder(directory: Path, config: TrainConfig) -> Iterator[None]:
    """The run folder, made if need be; it must not hold a run. Its working rows go at the end: a snapshot has them."""
    if (directory / CONFIG).exists() or (directory / SNAPSHOT).exists():
        raise ConfigError(f"directory: {directory} holds a run already; name a new one")
    directory.mkdir(parents=True, exist_ok=True)
    rows = Path(config.store.ssd_directory)
    mine = bool(config.store.ssd_directory) and rows.is_relative_to(directory.absolute()) and not rows.exists()
    try:
        yield
    finally:
        if mine:
            shutil.rmtree(rows, ignore_errors=True)


def check_no_rows(config: TrainConfig) -> None:
    """ConfigError if the store's directory holds rows of another run: a run begins without any."""
    rows = config.store.ssd_directory
    if rows and Path(rows).exists() and any(Path(rows).iterdir()):
        raise ConfigError(
            f"store.ssd_directory: {rows} is not empty, and a run begins without rows: name a new directory"
        )


def save_config(config: TrainConfig, directory: Path) -> None:
    """config.json and features.json: what the run is."""
    (directory / CONFIG).write_text(config.to_json(indent=2) + "\n")
    (directory / FEATURES).write_text(config.features.to_json(indent=2) + "\n")


def save_state(learner: Learner, directory: Path) -> None:
    """What was learned: the rows as of the last commit, and the dense model."""
    embedding, config = learner.embedding, learner.config
    save_model(directory, config.model, learner.model, embedding.user_spec, embedding.item_spec, config.task_names)
    snapshot(learner.store, directory / SNAPSHOT)


def save_spans(spans: list[Span], directory: Path, *, timeline_steps: int, trace: bool) -> None:
    """timeline.jsonl: the last `timeline_steps` steps in which nothing but the stages ran; trace.json: every span."""
    with (directory / TIMELINE).open("w") as file:
        for span in steady(spans, timeline_steps):
            file.write(json.dumps(span.to_dict()) + "\n")
    if trace:
        write_chrome_trace(spans, directory / TRACE)


def steady(spans: list[Span], num_steps: int) -> list[Span]:
    """The spans of `num_steps` consecutive steps, the last ones with all stages and no evaluation; fewer if there are
    not so many.
    """
    computed = sorted(span.step for span in spans if span.name == "compute")
    written = {span.step for span in spans if span.name == "write_back"}
    broken = {span.step for span in spans if span.name == "evaluate"}
    whole = [step for step in computed if step in written and step not in broken]
    best: list[int] = []
    current: list[int] = []
    for step in reversed(whole[: max(num_steps, len(whole) - 2)]):  # the last ones have nothing behind them to fetch
        current = [*current, step] if current and step == current[-1] - 1 else [step]
        if len(current) > len(best):
            best = current
        if len(best) == num_steps:
            break
    chosen = set(best)
    return [span for span in spans if span.step in chosen]
