"""One rank's rows across tiers."""

from stepwell.store.config import SsdSettings, StoreConfig
from stepwell.store.overlays import Delta
from stepwell.store.snapshot import restore, snapshot
from stepwell.store.step_rows import RowCopies, StepRows
from stepwell.store.steps import Touched
from stepwell.store.tier import ResidentTier, Tier, TierStats
from stepwell.store.tiered import Rows, StoreStats, TieredStore

__all__ = [
    "Delta",
    "ResidentTier",
    "RowCopies",
    "Rows",
    "SsdSettings",
    "StepRows",
    "StoreConfig",
    "StoreStats",
    "Tier",
    "TierStats",
    "TieredStore",
    "Touched",
    "restore",
    "snapshot",
]
