"""Axes: which numbers stand beside a picture, and how they are written."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True, slots=True)
class Axis:
    """A range of values, drawn from `start_px` to `end_px`."""

    low: float
    high: float
    start_px: float
    end_px: float
    ticks: tuple[float, ...]

    def px(self, value: float) -> float:
        """Where a value lies."""
        share = (value - self.low) / (self.high - self.low)
        return self.start_px + share * (self.end_px - self.start_px)

    def label(self, tick: float) -> str:
        """The tick in as few digits as tell it from its neighbours."""
        step = self.ticks[1] - self.ticks[0] if len(self.ticks) > 1 else 1.0
        return in_few_digits(tick, step, largest=max(map(abs, self.ticks)))


def make_axis(
    values: Sequence[float], start_px: float, end_px: float, *, num_ticks: int = 5, from_zero: bool = False
) -> Axis:
    """An axis around the values, ending where the data ends and a little room about it."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if from_zero:
        low = min(0.0, low)
    if high <= low:
        high = low + (abs(low) or 1.0) * 0.1
    step = _nice_step((high - low) / num_ticks)
    low, high = (low if from_zero and low == 0 else math.floor(low / step) * step), math.ceil(high / step) * step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return Axis(low, high, start_px, end_px, tuple(i * step for i in range(first, last + 1)))


def fitted_axis(low: float, high: float, start_px: float, end_px: float, *, num_ticks: int = 6) -> Axis:
    """An axis that begins and ends exactly there, with round numbers inside."""
    if high <= low:
        high = low + 1.0
    step = _nice_step((high - low) / num_ticks)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return Axis(low, high, start_px, end_px, tuple(i * step for i in range(first, last + 1)))


def in_few_digits(value: float, step: float, *, largest: float) -> str:
    """12.5k, 0.775: enough digits for neighbours that are `step` apart, in the unit of the largest."""
    scale, unit = 1.0, ""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if largest >= size * 10 or (largest >= size > 1e3):
            scale, unit = size, letter
            break
    digits = max(0, -math.floor(math.log10(step / scale) + 1e-9))
    if round(step / scale, digits) != step / scale and abs(round(step / scale, digits) - step / scale) > 1e-9 * step:
        digits += 1
    return f"{value / scale:,.{digits}f}{unit if value else ''}"


def in_count(count: float) -> str:
    """12.3 M, in three digits; below ten thousand, the number itself."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= max(size, 1e4):
            return f"{count / size:.3g} {letter}" if count < 999.5 * size else f"{count / size:,.0f} {letter}"
    return f"{count:,.0f}"


def _nice_step(rough: float) -> float:
    size: float = 10.0 ** math.floor(math.log10(rough))
    return next(step * size for step in _STEPS if step * size >= rough * (1 - 1e-9))


def time_unit(seconds: float) -> tuple[float, str]:
    """How many seconds an axis' unit has, and its name."""
    if seconds >= 2 * 3600:
        return 3600.0, "h"
    return (60.0, "min") if seconds >= 180 else (1.0, "s")


def byte_unit(count: float) -> tuple[float, str]:
    """How many bytes an axis' unit has, and its name."""
    for size, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= size:
            return float(size), name
    return 1.0, "B"
