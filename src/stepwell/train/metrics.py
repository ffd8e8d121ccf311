"""BinaryMetrics: how well logits predict labels, streamed: no prediction is kept.

With p = sigmoid(logit), y the label in 0..1, w the sample's weight and m the weighted mean label:

    log_loss            mean of -(y log p + (1 - y) log(1 - p))
    normalised_entropy  log_loss / -(m log m + (1 - m) log(1 - m)): 1 is as good as always saying m
    calibration         mean p / mean y
    auc                 of a positive and a negative, drawn by weight: the chance that the positive's logit is
                        larger, plus half that of a tie; a label between 0 and 1 is both, in part
    grouped_auc         mean of the groups' AUCs, each weighted by the weight of its samples; a group without
                        positives or without negatives has none and is left out

A figure that is not defined (no samples, one class only) is NaN. Logits are ordered as float32.
"""

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepwell.errors import ConfigError
from stepwell.train.rank_sketch import F64, Entries, RankSketch

_SCORES: Final = 1 << 18  # the AUC is exact up to here; beyond, its error is of the order of 1e-5 at worst
_GROUP_SCORES: Final = 1 << 15  # the same for a group's; 1e-4
_CURVE_POINTS: Final = 10
_SUMS: Final = ("samples", "weight", "labels", "predictions", "losses")


