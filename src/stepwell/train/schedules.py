"""Schedules: the factor on every learning rate, dense and rows alike, as a function of the step alone."""

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass

from stepwell.config import Config

_MAX_STEP = 1 << 40


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule(Config, ABC):
    """Base of the schedules. Over the first `warmup_steps` the factor rises linearly to what it is without them."""

    warmup_steps: int = 0

    def __post_init__(self) -> None:
        self._require_int("warmup_steps", 0, _MAX_STEP)
        self._check()

    def _check(self) -> None:
        """Raise ConfigError unless the class's own fields are legal."""

    def factor(self, step: int) -> float:
        """What rates are multiplied with in this step; steps count from 1."""
        warm = min(1.0, step / self.warmup_steps) if self.warmup_steps else 1.0
        return warm * self._factor(max(0, step - self.warmup_steps))

    @abstractmethod
    def _factor(self, step: int) -> float:
        """The factor `step` steps after the warm-up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConstantRate(Schedule):
    """1, after the warm-up."""

    def _factor(self, step: int) -> float:
        return 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearDecay(Schedule):
    """From 1 to `end_factor` in `steps` steps after the warm-up, and `end_factor` from then on."""

    steps: int
    end_factor: float = 0.0

    def _check(self) -> None:
        self._require_int("steps", 1, _MAX_STEP)
        self._require_float("end_factor", 0.0, 1.0)

    def _factor(self, step: int) -> float:
        return 1.0 + (self.end_factor - 1.0) * min(1.0, step / self.steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class CosineDecay(Schedule):
    """Half a cosine from 1 to `end_factor` in `steps` steps after the warm-up, and `end_factor` from then on."""

    steps: int
    end_factor: float = 0.0

    def _check(self) -> None:
        self._require_int("steps", 1, _MAX_STEP)
        self._require_float("end_factor", 0.0, 1.0)

    def _factor(self, step: int) -> float:
        wave = 0.5 * (1.0 + math.cos(math.pi * min(1.0, step / self.steps)))
        return self.end_factor + (1.0 - self.end_factor) * wave


@dataclass(frozen=True, kw_only=True, slots=True)
class StepDecay(Schedule):
    """Times `decay` at each of these steps after the warm-up."""

    at_steps: tuple[int, ...]
    decay: float = 0.1

    def _check(self) -> None:
        self._require_tuple_of("at_steps", int)
        rises = all(a < b for a, b in zip(self.at_steps, self.at_steps[1:], strict=False))
        self._require(len(self.at_steps) > 0 and self.at_steps[0] >= 1 and rises, "at_steps", "steps >= 1 that rise")
        self._require_float("decay", 0.0, 1.0, above_low=True)

    def _factor(self, step: int) -> float:
        return float(self.decay ** bisect_right(self.at_steps, step))
