"""The README's example runs as it stands there."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, str(README), "exec"), {})
    assert "[ True  True  True] 2" in capsys.readouterr().out
