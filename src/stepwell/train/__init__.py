"""Training on one machine: the pipeline, the trainer, its configuration and its metrics."""

from stepwell.train.config import EarlyStop, Task, TrainConfig
from stepwell.train.dense import DenseAdaGrad, DenseAdam, DenseAdamW, DenseOptimizer, DenseSGD
from stepwell.train.metrics import BinaryMetrics
from stepwell.train.pipeline import Pipeline, Stage
from stepwell.train.schedules import ConstantRate, CosineDecay, LinearDecay, Schedule, StepDecay

__all__ = [
    "BinaryMetrics",
    "ConstantRate",
    "CosineDecay",
    "DenseAdaGrad",
    "DenseAdam",
    "DenseAdamW",
    "DenseOptimizer",
    "DenseSGD",
    "EarlyStop",
    "LinearDecay",
    "Pipeline",
    "Schedule",
    "Stage",
    "StepDecay",
    "Task",
    "TrainConfig",
]
