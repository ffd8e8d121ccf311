"""`stepwell train`: run a recipe and show it while it runs; `--verify exact` checks its pipeline instead."""

import argparse
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from stepwell.cli.progress import Progress
from stepwell.cli.recipe import load_recipe
from stepwell.errors import ConfigError
from stepwell.train import TrainConfig, Trainer, verify_exact

_VERIFIED_BATCHES = 20
_INTERRUPTED = 130


def run(parsed: argparse.Namespace) -> int:
    """0 done, 1 the verification found a difference, 130 interrupted; the run folder is whole in any case."""
    config = load_recipe(parsed.recipe, parsed.set, TrainConfig)
    if parsed.verify:
        return _verify(config, parsed.steps or _VERIFIED_BATCHES)
    if parsed.out is None:
        raise ConfigError("--out: found none, expected the folder that the run makes, for example --out runs/first")
    if parsed.steps:
        config = config.replace(steps=parsed.steps)
    with Progress(f"{parsed.recipe} -> {parsed.out}") as progress:
        trainer = Trainer(config, parsed.out, on_record=progress, trace=parsed.trace)
        with _stopping_on_interrupt(trainer):
            end = trainer.run()
    print(f"the run is in {parsed.out}; its pictures: stepwell report {parsed.out}")
    return _INTERRUPTED if end["reason"] == "interrupted" else 0


@contextmanager
def _stopping_on_interrupt(trainer: Trainer) -> Iterator[None]:
    """The first Ctrl-C ends the run at the next step boundary; the second does not wait for that."""

    def stop(signum: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        trainer.stop()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _verify(config: TrainConfig, batches: int) -> int:
    report = verify_exact(config, batches)
    compared = f"{report.batches} steps, {report.rows:,} rows, losses and dense weights"
    if report.exact:
        print(f"exact: {compared} are equal bit for bit, with the pipeline and without")
        return 0
    for difference in report.differences:
        print(difference)
    print(f"NOT exact: {compared} were compared; the first differences are above")
    return 1
