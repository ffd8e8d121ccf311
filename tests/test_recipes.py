"""Every recipe builds, goes to JSON and back, and trains: debug_cpu whole, the others a few steps of less data."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from stepwell.data import ReaderConfig, SyntheticSource
from stepwell.train import TrainConfig, Trainer, open_run, verify_exact

ROOT = Path(__file__).resolve().parents[1]
SHARED = {"__init__", "criteo"}  # no recipes themselves
NAMES = sorted(path.stem for path in (ROOT / "recipes").glob("*.py") if path.stem not in SHARED)


def recipe(name: str) -> TrainConfig:
    made = getattr(importlib.import_module(f"recipes.{name}"), name)()
    assert isinstance(made, TrainConfig)
    return made


def shrunk(made: TrainConfig) -> TrainConfig:
    """Five steps of 128 samples, made where the recipe reads files."""
    source = made.train if isinstance(made.train, SyntheticSource) else SyntheticSource(rows=640)
    source = source.replace(rows=640, vocabulary=1000)
    return made.replace(
        train=source,
        evaluate=source.replace(rows=256, first_row=640),
        reader=ReaderConfig(batch_size=128),
        evaluate_every=3,
        store=made.store.replace(dram_bytes=32 << 20, ssd_bytes=(1 << 29) * bool(made.store.ssd_bytes)),
        torch_threads=1,
        log_every=1,
    )


def test_the_recipes_are_there() -> None:
    assert set(NAMES) == {"criteo_dcn", "criteo_dlrm", "debug_cpu", "demo", "multitask_mmoe", "sequence_bst"}


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_goes_to_json_and_back(name: str) -> None:
    made = recipe(name)
    assert TrainConfig.from_json(made.to_json()) == made


@pytest.mark.parametrize("name", [name for name in NAMES if name != "debug_cpu"])
def test_a_recipe_trains(tmp_path: Path, name: str) -> None:
    records: list[dict[str, Any]] = []
    end = Trainer(shrunk(recipe(name)), tmp_path / "run", on_record=records.append).run()
    assert (end["step"], end["reason"]) == (5, "data")
    last = [record for record in records if record["kind"] == "eval"][-1]
    for task in recipe(name).task_names:
        assert 0.2 < last["tasks"][task]["log_loss"] < 0.75


def test_debug_cpu_learns_over_two_tiers(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = []
    made = recipe("debug_cpu").replace(torch_threads=1)
    end = Trainer(made, tmp_path / "run", on_record=records.append).run()
    assert end["step"] == 100
    last = [record for record in records if record["kind"] == "train"][-1]
    assert last["tiers"]["ssd"]["rows"] > last["tiers"]["dram"]["rows"] > 0
    assert last["tiers"]["ssd"]["hit_rate"] > 0
    evaluations = [record["tasks"]["click"]["auc"] for record in records if record["kind"] == "eval"]
    assert evaluations[-1] > 0.64
    with open_run(tmp_path / "run") as opened:
        assert opened.store.step == 100


def test_debug_cpu_is_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = verify_exact(recipe("debug_cpu").replace(torch_threads=1), 5, after=10)
    assert report.exact, report.differences
