"""Training on one machine against its peers and its bars. `python -m benchmarks.train_cpu [--quick] [--case NAME]`."""

from benchmarks import train_cpu_dlrm, train_cpu_read, train_cpu_sparse, train_cpu_tiers
from benchmarks.harness import main

CASES = [*train_cpu_sparse.CASES, *train_cpu_dlrm.CASES, *train_cpu_tiers.CASES, *train_cpu_read.CASES]

if __name__ == "__main__":
    raise SystemExit(main("train_cpu", CASES))
