"""A run: what it learns, writes, changes and leaves alone."""

import json
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from stepwell.data import ArraySource, BatchReader, ReaderConfig
from stepwell.errors import ConfigError, ReadProblem
from stepwell.models import DLRM, ModelConfig
from stepwell.rows import SGD, TTL, TableSpec
from stepwell.store import SsdSettings, StoreConfig
from stepwell.train import (
    DenseSGD,
    EarlyStop,
    Task,
    Trainer,
    evaluate,
    open_run,
)
from stepwell.train.trainer import num_steps
from tests.train.runs import (
    FEATURES,
    SEQUENCE_FEATURES,
    TABLES,
    Record,
    columns,
    config,
    exported,
    of_kind,
    parameters_of,
    ran,
    source,
)


def rows_of(run: Path) -> dict[str, dict[int, bytes]]:
    with open_run(run) as opened:
        return exported(opened.store)


def ssd_store(tables: tuple[TableSpec, ...] = TABLES, **changes: Any) -> StoreConfig:
    settings = SsdSettings(segment_bytes=1 << 16, write_buffer_bytes=1 << 16)
    made: dict[str, Any] = {"dram_bytes": 2 << 20, "ssd_bytes": 1 << 28, "ssd_directory": "rows", "threads": 2}
    return StoreConfig(tables=tables, ssd=settings, **(made | changes))


def test_a_run_learns_and_says_so(tmp_path: Path) -> None:
    made = config(rows=4096, evaluate=source(2048, seed=5), evaluate_every=30, depth=3)
    records = ran(made, tmp_path / "run")
    start, end = of_kind(records, "start")[0], of_kind(records, "end")[0]
    assert (start["step"], start["steps"], end["step"], end["samples"], end["reason"]) == (0, 64, 64, 4096, "data")
    assert start["machine"]["cores"] >= 1
    assert start["parameters"] == sum(t.numel() for t in parameters_of(tmp_path / "run"))
    lines = of_kind(records, "train")
    assert [line["step"] for line in lines] == list(range(4, 65, 4))
    assert [line["samples"] for line in lines] == [line["step"] * 64 for line in lines]
    for line in lines:
        assert set(line["stages"]) == {"read", "route", "fetch", "compute", "write_back"}
        assert line["limits"] in line["stages"]
        assert line["rss_bytes"] > 1 << 20
        assert line["tiers"]["dram"]["bytes_used"] <= line["tiers"]["dram"]["budget_bytes"]
        assert 0.0 <= line["tiers"]["dram"]["hit_rate"] <= 1.0
    evaluations = of_kind(records, "eval")
    assert [record["step"] for record in evaluations] == [30, 60, 64]
    assert evaluations[-1]["tasks"]["label"]["auc"] > 0.7
    assert evaluations[-1]["tasks"]["label"]["auc"] > evaluations[0]["tasks"]["label"]["auc"]
    assert evaluations[-1]["samples"] == 2048
    written = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert written == json.loads(json.dumps(records))


def test_the_run_folder(tmp_path: Path) -> None:
    run = tmp_path / "run"
    made = config(rows=2048, store=ssd_store(), depth=4, fetch_window=2, timeline_steps=5)
    records = ran(made, run, trace=True)
    names = {path.name for path in run.iterdir()}
    assert names == {
        "config.json",
        "features.json",
        "metrics.jsonl",
        "timeline.jsonl",
        "trace.json",
        "model.json",
        "dense.safetensors",
        "snapshot",
    }
    spans = [json.loads(line) for line in (run / "timeline.jsonl").read_text().splitlines()]
    steps = sorted({span["step"] for span in spans})
    assert steps == list(range(steps[0], steps[0] + 5))
    assert {span["name"] for span in spans} == {"read", "route", "fetch", "compute", "write_back"}
    assert len(json.loads((run / "trace.json").read_text())["traceEvents"]) >= 5 * 32
    with open_run(run) as opened:
        assert opened.features == FEATURES
        assert opened.config.store.tables == TABLES
        assert opened.store.step == 32
        figures = evaluate(opened, source(1024, seed=5))
        assert figures["samples"] == 1024
        before = exported(opened.store)
        assert evaluate(opened, source(1024, seed=5)) == figures
        assert exported(opened.store) == before
    assert {path.name for path in run.iterdir()} == names, "what was opened leaves nothing behind"
    assert of_kind(records, "train")[-1]["tiers"].keys() == {"dram", "ssd"}
    with pytest.raises(ConfigError, match="holds a run already"):
        ran(made, run)


