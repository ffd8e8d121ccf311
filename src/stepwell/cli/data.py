"""`stepwell data`: samples for trying things out."""

import argparse
import time
from pathlib import Path

from stepwell.cli.settings import apply_settings
from stepwell.cli.words import in_bytes, in_count, in_rate
from stepwell.data import SyntheticSource


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Join the command line."""
    verbs = commands.add_parser("data", help="make samples").add_subparsers(required=True, metavar="VERB")
    text = "write synthetic samples with a planted teacher, and print the best AUC that can be reached"
    synth = verbs.add_parser("synth", help=text, description=text)
    synth.add_argument("out", type=Path, metavar="OUT", help="a folder that is not there yet")
    synth.add_argument("--rows", type=_count, required=True, metavar="N", help="how many, for example 3e6")
    synth.add_argument("--shape", choices=["criteo", "sequence"], default="criteo", help="columns (criteo)")
    synth.add_argument("--format", choices=["parquet", "tsv"], default="parquet", help="of the files (parquet)")
    synth.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a field of SyntheticSource: alpha, vocabulary, churn, auc, seed, first_row, ...",
    )
    synth.set_defaults(run_command=lambda parsed: run_synth(_source(parsed), parsed.out, parsed.format))


def run_synth(source: SyntheticSource, out: Path, format: str) -> int:
    """Write, then say what is there."""
    from stepwell.data.synthetic_files import write_synthetic

    started = time.perf_counter()
    summary = write_synthetic(source, out, "tsv" if format == "tsv" else "parquet")
    seconds = time.perf_counter() - started
    print(
        f"{out}: {in_count(summary.rows)} rows of shape {source.shape} in {summary.num_parts} files, "
        f"{in_bytes(summary.num_bytes)}, {in_rate(summary.rows / seconds)}"
    )
    print(
        f"best AUC that can be reached {summary.teacher_auc:.4f} (the teacher's own), without ids "
        f"{summary.dense_auc:.4f}; clicks {summary.click_rate:.1%}"
    )
    return 0


def _source(parsed: argparse.Namespace) -> SyntheticSource:
    return apply_settings(SyntheticSource(rows=parsed.rows, shape=parsed.shape), parsed.set)


def _count(text: str) -> int:
    try:
        value = float(text.replace("_", ""))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number of rows") from error
    if not (value >= 1 and value == int(value)):
        raise argparse.ArgumentTypeError(f"found {text}, expected a whole number of rows of at least 1")
    return int(value)
