"""The command `stepwell`, as an operator types it, with wrong input too."""

from pathlib import Path

import numpy as np
import pytest

from stepwell import SsdSettings, StoreConfig, TableSpec, TieredStore
from stepwell.cli import main

IDS = np.array([0, -1, 7, 1 << 62], np.int64)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "rows"
    config = StoreConfig(
        tables=(TableSpec(name="clicks", dim=4), TableSpec(name="users", dim=4)),
        dram_bytes=1 << 20,
        ssd_bytes=1 << 28,
        ssd_directory=str(made),
        ssd=SsdSettings(segment_bytes=1 << 16),
    )
    with TieredStore(config) as store:
        store.insert_or_assign("clicks", IDS, np.arange(16, dtype=np.float32).reshape(4, 4))
        store.insert_or_assign("users", IDS[:2], np.ones((2, 4), np.float32))
        store.commit(1)
        store.sync()
    return made


def test_stats(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "stats", str(directory)]) == 0
    out = capsys.readouterr().out
    assert "clicks" in out and "users" in out and "step 1" in out


def test_get(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "get", str(directory), "clicks", "--", "7", "-1"]) == 0
    out = capsys.readouterr().out
    assert "8 9 10 11" in out and "4 5 6 7" in out
    assert main(["store", "get", str(directory), "clicks", "99"]) == 1
    assert "absent" in capsys.readouterr().out


def test_erase_leaves_no_byte(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = np.array([8, 9, 10, 11], np.float32).tobytes()
    held = lambda: [path for path in directory.rglob("*") if path.is_file() and secret in path.read_bytes()]  # noqa: E731
    assert held()
    assert main(["store", "erase", str(directory), "clicks", "7", "8"]) == 0
    assert capsys.readouterr().out == "7: erased\n8: was not there\n"
    assert not held()
    assert main(["store", "get", str(directory), "clicks", "7"]) == 1
    assert main(["store", "get", str(directory), "clicks", "0", str(1 << 62)]) == 0


def test_check_and_repair(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "check", str(directory)]) == 0
    needle = np.array([8, 9, 10, 11], np.float32).tobytes()
    segment = next(path for path in directory.rglob("*.log") if needle in path.read_bytes())
    data = bytearray(segment.read_bytes())
    data[data.index(needle)] ^= 1
    segment.write_bytes(bytes(data))
    capsys.readouterr()
    assert main(["store", "check", str(directory)]) == 1
    out = capsys.readouterr().out
    assert segment.name in out.replace("\n", "") and "--repair" in out
    assert main(["store", "check", str(directory), "--repair"]) == 0
    assert "dropped: " in capsys.readouterr().out
    assert main(["store", "check", str(directory)]) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["stats", "nowhere"], "not a store's directory"),
        (["get", "DIR", "click", "1"], "did you mean 'clicks'"),
        (["check", "nowhere"], "not a store's directory"),
        (["erase", "DIR", "nothing", "1"], "unknown table"),
    ],
)
def test_wrong_input(directory: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    words = [str(directory) if word == "DIR" else word for word in arguments]
    assert main(["store", *words]) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("row_id", ["x", str(1 << 63), "1.5"])
def test_wrong_ids(directory: Path, capsys: pytest.CaptureFixture[str], row_id: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["store", "get", str(directory), "clicks", row_id])
    assert stopped.value.code == 2
    assert "int" in capsys.readouterr().err


def test_a_store_in_use_is_refused(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = StoreConfig(
        tables=(TableSpec(name="clicks", dim=4), TableSpec(name="users", dim=4)),
        ssd_bytes=1 << 28,
        ssd_directory=str(directory),
        ssd=SsdSettings(segment_bytes=1 << 16),
        mode="read",
    )
    with TieredStore(config) as store:
        assert store.find("clicks", IDS).found.all()
        assert main(["store", "stats", str(directory)]) == 1
        assert "is in use by process" in capsys.readouterr().err
