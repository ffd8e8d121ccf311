"""Training on one machine: the pipeline, the trainer, its configuration and its metrics."""

from stepwell.train.against import compare_with_column
from stepwell.train.comparison import AucDifference, auc_difference
from stepwell.train.config import EarlyStop, Task, TrainConfig
from stepwell.train.dense import DenseAdaGrad, DenseAdam, DenseAdamW, DenseOptimizer, DenseSGD
from stepwell.train.learner import Learner, Scorer, Work
from stepwell.train.memory import MemoryPart, MemoryPlan, predict_memory
from stepwell.train.metrics import BinaryMetrics
from stepwell.train.opened import Run, evaluate, open_run
from stepwell.train.pipeline import Pipeline, Stage
from stepwell.train.schedules import ConstantRate, CosineDecay, LinearDecay, Schedule, StepDecay
from stepwell.train.stages import five_stages
from stepwell.train.trainer import Trainer
from stepwell.train.verify import VerifyReport, verify_exact

__all__ = [
    "AucDifference",
    "BinaryMetrics",
    "ConstantRate",
    "CosineDecay",
    "DenseAdaGrad",
    "DenseAdam",
    "DenseAdamW",
    "DenseOptimizer",
    "DenseSGD",
    "EarlyStop",
    "Learner",
    "LinearDecay",
    "MemoryPart",
    "MemoryPlan",
    "Pipeline",
    "Run",
    "Schedule",
    "Scorer",
    "Stage",
    "StepDecay",
    "Task",
    "TrainConfig",
    "Trainer",
    "VerifyReport",
    "Work",
    "auc_difference",
    "compare_with_column",
    "evaluate",
    "five_stages",
    "open_run",
    "predict_memory",
    "verify_exact",
]
