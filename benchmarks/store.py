"""The store against its peers and its bars. `python -m benchmarks.store [--quick] [--json] [--case NAME] [--save]`."""

from benchmarks import store_churn, store_dram, store_ssd
from benchmarks.harness import main

CASES = [*store_dram.CASES, *store_ssd.CASES, *store_churn.CASES]

if __name__ == "__main__":
    raise SystemExit(main("store", CASES))
