"""One unit's columns made into Samples: labels and the columns beside them are checked here, features computed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from stepwell.config import Config
from stepwell.data.columns import I64, Column, Columns, Mask, Strings
from stepwell.data.samples import F32, Samples
from stepwell.data.source import Source, Unit
from stepwell.errors import BadRows, ReadProblem
from stepwell.jagged import JaggedIds
from stepwell.native import JaggedRows


class Features(Protocol):
    """What a reader needs of a FeatureSet."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it takes."""

    def compute(self, columns: Columns, /) -> tuple[JaggedIds, F32]:
        """Ids, and dense float32 [n, D]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReaderConfig(Config):
    """How samples are cut into batches.

    `shuffle_rows` 0 keeps the source's order. Otherwise the units are permuted (`in_order`: they are not), and then the
    rows of each window, which is as many units as hold at least `shuffle_rows`.
    """

    batch_size: int
    shuffle_rows: int = 0
    in_order: bool = False
    seed: int = 0
    epochs: int = 1  # 0: no end
    drop_last: bool = False
    workers: int = 1  # threads that read ahead
    on_bad_row: Literal["raise", "skip"] = "raise"
    sample_weight: str = ""  # the last three name columns
    event_time: str = ""  # seconds
    group: str = ""  # the key of grouped metrics, an integer

    def __post_init__(self) -> None:
        self._require_int("batch_size", 1, 1 << 30)
        self._require_int("shuffle_rows", 0, 1 << 40)
        self._require_int("seed", -(1 << 63), (1 << 63) - 1)
        self._require_int("epochs", 0, 1 << 31)
        self._require_int("workers", 1, 1024)
        self._require(self.on_bad_row in {"raise", "skip"}, "on_bad_row", "'raise' or 'skip'")
        self._require(
            not (self.in_order and not self.shuffle_rows), "in_order", "False where shuffle_rows is 0: order is kept"
        )


class Preparation:
    """What every unit goes through, on any thread."""

    def __init__(self, source: Source, features: Features, labels: Sequence[str], config: ReaderConfig) -> None:
        self._source, self._features, self._config = source, features, config
        self._labels = tuple(labels)
        beside = (config.sample_weight, config.event_time, config.group)
        wanted = [*features.columns, *labels, *(name for name in beside if name)]
        self._wanted = tuple(dict.fromkeys(wanted))

    def run(self, unit: Unit) -> Samples:
        """Read, check, compute."""
        skip = self._config.on_bad_row == "skip"
        columns = self._source.read(unit, self._wanted, skip_bad_rows=skip)
        try:
            return self._made(columns, skip)
        except (BadRows, ReadProblem):
            if unit.first_row is not None:
                raise
            # Once more, for a message with the row's number in the file.
            return self._made(replace(columns, origin=(unit.file, self._source.first_row_of(unit))), skip)

    def _made(self, columns: Columns, skip: bool) -> Samples:
        bad = self._bad_rows(columns, raise_first=not skip)
        if bad is not None:
            columns = columns.where(~bad)
        while True:
            try:
                return self._samples(columns, *self._features.compute(columns))
            except BadRows as problem:
                if not skip or not problem.rows:
                    raise
                good = np.ones(columns.num_rows, np.bool_)
                good[list(problem.rows)] = False
                columns = columns.where(good)

    def _samples(self, columns: Columns, ids: JaggedIds, dense: F32) -> Samples:
        labels = np.empty((columns.num_rows, len(self._labels)), np.float32)
        for at, name in enumerate(self._labels):
            labels[:, at] = columns[name].values  # type: ignore[assignment]
        config = self._config
        weights = ids.weights.numpy() if ids.weights is not None else None
        return Samples(
            num_rows=columns.num_rows,
            skipped=columns.skipped,
            features=ids.features,
            weighted=weights is not None,
            ids=JaggedRows(len(ids.features), ids.values.numpy(), ids.offsets.numpy(), weights),
            dense=np.ascontiguousarray(dense),
            labels=labels,
            sample_weight=_cast(columns, config.sample_weight, np.float32),
            event_time=_cast(columns, config.event_time, np.float64),
            group=_cast(columns, config.group, np.int64),
        )

    def _bad_rows(self, columns: Columns, *, raise_first: bool) -> Mask | None:
        """Rows whose label, weight, time or group cannot be used; None where all can."""
        config, found = self._config, None
        checks = [(name, "a number from 0 to 1", _not_label) for name in self._labels]
        checks += [(config.sample_weight, "a finite number of at least 0", _not_weight)] if config.sample_weight else []
        checks += [(config.event_time, "a finite number of seconds", _not_finite)] if config.event_time else []
        checks += [(config.group, "an integer", _never)] if config.group else []
        for name, expected, wrong in checks:
            column = columns[name]
            values = _numbers(columns.origin[0], name, column, integer=name == config.group)
            bad = wrong(values)
            if column.valid is not None:
                bad = bad | ~column.valid
            if not bad.any():
                continue
            if raise_first:
                row = int(np.argmax(bad))
                there = column.valid is None or bool(column.valid[row])
                value = repr(values[row].item()) if there else "no value"
                raise ReadProblem(
                    columns.origin[0], columns.origin[1] + row, name, f"found {value}, expected {expected}"
                )
            found = bad if found is None else found | bad
        return found


def _numbers(file: str, name: str, column: Column, *, integer: bool) -> npt.NDArray[Any]:
    values, kinds = column.values, "biu" if integer else "biuf"
    if isinstance(values, Strings) or column.offsets is not None or values.dtype.kind not in kinds:
        kind = "strings" if isinstance(values, Strings) else str(values.dtype)
        found = f"lists of {kind}" if column.offsets is not None else kind
        expected = "one integer" if integer else "one number"
        raise ReadProblem(file, None, name, f"found {found}, expected {expected} in each row")
    return values


def _not_label(values: npt.NDArray[Any]) -> Mask:
    bad: Mask = ~((values >= 0) & (values <= 1))
    return bad


def _not_weight(values: npt.NDArray[Any]) -> Mask:
    bad: Mask = ~((values >= 0) & np.isfinite(values))
    return bad


def _not_finite(values: npt.NDArray[Any]) -> Mask:
    bad: Mask = ~np.isfinite(values)
    return bad


def _never(values: npt.NDArray[Any]) -> Mask:
    return np.zeros(len(values), np.bool_)


def _cast(columns: Columns, name: str, dtype: Any) -> Any:
    if not name:
        return None
    values: npt.NDArray[Any] | I64 = columns[name].values  # type: ignore[assignment]
    return values.astype(dtype)
