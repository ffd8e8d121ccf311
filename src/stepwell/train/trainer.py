"""Trainer: a run from its first batch to its snapshot.

In order: statistics of features, store, model, readers; then the five stages, and between two steps, every so often,
a line of figures or an evaluation; at the end the rows' snapshot and the dense model.
"""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from stepwell.data import Batch, BatchReader
from stepwell.errors import ConfigError, NotFinite
from stepwell.store import TieredStore
from stepwell.telemetry import Counters, Spans
from stepwell.train.config import METRICS, EarlyStop, TrainConfig
from stepwell.train.evaluation import evaluation_reader, figures_of
from stepwell.train.learner import Learner, Work, bad_batch_arrays
from stepwell.train.machine import describe_machine
from stepwell.train.pipeline import Pipeline
from stepwell.train.records import Figures, Record, Records
from stepwell.train.run_folder import check_no_rows, new_folder, resolved, save_config, save_spans, save_state
from stepwell.train.scalars import Scalars
from stepwell.train.stages import five_stages

_TRACE_SPANS = 1 << 21
_RING_SPANS = 1 << 14


def _ignore(record: Record) -> None:
    """Nobody listens."""


class Trainer:
    """One run of a config. With a `directory`, which must not hold a run yet, its files are written there.

    `on_record` gets every line of metrics.jsonl as it is written. `trace` keeps every span and writes trace.json.
    """

    def __init__(
        self,
        config: TrainConfig,
        directory: str | Path | None = None,
        *,
        on_record: Callable[[Record], None] = _ignore,
        trace: bool = False,
    ) -> None:
        self._config = config
        self._directory = Path(directory) if directory is not None else None
        if self._directory is None and (trace or config.tensorboard):
            raise ConfigError(f"{'trace' if trace else 'tensorboard'}: found True, expected a directory to write it to")
        self._on_record = on_record
        self._trace = trace
        self._stopped = threading.Event()
        self._pipeline: Pipeline | None = None

    def stop(self) -> None:
        """End at the next step boundary, with everything saved; from any thread or a signal handler."""
        self._stopped.set()
        if self._pipeline is not None:
            self._pipeline.stop()

    def run(self) -> Record:
        """Train, evaluate, save; the "end" record.

        What cannot work is an error before the first step. After NotFinite and KeyboardInterrupt what was committed is
        saved all the same, and the exception goes on.
        """
        config, directory = resolved(self._config, self._directory), self._directory
        check_no_rows(config)
        with ExitStack() as stack:
            if directory is not None:
                stack.enter_context(new_folder(directory, config))
            stack.enter_context(_torch_threads(config.torch_threads))
            stack.enter_context(torch.random.fork_rng(devices=[]))
            learner = Learner(config, stack.enter_context(TieredStore(config.store)))
            if config.evaluate is not None:  # a column that it lacks is an error now, not hours from now
                with evaluation_reader(config, config.evaluate) as evaluated:
                    next(iter(evaluated), None)
            reader = stack.enter_context(BatchReader(config.train, config.features, config.labels, config.reader))
            batches = iter(reader)
            first = next(batches, None)
            if first is None:
                raise ConfigError("TrainConfig.train: found no samples, expected at least one")
            scalars = Scalars(directory) if config.tensorboard and directory is not None else None
            if directory is not None:
                save_config(config, directory)

            def on_record(record: Record) -> None:
                if scalars is not None:
                    scalars.write(record)
                self._on_record(record)

            records = Records(directory, on_record)
            stack.callback(records.close)
            if scalars is not None:
                stack.callback(scalars.close)
            run = _Run(learner, records, directory, Spans(_TRACE_SPANS if self._trace else _RING_SPANS))
            self._pipeline = run.over(chain([first], batches))
            if self._stopped.is_set():
                self._pipeline.stop()
            return run.train(num_steps(config, reader), stopped=self._stopped.is_set, trace=self._trace)


