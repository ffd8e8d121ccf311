"""The one door to the C++ core: load it, or say what to do."""

try:
    from stepwell.native import _core
except ImportError as error:
    from stepwell.errors import NativeLibraryError

    raise NativeLibraryError(
        f"the C++ core of stepwell could not be loaded ({error}); build it with `make build` in a checkout, or install "
        "the package again with `pip install --force-reinstall stepwell`"
    ) from error

from stepwell.native._core import (
    DenseRule,
    DramTable,
    ExpiryRule,
    FaultyEnv,
    InitProgram,
    JaggedGather,
    JaggedParts,
    JaggedRows,
    Routed,
    SparseFeature,
    SparsePlan,
    SparseTable,
    SsdLog,
    TableGroup,
    ThreadPool,
    build_info,
    check_ssd_dir,
    count_ids,
    count_lines,
    decode_tsv,
    draw_admission,
    draw_weights,
    gather_fixed,
    hash_columns,
    hash_strings,
    mix64,
    parse_hex,
    read_ssd_format,
    transform_dense,
)
from stepwell.native.sparse import POOLINGS, sparse_table
from stepwell.native.team import pool_beside_torch

__all__ = [
    "POOLINGS",
    "DenseRule",
    "DramTable",
    "ExpiryRule",
    "FaultyEnv",
    "InitProgram",
    "JaggedGather",
    "JaggedParts",
    "JaggedRows",
    "Routed",
    "SparseFeature",
    "SparsePlan",
    "SparseTable",
    "SsdLog",
    "TableGroup",
    "ThreadPool",
    "_core",
    "build_info",
    "check_ssd_dir",
    "count_ids",
    "count_lines",
    "decode_tsv",
    "draw_admission",
    "draw_weights",
    "gather_fixed",
    "hash_columns",
    "hash_strings",
    "mix64",
    "parse_hex",
    "pool_beside_torch",
    "read_ssd_format",
    "sparse_table",
    "transform_dense",
]
