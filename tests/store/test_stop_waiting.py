"""Who waits for the pins of steps that will never commit can be told so."""

from threading import Thread

import pytest

from stepwell.errors import StoreFull
from stepwell.rows import TableSpec
from stepwell.store import StoreConfig, TieredStore
from stepwell.store.tables import Tables
from stepwell.store.twins import MemoryTier
from tests.store.model import int64s
from tests.store.test_tiered_model import dram_bytes_for

SPECS = (TableSpec(name="a", dim=4),)


def test_stop_waiting_wakes_who_waits_and_who_would() -> None:
    config = StoreConfig(tables=SPECS, dram_bytes=dram_bytes_for(SPECS, 64), threads=1)
    with TieredStore(config, below=MemoryTier(Tables(SPECS, 0))) as store:
        store.pin("a", int64s(range(60)), step=1)
        failed: list[str] = []

        def fetch() -> None:
            with pytest.raises(StoreFull) as caught:
                store.pin("a", int64s(range(100, 160)), step=2, timeout_s=300.0)
            failed.append(str(caught.value))

        waiter = Thread(target=fetch)
        waiter.start()
        while store.stats().counters.get("waits_for_pins", 0) == 0:
            pass
        store.stop_waiting()
        waiter.join(60)
        assert len(failed) == 1
        fetch()
        assert len(failed) == 2
