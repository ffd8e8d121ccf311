"""StoreConfig: what a store holds and what it may use."""

import os
from dataclasses import dataclass, field
from typing import Literal

from stepwell.config import Config
from stepwell.rows import TableSpec

Mode = Literal["train", "read"]
_MAX_BYTES = 1 << 62


def _available_threads() -> int:
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True, kw_only=True, slots=True)
class SsdSettings(Config):
    """How the SSD tier reads and writes. The defaults suit an NVMe disk."""

    io: Literal["auto", "uring", "pread"] = "auto"  # auto: io_uring where the system allows it; stats() says which
    direct: bool = True  # O_DIRECT, so that the page cache is no hidden tier; False for file systems without it
    segment_bytes: int = 64 << 20
    write_buffer_bytes: int = 8 << 20  # rows accepted and not yet written; more make the writer wait
    queue_depth: int = 64  # reads in flight per call
    background_compaction: bool = True

    def __post_init__(self) -> None:
        self._require(self.io in ("auto", "uring", "pread"), "io", "'auto', 'uring' or 'pread'")
        self._require_instance("direct", bool)
        self._require_int("segment_bytes", 1 << 16, 1 << 36)
        self._require_int("write_buffer_bytes", 1 << 16, 1 << 36)
        self._require_int("queue_depth", 1, 4096)
        self._require_instance("background_compaction", bool)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreConfig(Config):
    """A store has the tiers its budgets name: DRAM alone, or DRAM over SSD. SSD alone serves mode "read"."""

    tables: tuple[TableSpec, ...]
    dram_bytes: int = 0  # all of it: rows, index, overlays
    ssd_bytes: int = 0  # of disk, stale rows and room for compaction included; 0: no SSD tier
    ssd_directory: str = ""
    ssd: SsdSettings = field(default_factory=SsdSettings)
    seed: int = 0
    mode: Mode = "train"
    threads: int = field(default_factory=_available_threads)  # of the core, for all calls together
    touched_ids: int = 1 << 24  # how many ids the log of touched rows keeps, 8 bytes each

    def __post_init__(self) -> None:
        self._require_tuple_of("tables", TableSpec)
        self._require(len(self.tables) > 0, "tables", "at least one TableSpec")
        names = [spec.name for spec in self.tables]
        twice = sorted({name for name in names if names.count(name) > 1})
        self._require(not twice, "tables", f"different names; twice: {', '.join(twice)}")
        self._require_int("dram_bytes", 0, _MAX_BYTES)
        self._require_int("ssd_bytes", 0, _MAX_BYTES)
        self._require_instance("ssd_directory", str)
        self._require_instance("ssd", SsdSettings)
        self._require_int("seed", 0, (1 << 64) - 1)
        self._require(self.mode in ("train", "read"), "mode", "'train' or 'read'")
        self._require_int("threads", 1, 1024)
        self._require_int("touched_ids", 1, 1 << 40)
        has_ssd = self.ssd_bytes > 0
        self._require(
            has_ssd == bool(self.ssd_directory),
            "ssd_directory",
            "a directory exactly when ssd_bytes is more than 0" + (f" (it is {self.ssd_bytes})" if has_ssd else ""),
        )
        enough = self.dram_bytes > 0 or (has_ssd and self.mode == "read")
        self._require(enough, "dram_bytes", "more than 0: rows are trained in DRAM (mode 'read' can do with SSD alone)")
