"""FeatureSet: raw columns to a batch's ids and dense values, the same code and the same bits wherever it runs."""

from dataclasses import dataclass

import numpy as np
import torch

from stepwell.config import Config
from stepwell.data.columns import Columns
from stepwell.data.dense_columns import F32, fill_dense, require_fitted, statistics
from stepwell.data.feature_specs import (
    BinFeature,
    CrossFeature,
    DenseFeature,
    Feature,
    FeatureWithIds,
    IdFeature,
    SequenceFeature,
)
from stepwell.data.id_columns import Ids, add_ids, ids_of
from stepwell.errors import ConfigError
from stepwell.jagged import JaggedIds
from stepwell.native import JaggedParts, ThreadPool

_SIDES = ("user", "item")
_CLASSES = (IdFeature, SequenceFeature, CrossFeature, BinFeature, DenseFeature)


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureSet(Config):
    """Declared features. Its JSON is `features.json`, and all that serving needs to compute the same.

    The features with ids keep their order of declaration. The dense columns are those of the user side, then those of
    the item side, each in order of declaration.
    """

    features: tuple[Feature, ...]

    def __post_init__(self) -> None:
        self._require_tuple_of("features", Feature)
        ok = all(type(feature) in _CLASSES for feature in self.features)
        self._require(ok, "features", f"a tuple of {', '.join(cls.__name__ for cls in _CLASSES)}")
        known: dict[str, Feature] = {}
        for feature in self.features:
            if feature.name in known:
                raise ConfigError(f"FeatureSet.features: found two features named {feature.name!r}")
            if isinstance(feature, CrossFeature):
                _check_cross(feature, known)
            known[feature.name] = feature
        if not self.features_with_ids:
            raise ConfigError("FeatureSet.features: found no feature with ids, expected at least one")

    @property
    def features_with_ids(self) -> tuple[FeatureWithIds, ...]:
        """In the order of `JaggedIds.features`."""
        return tuple(feature for feature in self.features if type(feature) is not DenseFeature)  # type: ignore[misc]

    @property
    def dense_features(self) -> tuple[DenseFeature, ...]:
        """In the order of the dense columns."""
        dense = [feature for feature in self.features if isinstance(feature, DenseFeature)]
        return tuple(feature for side in _SIDES for feature in dense if feature.side == side)

    @property
    def dense_dims(self) -> dict[str, int]:
        """How many dense columns each side has."""
        return {side: sum(f.width for f in self.dense_features if f.side == side) for side in _SIDES}

    @property
    def columns(self) -> tuple[str, ...]:
        """The raw columns that are read, each once, in order of first use."""
        return tuple(dict.fromkeys(name for feature in self.features for name in feature.columns_read))

    @property
    def is_fitted(self) -> bool:
        """Whether `compute` can run: every mean and standard deviation is there."""
        return all(feature.mean or not feature.standardise for feature in self.dense_features)

    def compute(self, columns: Columns, pool: ThreadPool | None = None) -> tuple[JaggedIds, F32]:
        """The ids, and the dense values float32 [n, D]. A row's do not depend on the rows beside it.

        DataError for a column of the wrong kind; BadRows, which names rows, for values that a feature cannot take.
        """
        dense = np.empty((columns.num_rows, sum(self.dense_dims.values())), np.float32)
        start = 0
        for feature in self.dense_features:
            require_fitted(feature)
            fill_dense(feature, columns, dense, start, pool)
            start += feature.width
        return self._ids(columns, pool), dense

    def fit(self, columns: Columns) -> "FeatureSet":
        """The same features with mean and standard deviation, where `standardise` is set, of these rows."""

        def fitted(feature: Feature) -> Feature:
            if not isinstance(feature, DenseFeature) or not feature.standardise:
                return feature
            mean, std = statistics(feature, columns)
            return feature.replace(mean=mean, std=std)

        return self.replace(features=tuple(fitted(feature) for feature in self.features))

    def _ids(self, columns: Columns, pool: ThreadPool | None) -> JaggedIds:
        features = self.features_with_ids
        parts = JaggedParts(columns.num_rows)
        known: dict[str, Ids] = {}
        weighted = False
        for feature in features:
            ids = known[feature.name] = ids_of(feature, columns, known, pool)
            weighted = weighted or ids.weights is not None
            add_ids(parts, feature, ids, columns)
        values = np.empty(parts.num_ids, np.int64)
        offsets = np.empty(len(features) * columns.num_rows + 1, np.int64)
        weights = np.empty(parts.num_ids, np.float32) if weighted else None
        parts.pack(values, offsets, weights, pool)
        return JaggedIds(
            features=tuple(feature.name for feature in features),
            values=torch.from_numpy(values),
            offsets=torch.from_numpy(offsets),
            weights=torch.from_numpy(weights) if weights is not None else None,
        )


def _check_cross(feature: CrossFeature, known: dict[str, Feature]) -> None:
    where = f"feature {feature.name!r}"
    for name in feature.features:
        part = known.get(name)
        if part is None:
            raise ConfigError(
                f"{where}: found {name!r} to cross, expected a feature that is declared before it: "
                f"{', '.join(map(repr, known)) or 'there is none'}"
            )
        if isinstance(part, (SequenceFeature, DenseFeature)):
            expected = "an IdFeature, BinFeature or CrossFeature"
            raise ConfigError(f"{where}: found the {type(part).__name__} {name!r} to cross, expected {expected}")
        if feature.side == "user" and part.side == "item":
            raise ConfigError(
                f"{where}: found side 'user' with the item feature {name!r} to cross, expected side 'item': the user "
                "side is computed without the items"
            )
