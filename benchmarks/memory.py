"""Memory of a run against what was predicted. `python -m benchmarks.memory [--quick] [--json] [--save]`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.harness import Bar, Case, Measured, Run, Sides, main
from benchmarks.machine import ROOT


@contextmanager
def _run(run: Run) -> Iterator[Sides]:
    seconds = 30 if run.quick else 600
    config: dict[str, Any] = {"seconds": seconds}

    def measure(_: int) -> float:
        code = "from benchmarks.memory_run import main; main()"
        command = [sys.executable, "-c", code, str(run.directory), str(seconds)]
        out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        watched = json.loads(out.splitlines()[-1])
        config.update(watched)
        return 1.0 + float(watched["off"])

    yield Sides(ours=Measured(measure), peer=Bar(1.15), config=config)


CASES = [
    Case(
        name="resident_over_predicted",
        setup=_run,
        unit="1 + the worst line's share off",
        peer_name="bar: within 15%",
        higher_is_better=False,
        rounds=1,
    )
]

if __name__ == "__main__":
    raise SystemExit(main("memory", CASES))
