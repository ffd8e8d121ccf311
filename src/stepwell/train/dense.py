"""Optimizers of the dense network: torch's own, fused where torch has that. Rows have theirs in their TableSpec."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch.nn import Parameter

from stepwell.config import Config


@dataclass(frozen=True, kw_only=True, slots=True)
class DenseOptimizer(Config, ABC):
    """Base of the dense optimizers. A step's rate is `lr` times the schedule's factor."""

    lr: float = 1e-3
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        self._require_float("lr", 0.0, math.inf)
        self._require_float("weight_decay", 0.0, math.inf)
        self._check()

    def _check(self) -> None:
        """Raise ConfigError unless the class's own fields are legal."""

    @abstractmethod
    def build(self, parameters: Iterable[Parameter]) -> torch.optim.Optimizer:
        """The torch optimizer over these parameters."""

    def _require_betas(self) -> None:
        for name in ("beta1", "beta2"):
            self._require_float(name, 0.0, 1.0)
            self._require(getattr(self, name) < 1, name, "less than 1")
        self._require_float("eps", 0.0, math.inf)


@dataclass(frozen=True, kw_only=True, slots=True)
class DenseSGD(DenseOptimizer):
    """torch.optim.SGD."""

    lr: float = 0.1
    momentum: float = 0.0
    nesterov: bool = False

    def _check(self) -> None:
        self._require_float("momentum", 0.0, 1.0)
        self._require(type(self.nesterov) is bool, "nesterov", "a bool")
        self._require(not (self.nesterov and not self.momentum), "nesterov", "False, because momentum is 0")

    def build(self, parameters: Iterable[Parameter]) -> torch.optim.Optimizer:
        """See DenseOptimizer.build."""
        return torch.optim.SGD(parameters, self.lr, self.momentum, 0, self.weight_decay, self.nesterov, fused=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class DenseAdaGrad(DenseOptimizer):
    """torch.optim.Adagrad."""

    lr: float = 0.01
    initial_accumulator: float = 0.0
    eps: float = 1e-10

    def _check(self) -> None:
        self._require_float("initial_accumulator", 0.0, math.inf)
        self._require_float("eps", 0.0, math.inf)

    def build(self, parameters: Iterable[Parameter]) -> torch.optim.Optimizer:
        """See DenseOptimizer.build."""
        return torch.optim.Adagrad(
            parameters,
            self.lr,
            weight_decay=self.weight_decay,
            initial_accumulator_value=self.initial_accumulator,
            eps=self.eps,
            fused=True,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class DenseAdam(DenseOptimizer):
    """torch.optim.Adam."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def _check(self) -> None:
        self._require_betas()

    def build(self, parameters: Iterable[Parameter]) -> torch.optim.Optimizer:
        """See DenseOptimizer.build."""
        betas = (self.beta1, self.beta2)
        return torch.optim.Adam(parameters, self.lr, betas, self.eps, self.weight_decay, fused=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class DenseAdamW(DenseOptimizer):
    """torch.optim.AdamW: the decay is of the weights, not of the gradient."""

    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def _check(self) -> None:
        self._require_betas()

    def build(self, parameters: Iterable[Parameter]) -> torch.optim.Optimizer:
        """See DenseOptimizer.build."""
        betas = (self.beta1, self.beta2)
        return torch.optim.AdamW(parameters, self.lr, betas, self.eps, self.weight_decay, fused=True)
