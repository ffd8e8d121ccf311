"""`stepwell eval`: figures of a finished run over data, and its AUC against another prediction of the same rows."""

import argparse

from rich.console import Console

from stepwell.cli.panel import evaluation
from stepwell.data import CriteoSource, ParquetSource, Source
from stepwell.errors import ConfigError
from stepwell.train import Run, compare_with_column, evaluate, open_run

_TEXT = (".tsv", ".txt", ".gz")  # where the run itself read no files


def run(parsed: argparse.Namespace) -> int:
    """0 done, 1 worse than `--within` allows."""
    if parsed.within is not None and not parsed.against:
        raise ConfigError("--within: found no --against, expected the column to be within reach of")
    console = Console()
    with open_run(parsed.run) as opened:
        source = _source(opened, parsed.data)
        figures = evaluate(opened, source)
        console.print(evaluation({"step": opened.store.step, **figures}))
        if not parsed.against:
            return 0
        found = compare_with_column(opened, source, parsed.against)
    auc = figures["tasks"][opened.config.task_names[0]]["auc"]
    print(
        f"AUC {auc:.4f}, of {parsed.against} {auc - found.difference:.4f}: difference {found.difference:+.4f}, "
        f"standard error {found.standard_error:.4f}, on the same {figures['samples']:,} samples"
    )
    if parsed.within is not None and found.difference < -parsed.within:
        print(f"that is more than {parsed.within} below")
        return 1
    return 0


def _source(opened: Run, path: str | None) -> Source:
    config = opened.config
    if path is None:
        if config.evaluate is None:
            raise ConfigError("--data: found none, and the run has no evaluation data of its own: name files")
        return config.evaluate
    for own in (config.evaluate, config.train):
        if isinstance(own, (CriteoSource, ParquetSource)):
            return own.replace(paths=(path,))
    return CriteoSource(paths=(path,)) if path.endswith(_TEXT) else ParquetSource(paths=(path,))
