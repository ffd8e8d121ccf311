"""Buffers: memory comes back when nothing uses it, and never before."""

from threading import Thread

import torch

from stepwell.embedding.buffers import Buffers

SHAPE = (64, 48)


def test_memory_comes_back_when_its_tensor_is_gone() -> None:
    buffers = Buffers()
    first = buffers.take(SHAPE)
    address = first.data_ptr()
    assert address % 64 == 0
    assert first.shape == SHAPE
    assert first.dtype == torch.float32
    assert buffers.take(SHAPE).data_ptr() != address  # and that one is gone at once
    del first
    taken = {buffers.take(SHAPE).data_ptr() for _ in range(5)}
    assert taken == {address}


def test_memory_stays_while_anything_uses_it() -> None:
    buffers = Buffers()

    def stays(make) -> None:
        tensor = buffers.take(SHAPE)
        tensor.fill_(1.0)
        address, user = tensor.data_ptr(), make(tensor)
        del tensor
        others = [buffers.take(SHAPE).fill_(2.0) for _ in range(3)]
        assert address not in [other.data_ptr() for other in others]
        del others, user
        assert buffers.take(SHAPE).data_ptr() == address

    factor = torch.ones(SHAPE, requires_grad=True)
    stays(lambda tensor: tensor[3:5, 7:])
    stays(lambda tensor: tensor.numpy())
    stays(lambda tensor: tensor * factor)  # the graph keeps it for the factor's gradient
    stays(torch.utils.dlpack.to_dlpack)


def test_other_shapes_have_their_own_memory_and_little_lies_unused() -> None:
    buffers = Buffers()
    kept = [buffers.take((n, 8)) for n in range(1, 30)]
    assert len({tensor.data_ptr() for tensor in kept}) == 29
    for n, tensor in enumerate(kept):
        tensor.fill_(n)
    assert all(bool((tensor == n).all()) for n, tensor in enumerate(kept))
    del kept, tensor
    buffers.take((100, 8))
    assert len(buffers._arrays) <= 5
    assert buffers.take((0, 8)).shape == (0, 8)


def test_threads_never_share_memory() -> None:
    buffers, shared = Buffers(), []

    def work(mark: float) -> None:
        for _ in range(300):
            tensor = buffers.take(SHAPE)
            tensor.fill_(mark)
            if not bool((tensor == mark).all()):
                shared.append(mark)

    threads = [Thread(target=work, args=(float(n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared == []
