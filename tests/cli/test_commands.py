"""train, show, eval and report, as a person types them, with wrong input too."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell.cli import main

DEBUG = str(Path(__file__).parents[2] / "recipes" / "debug_cpu.py")
SMALL = [
    *("--set", "train.rows=5120", "--set", "evaluate.rows=2560"),
    *("--set", "evaluate_every=10", "--set", "log_every=5"),
]
ARRAYS = """
import numpy as np
from stepwell import StoreConfig, TableSpec
from stepwell.data import ArraySource, FeatureSet, IdFeature, ReaderConfig
from stepwell.models import DLRM
from stepwell.train import Task, TrainConfig

N = 600

def arrays(ids=True, more=True) -> TrainConfig:
    rng = np.random.default_rng(0)
    lists = [rng.integers(0, 9, 2) if ids else np.empty(0, np.int64) for _ in range(N)]
    others = [rng.integers(0, 9, 1) if more else np.empty(0, np.int64) for _ in range(N)]
    features = tuple(
        IdFeature(name=name, side="item", column=name, table=name, max_ids=2, pooling="sum") for name in ("a", "b")
    )
    source = ArraySource(columns={"a": lists, "b": others, "label": rng.integers(0, 2, N).astype(np.float32)})
    return TrainConfig(
        train=source, evaluate=source, features=FeatureSet(features=features), tasks=(Task(name="label"),),
        store=StoreConfig(tables=tuple(TableSpec(name=name, dim=4) for name in ("a", "b")), dram_bytes=1 << 21),
        model=DLRM(bottom=(), top=(8,)), reader=ReaderConfig(batch_size=100), log_every=2,
    )

def no_ids() -> TrainConfig:
    return arrays(ids=False, more=False)

def one_feature_empty() -> TrainConfig:
    return arrays(more=False)
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small run."""
    run = tmp_path_factory.mktemp("runs") / "small"
    assert main(["train", DEBUG, "--out", str(run), "--trace", *SMALL]) == 0
    return run


def test_train_leaves_a_whole_folder(finished: Path) -> None:
    names = {"config.json", "metrics.jsonl", "timeline.jsonl", "trace.json", "model.json", "dense.safetensors"}
    assert names <= {path.name for path in finished.iterdir()}
    records = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert records[0]["kind"] == "start" and records[-1]["kind"] == "end"
    assert records[-1]["samples"] == 5120
    assert {event["name"] for event in json.loads((finished / "trace.json").read_text())["traceEvents"]} >= {"compute"}


def test_train_prints_plain_lines_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", DEBUG, "--out", str(tmp_path / "run"), "--steps", "6", *SMALL]) == 0
    out = capsys.readouterr().out
    assert "step 5/6" in out and "limits" in out and "(steps)" in out and "\x1b" not in out


def test_eval(finished: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["eval", str(finished)]) == 0
    out = capsys.readouterr().out
    last = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()][-2]
    assert f"{last['tasks']['click']['auc']:.4f}" in out
    assert main(["data", "synth", str(tmp_path / "files"), "--rows", "2000", "--set", "vocabulary=10_000"]) == 0
    assert main(["eval", str(finished), "--data", str(tmp_path / "files"), "--against", "teacher"]) == 0
    out = capsys.readouterr().out
    assert "2,000 samples" in out and "of teacher 0.7" in out and "standard error 0.0" in out
    assert main(["eval", str(finished), "--against", "teacher", "--within", "0.0001"]) == 1
    assert "more than 0.0001 below" in capsys.readouterr().out


def test_report(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(finished)]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path == finished / "report.html" and "The stages, batch by batch" in path.read_text()
    assert "<title>step " in path.read_text()


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", DEBUG, "--set", "store.dram_bytes=5MiB", "--set", "store.tables.cat_3.dim=9"]) == 1
    captured = capsys.readouterr()
    assert "error: " in captured.err and "dim" in captured.err  # DLRM takes features of one dim
    assert main(["show", DEBUG, "--set", "store.dram_bytes=5MiB", *SMALL]) == 0
    out = capsys.readouterr().out
    assert '"dram_bytes": 5242880' in out and "26 tables" in out and "cat_1 .. cat_26 (26)" in out
    assert "rows and their index" in out and "5 MiB" in out and "in total" in out


def test_verify_exact(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", DEBUG, "--verify", "exact", "--steps", "3", *SMALL]) == 0
    assert "exact: 3 steps" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_leaves_a_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-c", "import sys; from stepwell.cli import main; sys.exit(main())", "train", DEBUG]
    options = ["--out", str(run), "--set", "train.rows=1e9", "--set", "log_every=1", "--set", "evaluate_every=0"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            if line.startswith("step 3"):
                os.kill(process.pid, signal.SIGINT)
                break
        out = process.stdout.read()
        assert process.wait(120) == 130, process.stderr.read()
        assert "Traceback" not in process.stderr.read() and "(interrupted)" in out
    assert main(["eval", str(run)]) == 0


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    path = tmp_path / "arrays.py"
    path.write_text(ARRAYS)
    return path


@pytest.mark.parametrize("function", ["no_ids", "one_feature_empty"])
def test_batches_without_ids_train(arrays: Path, function: str) -> None:
    assert main(["train", f"{arrays}:{function}", "--out", str(arrays.parent / "run")]) == 0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["features.features.item_id.table=x"], "no element 'item_id'"),
        (["features.features.cat_3.table=cats"], "names the table 'cats'"),
        (["store.tables.cat_3.dim=4"], "dim"),
        (["tasks.0.label=int_1"], "expected a number from 0 to 1"),
        (["tasks.0.label=clack"], "'clack'"),
        (["reader.batch_sise=3"], "the closest is 'batch_size'"),
        (["store.dram_bytes=1KiB"], "raise it to at least"),
        (["store.dram_bytes=lots"], "expected an int"),
    ],
)
def test_what_cannot_work_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: list[str], says: str
) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    assert main(["train", DEBUG, "--out", str(tmp_path / "run"), *SMALL, *words]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1 and says in captured.err
    assert "Traceback" not in captured.out + captured.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train", DEBUG], "--out"),
        (["train", "nothing.py", "--out", "x"], "no file nothing.py"),
        (["eval", "nothing"], "no finished run"),
        (["report", "nothing"], "no metrics.jsonl"),
        (["show", DEBUG + ":dbug"], "the closest is 'debug_cpu'"),
        (["show", DEBUG, "--set", "depth"], "expected KEY=VALUE"),
    ],
)
def test_wrong_commands(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert main(arguments) == 1
    assert says in capsys.readouterr().err


def test_a_run_is_never_written_over(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (finished / "metrics.jsonl").read_bytes()
    assert main(["train", DEBUG, "--out", str(finished)]) == 1
    assert "holds a run already" in capsys.readouterr().err
    assert (finished / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("steps", ["0", "-3", "1.5", "x"])
def test_wrong_usage_is_2(capsys: pytest.CaptureFixture[str], steps: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["train", DEBUG, "--steps", steps])
    assert stopped.value.code == 2
    assert "whole number" in capsys.readouterr().err


def test_commands_that_need_no_torch_load_none() -> None:
    program = "import sys; from stepwell.cli import main; main(['report', 'nothing']); print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
