"""Columns of numbers: into the dense block, by each feature's rule."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from stepwell.data.columns import Columns, Mask
from stepwell.data.feature_specs import DenseFeature
from stepwell.data.id_columns import numbers_of
from stepwell.data.row_problems import reject_column, reject_rows
from stepwell.errors import ConfigError, DataError
from stepwell.native import DenseRule, ThreadPool, transform_dense

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
_NATIVE = (np.int32, np.int64, np.float32, np.float64)


def fill_dense(feature: DenseFeature, columns: Columns, out: F32, start: int, pool: ThreadPool | None) -> None:
    """Write a feature's values into columns start .. start + width of `out`, float32 [n, D]."""
    bad = np.empty(columns.num_rows, np.uint8)
    low, high = feature.clip or (-math.inf, math.inf)
    for at, (name, values, present) in enumerate(_single_columns(feature, columns)):
        mean, std = (feature.mean[at], feature.std[at]) if feature.standardise else (0.0, 1.0)
        missing = 0.0
        if feature.missing == "error":
            _require_all(feature, name, values, present, columns)
        else:
            missing = feature.missing
        rule = DenseRule(missing, feature.log1p, mean, std, low, high)
        mask = present.view(np.uint8) if present is not None else None
        if transform_dense(values, mask, rule, out, start + at, bad, pool):
            raise reject_rows(
                columns,
                name,
                feature,
                bad.view(np.bool_),
                lambda row, values=values: repr(values[row].item()),  # type: ignore[misc]
                "a finite number that stays within float32",
            )


def statistics(feature: DenseFeature, columns: Columns) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each value, after log1p, of what is there; a deviation of 0 counts as 1."""
    raw = feature.replace(standardise=False, mean=(), std=(), clip=())
    mean, std = [], []
    out, bad = np.empty((columns.num_rows, 1), np.float32), np.empty(columns.num_rows, np.uint8)
    for name, values, present in _single_columns(raw, columns):
        known = np.ones(columns.num_rows, np.bool_) if present is None else present.copy()
        if values.dtype.kind == "f":
            known &= ~np.isnan(values)
        if not known.any():
            raise DataError(f"{columns.origin[0] or 'fit'}: column {name!r} holds nothing, expected values to fit to")
        mask = known.view(np.uint8)
        if transform_dense(values, mask, DenseRule(0.0, feature.log1p, 0.0, 1.0, -math.inf, math.inf), out, 0, bad):
            raise reject_rows(
                columns,
                name,
                feature,
                bad.view(np.bool_),
                lambda row, values=values: repr(values[row].item()),  # type: ignore[misc]
                "finite numbers",
            )
        there = out[known, 0].astype(np.float64)
        mean.append(float(there.mean()))
        std.append(float(there.std()) or 1.0)
    return tuple(mean), tuple(std)


def require_fitted(feature: DenseFeature) -> None:
    """ConfigError for a feature that is to be standardised and has no mean yet."""
    if feature.standardise and not feature.mean:
        raise ConfigError(
            f"feature {feature.name!r}: found standardise without mean and std, expected FeatureSet.fit first"
        )


def _single_columns(feature: DenseFeature, columns: Columns) -> list[tuple[str, npt.NDArray[Any], Mask | None]]:
    """(column's name, one number per row, which rows are there) for each value that the feature gives."""
    found: list[tuple[str, npt.NDArray[Any], Mask | None]] = []
    for name in feature.columns:
        values, valid = numbers_of(feature, name, columns)
        if values.dtype not in _NATIVE:
            values = values.astype(np.float64)
        offsets = columns[name].offsets
        if feature.dim == 1:
            if offsets is not None:
                raise reject_column(columns, name, feature, "one number per row (or lists, with dim > 1)")
            found.append((name, np.ascontiguousarray(values), valid))
            continue
        if offsets is None:
            raise reject_column(columns, name, feature, f"lists of {feature.dim} numbers")
        lengths = np.diff(offsets)
        there = lengths > 0
        wrong = there & (lengths != feature.dim)
        if wrong.any():
            held = lengths  # of this column
            raise reject_rows(
                columns,
                name,
                feature,
                wrong,
                lambda row, held=held: f"{held[row]} numbers",  # type: ignore[misc]
                f"{feature.dim} (dim), or none",
            )
        whole = np.zeros((feature.dim, columns.num_rows), values.dtype)
        whole[:, there] = values.reshape(-1, feature.dim).T
        found += [(name, whole[i], there) for i in range(feature.dim)]
    return found


def _require_all(
    feature: DenseFeature, name: str, values: npt.NDArray[Any], present: Mask | None, columns: Columns
) -> None:
    absent = np.zeros(len(values), np.bool_) if present is None else ~present
    if values.dtype.kind == "f":
        absent = absent | np.isnan(values)
    if absent.any():
        expected = "a number in every row (missing='error')"
        raise reject_rows(columns, name, feature, absent, lambda row: "nothing", expected)