def test_a_finished_run_scores_as_it_did_when_it_ended(tmp_path: Path) -> None:
    evaluated = source(1000, seed=5)
    for name, store in (("memory", config().store), ("ssd", ssd_store())):
        records = ran(config(evaluate=evaluated, store=store), tmp_path / name)
        with open_run(tmp_path / name) as opened:
            figures = evaluate(opened, evaluated)
        last = of_kind(records, "eval")[-1]
        assert figures["tasks"]["label"]["auc"] == last["tasks"]["label"]["auc"]
        assert figures["tasks"]["label"]["log_loss"] == last["tasks"]["label"]["log_loss"]


def test_evaluation_changes_nothing(tmp_path: Path) -> None:
    """Not the rows, their stamps and the filters, nor what is trained afterwards."""
    ran(config(rows=1024, store=ssd_store()), tmp_path / "plain")
    others = source(600, seed=5, user=np.arange(600) + 10_000)  # ids that training never sees
    ran(config(rows=1024, store=ssd_store(), evaluate=others, evaluate_every=3), tmp_path / "evaluated")
    assert rows_of(tmp_path / "plain") == rows_of(tmp_path / "evaluated")
    for a, b in zip(parameters_of(tmp_path / "plain"), parameters_of(tmp_path / "evaluated"), strict=True):
        assert torch.equal(a, b)


def test_steps_and_reasons() -> None:
    end = of_kind(ran(config(rows=1024, steps=5)), "end")[0]
    assert (end["step"], end["samples"], end["reason"]) == (5, 320, "steps")
    endless = config(rows=256, reader=ReaderConfig(batch_size=64, epochs=0), steps=11)
    assert of_kind(ran(endless), "end")[0]["step"] == 11


@pytest.mark.parametrize(
    ("reader", "changes", "expected"),
    [
        (ReaderConfig(batch_size=64), {}, 16),
        (ReaderConfig(batch_size=60, epochs=2), {}, 36),
        (ReaderConfig(batch_size=60, epochs=2), {"accumulate": 5}, 8),
        (ReaderConfig(batch_size=60, epochs=0), {"steps": 7}, 7),
        (ReaderConfig(batch_size=60), {"steps": 7}, 7),
        (ReaderConfig(batch_size=60), {"steps": 700}, 18),
    ],
)
def test_the_number_of_steps_is_known_beforehand(reader: ReaderConfig, changes: dict[str, int], expected: int) -> None:
    made = config(rows=1024, reader=reader, **changes)
    with BatchReader(made.train, made.features, made.labels, reader) as opened:
        assert num_steps(made, opened) == expected
    end = of_kind(ran(made), "end")[0]
    assert end["step"] == expected


def test_early_stop() -> None:
    """A model that cannot learn gets no better."""
    tables = tuple(spec.replace(optimizer=SGD(lr=0.0)) for spec in TABLES)
    made = config(
        rows=4096,
        store=StoreConfig(tables=tables, dram_bytes=4 << 20, threads=2),
        optimizer=DenseSGD(lr=0.0),
        evaluate=source(256, seed=5),
        evaluate_every=2,
        early_stop=EarlyStop(metric="log_loss", patience=3),
    )
    records = ran(made)
    assert of_kind(records, "end")[0]["reason"] == "early_stop"
    assert of_kind(records, "end")[0]["step"] == 8  # the first is the best, three more are no better
    assert [record["step"] for record in of_kind(records, "eval")] == [2, 4, 6, 8]


def test_stop_saves_what_is_there(tmp_path: Path) -> None:
    records: list[Record] = []

    def on_record(record: Record) -> None:
        records.append(record)
        if record["kind"] == "train" and record["step"] == 8:
            thread = threading.Thread(target=trainer.stop)
            thread.start()
            thread.join()

    trainer = Trainer(config(rows=64_000), tmp_path / "run", on_record=on_record)
    end = trainer.run()
    assert (end["step"], end["reason"]) == (8, "interrupted")
    with open_run(tmp_path / "run") as opened:
        assert opened.store.step == 8


def test_stop_before_run_trains_nothing(tmp_path: Path) -> None:
    trainer = Trainer(config(), tmp_path / "run")
    trainer.stop()
    assert trainer.run()["step"] == 0


def test_sigint_saves_and_goes_on_to_the_caller(tmp_path: Path) -> None:
    def on_record(record: Record) -> None:
        if record["kind"] == "train" and record["step"] == 8:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        Trainer(config(rows=64_000), tmp_path / "run", on_record=on_record).run()
    with open_run(tmp_path / "run") as opened:
        assert opened.store.step == 8


