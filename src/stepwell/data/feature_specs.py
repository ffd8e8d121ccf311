"""Features: what each one takes from raw columns, and what it gives.

The side of a feature is where serving computes it: "user" once per request, "item" once per candidate.
"""

import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, Literal

from stepwell.config import Config

Side = Literal["user", "item"]
Pooling = Literal["sum", "mean"]
Hash = Literal["none", "hex", "xxh64"]
Missing = int | Literal["none", "error"]  # an id, no id, or a row that cannot be used

MAX_IDS: Final = 1 << 20  # of one feature in one sample
_MAX_I64: Final = (1 << 63) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Feature(Config, ABC):
    """Base of the features."""

    name: str
    side: Side

    @property
    @abstractmethod
    def columns_read(self) -> tuple[str, ...]:
        """The raw columns it takes, in order."""

    def _check_feature(self) -> None:
        self._check_name("name")
        self._require(self.side in ("user", "item"), "side", "'user' or 'item'")

    def _check_name(self, field: str) -> None:
        value = getattr(self, field)
        self._require(isinstance(value, str) and value != "", field, "a name")

    def _check_hash(self) -> None:
        self._require(getattr(self, "hash", None) in ("none", "hex", "xxh64"), "hash", "'none', 'hex' or 'xxh64'")


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureWithIds(Feature, ABC):
    """Base of the features whose ids look up rows of a table."""

    table: str
    missing: Missing = "none"

    def _check_ids(self) -> None:
        self._check_feature()
        self._check_name("table")
        is_id = type(self.missing) is int and -_MAX_I64 - 1 <= self.missing <= _MAX_I64
        ok = is_id or self.missing in ("none", "error")
        self._require(ok, "missing", "'none', 'error' or an id (an int of 64 bits)")


@dataclass(frozen=True, kw_only=True, slots=True)
class IdFeature(FeatureWithIds):
    """The ids of a column, scalar or list, pooled into one vector per sample.

    `hash` says how a value becomes an id: "none" takes ints as they are, "hex" reads strings of hex digits (ints are
    taken as they are), "xxh64" is the XXH64 of a string's bytes, or of the eight little-endian bytes of an int. More
    than `max_ids` ids in a row are an error. `weights` names a column with a weight for each id.
    """

    column: str
    pooling: Pooling = "sum"
    hash: Hash = "none"
    max_ids: int = 1
    weights: str = ""  # "": every id counts 1

    def __post_init__(self) -> None:
        self._check_ids()
        self._check_name("column")
        self._require(self.pooling in ("sum", "mean"), "pooling", "'sum' or 'mean' (a SequenceFeature is not pooled)")
        self._check_hash()
        self._require_int("max_ids", 1, MAX_IDS)
        self._require_instance("weights", str)

    @property
    def columns_read(self) -> tuple[str, ...]:
        """The ids' column, and the weights'."""
        return (self.column, self.weights) if self.weights else (self.column,)


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceFeature(FeatureWithIds):
    """The ids of a list column in order, not pooled: at most `max_len` of them, the first or the last ones."""

    column: str
    max_len: int
    keep: Literal["first", "last"] = "last"
    hash: Hash = "none"

    def __post_init__(self) -> None:
        self._check_ids()
        self._check_name("column")
        self._require_int("max_len", 1, MAX_IDS)
        self._require(self.keep in ("first", "last"), "keep", "'first' or 'last'")
        self._check_hash()

    @property
    def columns_read(self) -> tuple[str, ...]:
        """The ids' column."""
        return (self.column,)


@dataclass(frozen=True, kw_only=True, slots=True)
class CrossFeature(FeatureWithIds):
    """One id for each combination of the ids of other features: XXH64 over their eight little-endian bytes each.

    `features` name two or more features that are declared before this one and have one id per sample: IdFeature over
    a scalar column, BinFeature, CrossFeature. Where one of them has no id, the cross is missing.
    """

    features: tuple[str, ...]

    def __post_init__(self) -> None:
        self._check_ids()
        self._require_tuple_of("features", str)
        self._require(
            len(set(self.features)) == len(self.features) >= 2, "features", "names of two or more other features"
        )

    @property
    def columns_read(self) -> tuple[str, ...]:
        """None of its own."""
        return ()


@dataclass(frozen=True, kw_only=True, slots=True)
class BinFeature(FeatureWithIds):
    """The number of a value's bin as id: how many of the rising `boundaries` are <= the value, 0..len(boundaries)."""

    column: str
    boundaries: tuple[float, ...]

    def __post_init__(self) -> None:
        self._check_ids()
        self._check_name("column")
        found = self.boundaries
        ok = _are_finite(found) and len(found) > 0
        ok = ok and all(low < high for low, high in itertools.pairwise(found))
        self._require(ok, "boundaries", "one or more finite numbers, rising")

    @property
    def columns_read(self) -> tuple[str, ...]:
        """The numeric column."""
        return (self.column,)


@dataclass(frozen=True, kw_only=True, slots=True)
class DenseFeature(Feature):
    """Numbers for the dense network: `dim` values of each column, in order.

    A scalar column has dim 1; with a larger `dim` the columns are lists of exactly `dim` numbers. A missing value (NaN
    is missing) reads as `missing`. Then, in float64: `log1p` takes v to sign(v) * log(1 + |v|); `standardise` to
    (v - mean) / std, with a mean and std for each value; `clip` bounds the result; it is rounded to float32.
    `FeatureSet.fit` sets mean and std from data.
    """

    columns: tuple[str, ...]
    dim: int = 1
    log1p: bool = False
    standardise: bool = False
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    clip: tuple[float, ...] = ()  # low, high
    missing: float | Literal["error"] = 0.0

    def __post_init__(self) -> None:
        self._check_feature()
        self._require_tuple_of("columns", str)
        self._require(
            len(set(self.columns)) == len(self.columns) > 0 and "" not in self.columns, "columns", "different names"
        )
        self._require_int("dim", 1, MAX_IDS)
        for name in ("log1p", "standardise"):
            self._require(type(getattr(self, name)) is bool, name, "True or False")
        for name in ("mean", "std"):
            found = getattr(self, name)
            self._require(
                _are_finite(found) and len(found) in (0, self.width), name, f"{self.width} finite numbers, or none yet"
            )
            self._require(self.standardise or not found, name, "nothing unless standardise is set")
        self._require(len(self.mean) == len(self.std), "std", "as many numbers as mean has")
        self._require(all(value > 0 for value in self.std), "std", "numbers > 0")
        clip = self.clip
        ok = _are_finite(clip) and len(clip) in (0, 2)
        self._require(ok and (not clip or clip[0] < clip[1]), "clip", "(low, high) with low < high, or nothing")
        self._require(self.missing == "error" or _is_finite(self.missing), "missing", "a finite number or 'error'")

    @property
    def width(self) -> int:
        """Dense columns that it gives."""
        return len(self.columns) * self.dim

    @property
    def columns_read(self) -> tuple[str, ...]:
        """The numeric columns."""
        return self.columns


def _are_finite(values: object) -> bool:
    return isinstance(values, tuple) and all(_is_finite(value) for value in values)


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
