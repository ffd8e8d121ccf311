"""What a run says about where it ran."""

import os
import platform
from importlib import metadata
from pathlib import Path


def describe_machine() -> dict[str, str | int]:
    """Processor, cores this process may use, memory, and the versions that computed: the start line's `machine`."""
    cpu = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),  # arm64 kernels name no model
    )
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "stepwell": metadata.version("stepwell"),
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
