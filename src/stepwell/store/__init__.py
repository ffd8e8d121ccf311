"""One rank's rows across tiers."""

from stepwell.store.config import SsdSettings, StoreConfig
from stepwell.store.overlays import Delta
from stepwell.store.results import RowCopies, Rows, StepRows, StoreStats
from stepwell.store.snapshot import restore, snapshot
from stepwell.store.tables import TableIds
from stepwell.store.tier import ResidentTier, Tier, TierStats
from stepwell.store.tiered import TieredStore
from stepwell.store.touched import Touched

__all__ = [
    "Delta",
    "ResidentTier",
    "RowCopies",
    "Rows",
    "SsdSettings",
    "StepRows",
    "StoreConfig",
    "StoreStats",
    "TableIds",
    "Tier",
    "TierStats",
    "TieredStore",
    "Touched",
    "restore",
    "snapshot",
]
