"""What operators do to a store's directory that no process has open: look, check, repair, erase."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.native import ThreadPool, check_ssd_dir
from stepwell.store import manifest
from stepwell.store.config import SsdSettings
from stepwell.store.expiry import Expiry
from stepwell.store.manifest import Manifest
from stepwell.store.ssd import SsdTier, log_directory
from stepwell.store.tables import I64, Mask, Tables
from stepwell.store.tier import Found, TierStats

_NO_LIMIT = 1 << 62
_THREADS = 2


@dataclass(frozen=True, slots=True)
class DirectoryStats:
    """A store's directory at its last sync."""

    manifest: Manifest
    rows: dict[str, int]  # by table; expired rows that were not dropped yet are in it
    tier: TierStats


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check of one log found. Offsets are bytes into the file."""

    directory: Path
    records: int
    live_rows: int
    problems: list[tuple[str, int, str]]  # file, offset, what
    lost: list[tuple[str, int]]  # table, id of records that repair dropped, where a footer names them
    lost_unnamed: int
    repaired: bool


@contextmanager
def opened(directory: str | Path, *, direct: bool) -> Iterator[tuple[Manifest, Tables, SsdTier]]:
    """The logs of a directory. StoreLocked while another process has it."""
    saved = manifest.read(directory)
    tables = Tables(saved.specs, saved.seed, saved.numbers)
    settings = SsdSettings(direct=direct, background_compaction=False)
    tier = SsdTier(tables, str(directory), _NO_LIMIT, settings, ThreadPool(_THREADS), create=False)
    try:
        for table in tables:
            expiry = Expiry(table)
            if table.spec.name in saved.expiry:
                expiry.restore(saved.expiry[table.spec.name])
            tier.set_expiry(table.number, expiry.rule)
        yield saved, tables, tier
    finally:
        tier.close()


def stats(directory: str | Path, *, direct: bool) -> DirectoryStats:
    """Segments, bytes and rows per table."""
    with opened(directory, direct=direct) as (saved, tables, tier):
        return DirectoryStats(saved, {table.spec.name: tier.num_rows(table.number) for table in tables}, tier.stats())


def check(directory: str | Path, *, repair: bool) -> list[Checked]:
    """Verify every record of every log; `repair` drops those that fail their checksum and nothing else."""
    saved = manifest.read(directory)
    tables = Tables(saved.specs, saved.seed, saved.numbers)
    names = {table.number: table.spec.name for table in tables}
    checked = []
    for fingerprint in tables.by_layout():
        log = log_directory(directory, fingerprint)
        report: dict[str, Any] = check_ssd_dir(str(log), repair)
        checked.append(
            Checked(
                directory=log,
                records=report["records"],
                live_rows=report["live_rows"],
                problems=report["problems"],
                lost=[(names.get(number, f"number {number}"), row_id) for number, row_id in report["lost"]],
                lost_unnamed=report["lost_unnamed"],
                repaired=report["repaired"],
            )
        )
    return checked


def get(directory: str | Path, table: str, ids: I64, *, direct: bool) -> tuple[Found, Tables]:
    """Rows by id, as of the last sync."""
    with opened(directory, direct=direct) as (_, tables, tier):
        return tier.find(tables.named(table).number, ids), tables


def erase(directory: str | Path, table: str, ids: I64, *, direct: bool) -> Mask:
    """Remove rows for good: gone when this returns, from the files too. True where a row was there."""
    with opened(directory, direct=direct) as (_, tables, tier):
        erased = tier.erase(tables.named(table).number, np.ascontiguousarray(ids))
        tier.sync()
        tier.compact(everything=True)
        return erased
