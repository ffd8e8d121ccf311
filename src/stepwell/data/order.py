"""In which order samples come: permutations that are functions of their keys alone, whatever numpy's version."""

from collections.abc import Sequence

import numpy as np

from stepwell.data.columns import I64

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def _mix(x: int) -> int:
    """The finalizer of splitmix64, a bijection."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def fold_key(parts: Sequence[int]) -> int:
    """One 64-bit key out of several numbers."""
    key = 0
    for part in parts:
        key = _mix((key + _GAMMA + (part & _MASK)) & _MASK)
    return key


def permutation(n: int, *key: int) -> I64:
    """A permutation of 0 .. n - 1: the order of n distinct hashes."""
    x = np.arange(n, dtype=np.uint64) * np.uint64(_GAMMA) + np.uint64(fold_key(key))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.argsort(x ^ (x >> np.uint64(31)), kind="quicksort").astype(np.int64, copy=False)
