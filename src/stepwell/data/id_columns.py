"""Columns of ids: from raw values to int64, with what is there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepwell.data.columns import I64, Columns, Mask, Strings
from stepwell.data.feature_specs import (
    BinFeature,
    CrossFeature,
    Feature,
    FeatureWithIds,
    Hash,
    IdFeature,
    SequenceFeature,
)
from stepwell.data.row_problems import column_of, reject_column, reject_rows
from stepwell.native import JaggedParts, ThreadPool, hash_columns, hash_strings, parse_hex

_KEEP_ALL, _KEEP = 0, {"first": 1, "last": 2}  # native/text/jagged_ids.h


@dataclass(frozen=True, slots=True)
class Ids:
    """A feature's ids. Scalar: `present` says which are there, None for all. List: `offsets`."""

    column: str  # where they come from, for messages
    values: I64
    offsets: I64 | None = None
    present: Mask | None = None
    weights: npt.NDArray[np.float32] | None = None


def ids_of(feature: FeatureWithIds, columns: Columns, earlier: Mapping[str, Ids], pool: ThreadPool | None) -> Ids:
    """A feature's ids, from the columns or from features before it."""
    if isinstance(feature, IdFeature):
        ids = _from_column(feature, feature.column, feature.hash, columns, pool)
        ids = _with_weights(feature, ids, columns) if feature.weights else ids
    elif isinstance(feature, SequenceFeature):
        if column_of(columns, feature.column, feature).offsets is None:
            raise reject_column(columns, feature.column, feature, "lists")
        ids = _from_column(feature, feature.column, feature.hash, columns, pool)
    elif isinstance(feature, BinFeature):
        ids = _bins(feature, columns)
    else:
        assert isinstance(feature, CrossFeature)
        ids = _cross(feature, columns, earlier, pool)
    if feature.missing == "error":
        _require_all(feature, ids, columns)
    elif feature.missing != "none" and ids.present is not None:
        filled = np.where(ids.present, ids.values, np.int64(feature.missing))
        weights = np.where(ids.present, ids.weights, np.float32(1)) if ids.weights is not None else None
        ids = Ids(ids.column, filled, weights=weights)
    return ids


def add_ids(parts: JaggedParts, feature: FeatureWithIds, ids: Ids, columns: Columns) -> None:
    """Enter a feature's ids, with what its rules keep and fill in."""
    fill = feature.missing if isinstance(feature.missing, int) else None
    keep, max_len = _KEEP_ALL, 1
    if isinstance(feature, SequenceFeature):
        keep, max_len = _KEEP[feature.keep], feature.max_len
    elif isinstance(feature, IdFeature):
        max_len = feature.max_ids
    present = ids.present.view(np.uint8) if ids.present is not None else None
    num_longer = parts.add(ids.values, ids.offsets, present, ids.weights, fill, max_len, keep)
    if num_longer and keep == _KEEP_ALL and ids.offsets is not None and isinstance(feature, IdFeature):
        lengths = np.diff(ids.offsets)
        raise reject_rows(
            columns,
            feature.column,
            feature,
            lengths > max_len,
            lambda row: f"{lengths[row]} ids",
            f"at most {max_len} (max_ids)",
        )


def numbers_of(feature: Feature, name: str, columns: Columns) -> tuple[npt.NDArray[Any], Mask | None]:
    """A numeric column's values, NaN where a float is missing, and which rows are there, None for all."""
    column = column_of(columns, name, feature)
    values = column.values
    if isinstance(values, Strings) or values.dtype.kind not in "iufb":
        raise reject_column(columns, name, feature, "numbers")
    return values, column.valid


def _from_column(feature: FeatureWithIds, name: str, hash_: Hash, columns: Columns, pool: ThreadPool | None) -> Ids:
    column = column_of(columns, name, feature)
    present = column.valid if column.offsets is None else None
    if isinstance(column.values, Strings):
        values = _from_strings(feature, name, hash_, columns, column.values, pool)
    else:
        if column.values.dtype.kind not in "iub":
            raise reject_column(columns, name, feature, "ints" if hash_ == "none" else "strings or ints")
        values = _as_int64(column.values)
        if hash_ == "xxh64":
            hashed = np.empty_like(values)
            hash_columns([values], hashed, pool)
            values = hashed
    return Ids(name, values, column.offsets, present)


