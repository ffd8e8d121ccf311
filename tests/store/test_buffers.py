"""Buffers: memory comes back when nothing uses it, and never before."""

from threading import Thread

import numpy as np
import numpy.typing as npt
import torch

from stepwell.store.buffers import Buffers

SIZE = 100_000


def address_of(array: npt.NDArray[np.uint8]) -> int:
    return array.ctypes.data


def test_memory_comes_back_when_its_array_is_gone() -> None:
    buffers = Buffers()
    first = buffers.take(SIZE)
    address = address_of(first)
    assert address % 64 == 0
    assert (first.dtype, first.shape) == (np.uint8, (SIZE,))
    assert address_of(buffers.take(SIZE)) != address  # and that one is gone at once
    del first
    taken = {address_of(buffers.take(SIZE - n)) for n in range(5)}  # a little smaller fits too
    assert len(taken) == 1


def test_memory_stays_while_anything_uses_it() -> None:
    buffers = Buffers()
    factor = torch.ones(SIZE // 4, requires_grad=True)

    def floats(array: npt.NDArray[np.uint8]) -> torch.Tensor:
        return torch.from_numpy(array.view(np.float32))

    for make in (
        lambda array: array[3:5],
        lambda array: array.view(np.float32).reshape(-1, 4)[:, 1],
        floats,
        lambda array: floats(array)[7:9],
        lambda array: floats(array).numpy(),
        lambda array: floats(array) * factor,  # the graph keeps it for the factor's gradient
        lambda array: torch.utils.dlpack.to_dlpack(floats(array)),
    ):
        array = buffers.take(SIZE)
        array.fill(0)
        address, user = address_of(array), make(array)
        del array
        others = [buffers.take(SIZE) for _ in range(3)]
        assert address not in [address_of(other) for other in others]
        del others, user
        assert address in {address_of(one) for one in [buffers.take(SIZE) for _ in range(4)]}


def test_sizes_that_differ_have_their_own_memory_and_little_lies_unused() -> None:
    buffers = Buffers()
    kept = [buffers.take(n << 20) for n in range(1, 20)]
    for n, array in enumerate(kept):
        array.fill(n)
    assert all((array == n).all() for n, array in enumerate(kept))
    del kept, array
    buffers.take(1 << 26)
    assert len(buffers._pieces) <= 5
    assert buffers.take(0).shape == (0,)


def test_threads_never_share_memory() -> None:
    buffers, shared = Buffers(), []

    def work(mark: int) -> None:
        for _ in range(300):
            array = buffers.take(SIZE)
            array.fill(mark)
            if not (array == mark).all():
                shared.append(mark)

    threads = [Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared == []
