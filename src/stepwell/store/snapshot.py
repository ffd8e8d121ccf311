"""Snapshots: a store at one commit as a directory of its own, and back.

A snapshot has the files of a store's directory (docs/store_format.md), so `stepwell store` reads it and a store can
be opened on a copy of it. A store over SSD is snapshotted by hard links to sealed segments, one in DRAM alone is
written out. The directory appears under its name when it is whole.
"""

import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

from stepwell.errors import ConfigError, StoreIOError
from stepwell.native import ThreadPool, read_ssd_format
from stepwell.store import manifest
from stepwell.store.config import StoreConfig
from stepwell.store.expiry import Expiry
from stepwell.store.manifest import Manifest
from stepwell.store.ssd import SsdTier, log_directory
from stepwell.store.tables import Tables
from stepwell.store.tiered import TieredStore

_NO_LIMIT = 1 << 62


def snapshot(store: TieredStore, directory: str | Path) -> None:
    """Write the store as of its last commit to a directory that does not exist yet."""
    target = Path(directory)
    if target.exists():
        raise ConfigError(f"directory: {target} exists; a snapshot needs a new one")
    unfinished = target.with_name(f"{target.name}.unfinished-{os.getpid()}-{threading.get_native_id()}")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a process that had this one's numbers and was killed
    try:
        unfinished.mkdir(parents=True)
        with store.frozen() as tier:
            if tier is not None:
                tier.link_to(unfinished)
            else:
                _write_rows(store, unfinished)
            files = {str(path.relative_to(unfinished)): path.stat().st_size for path in unfinished.glob("rows-*/*")}
            manifest.write(unfinished, replace(store.describe(), files=files))
        unfinished.rename(target)
        manifest.sync_directory(target.parent)
    except OSError as error:
        if isinstance(error, StoreIOError):
            raise
        raise StoreIOError(error.errno, f"could not write the snapshot {target}: {error.strerror}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def restore(directory: str | Path, config: StoreConfig) -> TieredStore:
    """A new store with a snapshot's rows, step, policies' state and cursor, in any tiers and budgets.

    The configuration's tables must be the snapshot's (new ones may join); its ssd_directory must hold no store yet.
    Segments are hard-linked where both directories are on one file system and the settings and budget allow, else
    rows are copied. When that fails the directory is as it was; after a crash it holds no store.json, so no store.
    """
    saved = manifest.read(directory)
    manifest.check_tables(saved, config, directory)
    manifest.check_files(saved, directory)
    target = Path(config.ssd_directory) if config.ssd_directory else None
    if target is not None and (manifest.exists(target) or any(target.glob("rows-*"))):
        raise ConfigError(f"ssd_directory: {target} holds a store already; restore into a new directory")
    source = _open_rows(Path(directory), saved, config)
    try:
        if target is None:
            return _in_memory(source, saved, config)
        try:
            target.mkdir(parents=True, exist_ok=True)
            if _can_link(Path(directory), target, saved, config):
                source.link_to(target)
            else:
                _copy_rows(source, saved, config)
            manifest.write(target, replace(saved, files={}))
            return TieredStore(config)
        except BaseException:
            _remove_store(target)
            raise
    finally:
        source.close()


def _open_rows(directory: Path, saved: Manifest, config: StoreConfig) -> SsdTier:
    """A snapshot's rows; expired ones are absent."""
    tables = Tables(saved.specs, saved.seed, saved.numbers)
    segment_bytes = max(_segment_bytes(directory, fingerprint) for fingerprint in tables.by_layout())
    settings = replace(config.ssd, segment_bytes=segment_bytes, background_compaction=False)  # it must not change
    source = SsdTier(tables, str(directory), _NO_LIMIT, settings, ThreadPool(config.threads), create=False)
    for table in tables:
        if table.spec.name in saved.expiry:
            expiry = Expiry(table)
            expiry.restore(saved.expiry[table.spec.name])
            source.set_expiry(table.number, expiry.rule)
    return source


def _segment_bytes(directory: Path, fingerprint: int) -> int:
    return read_ssd_format(str(log_directory(directory, fingerprint)))["segment_bytes"]


def _can_link(directory: Path, target: Path, saved: Manifest, config: StoreConfig) -> bool:
    if directory.stat().st_dev != target.stat().st_dev:
        return False
    tables = Tables(config.tables, config.seed, manifest.numbers_for(config, saved))
    shares = tables.shares(config.ssd_bytes)
    for fingerprint in Tables(saved.specs, saved.seed, saved.numbers).by_layout():
        log = log_directory(directory, fingerprint)
        used = sum(path.stat().st_size for path in log.glob("seg-*"))
        if _segment_bytes(directory, fingerprint) > config.ssd.segment_bytes:
            return False
        if used > shares[fingerprint] // 2:  # with what is stale in it: better without
            return False
    return True


def _copy_rows(source: SsdTier, saved: Manifest, config: StoreConfig) -> None:
    tables = Tables(config.tables, config.seed, manifest.numbers_for(config, saved))
    tier = SsdTier(tables, config.ssd_directory, config.ssd_bytes, config.ssd, ThreadPool(config.threads))
    try:
        for number in saved.numbers.values():
            for ids, records in source.scan(number):
                tier.insert_or_assign(number, ids, records)
        tier.sync()
    finally:
        tier.close()


def _in_memory(source: SsdTier, saved: Manifest, config: StoreConfig) -> TieredStore:
    store = TieredStore(config)
    try:
        for name, number in saved.numbers.items():
            for ids, records in source.scan(number):
                store.insert_records(name, ids, records)
        store.adopt(saved)
    except BaseException:
        store.close()
        raise
    return store


def _remove_store(directory: Path) -> None:
    for log in directory.glob("rows-*"):
        shutil.rmtree(log, ignore_errors=True)
    for pattern in (f"{manifest.FILE}*", "filter-*.u16*"):
        for path in directory.glob(pattern):
            path.unlink(missing_ok=True)


def _write_rows(store: TieredStore, directory: Path) -> None:
    pool = ThreadPool(store.config.threads)
    own = directory / "unsealed"
    own.mkdir()
    tier = SsdTier(store.tables, str(own), _NO_LIMIT, store.config.ssd, pool)
    try:
        for table in store.tables:
            for ids, records in store.export_batch(table.spec.name):
                tier.insert_or_assign(table.number, ids, records)
        tier.link_to(directory)  # sealed, so that nobody who opens the snapshot changes its segments
    finally:
        tier.close()
    shutil.rmtree(own)
