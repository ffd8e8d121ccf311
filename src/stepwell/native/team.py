"""Threads for the core that go well with torch's."""

import ctypes
import os
import sys
from pathlib import Path

from stepwell.native._core import ThreadPool


def pool_beside_torch(num_threads: int) -> ThreadPool:
    """A pool that does the main thread's work on torch's own OpenMP threads, if it may have as many of them.

    They wait for work by spinning, so other threads would have to share their cores with them. A pool made before
    torch was imported, or of another size than `torch.get_num_threads()`, has threads of its own only; so has every
    pool where torch was built without OpenMP.
    """
    torch = sys.modules.get("torch")
    if torch is None or num_threads == 1 or torch.get_num_threads() != num_threads:
        return ThreadPool(num_threads)
    return ThreadPool(num_threads, _team_of(Path(str(torch.__file__)).parent / "lib" / "libtorch_cpu.so"))


def _team_of(library: Path) -> int:
    """The address of GOMP_parallel among a loaded library and those that it needs; 0 where there is none."""
    try:
        loaded = ctypes.CDLL(str(library), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        return ctypes.cast(loaded.GOMP_parallel, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0
