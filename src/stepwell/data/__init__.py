"""Samples in, Batch out. Knows nothing of stores or models."""

from stepwell.data.batch import Batch, Cursor
from stepwell.data.columns import Column, Columns, Strings
from stepwell.data.criteo_features import CRITEO_CATS, CRITEO_INTS, CRITEO_LABEL, criteo_features
from stepwell.data.feature_set import FeatureSet
from stepwell.data.feature_specs import (
    BinFeature,
    CrossFeature,
    DenseFeature,
    Feature,
    FeatureWithIds,
    IdFeature,
    SequenceFeature,
)

__all__ = [
    "CRITEO_CATS",
    "CRITEO_INTS",
    "CRITEO_LABEL",
    "Batch",
    "BinFeature",
    "Column",
    "Columns",
    "CrossFeature",
    "Cursor",
    "DenseFeature",
    "Feature",
    "FeatureSet",
    "FeatureWithIds",
    "IdFeature",
    "SequenceFeature",
    "Strings",
    "criteo_features",
]
