"""Evaluation: figures over a source. It reads rows as they are committed and changes nothing."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch

from stepwell.data import Batch, BatchReader, Source
from stepwell.embedding import Fetched
from stepwell.train.config import TrainConfig
from stepwell.train.learner import Scorer
from stepwell.train.metrics import BinaryMetrics
from stepwell.train.pipeline import END, Pipeline, Stage

_DEPTH = 3


def evaluation_reader(config: TrainConfig, source: Source) -> BatchReader:
    """The source once, in its own order."""
    reader = config.reader.replace(shuffle_rows=0, in_order=False, epochs=1, drop_last=False)
    return BatchReader(source, config.features, config.labels, reader)


def figures_of(
    scorer: Scorer, source: Source, most_batches: int = 0, stopped: Callable[[], bool] = bool
) -> dict[str, Any]:
    """{"samples": ..., "tasks": {task: BinaryMetrics' figures}}; empty where `stopped` said so on the way.

    `most_batches` 0 is all of the source. The next batches are read while one is scored.
    """
    config = scorer.config
    metrics = {name: BinaryMetrics(grouped=bool(config.reader.group)) for name in config.task_names}
    num_samples = 0

    def rows(step: int, batch: Batch) -> tuple[Batch, Fetched]:
        return batch, scorer.embedding.read(scorer.embedding.route(batch.ids, gradients=False))

    def score(step: int, read: tuple[Batch, Fetched]) -> None:
        nonlocal num_samples
        batch, rows = read
        with torch.inference_mode():
            logits = scorer.score(batch, rows)
        for i, name in enumerate(config.task_names):
            metrics[name].update(logits[name].float(), batch.labels[:, i], batch.sample_weight, batch.group)
        num_samples += batch.size
        if stopped():
            pipeline.stop()

    reader = evaluation_reader(config, source)
    batches: Iterator[Batch] = iter(reader)
    if most_batches:
        batches = islice(batches, most_batches)
    stages = (
        Stage(name="read", run=lambda step, _: next(batches, END)),
        Stage(name="rows", run=rows),
        Stage(name="score", run=score, here=True),
    )
    pipeline = Pipeline(stages, depth=_DEPTH)
    was_training = scorer.model.training
    scorer.eval()
    try:
        pipeline.run()
    finally:
        if was_training:
            scorer.train()
        reader.close()
    if stopped():
        return {}
    return {"samples": num_samples, "tasks": {name: figures.compute() for name, figures in metrics.items()}}
