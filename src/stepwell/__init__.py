"""Stepwell: sparse recommendation models whose embedding tables are larger than memory."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stepwell.rows import (
    FTRL,
    LAMB,
    LFU,
    LRU,
    SGD,
    TTL,
    AdaGrad,
    Adam,
    AdamW,
    Always,
    Constant,
    L2Below,
    MaxRows,
    MinCount,
    MomentumScaledRowWiseAdaGrad,
    Normal,
    Probability,
    RowWiseAdaGrad,
    RowWiseAdam,
    TableSpec,
    TruncatedNormal,
    Uniform,
    Xavier,
    Zeros,
)
from stepwell.store import Delta, Rows, SsdSettings, StoreConfig, TieredStore, restore, snapshot

if TYPE_CHECKING:
    from stepwell.data import (
        ArraySource,
        Batch,
        BatchReader,
        BinFeature,
        CriteoSource,
        CrossFeature,
        DenseFeature,
        FeatureSet,
        IdFeature,
        ParquetSource,
        ReaderConfig,
        SequenceFeature,
        SyntheticSource,
    )
    from stepwell.embedding import Fetched, Lookup, RowOptimizer, ShardedEmbedding, SideInputs, SideSpec, lookups
    from stepwell.jagged import JaggedIds
    from stepwell.models import BST, DIN, DLRM, DCNv2, DeepFM, MMoE, ModelConfig, WideDeep
    from stepwell.train import Task, TrainConfig

__version__ = "0.1.0"

# These import torch, which takes a second: they come with their first use.
_LATER = {
    "stepwell.data": "ArraySource Batch BatchReader BinFeature CriteoSource CrossFeature DenseFeature FeatureSet "
    "IdFeature ParquetSource ReaderConfig SequenceFeature SyntheticSource",
    "stepwell.embedding": "Fetched Lookup RowOptimizer ShardedEmbedding SideInputs SideSpec lookups",
    "stepwell.jagged": "JaggedIds",
    "stepwell.models": "BST DCNv2 DIN DLRM DeepFM MMoE ModelConfig WideDeep",
    "stepwell.train": "Task TrainConfig",
}

__all__ = [
    "BST",
    "DIN",
    "DLRM",
    "FTRL",
    "LAMB",
    "LFU",
    "LRU",
    "SGD",
    "TTL",
    "AdaGrad",
    "Adam",
    "AdamW",
    "Always",
    "ArraySource",
    "Batch",
    "BatchReader",
    "BinFeature",
    "Constant",
    "CriteoSource",
    "CrossFeature",
    "DCNv2",
    "DeepFM",
    "Delta",
    "DenseFeature",
    "FeatureSet",
    "Fetched",
    "IdFeature",
    "JaggedIds",
    "L2Below",
    "Lookup",
    "MMoE",
    "MaxRows",
    "MinCount",
    "ModelConfig",
    "MomentumScaledRowWiseAdaGrad",
    "Normal",
    "ParquetSource",
    "Probability",
    "ReaderConfig",
    "RowOptimizer",
    "RowWiseAdaGrad",
    "RowWiseAdam",
    "Rows",
    "SequenceFeature",
    "ShardedEmbedding",
    "SideInputs",
    "SideSpec",
    "SsdSettings",
    "StoreConfig",
    "SyntheticSource",
    "TableSpec",
    "Task",
    "TieredStore",
    "TrainConfig",
    "TruncatedNormal",
    "Uniform",
    "WideDeep",
    "Xavier",
    "Zeros",
    "__version__",
    "lookups",
    "restore",
    "snapshot",
]


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names.split():
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
