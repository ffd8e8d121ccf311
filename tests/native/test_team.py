"""A pool beside torch: whose threads do the work, and that the results do not depend on it."""

import ctypes
import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch

from stepwell.native import Routed, ThreadPool, pool_beside_torch

TABLES = np.arange(8, dtype=np.uint32)
BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
TEAM = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)


def routed(pool: ThreadPool) -> list[np.ndarray]:
    random = np.random.default_rng(5)
    values, offsets = random.integers(0, 500, 8 * 300), np.arange(8 * 300 + 1)
    made = Routed(values, offsets, TABLES, 8, pool)
    return [made.ids, made.starts, made.inverse]


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


class Team:
    """Runs the body on threads of its own and on the caller, and remembers being asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self._callback = TEAM(self._run)

    @property
    def address(self) -> int:
        return ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def _run(self, body: int, context: int, num_threads: int, flags: int) -> None:
        assert flags == 0
        self.asked.append(num_threads)
        call = BODY(body)
        threads = [threading.Thread(target=call, args=(context,)) for _ in range(num_threads - 1)]
        for thread in threads:
            thread.start()
        call(context)
        for thread in threads:
            thread.join()


def on_a_thread(work: Callable[[], object]) -> list[object]:
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results


def test_the_main_threads_work_is_the_teams() -> None:
    team = Team()
    pool = ThreadPool(3, team.address)
    assert same(routed(pool), routed(ThreadPool(1)))
    assert team.asked
    assert set(team.asked) == {3}


def test_other_threads_have_the_pools_own() -> None:
    team = Team()
    pool = ThreadPool(3, team.address)
    (found,) = on_a_thread(lambda: routed(pool))
    assert same(found, routed(ThreadPool(1)))  # type: ignore[arg-type]
    assert team.asked == []


@pytest.mark.skipif(not torch.backends.openmp.is_available(), reason="torch was built without OpenMP")
def test_torchs_own_threads_do_it() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        pool = pool_beside_torch(2)
        assert pool.has_team
        assert same(routed(pool), routed(ThreadPool(1)))
        torch.randn(512, 512) @ torch.randn(512, 512)
        assert same(routed(pool), routed(ThreadPool(1)))
        assert not pool_beside_torch(3).has_team  # of another size than torch's
        assert not pool_beside_torch(1).has_team
    finally:
        torch.set_num_threads(before)


def test_no_team_before_torch_is_there() -> None:
    code = (
        "import sys; from stepwell.native import pool_beside_torch as p; print(p(2).has_team, 'torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert out[0] == "False" or out[1] == "True"
