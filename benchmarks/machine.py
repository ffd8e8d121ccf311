"""What a row of figures says about where it was measured: machine, load and commit."""

import os
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def describe_machine() -> str:
    """CPU model, cores this process may use, memory, kernel."""
    cpu = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),  # arm64 kernels name no model
    )
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0))
    return f"{cpu}, {cores} cores, {memory_bytes / 2**30:.0f} GiB, Linux {platform.release()}"


def load_average() -> list[float]:
    """The load over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def describe_commit() -> str:
    """The commit's short hash, with "-dirty" where a tracked file differs; "unknown" outside a repository."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    if not commit:
        return "unknown"
    # Rows of figures are appended to a tracked file while a benchmark runs, and change nothing that is measured.
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
    return commit + ("-dirty" if changed else "")


def _git(*arguments: str) -> str:
    try:
        run = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return run.stdout.strip() if run.returncode == 0 else ""


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
