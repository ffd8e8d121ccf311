"""A run against a column of its data: another system's predictions, or a teacher's, on the same samples."""

import numpy as np
import torch

from stepwell.data import BatchReader, Source
from stepwell.errors import ConfigError
from stepwell.train.comparison import AucDifference, auc_difference
from stepwell.train.opened import Run


def compare_with_column(run: Run, source: Source, column: str) -> AucDifference:
    """AUC of the run's first task minus that of the column, values in 0..1 that rise with the label."""
    config, task = run.config, run.config.task_names[0]
    reading = config.reader.replace(shuffle_rows=0, in_order=False, epochs=1, drop_last=False)
    ours, theirs, labels = [], [], []
    with BatchReader(source, run.features, (*config.labels, column), reading) as reader, torch.inference_mode():
        for batch in reader:
            rows = run.embedding.read(run.embedding.route(batch.ids, gradients=False))
            ours.append(run.scorer.score(batch, rows)[task].float().numpy())
            labels.append(batch.labels[:, 0].numpy())
            theirs.append(batch.labels[:, -1].numpy())
    if not ours:
        raise ConfigError("source: found no samples, expected some to compare on")
    return auc_difference(np.concatenate(labels), np.concatenate(ours), np.concatenate(theirs))