def test_expiry_by_seconds_gets_its_time(tmp_path: Path) -> None:
    tables = (TABLES[0].replace(expiry=(TTL(seconds=1.0),)), *TABLES[1:])
    made = config(
        store=StoreConfig(tables=tables, dram_bytes=4 << 20, threads=2),
        reader=ReaderConfig(batch_size=64, event_time="time"),
    )
    ran(made, tmp_path / "run")
    with open_run(tmp_path / "run") as opened:
        last = np.asarray(columns(1024)["user"])[-101:]  # 100 samples a second
        before = np.asarray(columns(1024)["user"])
        assert opened.store.find("users", np.unique(last)).found.all()
        assert opened.store.num_rows("users") < len(np.unique(before))


def test_a_batch_without_ids_and_an_empty_feature() -> None:
    empty: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)] * 256
    no_words = ran(config(train=source(256, genres=empty, words=empty)))
    assert of_kind(no_words, "end")[0]["step"] == 4
    missing = np.ma.MaskedArray(np.zeros(256, np.int64), mask=True)
    nothing = ran(config(train=source(256, genres=empty, words=empty, user=missing, item=missing)))
    assert of_kind(nothing, "end")[0]["step"] == 4
    assert all(line["loss"] is not None for line in of_kind(nothing, "train"))
    assert of_kind(nothing, "train")[-1]["tiers"]["dram"]["rows"] == 0


def test_sequences() -> None:
    from stepwell.models import BST

    tables = (TableSpec(name="words", dim=8), TableSpec(name="items", dim=8))
    made = config(
        features=SEQUENCE_FEATURES,
        model=BST(behaviours={"seen": "item"}, deep=(8,)),
        store=StoreConfig(tables=tables, dram_bytes=4 << 20, threads=2),
    )
    assert of_kind(ran(made), "end")[0]["step"] == 16


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        (
            {"store": StoreConfig(tables=(TABLES[0].replace(dim=4), *TABLES[1:]), dram_bytes=4 << 20)},
            ConfigError,
            "user 'user' 4.*one dim for all",
        ),
        ({"train": source(256, label=np.full(256, 2.0))}, ReadProblem, "label.*from 0 to 1"),
        ({"tasks": (Task(name="lable"),)}, ReadProblem, "lable"),
        ({"model": DLRM(), "features": SEQUENCE_FEATURES, "store": None}, ConfigError, "sequence"),
    ],
)
def test_bad_input_is_an_error_before_training(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], says: str
) -> None:
    if "store" in changes and changes["store"] is None:
        tables = (TableSpec(name="words", dim=8), TableSpec(name="items", dim=8))
        changes = changes | {"store": StoreConfig(tables=tables, dram_bytes=4 << 20)}
    records: list[Record] = []
    with pytest.raises(error, match=says):
        Trainer(config(**changes), tmp_path / "run", on_record=records.append).run()
    assert records == []
    assert not (tmp_path / "run" / "config.json").exists()


def test_evaluation_data_without_a_column_is_an_error_before_training(tmp_path: Path) -> None:
    lacking = columns(256)
    del lacking["words"]
    records: list[Record] = []
    made = config(evaluate=ArraySource(columns=lacking))
    with pytest.raises(ReadProblem, match="words"):
        Trainer(made, tmp_path / "run", on_record=records.append).run()
    assert records == []


def test_a_step_larger_than_memory_is_an_error_after_the_steps_before_it(tmp_path: Path) -> None:
    """Found while fetching ahead; every earlier step is trained and kept."""
    rows = 1024
    words = list(columns(rows)["words"])
    tables = tuple(spec.replace(dim=64) for spec in TABLES)
    for at in range(640, 704):
        words[at] = np.arange(4) + at * 4 + 10_000
    store = ssd_store(tables, dram_bytes=600_000)
    made = config(train=source(rows, words=words), store=store, depth=4)
    with pytest.raises(ConfigError, match="raise dram_bytes") as caught:
        Trainer(made, tmp_path / "run").run()
    assert "in stage 'fetch', step 11" in caught.value.__notes__


def test_a_store_that_holds_rows_is_refused(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    made = config(store=ssd_store(ssd_directory=str(kept)))
    ran(made)
    with pytest.raises(ConfigError, match="is not empty, and a run begins without rows"):
        ran(made)


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no finished run: it has no config\.json"):
        open_run(tmp_path)


def test_the_callers_generator_is_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    ran(config(rows=128))
    assert torch.equal(torch.rand(3), expected)


def test_a_model_config_of_ones_own_is_built_from_json() -> None:
    assert ModelConfig.from_json(config().model.to_json()) == config().model
