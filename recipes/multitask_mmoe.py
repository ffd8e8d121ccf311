"""MMoE: clicks and conversions from one set of experts, each task with its own gate and weight."""

from recipes.criteo import criteo_run
from stepwell.models import MMoE
from stepwell.train import EarlyStop, Task, TrainConfig


def multitask_mmoe() -> TrainConfig:
    """Criteo's columns with a second label; stops when conversions get no better."""
    return criteo_run(MMoE(num_experts=4, expert=(128, 64), tower=(32,))).replace(
        tasks=(Task(name="click"), Task(name="convert", weight=0.5)),
        early_stop=EarlyStop(metric="auc", task="convert", patience=3),
    )
