"""What synthetic samples are drawn with: streams of numbers by name, power-law slots, ids that come and go."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepwell.data.columns import I64, Mask
from stepwell.data.order import fold_key

F32 = npt.NDArray[np.float32]
U32 = npt.NDArray[np.uint32]
_FADE = np.float32(0.02)  # of a generation: over it, the old id of a slot gives way to the new one
_GENERATIONS = 8  # tables of effects repeat after so many


class Stream:
    """Numbers of one column of one block, drawn call by call: a call's first n are the same whatever n is."""

    def __init__(self, *key: int) -> None:
        self._key, self._calls = fold_key(key), 0

    def _rng(self) -> np.random.Generator:
        self._calls += 1
        return np.random.Generator(np.random.SFC64(self._key + self._calls))

    def uniform(self, n: int) -> F32:
        """In [0, 1)."""
        return self._rng().random(n, dtype=np.float32)

    def normal(self, n: int) -> F32:
        """Mean 0, variance 1."""
        return self._rng().standard_normal(n, dtype=np.float32)


def mix32(x: U32, key: int) -> U32:
    """A bijection on 32 bits that looks like chance."""
    h = (x + np.uint32(key & 0xFFFFFFFF)) * np.uint32(0x9E3779B1)
    h ^= h >> np.uint32(15)
    h *= np.uint32(0x85EBCA77)
    h ^= h >> np.uint32(13)
    return h


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """Slots 0 .. size - 1 with probability about (slot + 1) ** -alpha: a Pareto law cut to [1, size + 1)."""

    size: int
    alpha: float

    def slots(self, uniform: F32) -> U32:
        """One for each number in [0, 1)."""
        top = self.size + 1.0
        if self.alpha == 1:
            x = np.exp(uniform * np.float32(math.log(top)))
        else:
            power = 1 - self.alpha
            x = np.exp(np.log(uniform * np.float32(top**power - 1) + np.float32(1)) * np.float32(1 / power))
        return np.asarray(np.minimum(x.astype(np.uint32), np.uint32(self.size)) - np.uint32(1))

    def probabilities(self, num: int) -> F32:
        """Of the first `num` slots."""
        edges = np.arange(1, min(num, self.size) + 2, dtype=np.float64)
        if self.alpha == 1:
            below = np.log(edges) / math.log(self.size + 1)
        else:
            power = 1 - self.alpha
            below = (edges**power - 1) / ((self.size + 1.0) ** power - 1)
        return np.diff(below).astype(np.float32)


@dataclass(frozen=True, slots=True)
class IdSpace:
    """Ids of one column: a slot has one id after another, each living 1 / churn days, a share `churn` new a day."""

    law: PowerLaw
    key: int
    churn: float

    def generations(self, slots: U32, days: F32, uniform: F32) -> U32:
        """Which id of its slot a row has."""
        phase = (mix32(slots, self.key ^ 0x5BD1E995) >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)
        return np.asarray(days * np.float32(self.churn) + phase + uniform * _FADE).astype(np.uint32)

    def ids(self, slots: U32, generations: U32 | None) -> I64:
        """Below 2**32."""
        x = slots if generations is None else slots + generations * np.uint32(self.law.size)
        return mix32(x, self.key).astype(np.int64)


class EffectTable:
    """What a slot's id adds to the teacher's logit: `width` numbers, mean 0 and variance 1 over rows.

    Effects fall with the slot's rank beyond `half` and are 0 from `num_slots` on, so that rare ids, which nobody can
    learn, carry nothing.
    """

    def __init__(self, law: PowerLaw, key: int, *, num_slots: int, half: float, width: int = 1) -> None:
        num = min(law.size, num_slots)
        self.num_slots = np.uint32(num)
        rng = Stream(key)
        p = law.probabilities(num)[:, None]
        fall = (1 / (1 + (np.arange(num, dtype=np.float32) / np.float32(half)) ** 2))[:, None]
        tables = []
        for _ in range(_GENERATIONS):
            effect = rng.normal(num * width).reshape(num, width) * fall
            effect -= (p * effect).sum(0) / p.sum()
            effect /= np.sqrt((p * effect**2).sum(0))
            tables.append(effect)
        self.values = np.concatenate([*tables, np.zeros((1, width), np.float32)]).astype(np.float32)

    def at(self, slots: U32, generations: U32 | None, missing: Mask | None = None) -> U32:
        """Where in `values` the rows' effects are."""
        at = slots if generations is None else slots + (generations & np.uint32(_GENERATIONS - 1)) * self.num_slots
        without = slots >= self.num_slots
        if missing is not None:
            without |= missing
        at = at.copy() if at is slots else at
        at[without] = len(self.values) - 1
        return at
