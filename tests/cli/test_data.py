"""`stepwell data synth`."""

import json
from pathlib import Path

import pytest

from stepwell.cli import main
from stepwell.data import ParquetSource, SyntheticSource, teacher_auc


def test_synth_writes_files_and_prints_the_best_auc(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "samples"
    settings = ["--set", "alpha=1.2", "--set", "vocabulary=5000", "--set", "first_row=500"]
    assert main(["data", "synth", str(out), "--rows", "2e4", *settings]) == 0
    printed = capsys.readouterr().out
    summary = json.loads((out / "synthetic.json").read_text())
    made = SyntheticSource(rows=20_000, alpha=1.2, vocabulary=5000, first_row=500)
    assert SyntheticSource.from_dict(summary["source"]) == made
    files = ParquetSource(paths=(str(out),))
    [unit] = files.units()
    best = teacher_auc(files.read(unit, ["teacher"])["teacher"].values)  # type: ignore[arg-type]
    assert summary["teacher_auc"] == pytest.approx(best, abs=1e-6)
    assert f"best AUC that can be reached {best:.4f}" in printed and f"{summary['dense_auc']:.4f}" in printed
    assert main(["data", "synth", str(out), "--rows", "10"]) == 1
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "1.5"], "expected a whole number"),
        (["--rows", "10", "--shape", "other"], "invalid choice: 'other'"),
        (["--rows", "10", "--set", "alfa=1"], "'alpha'"),
        (["--rows", "10", "--shape", "sequence", "--format", "tsv"], "expected 'parquet'"),
    ],
)
def test_what_cannot_be_made_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    try:
        assert main(["data", "synth", str(tmp_path / "out"), *arguments]) == 1
    except SystemExit as wrong_usage:
        assert wrong_usage.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
