"""The planted teacher of synthetic samples: AUCs in expectation over its probabilities, and its calibration.

Given the teacher's probabilities p, labels are independent draws, so the expected AUC of any scores is known without
drawing: the mean of [score_i > score_j] over pairs, weighted by p_i * (1 - p_j). Scores p reach the most.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepwell.errors import ConfigError

F64 = npt.NDArray[np.float64]
_BINS = 1 << 20


def expected_auc(scores: npt.ArrayLike, probabilities: npt.ArrayLike) -> float:
    """The AUC to expect of `scores` where labels are drawn with `probabilities`. Ties count half."""
    score, p = np.asarray(scores, np.float64), np.asarray(probabilities, np.float64)
    order = np.argsort(score, kind="stable")
    p, score = p[order], score[order]
    first = np.flatnonzero(np.r_[True, score[1:] != score[:-1]])
    ones, zeros = np.add.reduceat(p, first), np.add.reduceat(1 - p, first)
    return _auc(ones, zeros)


def teacher_auc(probabilities: npt.ArrayLike) -> float:
    """The best AUC that any model can be expected to reach on these rows."""
    return expected_auc(probabilities, probabilities)


class TeacherAuc:
    """`teacher_auc` over any number of rows without keeping them: to 1e-6, in bins of equal width."""

    def __init__(self) -> None:
        self._ones, self._zeros = np.zeros(_BINS), np.zeros(_BINS)
        self.num_rows = 0

    def update(self, probabilities: npt.NDArray[np.float32]) -> None:
        """Add rows."""
        p = probabilities.astype(np.float64)
        bins, at = np.unique(np.minimum((p * _BINS).astype(np.int64), _BINS - 1), return_inverse=True)
        self._ones[bins] += np.bincount(at, weights=p)
        self._zeros[bins] += np.bincount(at, weights=1 - p)
        self.num_rows += len(p)

    def compute(self) -> float:
        """The AUC of all rows so far."""
        return _auc(self._ones, self._zeros)

    @property
    def mean(self) -> float:
        """The mean probability."""
        return float(self._ones.sum() / self.num_rows)


def _auc(ones: F64, zeros: F64) -> float:
    below = np.cumsum(zeros) - zeros
    pairs = ones.sum() * zeros.sum()
    if not pairs > 0:
        raise ConfigError("probabilities: found only 0 or only 1, expected some of both: an AUC needs two classes")
    return float((ones * (below + zeros / 2)).sum() / pairs)


def sigmoid(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """1 / (1 + exp(-x))."""
    return np.asarray(1 / (1 + np.exp(-np.maximum(x, np.float32(-60)))), np.float32)


@dataclass(frozen=True, slots=True)
class Link:
    """The probability is sigmoid(bias + scale * raw)."""

    bias: np.float32
    scale: np.float32

    def probability(self, raw: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Of each row."""
        return sigmoid(raw * self.scale + self.bias)


def calibrate(raw: npt.NDArray[np.float32], auc: float, rate: float) -> Link:
    """The link with which rows like these have the given best AUC and mean probability."""
    x = np.sort(raw.astype(np.float64))
    low, high = 0.0, 16.0
    bias = 0.0
    for _ in range(24):
        scale = (low + high) / 2
        bias = _bias(x * scale, rate)
        p = 1 / (1 + np.exp(-(x * scale + bias)))
        low, high = (scale, high) if _auc(p, 1 - p) < auc else (low, scale)
    return Link(np.float32(bias), np.float32((low + high) / 2))


def _bias(x: F64, rate: float) -> float:
    """With which sigmoid(x + bias) has the mean `rate`: Newton's method, in steps of at most 4."""
    bias = 0.0
    for _ in range(60):
        p = 1 / (1 + np.exp(-np.clip(x + bias, -500, 500)))
        off = float(p.mean()) - rate
        if abs(off) < 1e-7:
            break
        bias -= min(max(off / max(float((p * (1 - p)).mean()), 1e-9), -4.0), 4.0)
    return bias
