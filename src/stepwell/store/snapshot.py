"""Snapshots: a store at one commit as a directory of its own, and back.

A snapshot has the files of a store's directory (docs/store_format.md), so `stepwell store` reads it and a store can
be opened on a copy of it. A store over SSD is snapshotted by hard links to sealed segments, one in DRAM alone is
written out. The directory appears under its name when it is whole.
"""

import os
import shutil
from pathlib import Path

from stepwell.errors import ConfigError, StoreIOError
from stepwell.native import ThreadPool
from stepwell.store import manifest
from stepwell.store.config import StoreConfig
from stepwell.store.expiry import Expiry
from stepwell.store.ssd import SsdTier
from stepwell.store.tables import Tables
from stepwell.store.tiered import TieredStore

_NO_LIMIT = 1 << 62


def snapshot(store: TieredStore, directory: str | Path) -> None:
    """Write the store as of its last commit to a directory that does not exist yet."""
    target = Path(directory)
    if target.exists():
        raise ConfigError(f"directory: {target} exists; a snapshot needs a new one")
    unfinished = target.with_name(f"{target.name}.unfinished-{os.getpid()}")
    try:
        unfinished.mkdir(parents=True)
        with store.frozen() as tier:
            if tier is not None:
                tier.link_to(unfinished)
            else:
                _write_rows(store, unfinished)
            manifest.write(unfinished, store.describe())
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
    Rows are hard-linked where both directories are on one file system and the same layouts are wanted, else copied.
    """
    saved = manifest.read(directory)
    manifest.check_tables(saved, config, directory)
    if config.ssd_directory and manifest.exists(config.ssd_directory):
        raise ConfigError(f"ssd_directory: {config.ssd_directory} holds a store already; restore into a new directory")
    source_tables = Tables(saved.specs, saved.seed, saved.numbers)
    pool = ThreadPool(config.threads)
    source = SsdTier(source_tables, str(directory), _NO_LIMIT, config.ssd, pool, create=False)
    try:
        if config.ssd_directory and _same_file_system(Path(directory), Path(config.ssd_directory)):
            source.link_to(config.ssd_directory)
            manifest.write(config.ssd_directory, saved)
            return TieredStore(config)
        store = TieredStore(config)
        try:
            for table in source_tables:
                expiry = Expiry(table)
                if table.spec.name in saved.expiry:
                    expiry.restore(saved.expiry[table.spec.name])
                source.set_expiry(table.number, expiry.rule)
                for ids, records in source.scan(table.number):
                    store.insert_records(table.spec.name, ids, records)
            store.adopt(saved)
            if config.ssd_directory:
                store.sync()
        except BaseException:
            store.close()
            raise
        return store
    finally:
        source.close()


def _write_rows(store: TieredStore, directory: Path) -> None:
    pool = ThreadPool(store.config.threads)
    tier = SsdTier(store.tables, str(directory), _NO_LIMIT, store.config.ssd, pool)
    try:
        for table in store.tables:
            for ids, records in store.export_batch(table.spec.name):
                tier.insert_or_assign(table.number, ids, records)
        tier.sync()
    finally:
        tier.close()


def _same_file_system(one: Path, other: Path) -> bool:
    other.mkdir(parents=True, exist_ok=True)
    return one.stat().st_dev == other.stat().st_dev
