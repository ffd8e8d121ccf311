"""Memory of batches' arrays, used again once nothing refers to it: new pages cost as much as copying rows there."""

import sys
from threading import Lock

import numpy as np

from stepwell.store.tables import U8

_LINE = 64
_ROUND = 1 << 16  # sizes differ a little from batch to batch
_MOST_FREE = 4
_UNUSED = 2  # references to a piece of memory that only the list below and the call that counts know


class Buffers:
    """Arrays of any size. An array's memory comes back by itself when it and all that views it are gone."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._pieces: list[U8] = []

    def take(self, num_bytes: int) -> U8:
        """uint8 [num_bytes] with arbitrary values, aligned to a cache line."""
        wanted = num_bytes + _LINE
        with self._lock:
            # A view refers to the array that owns its memory, however many views lie between.
            free = [i for i in range(len(self._pieces)) if sys.getrefcount(self._pieces[i]) == _UNUSED]
            fits = [i for i in free if wanted <= self._pieces[i].nbytes <= 2 * wanted + _ROUND]
            if fits:
                return _aligned(self._pieces[min(fits, key=lambda i: self._pieces[i].nbytes)], num_bytes)
            for i in reversed(free[: max(0, len(free) - _MOST_FREE)]):
                del self._pieces[i]
            self._pieces.append(np.empty(-(-(wanted + wanted // 8) // _ROUND) * _ROUND, np.uint8))
            return _aligned(self._pieces[-1], num_bytes)


def _aligned(piece: U8, num_bytes: int) -> U8:
    first = -piece.ctypes.data % _LINE
    return piece[first : first + num_bytes]
