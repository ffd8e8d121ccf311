"""`stepwell data synth`: samples for trying things out, with the best AUC that anybody can reach on them."""

import argparse
import time

from stepwell.cli.settings import apply_settings
from stepwell.cli.words import in_bytes, in_count, in_rate
from stepwell.data import SyntheticSource
from stepwell.data.synthetic_files import write_synthetic


def synth(parsed: argparse.Namespace) -> int:
    """Write, then say what is there."""
    source = apply_settings(SyntheticSource(rows=parsed.rows, shape=parsed.shape), parsed.set)
    started = time.perf_counter()
    summary = write_synthetic(source, parsed.out, parsed.format)
    seconds = time.perf_counter() - started
    print(
        f"{parsed.out}: {in_count(summary.rows)} rows of shape {source.shape} in {summary.num_parts} files, "
        f"{in_bytes(summary.num_bytes)}, {in_rate(summary.rows / seconds)} rows/s"
    )
    print(
        f"best AUC that can be reached {summary.teacher_auc:.4f} (the teacher's own), without ids "
        f"{summary.dense_auc:.4f}; clicks {summary.click_rate:.1%}"
    )
    return 0
