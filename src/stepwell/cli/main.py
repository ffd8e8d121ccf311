"""Arguments of the command, and the one place where an error becomes an exit status."""

import argparse
import sys
from pathlib import Path

from stepwell import __version__
from stepwell.cli import data, demo, store
from stepwell.errors import StepwellError
from stepwell.report import write_report
from stepwell.telemetry import setup_logging


def main(arguments: list[str] | None = None) -> int:
    """Run one command: 0 done, 1 it failed or found damage, 2 wrong usage."""
    parsed = _parser().parse_args(arguments)
    setup_logging()
    try:
        return int(parsed.run_command(parsed))
    except StepwellError as error:
        print("; ".join([f"error: {error}", *getattr(error, "__notes__", [])]), file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="stepwell", description="Sparse models over tiered tables.")
    parser.add_argument("--version", action="version", version=f"stepwell {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    shown = commands.add_parser("demo", help="fill a store larger than its memory, read it back, print speeds")
    shown.add_argument("--directory", type=Path, default=Path("demo-store"), help="made and removed (demo-store)")
    shown.add_argument("--rows", type=int, default=1_000_000, help="rows of 272 bytes (1000000)")
    shown.set_defaults(run_command=lambda parsed: demo.run(parsed.directory, parsed.rows))

    data.add_parser(commands)
    report = commands.add_parser("report", help="write a run's page of pictures, RUN/report.html")
    report.add_argument("run", type=Path, metavar="RUN", help="the folder of a run; it may still be going on")
    report.set_defaults(run_command=_report)

    stores = commands.add_parser("store", help="look at a store's directory").add_subparsers(
        required=True, metavar="VERB"
    )
    stats = _store_verb(stores, "stats", "segments, live and stale bytes, rows per table")
    stats.set_defaults(run_command=lambda parsed: store.stats(parsed.directory, direct=not parsed.buffered))
    check = _store_verb(stores, "check", "verify every record")
    check.add_argument("--repair", action="store_true", help="drop what fails its checksum, and say which")
    check.set_defaults(run_command=lambda parsed: store.check(parsed.directory, repair=parsed.repair))
    get = _store_verb(stores, "get", "print rows", named=True)
    get.set_defaults(
        run_command=lambda parsed: store.get(parsed.directory, parsed.table, parsed.ids, direct=not parsed.buffered)
    )
    erase = _store_verb(stores, "erase", "remove rows for good, from the files too", named=True)
    erase.set_defaults(
        run_command=lambda parsed: store.erase(parsed.directory, parsed.table, parsed.ids, direct=not parsed.buffered)
    )
    return parser


def _report(parsed: argparse.Namespace) -> int:
    print(write_report(parsed.run))
    return 0


def _store_verb(
    stores: "argparse._SubParsersAction[argparse.ArgumentParser]", verb: str, text: str, *, named: bool = False
) -> argparse.ArgumentParser:
    parser = stores.add_parser(verb, help=text, description=f"{text}; no process may have the directory open")
    parser.add_argument("directory", type=Path, metavar="DIR")
    if named:
        parser.add_argument("table", metavar="TABLE")
        parser.add_argument("ids", type=_id, nargs="+", metavar="ID", help="any int64; put -- before negative ones")
    if verb != "check":
        parser.add_argument("--buffered", action="store_true", help="for file systems without O_DIRECT")
    return parser


def _id(text: str) -> int:
    try:
        value = int(text, 0)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected an integer") from error
    if not -(1 << 63) <= value < 1 << 63:
        raise argparse.ArgumentTypeError(f"found {text}, expected an int64: -2**63 to 2**63 - 1")
    return value
