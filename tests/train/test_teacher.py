"""The demo's model against the teacher that drew the labels, on the same samples, for three seeds."""

from pathlib import Path

import pytest

from recipes.demo import demo
from stepwell.data import SyntheticSource
from stepwell.train import LinearDecay, Trainer, compare_with_column, open_run

SEEDS = (0, 1, 2)


def compare(folder: Path, source: SyntheticSource, evaluation_rows: int, seed: int, batch_size: int) -> None:
    """Train on the source, with most rows on SSD, and compare on what comes after it."""
    made = demo()
    config = made.replace(
        train=source,
        evaluate=source.replace(rows=evaluation_rows, first_row=source.rows),
        store=made.store.replace(seed=seed),
        reader=made.reader.replace(batch_size=batch_size, seed=seed),
        schedule=LinearDecay(warmup_steps=100, steps=source.rows // batch_size, end_factor=0.1),
        evaluate_every=0,
        evaluate_batches=0,
        seed=seed,
    )
    Trainer(config, folder).run()
    assert config.evaluate is not None
    with open_run(folder) as run:
        found = compare_with_column(run, config.evaluate, "teacher")
    print(
        f"seed {seed}: AUC minus the teacher's {found.difference:+.4f}, standard error {found.standard_error:.4f}, "
        f"on {evaluation_rows:,} samples"
    )
    assert -0.01 < found.difference < 3 * found.standard_error
    assert source.auc - source.dense_auc > 0.03  # ids are what it takes


@pytest.mark.parametrize("seed", SEEDS)
def test_a_small_world(tmp_path: Path, seed: int) -> None:
    source = SyntheticSource(rows=1_300_000, vocabulary=1000, alpha=1.4, churn=0.0)
    compare(tmp_path / "run", source, 200_000, seed, batch_size=1024)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", SEEDS)
def test_the_demo(tmp_path: Path, seed: int) -> None:
    compare(tmp_path / "run", SyntheticSource(rows=6_000_000), 1_000_000, seed, batch_size=2048)
