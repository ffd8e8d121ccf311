"""Arguments of every command. What a command does is imported when it is chosen: most of them need no torch."""

import argparse
from pathlib import Path
from typing import TypeAlias

from stepwell import __version__

_RECIPE = "PATH.py:FUNCTION, a function that returns a TrainConfig; PATH.py: the one named like the file"
_SETTINGS = "change a field, as in store.dram_bytes=2GiB or store.tables.items.dim=32"
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def make_parser() -> argparse.ArgumentParser:
    """The parser; what it returns has `run_command`, to be called with it."""
    parser = argparse.ArgumentParser(prog="stepwell", description="Sparse models over tiered tables.")
    parser.add_argument("--version", action="version", version=f"stepwell {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_train(commands)
    _add_show(commands)
    _add_eval(commands)
    _add_report(commands)
    _add_data(commands)
    _add_store(commands)
    return parser


def _add_train(commands: Commands) -> None:
    parser = commands.add_parser("train", help="run a recipe, and show it while it runs")
    parser.add_argument("recipe", metavar="RECIPE", help=_RECIPE)
    _add_settings(parser)
    parser.add_argument("--out", type=Path, metavar="RUN", help="the folder that the run makes and fills")
    parser.add_argument("--steps", type=_count, default=0, metavar="N", help="end after so many steps")
    parser.add_argument("--trace", action="store_true", help="keep every span: RUN/trace.json, for ui.perfetto.dev")
    parser.add_argument(
        "--verify",
        choices=["exact"],
        help="keep no run: train --steps batches (20) with the pipeline and without it, and compare every bit",
    )

    def run(parsed: argparse.Namespace) -> int:
        from stepwell.cli import train

        return train.run(parsed)

    parser.set_defaults(run_command=run)


def _add_show(commands: Commands) -> None:
    parser = commands.add_parser("show", help="a recipe's config, tables and memory, before anything is allocated")
    parser.add_argument("recipe", metavar="RECIPE", help=_RECIPE)
    _add_settings(parser)

    def run(parsed: argparse.Namespace) -> int:
        from stepwell.cli import show

        return show.run(parsed)

    parser.set_defaults(run_command=run)


def _add_eval(commands: Commands) -> None:
    parser = commands.add_parser("eval", help="figures of a finished run over data")
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a finished run")
    parser.add_argument("--data", metavar="PATH", help="files (a folder, a glob) in place of the run's evaluation data")
    parser.add_argument("--against", metavar="COLUMN", help="a column of probabilities, compared on the same samples")
    parser.add_argument("--within", type=float, metavar="AUC", help="exit with 1 if --against is better by more")

    def run(parsed: argparse.Namespace) -> int:
        from stepwell.cli import evaluate

        return evaluate.run(parsed)

    parser.set_defaults(run_command=run)


def _add_report(commands: Commands) -> None:
    parser = commands.add_parser("report", help="write a run's page of pictures, RUN/report.html")
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run; it may still be going on")

    def run(parsed: argparse.Namespace) -> int:
        from stepwell.report import write_report

        print(write_report(parsed.run))
        return 0

    parser.set_defaults(run_command=run)


def _add_data(commands: Commands) -> None:
    verbs = commands.add_parser("data", help="make samples").add_subparsers(required=True, metavar="VERB")
    text = "write synthetic samples with a planted teacher, and print the best AUC that can be reached"
    parser = verbs.add_parser("synth", help=text, description=text)
    parser.add_argument("out", type=Path, metavar="OUT", help="a folder that is not there yet")
    parser.add_argument("--rows", type=_count, required=True, metavar="N", help="how many, for example 3e6")
    parser.add_argument("--shape", choices=["criteo", "sequence"], default="criteo", help="columns (criteo)")
    parser.add_argument("--format", choices=["parquet", "tsv"], default="parquet", help="of the files (parquet)")
    _add_settings(parser, "a field of SyntheticSource: alpha, vocabulary, churn, auc, seed, first_row, ...")

    def run(parsed: argparse.Namespace) -> int:
        from stepwell.cli import data

        return data.synth(parsed)

    parser.set_defaults(run_command=run)


def _add_store(commands: Commands) -> None:
    stores = commands.add_parser("store", help="look at a store's directory").add_subparsers(
        required=True, metavar="VERB"
    )
    for verb, text in (
        ("stats", "segments, live and stale bytes, rows per table"),
        ("check", "verify every record"),
        ("get", "print rows"),
        ("erase", "remove rows for good, from the files too"),
    ):
        _add_store_verb(stores, verb, text)


def _add_store_verb(stores: Commands, verb: str, text: str) -> None:
    parser = stores.add_parser(verb, help=text, description=f"{text}; no process may have the directory open")
    parser.add_argument("directory", type=Path, metavar="DIR")
    if verb in ("get", "erase"):
        parser.add_argument("table", metavar="TABLE")
        parser.add_argument("ids", type=_id, nargs="+", metavar="ID", help="any int64; put -- before negative ones")
    if verb == "check":
        parser.add_argument("--repair", action="store_true", help="drop what fails its checksum, and say which")
    else:
        parser.add_argument("--buffered", action="store_true", help="for file systems without O_DIRECT")

    def run(parsed: argparse.Namespace) -> int:
        from stepwell.cli import store

        if verb == "check":
            return store.check(parsed.directory, repair=parsed.repair)
        if verb == "stats":
            return store.stats(parsed.directory, direct=not parsed.buffered)
        of_rows = store.get if verb == "get" else store.erase
        return of_rows(parsed.directory, parsed.table, parsed.ids, direct=not parsed.buffered)

    parser.set_defaults(run_command=run)


def _add_settings(parser: argparse.ArgumentParser, text: str = _SETTINGS) -> None:
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=f"{text}; may be given again")


def _count(text: str) -> int:
    try:
        value = float(text.replace("_", ""))
    except ValueError:
        value = 0.0
    if not (value >= 1 and value.is_integer()):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number of at least 1")
    return int(value)


def _id(text: str) -> int:
    try:
        value = int(text, 0)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected an integer") from error
    if not -(1 << 63) <= value < 1 << 63:
        raise argparse.ArgumentTypeError(f"found {text}, expected an int64: -2**63 to 2**63 - 1")
    return value
