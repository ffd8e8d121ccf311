"""fio: what the disk under a folder gives to random 4 KiB reads, the limit that an SSD tier is measured against."""

import json
import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.peers import PeerMissing

_ENGINES = ("io_uring", "libaio")  # the first that this kernel allows


def random_read_iops(path: str | Path, size_bytes: int, seconds: float) -> float:
    """Random 4 KiB reads per second, O_DIRECT, 32 in flight, over a file of `size_bytes` in the folder `path`.

    The file is laid out by the first call and used again by later ones; it goes with the folder.
    """
    if shutil.which("fio") is None:
        raise PeerMissing("fio is not installed; run `make setup-peers`")
    file = Path(path) / "fio-random-read.bin"
    if not file.exists() or file.stat().st_size != size_bytes:
        _lay_out(file, size_bytes)
    refusals = []
    for engine in _ENGINES:
        run = subprocess.run(_command(file, size_bytes, seconds, engine), capture_output=True, text=True, check=False)
        if run.returncode == 0:
            return float(json.loads(run.stdout[run.stdout.index("{") :])["jobs"][0]["read"]["iops"])
        refusals.append(f"{engine}: {(run.stderr or run.stdout).strip()}")
    raise OSError("fio could not read at random: " + "; ".join(refusals))


def _lay_out(file: Path, size_bytes: int) -> None:
    block = os.urandom(1 << 20)  # written, not fallocated: reads of unwritten extents never reach the disk
    with file.open("wb") as out:
        for at in range(0, size_bytes, len(block)):
            out.write(block[: size_bytes - at])
        out.flush()
        os.fsync(out.fileno())


def _command(file: Path, size_bytes: int, seconds: float, engine: str) -> list[str]:
    settings = {
        "name": "random-read",
        "filename": file,
        "size": size_bytes,
        "rw": "randread",
        "bs": "4k",
        "direct": 1,
        "iodepth": 32,
        "ioengine": engine,
        "time_based": 1,
        "runtime": f"{max(1, round(seconds * 1000))}ms",
        "norandommap": 1,
        "output-format": "json",
    }
    return ["fio", *(f"--{name}={value}" for name, value in settings.items())]
