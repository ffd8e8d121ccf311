"""Memory of outputs, used again once no tensor of it is left: new pages cost as much as looking the rows up."""

import sys
from math import prod
from threading import Lock

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_ALIGNED_FLOATS = 16  # a cache line
_MOST_FREE = 4
_UNUSED = 2  # references to an array that only the list below and the call that counts know


class Buffers:
    """Tensors of any shapes. A tensor's memory comes back by itself when it, its views and its graph are gone."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._arrays: list[npt.NDArray[np.float32]] = []

    def take(self, shape: tuple[int, ...]) -> Tensor:
        """A float32 tensor with arbitrary values."""
        with self._lock:
            # torch.from_numpy keeps a reference to its array for as long as anything uses the memory.
            free = [i for i in range(len(self._arrays)) if sys.getrefcount(self._arrays[i]) == _UNUSED]
            for i in free:
                if self._arrays[i].shape == shape:
                    return torch.from_numpy(self._arrays[i])
            for i in reversed(free[: max(0, len(free) - _MOST_FREE)]):
                del self._arrays[i]
            self._arrays.append(_aligned(shape))
            return torch.from_numpy(self._arrays[-1])


def _aligned(shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    size = prod(shape)
    memory = np.empty(size + _ALIGNED_FLOATS, np.float32)
    first = -(memory.ctypes.data // 4) % _ALIGNED_FLOATS
    return memory[first : first + size].reshape(shape)
