"""verify_exact says "exact" of a run that is, and names what differs in one that is not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stepwell.errors import ConfigError
from stepwell.rows import TTL, Adam, MaxRows, MinCount
from stepwell.store import SsdSettings, StoreConfig
from stepwell.train import TrainConfig, stages, verify, verify_exact
from stepwell.train.pipeline import Stage
from tests.train.runs import TABLES, config, source

POLICIES = (
    TABLES[0].replace(admission=MinCount(n=2), expiry=(TTL(steps=7),)),
    TABLES[1].replace(expiry=(MaxRows(n=60),), optimizer=Adam(lr=0.05)),
    TABLES[2].replace(expiry=(MaxRows(n=70, by="lfu"),), weight_dtype="bf16"),
)


def small(tmp_path: Path, **changes: Any) -> TrainConfig:
    store = StoreConfig(
        tables=POLICIES,
        dram_bytes=700_000,
        ssd_bytes=1 << 28,
        ssd_directory=str(tmp_path / "rows"),
        ssd=SsdSettings(segment_bytes=1 << 16, write_buffer_bytes=1 << 16),
        threads=2,
    )
    return config(rows=2048, store=store, depth=4, fetch_window=2, **changes)


@pytest.mark.parametrize("changes", [{}, {"accumulate": 2}])
def test_an_exact_run(tmp_path: Path, changes: dict[str, Any]) -> None:
    report = verify_exact(small(tmp_path, **changes), 6, after=9)
    assert report.exact, report.differences
    assert report.batches == 6
    assert report.rows > 6 * 64
    assert list(tmp_path.iterdir()) == []


def test_in_memory_and_from_the_first_step(tmp_path: Path) -> None:
    assert verify_exact(config(), 5, after=0).exact


def test_data_that_ends(tmp_path: Path) -> None:
    made = config(rows=640)
    assert verify_exact(made, 8, after=5).batches == 5
    with pytest.raises(ConfigError, match="ends before the first step"):
        verify_exact(made, 8, after=10)
    with pytest.raises(ConfigError, match="batches: found 0"):
        verify_exact(made, 0)


def tampered(monkeypatch: pytest.MonkeyPatch, tamper: Any) -> None:
    """`tamper(step, learner)` after each step of the run, not of the reference."""

    def five_stages(learner: Any, *args: Any) -> tuple[Stage, ...]:
        made = list(stages.five_stages(learner, *args))
        compute = made[3]

        def run(step: int, item: Any) -> Any:
            done = compute.run(step, item)
            if learner.config.depth > 1:
                tamper(step, learner)
            return done

        made[3] = Stage(name="compute", run=run, here=True)
        return tuple(made)

    monkeypatch.setattr(verify, "five_stages", five_stages)


def test_a_changed_row_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = np.array([3], np.int64)  # among every sample's words

    def tamper(step: int, learner: Any) -> None:
        if step == 7:
            [slot] = learner.store.pin("words", wanted, step=8)
            learner.store.slots("words")[slot, 5] ^= 0x80  # the sign of the weight's third column
            learner.store.unpin("words", np.array([slot]), False)

    tampered(monkeypatch, tamper)
    still = small(tmp_path, frozen_tables=("users", "items", "words"), frozen_dense=True)  # it stays the only one
    report = verify_exact(still, 6, after=5)
    assert not report.exact
    losses, row, *_ = report.differences
    assert losses.startswith("step 8: losses: found (")
    assert row.startswith("step 8: table 'words', id 3, column weight[2]: found")
    spread = verify_exact(small(tmp_path), 6, after=5).differences
    assert {text.split(",")[0] for text in spread[1:]} == {
        f"step 8: table {name!r}" for name in ("users", "items", "words")
    }


def test_a_changed_dense_weight_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def tamper(step: int, learner: Any) -> None:
        if step == 10:  # the last
            with torch.no_grad():
                next(learner.model.parameters()).view(-1)[1].add_(1e-3)

    tampered(monkeypatch, tamper)
    report = verify_exact(config(), 5, after=5)
    assert len(report.differences) == 1
    assert report.differences[0].startswith("after the last step: dense weight ")
    assert ", element 1: found" in report.differences[0]


def test_a_changed_loss_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def tamper(step: int, learner: Any) -> None:
        if step == 7:
            with torch.no_grad():
                for parameter in learner.model.parameters():
                    parameter.mul_(1.01)

    tampered(monkeypatch, tamper)
    report = verify_exact(config(), 5, after=5)
    assert report.differences[0].startswith("step 8: losses: found (")
    assert source(64).units()
