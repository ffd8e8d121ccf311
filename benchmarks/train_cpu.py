"""Training on a CPU: peers and bars. `python -m benchmarks.train_cpu [--quick] [--json] [--case NAME] [--save]`."""

from benchmarks import train_cpu_read
from benchmarks.harness import main

CASES = [*train_cpu_read.CASES]

if __name__ == "__main__":
    raise SystemExit(main("train_cpu", CASES))