class BinaryMetrics:
    """See the module.

    Memory: 7 MB, 7 MB of samples not sorted in yet and 40 MB for a moment while they are, whatever is streamed. With
    `grouped`, as much for each 2**18 different pairs of a group and a logit (in a group of more than 32768 logits near
    ones are merged); ConfigError where there are more pairs than `max_group_entries`.
    """

    def __init__(self, grouped: bool = False, *, max_group_entries: int = 1 << 22) -> None:
        self._grouped, self._max_group_entries = grouped, max_group_entries
        self.reset()

    def reset(self) -> None:
        """Forget all samples."""
        self._sums = dict.fromkeys(_SUMS, 0.0)
        self._ranks = RankSketch(_SCORES, _SCORES)
        self._groups = RankSketch(_GROUP_SCORES, self._max_group_entries) if self._grouped else None

    def update(
        self, logits: Tensor, labels: Tensor, weights: Tensor | None = None, groups: Tensor | None = None
    ) -> None:
        """Add samples: all [n]; logits finite, labels in 0..1, weights at least 0, groups integers."""
        if (groups is not None) != (self._groups is not None):
            found = "none" if groups is None else "some"
            raise ConfigError(f"groups: found {found}, expected them if and only if the metrics are grouped")
        x32 = _array("logits", logits, logits.shape).astype(np.float32)
        y = _array("labels", labels, logits.shape)
        w = np.ones(len(y)) if weights is None else _array("weights", weights, logits.shape)
        if not ((y >= 0.0) & (y <= 1.0)).all():
            raise ConfigError(f"labels: found {_first(y, (y < 0.0) | (y > 1.0))}, expected values in 0..1")
        if (w < 0.0).any():
            raise ConfigError(f"weights: found {_first(w, w < 0.0)}, expected values of at least 0")
        keys = None if groups is None else _keys(groups, logits.shape)
        x = x32.astype(np.float64)
        positive = w * y
        sums = (float(len(y)), w.sum(), positive.sum(), w @ _sigmoid(x), w @ np.logaddexp(0.0, x) - positive @ x)
        for name, value in zip(_SUMS, sums, strict=True):
            self._sums[name] += float(value)
        self._ranks.add(x32, positive, w - positive)
        if self._groups is not None:
            self._groups.add(x32, positive, w - positive, keys)

    def compute(self) -> dict[str, Any]:
        """The figures by name; `calibration_curve` is [[mean prediction, mean label, weight of samples], ...]."""
        _, weight, labels, predictions, losses = self._sums.values()
        loss = losses / weight if weight else math.nan
        mean = labels / weight if weight else math.nan
        entropy = -(mean * math.log(mean) + (1 - mean) * math.log1p(-mean)) if 0.0 < mean < 1.0 else math.nan
        area, _ = self._ranks.areas()
        figures: dict[str, Any] = {
            "samples": int(self._sums["samples"]),
            "auc": float(area[0]) if len(area) else math.nan,
            "log_loss": loss,
            "normalised_entropy": loss / entropy,
            "calibration": predictions / labels if labels else math.nan,
            "calibration_curve": _curve(self._ranks.entries()),
        }
        if self._groups is not None:
            areas, masses = self._groups.areas()
            figures["grouped_auc"] = float(np.average(areas, weights=masses)) if len(areas) else math.nan
        return figures

    def merge(self, other: "BinaryMetrics") -> None:
        """Add what another, of another rank say, has seen."""
        if (other._groups is None) != (self._groups is None):
            raise ConfigError("merge: found metrics with groups and metrics without, expected both alike")
        for name, value in other._sums.items():
            self._sums[name] += value
        self._ranks.merge(other._ranks)
        if self._groups is not None and other._groups is not None:
            self._groups.merge(other._groups)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """All that was seen, as arrays by name: what `restore` takes, and what a rank sends to another."""
        arrays: dict[str, npt.NDArray[Any]] = {"sums": np.array(list(self._sums.values()))}
        for prefix, sketch in (("ranks", self._ranks), ("groups", self._groups)):
            if sketch is not None:
                arrays |= {f"{prefix}.{name}": array for name, array in sketch.entries()._asdict().items()}
        return arrays

    def restore(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Be as the metrics were whose `state` this is; ConfigError, and no change, if it is no such state."""
        expected = self.state().keys()
        if state.keys() != expected:
            raise ConfigError(f"restore: found {sorted(state)}, expected {sorted(expected)}")
        self._sums = dict(zip(_SUMS, state["sums"].tolist(), strict=True))
        for prefix, sketch in (("ranks", self._ranks), ("groups", self._groups)):
            if sketch is not None:
                sketch.restore(Entries(*(state[f"{prefix}.{name}"] for name in Entries._fields)))


def _sigmoid(x: F64) -> F64:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)


def _curve(entries: Entries) -> list[list[float]]:
    """Samples in order of prediction, in parts of about equal weight; samples with one prediction stay together."""
    mass = entries.positive + entries.negative
    total = mass.sum()
    if total <= 0:
        return []
    part = np.minimum((np.cumsum(mass) - 0.5 * mass) / total * _CURVE_POINTS, _CURVE_POINTS - 1).astype(np.int64)
    masses, predictions, labels = (
        np.bincount(part, weights, _CURVE_POINTS)
        for weights in (mass, mass * _sigmoid(entries.score.astype(np.float64)), entries.positive)
    )
    return [
        [float(p / m), float(y / m), float(m)] for p, y, m in zip(predictions, labels, masses, strict=True) if m > 0
    ]


def _array(name: str, tensor: Tensor, shape: torch.Size) -> F64:
    if tensor.dim() != 1 or tensor.shape != shape:
        raise ConfigError(
            f"{name}: found shape {tuple(tensor.shape)}, expected one dimension, as many as there are logits"
        )
    array: F64 = tensor.detach().to("cpu", torch.float64).numpy()
    finite = np.isfinite(array)
    if not finite.all():
        raise ConfigError(f"{name}: found {_first(array, ~finite)}, expected finite values")
    return array


def _keys(groups: Tensor, shape: torch.Size) -> npt.NDArray[np.int64]:
    if groups.shape != shape or groups.is_floating_point():
        raise ConfigError(f"groups: found {groups.dtype} {tuple(groups.shape)}, expected integers {tuple(shape)}")
    keys: npt.NDArray[np.int64] = groups.detach().to("cpu", torch.int64).numpy().copy()
    return keys


def _first(array: F64, wrong: npt.NDArray[np.bool_]) -> str:
    at = int(np.argmax(wrong))
    return f"{array[at]} at {at}"