class _Run:
    """What happens between the first step and the last, and after it."""

    def __init__(self, learner: Learner, records: Records, directory: Path | None, spans: Spans) -> None:
        self._learner = learner
        self._config = learner.config
        self._records = records
        self._directory = directory
        self._spans = spans
        self._counters = Counters()
        self._figures = Figures(learner.config.task_names, learner.store, self._counters)
        self._patience = _Patience(learner.config.early_stop, learner.config.task_names)
        self._evaluated_step = -1
        self._lr_factor = math.nan
        self._early = False

    def over(self, batches: Iterator[Batch]) -> Pipeline:
        """The pipeline that `train` runs."""
        stages = five_stages(self._learner, batches, self._on_step, self._on_bad)
        self._pipeline = Pipeline(stages, depth=self._config.depth, spans=self._spans)
        return self._pipeline

    def train(self, steps: int, *, stopped: Callable[[], bool], trace: bool) -> Record:
        """Run the stages, evaluate, save; the "end" record."""
        started_s = perf_counter()
        store = self._learner.store
        self._records.write(
            "start",
            store.step,
            steps=steps,
            parameters=sum(parameter.numel() for parameter in self._learner.model.parameters()),
            machine=describe_machine(),
        )
        try:
            self._pipeline.run(store.step + 1)
        except (NotFinite, KeyboardInterrupt) as error:
            if isinstance(error, NotFinite) or self._pipeline.interrupted:
                self._save(trace=trace)
            raise
        ended_early = stopped() and not self._early
        if self._figures.num_steps:
            self._line(store.step)
        self._save(trace=trace)
        at_last = bool(self._config.steps) and store.step >= self._config.steps
        reason = "early_stop" if self._early else "steps" if at_last else "interrupted" if ended_early else "data"
        if self._config.evaluate is not None and self._evaluated_step != store.step and not ended_early:
            self._evaluate(store.step, stopped)
        seconds = perf_counter() - started_s
        return self._records.write("end", store.step, samples=self._figures.num_samples, seconds=seconds, reason=reason)

    def _on_step(self, step: int, work: Work) -> None:
        config = self._config
        self._lr_factor = work.lr_factor
        self._figures.add(work)
        self._counters.add("ids", sum(batch.ids.values.numel() for batch in work.batches))
        self._counters.add("unique_ids", sum(routed.num_unique for routed in work.routed))
        if step % config.log_every == 0:
            self._line(step)
        if config.evaluate_every and step % config.evaluate_every == 0 and step != config.steps:
            self._evaluate(step, lambda: self._pipeline.stopping)

    def _on_bad(self, step: int, work: Work, error: NotFinite) -> None:
        if self._directory is None:
            return
        path = self._directory / f"bad_batch-{step}.npz"
        np.savez(path, allow_pickle=False, **bad_batch_arrays(work))
        error.add_note(f"the batch is in {path}")

    def _line(self, step: int) -> None:
        self._records.write("train", step, **self._figures.line(self._lr_factor, self._pipeline))

    def _evaluate(self, step: int, stopped: Callable[[], bool]) -> None:
        source = self._config.evaluate
        assert source is not None, "checked by the config"
        started_s = perf_counter()
        figures = figures_of(self._learner.scorer, source, self._config.evaluate_batches, stopped)
        ended_s = perf_counter()
        self._spans.record("evaluate", step, started_s, ended_s)
        self._figures.pause(ended_s - started_s)
        if not figures:
            return
        self._evaluated_step = step
        self._records.write("eval", step, **figures)
        if self._patience.is_over(figures["tasks"]):
            self._early = True
            self._pipeline.stop()

    def _save(self, *, trace: bool) -> None:
        if self._directory is None:
            return
        save_spans(self._spans.drain(), self._directory, timeline_steps=self._config.timeline_steps, trace=trace)
        save_state(self._learner, self._directory)


class _Patience:
    """Counts evaluations that were no better than the best."""

    def __init__(self, config: EarlyStop | None, task_names: tuple[str, ...]) -> None:
        self._config = config
        self._task = (config.task if config is not None else "") or task_names[0]
        self._best = -math.inf
        self._worse = 0

    def is_over(self, tasks: dict[str, dict[str, Any]]) -> bool:
        """Take one evaluation: whether training should stop. A figure that is not defined is no better."""
        if self._config is None:
            return False
        figure = tasks[self._task][self._config.metric]
        gain = figure if METRICS[self._config.metric] else -figure
        if gain > self._best + self._config.min_gain:
            self._best, self._worse = gain, 0
        else:
            self._worse += 1
        return self._worse >= self._config.patience


def num_steps(config: TrainConfig, reader: BatchReader) -> int:
    """How many steps a run will have; 0 where nobody knows."""
    rows, epochs = reader.num_rows, config.reader.epochs
    if rows is None or epochs == 0 or config.reader.drop_last:
        return config.steps
    batches = -(-rows // config.reader.batch_size) * epochs
    of_data = -(-batches // config.accumulate)
    return min(config.steps, of_data) if config.steps else of_data


@contextmanager
def _torch_threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    if number:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