def _from_strings(
    feature: FeatureWithIds, name: str, hash_: Hash, columns: Columns, strings: Strings, pool: ThreadPool | None
) -> I64:
    column = columns[name]
    ids = np.empty(len(strings), np.int64)
    if hash_ == "xxh64":
        hash_strings(strings.data, strings.offsets, ids, pool)
        return ids
    if hash_ == "none":
        raise reject_column(columns, name, feature, "ints: say hash='hex' or hash='xxh64' to make ids of strings")
    wanted = column.valid.view(np.uint8) if column.offsets is None and column.valid is not None else None
    bad = np.empty(len(strings), np.uint8)
    if parse_hex(strings.data, strings.offsets, wanted, ids, bad, pool):
        wrong = bad.view(np.bool_)
        first = int(np.argmax(wrong))
        text = strings.data[strings.offsets[first] : strings.offsets[first + 1]].tobytes()
        rows = wrong if column.offsets is None else _rows_with(wrong, column.offsets)
        raise reject_rows(columns, name, feature, rows, lambda row: repr(text), "1 to 16 hex digits (hash='hex')")
    return ids


def _with_weights(feature: IdFeature, ids: Ids, columns: Columns) -> Ids:
    name = feature.weights
    values, valid = numbers_of(feature, name, columns)
    offsets = columns[name].offsets
    if (offsets is None) != (ids.offsets is None):
        lists = "numbers" if ids.offsets is None else "lists of numbers"
        raise reject_column(columns, name, feature, f"{lists}, one for each id of column {feature.column!r}")
    with np.errstate(over="ignore"):  # infinity is found below
        weights = np.ascontiguousarray(values, np.float32)
    if ids.offsets is None:
        there = np.ones(len(ids.values), np.bool_) if ids.present is None else ids.present
        finite = np.isfinite(weights) if valid is None else np.isfinite(weights) & valid
        bad = there & ~finite
    else:
        assert offsets is not None
        lengths, wanted = np.diff(offsets), np.diff(ids.offsets)
        if not np.array_equal(lengths, wanted):
            raise reject_rows(
                columns,
                name,
                feature,
                lengths != wanted,
                lambda row: f"{lengths[row]} weights",
                f"one for each id of column {feature.column!r}",
            )
        bad = _rows_with(~np.isfinite(weights), offsets)
    if bad.any():
        raise reject_rows(columns, name, feature, bad, lambda row: "a weight that is no number", "finite weights")
    return Ids(ids.column, ids.values, ids.offsets, ids.present, weights)


def _bins(feature: BinFeature, columns: Columns) -> Ids:
    values, valid = numbers_of(feature, feature.column, columns)
    if columns[feature.column].offsets is not None:
        raise reject_column(columns, feature.column, feature, "one number per row")
    numbers = values.astype(np.float64, copy=False)
    bins = np.searchsorted(np.asarray(feature.boundaries, np.float64), numbers, side="right").astype(np.int64)
    present = valid
    if values.dtype.kind == "f":
        known = ~np.isnan(numbers)
        present = known if valid is None else known & valid
    return Ids(feature.column, bins, present=present)


def _cross(feature: CrossFeature, columns: Columns, earlier: Mapping[str, Ids], pool: ThreadPool | None) -> Ids:
    present: Mask | None = None
    parts = [earlier[name] for name in feature.features]
    for ids in parts:
        if ids.offsets is not None:
            raise reject_column(columns, ids.column, feature, "one value per row to cross")
        if ids.present is not None:
            present = ids.present if present is None else present & ids.present
    crossed = np.empty(columns.num_rows, np.int64)
    hash_columns([ids.values for ids in parts], crossed, pool)
    return Ids(" x ".join(ids.column for ids in parts), crossed, present=present)


def _require_all(feature: FeatureWithIds, ids: Ids, columns: Columns) -> None:
    if ids.offsets is not None:
        absent = np.diff(ids.offsets) == 0
    elif ids.present is not None:
        absent = ~ids.present
    else:
        return
    if absent.any():
        expected = "a value in every row (missing='error')"
        raise reject_rows(columns, ids.column, feature, absent, lambda row: "nothing", expected)


def _as_int64(values: npt.NDArray[Any]) -> I64:
    values = np.ascontiguousarray(values)
    return values.view(np.int64) if values.dtype == np.uint64 else values.astype(np.int64, copy=False)


def _rows_with(marked: Mask, offsets: I64) -> Mask:
    """The rows whose lists have a marked entry."""
    before = np.concatenate([[0], np.cumsum(marked)])
    return np.asarray(before[offsets[1:]] > before[offsets[:-1]])
