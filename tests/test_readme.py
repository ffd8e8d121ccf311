"""The README's examples run as they stand there."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)


@pytest.mark.parametrize(
    ("example", "printed"),
    list(zip(EXAMPLES, (r"loss 0\.[0-3]\d\d, 200 users, 90 items", r"\[ True  True  True\] 2"), strict=True)),
    ids=("training", "store"),
)
def test_example_runs(
    example: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(example, str(README), "exec"), {})
    assert re.search(printed, capsys.readouterr().out)
