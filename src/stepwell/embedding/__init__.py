"""Where features meet rows."""

from stepwell.embedding.inputs import Sequence, SequenceSpec, SideInputs, SideSpec
from stepwell.embedding.lookup import Lookup, lookups
from stepwell.embedding.optimizer import RowOptimizer
from stepwell.embedding.sharded import Fetched, ShardedEmbedding

__all__ = [
    "Fetched",
    "Lookup",
    "RowOptimizer",
    "Sequence",
    "SequenceSpec",
    "ShardedEmbedding",
    "SideInputs",
    "SideSpec",
    "lookups",
]
