"""DCNv2 on Criteo's columns, as criteo_dlrm in all the rest."""

from recipes.criteo import criteo_run
from stepwell.models import DCNv2
from stepwell.train import TrainConfig


def criteo_dcn() -> TrainConfig:
    """Three cross layers of rank 64, then an MLP."""
    return criteo_run(DCNv2(num_cross=3, rank=64, deep=(128, 64)))
