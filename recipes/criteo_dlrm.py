"""DLRM on Criteo's columns: 13 ints, 26 ids, a table for each, rows over DRAM and SSD."""

from recipes.criteo import criteo_run
from stepwell.models import DLRM
from stepwell.train import TrainConfig


def criteo_dlrm() -> TrainConfig:
    """Synthetic samples of that shape; `--set train.rows=...` says how many."""
    return criteo_run(DLRM(bottom=(64,), top=(128, 64)))
