"""Lookup: what the embedding does with the ids of one feature."""

from dataclasses import dataclass
from typing import Literal

from stepwell.config import Config
from stepwell.data import FeatureSet, FeatureWithIds, IdFeature, SequenceFeature

Side = Literal["user", "item"]
Pooling = Literal["sum", "mean", "none"]
MAX_LEN = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Lookup(Config):
    """Rows of one table for one feature. Several lookups may share a table.

    "sum" and "mean" give [B, dim], "none" gives [B, max_len, dim] and lengths. A mean is the sum divided by the number
    of ids, weighted or not.
    """

    name: str  # of the feature
    table: str
    side: Side
    pooling: Pooling = "sum"
    max_len: int = 0  # most ids of a sample, more are an error; 0: no limit, where rows are pooled
    weighted: bool = False  # each row times its id's weight

    def __post_init__(self) -> None:
        self._require_instance("name", str)
        self._require(self.name != "", "name", "the name of a feature")
        self._require_instance("table", str)
        self._require(self.table != "", "table", "the name of a table")
        self._require(self.side in ("user", "item"), "side", "'user' or 'item'")
        self._require(self.pooling in ("sum", "mean", "none"), "pooling", "'sum', 'mean' or 'none'")
        self._require_int("max_len", 0, MAX_LEN)
        self._require(
            self.max_len > 0 or self.pooling != "none",
            "max_len",
            "at least 1, because rows that are not pooled are padded to it",
        )
        self._require_instance("weighted", bool)


def lookups(features: FeatureSet) -> tuple[Lookup, ...]:
    """What the features with ids ask for, in their order, which is that of a batch's ids."""
    return tuple(_lookup(feature) for feature in features.features_with_ids)


def _lookup(feature: FeatureWithIds) -> Lookup:
    one = Lookup(name=feature.name, table=feature.table, side=feature.side, max_len=1)
    if isinstance(feature, SequenceFeature):
        return one.replace(pooling="none", max_len=feature.max_len)
    if isinstance(feature, IdFeature):
        return one.replace(pooling=feature.pooling, max_len=feature.max_ids, weighted=bool(feature.weights))
    return one  # of at most one id
