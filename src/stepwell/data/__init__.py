"""Samples in, Batch out. Knows nothing of stores or models."""

from stepwell.data.arrays import ArraySource
from stepwell.data.batch import Batch, Cursor
from stepwell.data.columns import Column, Columns, Strings
from stepwell.data.criteo import CriteoSource
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
from stepwell.data.parquet import ParquetSource
from stepwell.data.prepare import ReaderConfig
from stepwell.data.reader import BatchReader
from stepwell.data.source import Source, Unit
from stepwell.data.synthetic import SyntheticSource
from stepwell.data.teacher import TeacherAuc, expected_auc, teacher_auc

__all__ = [
    "CRITEO_CATS",
    "CRITEO_INTS",
    "CRITEO_LABEL",
    "ArraySource",
    "Batch",
    "BatchReader",
    "BinFeature",
    "Column",
    "Columns",
    "CriteoSource",
    "CrossFeature",
    "Cursor",
    "DenseFeature",
    "Feature",
    "FeatureSet",
    "FeatureWithIds",
    "IdFeature",
    "ParquetSource",
    "ReaderConfig",
    "SequenceFeature",
    "Source",
    "Strings",
    "SyntheticSource",
    "TeacherAuc",
    "Unit",
    "criteo_features",
    "expected_auc",
    "teacher_auc",
]
