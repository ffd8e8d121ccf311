"""Optimizers: one spec each, with its state's fields and its rule over unique rows.

The rule is float32 and elementwise, in the order the code writes it: each operation rounds once, and a compiler may
not fuse a multiplication with an addition. Hyper-parameters, and scalars that depend on the step, are computed in
Python floats and rounded to float32 once. A sum over a row is `row_sum`, a fixed tree. Implementations in the core
and in kernels follow the same order, which is what makes them equal to this one bit for bit.

Shared options come first, on the gradient: clip (max_row_norm_grad), then add weight_decay * w (where decay is
coupled). A row that a step does not touch does not change: no catch-up decay and no catch-up momentum. Adam's bias
correction uses the global step, which starts at 1.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell.config import Config
from stepwell.errors import ConfigError
from stepwell.rows.generator import F32
from stepwell.rows.layout import StateField

_F = np.float32
_MIN_EPS = 2.0**-126  # smaller ones could be flushed to zero


def row_sum(x: F32) -> F32:
    """[n, dim] -> [n]: pad with zeros to a power of two, then add the upper half to the lower until one is left."""
    n, width = x.shape
    padded = 1 << (width - 1).bit_length()
    if padded != width:
        x = np.concatenate([x, np.zeros((n, padded - width), _F)], axis=1)
    while padded > 1:
        padded //= 2
        x = x[:, :padded] + x[:, padded:]
    return x[:, 0]


def row_mean_of_squares(g: F32) -> F32:
    """[n, dim] -> [n]: row_sum(g * g) / dim."""
    return row_sum(g * g) / _F(g.shape[1])


def row_norm(x: F32) -> F32:
    """[n, dim] -> [n]: sqrt(row_sum(x * x))."""
    return np.sqrt(row_sum(x * x))


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimizer(Config, ABC):
    """Base of the optimizers."""

    kind: ClassVar[int]  # the core's and the kernels' code; never reused
    decay_is_coupled: ClassVar[bool] = True  # weight_decay is added to the gradient

    lr: float = 0.01  # before the schedule: a step's rate, which `apply` takes, is lr times the schedule's factor
    weight_decay: float = 0.0
    max_row_norm_grad: float = 0.0  # a row's gradient is scaled down to this L2 norm; 0: never

    def __post_init__(self) -> None:
        self._require_float("lr", 0.0, math.inf)
        self._require_float("weight_decay", 0.0, math.inf)
        self._require_float("max_row_norm_grad", 0.0, math.inf)
        self._check()

    @abstractmethod
    def _check(self) -> None:
        """Raise ConfigError unless the class's own fields are legal."""

    @abstractmethod
    def state_fields(self) -> tuple[StateField, ...]:
        """The state that each row carries."""

    @abstractmethod
    def _rule(self, w: F32, state: dict[str, F32], g: F32, step: int, lr: float) -> None:
        """Update `w` and `state` in place; `g` is clipped and decayed, and must not be written to."""

    def apply(self, weight: F32, state: dict[str, F32], grad: F32, step: int, lr: float) -> None:
        """Update unique rows in place.

        weight and grad are float32 [n, dim]; state has a float32 array [n, dim] or [n] for each of `state_fields`;
        step >= 1 is the global step and `lr` its rate. Wrong shapes or types are a ConfigError, before any change.
        """
        self._check_arrays(weight, state, grad, step)
        g = grad
        with np.errstate(all="ignore"):  # gradients that are not finite are the caller's to notice
            if self.max_row_norm_grad:
                limit, norm = _F(self.max_row_norm_grad), row_norm(g)
                g = g * np.divide(limit, norm, out=np.ones_like(norm), where=norm > limit)[:, None]
            if self.weight_decay and self.decay_is_coupled:
                g = g + _F(self.weight_decay) * weight
            self._rule(weight, state, g, step, lr)

    def _check_arrays(self, weight: F32, state: dict[str, F32], grad: F32, step: int) -> None:
        name = type(self).__name__
        if weight.ndim != 2:
            raise ConfigError(f"{name}.apply: weight: found {weight.ndim} dimensions, expected 2")
        expected = {"weight": weight.shape, "grad": weight.shape}
        for field in self.state_fields():
            expected[field.name] = weight.shape if field.per == "element" else weight.shape[:1]
        arrays = {**state, "weight": weight, "grad": grad}
        if arrays.keys() != expected.keys():
            raise ConfigError(f"{name}.apply: state: found {list(state)}, expected {list(expected)[2:]}")
        for key, array in arrays.items():
            if array.dtype != np.float32 or array.shape != expected[key]:
                raise ConfigError(
                    f"{name}.apply: {key}: found {array.dtype} {array.shape}, expected float32 {expected[key]}"
                )
        if not 1 <= step < 1 << 32:
            raise ConfigError(f"{name}.apply: step: found {step}, expected an int from 1 to 2**32 - 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class SGD(Optimizer):
    """m = momentum * m + g; w -= lr * m, or lr * (g + momentum * m) with nesterov. Without momentum there is no m."""

    kind: ClassVar[int] = 0
    momentum: float = 0.0
    nesterov: bool = False

    def _check(self) -> None:
        self._require_float("momentum", 0.0, 1.0)
        self._require(type(self.nesterov) is bool, "nesterov", "a bool")
        self._require(not (self.nesterov and not self.momentum), "nesterov", "False, because momentum is 0")

    def state_fields(self) -> tuple[StateField, ...]:
        """See Optimizer.state_fields."""
        return (StateField(name="momentum", per="element"),) if self.momentum else ()

    def _rule(self, w: F32, state: dict[str, F32], g: F32, step: int, lr: float) -> None:
        if self.momentum:
            m, mu = state["momentum"], _F(self.momentum)
            m[...] = mu * m + g
            g = g + mu * m if self.nesterov else m
        w -= _F(lr) * g


@dataclass(frozen=True, kw_only=True, slots=True)
class AdaGrad(Optimizer):
    """v += g * g; w -= lr * g / (sqrt(v) + eps)."""

    kind: ClassVar[int] = 1
    eps: float = 1e-10
    initial_accumulator: float = 0.0

    def _check(self) -> None:
        self._require_float("eps", _MIN_EPS, math.inf)
        self._require_float("initial_accumulator", 0.0, math.inf)

    def state_fields(self) -> tuple[StateField, ...]:
        """See Optimizer.state_fields."""
        return (StateField(name="v", per="element", initial=self.initial_accumulator),)

    def _rule(self, w: F32, state: dict[str, F32], g: F32, step: int, lr: float) -> None:
        v = state["v"]
        v += g * g
        w -= _F(lr) * g / (np.sqrt(v) + _F(self.eps))


@dataclass(frozen=True, kw_only=True, slots=True)
class RowWiseAdaGrad(Optimizer):
    """AdaGrad with one accumulator per row: v += mean(g * g); w -= lr * g / (sqrt(v) + eps)."""

    kind: ClassVar[int] = 2
    eps: float = 1e-8
    initial_accumulator: float = 0.0

    def _check(self) -> None:
        self._require_float("eps", _MIN_EPS, math.inf)
        self._require_float("initial_accumulator", 0.0, math.inf)

    def state_fields(self) -> tuple[StateField, ...]:
        """See Optimizer.state_fields."""
        return (StateField(name="v", per="row", initial=self.initial_accumulator),)

    def _rule(self, w: F32, state: dict[str, F32], g: F32, step: int, lr: float) -> None:
        v = state["v"]
        v += row_mean_of_squares(g)
        w -= _F(lr) * g / (np.sqrt(v) + _F(self.eps))[:, None]


@dataclass(frozen=True, kw_only=True, slots=True)
class MomentumScaledRowWiseAdaGrad(Optimizer):
    """Row-wise AdaGrad for averaged replicas: v += mean(g * g); w -= lr * g / (sqrt(v / scale) + eps)."""

    kind: ClassVar[int] = 3
    scale: float = 1.0
    eps: float = 1e-8
    initial_accumulator: float = 0.0

    def _check(self) -> None:
        self._require_float("scale", 0.0, math.inf, above_low=True)
        self._require_float("eps", _MIN_EPS, math.inf)
        self._require_float("initial_accumulator", 0.0, math.inf)

    def state_fields(self) -> tuple[StateField, ...]:
        """See Optimizer.state_fields."""
        return (StateField(name="v", per="row", initial=self.initial_accumulator),)

    def _rule(self, w: F32, state: dict[str, F32], g: F32, step: int, lr: float) -> None:
        v = state["v"]
        v += row_mean_of_squares(g)
        w -= _F(lr) * g / (np.sqrt(v / _F(self.scale)) + _F(self.eps))[:, None]


def bias_corrections(beta1: float, beta2: float, step: int, lr: float) -> tuple[np.float32, np.float32]:
    """(lr / (1 - beta1**step), sqrt(1 - beta2**step)): the scalars of an Adam step, computed once on the host."""
    return _F(lr / (1.0 - beta1**step)), _F(math.sqrt(1.0 - beta2**step))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Moments(Optimizer):
    """What the Adam family shares: m = beta1 * m + (1 - beta1) * g, v likewise of g * g."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def _check(self) -> None:
        below_one = 1.0 - 2.0**-24
        self._require_float("beta1", 0.0, below_one)
        self._require_float("beta2", 0.0, below_one)
        self._require_float("eps", _MIN_EPS, math.inf)

    def state_fields(self) -> tuple[StateField, ...]:
        """See Optimizer.state_fields."""
        return (StateField(name="m", per="element"), StateField(name="v", per="element"))

    def _advance(self, state: dict[str, F32], g: F32, squares: F32) -> tuple[F32, F32]:
        m, v = state["m"], state["v"]
        m[...] = _F(self.beta1) * m + _F(1.0 - self.beta1) * g
        v[...] = _F(self.beta2) * v + _F(1.0 - self.beta2) * squares
        return m, v


@dataclass(frozen=True, kw_only=True, slots=True)
class Adam(_Moments):
    """w -= lr / (1 - beta1**t) * m / (sqrt(v) / sqrt(1 - beta2**t) + eps)."""

    kind: ClassVar[int] = 4

    def _rule(self, w: F32, state: dict[str, F32], g: F32, step: int, lr: float) -> None:
        rate, root = bias_corrections(self.beta1, self.beta2, step, lr)
        m, v = self._advance(state, g, g * g)
        w -= rate * m / (np.sqrt(v) / root + _F(self.eps))


@dataclass(frozen=True, kw_only=True, slots=True)
class AdamW(_Moments):
    """w *= 1 - lr * weight_decay, then Adam on the plain gradient."""

    kind: ClassVar[int] = 5
    decay_is_coupled: ClassVar[bool] = False

    def _rule(self, w: F32, state: dict[str, F32], g: F32, step: int, lr: float) -> None:
        rate, root = bias_corrections(self.beta1, self.beta2, step, lr)
        m, v = self._advance(state, g, g * g)
        w *= _F(1.0 - lr * self.weight_decay)
        w -= rate * m / (np.sqrt(v) / root + _F(self.eps))


@dataclass(frozen=True, kw_only=True, slots=True)
class RowWiseAdam(_Moments):
    """Adam with one second moment per row, of mean(g * g)."""

    kind: ClassVar[int] = 6

    def state_fields(self) -> tuple[StateField, ...]:
        """See Optimizer.state_fields."""
        return (StateField(name="m", per="element"), StateField(name="v", per="row"))

    def _rule(self, w: F32, state: dict[str, F32], g: F32, step: int, lr: float) -> None:
        rate, root = bias_corrections(self.beta1, self.beta2, step, lr)
        m, v = self._advance(state, g, row_mean_of_squares(g))
        w -= rate * m / (np.sqrt(v) / root + _F(self.eps))[:, None]


@dataclass(frozen=True, kw_only=True, slots=True)
class FTRL(Optimizer):
    """FTRL-proximal with the rate a = alpha * lr (lr is 1 unless a schedule changes it).

    n' = n + g * g; z += g - (sqrt(n') - sqrt(n)) / a * w; n = n';
    w = 0 where |z| <= l1, else -(z - sign(z) * l1) / ((beta + sqrt(n)) / a + l2).
    """

    kind: ClassVar[int] = 7
    lr: float = 1.0
    alpha: float = 0.05
    beta: float = 1.0
    l1: float = 0.0
    l2: float = 0.0

    def _check(self) -> None:
        self._require_float("lr", 0.0, math.inf, above_low=True)
        self._require_float("alpha", 0.0, math.inf, above_low=True)
        self._require_float("beta", 0.0, math.inf, above_low=True)
        self._require_float("l1", 0.0, math.inf)
        self._require_float("l2", 0.0, math.inf)

    def state_fields(self) -> tuple[StateField, ...]:
        """See Optimizer.state_fields."""
        return (StateField(name="z", per="element"), StateField(name="n", per="element"))

    def _rule(self, w: F32, state: dict[str, F32], g: F32, step: int, lr: float) -> None:
        if not self.alpha * lr > 0:
            raise ConfigError(f"FTRL.apply: lr: found {lr}, expected more than 0: the rule divides by it")
        z, n, a, l1 = state["z"], state["n"], _F(self.alpha * lr), _F(self.l1)
        root_before = np.sqrt(n)
        n += g * g
        root = np.sqrt(n)
        z += g - (root - root_before) / a * w
        moved = -(z - np.copysign(l1, z)) / ((_F(self.beta) + root) / a + _F(self.l2))
        w[...] = np.where(np.abs(z) <= l1, _F(0.0), moved)


@dataclass(frozen=True, kw_only=True, slots=True)
class LAMB(_Moments):
    """u = m / (1 - beta1**t) / (sqrt(v) / sqrt(1 - beta2**t) + eps) + weight_decay * w; w -= lr * |w| / |u| * u.

    Norms are per row; the ratio is 1 where either norm is 0.
    """

    kind: ClassVar[int] = 8
    decay_is_coupled: ClassVar[bool] = False

    def _rule(self, w: F32, state: dict[str, F32], g: F32, step: int, lr: float) -> None:
        inverse, root = bias_corrections(self.beta1, self.beta2, step, 1.0)
        m, v = self._advance(state, g, g * g)
        u = (inverse * m / (np.sqrt(v) / root + _F(self.eps))).astype(_F, copy=False)
        if self.weight_decay:
            u += _F(self.weight_decay) * w
        w_norm, u_norm = row_norm(w), row_norm(u)
        ratio = np.divide(w_norm, u_norm, out=np.ones_like(w_norm), where=(w_norm > 0) & (u_norm > 0))
        w -= (_F(lr) * ratio)[:, None] * u
